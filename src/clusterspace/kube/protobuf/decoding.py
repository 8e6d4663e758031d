"""A protobuf body to exactly the JSON object a Go client would have sent instead."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from clusterspace.errors import MalformedObject, UnsupportedMediaType
from clusterspace.kube.objects import Object
from clusterspace.kube.protobuf.envelopes import read_envelope
from clusterspace.kube.protobuf.messages import (
    Field,
    Message,
    Presence,
    Shape,
    find_kind,
    get_message,
)
from clusterspace.kube.protobuf.scalars import (
    read_known,
    text_of,
    unknown_field,
    wrong_wire_type,
)
from clusterspace.kube.protobuf.schema_choices import unwrap
from clusterspace.kube.protobuf.values import VALUE_TYPES
from clusterspace.kube.protobuf.wire import WireType, WireValue, read_fields, read_packed

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
    return {**typed, **_decode_message(message, envelope.raw, envelope.kind, depth=0)}


def _decode_message(message: Message, data: bytes, place: str, depth: int) -> Object:
    if depth > MAX_DEPTH:
        raise MalformedObject(f"{place}: nested deeper than {MAX_DEPTH} messages", place=place)
    sent = _collect(message, data, place)
    decoded: Object = {}
    for field in message.fields:
        occurrences = sent.get(field.number, ())
        if field.shape is Shape.INLINED:
            inlined = get_message(field.type)
            decoded.update(_decode_message(inlined, _joined(occurrences), place, depth + 1))
            continue
        value = _decode_field(field, occurrences, f"{place}.{field.name}", depth)
        if value is not _ABSENT:
            decoded[field.name] = value
    return decoded


def _collect(message: Message, data: bytes, place: str) -> _Sent:
    """Return everything sent, by field number; refuse what the message does not have."""
    sent: dict[int, list[WireValue]] = {}
    for wire_field in read_fields(data, place):
        field = message.by_number.get(wire_field.number)
        if field is None:
            raise unknown_field(f"{message.name} at {place}", wire_field.number)
        wanted = _wire_type(field)
        if wire_field.wire_type == wanted:
            sent.setdefault(field.number, []).append(wire_field.value)
        elif _may_be_packed(field, wanted) and wire_field.wire_type == WireType.BYTES:
            packed = read_packed(cast("bytes", wire_field.value), f"{place}.{field.name}")
            sent.setdefault(field.number, []).extend(packed)
        else:
            raise wrong_wire_type(f"{place}.{field.name}", wire_field)
    return sent


def _wire_type(field: Field) -> WireType:
    value_type = VALUE_TYPES.get(field.type)
    if value_type is None or field.shape is Shape.MAP:
        return WireType.BYTES
    return value_type.wire_type


def _may_be_packed(field: Field, wanted: WireType) -> bool:
    return field.shape is Shape.LIST and wanted == WireType.VARINT


def _decode_field(field: Field, occurrences: Sequence[WireValue], place: str, depth: int) -> Any:
    if field.shape is Shape.LIST:
        listed = [
            _decode_value(field.type, held, f"{place}[{index}]", depth)
            for index, held in enumerate(occurrences)
        ]
        return listed or _empty(field)
    if field.shape is Shape.MAP:
        entries = (_decode_entry(field.type, held, place, depth) for held in occurrences)
        return dict(entries) or _empty(field)
    if not occurrences and field.presence is not Presence.ALWAYS:
        return _empty(field)
    value = _decode_single(field, occurrences, place, depth)
    return _ABSENT if field.presence is Presence.NOT_EMPTY and value in _EMPTY else value


def _empty(field: Field) -> Any:
    """Return the JSON of a list, a map or a pointer that holds nothing."""
    return None if field.presence in (Presence.ALWAYS, Presence.OR_NULL) else _ABSENT


def _decode_single(field: Field, occurrences: Sequence[WireValue], place: str, depth: int) -> Any:
    """Read one value: the last scalar sent counts, messages sent in pieces are joined."""
    value_type = VALUE_TYPES.get(field.type)
    if value_type is None:
        return _decode_value(field.type, _joined(occurrences), place, depth)
    if not occurrences:
        return value_type.zero
    held = _joined(occurrences) if value_type.is_message else occurrences[-1]
    return value_type.read(held, place)


def _joined(occurrences: Sequence[WireValue]) -> bytes:
    # Protobuf's own rule: bytes of the same message, one after the other, are the merged message.
    return b"".join(cast("Sequence[bytes]", occurrences))


def _decode_value(type_name: str, value: WireValue, place: str, depth: int) -> Any:
    value_type = VALUE_TYPES.get(type_name)
    if value_type is not None:
        return value_type.read(value, place)
    decoded = _decode_message(get_message(type_name), cast("bytes", value), place, depth + 1)
    return unwrap(type_name, decoded)


def _decode_entry(type_name: str, value: WireValue, place: str, depth: int) -> tuple[str, Any]:
    """Read one entry of a map; a missing half is that type's zero."""
    value_type = VALUE_TYPES.get(type_name)
    held_type = value_type.wire_type if value_type else WireType.BYTES
    known = {_ENTRY_KEY: WireType.BYTES, _ENTRY_VALUE: held_type}
    entry = read_known(cast("bytes", value), known, place)
    key = text_of(entry.get(_ENTRY_KEY, b""), place)
    absent = b"" if held_type == WireType.BYTES else 0
    held = entry.get(_ENTRY_VALUE, absent)
    return key, _decode_value(type_name, held, f"{place}[{key}]", depth)
