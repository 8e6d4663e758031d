"""A protobuf body to exactly the JSON a Go client would have sent.

The wire decides what is there: a field may come in any order, several times, in pieces or not at
all. The way back, where the object decides, is `encoding.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from clusterspace.errors import MalformedObject, UnsupportedMediaType
from clusterspace.kube.objects import Object
from clusterspace.kube.protobuf.messages import (
    Field,
    Message,
    Presence,
    Shape,
    find_kind,
    get_message,
    unwrap,
)
from clusterspace.kube.protobuf.values import VALUE_TYPES
from clusterspace.kube.protobuf.wire import (
    WireType,
    WireValue,
    read_envelope,
    read_fields,
    read_known,
    read_packed,
    text_of,
    unknown_field,
    wrong_wire_type,
)
from clusterspace.kube.shapes import Parts

# What protobuf libraries allow. Only schemas of custom resources nest at will, two messages a
# level at most, and the published ones stay under twenty levels.
MAX_DEPTH: Final = 100
_ABSENT: Final = object()
_EMPTY: Final[tuple[Any, ...]] = ("", None, 0, {})  # False equals 0
_ENTRY_KEY, _ENTRY_VALUE = 1, 2

_Sent = Mapping[int, Sequence[WireValue]]


def decode(body: bytes) -> Object:
    """Return the object in a body of type `application/vnd.kubernetes.protobuf`.

    Raises MalformedObject for bytes that are not what they claim to be, and
    UnsupportedMediaType for a kind or a field that is not in the table.
    """
    envelope = read_envelope(body)
    message = find_kind(envelope.api_version, envelope.kind)
    if message is None:
        raise UnsupportedMediaType(
            f"{envelope.kind or 'an object without a kind'} ({envelope.api_version}) "
            "is not read as protobuf; send it as JSON"
        )
    typed = {"apiVersion": envelope.api_version, "kind": envelope.kind}
    return {**typed, **_decode_message(message, envelope.raw, envelope.kind, 0, Parts())}


def decode_message(name: str, data: bytes) -> Object:
    """Return the JSON of one message by its full name, such as `meta.ObjectMeta`.

    Raises as `decode` does.
    """
    return _decode_message(get_message(name), data, name, 0, Parts())


def _decode_message(message: Message, data: bytes, place: str, depth: int, parts: Parts) -> Object:
    if depth > MAX_DEPTH:
        raise MalformedObject(f"{place}: nested deeper than {MAX_DEPTH} messages", place=place)
    parts.add_container()
    sent = _collect(message, data, place)
    decoded: Object = {}
    # In the order of the JSON, which the table keeps, not of the wire: the object is the one that
    # a Go client would have written as JSON, its order included.
    for field in message.fields:
        occurrences = sent.get(field.number, ())
        if field.shape is Shape.INLINED:
            # Read even if it was not sent: it may have fields that are always shown.
            inlined = get_message(field.type)
            decoded.update(_decode_message(inlined, _joined(occurrences), place, depth + 1, parts))
            continue
        value = _decode_field(field, occurrences, f"{place}.{field.name}", depth, parts)
        if value is not _ABSENT:
            decoded[field.name] = value
    parts.add_values(len(decoded))
    return decoded


def _collect(message: Message, data: bytes, place: str) -> _Sent:
    """Return everything sent, by field number; refuse what the message does not have.

    A field may come any number of times and in any order. Numbers of a list may come one by one,
    packed into one field, or both: [1, 2, 3] may be sent as 1 and then as 2 and 3 packed.
    """
    sent: dict[int, list[WireValue]] = {}
    for wire_field in read_fields(data, place):
        field = message.by_number.get(wire_field.number)
        if field is None:
            raise unknown_field(f"{message.name} at {place}", wire_field.number)
        value_type = None if field.shape is Shape.MAP else VALUE_TYPES.get(field.type)
        wanted = WireType.BYTES if value_type is None else value_type.wire_type
        may_be_packed = field.shape is Shape.LIST and wanted == WireType.VARINT
        if wire_field.wire_type == wanted:
            sent.setdefault(field.number, []).append(wire_field.value)
        elif may_be_packed and wire_field.wire_type == WireType.BYTES:
            packed = read_packed(cast("bytes", wire_field.value), f"{place}.{field.name}")
            sent.setdefault(field.number, []).extend(packed)
        else:
            raise wrong_wire_type(f"{place}.{field.name}", wire_field)
    return sent


def _decode_field(
    field: Field, occurrences: Sequence[WireValue], place: str, depth: int, parts: Parts
) -> Any:
    """Return the JSON of a field, or _ABSENT when the JSON does not have it."""
    # All that came is counted, not what is left of it: of a scalar sent a million times only the
    # last one counts, but somebody had to read them.
    parts.add_values(len(occurrences))
    # A list, a map or a pointer that holds nothing.
    is_shown = field.presence in (Presence.ALWAYS, Presence.OR_NULL)
    empty = None if is_shown else _ABSENT
    if field.shape is Shape.LIST:
        listed = [
            _decode_value(field.type, value, f"{place}[{index}]", depth, parts)
            for index, value in enumerate(occurrences)
        ]
        return listed or empty
    if field.shape is Shape.MAP:
        entries = (_decode_entry(field.type, value, place, depth, parts) for value in occurrences)
        return dict(entries) or empty
    if not occurrences and field.presence is not Presence.ALWAYS:
        return empty
    # One value: the last scalar sent counts, messages sent in pieces are joined.
    value_type = VALUE_TYPES.get(field.type)
    if value_type is None:
        value = _decode_value(field.type, _joined(occurrences), place, depth, parts)
    elif not occurrences:
        value = value_type.zero
    else:
        sent = _joined(occurrences) if value_type.is_message else occurrences[-1]
        value = _decode_value(field.type, sent, place, depth, parts)
    return _ABSENT if field.presence is Presence.NOT_EMPTY and value in _EMPTY else value


def _joined(occurrences: Sequence[WireValue]) -> bytes:
    # Protobuf's own rule: bytes of the same message, one after the other, are the merged message.
    return b"".join(cast("Sequence[bytes]", occurrences))


_JSON: Final = "json"
"""The type of values that are JSON inside of a protobuf body, as defaults in a schema are."""


def _decode_value(type_name: str, value: WireValue, place: str, depth: int, parts: Parts) -> Any:
    value_type = VALUE_TYPES.get(type_name)
    if value_type is not None:
        if type_name == _JSON:
            parts.add_json(cast("bytes", value))
        return value_type.read(value, place)
    message, data = get_message(type_name), cast("bytes", value)
    decoded = _decode_message(message, data, place, depth + 1, parts)
    return unwrap(type_name, decoded)


def _decode_entry(
    type_name: str, value: WireValue, place: str, depth: int, parts: Parts
) -> tuple[str, Any]:
    """Read one entry of a map; a missing half is that type's zero."""
    value_type = VALUE_TYPES.get(type_name)
    wire_type = value_type.wire_type if value_type else WireType.BYTES
    known = {_ENTRY_KEY: WireType.BYTES, _ENTRY_VALUE: wire_type}
    entry = read_known(cast("bytes", value), known, place)
    key = text_of(entry.get(_ENTRY_KEY, b""), place)
    absent = b"" if wire_type == WireType.BYTES else 0
    sent = entry.get(_ENTRY_VALUE, absent)
    return key, _decode_value(type_name, sent, f"{place}[{key}]", depth, parts)
