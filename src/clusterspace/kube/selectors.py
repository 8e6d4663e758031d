"""Label and field selectors: parse once, match many. And what tolerations select, taints.

The text of a label selector is read in two steps: into terms, which say what was written, and
from terms into requirements, which say what must hold.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, cast

from clusterspace.errors import Cause, MalformedSelector
from clusterspace.kube import causes
from clusterspace.kube.names import label_key_problems, label_value_problems
from clusterspace.kube.objects import Object
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


_EXPRESSION_OPERATORS: Final = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
}

_UNREADABLE_TERM: Final = "unable to parse requirement: "
"""How Kubernetes opens its complaint about a single term."""

_NEEDS_SOME: Final = "for 'in', 'notin' operators, values set can't be empty"
_NEEDS_NONE: Final = "values set must be empty for exists and does not exist"
_NEEDS_ONE: Final = "exact-match compatibility requires one single value"
_NEEDS_ONE_NUMBER: Final = "for 'Gt', 'Lt' operators, exactly one value is required"
_NEEDS_INTEGER: Final = "for 'Gt', 'Lt' operators, the value must be an integer"

_INT64: Final = re.compile(r"([+-]?)0*([0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing a label selector asks of a set of labels; `require` makes one, checked."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the labels are as asked."""
        label = labels.get(self.key)
        match self.operator:
            case Operator.IN | Operator.EQUALS | Operator.DOUBLE_EQUALS:
                return label in self.values
            # A label that is not there is not equal to anything: `tier!=web` matches without tier.
            case Operator.NOT_IN | Operator.NOT_EQUALS:
                return label not in self.values
            case Operator.EXISTS:
                return label is not None
            case Operator.DOES_NOT_EXIST:
                return label is None
            case Operator.GREATER_THAN | Operator.LESS_THAN:
                # Compared as whole numbers; a label that is not one never matches.
                number = None if label is None else _read_int64(label)
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
    requirements: list[Requirement] = []
    for term in read_terms(text):
        try:
            requirements.append(require(term.key, Operator(term.sign), term.values))
        except MalformedSelector as error:
            raise MalformedSelector(_UNREADABLE_TERM + error.message, place=term.place) from error
    return _in_order(requirements)


def label_selector_of(selector: Mapping[str, Any] | None) -> LabelSelector:
    """Read a LabelSelector object: an absent one matches nothing, an empty one everything."""
    if selector is None:
        return NOTHING
    requirements: list[Requirement] = []
    labels = _as_dict(selector.get("matchLabels") or {}, place="matchLabels")
    expressions = _as_list(selector.get("matchExpressions") or [], place="matchExpressions")
    for key, value in labels.items():
        place = f"matchLabels[{key}]"
        text = _as_text(value, place=place)
        requirements.append(require(_as_text(key, place=place), Operator.EQUALS, [text]))
    for index, each in enumerate(expressions):
        place = f"matchExpressions[{index}]"
        expression = _as_dict(each, place=place)
        key = _as_text(expression.get("key", ""), place=f"{place}.key")
        sign = _as_text(expression.get("operator", ""), place=f"{place}.operator")
        operator = _EXPRESSION_OPERATORS.get(sign)
        if operator is None:
            message = f"{quoted(sign)} is not a valid label selector operator"
            raise MalformedSelector(message, place=f"{place}.operator")
        listed = _as_list(expression.get("values") or [], place=f"{place}.values")
        values = [_as_text(value, place=f"{place}.values") for value in listed]
        requirements.append(require(key, operator, values, place=place))
    return _in_order(requirements)


