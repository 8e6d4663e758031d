"""What a rule may cost at most, from its text and its schema, before there is any object.

A rule runs on every write of every user, and what it costs depends on what they write. So a
definition is refused when the largest object that fits into a request could make a rule too dear:
its author is told to bound lists, maps and texts, instead of somebody else later that their object
is too large for the rules. Costs are counted in Kubernetes' units, so that a definition which a
kube-apiserver takes is taken here:

    self.names.all(n, n.size() < 10)   with maxItems: 100

    names     1 + 1       the variable, and the field
    all       100 rounds of 3 for the loop and 2 for `n.size()` and 1 for `<`, and 1 at the end

A text, list or map without a bound has as many parts as fit into a request. What nothing is known
of is as large as can be.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from clusterspace.kube.cel.parser import parse
from clusterspace.kube.cel.schema_types import escaped
from clusterspace.kube.cel.syntax import (
    Call,
    Has,
    Junction,
    ListLiteral,
    Literal,
    Macro,
    MapLiteral,
    Name,
    Node,
    Select,
    StructLiteral,
)
from clusterspace.kube.schemas.model import Schema

UNBOUNDED: Final = 2**64 - 1
"""As large as can be; sums and products stop there."""

_REQUEST_BYTES: Final = 3 * 1024 * 1024
_PER_CHARACTER: Final = 0.1
_PER_PATTERN_CHARACTER: Final = 0.25
_LIST, _MAP = 10, 30
"""What making a list or a map costs, whatever is in it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of the values at a place: how large, and what is in them."""

    kind: str
    most: int = 0
    """The most characters, elements or entries; nothing for what has no parts."""
    smallest: int = 1
    """The fewest bytes of JSON that such a value takes."""
    element: "Shape | None" = None
    fields: "Mapping[str, Shape]" = field(default_factory=dict[str, "Shape"])


_SCALAR: Final = Shape("scalar", most=1)
_TEXT: Final = Shape("text", most=_REQUEST_BYTES - 2, smallest=2)
_KEY: Final = Shape("text")
"""Kubernetes counts the keys of maps as empty."""

UNKNOWN: Final = Shape("unknown", most=UNBOUNDED)
_FORMATS: Final = {
    "duration": Shape("scalar", most=32, smallest=3),
    "date": Shape("scalar", most=12, smallest=12),
    "date-time": Shape("scalar", most=30, smallest=22),
}
_NUMBERS: Final = {"boolean": 4, "number": 1, "integer": 1}


def shape_of(schema: Schema, *, is_resource: bool = False) -> Shape | None:
    """Return the shape of the values of a schema; None when expressions cannot see them."""
    raw = schema.raw
    longest = raw.get("maxLength")
    # A character may take four bytes, and requests are measured in those.
    text_most = max(0, int(longest)) * 4 if longest is not None else _REQUEST_BYTES - 2
    if schema.is_int_or_string:
        return Shape("unknown", most=text_most)
    if schema.type == "string":
        known = _FORMATS.get(str(raw.get("format") or ""))
        if known is not None:
            return known
        if raw.get("enum") and longest is None:
            text_most = max(len(str(each)) for each in raw["enum"])
        return Shape("text", most=text_most, smallest=2)
    if schema.type == "array":
        items = schema.items
        element = items and shape_of(items, is_resource=items.is_embedded_resource)
        if not element:
            return None
        fitting = (_REQUEST_BYTES - 2) // (element.smallest + 1)
        most = raw.get("maxItems")
        return Shape("list", fitting if most is None else max(0, int(most)), 2, element)
    if schema.type != "object":
        smallest = _NUMBERS.get(schema.type)
        return None if smallest is None else Shape("scalar", smallest=smallest)
    free = schema.additional
    if free is not None and not is_resource:
        value = shape_of(free, is_resource=free.is_embedded_resource)
        if value is None:
            return None
        fitting = (_REQUEST_BYTES - 2) // (value.smallest + 6)
        most = raw.get("maxProperties")
        return Shape("map", fitting if most is None else max(0, int(most)), 2, value)
    return _object_shape(schema, is_resource=is_resource)


def _object_shape(schema: Schema, *, is_resource: bool) -> Shape:
    required = frozenset[str](schema.raw.get("required") or ())
    fields: dict[str, Shape] = {}
    smallest = 2
    for name, inner in schema.properties.items():
        shape = shape_of(inner, is_resource=inner.is_embedded_resource)
        if shape is None:
            continue
        fields[escaped(name) or ""] = fields[name] = shape
        if name in required and not inner.has_default:
            smallest += len(name) + shape.smallest + 4
    if is_resource:
        named = {"name": _TEXT, "generateName": _TEXT}
        metadata = Shape("object", fields={**named, **_fields_of(fields.get("metadata"))})
        fields |= {"kind": _TEXT, "apiVersion": _TEXT, "metadata": metadata}
    return Shape("object", smallest=smallest, fields=fields)


def _fields_of(shape: Shape | None) -> Mapping[str, Shape]:
    return {} if shape is None else shape.fields


def occurrences(shape: Shape) -> int:
    """Return how many values of a shape fit into one request, where no list above is bounded."""
    return _REQUEST_BYTES // (shape.smallest + 1)


def times(*factors: int) -> int:
    """Return a product that stops where Kubernetes' does."""
    return min(math.prod(factors), UNBOUNDED)


