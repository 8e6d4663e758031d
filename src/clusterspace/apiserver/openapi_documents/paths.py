"""Which paths a resource has, and which verbs each allows."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.openapi_documents import names
from clusterspace.apiserver.openapi_documents.operations import (
    Subject,
    definitions,
    operations,
    parameter,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import Subresource

_OF_COLLECTION: Final = ("list", "create", "deletecollection")
_OF_OBJECT: Final = ("get", "update", "delete", "patch")

_STREAMS: Final = frozenset({"attach", "exec", "log", "portforward", "proxy"})
"""Subresources that reach into a running pod or node: no objects, so nothing to describe here."""


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """One path of a resource, and what may be done there."""

    template: str
    verbs: tuple[str, ...]
    subject: Subject

    def described(self) -> Object:
        """Return the path item: its operations, and the parameters they share."""
        in_path = [name for name in ("name", "namespace") if f"{{{name}}}" in self.template]
        shared = [*(parameter(name, "path") for name in in_path), parameter("pretty")]
        return {**operations(self.verbs, self.subject), "parameters": shared}

    def definitions(self) -> set[str]:
        """Return the definitions that the operations here take and answer with."""
        return definitions(self.verbs, self.subject)


def paths_of(served: Served) -> Iterator[ResourcePath]:
    """Return the paths of one resource: its collection, its objects and their subresources."""
    info = served.info
    within = "/namespaces/{namespace}" if info.namespaced else ""
    collection = f"{info.group_version.path}{within}/{info.plural}"
    found = (
        *_across_namespaces(served),
        _path(collection, _OF_COLLECTION, served),
        _path(f"{collection}/{{name}}", _OF_OBJECT, served),
        *(
            _subresource(f"{collection}/{{name}}", part, served)
            for part in info.subresources
            if part.name not in _STREAMS
        ),
    )
    return (path for path in found if path.verbs)


def _across_namespaces(served: Served) -> Iterator[ResourcePath]:
    info = served.info
    if info.namespaced:
        subject = replace(_subject(served), words=info.kind, suffix="ForAllNamespaces")
        verbs = tuple(verb for verb in ("list",) if verb in info.verbs)
        yield ResourcePath(f"{info.group_version.path}/{info.plural}", verbs, subject)


def _path(template: str, possible: tuple[str, ...], served: Served) -> ResourcePath:
    verbs = tuple(verb for verb in possible if verb in served.info.verbs)
    return ResourcePath(template, verbs, _subject(served))


def _subresource(of_object: str, part: Subresource, served: Served) -> ResourcePath:
    whole = _subject(served)
    subject = replace(
        whole,
        kind=part.group_version_kind,
        words=whole.words + part.name[:1].upper() + part.name[1:],
    )
    return ResourcePath(f"{of_object}/{part.name}", part.verbs, subject)


def _subject(served: Served) -> Subject:
    info = served.info
    kind = info.group_version_kind
    return Subject(
        group_version=info.group_version,
        kind=kind,
        words=f"Namespaced{info.kind}" if info.namespaced else info.kind,
        list_kind=info.list_kind,
        deleted=names.definition_name(kind) if served.returns_deleted else names.STATUS,
        has_strategic_patch=not served.is_custom,
    )
