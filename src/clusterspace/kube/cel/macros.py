"""The macros that go through lists and maps: `self.ports.all(port, port.number > 0)`.

A program without macros takes as many steps as it has parts. With them it is paid for by the
round: each costs as many steps as the macro's body has parts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, cast

from clusterspace.kube.cel import syntax
from clusterspace.kube.cel.programs import Code, Frame, Run
from clusterspace.kube.cel.syntax import Node
from clusterspace.kube.cel.types import (
    BOOL,
    DYN,
    INT,
    LIST,
    MAP,
    OPTIONAL,
    Type,
    is_loose,
    list_of,
    map_of,
    optional_of,
)
from clusterspace.kube.cel.values import NONE, EvaluationFailed, Optional, no_overload


class Scope(Protocol):
    """The part of the compiler that macros need."""

    def code(self, node: Node) -> Code:
        """Compile a node."""
        ...

    def fault(self, at: int, message: str) -> Code:
        """Remember a fault and go on."""
        ...

    def truth(self, code: Code, at: int, function: str, others: Sequence[Type] = ()) -> Run:
        """Return the run of a part that must give true or false."""
        ...

    def variables(self, named: Mapping[str, Type]) -> Any:
        """Give variables their slots while the steps are compiled."""
        ...


@dataclass(frozen=True, slots=True)
class _Walk:
    """How to go through the operand, one round after the other."""

    operand: Run
    slots: tuple[int, ...]
    cost: int

    def rounds(self, frame: Frame) -> Iterator[Any]:
        """Yield the subject of each round, with the macro's variables set to it.

        With one variable that is the element of a list or the key of a map, with two the index
        or the key; the slots of the variables are overwritten by the next round.
        """
        collection = self.operand(frame)
        if not isinstance(collection, list | dict):
            raise no_overload()
        entries = cast("list[Any] | dict[Any, Any]", collection)
        subjects: Iterable[tuple[Any, ...]]
        if len(self.slots) == 1:
            subjects = ((each,) for each in entries)
        else:
            subjects = entries.items() if isinstance(entries, dict) else enumerate(entries)
        frame.meter.spend(1)
        for values in subjects:
            frame.meter.spend(self.cost)
            for slot, value in zip(self.slots, values, strict=True):
                frame.slots[slot] = value
            yield values[0]


_Make: TypeAlias = Callable[[_Walk, Sequence[Run]], Run]


_CONDITIONS: Final = {"all": syntax.AND, "exists": syntax.OR}
_GIVING_VALUES: Final = ("map", "transformList", "transformMap", "sortBy")
"""Macros whose last step gives a value; all other steps give true or false."""


def macro_code(scope: Scope, node: syntax.Macro) -> Code:
    """Compile a macro."""
    operand = scope.code(node.operand)
    if node.kind in ("optMap", "optFlatMap"):
        return _optional_code(scope, node, operand)
    source = operand.type
    if is_loose(source):
        key, value = DYN, DYN
    elif source.name == MAP:
        key, value = source.params
    elif source.name == LIST:
        key, value = INT, source.params[0]
    else:
        why = (
            f"expression of type '{source}' cannot be range of a comprehension "
            "(must be list, map, or dynamic)"
        )
        return scope.fault(node.operand.at, why)

    # A single variable is the key of a map but the element of a list.
    single = (key,) if source.name == MAP else (value,)
    types = (key, value) if len(node.variables) > 1 else single
    with scope.variables(dict(zip(node.variables, types, strict=True))) as slots:
        steps = [scope.code(step) for step in node.steps]
    runs: list[Run] = []
    for index, step in enumerate(steps):
        if node.kind in _GIVING_VALUES and index == len(steps) - 1:
            runs.append(step.run)
        else:
            function = _CONDITIONS.get(node.kind, syntax.CHOICE)
            runs.append(scope.truth(step, node.at, function, (BOOL,)))

    if node.kind in ("filter", "sortBy"):
        result = list_of(source.params[0] if source.params else DYN)
    elif node.kind in ("map", "transformList"):
        result = list_of(steps[-1].type)
    elif node.kind == "transformMap":
        result = map_of(key, steps[-1].type)
    else:
        result = BOOL
    # A round costs as many steps as its body has parts; those of macros inside pay by themselves.
    cost, waiting = 0, list(node.steps)
    while waiting:
        part = waiting.pop()
        cost += 1
        inner = (part.operand,) if isinstance(part, syntax.Macro) else syntax.children_of(part)
        waiting.extend(inner)
    return Code(result, _MAKERS[node.kind](_Walk(operand.run, tuple(slots), cost), runs))


def _deciding(walk: _Walk, holds: Run, *, deciding: bool) -> Run:
    """Walk until the first round that decides; it makes up for rounds that failed."""

    def decide(frame: Frame) -> bool:
        failure: EvaluationFailed | None = None
        for _ in walk.rounds(frame):
            try:
                if holds(frame) is deciding:
                    return deciding
            except EvaluationFailed as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return not deciding

    return decide


def _map(walk: _Walk, steps: Sequence[Run]) -> Run:
    *conditions, value = steps

    def run(frame: Frame) -> list[Any]:
        return [
            value(frame)
            for _ in walk.rounds(frame)
            if all(condition(frame) for condition in conditions)
        ]

    return run


def _transform_map(walk: _Walk, steps: Sequence[Run]) -> Run:
    *conditions, value = steps

    def run(frame: Frame) -> dict[Any, Any]:
        return {
            key: value(frame)
            for key in walk.rounds(frame)
            if all(condition(frame) for condition in conditions)
        }

    return run


def _sort_by(walk: _Walk, steps: Sequence[Run]) -> Run:
    (key,) = steps

    def run(frame: Frame) -> list[Any]:
        keyed = [(key(frame), each) for each in walk.rounds(frame)]
        try:
            return [each for _, each in sorted(keyed, key=lambda pair: pair[0])]
        except TypeError as error:
            raise no_overload() from error

    return run


def _exactly_one(walk: _Walk, steps: Sequence[Run]) -> Run:
    (holds,) = steps
    return lambda frame: sum(1 for _ in walk.rounds(frame) if holds(frame)) == 1


def _filter(walk: _Walk, steps: Sequence[Run]) -> Run:
    (holds,) = steps
    return lambda frame: [each for each in walk.rounds(frame) if holds(frame)]


_MAKERS: Final[Mapping[str, _Make]] = {
    "all": lambda walk, steps: _deciding(walk, steps[0], deciding=False),
    "exists": lambda walk, steps: _deciding(walk, steps[0], deciding=True),
    "exists_one": _exactly_one,
    "existsOne": _exactly_one,
    "filter": _filter,
    "map": _map,
    "transformList": _map,
    "transformMap": _transform_map,
    "sortBy": _sort_by,
}


def _optional_code(scope: Scope, node: syntax.Macro, operand: Code) -> Code:
    """Compile a step that is taken only with a value that is there."""
    if operand.type.name != OPTIONAL and not is_loose(operand.type):
        why = f"found no matching overload for '{node.kind}' applied to '{operand.type}.()'"
        return scope.fault(node.at, why)
    inner = operand.type.params[0] if operand.type.params else DYN
    with scope.variables({node.variables[0]: inner}) as slots:
        step = scope.code(node.steps[0])
    slot, source, is_flat = slots[0], operand.run, node.kind == "optFlatMap"

    def run(frame: Frame) -> Any:
        optional = source(frame)
        if not isinstance(optional, Optional):
            raise no_overload()
        if not optional.is_present:
            return NONE
        frame.slots[slot] = optional.content
        value = step.run(frame)
        return value if is_flat else Optional(value, is_present=True)

    return Code(step.type if is_flat else optional_of(step.type), run)