def estimate(text: str, variables: Mapping[str, Shape]) -> int:
    """Return what evaluating an expression that compiles may cost at most."""
    return _Estimator(variables).estimate(parse(text)).cost


@dataclass(frozen=True, slots=True)
class _Estimated:
    cost: int
    shape: Shape = UNKNOWN


def _by_size(size: int, factor: float) -> int:
    return UNBOUNDED if size >= UNBOUNDED else min(math.ceil(size * factor), UNBOUNDED)


class _Estimator:
    def __init__(self, variables: Mapping[str, Shape]) -> None:
        self._variables = dict(variables)

    def estimate(self, node: Node) -> _Estimated:
        match node:
            case Literal():
                size = len(node.value) if isinstance(node.value, str | bytes) else 1
                kind = "text" if isinstance(node.value, str | bytes) else "scalar"
                return _Estimated(0, Shape(kind, most=size))
            case Name():
                return _Estimated(1, self._variables.get(node.name, UNKNOWN))
            case Has():
                return _Estimated(self.estimate(node.operand).cost, _SCALAR)
            case Select():
                return self._select(node)
            case Junction():
                # Every term may have to be looked at; the signs cost nothing.
                return _Estimated(self._sum(node.terms), _SCALAR)
            case ListLiteral():
                elements = [self.estimate(each) for each in node.elements]
                element = _largest([each.shape for each in elements])
                shape = Shape("list", most=len(elements), element=element)
                return _Estimated(self._total(elements, _LIST), shape)
            case MapLiteral():
                parts = [self.estimate(part) for entry in node.entries for part in entry]
                value = _largest([each.shape for each in parts[1::2]])
                shape = Shape("map", most=len(node.entries), element=value)
                return _Estimated(self._total(parts, _MAP), shape)
            case StructLiteral():
                parts = [self.estimate(value) for _, _, value in node.fields]
                return _Estimated(self._total(parts, _MAP), UNKNOWN)
            case Macro():
                return self._macro(node)
            case Call():
                return self._call(node)

    def _select(self, node: Select) -> _Estimated:
        operand = self.estimate(node.operand)
        shape = operand.shape
        cost = operand.cost + (1 if shape.kind in ("object", "map") or node.is_optional else 0)
        if shape.kind == "map" and shape.element is not None:
            return _Estimated(cost, shape.element)
        return _Estimated(cost, shape.fields.get(node.field, UNKNOWN))

    def _sum(self, nodes: tuple[Node, ...]) -> int:
        return self._total([self.estimate(each) for each in nodes], 0)

    def _total(self, parts: "list[_Estimated]", base: int) -> int:
        return min(base + sum(part.cost for part in parts), UNBOUNDED)

    # -- walks through lists and maps: what a round costs, as often as there can be one -----------

    def _macro(self, node: Macro) -> _Estimated:
        operand = self.estimate(node.operand)
        shape = operand.shape
        if node.kind in ("optMap", "optFlatMap", "bind"):
            bound = dict.fromkeys(node.variables, shape)
            steps = self._within(bound, node.steps)
            return _Estimated(self._total([operand, *steps], _LIST), steps[-1].shape)
        element = shape.element or UNKNOWN
        single = element if shape.kind != "map" else _KEY
        values = (single,) if len(node.variables) == 1 else (_KEY, element)
        steps = self._within(dict(zip(node.variables, values, strict=False)), node.steps)
        inside = min(sum(step.cost for step in steps), UNBOUNDED)
        # A round is the condition of the loop, and the step that leads to its result.
        before, each_round, after = _LOOPS.get(node.kind, (_LIST, 13, 1))
        looped = times(shape.most, min(each_round + inside, UNBOUNDED))
        cost = min(operand.cost + before + looped + after, UNBOUNDED)
        if node.kind in ("map", "transformList"):
            return _Estimated(cost, Shape("list", most=shape.most, element=steps[-1].shape))
        if node.kind in ("filter", "sortBy"):
            return _Estimated(cost, Shape("list", most=shape.most, element=single))
        if node.kind == "transformMap":
            return _Estimated(cost, Shape("map", most=shape.most, element=steps[-1].shape))
        return _Estimated(cost, _SCALAR)

    def _within(self, bound: Mapping[str, Shape], nodes: tuple[Node, ...]) -> "list[_Estimated]":
        outer = self._variables
        self._variables = {**outer, **bound}
        try:
            return [self.estimate(each) for each in nodes]
        finally:
            self._variables = outer

    # -- functions and operators -------------------------------------------------------------------

    def _call(self, node: Call) -> _Estimated:
        target = None if node.target is None else self.estimate(node.target)
        args = [self.estimate(each) for each in node.args]
        given = [*([target] if target else []), *args]
        sizes = [each.shape.most for each in given]
        shape = _RESULTS.get(node.function, UNKNOWN)
        own = 1
        match node.function, given:
            case "_?_:_", [condition, chosen, other]:
                cost = condition.cost + max(chosen.cost, other.cost)
                return _Estimated(min(cost, UNBOUNDED), _largest([chosen.shape, other.shape]))
            case "_&&_" | "_||_", _:
                own, shape = 0, _SCALAR
            case "_[_]", [whole, _]:
                shape = whole.shape.element or UNKNOWN
            case "dyn", [value]:
                shape = value.shape
            case "_+_", [left, right] if "scalar" not in (left.shape.kind, right.shape.kind):
                most = min(left.shape.most + right.shape.most, UNBOUNDED)
                is_list = "list" in (left.shape.kind, right.shape.kind)
                own = 1 if is_list else _by_size(most, _PER_CHARACTER)
                element = _largest([each.shape.element or UNKNOWN for each in (left, right)])
                kind = "list" if is_list else "text"
                shape = Shape(kind, most=most, element=element if is_list else None)
            case "_==_" | "_!=_", [_, _]:
                own, shape = _by_size(min(sizes), _PER_CHARACTER), _SCALAR
            case "_<_" | "_<=_" | "_>_" | "_>=_", [left, right]:
                is_text = "text" in (left.shape.kind, right.shape.kind)
                own = _by_size(min(sizes), _PER_CHARACTER) if is_text else 1
                shape = _SCALAR
            case "@in" | "_in_" | "in", [_, held]:
                own = 1 if held.shape.kind == "map" else held.shape.most
                shape = _SCALAR
            case "matches" | "find" | "findAll", [text, pattern, *_]:
                read = _by_size(min(text.shape.most + 1, UNBOUNDED), _PER_CHARACTER)
                own = times(read, _by_size(pattern.shape.most, _PER_PATTERN_CHARACTER))
                shape = _PARTS_OF.get(node.function, lambda _: _SCALAR)(text.shape)
            case "contains", [text, part]:
                own = times(*(_by_size(each.shape.most, _PER_CHARACTER) for each in (text, part)))
                shape = _SCALAR
            case "startsWith" | "endsWith", [_, part]:
                own, shape = _by_size(part.shape.most, _PER_CHARACTER), _SCALAR
            case function, [text, *_] if function in _READ_THROUGH:
                # Those that make something new of a text read it and write it.
                is_rewritten = function in ("replace", "split")
                own = _by_size(text.shape.most, _PER_CHARACTER * (2 if is_rewritten else 1))
                shape = _PARTS_OF.get(function, lambda read: read)(text.shape)
            case function, [elements, *_] if function in _WALKED_THROUGH:
                each = elements.shape.element or UNKNOWN
                compared = max(1, _by_size(each.most, _PER_CHARACTER)) if each.kind == "text" else 1
                own = times(elements.shape.most, compared)
                shape = each if function in ("min", "max", "sum") else _SCALAR
            case _:
                pass
        return _Estimated(self._total(given, own), shape)


