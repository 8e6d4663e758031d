"""The entries of `x-kubernetes-validations`: compiled for their place, checked for faults, obeyed.

A definition is refused for rules that have faults; an object is checked by the rules of its schema,
by itself and as a change of the old one.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.causes import Key, Step, Steps, field_text, quoted, value_text
from clusterspace.kube.cel.compiler import Program, compile_expression
from clusterspace.kube.cel.costs import (
    UNBOUNDED,
    UNKNOWN,
    estimate,
    occurrences,
    shape_of,
    times,
)
from clusterspace.kube.cel.schema_types import read_value, type_of
from clusterspace.kube.cel.syntax import CompileFailed
from clusterspace.kube.cel.types import BOOL, DYN, STRING, Type, is_loose, optional_of
from clusterspace.kube.cel.values import (
    NONE,
    BudgetExceeded,
    EvaluationFailed,
    Meter,
    Optional,
)
from clusterspace.kube.schemas.model import Schema

if TYPE_CHECKING:
    from clusterspace.kube.objects import Object

SELF: Final = "self"
OLD_SELF: Final = "oldSelf"

_KEYWORD: Final = "x-kubernetes-validations"

_REASONS: Final = (
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
)

_PATH_STEP: Final = re.compile(r"\.(?P<name>[^.\[\]']+)|\['(?P<key>[^']+)'\]")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as it was written."""

    text: str
    message: str = ""
    message_expression: str = ""
    reason: str = ""
    field_path: str = ""
    takes_optional_old: bool = False

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> "Rule":
        """Read an entry."""
        return cls(
            text=str(raw.get("rule") or ""),
            message=str(raw.get("message") or ""),
            message_expression=str(raw.get("messageExpression") or ""),
            reason=str(raw.get("reason") or ""),
            field_path=str(raw.get("fieldPath") or ""),
            takes_optional_old=bool(raw.get("optionalOldSelf")),
        )

    @property
    def shown(self) -> str:
        """The name of the rule where it could not be evaluated: its message, or else its text."""
        return (self.message or self.text).strip()


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule with its programs; `fault` says why it has none."""

    rule: Rule
    program: Program | None = None
    message_program: Program | None = None
    field_steps: Steps = ()
    fault: str = ""
    message_fault: str = ""

    @property
    def uses_old(self) -> bool:
        """Whether the rule is about a change."""
        return self.program is not None and OLD_SELF in self.program.uses


class PlaceRules(tuple[CompiledRule, ...]):
    """The rules of one place of a schema."""

    __slots__ = ()

    @classmethod
    def of(cls, schema: Schema, *, is_resource: bool = False) -> "PlaceRules":
        """Return the compiled rules of a schema, the same ones each time."""
        cached = schema.memo.get(cls)
        if cached is None:
            raws = cast("list[Mapping[str, Any]]", schema.raw.get(_KEYWORD) or [])
            type_ = (type_of(schema, is_resource=is_resource) if raws else None) or DYN
            compiled = (_compile_rule(Rule.read(raw), type_, schema) for raw in raws)
            cached = schema.memo[cls] = cls(compiled)
        return cached


def _compile_rule(rule: Rule, type_: Type, schema: Schema) -> CompiledRule:
    """Compile a rule about values of a type."""
    variables = {SELF: type_, OLD_SELF: optional_of(type_) if rule.takes_optional_old else type_}
    steps = _find_steps(rule.field_path, schema) or ()
    try:
        program = compile_expression(rule.text, variables)
    except CompileFailed as failed:
        return CompiledRule(rule, fault=f"compilation failed: {failed}")
    if program.type != BOOL and not is_loose(program.type):
        return CompiledRule(rule, fault="cel expression must evaluate to a bool")
    if not rule.message_expression.strip():
        return CompiledRule(rule, program, None, steps)
    message: Program | None = None
    why = ""
    try:
        message = compile_expression(rule.message_expression, variables)
    except CompileFailed as failed:
        why = f"messageExpression compilation failed: {failed}"
    if message is not None and message.type != STRING and not is_loose(message.type):
        message, why = None, "messageExpression must evaluate to a string"
    return CompiledRule(rule, program, message, steps, message_fault=why)


def _find_steps(field_path: str, schema: Schema) -> Steps | None:
    """Return the way from a place to the field a rule blames; None when there is no such field."""
    steps: Steps = ()
    at = 0
    while at < len(field_path):
        found = _PATH_STEP.match(field_path, at)
        inner = schema.field(found["name"] or found["key"]) if found else None
        if found is None or inner is None:
            return None
        name = found["name"] or found["key"]
        steps = (*steps, name if name in schema.properties else Key(name))
        at, schema = found.end(), inner
    return steps


def check_rule_definitions(raw_schema: Mapping[str, Any], *, path: str) -> tuple[Cause, ...]:
    """Return the faults of all rules, at every depth of a structural schema.

    A rule that the largest possible object could make too dear is a fault, too; so are rules that
    are affordable one by one, and not together.
    """
    costs = _Costs()
    found = [*_RulesAt(Schema(raw_schema), path, costs, is_resource=True).faults()]
    return (*found, *costs.faults(path))


RULE_COST: Final = 10_000_000
SCHEMA_COST: Final = 100_000_000
"""What one rule, and all rules of a schema together, may be estimated to cost: as Kubernetes."""

_MOST_BLAMED: Final = 4
_HOW_TO_SAVE: Final = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, "
    "maps, and strings are declared)"
)


def _too_dear(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = f"{factor:.1f}x" if factor >= 1.5 else f"{factor:f}x"
    by = "more than 100x" if factor > 100 else shown
    return f"{what} exceeds budget by factor of {by} {_HOW_TO_SAVE}"


class _Costs:
    """What the rules of a schema are estimated to cost, by their place."""

    def __init__(self) -> None:
        self._noted: list[tuple[str, int]] = []

    def note(self, place: str, what: str, cost: int) -> Iterator[Cause]:
        """Take note of a cost; yield the fault if it is too high by itself."""
        self._noted.append((place, cost))
        if cost > RULE_COST:
            yield causes.forbidden(place, _too_dear(f"estimated {what} cost", cost, RULE_COST))

    def faults(self, path: str) -> Iterator[Cause]:
        """Yield what is wrong with all of them together."""
        total = sum(cost for _, cost in self._noted)
        if total <= SCHEMA_COST:
            return
        dear = [noted for noted in self._noted if noted[1] >= SCHEMA_COST // 100]
        for place, _ in sorted(dear, key=lambda noted: -noted[1])[:_MOST_BLAMED]:
            yield causes.forbidden(
                place,
                "contributed to estimated rule cost total exceeding cost limit for entire "
                "OpenAPIv3 schema",
            )
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        yield causes.forbidden(path, _too_dear(what, min(total, UNBOUNDED), SCHEMA_COST))


@dataclass(frozen=True, slots=True)
class _RulesAt:
    """One place of a schema that may have rules."""

    schema: Schema
    path: str
    costs: _Costs
    is_resource: bool = False
    uncorrelated: str = ""
    """The list above whose elements have no keys, so that there is no old value for any of them."""
    most: int | None = 1
    """How many values there can be at this place; None where no list above has a bound."""

    def faults(self) -> Iterator[Cause]:
        """Yield the faults here and everywhere below."""
        schema = self.schema
        raws = cast("list[Mapping[str, Any]]", schema.raw.get(_KEYWORD) or [])
        type_ = (type_of(schema, is_resource=self.is_resource) if raws else None) or DYN
        shape = (shape_of(schema, is_resource=self.is_resource) if raws else None) or UNKNOWN
        most = occurrences(shape) if self.most is None else self.most
        for index, raw in enumerate(raws):
            rule, place = Rule.read(raw), f"{self.path}.{_KEYWORD}[{index}]"
            yield from _text_faults(rule, place, schema)
            if not rule.text.strip():
                continue
            compiled = _compile_rule(rule, type_, schema)
            if compiled.fault:
                yield _refused(f"{place}.rule", rule, compiled.fault)
            if compiled.message_fault:
                yield _refused(f"{place}.messageExpression", rule, compiled.message_fault)
            variables = {SELF: shape, OLD_SELF: shape}
            if compiled.program is not None:
                cost = times(estimate(rule.text, variables), most)
                yield from self.costs.note(f"{place}.rule", "rule", cost)
            if compiled.message_program is not None:
                cost = estimate(rule.message_expression, variables)
                where = f"{place}.messageExpression"
                yield from self.costs.note(where, "messageExpression", cost)
            if compiled.uses_old and self.uncorrelated:
                detail = (
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within "
                    f"{self.uncorrelated}"
                )
                yield causes.invalid(f"{place}.rule", rule.text, detail)
            if rule.takes_optional_old and compiled.program is not None and not compiled.uses_old:
                detail = "may not be set if oldSelf is not used in rule"
                yield causes.invalid(f"{place}.optionalOldSelf", True, detail)
        for name, inner in sorted(schema.properties.items()):
            yield from self._below(f"properties[{name}]", inner).faults()
        free = schema.additional
        if free is not None and isinstance(schema.raw.get("additionalProperties"), dict):
            yield from self._below("additionalProperties", free).faults()
        if schema.items is not None:
            yield from self._below("items", schema.items).faults()

    def _below(self, way: str, schema: Schema) -> "_RulesAt":
        uncorrelated = self.uncorrelated
        if way == "items" and self.schema.list_type != "map":
            uncorrelated = uncorrelated or self.path
        most = self.most
        bound = {"items": "maxItems", "additionalProperties": "maxProperties"}.get(way)
        if bound is not None and most is not None:
            given = self.schema.raw.get(bound)
            most = None if given is None else times(most, max(0, int(given)))
        return _RulesAt(
            schema,
            f"{self.path}.{way}",
            self.costs,
            schema.is_embedded_resource,
            uncorrelated,
            most,
        )


def _text_faults(rule: Rule, place: str, schema: Schema) -> Iterator[Cause]:
    if not rule.text.strip():
        yield causes.required(f"{place}.rule", "rule is not specified")
    if rule.message and not rule.message.strip():
        yield causes.invalid(f"{place}.message", rule.message, "must be non-empty if specified")
    elif "\n" in rule.message.strip():
        yield causes.invalid(f"{place}.message", rule.message, "must not contain line breaks")
    if "\n" in rule.text.strip() and not rule.message:
        yield causes.required(
            f"{place}.message", "message must be specified if rule contains line breaks"
        )
    if rule.message_expression and not rule.message_expression.strip():
        detail = "messageExpression must be non-empty if specified"
        yield causes.required(f"{place}.messageExpression", detail)
    if rule.reason and rule.reason not in _REASONS:
        yield causes.not_supported(f"{place}.reason", rule.reason, _REASONS)
    if rule.field_path:
        field = f"{place}.fieldPath"
        if not rule.field_path.strip():
            yield causes.invalid(field, rule.field_path, "must be non-empty if specified")
        if not _find_steps(rule.field_path, schema):
            yield causes.invalid(field, rule.field_path, "must be a valid path")


def _refused(field: str, rule: Rule, detail: str) -> Cause:
    """Blame a rule that does not compile; Kubernetes shows all of its fields."""
    shown = {
        "Rule": rule.text,
        "Message": rule.message,
        "MessageExpression": rule.message_expression,
        "Reason": rule.reason or None,
        "FieldPath": rule.field_path,
        "OptionalOldSelf": True if rule.takes_optional_old else None,
    }
    text = msgspec.json.encode(shown).decode()
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Cause("FieldValueInvalid", f"Invalid value: {text}: {detail}", field)


# Evaluation: does this object obey its rules?

RULE_BUDGET: Final = 300_000
"""Steps that one rule may take at one place: a fraction of a second."""

OBJECT_BUDGET: Final = 1_500_000
"""Steps that all rules of an object may take together."""

ABSENT: Final = object()
"""Stands for the old value where there was none, which is not the same as null."""

_LONGEST_MESSAGE: Final = 5 * 1024


def check_rules(new: Any, schema: Schema, *, old: Any = ABSENT) -> tuple[Cause, ...]:
    """Return every rule that a whole resource breaks."""
    if not has_rules(schema):
        return ()
    check = _Pass(Meter(OBJECT_BUDGET))
    waiting = [_Place(new, old, schema, is_resource=True)]
    try:
        while waiting:
            place = waiting.pop()
            check.check_place(place)
            # A stack of our own, for objects nest at will; reversed, so that places are taken from
            # it in the order of the object and causes come in that order.
            waiting.extend(reversed(list(_places_below(place))))
    except _OutOfBudget as ended:
        # Rules that nobody evaluated may be broken as well: the object is refused for this alone.
        check.found.append(ended.cause)
    return tuple(check.found)


class _Rules:
    """Whether there are rules at or below a schema; worked out once, kept with it."""

    def __init__(self, schema: Schema) -> None:
        below = [*schema.properties.values(), schema.additional, schema.items]
        self.exist = bool(schema.raw.get(_KEYWORD)) or any(
            has_rules(each) for each in below if each is not None
        )


def has_rules(schema: Schema) -> bool:
    """Tell whether there are rules at or below a schema."""
    cached = schema.memo.get(_Rules)
    if cached is None:
        cached = schema.memo[_Rules] = _Rules(schema)
    return bool(cached.exist)


@dataclass(frozen=True)
class _Place:
    """A value, its old value, and its schema."""

    new: Any
    old: Any
    schema: Schema
    steps: Steps = ()
    is_resource: bool = False
    is_unchanged: bool = False
    """Whether something this is a part of is unchanged."""

    def below(self, step: Step, new: Any, old: Any, schema: Schema) -> "_Place":
        same = self.is_same
        steps = (*self.steps, step)
        return _Place(new, old, schema, steps, schema.is_embedded_resource, is_unchanged=same)

    # Every place below asks for this, and it compares all that is in here: doing that again for
    # each of 10,000 elements takes many seconds, which no budget would count.
    @cached_property
    def is_same(self) -> bool:
        """Whether the value is the old one, or part of something that is."""
        return self.is_unchanged or (self.old is not ABSENT and self.new == self.old)


class _OutOfBudget(Exception):
    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.message)
        self.cause = cause


class _Pass:
    """One pass over an object."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.found: list[Cause] = []

    def check_place(self, place: _Place) -> None:
        """Evaluate the rules of one place that are due.

        A rule about a change is due when there is an old value; any other rule is due unless the
        value is unchanged, so that objects which broke a rule before there was one can still be
        changed elsewhere.
        """
        rules = PlaceRules.of(place.schema, is_resource=place.is_resource)
        if not rules or (place.new is None and not place.schema.is_nullable):
            return
        is_same = place.is_same
        due = [
            rule
            for rule in rules
            if (
                (place.old is not ABSENT or rule.rule.takes_optional_old)
                if rule.uses_old
                else not is_same
            )
        ]
        if not due:
            return
        value = read_value(place.new, place.schema)
        old = ABSENT if place.old is ABSENT else read_value(place.old, place.schema)
        for rule in due:
            variables = {SELF: value}
            if rule.rule.takes_optional_old:
                variables[OLD_SELF] = NONE if old is ABSENT else Optional(old, is_present=True)
            elif old is not ABSENT:
                variables[OLD_SELF] = old
            self._check_rule(rule, place, variables)

    def _check_rule(self, compiled: CompiledRule, place: _Place, variables: dict[str, Any]) -> None:
        rule, kind = compiled.rule, quoted(place.schema.type)
        if compiled.program is None:
            detail = f"{kind}: rule compile error: {compiled.fault}"
            self.found.append(_cause(compiled, place.steps, detail))
            return
        try:
            if self._run(compiled.program, variables) is True:
                return
        except EvaluationFailed as failed:
            detail = f"{failed} evaluating rule: {rule.shown}"
            if str(failed).startswith("no such overload"):
                detail = (
                    f"'{failed}': call arguments did not match a supported operator, function or "
                    f"macro signature for rule: {rule.shown}"
                )
            self.found.append(_cause(compiled, place.steps, f"{kind}: {detail}"))
            return
        except BudgetExceeded as exceeded:
            detail = (
                f"{kind}: '{exceeded}': no further validation rules will be run due to call cost "
                f"exceeds limit for rule: {rule.shown}"
            )
            raise _OutOfBudget(_cause(compiled, place.steps, detail)) from exceeded
        detail = self._message(compiled, variables)
        if rule.reason in ("", "FieldValueInvalid") and not isinstance(place.new, dict | list):
            detail = f"{value_text(place.new)}: {detail}"
        self.found.append(_cause(compiled, (*place.steps, *compiled.field_steps), detail))

    def _run(self, program: Program, variables: dict[str, Any]) -> Any:
        """Run with the budget of one rule, and take what it spent from that of the object.

        Two budgets, because a rule stands at every element of a list: one that is cheap by itself
        may not be a thousand times over. When either is spent, nothing further is evaluated.
        """
        meter = Meter(min(RULE_BUDGET, self._meter.left))
        before = meter.left
        meter.spend(1)
        try:
            return program.evaluate(variables, meter)
        finally:
            # A rule that fails has worked for it, too. If it failed at the end of the object's
            # budget, that is the failure to tell: nothing further is evaluated.
            self._meter.spend(before - meter.left)

    def _message(self, compiled: CompiledRule, variables: dict[str, Any]) -> str:
        rule = compiled.rule
        written = rule.message.strip() or f"failed rule: {rule.text.strip()}"
        if compiled.message_program is None:
            return written
        try:
            made = self._run(compiled.message_program, variables)
        except (EvaluationFailed, BudgetExceeded):
            return written
        # A message that says nothing or goes on for pages helps less than the one written.
        if not isinstance(made, str) or not made.strip() or "\n" in made:
            return written
        return made.strip() if len(made) <= _LONGEST_MESSAGE else written


