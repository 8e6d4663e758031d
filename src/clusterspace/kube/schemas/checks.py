"""The rules that a schema has for a value, one check each, and the problems they find.

Checks return problems relative to the value they looked at. Whoever holds that value adds its own
step, so paths are built for what is wrong and never for what is right: an `image` that is too long
is a problem at `()`, one level up at `("image",)`, at the root at `("spec", "image")`.
"""

import math
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec

from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.causes import (
    NO_PATH,
    Step,
    Steps,
    dotted_text,
    field_text,
    number_text,
    quoted,
    value_text,
)
from clusterspace.kube.schemas.model import Schema
from clusterspace.kube.schemas.strings import compile_pattern, find_format

if TYPE_CHECKING:
    from clusterspace.kube.objects import Object

_INT64: Final = 2**63
_INT32: Final = 2**31
_LARGEST_EXACT_FLOAT: Final = 2**53 - 1
_LARGEST_FLOAT32: Final = 3.4028234663852886e38
# How far from a whole number a quotient may be and still count as one.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Where:
    """A place with its path known in full."""

    root: str
    """The caller's name for the value; empty for a whole object."""
    steps: Steps

    @property
    def name(self) -> str:
        """The path below the root, as schema messages repeat it."""
        return dotted_text(self.steps)

    @property
    def field(self) -> str:
        """The path that the cause is filed under."""
        return dotted_text(self.steps, self.root) or NO_PATH

    @property
    def element(self) -> str:
        """The path in the form used for elements of sets and maps: free keys in brackets."""
        return field_text(self.steps, self.root)

    @property
    def whole(self) -> str:
        """The path of the value as a whole: what Kubernetes files composite failures under."""
        return self.root or NO_PATH


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule; `cause` makes the Cause once the place is known in full."""

    cause: Callable[[Where], Cause]
    steps: Steps = ()
    is_duplicate: bool = False

    def below(self, step: Step) -> "Problem":
        """Return the problem as seen from one level up."""
        return Problem(self.cause, (step, *self.steps), self.is_duplicate)


Found: TypeAlias = Sequence[Problem]
Check: TypeAlias = Callable[[Any], Found]
"""Returns the problems of a value."""

NONE: Final[Found] = ()


def found_below(step: Step, found: Found) -> list[Problem]:
    """Return all problems as seen from one level up."""
    return [problem.below(step) for problem in found]


def invalid(value: Any, rule: str) -> Found:
    """Return the problem of a value that breaks a rule."""
    return (
        Problem(lambda where: causes.invalid(where.field, value, f"{where.name} in body {rule}")),
    )


def wrong_type(expected: str, got: str) -> Found:
    """Return the problem of a value that is not of the type, or format, it must be."""

    def cause(where: Where) -> Cause:
        detail = f"{where.name} in body must be of type {expected}: {value_text(got)}"
        return causes.type_invalid(where.field, got, detail)

    return (Problem(cause),)


# Values without parts: length, pattern, format, range, enum.


def is_whole(number: float) -> bool:
    """Tell whether a JSON number counts as an integer: 3.0 does, 1e300 does not."""
    if isinstance(number, int):
        return -_INT64 <= number < _INT64
    return number.is_integer() and abs(number) <= _LARGEST_EXACT_FLOAT


def string_checks(schema: Schema) -> list[Check]:
    """Return the checks a schema has for strings, in Kubernetes' order."""
    checks: list[Check] = []
    raw = schema.raw
    longest: int | None = raw.get("maxLength")
    shortest: int = raw.get("minLength") or 0
    pattern = str(raw.get("pattern") or "")
    search = compile_pattern(pattern).search if pattern else None

    def check_text(text: str) -> Found:
        if longest is not None and len(text) > longest:
            limit = longest
            return (Problem(lambda where: causes.too_long(where.field, limit)),)
        if len(text) < shortest:
            return invalid(text, f"should be at least {shortest} chars long")
        if search is not None and not search(text):
            return invalid(text, f"should match '{pattern}'")
        return NONE

    if longest is not None or shortest or pattern:
        checks.append(check_text)
    format_name = string_format(schema)
    holds = find_format(format_name)
    if holds is not None:
        checks.append(lambda text: NONE if holds(text) else wrong_type(format_name, text))
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


