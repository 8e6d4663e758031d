"""Values on the wire and in JSON: protobuf's own types, and small messages that JSON writes as one.

`VALUE_TYPES` has every type of the table of fields that is not itself a message of that table.
"""

import base64
import binascii
import math
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Final, cast

import msgspec

from clusterspace.errors import Malformed, MalformedObject
from clusterspace.kube import times
from clusterspace.kube.protobuf.wire import (
    WireType,
    WireValue,
    bytes_of,
    check_known,
    read_fields,
    read_known,
    text_of,
    write_bytes_field,
    write_varint_field,
)

_EXACT_IN_A_DOUBLE: Final = 1 << 53
_FIRST_SECOND: Final = -62_135_596_800  # 0001-01-01T00:00:00Z, which Go takes for "never"
_LAST_SECOND: Final = 253_402_300_799  # 9999-12-31T23:59:59Z, the last one RFC 3339 can write
_TIME_FIELDS: Final = {1: WireType.VARINT, 2: WireType.VARINT}
_ONE_TEXT: Final = {1: WireType.BYTES}
_INT_OR_STRING_FIELDS: Final = {1: WireType.VARINT, 2: WireType.VARINT, 3: WireType.BYTES}
_IS_INT, _IS_STRING = 0, 1
_FRACTION: Final = re.compile(r"\.([0-9]+)")


class ValueType(ABC):
    """How one type is read and written; `zero` is the JSON of a value nobody set."""

    wire_type: ClassVar[WireType] = WireType.BYTES
    zero: ClassVar[Any] = None
    is_message: ClassVar[bool] = False

    @abstractmethod
    def read(self, value: WireValue, place: str) -> Any:
        """Return the JSON of a value on the wire."""

    @abstractmethod
    def write(self, value: Any) -> WireValue:
        """Return the value on the wire of its JSON; raise Unwritable when it has none."""


class Unwritable(Exception):
    """A value that has no place on the wire; `path` grows as the error climbs out of the object."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path = ""

    def climb(self, step: str) -> "Unwritable":
        """Add the step into the object that led here."""
        self.path = step + self.path
        return self


def must_be(value: Any, wanted: type) -> Any:
    """Return the value, or refuse one of another JSON type; a boolean is not a number."""
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise Unwritable(f"{value!r} is not of type {wanted.__name__}")
    return value


def text_bytes(value: Any) -> bytes:
    """Return a text as it stands on the wire."""
    try:
        return str(must_be(value, str)).encode()
    except UnicodeEncodeError as error:
        raise Unwritable("the text has no UTF-8 form") from error


def _signed(value: WireValue) -> int:
    """Return a varint as the two's complement it stands for."""
    number = cast("int", value)
    return number - (1 << 64) if number >> 63 else number


class _Text(ValueType):
    zero = ""

    def read(self, value: WireValue, place: str) -> str:
        return text_of(value, place)

    def write(self, value: Any) -> bytes:
        return text_bytes(value)


class _Integer(ValueType):
    wire_type = WireType.VARINT
    zero = 0

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._limit = 1 << (bits - 1)

    def read(self, value: WireValue, place: str) -> int:
        number = _signed(value)
        if not -self._limit <= number < self._limit:
            raise MalformedObject(f"{place}: {number} does not fit {self._bits} bits", place=place)
        return number

    def write(self, value: Any) -> int:
        number = must_be(value, int)
        if not -self._limit <= number < self._limit:
            raise Unwritable(f"{number} does not fit {self._bits} bits")
        return number


class _Bool(ValueType):
    wire_type = WireType.VARINT
    zero = False

    def read(self, value: WireValue, place: str) -> bool:
        if value not in (0, 1):
            raise MalformedObject(f"{place}: {value!r} is not a boolean", place=place)
        return value == 1

    def write(self, value: Any) -> int:
        return int(must_be(value, bool))


class _Double(ValueType):
    wire_type = WireType.FIXED64
    zero = 0

    def read(self, value: WireValue, place: str) -> float | int:
        number = float(struct.unpack("<d", cast("bytes", value))[0])
        if not math.isfinite(number):
            raise MalformedObject(f"{place}: JSON has no {number}", place=place)
        # Go writes 5.0 as 5, and patches compare what is written.
        is_whole = number.is_integer() and abs(number) < _EXACT_IN_A_DOUBLE
        return int(number) if is_whole else number

    def write(self, value: Any) -> bytes:
        number = value if isinstance(value, float) else must_be(value, int)
        try:
            return struct.pack("<d", number)
        except OverflowError as error:
            raise Unwritable(f"{value} is too large") from error


class _Bytes(ValueType):
    def read(self, value: WireValue, place: str) -> str:
        del place  # any bytes will do
        return base64.b64encode(cast("bytes", value)).decode()

    def write(self, value: Any) -> bytes:
        try:
            return base64.b64decode(must_be(value, str), validate=True)
        except (binascii.Error, ValueError) as error:
            raise Unwritable("the text is not base64") from error