_WORDS: Final = {
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
}


def _cause(compiled: CompiledRule, steps: Steps, detail: str) -> Cause:
    reason = compiled.rule.reason or "FieldValueInvalid"
    words = _WORDS.get(reason, "Invalid value")
    return Cause(reason, f"{words}: {detail}", field_text(steps))


def _places_below(place: _Place) -> Iterator[_Place]:
    """Yield the places below that have rules, each with its old value where there is one.

    Only the elements of a `map` list have an old value: the element with the same keys. In any
    other list nobody can say which element became which.
    """
    schema = place.schema
    if isinstance(place.new, dict):
        fields = cast("Object", place.new)
        old_fields = cast("Object", place.old) if isinstance(place.old, dict) else {}
        for name in sorted(fields):
            inner = schema.properties.get(name, schema.additional)
            if inner is not None and has_rules(inner):
                step = name if name in schema.properties else Key(name)
                yield place.below(step, fields[name], old_fields.get(name, ABSENT), inner)
    elif isinstance(place.new, list) and schema.items is not None and has_rules(schema.items):
        old_by_key: dict[Any, Any] = {}
        if schema.list_type == "map" and isinstance(place.old, list):
            old_by_key = {_key_of(each, schema): each for each in cast("list[Any]", place.old)}
        for index, element in enumerate(cast("list[Any]", place.new)):
            old = old_by_key.get(_key_of(element, schema), ABSENT) if old_by_key else ABSENT
            yield place.below(index, element, old, schema.items)


def _key_of(element: Any, schema: Schema) -> tuple[str, ...]:
    fields = cast("Object", element) if isinstance(element, dict) else {}
    return tuple(repr(fields.get(key)) for key in schema.list_map_keys)
