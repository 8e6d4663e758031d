"""GroupVersionResource, GroupVersionKind and ResourceInfo: how Kubernetes names kinds of things."""

import re
from dataclasses import dataclass

from clusterspace.errors import MalformedObject

_KUBE_VERSION = re.compile(r"v([0-9]{1,9})(?:(alpha|beta)([0-9]{1,9}))?")

_STABILITY_RANK = {None: 0, "beta": 1, "alpha": 2}

_UNCONVENTIONAL_RANK = 3


@dataclass(frozen=True, slots=True, order=True)
class GroupVersion:
    """An API group at one version; the core group is the empty string."""

    group: str
    version: str

    @property
    def api_version(self) -> str:
        """The text of `apiVersion`: `v1` or `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """Where the group is served: `/api/v1` or `/apis/apps/v1`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def __str__(self) -> str:
        return self.api_version


@dataclass(frozen=True, slots=True, order=True)
class GroupResource:
    """A resource whatever its version, as error messages name it: `deployments.apps`."""

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


@dataclass(frozen=True, slots=True, order=True)
class GroupKind:
    """A kind whatever its version, as error messages name it: `Deployment.apps`."""

    group: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


@dataclass(frozen=True, slots=True, order=True)
class GroupVersionResource:
    """A resource at one version, as URLs name it."""

    group: str
    version: str
    resource: str

    @property
    def group_version(self) -> GroupVersion:
        """The group and version alone."""
        return GroupVersion(self.group, self.version)

    @property
    def group_resource(self) -> GroupResource:
        """The same resource whatever its version."""
        return GroupResource(self.group, self.resource)

    @property
    def api_version(self) -> str:
        """The text of `apiVersion`."""
        return self.group_version.api_version

    def __str__(self) -> str:
        # As client-go writes it, with the slash behind the empty name of the core group.
        return f"{self.group}/{self.version}, Resource={self.resource}"


@dataclass(frozen=True, slots=True, order=True)
class GroupVersionKind:
    """A kind at one version, as object bodies name it."""

    group: str
    version: str
    kind: str

    @classmethod
    def of(cls, api_version: str, kind: str) -> "GroupVersionKind":
        """Read the two fields every object opens with."""
        parsed = parse_api_version(api_version)
        return cls(parsed.group, parsed.version, kind)

    @property
    def group_version(self) -> GroupVersion:
        """The group and version alone."""
        return GroupVersion(self.group, self.version)

    @property
    def group_kind(self) -> GroupKind:
        """The same kind whatever its version."""
        return GroupKind(self.group, self.kind)

    @property
    def api_version(self) -> str:
        """The text of `apiVersion`."""
        return self.group_version.api_version

    def __str__(self) -> str:
        # As client-go writes it, with the slash behind the empty name of the core group.
        return f"{self.group}/{self.version}, Kind={self.kind}"


@dataclass(frozen=True, slots=True)
class Subresource:
    """One subresource, such as `status` or `scale`.

    `kind`, `group` and `version` are those of the body it speaks, which need not be the
    parent's: `deployments/scale` speaks `autoscaling/v1` Scale.
    """

    name: str
    kind: str
    group: str
    version: str
    verbs: tuple[str, ...]

    @property
    def group_version_kind(self) -> GroupVersionKind:
        """The kind of the body."""
        return GroupVersionKind(self.group, self.version, self.kind)


@dataclass(frozen=True, slots=True)
class ResourceInfo:
    """The entry of one resource at one version in discovery."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    list_kind: str = ""

    def __post_init__(self) -> None:
        if not self.list_kind:
            object.__setattr__(self, "list_kind", f"{self.kind}List")

    @property
    def group_version(self) -> GroupVersion:
        """The group and version alone."""
        return GroupVersion(self.group, self.version)

    @property
    def group_version_resource(self) -> GroupVersionResource:
        """How URLs name it."""
        return GroupVersionResource(self.group, self.version, self.plural)

    @property
    def group_version_kind(self) -> GroupVersionKind:
        """How its objects name it."""
        return GroupVersionKind(self.group, self.version, self.kind)

    @property
    def group_resource(self) -> GroupResource:
        """How error messages name it."""
        return GroupResource(self.group, self.plural)

    @property
    def group_kind(self) -> GroupKind:
        """How validation messages name it."""
        return GroupKind(self.group, self.kind)

    @property
    def api_version(self) -> str:
        """The text of `apiVersion`."""
        return self.group_version.api_version

    def find_subresource(self, name: str) -> Subresource | None:
        """Return the subresource of this name, or None."""
        return next((each for each in self.subresources if each.name == name), None)


def parse_api_version(text: str) -> GroupVersion:
    """Read `v1` or `apps/v1`."""
    group, slash, version = text.rpartition("/")
    if not version or "/" in group or bool(slash) != bool(group):
        raise MalformedObject(f"unexpected GroupVersion string: {text}", place="apiVersion")
    return GroupVersion(group, version)


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Return a sort key that puts the version Kubernetes prefers first.

    Stable before beta before alpha, then the higher number: v2, v1, v2beta1, v1beta2,
    v1alpha1. Names that do not look like a version come last, in alphabetical order.
    https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#version-priority
    """
    match = _KUBE_VERSION.fullmatch(version)
    if match is None:
        return (_UNCONVENTIONAL_RANK, 0, 0, version)
    major, stability, minor = match.groups()
    return (_STABILITY_RANK[stability], -int(major), -int(minor or 0), version)
