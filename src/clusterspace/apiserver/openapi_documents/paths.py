"""Which paths a resource has, which verbs each allows, and what each verb takes and answers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final

from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.openapi_documents import names
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersion, GroupVersionKind

_OF_COLLECTION: Final = ("list", "create", "deletecollection")
_OF_OBJECT: Final = ("get", "update", "delete", "patch")

_STREAMS: Final = frozenset({"attach", "exec", "log", "portforward", "proxy"})
"""Subresources that reach into a running pod or node: no objects, so nothing to describe here."""

_ANSWERS: Final = ("application/json", "application/yaml")
_STREAM: Final = "application/json;stream=watch"
_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_ANY: Final = ("*/*",)
_PATCHES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
_STRATEGIC: Final = "application/strategic-merge-patch+json"

_TYPES: Final[Mapping[str, str]] = {
    "allowWatchBookmarks": "boolean",
    "force": "boolean",
    "gracePeriodSeconds": "integer",
    "ignoreStoreReadErrorWithClusterBreakingPotential": "boolean",
    "limit": "integer",
    "orphanDependents": "boolean",
    "sendInitialEvents": "boolean",
    "timeoutSeconds": "integer",
    "watch": "boolean",
}
"""Types of the query parameters that are not strings."""

_WRITE: Final = ("dryRun", "fieldManager", "fieldValidation")
_DELETE: Final = (
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
)
_SELECT: Final = (
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What the operations of one path are about."""

    group_version: GroupVersion
    """Of the path, which need not be that of the body: `pods/eviction` speaks policy/v1."""
    kind: GroupVersionKind
    words: str
    """As it stands in the names of operations: `NamespacedPodStatus`."""
    suffix: str = ""
    list_kind: str = ""
    deleted: str = names.STATUS
    """The definition of what a delete answers with."""
    is_builtin: bool = True
    """Whether the kind has a protobuf form, and patches that know its lists."""


@dataclass(frozen=True, slots=True)
class _Action:
    """A verb as OpenAPI sees it."""

    method: str
    name: str
    prefix: str
    """What the name of its operations starts with."""
    parameters: tuple[str, ...] = ()
    codes: tuple[int, ...] = (200,)


_ACTIONS: Final[Mapping[str, _Action]] = {
    "get": _Action("get", "get", "read"),
    "list": _Action(
        "get", "list", "list", tuple(sorted((*_SELECT, "allowWatchBookmarks", "watch")))
    ),
    "create": _Action("post", "post", "create", _WRITE, (200, 201, 202)),
    "update": _Action("put", "put", "replace", _WRITE, (200, 201)),
    "patch": _Action("patch", "patch", "patch", (*_WRITE, "force"), (200, 201)),
    "delete": _Action("delete", "delete", "delete", _DELETE, (200, 202)),
    "deletecollection": _Action("delete", "deletecollection", "delete", (*_SELECT, *_DELETE)),
}
"""By the verb of discovery. A watch is a list with a parameter, and has no operation."""

PARAMETERS: Final = tuple(
    sorted({"name", "namespace", "pretty"}.union(*(each.parameters for each in _ACTIONS.values())))
)
"""The names of all parameters that operations or paths have."""


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
    info, whole = served.info, _subject(served)
    across: list[ResourcePath] = []
    within = ""
    if info.namespaced:
        within = "/namespaces/{namespace}"
        subject = replace(whole, words=info.kind, suffix="ForAllNamespaces")
        verbs = tuple(verb for verb in ("list",) if verb in info.verbs)
        across = [ResourcePath(f"{info.group_version.path}/{info.plural}", verbs, subject)]
    collection = f"{info.group_version.path}{within}/{info.plural}"
    found = (
        *across,
        _path(collection, _OF_COLLECTION, served),
        _path(f"{collection}/{{name}}", _OF_OBJECT, served),
        *(
            ResourcePath(
                f"{collection}/{{name}}/{each.name}",
                each.verbs,
                replace(
                    whole,
                    kind=each.group_version_kind,
                    words=whole.words + each.name[:1].upper() + each.name[1:],
                ),
            )
            for each in info.subresources
            if each.name not in _STREAMS
        ),
    )
    return (path for path in found if path.verbs)


def _path(template: str, possible: tuple[str, ...], served: Served) -> ResourcePath:
    verbs = tuple(verb for verb in possible if verb in served.info.verbs)
    return ResourcePath(template, verbs, _subject(served))


