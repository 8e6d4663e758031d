"""Whether an object obeys the rules of its schema, alone and as a change of what it was."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.errors import Cause
from clusterspace.kube.cel.faults import BudgetExceeded, EvaluationFailed
from clusterspace.kube.cel.programs import Program
from clusterspace.kube.cel.rules import OLD_SELF, SELF, CompiledRule, PlaceRules
from clusterspace.kube.cel.schema_types import read_value
from clusterspace.kube.cel.values import NONE, Meter, Optional
from clusterspace.kube.field_paths import Key, Step, Steps, field_text, quoted, value_text
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.model import Schema

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
    check = _Check(Meter(OBJECT_BUDGET))
    found: list[Cause] = []
    try:
        found.extend(check.causes(_Place(new, old, schema, is_resource=True)))
    except _OutOfBudget as ended:
        found = [*check.found, ended.cause]
    return tuple(found)


class _Rules:
    """Whether there are rules at or below a schema, found out once."""

    def __init__(self, schema: Schema) -> None:
        below = [*schema.properties.values(), schema.additional, schema.items]
        self.are_there = bool(schema.raw.get("x-kubernetes-validations")) or any(
            has_rules(each) for each in below if each is not None
        )


def has_rules(schema: Schema) -> bool:
    """Tell whether there are rules at or below a schema."""
    made = schema.memo.get(_Rules)
    if made is None:
        made = schema.memo[_Rules] = _Rules(schema)
    return bool(made.are_there)


@dataclass(frozen=True, slots=True)
class _Place:
    """A value, what it was before, and its schema."""

    new: Any
    old: Any
    schema: Schema
    steps: Steps = ()
    is_resource: bool = False
    is_unchanged: bool = False
    """Whether something this is a part of is as it was."""

    def below(self, step: Step, new: Any, old: Any, schema: Schema) -> "_Place":
        same = self.is_same
        steps = (*self.steps, step)
        return _Place(new, old, schema, steps, schema.is_embedded_resource, is_unchanged=same)

    @property
    def is_same(self) -> bool:
        return self.is_unchanged or (self.old is not ABSENT and self.new == self.old)


class _OutOfBudget(Exception):
    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.message)
        self.cause = cause


class _Check:
    """One pass over an object."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.found: list[Cause] = []

    def causes(self, place: _Place) -> list[Cause]:
        """Return the rules broken at a place and below it."""
        waiting = [place]
        while waiting:
            current = waiting.pop()
            self._check_place(current)
            waiting.extend(reversed(list(_below(current))))
        return self.found

    def _check_place(self, place: _Place) -> None:
        rules = PlaceRules.of(place.schema, is_resource=place.is_resource)
        if not rules or (place.new is None and not place.schema.is_nullable):
            return
        is_same = place.is_same
        asked = [rule for rule in rules if _is_due(rule, place, is_same=is_same)]
        if not asked:
            return
        value = read_value(place.new, place.schema)
        old = ABSENT if place.old is ABSENT else read_value(place.old, place.schema)
        for rule in asked:
            self._ask(rule, place, value, old)

    def _ask(self, compiled: CompiledRule, place: _Place, value: Any, old: Any) -> None:
        program = compiled.program
        if program is None:
            detail = f"{quoted(place.schema.type)}: rule compile error: {compiled.fault}"
            self._blame(compiled, place.steps, detail)
            return
        variables = _variables(compiled, value, old)
        try:
            if self._run(program, variables) is True:
                return
        except EvaluationFailed as failed:
            detail = f"{quoted(place.schema.type)}: {_failure_text(compiled, failed)}"
            self._blame(compiled, place.steps, detail)
            return
        except BudgetExceeded as exceeded:
            detail = (
                f"{quoted(place.schema.type)}: '{exceeded}': no further validation rules will be "
                f"run due to call cost exceeds limit for rule: {compiled.rule.shown}"
            )
            raise _OutOfBudget(_cause(compiled, place.steps, detail)) from exceeded
        message = self._message(compiled, variables)
        steps = (*place.steps, *compiled.field_steps)
        self._blame(compiled, steps, _with_value(compiled, place.new, message))

    def _run(self, program: Program, variables: dict[str, Any]) -> Any:
        """Run with the budget of one rule, and take what it spent from that of the object."""
        meter = Meter(min(RULE_BUDGET, self._meter.left))
        before = meter.left
        meter.spend(1)
        value = program.evaluate(variables, meter)
        self._meter.spend(before - meter.left)
        return value

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

    def _blame(self, compiled: CompiledRule, steps: Steps, detail: str) -> None:
        self.found.append(_cause(compiled, steps, detail))


