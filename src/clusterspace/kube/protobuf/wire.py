"""The protobuf wire: the envelope of a body, tags, varints and lengths; read without trust."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Final, TypeAlias, cast

from clusterspace.errors import MalformedObject, UnsupportedMediaType

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
MAX_FIELD_NUMBER: Final = (1 << 29) - 1
_VARINT_BYTES: Final = 10  # 64 bits, seven to a byte
UINT64: Final = (1 << 64) - 1


class WireType(IntEnum):
    """How many bytes follow a tag; the two kinds of group are not among them."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5


WireValue: TypeAlias = int | bytes
"""An unsigned 64-bit number for a varint, the bytes themselves for everything else."""

_WIDTHS: Final[Mapping[int, int]] = {WireType.FIXED64: 8, WireType.FIXED32: 4}
_KNOWN_TYPES: Final = frozenset(WireType)


@dataclass(frozen=True, slots=True)
class WireField:
    """One tag and what follows it."""

    number: int
    wire_type: WireType
    value: WireValue


@dataclass(frozen=True, slots=True)
class _Varint:
    """A number, and where the next thing starts."""

    number: int
    end: int


def read_fields(data: bytes, place: str) -> Iterator[WireField]:
    """Yield the fields of one message in the order sent; `place` is named when one is broken."""
    position = 0
    while position < len(data):
        tag = _read_varint(data, position, place)
        number, wire_type = tag.number >> 3, tag.number & 7
        if not 1 <= number <= MAX_FIELD_NUMBER:
            raise MalformedObject(f"{place}: {number} is not a field number", place=place)
        if wire_type not in _KNOWN_TYPES:
            raise MalformedObject(
                f"{place}: field {number} has the unknown wire type {wire_type}", place=place
            )
        if wire_type == WireType.VARINT:
            varint = _read_varint(data, tag.end, place)
            position = varint.end
            yield WireField(number, WireType.VARINT, varint.number)
            continue
        start, width = tag.end, _WIDTHS.get(wire_type)
        if width is None:
            length = _read_varint(data, start, place)
            start, width = length.end, length.number
        # Before anything is cut out: a length of 2^60 in a body of ten bytes must cost nothing.
        if width > len(data) - start:
            raise MalformedObject(
                f"{place}: a field of {width} bytes has only {len(data) - start}", place=place
            )
        position = start + width
        # A copy, and the fields inside are copied from it again: bytes are copied as many times as
        # messages are nested, which `bodies.MAX_DEPTH` bounds.
        yield WireField(number, WireType(wire_type), data[start:position])


def read_spans(data: bytes, start: int, end: int, place: str) -> Iterator[tuple[int, int, int]]:
    """Yield each text and message in a message: its number, where it begins and where it ends.

    Numbers are passed over, and nothing is copied: for long lists, of whose elements little is
    read.
    """
    position = start
    while position < end:
        # Nearly all tags are one byte, and nearly all lengths at most two.
        tag, position = data[position], position + 1
        if tag >= 0x80:
            long = _read_varint(data, position - 1, place)
            tag, position = long.number, long.end
        size = data[position] if position < end else 0x80
        position += 1
        if size >= 0x80:
            second = data[position] if position < end else 0x80
            if second < 0x80:
                size, position = size & 0x7F | second << 7, position + 1
            else:
                long = _read_varint(data, position - 1, place)
                size, position = long.number, long.end
        if tag & 7 == WireType.VARINT and position <= end:
            continue
        if tag & 7 != WireType.BYTES or not 1 <= tag >> 3 <= MAX_FIELD_NUMBER:
            raise MalformedObject(f"{place}: a field is no message", place=place)
        if size > end - position:
            raise MalformedObject(
                f"{place}: a field of {size} bytes has only {end - position}", place=place
            )
        yield tag >> 3, position, position + size
        position += size


def read_packed(data: bytes, place: str) -> list[int]:
    """Return the varints of a packed list."""
    numbers: list[int] = []
    position = 0
    while position < len(data):
        varint = _read_varint(data, position, place)
        numbers.append(varint.number)
        position = varint.end
    return numbers


def write_varint_field(number: int, value: int) -> bytes:
    """Return a varint field; a negative value is written as its 64-bit two's complement."""
    return varint(number << 3 | WireType.VARINT) + varint(value & UINT64)


def write_fixed64_field(number: int, value: bytes) -> bytes:
    """Return a field of exactly eight bytes."""
    return varint(number << 3 | WireType.FIXED64) + value


def write_bytes_field(number: int, value: bytes) -> bytes:
    """Return a field of any length: text, bytes, or a message."""
    return varint(number << 3 | WireType.BYTES) + varint(len(value)) + value


def write_field(field: WireField) -> bytes:
    """Return any field as it came, known or not."""
    if isinstance(field.value, int):
        return write_varint_field(field.number, field.value)
    if field.wire_type == WireType.BYTES:
        return write_bytes_field(field.number, field.value)
    return varint(field.number << 3 | field.wire_type) + field.value


