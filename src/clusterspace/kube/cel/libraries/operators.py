"""Arithmetic, comparison, membership and conversion."""

import math
import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

from clusterspace.errors import Malformed
from clusterspace.kube.cel.faults import EvaluationFailed
from clusterspace.kube.cel.signatures import Function, function, method
from clusterspace.kube.cel.types import DYN, Type
from clusterspace.kube.cel.values import (
    INT_RANGE,
    UINT_RANGE,
    Duration,
    Meter,
    Uint,
    checked_int,
    checked_uint,
    concatenated,
    contains,
    equals,
    kind_of,
)
from clusterspace.kube.durations import parse_duration

_LONGEST_DURATION: Final = range(-315_576_000_000 * 10**9, 315_576_000_000 * 10**9 + 1)


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


_Binary: TypeAlias = Callable[[Any, Any], Any]

_ARITHMETIC: Final[Mapping[str, tuple[_Binary, _Binary | None]]] = {
    # The sign, on integers, and on doubles where it means anything.
    "+": (operator.add, operator.add),
    "-": (operator.sub, operator.sub),
    "*": (operator.mul, operator.mul),
    "/": (_quotient, _fraction),
    "%": (_remainder, None),
}


def _arithmetic() -> list[Function]:
    declared: list[Function] = []
    for sign, (whole, real) in _ARITHMETIC.items():
        declared += [
            function(f"_{sign}_(int, int) -> int", _checked(whole, checked_int)),
            function(f"_{sign}_(uint, uint) -> uint", _checked(whole, checked_uint)),
        ]
        if real is not None:
            declared.append(function(f"_{sign}_(double, double) -> double", real))
    return declared


def _checked(run: _Binary, check: Callable[[int], int]) -> _Binary:
    return lambda left, right: check(run(left, right))


_COMPARISONS: Final[Mapping[str, _Binary]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ORDERED: Final = ("bool", "string", "bytes", "timestamp", "duration")
_NUMBERS: Final = ("int", "uint", "double")


def _comparisons() -> list[Function]:
    pairs = [(kind, kind) for kind in _ORDERED]
    pairs += [(left, right) for left in _NUMBERS for right in _NUMBERS]
    return [
        function(f"_{sign}_({left}, {right}) -> bool", run)
        for sign, run in _COMPARISONS.items()
        for left, right in pairs
    ]


def _differs(meter: Meter, left: Any, right: Any) -> bool:
    return not equals(meter, left, right)


def _element(elements: list[Any], index: float) -> Any:
    if index != int(index) or not 0 <= index < len(elements):
        raise EvaluationFailed(f"index out of bounds: {_number_text(index)}")
    return elements[int(index)]


def _number_text(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def value_of(held: Mapping[Any, Any], key: Any) -> Any:
    """Return the value of a key, or fail."""
    if key not in held:
        raise EvaluationFailed(f"no such key: {key}")
    return held[key]


def _to_int(value: float) -> int:
    if math.isnan(value) or math.isinf(value):
        raise EvaluationFailed("integer overflow")
    return checked_int(int(value))


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


def _read_bool(text: str) -> bool:
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise EvaluationFailed("type conversion error from 'string' to 'bool'")


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise EvaluationFailed("invalid UTF-8 in bytes, cannot convert to string") from error


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


# Doubles with more digits before or after the point than this are shown with an exponent.
_MOST_DIGITS: Final = 6
_FEWEST_DIGITS: Final = 4


def read_duration(text: str) -> Duration:
    """Read `1h30m`, or fail."""
    try:
        nanos = parse_duration(text)
    except Malformed as error:
        raise EvaluationFailed(str(error)) from error
    return checked_duration(nanos)


def checked_duration(nanos: int) -> Duration:
    """Return the duration if it is not longer than any may be, or fail."""
    if nanos not in _LONGEST_DURATION:
        raise EvaluationFailed("duration overflow")
    return Duration(nanos)


def _type_of(value: Any) -> Type:
    return Type(kind_of(value))


def _sized(run: Callable[[Any], int]) -> list[Function]:
    kinds = ("string", "bytes", "list(A)", "map(K, V)")
    return [
        *(function(f"size({kind}) -> int", run) for kind in kinds),
        *(method(f"{kind}.size() -> int", run) for kind in kinds),
    ]


FUNCTIONS: Final = (
    *_arithmetic(),
    *_comparisons(),
    *_sized(len),
    function("_+_(string, string) -> string", operator.add),
    function("_+_(bytes, bytes) -> bytes", operator.add),
    function("_+_(list(A), list(A)) -> list(A)", concatenated, metered=True),
    function("-_(int) -> int", lambda value: checked_int(-value)),
    function("-_(double) -> double", operator.neg),
    function("!_(bool) -> bool", operator.not_),
    function("_==_(A, A) -> bool", equals, metered=True),
    function("_!=_(A, A) -> bool", _differs, metered=True),
    function(
        "@in(A, list(A)) -> bool",
        lambda meter, wanted, held: contains(meter, held, wanted),
        metered=True,
    ),
    function("@in(K, map(K, V)) -> bool", lambda key, held: key in held),
    function("_[_](list(A), int) -> A", _element),
    function("_[_](map(K, V), K) -> V", value_of),
    function("dyn(A) -> dyn", lambda value: value),
    function("type(A) -> type", _type_of),
    function("int(int) -> int", lambda value: value),
    function("int(uint) -> int", _to_int),
    function("int(double) -> int", _to_int),
    function("int(string) -> int", lambda text: _read_number(text, int, "int")),
    function("int(timestamp) -> int", lambda moment: moment.nanos // 10**9),
    function("int(duration) -> int", lambda length: length.nanos),
    function("uint(uint) -> uint", lambda value: value),
    function("uint(int) -> uint", _to_uint),
    function("uint(double) -> uint", _to_uint),
    function("uint(string) -> uint", lambda text: Uint(_read_number(text, int, "uint"))),
    function("double(double) -> double", lambda value: value),
    function("double(int) -> double", float),
    function("double(uint) -> double", float),
    function("double(string) -> double", lambda text: _read_number(text, float, "double")),
    function("bool(bool) -> bool", lambda value: value),
    function("bool(string) -> bool", _read_bool),
    function("bytes(bytes) -> bytes", lambda value: value),
    function("bytes(string) -> bytes", lambda text: text.encode()),
    function("string(string) -> string", lambda value: value),
    function("string(bool) -> string", lambda value: "true" if value else "false"),
    function("string(int) -> string", str),
    function("string(uint) -> string", lambda value: str(int(value))),
    function("string(double) -> string", double_text),
    function("string(bytes) -> string", _decoded),
    function("string(duration) -> string", lambda length: format_seconds(length)),
    function("duration(string) -> duration", read_duration),
    function("duration(duration) -> duration", lambda value: value),
)


def format_seconds(length: Duration) -> str:
    """Return a duration in seconds: `90s`, `0.5s`."""
    whole, rest = divmod(abs(length.nanos), 10**9)
    sign = "-" if length.nanos < 0 else ""
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{sign}{whole}{fraction}s"


TYPE_NAMES: Final[Mapping[str, Type]] = {
    name: Type(name)
    for name in ("bool", "int", "uint", "double", "string", "bytes", "list", "map", "type")
} | {"null_type": Type("null"), "dyn": DYN}
"""The names of types are values: `type(self.port) == int`."""