def _is_due(compiled: CompiledRule, place: _Place, *, is_same: bool) -> bool:
    """Tell whether to ask a rule: of a change only when there is one, of what is as it was never.

    Objects that broke a rule before there was one can still be changed elsewhere.
    """
    if compiled.uses_old:
        return place.old is not ABSENT or compiled.rule.takes_optional_old
    return not is_same


def _variables(compiled: CompiledRule, value: Any, old: Any) -> dict[str, Any]:
    variables = {SELF: value}
    if compiled.rule.takes_optional_old:
        variables[OLD_SELF] = NONE if old is ABSENT else Optional(old, is_there=True)
    elif old is not ABSENT:
        variables[OLD_SELF] = old
    return variables


def _failure_text(compiled: CompiledRule, failed: EvaluationFailed) -> str:
    shown = compiled.rule.shown
    if str(failed).startswith("no such overload"):
        return (
            f"'{failed}': call arguments did not match a supported operator, function or macro "
            f"signature for rule: {shown}"
        )
    return f"{failed} evaluating rule: {shown}"


def _with_value(compiled: CompiledRule, value: Any, message: str) -> str:
    """Show what is wrong before saying why, unless it is too large to show."""
    if compiled.rule.reason not in ("", "FieldValueInvalid") or isinstance(value, dict | list):
        return message
    return f"{value_text(value)}: {message}"


_WORDS: Final = {
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
}


def _cause(compiled: CompiledRule, steps: Steps, detail: str) -> Cause:
    reason = compiled.rule.reason or "FieldValueInvalid"
    words = _WORDS.get(reason, "Invalid value")
    return Cause(reason, f"{words}: {detail}", field_text(steps))


def _below(place: _Place) -> Iterator[_Place]:
    """Yield the places below that have rules, each with what it was before if that can be said."""
    schema = place.schema
    if isinstance(place.new, dict):
        yield from _fields(place, cast("Object", place.new))
    elif isinstance(place.new, list) and schema.items is not None and has_rules(schema.items):
        befores = _elements_by_key(place)
        for index, element in enumerate(cast("list[Any]", place.new)):
            old = befores.get(_key_of(element, schema), ABSENT) if befores else ABSENT
            yield place.below(index, element, old, schema.items)


def _fields(place: _Place, held: Object) -> Iterator[_Place]:
    before = cast("Object", place.old) if isinstance(place.old, dict) else {}
    named, free = place.schema.properties, place.schema.additional
    for name in sorted(held):
        known = named.get(name, free)
        if known is not None and has_rules(known):
            step = name if name in named else Key(name)
            yield place.below(step, held[name], before.get(name, ABSENT), known)


def _elements_by_key(place: _Place) -> dict[Any, Any]:
    """Return what the elements were; only elements with keys of their own can be told apart."""
    if place.schema.list_type != "map" or not isinstance(place.old, list):
        return {}
    return {_key_of(each, place.schema): each for each in cast("list[Any]", place.old)}


def _key_of(element: Any, schema: Schema) -> tuple[str, ...]:
    held = cast("Object", element) if isinstance(element, dict) else {}
    return tuple(repr(held.get(key)) for key in schema.list_map_keys)
