"""Whether a CustomResourceDefinition's schema may have the rules it has."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.cel.rules import REASONS, CompiledRule, Rule, compile_rule, find_steps
from clusterspace.kube.cel.schema_types import type_of
from clusterspace.kube.cel.types import DYN
from clusterspace.kube.schemas.model import Schema

_KEYWORD: Final = "x-kubernetes-validations"


def check_rule_definitions(raw_schema: Mapping[str, Any], *, path: str) -> tuple[Cause, ...]:
    """Return what is wrong with the rules, at every depth of a structural schema."""
    return tuple(_Place(Schema(raw_schema), path, is_resource=True).faults())


@dataclass(frozen=True, slots=True)
class _Place:
    schema: Schema
    path: str
    is_resource: bool = False
    uncorrelated: str = ""
    """The list above whose elements cannot be told apart, so that nobody knows what one was."""

    def faults(self) -> Iterator[Cause]:
        """Yield what is wrong here and everywhere below."""
        raws = cast("list[Mapping[str, Any]]", self.schema.raw.get(_KEYWORD) or [])
        seen = type_of(self.schema, is_resource=self.is_resource) if raws else None
        for index, raw in enumerate(raws):
            rule, place = Rule.read(raw), f"{self.path}.{_KEYWORD}[{index}]"
            yield from _text_faults(rule, place, self.schema)
            if rule.text.strip():
                compiled = compile_rule(rule, seen or DYN, self.schema)
                yield from self._program_faults(compiled, place)
        yield from self._faults_below()

    def _faults_below(self) -> Iterator[Cause]:
        schema = self.schema
        for name, held in sorted(schema.properties.items()):
            yield from self._below(f"properties[{name}]", held).faults()
        if schema.additional is not None and isinstance(
            schema.raw.get("additionalProperties"), dict
        ):
            yield from self._below("additionalProperties", schema.additional).faults()
        if schema.items is not None:
            yield from self._below("items", schema.items).faults()

    def _below(self, way: str, held: Schema) -> "_Place":
        uncorrelated = self.uncorrelated
        if way == "items" and self.schema.list_type != "map":
            uncorrelated = uncorrelated or self.path
        return _Place(held, f"{self.path}.{way}", held.is_embedded_resource, uncorrelated)

    def _program_faults(self, compiled: CompiledRule, place: str) -> Iterator[Cause]:
        rule = compiled.rule
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
    if rule.reason and rule.reason not in REASONS:
        yield causes.not_supported(f"{place}.reason", rule.reason, REASONS)
    yield from _path_faults(rule.field_path, f"{place}.fieldPath", schema)


def _path_faults(field_path: str, place: str, schema: Schema) -> Iterator[Cause]:
    if field_path and not field_path.strip():
        yield causes.invalid(place, field_path, "must be non-empty if specified")
    if field_path and not find_steps(field_path, schema):
        yield causes.invalid(place, field_path, "must be a valid path")


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
