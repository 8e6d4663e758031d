"""/api, /apis and below: what is served, in the legacy form and in the aggregated one."""

import hashlib
from functools import lru_cache

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.http.context import RequestContext, headers_for
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import aggregated_version
from clusterspace.apiserver.http.responses import value_response
from clusterspace.kube import discovery_documents
from clusterspace.kube.discovery_documents import ServedGroup, ServedVersion
from clusterspace.kube.resources import ResourceInfo, version_priority


class Discovery:
    """The discovery documents of a catalog, made anew when the catalog has changed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def answer(self, context: RequestContext) -> Response | None:
        """Answer a GET at or below /api and /apis; None when there is no such document."""
        match context.info.path.strip("/").split("/"):
            case ["api"]:
                return self._root(context, is_core=True)
            case ["apis"]:
                return self._root(context, is_core=False)
            case ["apis", group]:
                found = next((each for each in self._groups() if each.name == group), None)
                if found is None or not group:
                    return None
                return value_response(context, 200, discovery_documents.group_document(found))
            case ["api", version]:
                return self._version(context, "", version)
            case ["apis", group, version]:
                return self._version(context, group, version)
            case _:
                return None

    def _version(self, context: RequestContext, group: str, version: str) -> Response | None:
        found = self._find_version(group, version)
        if found is None:
            return None
        hashes = {
            served.info.plural: served.storage_version_hash
            for served in self._catalog.all()
            if (served.info.group, served.info.version) == (group, version)
        }
        return value_response(context, 200, discovery_documents.resource_list(group, found, hashes))

    def serves(self, group: str, version: str) -> bool:
        """Whether anything is served in this version of this group."""
        return self._find_version(group, version) is not None

    def _groups(self) -> tuple[ServedGroup, ...]:
        return _grouped(self._catalog, self._catalog.revision)

    def _find_version(self, group: str, version: str) -> ServedVersion | None:
        versions = (each.versions for each in self._groups() if each.name == group)
        return next((each for some in versions for each in some if each.version == version), None)

    def _root(self, context: RequestContext, *, is_core: bool) -> Response:
        """Answer /api or /apis: all that is below it at once for clients that take it so."""
        version = aggregated_version(context.header("accept"))
        if not version:
            address, groups = context.header("host"), self._groups()
            document = (
                discovery_documents.core_versions(groups, address)
                if is_core
                else discovery_documents.group_list(groups)
            )
            return value_response(context, 200, document)
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
    groups: dict[str, dict[str, list[ResourceInfo]]] = {}
    for served in catalog.all():
        info = served.info
        groups.setdefault(info.group, {}).setdefault(info.version, []).append(info)
    return tuple(
        ServedGroup(
            name,
            tuple(
                ServedVersion(version, tuple(versions[version]))
                for version in sorted(versions, key=version_priority)
            ),
        )
        for name, versions in groups.items()
    )


@lru_cache(maxsize=8)
def _aggregated_document(
    catalog: Catalog, revision: int, version: str, is_core: bool
) -> tuple[bytes, str]:
    groups = [each for each in _grouped(catalog, revision) if (each.name == "") is is_core]
    body = forms.encode(discovery_documents.aggregated(groups, version)) + b"\n"
    return body, f'"{hashlib.sha256(body).hexdigest().upper()}"'
