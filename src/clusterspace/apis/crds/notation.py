"""The notation our kinds are written in: one line for each kind, column, rule and field.

    kind Work work.karmada.io/v1alpha1 Namespaced works short=wk status storage
    column AGE date .metadata.creationTimestamp
    rule `size(self.metadata.name) < 64`
      spec! {}
        replicas i default=1 minimum=0
        conditions []Condition list=map:type

    type Condition
      message! s maxLength=32768

A field is its name (`!` when it is required), its type, and what else is known of it. Types are
`s` string, `i` integer, `b` boolean, `{}` object with the fields below, `any`, `quantity`,
`int-or-string`, or the name of a `type`; `[]` makes a list of it and `map[…]` a map.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_RULE: Final = re.compile(r" rule `([^`]*)`")


@dataclass(frozen=True, slots=True)
class FieldLine:
    """One field with those below it."""

    name: str
    is_required: bool
    type: str
    facts: dict[str, str]
    rules: tuple[str, ...]
    fields: tuple["FieldLine", ...]


@dataclass(frozen=True, slots=True)
class ColumnLine:
    """One printer column."""

    name: str
    type: str
    path: str
    is_wide: bool


@dataclass(frozen=True, slots=True)
class KindBlock:
    """One version of a kind."""

    kind: str
    group: str
    version: str
    scope: str
    plural: str
    facts: dict[str, str]
    columns: tuple[ColumnLine, ...]
    rules: tuple[str, ...]
    fields: tuple[FieldLine, ...]


@dataclass(frozen=True, slots=True)
class TypeBlock:
    """Fields that several kinds share, by a name."""

    name: str
    fields: tuple[FieldLine, ...]


def read_blocks(text: str) -> Iterator[KindBlock | TypeBlock]:
    """Yield the blocks of a file in the order written."""
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if lines:
            yield _read_block(lines)


def _read_block(lines: list[str]) -> KindBlock | TypeBlock:
    word, *rest = lines[0].split()
    own = [line for line in lines[1:] if not line.startswith(" ")]
    fields = _read_fields([line for line in lines[1:] if line.startswith(" ")], indent=2)
    if word == "type":
        return TypeBlock(rest[0], fields)
    if word != "kind":
        raise ValueError(f"a block begins with 'kind' or 'type', not with {lines[0]!r}")
    kind, group_version, scope, plural, *facts = rest
    group, _, version = group_version.partition("/")
    return KindBlock(
        kind=kind,
        group=group,
        version=version,
        scope=scope,
        plural=plural,
        facts=_read_facts(facts),
        columns=tuple(_read_column(line) for line in own if line.startswith("column ")),
        rules=tuple(rule for line in own for rule in _RULE.findall(f" {line}")),
        fields=fields,
    )


def _read_column(line: str) -> ColumnLine:
    _, name, column_type, path = line.split(" ", 3)
    return ColumnLine(name, column_type, path.removesuffix(" wide"), path.endswith(" wide"))


def _read_fields(lines: list[str], indent: int) -> tuple[FieldLine, ...]:
    fields: list[FieldLine] = []
    while lines:
        end = next((i for i, line in enumerate(lines) if i and _indent(line) <= indent), len(lines))
        fields.append(_read_field(lines[0].strip(), _read_fields(lines[1:end], indent + 2)))
        lines = lines[end:]
    return tuple(fields)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _read_field(line: str, fields: tuple[FieldLine, ...]) -> FieldLine:
    rules = tuple(_RULE.findall(line))
    name, field_type, *facts = _RULE.sub("", line).split()
    return FieldLine(
        name=name.removesuffix("!"),
        is_required=name.endswith("!"),
        type=field_type,
        facts=_read_facts(facts),
        rules=rules,
        fields=fields,
    )


def _read_facts(words: list[str]) -> dict[str, str]:
    """Read `default=3 embedded` into its facts; one without a value is there, and that is all."""
    pairs = (word.partition("=") for word in words)
    return {name: value for name, _, value in pairs}