def require(key: str, operator: Operator, values: Iterable[str], *, place: str = "") -> Requirement:
    """Make a requirement, or refuse it with every reason at once."""
    distinct = sorted(set(values))
    found: list[Cause] = []
    if problems := label_key_problems(key):
        found.append(causes.invalid("key", key, "; ".join(problems)))
    match operator:
        case Operator.IN | Operator.NOT_IN:
            is_right, rule = len(distinct) > 0, _NEEDS_SOME
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            is_right, rule = len(distinct) == 0, _NEEDS_NONE
        case Operator.GREATER_THAN | Operator.LESS_THAN:
            is_right, rule = len(distinct) == 1, _NEEDS_ONE_NUMBER
        case Operator.EQUALS | Operator.DOUBLE_EQUALS | Operator.NOT_EQUALS:
            is_right, rule = len(distinct) == 1, _NEEDS_ONE
    if not is_right:
        found.append(causes.invalid("values", distinct, rule))
    if operator in (Operator.GREATER_THAN, Operator.LESS_THAN):
        found += [
            causes.invalid(f"values[{index}]", value, _NEEDS_INTEGER)
            for index, value in enumerate(distinct)
            if _read_int64(value) is None
        ]
    for index, value in enumerate(distinct):
        if problems := label_value_problems(value):
            found.append(causes.invalid(f"values[{index}][{key}]", value, "; ".join(problems)))
    if found:
        raise MalformedSelector(summary_of(found), place=place or key)
    return Requirement(key, operator, frozenset(distinct))


def _in_order(requirements: Iterable[Requirement]) -> LabelSelector:
    ordered = sorted(requirements, key=lambda requirement: requirement.key)
    return LabelSelector(tuple(ordered)) if ordered else EVERYTHING


def _read_int64(text: str) -> int | None:
    found = _INT64.fullmatch(text)
    if found is None:
        return None
    number = int(found[1] + found[2])
    return number if -(2**63) <= number < 2**63 else None


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


# The text of a label selector. The messages are Kubernetes' own.
#
#     selector = [term *("," term)]
#     term     = "!" key | key | key ("=" | "==" | "!=" | ">" | "<") [value]
#              | key ("in" | "notin") "(" [value] *("," [value]) ")"
#
# A value left out is the empty string, so `x in ()` asks for an empty label.

EXISTS: Final = "exists"
DOES_NOT_EXIST: Final = "!"
SET_SIGNS: Final = ("in", "notin")
BINARY_SIGNS: Final = (*SET_SIGNS, "=", "==", "!=", ">", "<")

# Kubernetes spells the last two as words here although it reads only signs.
_SIGNS_IN_MESSAGES: Final = "in, notin, =, ==, !=, gt, lt"

_TOKEN: Final = re.compile(
    r"[ \t\r\n]*(?:(?P<symbol>==|!=|[=!(),><])|(?P<word>[^ \t\r\n=!(),><]+)|$)"
)


@dataclass(frozen=True, slots=True)
class Term:
    """One term: its sign is one of the binary signs, EXISTS or DOES_NOT_EXIST."""

    key: str
    sign: str
    values: tuple[str, ...]
    place: str


class _Kind(Enum):
    SYMBOL = auto()
    WORD = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: _Kind
    text: str
    place: str

    @property
    def is_word(self) -> bool:
        return self.kind is _Kind.WORD

    @property
    def ends_a_term(self) -> bool:
        return self.kind is _Kind.END or self.text == ","

    def refused(self, expected: str, *, opening: str = "") -> MalformedSelector:
        """Return the error of having found this token where another was expected."""
        return MalformedSelector(f"{opening}found '{self.text}'{expected}", place=self.place)


def read_terms(text: str) -> Iterator[Term]:
    """Yield the terms in the order written, or raise MalformedSelector at the first fault."""
    reader = _Reader(text)
    first = reader.peek()
    if first.kind is _Kind.END:
        return
    if not (first.is_word or first.text == "!"):
        raise first.refused(", expected: !, identifier, or 'end of string'")
    while True:
        yield reader.term()
        separator = reader.take()
        if separator.kind is _Kind.END:
            return
        if separator.text != ",":
            raise separator.refused(", expected: ',' or 'end of string'")
        following = reader.peek()
        if not (following.is_word or following.text == "!"):
            raise following.refused(", expected: identifier after ','")


