"""The whole document of one group version, or of one discovery root."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusterspace import __version__
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.openapi_documents import names
from clusterspace.apiserver.openapi_documents.components import components
from clusterspace.apiserver.openapi_documents.operations import reading
from clusterspace.apiserver.openapi_documents.paths import paths_of
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersion

_OPENAPI: Final = "3.0.0"
_SECURITY: Final = {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}}


@dataclass(frozen=True, slots=True)
class Root:
    """A path that tells what is below it, and can only be read."""

    path: str
    operation_id: str
    tag: str
    definition: str

    def described(self) -> Object:
        """Return the path item."""
        return {"get": reading(self.operation_id, self.tag, self.definition)}


_CORE: Final = Root("/api/", "getCoreAPIVersions", "core", names.API_VERSIONS)
_GROUPS: Final = Root("/apis/", "getAPIVersions", "apis", names.API_GROUP_LIST)
_VERSION: Final = Root("/version/", "getCodeVersion", "version", names.VERSION_INFO)


def roots_above(group_versions: Iterable[GroupVersion]) -> tuple[Root, ...]:
    """Return the roots that lead to these group versions, and /version."""
    groups = dict.fromkeys(each.group for each in group_versions if each.group)
    return (_CORE, _GROUPS, _VERSION, *(_group_root(group) for group in groups))


def root_document(root: Root) -> Object:
    """Return the document of one root."""
    return _document({root.path: root.described()}, components([root.definition], ()))


def group_version_document(group_version: GroupVersion, resources: Sequence[Served]) -> Object:
    """Return the document of all resources of one group version."""
    root = _group_version_root(group_version)
    described = [path for served in resources for path in paths_of(served)]
    items = {path.template: path.described() for path in described}
    spoken = {root.definition}.union(*(path.definitions() for path in described))
    return _document({root.path: root.described(), **items}, components(spoken, resources))


def _group_root(group: str) -> Root:
    operation_id = f"get{names.group_words(group)}APIGroup"
    return Root(f"/apis/{group}/", operation_id, names.tag_of_group(group), names.API_GROUP)


def _group_version_root(group_version: GroupVersion) -> Root:
    return Root(
        path=f"{group_version.path}/",
        operation_id=f"get{names.version_words(group_version)}APIResources",
        tag=names.tag_of(group_version),
        definition=names.API_RESOURCE_LIST,
    )


def _document(paths: Object, schemas: Mapping[str, Mapping[str, Any]]) -> Object:
    return {
        "openapi": _OPENAPI,
        "info": {"title": "Clusterspace", "version": __version__},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": schemas, "securitySchemes": _SECURITY},
    }
