"""Find in the sources every condition we set and every event we record, without running them.

A type or a reason is followed to its text: a literal, a constant here or where it is imported
from, either side of a conditional. What cannot be followed is said where it is found, so that
nothing is passed over in silence.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).resolve().parents[2] / "src"
_CONDITION_KEYS: Final = frozenset({"type", "status", "reason"})


@dataclass(frozen=True, slots=True)
class Site:
    """One place that sets a condition (with a type) or records an event (without one)."""

    module: str
    types: frozenset[str]
    reasons: frozenset[str]
    unknown: tuple[str, ...] = ()
    """Expressions that could not be followed, as they are written."""

    @property
    def is_event(self) -> bool:
        """Whether an event is recorded here."""
        return not self.types


class _Module:
    """One source file: its tree, and what its names stand for."""

    def __init__(self, path: Path) -> None:
        self.name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        self.tree = ast.parse(path.read_text())
        self.locals = dict(_assignments(ast.walk(self.tree)))

    def texts(self, expression: ast.expr) -> frozenset[str] | None:
        """Return the texts an expression may be, or None when that cannot be said."""
        match expression:
            case ast.Constant(value=str(text)):
                return frozenset((text,))
            case ast.IfExp(body=body, orelse=other):
                first, second = self.texts(body), self.texts(other)
                return None if first is None or second is None else first | second
            case ast.Name() | ast.Attribute():
                return self._named(ast.unparse(expression), expression)
            case _:
                return None

    def _named(self, name: str, expression: ast.expr) -> frozenset[str] | None:
        constant = _constant(self.name, name)
        if constant is not None:
            return constant
        assigned = self.locals.get(name)
        if assigned is None or assigned is expression:
            return None
        return self.texts(assigned)


def find_sites(indirect: Mapping[tuple[str, str], tuple[str, ...]]) -> list[Site]:
    """Return every site in the sources.

    `indirect` says for a module and an expression that cannot be followed where its texts are:
    `module:NAME` for a constant, or for an Enum, all of whose values count.
    """
    found: list[Site] = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        if "reason" in text or "Condition(" in text or ".record(" in text:
            found.extend(_sites_in(_Module(path), indirect))
    return found


def _sites_in(
    module: _Module, indirect: Mapping[tuple[str, str], tuple[str, ...]]
) -> Iterator[Site]:
    for node in ast.walk(module.tree):
        expressions = _condition_of(node)
        if expressions is not None:
            yield _site(module, expressions[0], expressions[1], indirect)
        elif (reason := _event_reason(node)) is not None:
            yield _site(module, None, reason, indirect)


def _site(
    module: _Module,
    kind: ast.expr | None,
    reason: ast.expr,
    indirect: Mapping[tuple[str, str], tuple[str, ...]],
) -> Site:
    unknown: list[str] = []

    def read(expression: ast.expr) -> frozenset[str]:
        written = ast.unparse(expression)
        if (module.name, written) in indirect:
            return frozenset(_referred(indirect[module.name, written]))
        texts = module.texts(expression)
        if texts is None:
            unknown.append(written)
            return frozenset()
        return texts - {""}

    types = frozenset[str]() if kind is None else read(kind)
    return Site(module.name, types, read(reason), tuple(unknown))


def _condition_of(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """Return type and reason of a condition that is made here."""
    match node:
        case ast.Call(func=ast.Name(id="Condition"), args=[kind, _, reason, *_]):
            return kind, reason
        case ast.Dict(keys=keys, values=values):
            held = {
                key.value: value
                for key, value in zip(keys, values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            }
            if held.keys() >= _CONDITION_KEYS:
                return held["type"], held["reason"]
    return None


def _event_reason(node: ast.AST) -> ast.expr | None:
    match node:
        case ast.Call(func=ast.Attribute(value=recorder, attr="record"), args=[_, reason, *_]):
            return reason if ast.unparse(recorder).endswith("events") else None
    return None


def _assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value


def _constant(module_name: str, name: str) -> frozenset[str] | None:
    """Return the text a module's global name stands for, if it does."""
    held: object = import_module(module_name)
    for part in name.split("."):
        held = getattr(held, part, None)
    return frozenset((held,)) if isinstance(held, str) else None


def _referred(references: Iterable[str]) -> Iterator[str]:
    for each in references:
        module_name, _, name = each.partition(":")
        held = getattr(import_module(module_name), name)
        if isinstance(held, type) and issubclass(held, Enum):
            yield from (str(member.value) for member in held)
        else:
            yield str(held)