def _read_varint(data: bytes, start: int, place: str) -> _Varint:
    number = 0
    for offset, byte in enumerate(data[start : start + _VARINT_BYTES]):
        number |= (byte & 0x7F) << (7 * offset)
        if byte < 0x80:
            if number > UINT64:
                break
            return _Varint(number, start + offset + 1)
    else:
        # No byte was the last of its number: either there are no more, or ten were not enough.
        if len(data) - start < _VARINT_BYTES:
            raise MalformedObject(f"{place}: the body ends inside a number", place=place)
    raise MalformedObject(f"{place}: a number is longer than 64 bits", place=place)


ONE_BYTE: Final = tuple(bytes([number]) for number in range(0x80))


def varint(number: int) -> bytes:
    """Return a number that is not negative, seven bits to a byte, the lowest first."""
    if number < 0x80:
        return ONE_BYTE[number]
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def read_known(data: bytes, known: Mapping[int, WireType], place: str) -> dict[int, WireValue]:
    """Return the fields of a small fixed message by number; the last one sent counts."""
    fields: dict[int, WireValue] = {}
    for field in read_fields(data, place):
        check_known(field, known, place)
        fields[field.number] = field.value
    return fields


def check_known(field: WireField, known: Mapping[int, WireType], place: str) -> None:
    """Refuse a field that the message does not have, or not with these bytes."""
    if field.number not in known:
        raise unknown_field(place, field.number)
    if field.wire_type != known[field.number]:
        raise wrong_wire_type(place, field)


def unknown_field(place: str, number: int) -> UnsupportedMediaType:
    """Return the refusal of a field the table does not have.

    Protobuf's own rule is to carry such fields along. An object is stored as JSON here, which has
    no place for them: passing over one would lose it without a word on the next write.
    """
    return UnsupportedMediaType(
        f"{place}: protobuf field {number} is not known here; send the object as JSON"
    )


def wrong_wire_type(place: str, field: WireField) -> MalformedObject:
    """Return the refusal of a field whose bytes are not of its type."""
    return MalformedObject(
        f"{place}: field {field.number} cannot have wire type {field.wire_type.value}", place=place
    )


def bytes_of(fields: Mapping[int, WireValue], number: int) -> bytes:
    """Return a field of bytes, empty when it was not sent."""
    return cast("bytes", fields.get(number, b""))


def text_of(value: WireValue, place: str) -> str:
    """Return the text of a field."""
    try:
        return cast("bytes", value).decode()
    except UnicodeDecodeError as error:
        raise MalformedObject(f"{place}: the text is not UTF-8", place=place) from error


# The envelope around every body: four magic bytes, then the type and the bytes of the object.

_MAGIC: Final = b"k8s\x00"
_TYPE, _OBJECT, _ENCODING, _CONTENT_TYPE = 1, 2, 3, 4
_API_VERSION, _KIND = 1, 2
_ENVELOPE_FIELDS: Final[Mapping[int, WireType]] = dict.fromkeys(
    (_TYPE, _OBJECT, _ENCODING, _CONTENT_TYPE), WireType.BYTES
)
_TYPE_FIELDS: Final[Mapping[int, WireType]] = dict.fromkeys((_API_VERSION, _KIND), WireType.BYTES)


@dataclass(frozen=True, slots=True)
class Envelope:
    """The type of an object, and its bytes."""

    api_version: str
    kind: str
    raw: bytes


def read_envelope(body: bytes) -> Envelope:
    """Take a body apart; refuse one that is compressed or wraps something other than protobuf."""
    if not body.startswith(_MAGIC):
        raise MalformedObject("the body does not start as Kubernetes protobuf does", place="body")
    fields = read_known(body[len(_MAGIC) :], _ENVELOPE_FIELDS, "body")
    encoding = text_of(fields.get(_ENCODING, b""), "body contentEncoding")
    content_type = text_of(fields.get(_CONTENT_TYPE, b""), "body contentType")
    if encoding or content_type not in ("", MEDIA_TYPE):
        raise UnsupportedMediaType(
            f"a protobuf body wraps content of type {content_type!r}, encoding {encoding!r}, "
            "which is not read here"
        )
    typed = read_known(bytes_of(fields, _TYPE), _TYPE_FIELDS, "body typeMeta")
    return Envelope(
        api_version=text_of(typed.get(_API_VERSION, b""), "body typeMeta.apiVersion"),
        kind=text_of(typed.get(_KIND, b""), "body typeMeta.kind"),
        raw=bytes_of(fields, _OBJECT),
    )


@lru_cache(maxsize=512)
def open_envelope(api_version: str, kind: str) -> bytes:
    """Return what stands before the length of the object: magic bytes, its type, and a tag."""
    typed = write_bytes_field(_API_VERSION, api_version.encode())
    typed += write_bytes_field(_KIND, kind.encode())
    return _MAGIC + write_bytes_field(_TYPE, typed) + varint(_OBJECT << 3 | WireType.BYTES)


ENVELOPE_END: Final = write_bytes_field(_ENCODING, b"") + write_bytes_field(_CONTENT_TYPE, b"")
"""What stands behind the object: Go writes both, empty as they are."""


def write_envelope(envelope: Envelope) -> bytes:
    """Put a body together, byte for byte as Go clients do."""
    opening = open_envelope(envelope.api_version, envelope.kind)
    return b"".join((opening, varint(len(envelope.raw)), envelope.raw, ENVELOPE_END))
