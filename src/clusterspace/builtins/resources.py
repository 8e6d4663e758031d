"""The table of every resource the hub serves out of the box: what Kubernetes 1.35 calls stable."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from clusterspace.builtins.resource_model import BuiltinResource, resource_of
from clusterspace.builtins.resources_core import CORE_V1
from clusterspace.builtins.resources_groups import NAMED_GROUPS
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource

_TABLE: Final = (CORE_V1, *NAMED_GROUPS)


@dataclass(frozen=True, slots=True)
class ApiGroup:
    """A group and the versions it is served at, the preferred one first."""

    name: str
    versions: tuple[str, ...]

    @property
    def preferred_version(self) -> str:
        """The version a client takes when it does not care."""
        return self.versions[0]


@cache
def all_resources() -> tuple[BuiltinResource, ...]:
    """Return every resource in the order of discovery: group, then version, then plural."""
    return tuple(resource_of(served.group_version, row) for served in _TABLE for row in served.rows)


@cache
def all_groups() -> tuple[ApiGroup, ...]:
    """Return every group in the order of discovery; the core group, without a name, is first."""
    versions: dict[str, list[str]] = {}
    for served in _TABLE:
        versions.setdefault(served.group_version.group, []).append(served.group_version.version)
    return tuple(ApiGroup(name, tuple(listed)) for name, listed in versions.items())


def find_resource(group: str, version: str, plural: str) -> BuiltinResource | None:
    """Return the resource that a URL names, or None when it is not built in."""
    return _by_resource().get(GroupVersionResource(group, version, plural))


def find_kind(group: str, version: str, kind: str) -> BuiltinResource | None:
    """Return the resource that holds objects of a kind, or None when it is not built in."""
    return _by_kind().get(GroupVersionKind(group, version, kind))


@cache
def _by_resource() -> Mapping[GroupVersionResource, BuiltinResource]:
    return {resource.info.group_version_resource: resource for resource in all_resources()}


@cache
def _by_kind() -> Mapping[GroupVersionKind, BuiltinResource]:
    return {resource.info.group_version_kind: resource for resource in all_resources()}
