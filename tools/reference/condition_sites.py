"""Find in the sources every condition we set and every event we record, without running them.

A type or a reason is followed to its text: a literal, a constant here or where it is imported
from, either side of a conditional, what callers pass for a parameter. What cannot be followed is
said where it is found, so that nothing is passed over in silence.
"""

import ast
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, TypeAlias

SOURCE: Final = Path(__file__).resolve().parents[2] / "src"
_WORDS: Final = re.compile(r"Condition\(|\.record\(|\"reason\"")
_CONDITION_KEYS: Final = frozenset({"type", "status", "reason"})

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Indirect: TypeAlias = Mapping[tuple[str, str], tuple[str, ...]]
"""Where the texts of an expression are, for a module and an expression that cannot be followed.

`module:NAME` is a constant, or an Enum all of whose values count; a word without a colon must be
a text in the same module.
"""


@dataclass(frozen=True, slots=True)
class Site:
    """One place that sets a condition (with types) or records an event (without)."""

    module: str
    is_event: bool
    types: frozenset[str]
    reasons: frozenset[str]
    statuses: frozenset[str] = frozenset()
    """True, False or Unknown, as far as that is decided here."""
    written: frozenset[str] = frozenset()
    """Its expressions, as they are written."""
    unknown: tuple[str, ...] = ()
    """Expressions that could not be followed, as they are written."""


def find_sites(indirect: Indirect) -> list[Site]:
    """Return every site in the sources."""
    return [site for each in _modules() for site in each.sites(indirect)]


@cache
def _modules() -> "list[_Module]":
    """Return the modules worth reading: whoever makes a condition or an event has these words."""
    paths = sorted(SOURCE.rglob("*.py"))
    return [_Module(path) for path in paths if _WORDS.search(path.read_text())]


class _Module:
    """One source file: its tree, and what its names stand for."""

    def __init__(self, path: Path) -> None:
        self.name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        self._nodes = list(ast.walk(ast.parse(path.read_text())))
        self._assigned = dict(_assignments(self._nodes))
        self._calls = [each for each in self._nodes if isinstance(each, ast.Call)]

    def sites(self, indirect: Indirect) -> Iterator[Site]:
        """Yield the sites of this module."""
        functions = [each for each in self._nodes if isinstance(each, Function)]
        for node in self._nodes:
            found = _condition_of(node) or _event_of(node)
            if found is not None:
                around = next((each for each in reversed(functions) if _holds(each, node)), None)
                for each in self._as_called(found, around):
                    yield self._site(each, indirect)

    def _as_called(self, found: "_Found", function: Function | None) -> "list[_Found]":
        """Return the site once for each call of its function, with what is passed there."""
        names = _parameters(function) if function is not None else []
        if function is None or not any(_is_named(each, names) for each in found.expressions):
            return [found]
        calls = [
            {
                **dict(zip(names, call.args, strict=False)),
                **{str(each.arg): each.value for each in call.keywords},
            }
            for call in self._calls
            if ast.unparse(call.func).removeprefix("self.") == function.name
        ]
        return [found.with_passed(each) for each in calls] or [found]

    def _site(self, found: "_Found", indirect: Indirect) -> Site:
        unknown: list[str] = []

        def read(expression: ast.expr) -> frozenset[str]:
            written = ast.unparse(expression)
            if (self.name, written) in indirect:
                return frozenset(self._referred(indirect[self.name, written]))
            texts = self._texts(expression)
            if texts is None:
                unknown.append(written)
            return (texts or frozenset()) - {""}

        statuses = found.status and self._texts(found.status)
        return Site(
            module=self.name,
            is_event=found.type is None,
            types=frozenset() if found.type is None else read(found.type),
            reasons=read(found.reason),
            statuses=statuses or frozenset(),
            written=frozenset(map(ast.unparse, found.expressions)),
            unknown=tuple(unknown),
        )

    def _texts(self, expression: ast.expr) -> frozenset[str] | None:
        """Return the texts an expression may be, or None when that cannot be said."""
        match expression:
            case ast.Constant(value=str(text)):
                return frozenset((text,))
            case ast.IfExp(body=body, orelse=other):
                first, second = self._texts(body), self._texts(other)
                return None if first is None or second is None else first | second
            case ast.Name() | ast.Attribute():
                return self._named(ast.unparse(expression))
            case _:
                return None

    def _named(self, name: str) -> frozenset[str] | None:
        held: object = import_module(self.name)
        for part in name.split("."):
            held = getattr(held, part, None)
        if isinstance(held, str):
            return frozenset((held,))
        assigned = self._assigned.get(name)
        return None if assigned is None else self._texts(assigned)

    def _referred(self, references: Iterable[str]) -> Iterator[str]:
        literals = {each.value for each in self._nodes if isinstance(each, ast.Constant)}
        for each in references:
            module_name, colon, name = each.partition(":")
            if not colon:
                if each not in literals:
                    raise LookupError(f"{self.name} has no text {each!r} any more")
                yield each
                continue
            held = getattr(import_module(module_name), name)
            if isinstance(held, type) and issubclass(held, Enum):
                yield from (str(member.value) for member in held)
            else:
                yield str(held)


@dataclass(frozen=True, slots=True)
class _Found:
    """The expressions of a condition, or of an event, which has no type."""

    reason: ast.expr
    type: ast.expr | None = None
    status: ast.expr | None = None

    @property
    def expressions(self) -> list[ast.expr]:
        """Those there are."""
        return [each for each in (self.type, self.status, self.reason) if each is not None]

    def with_passed(self, passed: Mapping[str, ast.expr]) -> "_Found":
        """Return the same with parameters replaced by what is passed for them."""

        def replaced(expression: ast.expr) -> ast.expr:
            named = _is_named(expression, passed)
            return passed[ast.unparse(expression)] if named else expression

        return _Found(
            replaced(self.reason),
            self.type and replaced(self.type),
            self.status and replaced(self.status),
        )


def _condition_of(node: ast.AST) -> _Found | None:
    match node:
        case ast.Call(func=ast.Name(id="Condition"), args=[kind, status, reason, *_]):
            return _Found(reason, kind, status)
        case ast.Dict(keys=keys, values=values):
            held = {
                key.value: value
                for key, value in zip(keys, values, strict=True)
                if isinstance(key, ast.Constant)
            }
            if not held.keys() >= _CONDITION_KEYS:
                return None
            return _Found(held["reason"], held["type"], held["status"])
        case _:
            return None


def _event_of(node: ast.AST) -> _Found | None:
    match node:
        case ast.Call(
            func=ast.Attribute(value=recorder, attr="record" | "reporting_failure"),
            args=[_, reason, *_],
        ):
            return _Found(reason) if ast.unparse(recorder).endswith("events") else None
        case _:
            return None


def _assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case _:
                continue


def _parameters(function: Function) -> list[str]:
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    return names[1:] if names[:1] == ["self"] else names


def _is_named(expression: ast.expr, names: Container[str]) -> bool:
    return isinstance(expression, ast.Name) and expression.id in names


def _holds(function: Function, node: ast.AST) -> bool:
    first, last = function.lineno, function.end_lineno or function.lineno
    return first <= getattr(node, "lineno", 0) <= last