class _Reader:
    """Reads terms one token at a time, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._next = self._read()

    def peek(self) -> _Token:
        return self._next

    def take(self) -> _Token:
        taken = self._next
        # Past the end there is only more end.
        self._next = taken if taken.kind is _Kind.END else self._read()
        return taken

    def _read(self) -> _Token:
        found = _TOKEN.match(self._text, self._position)
        if found is None or found.lastgroup is None:
            return _Token(_Kind.END, "", place=f"character {len(self._text) + 1}")
        self._position = found.end()
        body = found[found.lastgroup]
        place = f"character {found.end() - len(body) + 1}"
        return _Token(_Kind[found.lastgroup.upper()], body, place)

    def term(self) -> Term:
        first = self.take()
        key = self.take() if first.text == "!" else first
        if not key.is_word:
            raise key.refused(", expected: identifier", opening=_UNREADABLE_TERM)
        if problems := label_key_problems(key.text):
            # The place Kubernetes prints is that of a field, and a text has none.
            complaint = summary_of([causes.invalid("<nil>", key.text, "; ".join(problems))])
            raise MalformedSelector(_UNREADABLE_TERM + complaint, place=key.place)
        if first.text == "!":
            return Term(key.text, DOES_NOT_EXIST, (), first.place)
        if self.peek().ends_a_term:
            return Term(key.text, EXISTS, (), first.place)

        sign = self.take()
        if sign.text not in BINARY_SIGNS:
            raise sign.refused(f", expected: {_SIGNS_IN_MESSAGES}", opening=_UNREADABLE_TERM)
        if sign.text in SET_SIGNS:
            opening, following = self.take(), self.peek()
            if opening.text != "(":
                raise opening.refused(" expected: '('", opening=_UNREADABLE_TERM)
            if not (following.is_word or following.text in (",", ")")):
                expected = ", expected: ',', ')' or identifier"
                raise following.refused(expected, opening=_UNREADABLE_TERM)
            values = [self._listed_value()]
            while self.take().text == ",":
                values.append(self._listed_value())
            return Term(key.text, sign.text, tuple(values), first.place)
        if self.peek().ends_a_term:
            return Term(key.text, sign.text, ("",), first.place)
        value = self.take()
        if not value.is_word:
            raise value.refused(", expected: identifier", opening=_UNREADABLE_TERM)
        return Term(key.text, sign.text, (value.text,), first.place)

    def _listed_value(self) -> str:
        """Read one value, or the empty string between two commas; "," or ")" comes next."""
        token = self.peek()
        if token.text in (",", ")"):
            return ""
        if not token.is_word:
            raise token.refused(", expected: ',', or identifier", opening=_UNREADABLE_TERM)
        self.take()
        following = self.peek()
        if following.text not in (",", ")"):
            raise following.refused(", expected: ',' or ')'", opening=_UNREADABLE_TERM)
        return token.text


# Field selectors.


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


# Up to the next comma that no backslash protects; a backslash at the very end protects nothing.
_FIELD_TERM: Final = re.compile(r"(?:[^\\,]|\\.|\\$)+", re.DOTALL)

_FIELD_ESCAPES: Final = ("\\\\", "\\,", "\\=")

_FIELD_PARTS: Final = re.compile(r"(?P<field>[^=]*?)(?P<sign>!=|==|=)(?P<value>.*)", re.DOTALL)


def parse_field_selector(text: str) -> FieldSelector:
    """Read the text of a `fieldSelector` parameter: `\\`, `,` and `=` in values are escaped."""
    requirements: list[FieldRequirement] = []
    # Sorted before reading, as Kubernetes does, so that equal selectors print equal.
    for term in sorted(re.findall(_FIELD_TERM, text)):
        found = _FIELD_PARTS.fullmatch(term)
        if found is None:
            message = f"invalid selector: '{text}'; can't understand '{term}'"
            raise MalformedSelector(message, place=term)
        value = _unescaped(found["value"], term)
        is_equal = found["sign"] != "!="
        requirements.append(FieldRequirement(found["field"], value, is_equal=is_equal))
    return FieldSelector(tuple(requirements))


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


_NODE_OPERATORS: Final = {
    **_EXPRESSION_OPERATORS,
    "Gt": Operator.GREATER_THAN,
    "Lt": Operator.LESS_THAN,
}


def node_expression_holds(expression: Object, values: Mapping[str, str]) -> bool:
    """Whether one expression of a node selector holds; one that makes no sense selects nothing."""
    operator = _NODE_OPERATORS.get(str(expression.get("operator")))
    if operator is None:
        return False
    try:
        requirement = require(str(expression.get("key")), operator, expression.get("values") or ())
    except MalformedSelector:
        return False
    return requirement.matches(values)


def tolerates(toleration: Object, taint: Object) -> bool:
    """Tell whether a toleration is for a taint."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    has_key = bool(toleration.get("key"))
    return has_key and (toleration.get("value") or "") == (taint.get("value") or "")
