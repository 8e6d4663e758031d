"""CEL's own functions: operators, conversions, timestamps and durations."""

import math
import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from clusterspace.errors import Malformed
from clusterspace.kube.cel.types import DYN, Library, Type
from clusterspace.kube.cel.values import (
    INT_RANGE,
    UINT_RANGE,
    Duration,
    EvaluationFailed,
    Meter,
    Timestamp,
    Uint,
    checked_int,
    checked_uint,
    concatenated,
    contains,
    equals,
    kind_of,
)
from clusterspace.kube.times import parse_duration

LIBRARY: Final = Library()

TYPE_NAMES: Final[Mapping[str, Type]] = {
    name: Type(name)
    for name in ("bool", "int", "uint", "double", "string", "bytes", "list", "map", "type")
} | {"null_type": Type("null"), "dyn": DYN}
"""The names of types are values: `type(self.port) == int`."""

_Binary: TypeAlias = Callable[[Any, Any], Any]


# Operators.


def _quotient(left: int, right: int) -> int:
    """Divide towards zero, as machines do."""
    if right == 0:
        raise EvaluationFailed("division by zero")
    size = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationFailed("modulus by zero")
    return left - right * _quotient(left, right)


def _fraction(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _checked(run: _Binary, check: Callable[[int], int]) -> _Binary:
    return lambda left, right: check(run(left, right))


_ARITHMETIC: Final[Mapping[str, tuple[_Binary, _Binary | None]]] = {
    # The sign, on integers, and on doubles where it means anything.
    "+": (operator.add, operator.add),
    "-": (operator.sub, operator.sub),
    "*": (operator.mul, operator.mul),
    "/": (_quotient, _fraction),
    "%": (_remainder, None),
}
for _sign, (_whole, _real) in _ARITHMETIC.items():
    LIBRARY.functions(
        {
            f"_{_sign}_(int, int) -> int": _checked(_whole, checked_int),
            f"_{_sign}_(uint, uint) -> uint": _checked(_whole, checked_uint),
        }
    )
    if _real is not None:
        LIBRARY.functions({f"_{_sign}_(double, double) -> double": _real})

_NUMBERS: Final = ("int", "uint", "double")
_COMPARABLE: Final = (
    *((kind, kind) for kind in ("bool", "string", "bytes", "timestamp", "duration")),
    *((left, right) for left in _NUMBERS for right in _NUMBERS),
)
_COMPARISONS: Final[Mapping[str, _Binary]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
LIBRARY.functions(
    {
        f"_{sign}_({left}, {right}) -> bool": compare
        for sign, compare in _COMPARISONS.items()
        for left, right in _COMPARABLE
    }
)
LIBRARY.functions(
    {
        "_+_(string, string) -> string": operator.add,
        "_+_(bytes, bytes) -> bytes": operator.add,
        "-_(int) -> int": lambda value: checked_int(-value),
        "-_(double) -> double": operator.neg,
        "!_(bool) -> bool": operator.not_,
        "@in(K, map(K, V)) -> bool": lambda key, entries: key in entries,
        **{f"size({kind}) -> int": len for kind in ("string", "bytes", "list(A)", "map(K, V)")},
    }
)
LIBRARY.methods(
    {f"{kind}.size() -> int": len for kind in ("string", "bytes", "list(A)", "map(K, V)")}
)
LIBRARY.function("_+_(list(A), list(A)) -> list(A)", metered=True)(concatenated)
LIBRARY.function("_==_(A, A) -> bool", metered=True)(equals)


@LIBRARY.function("_!=_(A, A) -> bool", metered=True)
def _differs(meter: Meter, left: Any, right: Any) -> bool:
    return not equals(meter, left, right)


@LIBRARY.function("@in(A, list(A)) -> bool", metered=True)
def _in(meter: Meter, wanted: Any, elements: list[Any]) -> bool:
    return contains(meter, elements, wanted)


@LIBRARY.function("_[_](list(A), int) -> A")
def _element(elements: list[Any], index: float) -> Any:
    if index != int(index) or not 0 <= index < len(elements):
        shown = int(index) if index == int(index) else index
        raise EvaluationFailed(f"index out of bounds: {shown}")
    return elements[int(index)]


@LIBRARY.function("_[_](map(K, V), K) -> V")
def value_of(entries: Mapping[Any, Any], key: Any) -> Any:
    """Return the value of a key, or fail."""
    if key not in entries:
        raise EvaluationFailed(f"no such key: {key}")
    return entries[key]


# Conversions.


def _same(value: Any) -> Any:
    return value


@LIBRARY.function("int(uint) -> int", "int(double) -> int")
def _to_int(value: float) -> int:
    if math.isnan(value) or math.isinf(value):
        raise EvaluationFailed("integer overflow")
    return checked_int(int(value))


@LIBRARY.function("uint(int) -> uint", "uint(double) -> uint")
def _to_uint(value: float) -> Uint:
    if math.isnan(value) or math.isinf(value):
        raise EvaluationFailed("unsigned integer overflow")
    return checked_uint(int(value))


def _read_number(text: str, read: Callable[[str], Any], kind: str) -> Any:
    try:
        number = read(text) if text.isascii() and "_" not in text and text.strip() == text else None
    except ValueError:
        number = None
    if number is None or (
        kind != "double" and number not in (INT_RANGE if kind == "int" else UINT_RANGE)
    ):
        raise EvaluationFailed(f"type conversion error from 'string' to '{kind}'")
    return number


@LIBRARY.function("bool(string) -> bool")
def _read_bool(text: str) -> bool:
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise EvaluationFailed("type conversion error from 'string' to 'bool'")


@LIBRARY.function("string(bytes) -> string")
def _decode(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise EvaluationFailed("invalid UTF-8 in bytes, cannot convert to string") from error


# Doubles with more digits before or after the point than this are shown with an exponent.
_MOST_DIGITS: Final = 6
_FEWEST_DIGITS: Final = 4


@LIBRARY.function("string(double) -> string")
def double_text(number: float) -> str:
    """Return a double in its shortest form: `3`, `0.5`, `1e+06`."""
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    if math.isnan(number):
        return "NaN"
    sign, digits, scale = Decimal(repr(number)).normalize().as_tuple()
    exponent = len(digits) + int(scale) - 1
    if number == 0 or -_FEWEST_DIGITS <= exponent < _MOST_DIGITS:
        return f"{number:f}".rstrip("0").rstrip(".") if number == int(number) else repr(number)
    tail = "".join(str(digit) for digit in digits[1:])
    mantissa = f"{digits[0]}.{tail}" if tail else str(digits[0])
    return f"{'-' if sign else ''}{mantissa}e{exponent:+03d}"


LIBRARY.functions(
    {
        "dyn(A) -> dyn": _same,
        "type(A) -> type": lambda value: Type(kind_of(value)),
        "int(int) -> int": _same,
        "int(string) -> int": lambda text: _read_number(text, int, "int"),
        "int(timestamp) -> int": lambda moment: moment.nanos // 10**9,
        "int(duration) -> int": lambda length: length.nanos,
        "uint(uint) -> uint": _same,
        "uint(string) -> uint": lambda text: Uint(_read_number(text, int, "uint")),
        "double(double) -> double": _same,
        "double(int) -> double": float,
        "double(uint) -> double": float,
        "double(string) -> double": lambda text: _read_number(text, float, "double"),
        "bool(bool) -> bool": _same,
        "bytes(bytes) -> bytes": _same,
        "bytes(string) -> bytes": lambda text: text.encode(),
        "string(string) -> string": _same,
        "string(bool) -> string": lambda value: "true" if value else "false",
        "string(int) -> string": str,
        "string(uint) -> string": lambda value: str(int(value)),
    }
)


# Durations and timestamps.

_SECOND: Final = 10**9
_LONGEST_DURATION: Final = range(-315_576_000_000 * _SECOND, 315_576_000_000 * _SECOND + 1)
_RFC_3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))"
)
_OFFSET: Final = re.compile(r"([+-]?)(\d\d):(\d\d)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST: Final = -62_135_596_800 * _SECOND
_LATEST: Final = 253_402_300_800 * _SECOND - 1


@LIBRARY.function("duration(string) -> duration")
def read_duration(text: str) -> Duration:
    """Read `1h30m`, or fail."""
    try:
        nanos = parse_duration(text)
    except Malformed as error:
        raise EvaluationFailed(str(error)) from error
    return _checked_duration(nanos)


def _checked_duration(nanos: int) -> Duration:
    if nanos not in _LONGEST_DURATION:
        raise EvaluationFailed("duration overflow")
    return Duration(nanos)


@LIBRARY.function("string(duration) -> string")
def format_seconds(length: Duration) -> str:
    """Return a duration in seconds: `90s`, `0.5s`."""
    whole, rest = divmod(abs(length.nanos), _SECOND)
    sign = "-" if length.nanos < 0 else ""
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{sign}{whole}{fraction}s"


@LIBRARY.function("timestamp(string) -> timestamp")
def read_timestamp(text: str) -> Timestamp:
    """Read an RFC 3339 time, to the nanosecond, or fail."""
    found = _RFC_3339.fullmatch(text)
    if found is None:
        raise EvaluationFailed(f"parsing time {text!r}: not an RFC 3339 time")
    *calendar, fraction, sign, hours, minutes = found.groups()
    try:
        moment = datetime(*(int(part) for part in calendar), tzinfo=UTC)
    except ValueError as error:
        raise EvaluationFailed(f"parsing time {text!r}: {error}") from error
    offset = int(f"{sign}1") * (int(hours) * 3600 + int(minutes) * 60) if sign else 0
    seconds = (moment - _EPOCH) // timedelta(seconds=1) - offset
    return Timestamp(seconds * _SECOND + int(f"{fraction or '':0<9}"[:9]))


def _checked_timestamp(nanos: int) -> Timestamp:
    if not _EARLIEST <= nanos <= _LATEST:
        raise EvaluationFailed("timestamp overflow")
    return Timestamp(nanos)


@LIBRARY.function("string(timestamp) -> string")
def timestamp_text(moment: Timestamp) -> str:
    """Return the moment as RFC 3339, with as many decimals as it needs."""
    seconds, nanos = divmod(moment.nanos, _SECOND)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    shown = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{shown.rjust(19, '0')}{fraction}Z"


def _calendar_field(field: Callable[[datetime], int]) -> Callable[..., int]:
    def read(moment: Timestamp, zone: str = "+00:00") -> int:
        found = _OFFSET.fullmatch(zone)
        if found is not None:
            size = timedelta(hours=int(found[2]), minutes=int(found[3]))
            local: tzinfo = timezone(-size if found[1] == "-" else size)
        else:
            try:
                local = ZoneInfo(zone)
            except (ZoneInfoNotFoundError, ValueError, OSError) as error:
                raise EvaluationFailed(f"unknown time zone {zone}") from error
        whole = _EPOCH + timedelta(microseconds=moment.nanos // 1000)
        return field(whole.astimezone(local))

    return read


def _whole_units(unit: int) -> Callable[[Duration], int]:
    return lambda length: int(abs(length.nanos) // unit) * (-1 if length.nanos < 0 else 1)


_CALENDAR_FIELDS: Final[Mapping[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda at: at.year,
    "getMonth": lambda at: at.month - 1,
    "getDate": lambda at: at.day,
    "getDayOfMonth": lambda at: at.day - 1,
    "getDayOfWeek": lambda at: at.isoweekday() % 7,
    "getDayOfYear": lambda at: at.timetuple().tm_yday - 1,
    "getHours": lambda at: at.hour,
    "getMinutes": lambda at: at.minute,
    "getSeconds": lambda at: at.second,
    "getMilliseconds": lambda at: at.microsecond // 1000,
}
for _name, _field in _CALENDAR_FIELDS.items():
    LIBRARY.methods(
        {
            f"timestamp.{_name}() -> int": _calendar_field(_field),
            f"timestamp.{_name}(string) -> int": _calendar_field(_field),
        }
    )
LIBRARY.methods(
    {
        "duration.getHours() -> int": _whole_units(3600 * _SECOND),
        "duration.getMinutes() -> int": _whole_units(60 * _SECOND),
        "duration.getSeconds() -> int": _whole_units(_SECOND),
        "duration.getMilliseconds() -> int": _whole_units(10**6),
    }
)
LIBRARY.functions(
    {
        "duration(duration) -> duration": _same,
        "timestamp(timestamp) -> timestamp": _same,
        "timestamp(int) -> timestamp": lambda seconds: _checked_timestamp(seconds * _SECOND),
        "_+_(timestamp, duration) -> timestamp": lambda moment, length: _checked_timestamp(
            moment.nanos + length.nanos
        ),
        "_+_(duration, timestamp) -> timestamp": lambda length, moment: _checked_timestamp(
            moment.nanos + length.nanos
        ),
        "_+_(duration, duration) -> duration": lambda a, b: _checked_duration(a.nanos + b.nanos),
        "_-_(timestamp, timestamp) -> duration": lambda a, b: _checked_duration(a.nanos - b.nanos),
        "_-_(timestamp, duration) -> timestamp": lambda a, b: _checked_timestamp(a.nanos - b.nanos),
        "_-_(duration, duration) -> duration": lambda a, b: _checked_duration(a.nanos - b.nanos),
    }
)
