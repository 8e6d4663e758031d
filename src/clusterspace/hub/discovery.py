"""/api, /apis and below: what is served, in the legacy form and in the aggregated one."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from clusterspace.hub import forms
from clusterspace.hub.catalog import Catalog, Served
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersion, Subresource, version_priority
from clusterspace.serving.calls import Call
from clusterspace.serving.messages import Response
from clusterspace.serving.negotiation import aggregated_version
from clusterspace.serving.responses import headers_for, value_response

_AGGREGATED: Final = "APIGroupDiscoveryList"
_GROUP: Final = "apidiscovery.k8s.io"


@dataclass(frozen=True, slots=True)
class _Group:
    """A group with its versions, the preferred one first, and what each serves."""

    name: str
    versions: tuple[tuple[str, tuple[Served, ...]], ...]


class Discovery:
    """The discovery documents of a catalog, made anew when the catalog has changed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def root_of_core(self, call: Call) -> Response:
        """Answer GET /api."""
        wanted = aggregated_version(call.header("accept"))
        if wanted:
            return self._aggregated(call, wanted, is_core=True)
        body = {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [
                {"clientCIDR": "0.0.0.0/0", "serverAddress": call.header("host")}
            ],
        }
        return value_response(call, 200, body)

    def root_of_groups(self, call: Call) -> Response:
        """Answer GET /apis."""
        wanted = aggregated_version(call.header("accept"))
        if wanted:
            return self._aggregated(call, wanted, is_core=False)
        groups = [_group_body(each) for each in self._groups() if each.name]
        return value_response(
            call, 200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        )

    def group(self, call: Call, name: str) -> Response | None:
        """Answer GET /apis/GROUP; None when there is no such group."""
        found = next((each for each in self._groups() if each.name == name), None)
        if found is None or not name:
            return None
        return value_response(
            call, 200, {"kind": "APIGroup", "apiVersion": "v1", **_group_body(found)}
        )

    def version(self, call: Call, group: str, version: str) -> Response | None:
        """Answer GET /api/v1 or /apis/GROUP/VERSION; None when there is no such version."""
        for each in self._groups():
            for held, resources in each.versions:
                if (each.name, held) == (group, version):
                    return value_response(call, 200, _resource_list(group, version, resources))
        return None

    def serves(self, group: str, version: str) -> bool:
        """Whether anything is served in this version of this group."""
        return any(
            each.name == group and any(held == version for held, _ in each.versions)
            for each in self._groups()
        )

    def _groups(self) -> tuple[_Group, ...]:
        return _grouped(self._catalog, self._catalog.revision)

    def _aggregated(self, call: Call, version: str, *, is_core: bool) -> Response:
        body, etag = _aggregated_document(self._catalog, self._catalog.revision, version, is_core)
        content_type = f"application/json;g={_GROUP};v={version};as={_AGGREGATED}"
        headers = [
            *(pair for pair in headers_for(call, content_type) if pair[0] != "Cache-Control"),
            ("Cache-Control", "public"),
            ("ETag", etag),
            ("Vary", "Accept"),
        ]
        if call.header("if-none-match") == etag:
            return Response(304, headers)
        return Response(200, headers, body)


@lru_cache(maxsize=4)
def _grouped(catalog: Catalog, _revision: int) -> tuple[_Group, ...]:
    held: dict[str, dict[str, list[Served]]] = {}
    for served in catalog.all():
        info = served.info
        held.setdefault(info.group, {}).setdefault(info.version, []).append(served)
    return tuple(
        _Group(
            name,
            tuple(
                (version, tuple(versions[version]))
                for version in sorted(versions, key=version_priority)
            ),
        )
        for name, versions in held.items()
    )


@lru_cache(maxsize=8)
def _aggregated_document(
    catalog: Catalog, revision: int, version: str, is_core: bool
) -> tuple[bytes, str]:
    groups = [each for each in _grouped(catalog, revision) if (each.name == "") is is_core]
    body = forms.encode(
        {
            "kind": _AGGREGATED,
            "apiVersion": f"{_GROUP}/{version}",
            "metadata": {},
            "items": [_aggregated_group(each) for each in groups],
        }
    )
    return body, f'"{hashlib.sha256(body).hexdigest().upper()}"'


def _aggregated_group(group: _Group) -> Object:
    return {
        "metadata": {"name": group.name} if group.name else {},
        "versions": [
            {
                "version": version,
                "resources": [_aggregated_resource(each) for each in resources],
                "freshness": "Current",
            }
            for version, resources in group.versions
        ],
    }


def _aggregated_resource(served: Served) -> Object:
    info = served.info
    body: Object = {
        "resource": info.plural,
        "responseKind": {"group": info.group, "version": info.version, "kind": info.kind},
        "scope": "Namespaced" if info.namespaced else "Cluster",
        "singularResource": info.singular,
        "verbs": list(info.verbs),
    }
    if info.short_names:
        body["shortNames"] = list(info.short_names)
    if info.categories:
        body["categories"] = list(info.categories)
    if info.subresources:
        body["subresources"] = [_aggregated_subresource(each) for each in info.subresources]
    return body


def _aggregated_subresource(part: Subresource) -> Object:
    kind = {"group": part.group, "version": part.version, "kind": part.kind}
    return {"subresource": part.name, "responseKind": kind, "verbs": list(part.verbs)}


def _group_body(group: _Group) -> Object:
    versions = [
        {"groupVersion": GroupVersion(group.name, version).api_version, "version": version}
        for version, _ in group.versions
    ]
    return {"name": group.name, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(group: str, version: str, resources: Sequence[Served]) -> Object:
    body: Object = {"kind": "APIResourceList"}
    if group:
        # The core group's list has never carried its own apiVersion.
        body["apiVersion"] = "v1"
    body["groupVersion"] = GroupVersion(group, version).api_version
    body["resources"] = [entry for each in resources for entry in _resource_entries(each)]
    return body


def _resource_entries(served: Served) -> Iterable[Object]:
    info = served.info
    entry: Object = {
        "name": info.plural,
        "singularName": info.singular,
        "namespaced": info.namespaced,
        "kind": info.kind,
        "verbs": list(info.verbs),
    }
    if info.short_names:
        entry["shortNames"] = list(info.short_names)
    if info.categories:
        entry["categories"] = list(info.categories)
    if served.storage_version_hash:
        entry["storageVersionHash"] = served.storage_version_hash
    yield entry
    for part in info.subresources:
        yield _subresource_entry(served, part)


def _subresource_entry(served: Served, part: Subresource) -> Object:
    info = served.info
    entry: Object = {
        "name": f"{info.plural}/{part.name}",
        "singularName": "",
        "namespaced": info.namespaced,
    }
    if (part.group, part.version) != (info.group, info.version):
        entry |= {"group": part.group, "version": part.version}
    return {**entry, "kind": part.kind, "verbs": list(part.verbs)}
