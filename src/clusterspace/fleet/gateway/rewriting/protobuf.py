"""Protobuf bodies changed field by field; what is not understood is kept as it was sent."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from clusterspace.errors import UnsupportedMediaType
from clusterspace.fleet.gateway.renaming.edits import EACH, Change, Node, Tree
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

_ENTRY_KEY, _ENTRY_VALUE = 1, 2


@dataclass(frozen=True, slots=True)
class _Walk:
    """One message on the way to the places that change."""

    message: Message
    tree: Tree
    place: str


def edit_object(body: bytes, tree_for: Callable[[str], Tree]) -> bytes:
    """Return the body with its places changed; the same bytes when none did.

    `tree_for` is asked with the kind the body says it is.
    """
    envelope = read_envelope(body)
    message = _message_of(envelope)
    edited = _edited(_Walk(message, tree_for(envelope.kind), envelope.kind), envelope.raw)
    return body if edited == envelope.raw else write_envelope(replace(envelope, raw=edited))


def _message_of(envelope: Envelope) -> Message:
    message = find_kind(envelope.api_version, envelope.kind)
    if message is None:
        raise UnsupportedMediaType(
            f"{envelope.kind or 'an object without a kind'} ({envelope.api_version}) "
            "is not read as protobuf; send it as JSON"
        )
    return message


def _edited(walk: _Walk, data: bytes) -> bytes:
    return b"".join(
        write_field(_edited_field(walk, wire_field)) for wire_field in read_fields(data, walk.place)
    )


def _edited_field(walk: _Walk, wire_field: WireField) -> WireField:
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
    return _edited(_Walk(get_message(field.type), below, place), held)


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