def number_checks(schema: Schema) -> list[Check]:
    """Return the checks a schema has for numbers, in Kubernetes' order."""
    raw = schema.raw
    checks: list[Check] = []
    name = number_format(schema)

    def check_width(number: float) -> Found:
        is_int32 = -_INT32 <= number < _INT32
        if is_int32 if name == "int32" else abs(number) <= _LARGEST_FLOAT32:
            return NONE
        detail = f"Checked value must be of type {schema.type} with format {name} in"
        return (Problem(lambda where: causes.invalid(where.whole, "", f"{detail} {where.name}")),)

    if name in {"int32", "float"}:
        checks.append(check_width)
    if raw.get("multipleOf") is not None:
        checks.append(_multiple_check(raw["multipleOf"]))
    if raw.get("minimum") is not None:
        checks.append(_limit_check("greater", raw["minimum"], bool(raw.get("exclusiveMinimum"))))
    if raw.get("maximum") is not None:
        checks.append(_limit_check("less", raw["maximum"], bool(raw.get("exclusiveMaximum"))))
    return checks


def _multiple_check(factor: float) -> Check:
    def factor_cause(where: Where) -> Cause:
        detail = f"declared for {where.name} must be positive: {number_text(factor)}"
        return causes.invalid(where.field, factor, f"factor MultipleOf {detail}")

    def is_multiple(number: float) -> bool:
        if isinstance(number, int) and isinstance(factor, int):
            return number % factor == 0
        try:
            quotient = number / factor
        except OverflowError:
            return False
        if not math.isfinite(quotient):
            return False
        return abs(quotient - round(quotient)) <= _ROUNDING * max(1.0, abs(quotient))

    def check(number: float) -> Found:
        if factor <= 0:
            return (Problem(factor_cause),)
        if is_multiple(number):
            return NONE
        return invalid(number, f"should be a multiple of {number_text(factor)}")

    return check


def _limit_check(relation: str, limit: float, is_exclusive: bool) -> Check:
    outside = operator.gt if relation == "less" else operator.lt
    rule = f"{relation} than" if is_exclusive else f"{relation} than or equal to"

    def check(number: float) -> Found:
        if outside(number, limit) or (number == limit and is_exclusive):
            return invalid(number, f"should be {rule} {number_text(limit)}")
        return NONE

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


# Lists and maps as a whole: how many members, and none of them twice.


def size_checks(raw: Mapping[str, Any], unit: str) -> list[Check]:
    """Return the checks of `minItems` and `maxItems`, or of their twins for `Properties`."""
    fewest: int | None = raw.get(f"min{unit}")
    most: int | None = raw.get(f"max{unit}")
    checks: list[Check] = []
    if fewest is not None:
        rule = f"should have at least {fewest} {unit.lower()}"

        def check_fewest(members: Sized) -> Found:
            return NONE if len(members) >= fewest else invalid(len(members), rule)

        checks.append(check_fewest)
    if most is not None:

        def check_most(members: Sized) -> Found:
            size = len(members)
            if size <= most:
                return NONE
            return (Problem(lambda where: causes.too_many(where.field, size, most)),)

        checks.append(check_most)
    return checks


def forbidden_property(key: str) -> Problem:
    """Return the problem of a field where only named ones may be."""

    def cause(where: Where) -> Cause:
        detail = f"{where.name}.{key} in body is a forbidden property"
        return causes.invalid(where.field, key, detail)

    return Problem(cause)


def find_repetition(elements: Sequence[Any]) -> Found:
    """Return the one problem of a list with `uniqueItems` that has an element twice."""
    if not _repeated([_identity_of(element) for element in elements]):
        return NONE
    return invalid("", "shouldn't contain duplicates")


