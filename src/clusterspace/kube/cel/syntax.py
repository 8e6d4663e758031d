"""The syntax tree of an expression; every node knows where it was written, and so does a fault."""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from clusterspace.kube.cel.types import Type

AND: Final = "_&&_"
OR: Final = "_||_"
CHOICE: Final = "_?_:_"
INDEX: Final = "_[_]"


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """Something wrong at a place of an expression; `at` counts characters from zero."""

    at: int
    message: str

    def shown_in(self, text: str) -> str:
        """Return the fault with the line it is in and a mark below the place."""
        before = text[: self.at]
        line_number = before.count("\n") + 1
        column = self.at - (before.rfind("\n") + 1)
        line = text.split("\n")[line_number - 1]
        place = f"<input>:{line_number}:{column + 1}"
        return f"ERROR: {place}: {self.message}\n | {line}\n | {'.' * column}^"


class CompileFailed(Exception):
    """The expression is not one, or cannot be about these variables."""

    def __init__(self, text: str, faults: list[Fault]) -> None:
        self.faults = sorted(set(faults))
        super().__init__("\n".join(fault.shown_in(text) for fault in self.faults))


@dataclass(frozen=True, slots=True)
class Literal:
    """A value written out."""

    value: Any
    type: Type
    at: int


@dataclass(frozen=True, slots=True)
class Name:
    """A variable."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Select:
    """A field: `operand.field`, or `operand.?field` for one that may be missing."""

    operand: "Node"
    field: str
    at: int
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Has:
    """Whether a field is there: `has(operand.field)`."""

    operand: "Node"
    field: str
    at: int


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an operator; `target` is what a method is called on."""

    function: str
    target: "Node | None"
    args: tuple["Node", ...]
    at: int


@dataclass(frozen=True, slots=True)
class Junction:
    """All of the terms, or any of them; `signs` has the places of the signs between."""

    function: str
    terms: tuple["Node", ...]
    signs: tuple[int, ...]
    at: int


@dataclass(frozen=True, slots=True)
class ListLiteral:
    """A list written out."""

    elements: tuple["Node", ...]
    at: int


@dataclass(frozen=True, slots=True)
class MapLiteral:
    """A map written out."""

    entries: tuple[tuple["Node", "Node"], ...]
    at: int


@dataclass(frozen=True, slots=True)
class StructLiteral:
    """An object of a named type written out: `Object.spec{replicas: 3}`."""

    name: str
    fields: tuple[tuple[str, int, "Node"], ...]
    """Each with the place of its colon."""
    at: int


@dataclass(frozen=True, slots=True)
class Macro:
    """A walk through a list or map: `operand.kind(variables…, steps…)`."""

    kind: str
    operand: "Node"
    variables: tuple[str, ...]
    steps: tuple["Node", ...]
    at: int


Node: TypeAlias = (
    Literal
    | Name
    | Select
    | Has
    | Call
    | Junction
    | ListLiteral
    | MapLiteral
    | StructLiteral
    | Macro
)


def children_of(node: Node) -> tuple[Node, ...]:
    """Return the nodes directly below."""
    match node:
        case Literal() | Name():
            return ()
        case Select() | Has():
            return (node.operand,)
        case Call():
            return node.args if node.target is None else (node.target, *node.args)
        case Junction():
            return node.terms
        case ListLiteral():
            return node.elements
        case MapLiteral():
            return tuple(part for entry in node.entries for part in entry)
        case StructLiteral():
            return tuple(value for _, _, value in node.fields)
        case Macro():
            return (node.operand, *node.steps)


def depth_of(root: Node) -> int:
    """Return how many nodes are on top of each other, without recursion."""
    deepest, waiting = 0, [(root, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting.extend((child, depth + 1) for child in children_of(node))
    return deepest
