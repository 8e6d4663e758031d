"""What the hub serves: resources with their rules, built-in ones and custom ones that come and go.

Rules say what happens to an object of one kind between body and store. Built-in kinds and custom
ones differ in how they are read, defaulted and validated, and in nothing else: a verb knows only
the protocol.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from clusterspace.apiserver import forms
from clusterspace.apiserver.forms import Form
from clusterspace.apiserver.store.interface import KeyValue
from clusterspace.builtins.printers.cells import Printer
from clusterspace.builtins.resources import group_order
from clusterspace.builtins.strategies import Creation
from clusterspace.errors import Cause
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupResource, GroupVersionResource, ResourceInfo
from clusterspace.kube.schemas.model import Schema


@dataclass(frozen=True, slots=True)
class Reading:
    """An object in its normal form, and what it said that the kind does not know."""

    kube_object: Object
    unknown_fields: tuple[str, ...] = ()


class Rules(Protocol):
    """The rules of one kind at one served version."""

    @property
    def schema(self) -> Schema:
        """What is known of the kind's fields, for patches and ownership."""
        ...

    @property
    def blank(self) -> Object:
        """What an object of the kind looks like before anybody has written to it."""
        ...

    @property
    def creates_on_update(self) -> bool:
        """Whether a PUT makes an object that is not there."""
        ...

    @property
    def needs_version_to_update(self) -> bool:
        """Whether a PUT must say which version it replaces."""
        ...

    def read(self, kube_object: Object) -> Reading:
        """Bring a decoded body into the kind's normal form; BadRequest when a type is wrong."""
        ...

    def default(self, kube_object: Object) -> Object:
        """Fill in what was left out."""
        ...

    def prepare_create(self, kube_object: Object, creation: Creation) -> Object:
        """Set what only the server may set on a new object, its generation among it."""
        ...

    def prepare_update(self, new: Object, old: Object, subresource: str) -> Object:
        """Keep what this write may not touch, and count the generation.

        A write of the object keeps the status; a write of `status` keeps everything else.
        """
        ...

    def prepare_delete(self, marked: Object, old: Object) -> Object:
        """Return how an object that is being deleted looks, given how most kinds look."""
        ...

    def validate_create(self, kube_object: Object) -> tuple[Cause, ...]:
        """Return every reason to refuse a new object."""
        ...

    def validate_update(self, new: Object, old: Object, subresource: str) -> tuple[Cause, ...]:
        """Return every reason to refuse a change."""
        ...


FieldReader: TypeAlias = Callable[[Object], str]
"""Reads the text a field selector compares with."""


METADATA_FIELDS = ("metadata.name", "metadata.namespace")
"""Field selectors that every resource has."""


def _unknown_field(name: str) -> str:
    """Return why a custom resource, which selects by metadata only, refuses a field."""
    return "" if name in METADATA_FIELDS else f"field label not supported: {name}"


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where an object keeps what the scale subresource shows."""

    spec_replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] = ()


class Conversions(Protocol):
    """Turns the objects of a custom resource into other versions of it."""

    def as_stored(self, entry: KeyValue) -> "Served":
        """Return the version an object is stored in."""
        ...

    async def entries(self, entries: Sequence[KeyValue], served: "Served") -> Sequence[KeyValue]:
        """Return stored objects as entries in a served version."""
        ...

    async def storable(self, kube_object: Object, served: "Served") -> "tuple[Object, Served]":
        """Return an object as it is to be stored, and the version that is."""
        ...

    def replace(self, served: "Served") -> None:
        """Use another description of one of the versions."""
        ...


@dataclass(frozen=True, slots=True)
class Served:
    """One resource at one version, with all a verb needs to know of it."""

    info: ResourceInfo
    rules: Rules
    form: Form
    printer: Printer
    storage: GroupResource
    is_custom: bool = False
    fields: Mapping[str, FieldReader] = field(default_factory=dict[str, FieldReader])
    """Field selectors beside metadata.name and metadata.namespace."""
    refuse_field: Callable[[str], str] = _unknown_field
    """Says why a field selector may not name a field; empty when it may."""
    scale: ScalePaths | None = None
    storage_version_hash: str = ""
    webhook: "Conversions | None" = None
    """Converts between this version and others; None where all have one shape."""
    deprecation: str = ""
    """What those who use this version are warned of."""
    returns_deleted: bool = False
    """Whether a delete answers with the object instead of a Status."""

    async def converted(self, entries: Sequence[KeyValue]) -> Sequence[KeyValue]:
        """Return stored objects in this version, for those who look at more than metadata."""
        return entries if self.webhook is None else await self.webhook.entries(entries, self)

    async def storable(self, kube_object: Object) -> "tuple[Object, Served]":
        """Return an object as it is to be stored, and the version that is."""
        return (
            (kube_object, self)
            if self.webhook is None
            else await self.webhook.storable(kube_object, self)
        )

    def as_stored(self, entry: KeyValue) -> "Served":
        """Return the version an object is stored in, for those who only look at metadata."""
        return self if self.webhook is None else self.webhook.as_stored(entry)

    def prefix(self, namespace: str = "") -> str:
        """Return the key prefix of a collection; a Namespace is in no namespace here."""
        own = namespace if self.info.namespaced else ""
        return forms.collection_key(self.storage.group, self.storage.resource, own)

    def key(self, namespace: str, name: str) -> str:
        """Return the key of one object."""
        return self.prefix(namespace) + name


def _place(item: tuple[GroupVersionResource, Served]) -> tuple[int, int, str]:
    return group_order(item[0].group)


class Catalog:
    """The resources served now. Changing it is one step: readers see all of a change or none."""

    def __init__(self, builtins: Iterable[Served]) -> None:
        self._builtin = {each.info.group_version_resource: each for each in builtins}
        self._custom: dict[GroupVersionResource, Served] = {}
        self._all = dict(self._builtin)
        self.revision = 0
        """Grows with every change: what was derived from an older one is stale."""

    def find(self, group: str, version: str, plural: str) -> Served | None:
        """Return the resource, or None when it is not served."""
        return self._all.get(GroupVersionResource(group, version, plural))

    def get_storage(self, group: str, plural: str) -> Served:
        """Return a served version of the resource, whichever; KeyError when there is none."""
        for key, served in self._all.items():
            if (key.group, key.resource) == (group, plural):
                return served
        raise KeyError(f"{plural}.{group} is not served")

    def find_kind(self, group: str, kind: str) -> Served | None:
        """Return a served version of the kind, or None."""
        for served in self._all.values():
            if (served.info.group, served.info.kind) == (group, kind):
                return served
        return None

    def all(self) -> tuple[Served, ...]:
        """Return everything served, in the order of `group_order`."""
        return tuple(self._all.values())

    def replace_custom(self, resources: Iterable[Served]) -> None:
        """Serve exactly these custom resources; a built-in one is never hidden by a custom one."""
        self._custom = {each.info.group_version_resource: each for each in resources}
        # In the order of discovery, which is the order in which a short name finds its resource.
        listed = sorted({**self._custom, **self._builtin}.items(), key=_place)
        self._all = dict(listed)
        self.revision += 1
