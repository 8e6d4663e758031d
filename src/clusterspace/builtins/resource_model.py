"""The words the table of built-in resources is written in, and the resources it is read into."""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from clusterspace.kube.names import NameCheck, dns1123_subdomain_problems
from clusterspace.kube.objects import find_at
from clusterspace.kube.resources import (
    GroupVersion,
    GroupVersionResource,
    ResourceInfo,
    Subresource,
)

Path: TypeAlias = tuple[str, ...]

ALL_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)
CREATE_ONLY: Final = ("create",)
READ_WRITE: Final = ("get", "patch", "update")


class Persistence(Enum):
    """What becomes of an object that a client sends."""

    STORED = "kept, listed and watched"
    ANSWERED = "a question or an order: answered at once, never kept"
    COMPUTED = "made up when somebody asks"


@dataclass(frozen=True, slots=True)
class SelectableField:
    """One field that a field selector may name: the first of its paths that holds something."""

    name: str
    paths: tuple[Path, ...]
    when_absent: str = ""

    def text_of(self, kube_object: Mapping[str, Any]) -> str:
        """Return the field as selectors compare it."""
        for path in self.paths:
            value = find_at(kube_object, *path)
            if isinstance(value, bool):
                return "true" if value else "false"
            if value is not None and value != "":
                return str(value)
        return self.when_absent


def select(name: str, *paths: str, when_absent: str = "") -> SelectableField:
    """Make a selectable field that is read where its name says, or at the paths given."""
    read_at = tuple(tuple(path.split(".")) for path in paths or (name,))
    return SelectableField(name, read_at, when_absent)


NAME: Final = select("metadata.name")
NAMESPACE: Final = select("metadata.namespace")
ONLY_METADATA: Final = (
    '"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'
)
OWN_FIELDS: Final = "field label not supported: {field}"


@dataclass(frozen=True, slots=True)
class FieldSelection:
    """Which fields a field selector may name, and Kubernetes' words for any other."""

    fields: tuple[SelectableField, ...] = (NAME, NAMESPACE)
    refusal: str = ONLY_METADATA


@dataclass(frozen=True, slots=True)
class SubresourceRow:
    """A subresource as the table writes it: what is left out is the parent's."""

    name: str
    verbs: tuple[str, ...] = READ_WRITE
    kind: str = ""
    group_version: GroupVersion | None = None


STATUS: Final = SubresourceRow("status")
SCALE: Final = SubresourceRow(
    "scale", kind="Scale", group_version=GroupVersion("autoscaling", "v1")
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a kind, its plural, and whatever is not as usual."""

    kind: str
    plural: str
    _: KW_ONLY
    namespaced: bool = True
    short_names: Path = ()
    categories: Path = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[SubresourceRow, ...] = ()
    has_generation: bool = False
    check_name: NameCheck = dns1123_subdomain_problems
    selection: FieldSelection = FieldSelection()
    persistence: Persistence = Persistence.STORED
    stored_in: GroupVersion | None = None
    """Where the objects are kept when they are also served by another group or version."""
    hashed_version: str = ""
    """The version that Kubernetes itself stores, when discovery's hash tells another one."""


@dataclass(frozen=True, slots=True)
class GroupRows:
    """The resources of one group at one version, in the order of discovery."""

    group_version: GroupVersion
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class BuiltinResource:
    """A resource served out of the box: what discovery tells of it, and what serving it takes."""

    info: ResourceInfo
    row: Row

    @property
    def has_status(self) -> bool:
        """Whether `status` is written through a subresource of its own."""
        return self.info.find_subresource(STATUS.name) is not None

    @property
    def has_generation(self) -> bool:
        """Whether `metadata.generation` counts the changes of what the user wants."""
        return self.row.has_generation

    @property
    def persistence(self) -> Persistence:
        """What becomes of an object that a client sends."""
        return self.row.persistence

    @property
    def check_name(self) -> NameCheck:
        """Finds what is wrong with `metadata.name`."""
        return self.row.check_name

    @property
    def storage(self) -> GroupVersionResource:
        """Where the objects are kept; two resources with the same storage share their objects."""
        kept = self.row.stored_in or self.info.group_version
        return GroupVersionResource(kept.group, kept.version, self.info.plural)

    @property
    def needs_conversion(self) -> bool:
        """Whether stored objects have another shape than the one served here."""
        return self.storage.group_version != self.info.group_version

    @property
    def storage_version_hash(self) -> str:
        """The opaque word by which discovery tells that the stored form has changed."""
        if self.persistence is not Persistence.STORED:
            return ""
        version = self.row.hashed_version or self.storage.version
        stored = f"{self.storage.group}/{version}/{self.info.kind}"
        return base64.b64encode(hashlib.sha256(stored.encode()).digest()[:8]).decode()

    @property
    def selectable_fields(self) -> Mapping[str, SelectableField]:
        """The fields that a field selector may name."""
        return {field.name: field for field in self.row.selection.fields}

    def field_problem(self, name: str) -> str:
        """Return why a field selector may not name this field, or nothing when it may."""
        is_known = name in self.selectable_fields
        return "" if is_known else self.row.selection.refusal.format(field=name)

    def field_values(self, kube_object: Mapping[str, Any]) -> dict[str, str]:
        """Return the values of the fields that field selectors may name."""
        return {field.name: field.text_of(kube_object) for field in self.row.selection.fields}


def resource_of(group_version: GroupVersion, row: Row) -> BuiltinResource:
    """Read one line of the table."""
    subresources = tuple(
        Subresource(
            name=each.name,
            kind=each.kind or row.kind,
            group=(each.group_version or group_version).group,
            version=(each.group_version or group_version).version,
            verbs=each.verbs,
        )
        for each in row.subresources
    )
    info = ResourceInfo(
        group=group_version.group,
        version=group_version.version,
        kind=row.kind,
        plural=row.plural,
        singular=row.kind.lower(),
        namespaced=row.namespaced,
        verbs=row.verbs,
        short_names=row.short_names,
        categories=row.categories,
        subresources=subresources,
    )
    return BuiltinResource(info, row)
