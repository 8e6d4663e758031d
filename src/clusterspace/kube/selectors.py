"""Label and field selectors: parse once, match many."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

from clusterspace.errors import Cause, MalformedSelector
from clusterspace.kube import causes
from clusterspace.kube.label_grammar import UNREADABLE_TERM, Term, read_terms
from clusterspace.kube.names import label_key_problems, label_value_problems
from clusterspace.kube.statuses import quoted, summary_of


class Operator(Enum):
    """How a requirement relates a label to its values; each member's value is its sign."""

    IN = "in"
    NOT_IN = "notin"
    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    GREATER_THAN = ">"
    LESS_THAN = "<"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing a label selector asks of a set of labels; `require` makes one, checked."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the labels are as asked."""
        held = labels.get(self.key)
        match self.operator:
            case Operator.IN | Operator.EQUALS | Operator.DOUBLE_EQUALS:
                return held in self.values
            case Operator.NOT_IN | Operator.NOT_EQUALS:
                return held not in self.values
            case Operator.EXISTS:
                return held is not None
            case Operator.DOES_NOT_EXIST:
                return held is None
            case Operator.GREATER_THAN | Operator.LESS_THAN:
                return self._compares(held)

    def _compares(self, held: str | None) -> bool:
        """Compare as whole numbers; a label that is not one never matches."""
        number = None if held is None else _read_int64(held)
        bound = _read_int64(next(iter(self.values)))
        if number is None or bound is None:
            return False
        return number > bound if self.operator is Operator.GREATER_THAN else number < bound

    def __str__(self) -> str:
        listed = ",".join(sorted(self.values))
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN:
                return f"{self.key} {self.operator.value} ({listed})"
            case _:
                return f"{self.key}{self.operator.value}{listed}"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements that must all hold, in the order of their keys."""

    requirements: tuple[Requirement, ...] = ()
    is_nothing: bool = False
    """Whether no labels match at all: what an absent selector means in an object."""

    @property
    def is_everything(self) -> bool:
        """Whether any labels match."""
        return not self.requirements and not self.is_nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the labels meet every requirement."""
        if self.is_nothing:
            return False
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)


EVERYTHING: Final = LabelSelector()
NOTHING: Final = LabelSelector(is_nothing=True)


def parse_label_selector(text: str) -> LabelSelector:
    """Read the text of a `labelSelector` parameter."""
    return _in_order(_of_term(term) for term in read_terms(text))


def label_selector_of(selector: Mapping[str, Any] | None) -> LabelSelector:
    """Read a LabelSelector object: an absent one matches nothing, an empty one everything."""
    if selector is None:
        return NOTHING
    labels = _as_dict(selector.get("matchLabels") or {}, place="matchLabels")
    expressions = _as_list(selector.get("matchExpressions") or [], place="matchExpressions")
    exact = [
        require(_as_text(key, place=place), Operator.EQUALS, [_as_text(value, place=place)])
        for key, value in labels.items()
        for place in (f"matchLabels[{key}]",)
    ]
    others = [
        _of_expression(_as_dict(expression, place=place), place)
        for index, expression in enumerate(expressions)
        for place in (f"matchExpressions[{index}]",)
    ]
    return _in_order([*exact, *others])


def require(key: str, operator: Operator, values: Iterable[str], *, place: str = "") -> Requirement:
    """Make a requirement, or refuse it with every reason at once."""
    held = sorted(set(values))
    problems = [
        *_key_problems(key),
        *_count_problems(operator, held),
        *_number_problems(operator, held),
        *_value_problems(key, held),
    ]
    if problems:
        raise MalformedSelector(summary_of(problems), place=place or key)
    return Requirement(key, operator, frozenset(held))


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """One field that must be, or must not be, a value."""

    field: str
    value: str
    is_equal: bool = True

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Tell whether the field is as asked; an absent field is the empty string."""
        return (fields.get(self.field, "") == self.value) is self.is_equal

    def __str__(self) -> str:
        escaped = re.sub(r"([\\,=])", r"\\\1", self.value)
        return f"{self.field}{'=' if self.is_equal else '!='}{escaped}"


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Fields that must all be as asked."""

    requirements: tuple[FieldRequirement, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Whether any object matches."""
        return not self.requirements

    @property
    def fields(self) -> frozenset[str]:
        """Every field the selector looks at."""
        return frozenset(requirement.field for requirement in self.requirements)

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Tell whether the fields meet every requirement."""
        return all(requirement.matches(fields) for requirement in self.requirements)

    def requires_exact(self, field: str) -> str | None:
        """Return the one value the field must have, or None when others would do."""
        asked = (each for each in self.requirements if each.field == field and each.is_equal)
        return next((each.value for each in asked), None)

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)


ALWAYS_SELECTABLE: Final = ("metadata.name", "metadata.namespace")
"""Fields of every kind that a field selector may name."""


def parse_field_selector(text: str) -> FieldSelector:
    """Read the text of a `fieldSelector` parameter: `\\`, `,` and `=` in values are escaped."""
    # Sorted before reading, as Kubernetes does, so that equal selectors print equal.
    terms = sorted(re.findall(_FIELD_TERM, text))
    return FieldSelector(tuple(_read_field_term(term, text) for term in terms if term))