def _subject(served: Served) -> Subject:
    info = served.info
    kind = info.group_version_kind
    return Subject(
        group_version=info.group_version,
        kind=kind,
        words=f"Namespaced{info.kind}" if info.namespaced else info.kind,
        list_kind=info.list_kind,
        deleted=names.definition_name(kind) if served.returns_deleted else names.STATUS,
        is_builtin=not served.is_custom,
    )


def operations(verbs: tuple[str, ...], subject: Subject) -> Object:
    """Return the operations of one path by HTTP method."""
    return {
        _ACTIONS[verb].method: _operation(verb, _ACTIONS[verb], subject)
        for verb in verbs
        if verb in _ACTIONS
    }


def definitions(verbs: tuple[str, ...], subject: Subject) -> set[str]:
    """Return the definitions that these operations take and answer with."""
    known = [verb for verb in verbs if verb in _ACTIONS]
    spoken = {each(verb, subject) for verb in known for each in (_taken, _answered)}
    return spoken - {""}


def parameter(name: str, place: str = "query") -> Object:
    """Return one parameter of an operation or a path."""
    schema = {"type": _TYPES.get(name, "string")}
    if place == "path":
        return {"name": name, "in": place, "required": True, "schema": schema}
    return {"name": name, "in": place, "schema": schema}


def reading(operation_id: str, tag: str, definition: str) -> Object:
    """Return the operation of a path that can only be read, such as those of discovery."""
    return {
        "tags": [tag],
        "operationId": operation_id,
        "responses": _responses((200,), definition, _ANSWERS),
    }


def _operation(verb: str, action: _Action, subject: Subject) -> Object:
    collection = "Collection" if verb == "deletecollection" else ""
    version = names.version_words(subject.group_version)
    operation: Object = {
        "tags": [names.tag_of(subject.group_version)],
        "operationId": f"{action.prefix}{version}{collection}{subject.words}{subject.suffix}",
    }
    if action.parameters:
        operation["parameters"] = [parameter(name) for name in action.parameters]
    taken = _taken(verb, subject)
    if taken == names.DELETE_OPTIONS:
        operation["requestBody"] = {"content": _content(_ANY, taken)}
    elif taken:
        accepted = _ANY
        if verb == "patch":
            accepted = (*_PATCHES, _STRATEGIC) if subject.is_builtin else _PATCHES
        operation["requestBody"] = {"content": _content(accepted, taken), "required": True}
    answers = (*_ANSWERS, _PROTOBUF) if subject.is_builtin else _ANSWERS
    streams = (_STREAM, f"{_PROTOBUF};stream=watch") if subject.is_builtin else (_STREAM,)
    media_types = (*answers, *streams) if verb == "list" else answers
    return {
        **operation,
        "responses": _responses(action.codes, _answered(verb, subject), media_types),
        "x-kubernetes-action": action.name,
        names.GROUP_VERSION_KIND: {
            "group": subject.kind.group,
            "version": subject.kind.version,
            "kind": subject.kind.kind,
        },
    }


def _taken(verb: str, subject: Subject) -> str:
    """Return the definition of the request body, or nothing when there is none."""
    match verb:
        case "create" | "update":
            return names.definition_name(subject.kind)
        case "patch":
            return names.PATCH
        case "delete" | "deletecollection":
            return names.DELETE_OPTIONS
        case _:
            return ""


def _answered(verb: str, subject: Subject) -> str:
    """Return the definition of the answer."""
    match verb:
        case "list":
            listed = GroupVersionKind(subject.kind.group, subject.kind.version, subject.list_kind)
            return names.definition_name(listed)
        case "delete":
            return subject.deleted
        case "deletecollection":
            return names.STATUS
        case _:
            return names.definition_name(subject.kind)


def _responses(codes: tuple[int, ...], definition: str, media_types: tuple[str, ...]) -> Object:
    content = _content(media_types, definition)
    answers: Object = {
        str(code): {"description": HTTPStatus(code).phrase, "content": content} for code in codes
    }
    refused = HTTPStatus.UNAUTHORIZED
    return {**answers, str(refused.value): {"description": refused.phrase}}


def _content(media_types: tuple[str, ...], definition: str) -> dict[str, Any]:
    return {media_type: {"schema": names.reference(definition)} for media_type in media_types}