class _Time(ValueType):
    is_message = True

    def read(self, value: WireValue, place: str) -> str | None:
        fields = read_known(cast("bytes", value), _TIME_FIELDS, place)
        seconds, nanos = _signed(fields.get(1, 0)), _signed(fields.get(2, 0))
        if not _FIRST_SECOND <= seconds <= _LAST_SECOND or not 0 <= nanos < 10**9:
            raise MalformedObject(f"{place}: not a time of the years 1 to 9999", place=place)
        # Go writes a time that was never set as a message without fields, or as the first second
        # of the year 1, which is its zero.
        is_never = not fields or (seconds, nanos) == (_FIRST_SECOND, 0)
        return None if is_never else self.text(seconds, nanos)

    def text(self, seconds: int, nanos: int) -> str:
        """Return the text of a time that was set."""
        del nanos  # metav1.Time is written in whole seconds
        return times.format_time(seconds)

    def write(self, value: Any) -> bytes:
        return _time_bytes(must_be(value, str), 0)


@lru_cache(maxsize=4096)
def _time_bytes(text: str, nanos: int) -> bytes:
    """Return the two halves of a time; objects of one moment share it a dozen times over."""
    try:
        seconds = int(times.parse_time(text) // 1)
    except Malformed as error:
        raise Unwritable(str(error)) from error
    return write_varint_field(1, seconds) + write_varint_field(2, nanos)


class _MicroTime(_Time):
    def text(self, seconds: int, nanos: int) -> str:
        return f"{times.format_time(seconds).removesuffix('Z')}.{nanos // 1000:06}Z"

    def write(self, value: Any) -> bytes:
        text = str(must_be(value, str))
        fraction = _FRACTION.search(text)
        # Apart, because seconds and microseconds of any year do not fit one float.
        micros = int(fraction[1][:6].ljust(6, "0")) if fraction else 0
        return _time_bytes(_FRACTION.sub("", text), micros * 1000)


class _Quantity(ValueType):
    is_message = True
    zero = "0"

    def read(self, value: WireValue, place: str) -> str:
        fields = read_known(cast("bytes", value), _ONE_TEXT, place)
        return text_of(fields.get(1, b""), place) or "0"

    def write(self, value: Any) -> bytes:
        # Bare numbers are quantities too when people write YAML.
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        return write_bytes_field(1, text_bytes(text))


class _IntOrString(ValueType):
    is_message = True
    zero = 0

    def read(self, value: WireValue, place: str) -> int | str:
        fields = read_known(cast("bytes", value), _INT_OR_STRING_FIELDS, place)
        which = fields.get(1, _IS_INT)
        if which == _IS_INT:
            return _INT32.read(fields.get(2, 0), place)
        if which == _IS_STRING:
            return text_of(fields.get(3, b""), place)
        raise MalformedObject(f"{place}: {which} says neither integer nor string", place=place)

    def write(self, value: Any) -> bytes:
        is_string = isinstance(value, str)
        number = 0 if is_string else _INT32.write(value)
        return b"".join(
            (
                write_varint_field(1, _IS_STRING if is_string else _IS_INT),
                write_varint_field(2, number),
                write_bytes_field(3, text_bytes(value) if is_string else b""),
            )
        )


class _Json(ValueType):
    is_message = True

    def read(self, value: WireValue, place: str) -> Any:
        raw = bytes_of(read_known(cast("bytes", value), _ONE_TEXT, place), 1)
        if not raw:
            return None
        try:
            return msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedObject(
                f"{place}: the embedded JSON cannot be read", place=place
            ) from error

    def write(self, value: Any) -> bytes:
        if value is None:
            return b""  # as Go keeps a null: no bytes at all
        try:
            return write_bytes_field(1, msgspec.json.encode(value))
        except (TypeError, ValueError, RecursionError) as error:
            raise Unwritable("the value has no JSON form") from error


class _Strings(ValueType):
    is_message = True

    def read(self, value: WireValue, place: str) -> list[str]:
        texts: list[str] = []
        for field in read_fields(cast("bytes", value), place):
            check_known(field, _ONE_TEXT, place)
            texts.append(text_of(field.value, place))
        return texts

    def write(self, value: Any) -> bytes:
        texts = cast("list[Any]", must_be(value, list))
        return b"".join(write_bytes_field(1, text_bytes(text)) for text in texts)


_INT32: Final = _Integer(32)

VALUE_TYPES: Final[Mapping[str, ValueType]] = {
    "string": _Text(),
    "int32": _INT32,
    "int64": _Integer(64),
    "bool": _Bool(),
    "double": _Double(),
    "bytes": _Bytes(),
    "time": _Time(),
    "microtime": _MicroTime(),
    "quantity": _Quantity(),
    "intorstring": _IntOrString(),
    "json": _Json(),
    "strings": _Strings(),
}
