"""What a client sends, in the words of the one cluster it goes to.

Names lose the suffix of that cluster, aggregated resourceVersions become the cluster's own. A
body that needs neither is passed on exactly as it came, so that the cluster judges what the client
wrote: doubled keys, unknown fields, odd numbers.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from clusterspace.apiserver.http.bodies import media_type_of, read_yaml, refuse_shape
from clusterspace.apiserver.http.negotiation import JSON, PROTOBUF, YAML
from clusterspace.errors import MalformedPatch
from clusterspace.fleet.gateway.flow import BodyNames, Naming, Subject
from clusterspace.fleet.gateway.renaming import edits, places
from clusterspace.fleet.gateway.renaming.edits import Change, Fields, Tree
from clusterspace.fleet.gateway.rewriting import protobuf
from clusterspace.kube import statuses
from clusterspace.kube.json_pointers import Steps, read_pointer

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

_AS_JSON: Final = (JSON, MERGE_PATCH, STRATEGIC_PATCH)
_AS_YAML: Final = (YAML, APPLY_PATCH)
_ACCEPTED: Final = (*_AS_JSON, *_AS_YAML, JSON_PATCH, PROTOBUF)

_DELETE_OPTIONS: Final = "DeleteOptions"


def rewrite(
    body: bytes,
    content_type: str,
    naming: Naming,
    subject: Subject,
    *,
    version_for: Change,
) -> bytes:
    """Return the body as `naming.cluster` must get it; YAML that changes becomes JSON, its subset.

    Raises BadRequest when a name is of another cluster or the body cannot be read,
    UnsupportedMediaType for a type that is not understood, and whatever `version_for` raises.
    """
    if not body or subject.subresource in places.NOT_OBJECTS:
        return body
    refuse_shape(body, media_type_of(content_type))
    tree = places.inward(naming, subject, version_for)
    media_type = media_type_of(content_type)
    if media_type == JSON_PATCH:
        return _rewrite_json_patch(body, tree)
    options = places.inward_delete_options(naming, version_for)
    takes_options = media_type in (JSON, YAML, PROTOBUF)

    def tree_for(kind: str) -> Tree:
        # Some clients leave the kind out of DeleteOptions; an object needs one to be created.
        return {**tree, **options} if takes_options and kind in ("", _DELETE_OPTIONS) else tree

    return _edit(body, media_type, tree_for)


def names_in(body: bytes, content_type: str, subject: Subject) -> BodyNames:
    """Return what the body calls its object; nothing for a body that holds no whole object.

    An access review has no name of its own: what it asks about is what it names.
    """
    media_type = media_type_of(content_type)
    if not body or media_type == JSON_PATCH:
        return BodyNames()
    refuse_shape(body, media_type)
    seen: dict[str, str] = {}

    def noting(key: str) -> Change:
        def note(text: str) -> str:
            if text:
                seen[key] = text
            return text

        return note

    tree = edits.tree_of((steps, noting(steps[-1])) for steps in places.naming_places(subject))
    _edit(body, media_type, lambda _: tree)
    return BodyNames(*(seen.get(key, "") for key in ("name", "namespace", "generateName")))


def _edit(body: bytes, media_type: str, tree_for: Callable[[str], Tree]) -> bytes:
    if media_type == PROTOBUF:
        return protobuf.edit_object(body, tree_for)
    if media_type in _AS_JSON:
        return _edit_json(body, tree_for)
    if media_type in _AS_YAML:
        return _edit_yaml(body, tree_for)
    raise statuses.unsupported_media_type(_ACCEPTED)


def _edit_json(body: bytes, tree_for: Callable[[str], Tree]) -> bytes:
    fields = edits.read_object(body)
    edited = edits.editor_of(tree_for(edits.text_at(fields, "kind")))(fields)
    return body if edited is fields else edits.encode(edited)


def _edit_yaml(body: bytes, tree_for: Callable[[str], Tree]) -> bytes:
    if body[:1] == b"{":
        return _edit_json(body, tree_for)
    as_json = edits.encode(read_yaml(body).value)
    edited = _edit_json(as_json, tree_for)
    return body if edited is as_json else edited


def _rewrite_json_patch(body: bytes, tree: Tree) -> bytes:
    operations = [
        edits.read_object(operation, place=f"operation {index} of the patch")
        for index, operation in enumerate(edits.read_list(body, place="the patch"))
    ]
    edited = [_edited_operation(operation, tree) for operation in operations]
    is_same = all(new is old for new, old in zip(edited, operations, strict=True))
    return body if is_same else edits.encode(edited)


def _edited_operation(operation: Fields, tree: Tree) -> Fields:
    """Change the value of an operation by what the tree says of the place it is meant for."""
    held: Any = operation.get("value")
    below = edits.below(tree, _steps_of(operation))
    if below is None or not isinstance(held, msgspec.Raw):
        return operation
    edited = edits.edit_of(below)(held)
    return operation if edited is held else {**operation, "value": edited}


def _steps_of(operation: Fields) -> Steps:
    path = edits.text_at(operation, "path")
    try:
        return read_pointer(path)
    except ValueError as error:
        raise MalformedPatch(f"the patch has an unreadable path: {error}", place=path) from error