def refuse_unknown_fields(selector: FieldSelector, known: Collection[str]) -> None:
    """Raise MalformedSelector when the selector names a field the resource cannot select by."""
    unknown = sorted(selector.fields.difference(known))
    if not unknown:
        return
    if set(known) == set(ALWAYS_SELECTABLE):
        listed = ", ".join(quoted(field) for field in ALWAYS_SELECTABLE)
        message = f"{quoted(unknown[0])} is not a known field selector: only {listed}"
    else:
        message = f"field label not supported: {unknown[0]}"
    raise MalformedSelector(message, place=unknown[0])


_EXPRESSION_OPERATORS: Final = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
}

_NEEDS_SOME: Final = "for 'in', 'notin' operators, values set can't be empty"
_NEEDS_NONE: Final = "values set must be empty for exists and does not exist"
_NEEDS_ONE: Final = "exact-match compatibility requires one single value"
_NEEDS_ONE_NUMBER: Final = "for 'Gt', 'Lt' operators, exactly one value is required"
_NEEDS_INTEGER: Final = "for 'Gt', 'Lt' operators, the value must be an integer"

_INT64 = re.compile(r"([+-]?)0*([0-9]{1,19})")

# Up to the next comma that no backslash protects; a backslash at the very end protects nothing.
_FIELD_TERM = re.compile(r"(?:[^\\,]|\\.|\\$)+", re.DOTALL)

_FIELD_ESCAPES: Final = ("\\\\", "\\,", "\\=")

_FIELD_PARTS = re.compile(r"(?P<field>[^=]*?)(?P<sign>!=|==|=)(?P<value>.*)", re.DOTALL)


def _in_order(requirements: Iterable[Requirement]) -> LabelSelector:
    ordered = sorted(requirements, key=lambda requirement: requirement.key)
    return LabelSelector(tuple(ordered)) if ordered else EVERYTHING


def _of_term(term: Term) -> Requirement:
    try:
        return require(term.key, Operator(term.sign), term.values)
    except MalformedSelector as error:
        raise MalformedSelector(UNREADABLE_TERM + error.message, place=term.place) from error


def _of_expression(expression: Mapping[str, Any], place: str) -> Requirement:
    key = _as_text(expression.get("key", ""), place=f"{place}.key")
    sign = _as_text(expression.get("operator", ""), place=f"{place}.operator")
    operator = _EXPRESSION_OPERATORS.get(sign)
    if operator is None:
        message = f"{quoted(sign)} is not a valid label selector operator"
        raise MalformedSelector(message, place=f"{place}.operator")
    listed = _as_list(expression.get("values") or [], place=f"{place}.values")
    values = [_as_text(value, place=f"{place}.values") for value in listed]
    return require(key, operator, values, place=place)


def _key_problems(key: str) -> Iterator[Cause]:
    if problems := label_key_problems(key):
        yield causes.invalid("key", key, "; ".join(problems))


def _count_problems(operator: Operator, values: list[str]) -> Iterator[Cause]:
    match operator:
        case Operator.IN | Operator.NOT_IN:
            is_right, rule = len(values) > 0, _NEEDS_SOME
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            is_right, rule = len(values) == 0, _NEEDS_NONE
        case Operator.GREATER_THAN | Operator.LESS_THAN:
            is_right, rule = len(values) == 1, _NEEDS_ONE_NUMBER
        case Operator.EQUALS | Operator.DOUBLE_EQUALS | Operator.NOT_EQUALS:
            is_right, rule = len(values) == 1, _NEEDS_ONE
    if not is_right:
        yield causes.invalid("values", values, rule)


def _number_problems(operator: Operator, values: list[str]) -> Iterator[Cause]:
    if operator not in (Operator.GREATER_THAN, Operator.LESS_THAN):
        return
    for index, value in enumerate(values):
        if _read_int64(value) is None:
            yield causes.invalid(f"values[{index}]", value, _NEEDS_INTEGER)


def _value_problems(key: str, values: list[str]) -> Iterator[Cause]:
    for index, value in enumerate(values):
        if problems := label_value_problems(value):
            yield causes.invalid(f"values[{index}][{key}]", value, "; ".join(problems))


def _read_int64(text: str) -> int | None:
    found = _INT64.fullmatch(text)
    if found is None:
        return None
    number = int(found[1] + found[2])
    return number if -(2**63) <= number < 2**63 else None


def _read_field_term(term: str, text: str) -> FieldRequirement:
    found = _FIELD_PARTS.fullmatch(term)
    if found is None:
        message = f"invalid selector: '{text}'; can't understand '{term}'"
        raise MalformedSelector(message, place=term)
    value = _unescaped(found["value"], term)
    return FieldRequirement(found["field"], value, is_equal=found["sign"] != "!=")


def _unescaped(text: str, term: str) -> str:
    def plain(found: re.Match[str]) -> str:
        if found[0] in _FIELD_ESCAPES:
            return found[0][1]
        if found[0].startswith("\\"):
            fault = f"invalid escape sequence: {found[0]}"
        else:  # Kubernetes prints the character's number, so we do
            fault = f"unescaped character in value: {ord(found[0])}"
        raise MalformedSelector(f"invalid field selector: {fault}", place=term)

    return re.sub(r"\\.?|[,=]", plain, text, flags=re.DOTALL)


def _as_dict(value: object, *, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedSelector(f"{place} must be an object", place=place)
    return cast("dict[str, Any]", value)


def _as_list(value: object, *, place: str) -> list[object]:
    if not isinstance(value, list):
        raise MalformedSelector(f"{place} must be a list", place=place)
    return cast("list[object]", value)


def _as_text(value: object, *, place: str) -> str:
    if not isinstance(value, str):
        raise MalformedSelector(f"{place} must be a string", place=place)
    return value
