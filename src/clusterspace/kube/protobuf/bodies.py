"""A protobuf body to exactly the JSON a Go client would have sent, and an object to its body.

Both directions walk the same table of messages; the difference is who decides what is there. When
decoding it is the wire, where a field may come in any order, several times, in pieces or not at
all. When encoding it is the object, and a field nobody set is written as Go writes its zero.
"""

from collections.abc import Iterator, Mapping, Sequence
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
    wrap,
)
from clusterspace.kube.protobuf.values import VALUE_TYPES, must_be
from clusterspace.kube.protobuf.wire import (
    Envelope,
    WireType,
    WireValue,
    read_envelope,
    read_fields,
    read_known,
    read_packed,
    text_of,
    unknown_field,
    write_bytes_field,
    write_envelope,
    write_fixed64_field,
    write_varint_field,
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


# Encoding.

_TYPE_NAMES = frozenset({"apiVersion", "kind"})
_WRITTEN_WHEN_ZERO = (Presence.ALWAYS, Presence.NOT_EMPTY)


def encode(kube_object: Mapping[str, Any]) -> bytes:
    """Return the body of type `application/vnd.kubernetes.protobuf` that holds the object.

    Raises UnsupportedMediaType for a kind that has no protobuf form, and MalformedObject
    for a field that the kind does not have or a value of the wrong type.
    """
    api_version = str(kube_object.get("apiVersion", ""))
    kind = str(kube_object.get("kind", ""))
    message = find_kind(api_version, kind)
    if message is None:
        raise UnsupportedMediaType(f"{kind} ({api_version}) has no protobuf form")
    return write_envelope(Envelope(api_version, kind, _encode_message(message, kube_object, kind)))


def _encode_message(message: Message, shown: Any, place: str) -> bytes:
    fields = cast("Mapping[str, Any]", must_be(shown, dict, place))
    # The wire has no place for the type of an object inside another one, such as a claim template.
    known = message.json_names | _TYPE_NAMES if message.is_kind else message.json_names
    strangers = sorted(fields.keys() - known)
    if strangers:
        raise MalformedObject(f"{place}: {message.name} has no {strangers[0]}", place=place)
    return b"".join(
        part for field in message.in_wire_order for part in _encode_field(field, fields, place)
    )


def _encode_field(field: Field, fields: Mapping[str, Any], place: str) -> Iterator[bytes]:
    """Yield the field as it stands on the wire: once, many times, or not at all."""
    if field.shape is Shape.INLINED:
        inlined = get_message(field.type)
        own = {name: fields[name] for name in fields if name in inlined.json_names}
        yield write_bytes_field(field.number, _encode_message(inlined, own, place))
        return
    shown = fields.get(field.name)
    place = f"{place}.{field.name}"
    if field.shape is Shape.SINGLE:
        value_type = VALUE_TYPES.get(field.type)
        if shown is not None:
            yield _write(field.number, field.type, shown, place)
        elif field.presence not in _WRITTEN_WHEN_ZERO:
            return
        # Go writes a value nobody set as zero, an empty message, or no bytes at all.
        elif value_type is None:
            yield _write(field.number, field.type, {}, field.name)
        elif value_type.zero is not None:
            yield _write(field.number, field.type, value_type.zero, field.name)
        elif value_type.is_message:
            yield write_bytes_field(field.number, b"")
    elif shown is not None and field.shape is Shape.LIST:
        listed = cast("list[Any]", must_be(shown, list, place))
        for index, item in enumerate(listed):
            yield _write(field.number, field.type, item, f"{place}[{index}]")
    elif shown is not None:
        entries = cast("Mapping[str, Any]", must_be(shown, dict, place))
        # Sorted as Go sorts them: protobuf leaves the order open, and bytes are to be the same.
        for key in sorted(entries):
            entry = _write(1, "string", key, place)
            entry += _write(2, field.type, entries[key], f"{place}[{key}]")
            yield write_bytes_field(field.number, entry)


def _write(number: int, type_name: str, shown: Any, place: str) -> bytes:
    value_type = VALUE_TYPES.get(type_name)
    if value_type is None:
        wrapped = wrap(type_name, shown)
        return write_bytes_field(number, _encode_message(get_message(type_name), wrapped, place))
    value = value_type.write(shown, place)
    if value_type.wire_type == WireType.VARINT:
        return write_varint_field(number, cast("int", value))
    if value_type.wire_type == WireType.FIXED64:
        return write_fixed64_field(number, cast("bytes", value))
    return write_bytes_field(number, cast("bytes", value))
