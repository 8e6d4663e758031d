"""Discovery documents of the resources a server has: the aggregated ones and the legacy ones."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersion, ResourceInfo

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
        "items": [
            {
                "metadata": {"name": group.name} if group.name else {},
                "versions": [
                    {
                        "version": each.version,
                        "resources": [_aggregated_resource(info) for info in each.resources],
                        "freshness": "Current",
                    }
                    for each in group.versions
                ],
            }
            for group in groups
        ],
    }


def _aggregated_resource(info: ResourceInfo) -> Object:
    subresources = [
        {
            "subresource": each.name,
            "responseKind": {"group": each.group, "version": each.version, "kind": each.kind},
            "verbs": list(each.verbs),
        }
        for each in info.subresources
    ]
    return {
        "resource": info.plural,
        "responseKind": {"group": info.group, "version": info.version, "kind": info.kind},
        "scope": "Namespaced" if info.namespaced else "Cluster",
        "singularResource": info.singular,
        "verbs": list(info.verbs),
        **_other_names(info),
        **({"subresources": subresources} if subresources else {}),
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
    entries: list[Object] = []
    for info in served.resources:
        storage_hash = hashes.get(info.plural, "")
        entries.append(
            {
                "name": info.plural,
                "singularName": info.singular,
                "namespaced": info.namespaced,
                "kind": info.kind,
                "verbs": list(info.verbs),
                **_other_names(info),
                **({"storageVersionHash": storage_hash} if storage_hash else {}),
            }
        )
        for subresource in info.subresources:
            body_version = {"group": subresource.group, "version": subresource.version}
            is_own = (subresource.group, subresource.version) == (info.group, info.version)
            entries.append(
                {
                    "name": f"{info.plural}/{subresource.name}",
                    "singularName": "",
                    "namespaced": info.namespaced,
                    **({} if is_own else body_version),
                    "kind": subresource.kind,
                    "verbs": list(subresource.verbs),
                }
            )
    # The core group's list has never carried its own apiVersion.
    head: Object = {"kind": "APIResourceList"} | ({"apiVersion": "v1"} if group else {})
    group_version = GroupVersion(group, served.version)
    return {**head, "groupVersion": group_version.api_version, "resources": entries}


def _group_body(group: ServedGroup) -> Object:
    versions = [
        {
            "groupVersion": GroupVersion(group.name, each.version).api_version,
            "version": each.version,
        }
        for each in group.versions
    ]
    return {"name": group.name, "versions": versions, "preferredVersion": versions[0]}


def _other_names(info: ResourceInfo) -> Object:
    names = {"shortNames": list(info.short_names), "categories": list(info.categories)}
    return {key: listed for key, listed in names.items() if listed}
