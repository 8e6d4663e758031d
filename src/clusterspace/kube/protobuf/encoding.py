"""An object to a protobuf body, byte for byte as a Go client would have written it."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from clusterspace.errors import MalformedObject, UnsupportedMediaType
from clusterspace.kube.protobuf.messages import (
    Field,
    Message,
    Presence,
    Shape,
    find_kind,
    get_message,
    wrap,
)
from clusterspace.kube.protobuf.values import VALUE_TYPES, must_be
from clusterspace.kube.protobuf.wire import (
    Envelope,
    WireType,
    write_bytes_field,
    write_envelope,
    write_fixed64_field,
    write_varint_field,
)

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
