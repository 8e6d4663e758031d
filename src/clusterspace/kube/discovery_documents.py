"""What a server tells of the resources it serves: the aggregated documents and the legacy ones."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersion, ResourceInfo, Subresource

AGGREGATED_GROUP: Final = "apidiscovery.k8s.io"
AGGREGATED_KIND: Final = "APIGroupDiscoveryList"
AGGREGATED_VERSIONS: Final = ("v2", "v2beta1")
"""Two names for one format; which of them an answer bears is for the client to choose."""


@dataclass(frozen=True, slots=True)
class ServedVersion:
    """One version of a group, and the resources it has."""

    version: str
    resources: tuple[ResourceInfo, ...]


@dataclass(frozen=True, slots=True)
class ServedGroup:
    """A group and its versions, the preferred one first; the core group has no name."""

    name: str
    versions: tuple[ServedVersion, ...]


def aggregated(groups: Iterable[ServedGroup], version: str) -> Object:
    """Return the APIGroupDiscoveryList of these groups."""
    return {
        "kind": AGGREGATED_KIND,
        "apiVersion": f"{AGGREGATED_GROUP}/{version}",
        "metadata": {},
        "items": [_aggregated_group(each) for each in groups],
    }


def core_versions(groups: Iterable[ServedGroup], address: str) -> Object:
    """Return the APIVersions of the core group, for the address the client came to."""
    return {
        "kind": "APIVersions",
        "versions": [each.version for group in groups if not group.name for each in group.versions],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list(groups: Iterable[ServedGroup]) -> Object:
    """Return the APIGroupList; the core group is not in it."""
    listed = [_group_body(each) for each in groups if each.name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def group_document(group: ServedGroup) -> Object:
    """Return the APIGroup of one group."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group_body(group)}


def resource_list(
    group: str, served: ServedVersion, storage_hashes: Mapping[str, str] | None = None
) -> Object:
    """Return the APIResourceList of one version of a group.

    `storage_hashes` says for resources, by plural, in which form they are stored.
    """
    hashes = storage_hashes or {}
    group_version = GroupVersion(group, served.version)
    # The core group's list has never carried its own apiVersion.
    head: Object = {"kind": "APIResourceList"} | ({"apiVersion": "v1"} if group else {})
    listed = [
        entry
        for each in served.resources
        for entry in _resource_entries(each, hashes.get(each.plural, ""))
    ]
    return {**head, "groupVersion": group_version.api_version, "resources": listed}


def _aggregated_group(group: ServedGroup) -> Object:
    versions = [
        {
            "version": each.version,
            "resources": [_aggregated_resource(resource) for resource in each.resources],
            "freshness": "Current",
        }
        for each in group.versions
    ]
    return {"metadata": {"name": group.name} if group.name else {}, "versions": versions}


def _aggregated_resource(info: ResourceInfo) -> Object:
    return {
        "resource": info.plural,
        "responseKind": {"group": info.group, "version": info.version, "kind": info.kind},
        "scope": "Namespaced" if info.namespaced else "Cluster",
        "singularResource": info.singular,
        "verbs": list(info.verbs),
        **_other_names(info),
        **_subresources(info),
    }


def _subresources(info: ResourceInfo) -> Object:
    parts = [
        {
            "subresource": part.name,
            "responseKind": {"group": part.group, "version": part.version, "kind": part.kind},
            "verbs": list(part.verbs),
        }
        for part in info.subresources
    ]
    return {"subresources": parts} if parts else {}


def _group_body(group: ServedGroup) -> Object:
    versions = [
        {
            "groupVersion": GroupVersion(group.name, each.version).api_version,
            "version": each.version,
        }
        for each in group.versions
    ]
    return {"name": group.name, "versions": versions, "preferredVersion": versions[0]}


def _resource_entries(info: ResourceInfo, storage_hash: str) -> Iterator[Object]:
    yield {
        "name": info.plural,
        "singularName": info.singular,
        "namespaced": info.namespaced,
        "kind": info.kind,
        "verbs": list(info.verbs),
        **_other_names(info),
        **({"storageVersionHash": storage_hash} if storage_hash else {}),
    }
    for part in info.subresources:
        yield _subresource_entry(info, part)


def _subresource_entry(info: ResourceInfo, part: Subresource) -> Object:
    is_foreign = (part.group, part.version) != (info.group, info.version)
    return {
        "name": f"{info.plural}/{part.name}",
        "singularName": "",
        "namespaced": info.namespaced,
        **({"group": part.group, "version": part.version} if is_foreign else {}),
        "kind": part.kind,
        "verbs": list(part.verbs),
    }


def _other_names(info: ResourceInfo) -> Object:
    names = {"shortNames": list(info.short_names), "categories": list(info.categories)}
    return {key: listed for key, listed in names.items() if listed}
