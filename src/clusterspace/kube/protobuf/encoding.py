"""An object to the very bytes that kube-apiserver and Go clients write for it.

For every message there is one encoder, made from the table of fields when the message is first
written. It holds the bytes of an object in which nobody set anything, one piece for each field in
the order of their numbers: Go writes every field that is not a pointer, set or not, so most pieces
are there already. Writing an object is a walk over the fields that it has, each of which replaces
one piece:

    Namespace     metadata          spec        status
    nobody's      b"\\n\\x0c\\n\\x00…"   b"\\x12\\x00"  b"\\x1a\\x02\\n\\x00"
    {"metadata": {"name": "t"}}     replaces the first, the other two stay as they are

What an object costs is what is in it, not what its kind could have.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias, cast

from clusterspace.errors import MalformedObject, UnsupportedMediaType
from clusterspace.kube.protobuf.messages import (
    Field,
    Presence,
    Shape,
    find_kind,
    get_message,
    is_beside_a_schema,
    wrap,
)
from clusterspace.kube.protobuf.values import (
    VALUE_TYPES,
    Unwritable,
    ValueType,
    must_be,
    text_bytes,
)
from clusterspace.kube.protobuf.wire import (
    ENVELOPE_END,
    ONE_BYTE,
    UINT64,
    Envelope,
    WireType,
    open_envelope,
    varint,
    write_bytes_field,
    write_envelope,
    write_fixed64_field,
)

Encode: TypeAlias = Callable[[Any], bytes]
"""The JSON of a value or an object to its bytes; raises Unwritable."""

_TYPE_NAMES: Final = ("apiVersion", "kind")
_WRITTEN_WHEN_ZERO: Final = (Presence.ALWAYS, Presence.NOT_EMPTY)
_KEY_TAG: Final = varint(1 << 3 | WireType.BYTES)


def encode(kube_object: Mapping[str, Any]) -> bytes:
    """Return the body of type `application/vnd.kubernetes.protobuf` that holds the object.

    Raises UnsupportedMediaType for a kind that has no protobuf form, and MalformedObject
    for a field that the kind does not have or a value of the wrong type.
    """
    api_version, kind = str(kube_object.get("apiVersion", "")), str(kube_object.get("kind", ""))
    raw = encode_message(kube_object, api_version, kind)
    return write_envelope(Envelope(api_version, kind, raw))


def encode_message(kube_object: Mapping[str, Any], api_version: str, kind: str) -> bytes:
    """Return the bytes of an object without its envelope, as they stand in a list."""
    message = find_kind(api_version, kind)
    if message is None:
        raise UnsupportedMediaType(f"{kind} ({api_version}) has no protobuf form")
    try:
        return message_encoder(message.name)(kube_object)
    except Unwritable as error:
        place = kind + error.path
        raise MalformedObject(f"{place}: {error.why}", place=place) from error


def encode_list(
    api_version: str, kind: str, metadata: Mapping[str, Any], items: Sequence[bytes]
) -> list[bytes]:
    """Return the body of a list as pieces, from the messages of its items.

    Every list of Kubernetes is the same message: 1 is its ListMeta, 2 its items.
    """
    pieces = [write_bytes_field(1, message_encoder("meta.ListMeta")(metadata))]
    for item in items:
        pieces += (b"\x12" + varint(len(item)), item)
    opening = open_envelope(api_version, kind) + varint(sum(map(len, pieces)))
    return [opening, *pieces, ENVELOPE_END]


def encode_watch_event(event_type: str, body: bytes) -> bytes:
    """Return one event of a watch as its stream has it: four bytes of length, type and object.

    The object keeps its envelope, the event has none: whoever reads it knows what it is.
    """
    event = write_bytes_field(1, event_type.encode())
    event += write_bytes_field(2, write_bytes_field(1, body))
    return len(event).to_bytes(4, "big") + event


@cache
def message_encoder(name: str) -> Encode:
    """Return the encoder of a message by its full name, such as `meta.ObjectMeta`."""
    message = get_message(name)
    in_order = message.in_wire_order
    zeros = [_zero_of(field) for field in in_order]
    # The wire has no place for the type of an object inside another one, such as a claim template.
    ignored = _TYPE_NAMES if message.is_kind else ()
    slots: dict[str, tuple[int, Encode]] = dict.fromkeys(ignored, (len(zeros), lambda _: b""))
    zeros.append(b"")
    inlined: dict[str, str] = {}
    for slot, field in enumerate(in_order):
        is_inlined = field.shape is Shape.INLINED
        # Under a name that JSON does not have, so that nobody can send it.
        known_as = f"!{field.name}" if is_inlined else field.name
        slots[known_as] = (slot, _field_writer(field))
        if is_inlined:
            inlined.update(dict.fromkeys(get_message(field.type).json_names, known_as))

    def encode_fields(fields: Any) -> bytes:
        parts = zeros.copy()
        field_name = ""
        try:
            for field_name, value in cast("dict[str, Any]", must_be(fields, dict)).items():
                if value is not None:
                    slot, write = slots[field_name]
                    parts[slot] = write(value)
        except KeyError:
            raise Unwritable(f"{name} has no {field_name}") from None
        except Unwritable as error:
            is_step = field_name not in ("", *inlined.values())
            raise error.climb(f".{field_name}" if is_step else "") from None
        return b"".join(parts)

    def encode_with_inlined(fields: Any) -> bytes:
        """Put what stands in the JSON of this message into the ones that have it on the wire."""
        own: dict[str, Any] = {}
        for field_name, value in cast("dict[str, Any]", must_be(fields, dict)).items():
            known_as = inlined.get(field_name)
            (own if known_as is None else own.setdefault(known_as, {}))[field_name] = value
        return encode_fields(own)

    return encode_with_inlined if inlined else encode_fields


def _zero_of(field: Field) -> bytes:
    """Return how Go writes a field nobody set: as zero, an empty message, or not at all."""
    tag = varint(field.number << 3 | WireType.BYTES)
    if field.shape is Shape.INLINED:
        return _delimited(tag, message_encoder(field.type)({}))
    if field.shape is not Shape.SINGLE or field.presence not in _WRITTEN_WHEN_ZERO:
        return b""
    value_type = VALUE_TYPES.get(field.type)
    if value_type is None:
        return _delimited(tag, message_encoder(field.type)({}))
    if value_type.zero is not None:
        return _value_writer(field.number, value_type)(value_type.zero)
    return _delimited(tag, b"") if value_type.is_message else b""


def _field_writer(field: Field) -> Encode:
    """Return how a field that is set becomes its piece: once on the wire, or many times."""
    if field.shape is Shape.MAP:
        return _map_writer(field)
    value_type = VALUE_TYPES.get(field.type)
    write = (
        _message_writer(field.number, field.type)
        if value_type is None
        else _value_writer(field.number, value_type)
    )
    return _list_writer(write) if field.shape is Shape.LIST else write


def _list_writer(write: Encode) -> Encode:
    def write_list(value: Any) -> bytes:
        pieces: list[bytes] = []
        try:
            for item in cast("list[Any]", must_be(value, list)):
                pieces += (write(item),)
        except Unwritable as error:
            raise error.climb(f"[{len(pieces)}]" if isinstance(value, list) else "") from None
        return b"".join(pieces)

    return write_list


def _map_writer(field: Field) -> Encode:
    tag = varint(field.number << 3 | WireType.BYTES)
    value_type = VALUE_TYPES.get(field.type)
    write = _message_writer(2, field.type) if value_type is None else _value_writer(2, value_type)
    zero: Any = {} if value_type is None else value_type.zero

    def write_map(value: Any) -> bytes:
        entries = cast("Mapping[str, Any]", must_be(value, dict))
        pieces: list[bytes] = []
        # Sorted as Go sorts them: protobuf leaves the order open, and bytes are to be the same.
        for key in sorted(entries):
            try:
                # A null is the type's zero; for bytes, which have none, there is only the key.
                shown = zero if entries[key] is None else entries[key]
                entry = _delimited(_KEY_TAG, text_bytes(key))
                entry += b"" if shown is None else write(shown)
            except Unwritable as error:
                raise error.climb(f"[{key}]") from None
            pieces.append(_delimited(tag, entry))
        return b"".join(pieces)

    return write_map


def _message_writer(number: int, name: str) -> Encode:
    tag = varint(number << 3 | WireType.BYTES)
    is_wrapped = is_beside_a_schema(name)
    encoder: Encode | None = None
    empty = b""

    def write_message(value: Any) -> bytes:
        nonlocal encoder, empty
        if encoder is None:
            # Made when it is needed, because a schema may hold schemas.
            encoder = message_encoder(name)
            empty = _delimited(tag, encoder({}))
        if is_wrapped:
            return _delimited(tag, encoder(wrap(name, value)))
        if value == {}:
            return empty
        data = encoder(value)
        return tag + varint(len(data)) + data

    return write_message


def _value_writer(number: int, value_type: ValueType) -> Encode:
    write, wire_type = value_type.write, value_type.wire_type
    tag = varint(number << 3 | wire_type)
    if wire_type == WireType.VARINT:
        return lambda value: tag + varint(cast("int", write(value)) & UINT64)
    if wire_type == WireType.FIXED64:
        return lambda value: write_fixed64_field(number, cast("bytes", write(value)))

    def write_value(value: Any) -> bytes:
        data = cast("bytes", write(value))
        return tag + varint(len(data)) + data

    def write_text(value: Any) -> bytes:
        # Two fields in three are texts, and nearly all of them short.
        try:
            data = value.encode() if type(value) is str else text_bytes(value)
        except UnicodeEncodeError:
            data = text_bytes(value)
        length = len(data)
        return tag + (ONE_BYTE[length] if length < len(ONE_BYTE) else varint(length)) + data

    return write_text if value_type is VALUE_TYPES["string"] else write_value


def _delimited(tag: bytes, data: bytes) -> bytes:
    return tag + varint(len(data)) + data
