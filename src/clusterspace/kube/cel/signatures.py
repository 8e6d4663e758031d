"""Functions declared in one line each: `string.charAt(int) -> string`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from clusterspace.kube.cel.types import Type, read_type, split_outside

Run: TypeAlias = (
    Callable[[], Any]
    | Callable[[Any], Any]
    | Callable[[Any, Any], Any]
    | Callable[[Any, Any, Any], Any]
    | Callable[[Any, Any, Any, Any], Any]
    | Callable[[Any, Any, Any, Any, Any], Any]
)


@dataclass(frozen=True, slots=True)
class Overload:
    """One way to call a function; a method has its receiver as the first argument."""

    args: tuple[Type, ...]
    result: Type
    run: Callable[..., Any]
    is_method: bool
    is_metered: bool
    """Whether the function pays for its own steps: it takes the meter before its arguments."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function by its name, with one of the ways to call it."""

    name: str
    overload: Overload


def method(signature: str, run: Run, *, metered: bool = False) -> Function:
    """Declare `receiver.name(args) -> result`."""
    head, args, result = _parts(signature)
    receiver, _, name = head.rpartition(".")
    types = (read_type(receiver), *args)
    return Function(name, Overload(types, result, run, is_method=True, is_metered=metered))


def function(signature: str, run: Run, *, metered: bool = False) -> Function:
    """Declare `name(args) -> result`; the name may have dots."""
    name, args, result = _parts(signature)
    return Function(name, Overload(args, result, run, is_method=False, is_metered=metered))


def _parts(signature: str) -> tuple[str, tuple[Type, ...], Type]:
    """Split at the parenthesis that opens the arguments, the last one outside of any other."""
    head, _, result = signature.partition(" -> ")
    depth, at = 0, len(head)
    while at > 0:
        at -= 1
        depth += (head[at] == ")") - (head[at] == "(")
        if depth == 0:
            break
    args = tuple(read_type(part) for part in split_outside(head[at + 1 : -1]))
    return head[:at], args, read_type(result)


def table_of(functions: Iterable[Function]) -> dict[str, tuple[Overload, ...]]:
    """Return the overloads by the names of their functions, in the order declared."""
    table: dict[str, tuple[Overload, ...]] = {}
    for declared in functions:
        table[declared.name] = (*table.get(declared.name, ()), declared.overload)
    return table
