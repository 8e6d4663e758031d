"""The body that a client sends, in the words of the one cluster it goes to.

Names lose the suffix of that cluster, aggregated resourceVersions become the cluster's own. A
body that needs neither is passed on exactly as it came, so that the cluster judges what the client
wrote: doubled keys, unknown fields, odd numbers. Protobuf is changed field by field; what is not
understood is kept as it was sent.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, cast

import msgspec

from clusterspace.apiserver.http.bodies import media_type_of, read_yaml, refuse_shape
from clusterspace.apiserver.http.request_info import JSON, PROTOBUF, YAML
from clusterspace.errors import MalformedPatch, UnsupportedMediaType
from clusterspace.fleet.gateway import renaming
from clusterspace.fleet.gateway.renaming import EACH, Change, Fields, Node, Tree
from clusterspace.fleet.gateway.routes import BodyNames, Naming, Subject
from clusterspace.kube import statuses
from clusterspace.kube.json_patches import read_pointer
from clusterspace.kube.protobuf.messages import Message, Shape, find_kind, get_message
from clusterspace.kube.protobuf.wire import (
    WireType,
    read_envelope,
    read_fields,
    text_of,
    write_envelope,
    write_field,
)

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
    if not body or subject.subresource in renaming.NOT_OBJECTS:
        return body
    refuse_shape(body, media_type_of(content_type))
    tree = renaming.inward(naming, subject, version_for)
    media_type = media_type_of(content_type)
    if media_type == JSON_PATCH:
        return _rewrite_json_patch(body, tree)
    options = renaming.inward_delete_options(naming, version_for)
    takes_options = media_type in (JSON, YAML, PROTOBUF)

    def tree_for(kind: str) -> Tree:
        # Some clients leave the kind out of DeleteOptions; an object needs one to be created.
        return {**tree, **options} if takes_options and kind in ("", _DELETE_OPTIONS) else tree

    return _edit(body, media_type, tree_for)


def names_in(body: bytes, content_type: str, subject: Subject) -> BodyNames:
    """Return the names the body gives its object; none for a body that holds no whole object.

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

    tree = renaming.tree_of((steps, noting(steps[-1])) for steps in renaming.naming_places(subject))
    _edit(body, media_type, lambda _: tree)
    keys = ("name", "namespace", "generateName", "nodeName")
    return BodyNames(*(seen.get(key, "") for key in keys))


def _edit(body: bytes, media_type: str, tree_for: Callable[[str], Tree]) -> bytes:
    if media_type == PROTOBUF:
        return edit_protobuf(body, tree_for)
    if media_type not in (*_AS_JSON, *_AS_YAML):
        raise statuses.unsupported_media_type(_ACCEPTED)
    text = body
    if media_type in _AS_YAML and body[:1] != b"{":
        text = renaming.encode(read_yaml(body).value)
    fields = renaming.read_object(text)
    edited = renaming.editor_of(tree_for(renaming.text_at(fields, "kind")))(fields)
    return body if edited is fields else renaming.encode(edited)


def _rewrite_json_patch(body: bytes, tree: Tree) -> bytes:
    """Change the value of each operation by what the tree says of the place it is meant for."""
    operations: list[Fields] = []
    is_changed = False
    for index, text in enumerate(renaming.read_list(body, place="the patch")):
        operation = renaming.read_object(text, place=f"operation {index} of the patch")
        path, value = renaming.text_at(operation, "path"), operation.get("value")
        try:
            below = renaming.below(tree, read_pointer(path))
        except ValueError as error:
            why = f"the patch has an unreadable path: {error}"
            raise MalformedPatch(why, place=path) from error
        if below is renaming.removed:
            is_changed = True
            continue  # it is about what is not there
        operations.append(operation)
        if below is None or not isinstance(value, msgspec.Raw):
            continue
        edited = renaming.edit_of(below)(value)
        if edited is not value:
            operation["value"] = edited
            is_changed = True
    return renaming.encode(operations) if is_changed else body


# -- protobuf: changed field by field --------------------------------------------------------------

_ENTRY_KEY, _ENTRY_VALUE = 1, 2


def edit_protobuf(body: bytes, tree_for: Callable[[str], Tree]) -> bytes:
    """Return the body with its places changed; the same bytes when none did.

    `tree_for` is asked with the kind the body says it is.
    """
    envelope = read_envelope(body)
    message = find_kind(envelope.api_version, envelope.kind)
    if message is None:
        raise UnsupportedMediaType(
            f"{envelope.kind or 'an object without a kind'} ({envelope.api_version}) "
            "is not read as protobuf; send it as JSON"
        )
    edited = _edited_message(message, tree_for(envelope.kind), envelope.raw, envelope.kind)
    return body if edited == envelope.raw else write_envelope(replace(envelope, raw=edited))


def _edited_message(message: Message, tree: Tree, data: bytes, place: str) -> bytes:
    written: list[bytes] = []
    for wire_field in read_fields(data, place):
        field = message.by_number.get(wire_field.number)
        below: Node | None = None
        if field is not None and wire_field.wire_type is WireType.BYTES:
            below = tree if field.shape is Shape.INLINED else tree.get(field.name)
            if field.shape is Shape.LIST and below is not None and not callable(below):
                below = below.get(EACH)
        if field is None or below is None:
            written.append(write_field(wire_field))
            continue
        value, inner = cast("bytes", wire_field.value), f"{place}.{field.name}"
        if callable(below):
            if field.type == "string":
                value = below(text_of(value, inner)).encode()
        elif field.shape is Shape.MAP:
            entry = _edited_entry(below, value, inner)
            if entry is None:
                continue
            value = entry
        else:
            value = _edited_message(get_message(field.type), below, value, inner)
        written.append(write_field(replace(wire_field, value=value)))
    return b"".join(written)


def _edited_entry(tree: Tree, data: bytes, place: str) -> bytes | None:
    """Change one entry of a map of strings, if its key is in the tree; None takes it away."""
    halves = list(read_fields(data, place))
    keys = [half.value for half in halves if half.number == _ENTRY_KEY]
    key = text_of(keys[-1], place) if keys and isinstance(keys[-1], bytes) else ""
    change = tree.get(key)
    if not callable(change):
        return data
    if change is renaming.removed:
        return None
    return b"".join(
        write_field(
            replace(half, value=change(text_of(half.value, place)).encode())
            if half.number == _ENTRY_VALUE and isinstance(half.value, bytes)
            else half
        )
        for half in halves
    )
