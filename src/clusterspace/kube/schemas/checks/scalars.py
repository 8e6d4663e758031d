"""What a schema may ask of a value that has no parts: length, pattern, format, range, enum."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.field_paths import number_text, value_text
from clusterspace.kube.schemas.checks.formats import find_format
from clusterspace.kube.schemas.checks.patterns import compile_pattern
from clusterspace.kube.schemas.checks.problems import NONE, Check, Found, Problem, Where
from clusterspace.kube.schemas.model import Schema

_INT64: Final = 2**63
_INT32: Final = 2**31
_LARGEST_EXACT_FLOAT: Final = 2**53 - 1
_LARGEST_FLOAT32: Final = 3.4028234663852886e38
# How far from a whole number a quotient may be and still count as one.
_ROUNDING: Final = 1e-9


def is_whole(number: float) -> bool:
    """Tell whether a JSON number counts as an integer: 3.0 does, 1e300 does not."""
    if isinstance(number, int):
        return -_INT64 <= number < _INT64
    return number.is_integer() and abs(number) <= _LARGEST_EXACT_FLOAT


def string_checks(schema: Schema) -> list[Check]:
    """Return the checks a schema has for strings, in Kubernetes' order."""
    checks: list[Check] = []
    raw = schema.raw
    if raw.get("maxLength") is not None or raw.get("minLength") or raw.get("pattern"):
        checks.append(_text_check(raw))
    known_format = string_format(schema)
    if known_format:
        checks.append(_format_check(known_format))
    return checks


def string_format(schema: Schema) -> str:
    """Return the string format that is really checked here, or nothing."""
    name = str(schema.raw.get("format") or "")
    is_textual = schema.is_int_or_string or schema.type in {"", "string"}
    return name if is_textual and find_format(name) else ""


def number_format(schema: Schema) -> str:
    """Return the number format that is really checked here, or nothing."""
    name = str(schema.raw.get("format") or "")
    known = {"integer": ("int32", "int64"), "number": ("float", "double")}
    return name if name in known.get(schema.type, ()) else ""


def _text_check(raw: Mapping[str, Any]) -> Check:
    longest: int | None = raw.get("maxLength")
    shortest: int = raw.get("minLength") or 0
    pattern = str(raw.get("pattern") or "")
    search = compile_pattern(pattern).search if pattern else None

    def check(text: str) -> Found:
        if longest is not None and len(text) > longest:
            return _too_long(longest)
        if len(text) < shortest:
            return _invalid(text, f"should be at least {shortest} chars long")
        if search is not None and not search(text):
            return _invalid(text, f"should match '{pattern}'")
        return NONE

    return check


def _format_check(name: str) -> Check:
    holds = find_format(name)
    assert holds is not None  # noqa: S101 - string_format has looked it up

    def check(text: str) -> Found:
        return NONE if holds(text) else wrong_type(name, text)

    return check


def number_checks(schema: Schema) -> list[Check]:
    """Return the checks a schema has for numbers, in Kubernetes' order."""
    raw = schema.raw
    checks: list[Check] = []
    if number_format(schema) in {"int32", "float"}:
        checks.append(_width_check(schema.type, number_format(schema)))
    if raw.get("multipleOf") is not None:
        checks.append(_multiple_check(raw["multipleOf"]))
    if raw.get("minimum") is not None:
        checks.append(_minimum_check(raw["minimum"], bool(raw.get("exclusiveMinimum"))))
    if raw.get("maximum") is not None:
        checks.append(_maximum_check(raw["maximum"], bool(raw.get("exclusiveMaximum"))))
    return checks


def _width_check(type_name: str, name: str) -> Check:
    def check(number: float) -> Found:
        is_int32 = -_INT32 <= number < _INT32
        if is_int32 if name == "int32" else abs(number) <= _LARGEST_FLOAT32:
            return NONE
        detail = f"Checked value must be of type {type_name} with format {name} in"
        return (Problem(lambda where: causes.invalid(where.whole, "", f"{detail} {where.name}")),)

    return check


def _multiple_check(factor: float) -> Check:
    def check(number: float) -> Found:
        if factor <= 0:
            return (Problem(tell_factor),)
        if _is_multiple(number, factor):
            return NONE
        return _invalid(number, f"should be a multiple of {number_text(factor)}")

    def tell_factor(where: Where) -> Cause:
        detail = f"declared for {where.name} must be positive: {number_text(factor)}"
        return causes.invalid(where.field, factor, f"factor MultipleOf {detail}")

    return check


def _is_multiple(number: float, factor: float) -> bool:
    if isinstance(number, int) and isinstance(factor, int):
        return number % factor == 0
    try:
        quotient = number / factor
    except OverflowError:
        return False
    return math.isfinite(quotient) and abs(quotient - round(quotient)) <= _ROUNDING * max(
        1.0, abs(quotient)
    )


def _minimum_check(limit: float, is_exclusive: bool) -> Check:
    relation = "greater than" if is_exclusive else "greater than or equal to"

    def check(number: float) -> Found:
        if number > limit or (number == limit and not is_exclusive):
            return NONE
        return _invalid(number, f"should be {relation} {number_text(limit)}")

    return check


def _maximum_check(limit: float, is_exclusive: bool) -> Check:
    relation = "less than" if is_exclusive else "less than or equal to"

    def check(number: float) -> Found:
        if number < limit or (number == limit and not is_exclusive):
            return NONE
        return _invalid(number, f"should be {relation} {number_text(limit)}")

    return check


def enum_check(allowed: Sequence[Any]) -> Check:
    """Return the check that a value is one of those listed."""
    texts = frozenset(value for value in allowed if isinstance(value, str))
    others = [value for value in allowed if not isinstance(value, str)]
    supported = [value if isinstance(value, str) else value_text(value) for value in allowed]

    def check(value: Any) -> Found:
        if isinstance(value, str):
            is_listed = value in texts
        else:
            is_listed = any(same_json(value, other) for other in others)
        if is_listed:
            return NONE
        return (Problem(lambda where: causes.not_supported(where.field, value, supported)),)

    return check


def same_json(one: Any, other: Any) -> bool:
    """Compare as JSON does: 1 is 1.0, but true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        left, right = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        return left.keys() == right.keys() and all(same_json(left[k], right[k]) for k in left)
    if isinstance(one, list) and isinstance(other, list):
        ones, others = cast("list[Any]", one), cast("list[Any]", other)
        return len(ones) == len(others) and all(map(same_json, ones, others))
    return bool(one == other)


def wrong_type(expected: str, got: str) -> Found:
    """Return the problem of a value that is not of the type, or format, it must be."""

    def tell_type(where: Where) -> Cause:
        detail = f"{where.name} in body must be of type {expected}: {value_text(got)}"
        return causes.type_invalid(where.field, got, detail)

    return (Problem(tell_type),)


def _too_long(limit: int) -> Found:
    return (Problem(lambda where: causes.too_long(where.field, limit)),)


def _invalid(value: Any, rule: str) -> Found:
    return (
        Problem(lambda where: causes.invalid(where.field, value, f"{where.name} in body {rule}")),
    )