def find_set_duplicates(elements: Sequence[Any]) -> Found:
    """Return a problem for each element that is there a second time."""
    if _are_distinct(elements):
        return NONE
    return [
        _duplicate_at(index, elements[index])
        for index in _repeated([_identity_of(element) for element in elements])
    ]


def find_map_duplicates(elements: Sequence[Any], keys: Sequence[str]) -> Found:
    """Return a problem for each element whose key fields are there a second time."""
    for index, element in enumerate(elements):
        if element is not None and not isinstance(element, dict):
            return (_not_an_object(index, element),)
    members = cast("Sequence[Object | None]", elements)
    if _are_distinct([tuple(map(member.get, keys)) if member else None for member in members]):
        return NONE
    named = [
        {key: member[key] for key in keys if key in member} if member else {} for member in members
    ]
    return [
        _duplicate_at(index, named[index])
        for index in _repeated([_identity_of(fields) for fields in named])
    ]


def _identity_of(value: Any) -> Hashable:
    """Return the identity of a JSON value: 1, true and 1.0 are three values."""
    if isinstance(value, (dict, list)):
        return msgspec.json.encode(value, order="sorted")
    return (type(value).__name__, value)


def _are_distinct(values: Sequence[Any]) -> bool:
    """Tell quickly that nothing is repeated; False may also mean that it takes a closer look."""
    try:
        return len(set(values)) == len(values)
    except TypeError:  # a list or object among them
        return False


def _repeated(identities: Sequence[Hashable]) -> list[int]:
    """Return where each repeated identity is met for the second time; a third adds nothing."""
    times: dict[Hashable, int] = {}
    repeated: list[int] = []
    for index, identity in enumerate(identities):
        times[identity] = times.get(identity, 0) + 1
        if times[identity] == 2:
            repeated.append(index)
    return repeated


def _duplicate_at(index: int, value: Any) -> Problem:
    return Problem(
        lambda where: causes.duplicate(where.element, value), (index,), is_duplicate=True
    )


def _not_an_object(index: int, value: Any) -> Problem:
    detail = "must be an object for an array of list-type map"
    return Problem(
        lambda where: causes.invalid(where.element, value, detail), (index,), is_duplicate=True
    )


# Junctors: checks made of the checks of other schemas.


def any_of(alternatives: Sequence[Check]) -> Check:
    """Return the check that at least one alternative holds."""

    def check(value: Any) -> Found:
        failures: list[Found] = []
        for alternative in alternatives:
            found = alternative(value)
            if not found:
                return NONE
            failures.append(found)
        return [_composite("must validate at least one schema (anyOf)"), *failures[0]]

    return check


def one_of(alternatives: Sequence[Check]) -> Check:
    """Return the check that exactly one alternative holds.

    When none does, Kubernetes adds the problems of the alternative that got furthest. Most
    schemas have alternatives that get equally far, and then it is the first; we always say it of
    the first.
    """
    rule = "must validate one and only one schema (oneOf)."

    def check(value: Any) -> Found:
        outcomes = [alternative(value) for alternative in alternatives]
        valid = sum(not found for found in outcomes)
        if valid == 1:
            return NONE
        if valid:
            return (_composite(f"{rule} Found {valid} valid alternatives"),)
        return [_composite(f"{rule} Found none valid"), *outcomes[0]]

    return check


def all_of(parts: Sequence[Check]) -> Check:
    """Return the check that every part holds."""

    def check(value: Any) -> Found:
        outcomes = [part(value) for part in parts]
        problems = [problem for found in outcomes for problem in found]
        if not problems:
            return NONE
        none_valid = ". None validated" if all(outcomes) else ""
        return [*problems, _composite(f"must validate all the schemas (allOf){none_valid}")]

    return check


def negation(part: Check) -> Check:
    """Return the check that the part does not hold."""

    def check(value: Any) -> Found:
        return NONE if part(value) else (_composite("must not validate the schema (not)"),)

    return check


def _composite(rule: str) -> Problem:
    """File the problem under the object as a whole, and name the place in the message."""
    return Problem(lambda where: causes.invalid(where.whole, "", f"{quoted(where.name)} {rule}"))
