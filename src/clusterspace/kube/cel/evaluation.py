"""Whether an object obeys the rules of its schema, by itself and as a change of the old one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from clusterspace.errors import Cause
from clusterspace.kube.causes import Key, Step, Steps, field_text, quoted, value_text
from clusterspace.kube.cel.programs import Program
from clusterspace.kube.cel.rules import OLD_SELF, SELF, CompiledRule, PlaceRules
from clusterspace.kube.cel.schema_types import read_value
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
    waiting = [_Place(new, old, schema, is_resource=True)]
    try:
        while waiting:
            place = waiting.pop()
            check.check_place(place)
            waiting.extend(reversed(list(_below(place))))
    except _OutOfBudget as ended:
        check.found.append(ended.cause)
    return tuple(check.found)


class _Rules:
    """Whether there are rules at or below a schema; worked out once, kept with it."""

    def __init__(self, schema: Schema) -> None:
        below = [*schema.properties.values(), schema.additional, schema.items]
        self.exist = bool(schema.raw.get("x-kubernetes-validations")) or any(
            has_rules(each) for each in below if each is not None
        )


def has_rules(schema: Schema) -> bool:
    """Tell whether there are rules at or below a schema."""
    cached = schema.memo.get(_Rules)
    if cached is None:
        cached = schema.memo[_Rules] = _Rules(schema)
    return bool(cached.exist)


@dataclass(frozen=True, slots=True)
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


def _below(place: _Place) -> Iterator[_Place]:
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