def _largest(shapes: list[Shape]) -> Shape:
    return max(shapes, key=lambda shape: shape.most) if shapes else Shape("unknown")


def _split(text: Shape) -> Shape:
    return Shape("list", most=text.most, element=Shape("text", most=text.most))


_LOOPS: Final[Mapping[str, tuple[int, int, int]]] = {
    "all": (0, 3, 1),
    "exists": (0, 4, 1),
    "exists_one": (0, 2, 2),
    "existsOne": (0, 2, 2),
    "map": (_LIST, 12, 1),
    "filter": (_LIST, 13, 1),
}
"""Before a loop, in each round beside the expression, and after it."""

_READ_THROUGH: Final = frozenset(
    {
        "cidr", "ip", "isCIDR", "isIP", "isQuantity", "isSemver", "isURL", "join", "lowerAscii",
        "quantity", "replace", "semver", "split", "substring", "trim", "upperAscii", "url",
    }
)  # fmt: skip
_WALKED_THROUGH: Final = frozenset({"indexOf", "isSorted", "lastIndexOf", "max", "min", "sum"})

_PARTS_OF: Final[Mapping[str, Callable[[Shape], Shape]]] = {
    "findAll": _split,
    "split": _split,
    "find": lambda text: text,
    "join": lambda _: UNKNOWN,
    "isURL": lambda _: _SCALAR,
    "isIP": lambda _: _SCALAR,
    "isCIDR": lambda _: _SCALAR,
    "isQuantity": lambda _: _SCALAR,
    "isSemver": lambda _: _SCALAR,
}
_RESULTS: Final[Mapping[str, Shape]] = dict.fromkeys(
    (
        "size", "int", "uint", "double", "bool", "!_", "-_", "_-_", "_*_", "_/_", "_%_", "_+_",
        "duration", "timestamp", "type",
    ),
    _SCALAR,
)  # fmt: skip
