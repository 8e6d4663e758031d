"""The entries of `x-kubernetes-validations`: compiled for their place, and checked for faults."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.causes import Key, Steps
from clusterspace.kube.cel.compiler import compile_expression
from clusterspace.kube.cel.programs import Program
from clusterspace.kube.cel.schema_types import type_of
from clusterspace.kube.cel.syntax import CompileFailed
from clusterspace.kube.cel.types import BOOL, DYN, STRING, Type, is_loose, optional_of
from clusterspace.kube.schemas.model import Schema

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
    """Return the faults of all rules, at every depth of a structural schema."""
    return tuple(_Place(Schema(raw_schema), path, is_resource=True).faults())


@dataclass(frozen=True, slots=True)
class _Place:
    """One place of a schema that may have rules."""

    schema: Schema
    path: str
    is_resource: bool = False
    uncorrelated: str = ""
    """The list above whose elements have no keys, so that there is no old value for any of them."""

    def faults(self) -> Iterator[Cause]:
        """Yield the faults here and everywhere below."""
        schema = self.schema
        raws = cast("list[Mapping[str, Any]]", schema.raw.get(_KEYWORD) or [])
        type_ = (type_of(schema, is_resource=self.is_resource) if raws else None) or DYN
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
            if compiled.uses_old and self.uncorrelated:
                detail = (
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within "
                    f"{self.uncorrelated}"
                )
                yield causes.invalid(f"{place}.rule", rule.text, detail)
            if rule.takes_optional_old and compiled.program is not None and not compiled.uses_old:
                detail = "may not be set if oldSelf is not used in rule"
                yield causes.invalid(f"{place}.optionalOldSelf", True, detail)
        yield from self._faults_below()

    def _faults_below(self) -> Iterator[Cause]:
        schema = self.schema

        for name, inner in sorted(schema.properties.items()):
            yield from self._below(f"properties[{name}]", inner).faults()
        free = schema.additional
        if free is not None and isinstance(schema.raw.get("additionalProperties"), dict):
            yield from self._below("additionalProperties", free).faults()
        if schema.items is not None:
            yield from self._below("items", schema.items).faults()

    def _below(self, way: str, schema: Schema) -> "_Place":
        uncorrelated = self.uncorrelated
        if way == "items" and self.schema.list_type != "map":
            uncorrelated = uncorrelated or self.path
        return _Place(schema, f"{self.path}.{way}", schema.is_embedded_resource, uncorrelated)


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
