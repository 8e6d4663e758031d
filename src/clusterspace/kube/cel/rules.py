"""One entry of `x-kubernetes-validations`, compiled for the place it stands in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from clusterspace.kube.cel.compiler import compile_expression
from clusterspace.kube.cel.faults import CompileFailed
from clusterspace.kube.cel.programs import Program
from clusterspace.kube.cel.schema_types import type_of
from clusterspace.kube.cel.types import BOOL, DYN, STRING, Type, is_loose, optional_of
from clusterspace.kube.field_paths import Key, Steps
from clusterspace.kube.schemas.model import Schema

if TYPE_CHECKING:
    from clusterspace.kube.objects import Object

SELF: Final = "self"
OLD_SELF: Final = "oldSelf"

REASONS: Final = (
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
        """What stands for the rule when it could not be asked."""
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
        made = schema.memo.get(cls)
        if made is None:
            made = schema.memo[cls] = cls(compile_rules(schema, is_resource=is_resource))
        return made


def compile_rules(schema: Schema, *, is_resource: bool) -> list[CompiledRule]:
    """Compile the rules of one place of a schema."""
    raws = cast("list[Object]", schema.raw.get("x-kubernetes-validations") or [])
    if not raws:
        return []
    seen = type_of(schema, is_resource=is_resource) or DYN
    return [compile_rule(Rule.read(raw), seen, schema) for raw in raws]


def compile_rule(rule: Rule, seen: Type, schema: Schema) -> CompiledRule:
    """Compile a rule about values of a type."""
    variables = {SELF: seen, OLD_SELF: optional_of(seen) if rule.takes_optional_old else seen}
    steps = find_steps(rule.field_path, schema) or ()
    try:
        program = compile_expression(rule.text, variables)
    except CompileFailed as failed:
        return CompiledRule(rule, fault=f"compilation failed: {failed}")
    if program.type != BOOL and not is_loose(program.type):
        return CompiledRule(rule, fault="cel expression must evaluate to a bool")
    message, why = _message_program(rule, variables)
    return CompiledRule(rule, program, message, steps, message_fault=why)


def _message_program(rule: Rule, variables: Mapping[str, Type]) -> tuple[Program | None, str]:
    if not rule.message_expression.strip():
        return None, ""
    try:
        program = compile_expression(rule.message_expression, variables)
    except CompileFailed as failed:
        return None, f"messageExpression compilation failed: {failed}"
    if program.type != STRING and not is_loose(program.type):
        return None, "messageExpression must evaluate to a string"
    return program, ""


def find_steps(field_path: str, schema: Schema) -> Steps | None:
    """Return the way from a place to the field a rule blames; None when there is no such field."""
    steps: Steps = ()
    at, held = 0, schema
    while at < len(field_path):
        found = _PATH_STEP.match(field_path, at)
        inner = held.field(found["name"] or found["key"]) if found else None
        if found is None or inner is None:
            return None
        name = found["name"] or found["key"]
        steps = (*steps, name if name in held.properties else Key(name))
        at, held = found.end(), inner
    return steps
