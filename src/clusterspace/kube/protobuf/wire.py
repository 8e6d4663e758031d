"""The protobuf wire: tags, varints and lengths, read without trust and written canonically."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from clusterspace.errors import MalformedObject

MAX_FIELD_NUMBER: Final = (1 << 29) - 1
_VARINT_BYTES: Final = 10  # 64 bits, seven to a byte
_UINT64: Final = (1 << 64) - 1


class WireType(IntEnum):
    """How many bytes follow a tag; the two kinds of group are not among them."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5


WireValue: TypeAlias = int | bytes
"""An unsigned 64-bit number for a varint, the bytes themselves for everything else."""

_WIDTHS: Final = {WireType.FIXED64: 8, WireType.FIXED32: 4}
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
        start, position = _span(data, tag.end, WireType(wire_type), place)
        yield WireField(number, WireType(wire_type), data[start:position])


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
    return _varint(number << 3 | WireType.VARINT) + _varint(value & _UINT64)


def write_fixed64_field(number: int, value: bytes) -> bytes:
    """Return a field of exactly eight bytes."""
    return _varint(number << 3 | WireType.FIXED64) + value


def write_bytes_field(number: int, value: bytes) -> bytes:
    """Return a field of any length: text, bytes, or a message."""
    return _varint(number << 3 | WireType.BYTES) + _varint(len(value)) + value


def write_field(field: WireField) -> bytes:
    """Return any field as it came, known or not."""
    if isinstance(field.value, int):
        return write_varint_field(field.number, field.value)
    if field.wire_type == WireType.BYTES:
        return write_bytes_field(field.number, field.value)
    return _varint(field.number << 3 | field.wire_type) + field.value


def _span(data: bytes, start: int, wire_type: WireType, place: str) -> tuple[int, int]:
    """Return where the bytes of a field start and end."""
    if wire_type == WireType.BYTES:
        length = _read_varint(data, start, place)
        start, width = length.end, length.number
    else:
        width = _WIDTHS[wire_type]
    if width > len(data) - start:
        raise MalformedObject(
            f"{place}: a field of {width} bytes has only {len(data) - start}", place=place
        )
    return start, start + width


def _read_varint(data: bytes, start: int, place: str) -> _Varint:
    number = 0
    for offset, byte in enumerate(data[start : start + _VARINT_BYTES]):
        number |= (byte & 0x7F) << (7 * offset)
        if byte < 0x80:
            if number > _UINT64:
                break
            return _Varint(number, start + offset + 1)
    else:
        if len(data) - start < _VARINT_BYTES:
            raise MalformedObject(f"{place}: the body ends inside a number", place=place)
    raise MalformedObject(f"{place}: a number is longer than 64 bits", place=place)


def _varint(number: int) -> bytes:
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)
