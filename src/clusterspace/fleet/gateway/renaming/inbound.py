"""What a client sends, in the words of the one cluster it goes to: bodies, and the query of a URL.

Names lose the suffix of that cluster, aggregated resourceVersions become the cluster's own. A
body that needs neither is passed on exactly as it came, so that the cluster judges what the client
wrote: doubled keys, unknown fields, odd numbers. Protobuf is changed field by field; what is not
understood is kept as it was sent.

In a selector a value with another cluster's suffix stays: nothing in this cluster is called that,
so `=` matches nothing here and `!=` everything, which is the truth.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import msgspec

from clusterspace.apiserver.http.bodies import media_type_of, read_yaml, refuse_shape
from clusterspace.apiserver.http.negotiation import JSON, PROTOBUF, YAML
from clusterspace.apiserver.http.request_info import Query
from clusterspace.errors import MalformedPatch, UnsupportedMediaType
from clusterspace.fleet.gateway.names import NAME_LABELS, BodyNames, Naming, Subject
from clusterspace.fleet.gateway.renaming import edits, rules
from clusterspace.fleet.gateway.renaming.edits import EACH, Change, Fields, Node, Tree
from clusterspace.fleet.gateway.renaming.rules import unqualifier
from clusterspace.kube import statuses
from clusterspace.kube.json_pointers import Steps, read_pointer
from clusterspace.kube.protobuf.messages import Field, Message, Shape, find_kind, get_message
from clusterspace.kube.protobuf.wire import (
    Envelope,
    WireField,
    WireType,
    read_envelope,
    read_fields,
    text_of,
    write_envelope,
    write_field,
)
from clusterspace.kube.selectors import (
    DOES_NOT_EXIST,
    EXISTS,
    SET_SIGNS,
    FieldSelector,
    Term,
    parse_field_selector,
    read_terms,
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
    if not body or subject.subresource in rules.NOT_OBJECTS:
        return body
    refuse_shape(body, media_type_of(content_type))
    tree = rules.inward(naming, subject, version_for)
    media_type = media_type_of(content_type)
    if media_type == JSON_PATCH:
        return _rewrite_json_patch(body, tree)
    options = rules.inward_delete_options(naming, version_for)
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

    tree = edits.tree_of((steps, noting(steps[-1])) for steps in rules.naming_places(subject))
    _edit(body, media_type, lambda _: tree)
    return BodyNames(*(seen.get(key, "") for key in ("name", "namespace", "generateName")))


def _edit(body: bytes, media_type: str, tree_for: Callable[[str], Tree]) -> bytes:
    if media_type == PROTOBUF:
        return edit_protobuf(body, tree_for)
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


_ENTRY_KEY, _ENTRY_VALUE = 1, 2


@dataclass(frozen=True, slots=True)
class _MessageWalk:
    """One message on the way to the places that change."""

    message: Message
    tree: Tree
    place: str


def edit_protobuf(body: bytes, tree_for: Callable[[str], Tree]) -> bytes:
    """Return the body with its places changed; the same bytes when none did.

    `tree_for` is asked with the kind the body says it is.
    """
    envelope = read_envelope(body)
    message = _message_of(envelope)
    edited = _edited_message(
        _MessageWalk(message, tree_for(envelope.kind), envelope.kind), envelope.raw
    )
    return body if edited == envelope.raw else write_envelope(replace(envelope, raw=edited))


def _message_of(envelope: Envelope) -> Message:
    message = find_kind(envelope.api_version, envelope.kind)
    if message is None:
        raise UnsupportedMediaType(
            f"{envelope.kind or 'an object without a kind'} ({envelope.api_version}) "
            "is not read as protobuf; send it as JSON"
        )
    return message


def _edited_message(walk: _MessageWalk, data: bytes) -> bytes:
    return b"".join(
        write_field(_edited_wire_field(walk, wire_field))
        for wire_field in read_fields(data, walk.place)
    )


def _edited_wire_field(walk: _MessageWalk, wire_field: WireField) -> WireField:
    field = walk.message.by_number.get(wire_field.number)
    if field is None or wire_field.wire_type is not WireType.BYTES:
        return wire_field
    below = walk.tree if field.shape is Shape.INLINED else walk.tree.get(field.name)
    if field.shape is Shape.LIST and below is not None and not callable(below):
        below = below.get(EACH)
    if below is None:
        return wire_field
    held = cast("bytes", wire_field.value)
    return replace(
        wire_field, value=_edited_value(field, below, held, f"{walk.place}.{field.name}")
    )


def _edited_value(field: Field, below: Node, held: bytes, place: str) -> bytes:
    if callable(below):
        return _edited_text(field, below, held, place)
    if field.shape is Shape.MAP:
        return _edited_entry(below, held, place)
    return _edited_message(_MessageWalk(get_message(field.type), below, place), held)


def _edited_text(field: Field, change: Change, held: bytes, place: str) -> bytes:
    return change(text_of(held, place)).encode() if field.type == "string" else held


def _edited_entry(tree: Tree, held: bytes, place: str) -> bytes:
    """Change the value of one entry of a map of strings, if its key is in the tree."""
    parts = list(read_fields(held, place))
    keys = [part.value for part in parts if part.number == _ENTRY_KEY]
    key = text_of(keys[-1], place) if keys and isinstance(keys[-1], bytes) else ""
    change = tree.get(key)
    if not callable(change):
        return held
    return b"".join(write_field(_edited_half(part, change, place)) for part in parts)


def _edited_half(part: WireField, change: Change, place: str) -> WireField:
    if part.number != _ENTRY_VALUE or not isinstance(part.value, bytes):
        return part
    return replace(part, value=change(text_of(part.value, place)).encode())


_ANY_VERSION: Final = ("", "0")


def rewrite_query(query: Query, naming: Naming, *, version_for: Change = str) -> Query:
    """Return the parameters in the words of `naming.cluster`; unknown ones pass untouched.

    Without `version_for` versions do too, for who has taken them out. Raises MalformedSelector for
    a selector that cannot be read, and whatever `version_for` raises.
    """
    unqualify = unqualifier(naming.cluster)
    changes: dict[str, Change] = {
        "fieldSelector": lambda text: _own_field_selector(text, unqualify),
        "labelSelector": lambda text: _own_label_selector(text, unqualify),
        "resourceVersion": lambda text: text if text in _ANY_VERSION else version_for(text),
    }
    return Query(
        tuple((key, changes[key](value) if key in changes else value) for key, value in query.pairs)
    )


def _own_field_selector(text: str, unqualify: Change) -> str:
    """Change the value of every field: which of them are names, only the cluster knows."""
    asked = parse_field_selector(text)
    changed = FieldSelector(
        tuple(replace(each, value=unqualify(each.value)) for each in asked.requirements)
    )
    return text if changed == asked else str(changed)


def _own_label_selector(text: str, unqualify: Change) -> str:
    """Change the values of the few labels that hold names; others may mean anything."""
    terms = list(read_terms(text))
    changed = [_changed_term(term, unqualify) for term in terms]
    return text if changed == terms else ",".join(map(_written, changed))


def _changed_term(term: Term, unqualify: Change) -> Term:
    if term.key not in NAME_LABELS:
        return term
    return replace(term, values=tuple(map(unqualify, term.values)))


def _written(term: Term) -> str:
    if term.sign == EXISTS:
        return term.key
    if term.sign == DOES_NOT_EXIST:
        return f"!{term.key}"
    if term.sign in SET_SIGNS:
        return f"{term.key} {term.sign} ({','.join(term.values)})"
    return f"{term.key}{term.sign}{term.values[0]}"
