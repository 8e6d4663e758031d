"""/api, /apis and below: what is served, in the legacy form and in the aggregated one."""

import hashlib
from functools import lru_cache

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.negotiation import aggregated_version
from clusterspace.apiserver.http.responses import headers_for, value_response
from clusterspace.kube import discovery_documents
from clusterspace.kube.discovery_documents import ServedGroup, ServedVersion
from clusterspace.kube.resources import GroupVersion, ResourceInfo, version_priority


class Discovery:
    """The discovery documents of a catalog, made anew when the catalog has changed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def root_of_core(self, context: RequestContext) -> Response:
        """Answer GET /api."""
        wanted = aggregated_version(context.header("accept"))
        if wanted:
            return self._aggregated(context, wanted, is_core=True)
        address = context.header("host")
        return value_response(
            context, 200, discovery_documents.core_versions(self._groups(), address)
        )

    def root_of_groups(self, context: RequestContext) -> Response:
        """Answer GET /apis."""
        wanted = aggregated_version(context.header("accept"))
        if wanted:
            return self._aggregated(context, wanted, is_core=False)
        return value_response(context, 200, discovery_documents.group_list(self._groups()))

    def group(self, context: RequestContext, name: str) -> Response | None:
        """Answer GET /apis/GROUP; None when there is no such group."""
        found = next((each for each in self._groups() if each.name == name), None)
        if found is None or not name:
            return None
        return value_response(context, 200, discovery_documents.group_document(found))

    def version(self, context: RequestContext, group: str, version: str) -> Response | None:
        """Answer GET /api/v1 or /apis/GROUP/VERSION; None when there is no such version."""
        found = self._find_version(group, version)
        if found is None:
            return None
        hashes = _storage_hashes(self._catalog, GroupVersion(group, version))
        return value_response(context, 200, discovery_documents.resource_list(group, found, hashes))

    def serves(self, group: str, version: str) -> bool:
        """Whether anything is served in this version of this group."""
        return self._find_version(group, version) is not None

    def _groups(self) -> tuple[ServedGroup, ...]:
        return _grouped(self._catalog, self._catalog.revision)

    def _find_version(self, group: str, version: str) -> ServedVersion | None:
        versions = (each.versions for each in self._groups() if each.name == group)
        return next((each for held in versions for each in held if each.version == version), None)

    def _aggregated(self, context: RequestContext, version: str, *, is_core: bool) -> Response:
        body, etag = _aggregated_document(self._catalog, self._catalog.revision, version, is_core)
        group, kind = discovery_documents.AGGREGATED_GROUP, discovery_documents.AGGREGATED_KIND
        content_type = f"application/json;g={group};v={version};as={kind}"
        headers = [
            *(pair for pair in headers_for(context, content_type) if pair[0] != "Cache-Control"),
            ("Cache-Control", "public"),
            ("ETag", etag),
            ("Vary", "Accept"),
        ]
        if context.header("if-none-match") == etag:
            return Response(304, headers)
        return Response(200, headers, body)


@lru_cache(maxsize=4)
def _grouped(catalog: Catalog, _revision: int) -> tuple[ServedGroup, ...]:
    held: dict[str, dict[str, list[ResourceInfo]]] = {}
    for served in catalog.all():
        info = served.info
        held.setdefault(info.group, {}).setdefault(info.version, []).append(info)
    return tuple(
        ServedGroup(
            name,
            tuple(
                ServedVersion(version, tuple(versions[version]))
                for version in sorted(versions, key=version_priority)
            ),
        )
        for name, versions in held.items()
    )


def _storage_hashes(catalog: Catalog, wanted: GroupVersion) -> dict[str, str]:
    return {
        served.info.plural: served.storage_version_hash
        for served in catalog.all()
        if (served.info.group, served.info.version) == (wanted.group, wanted.version)
    }


@lru_cache(maxsize=8)
def _aggregated_document(
    catalog: Catalog, revision: int, version: str, is_core: bool
) -> tuple[bytes, str]:
    groups = [each for each in _grouped(catalog, revision) if (each.name == "") is is_core]
    body = forms.encode(discovery_documents.aggregated(groups, version))
    return body, f'"{hashlib.sha256(body).hexdigest().upper()}"'
