"""Protobuf's own types: how each is read from the wire and written, and what JSON shows of it."""

import base64
import binascii
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.errors import MalformedObject, UnsupportedMediaType
from clusterspace.kube.protobuf.wire import WireField, WireType, WireValue, read_fields

_EXACT_IN_A_DOUBLE: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class ValueType:
    """How one type is read and written; `zero` is the JSON of a value nobody set."""

    wire_type: WireType
    zero: Any
    read: Callable[[WireValue, str], Any]
    write: Callable[[Any, str], WireValue]
    is_message: bool = False


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
    """Return the refusal of a field the table does not have: dropping it would lose data."""
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


def must_be(value: Any, wanted: type, place: str) -> Any:
    """Return the value, or refuse one of another JSON type; a boolean is not a number."""
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise MalformedObject(f"{place}: {value!r} is not of type {wanted.__name__}", place=place)
    return value


def write_text(value: Any, place: str) -> bytes:
    """Return the bytes of a text."""
    try:
        return str(must_be(value, str, place)).encode()
    except UnicodeEncodeError as error:
        raise MalformedObject(f"{place}: the text has no UTF-8 form", place=place) from error


def _integer(bits: int) -> ValueType:
    limit = 1 << (bits - 1)

    def in_range(number: int, place: str) -> int:
        if not -limit <= number < limit:
            raise MalformedObject(f"{place}: {number} does not fit {bits} bits", place=place)
        return number

    return ValueType(
        WireType.VARINT,
        zero=0,
        read=lambda value, place: in_range(signed(value), place),
        write=lambda value, place: in_range(must_be(value, int, place), place),
    )


def signed(value: WireValue) -> int:
    """Return a varint as the two's complement it stands for."""
    number = cast("int", value)
    return number - (1 << 64) if number >> 63 else number


def _read_bool(value: WireValue, place: str) -> bool:
    if value not in (0, 1):
        raise MalformedObject(f"{place}: {value!r} is not a boolean", place=place)
    return value == 1


def _write_bool(value: Any, place: str) -> int:
    return int(must_be(value, bool, place))


def _read_double(value: WireValue, place: str) -> float | int:
    number = float(struct.unpack("<d", cast("bytes", value))[0])
    if not math.isfinite(number):
        raise MalformedObject(f"{place}: JSON has no {number}", place=place)
    # Go writes 5.0 as 5, and patches compare what is written.
    is_whole = number.is_integer() and abs(number) < _EXACT_IN_A_DOUBLE
    return int(number) if is_whole else number


def _write_double(value: Any, place: str) -> bytes:
    number = value if isinstance(value, float) else must_be(value, int, place)
    try:
        return struct.pack("<d", number)
    except OverflowError as error:
        raise MalformedObject(f"{place}: {value} is too large", place=place) from error


def _read_bytes(value: WireValue, place: str) -> str:
    del place  # any bytes will do
    return base64.b64encode(cast("bytes", value)).decode()


def _write_bytes(value: Any, place: str) -> bytes:
    try:
        return base64.b64decode(must_be(value, str, place), validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedObject(f"{place}: the text is not base64", place=place) from error


INT32: Final = _integer(32)

SCALARS: Final[Mapping[str, ValueType]] = {
    "string": ValueType(WireType.BYTES, "", text_of, write_text),
    "int32": INT32,
    "int64": _integer(64),
    "bool": ValueType(WireType.VARINT, False, _read_bool, _write_bool),
    "double": ValueType(WireType.FIXED64, 0, _read_double, _write_double),
    "bytes": ValueType(WireType.BYTES, None, _read_bytes, _write_bytes),
}
