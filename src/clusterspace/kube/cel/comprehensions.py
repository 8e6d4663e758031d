"""The macros that go through lists and maps: `self.ports.all(port, port.number > 0)`.

A program without macros takes as many steps as it has parts. With them it is paid for by the
round: each costs as many steps as the macro's body has parts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, cast

from clusterspace.kube.cel import syntax
from clusterspace.kube.cel.faults import EvaluationFailed, no_overload
from clusterspace.kube.cel.programs import Code, Frame, Run
from clusterspace.kube.cel.syntax import Node
from clusterspace.kube.cel.types import (
    BOOL,
    DYN,
    INT,
    LIST,
    MAP,
    OPTIONAL,
    STRING,
    Type,
    is_loose,
    list_of,
    map_of,
    optional_of,
)
from clusterspace.kube.cel.values import NONE, Optional


class Scope(Protocol):
    """What a macro needs of the compiler."""

    def code(self, node: Node) -> Code:
        """Compile a node."""
        ...

    def fault(self, at: int, message: str) -> Code:
        """Remember a fault and go on."""
        ...

    def truth(self, code: Code, at: int, function: str, others: Sequence[Type] = ()) -> Run:
        """Return how to get true or false from a part."""
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
        """Yield what each round is about, with the macro's variables set to it."""
        held = self.operand(frame)
        if not isinstance(held, list | dict):
            raise no_overload()
        frame.meter.spend(1)
        for values in self._values(cast("list[Any] | dict[Any, Any]", held)):
            frame.meter.spend(self.cost)
            for slot, value in zip(self.slots, values, strict=True):
                frame.slots[slot] = value
            yield values[-1] if len(self.slots) == 1 else values[0]

    def _values(self, held: list[Any] | dict[Any, Any]) -> Iterable[tuple[Any, ...]]:
        if len(self.slots) == 1:
            return ((each,) for each in held)
        return held.items() if isinstance(held, dict) else enumerate(held)


_Make: TypeAlias = Callable[[_Walk, Sequence[Run]], Run]


def macro_code(scope: Scope, node: syntax.Macro) -> Code:
    """Compile a macro."""
    operand = scope.code(node.operand)
    if node.kind in ("optMap", "optFlatMap"):
        return _optional_code(scope, node, operand)
    named = _variables_of(operand.type, node.variables)
    if named is None:
        why = (
            f"expression of type '{operand.type}' cannot be range of a comprehension "
            "(must be list, map, or dynamic)"
        )
        return scope.fault(node.operand.at, why)
    with scope.variables(named) as slots:
        steps = [scope.code(step) for step in node.steps]
    runs = [_step_run(scope, node, index, step) for index, step in enumerate(steps)]
    cost = sum(_size_of(step) for step in node.steps)
    walk = _Walk(operand.run, tuple(slots), cost)
    result = _result_type(node.kind, operand.type, steps[-1].type)
    return Code(result, _MAKERS[node.kind](walk, runs))


def _step_run(scope: Scope, node: syntax.Macro, index: int, step: Code) -> Run:
    """Return how to run a step; all but the last one, and a condition, are true or false."""
    is_value = node.kind in ("map", "transformList", "transformMap", "sortBy")
    if is_value and index == len(node.steps) - 1:
        return step.run
    return scope.truth(step, node.at, _CONDITIONS.get(node.kind, syntax.CHOICE), (BOOL,))


_CONDITIONS: Final = {"all": syntax.AND, "exists": syntax.OR}


def _variables_of(held: Type, names: Sequence[str]) -> Mapping[str, Type] | None:
    if held.name not in (LIST, MAP) and not is_loose(held):
        return None
    if is_loose(held):
        types = (DYN, DYN)
    elif held.name == MAP:
        types = (held.params[0], held.params[1])
    else:
        types = (INT, held.params[0])
    if len(names) > 1:
        return dict(zip(names, types, strict=True))
    return {names[0]: types[0] if held.name == MAP else types[1]}


def _result_type(kind: str, operand: Type, step: Type) -> Type:
    if kind in ("filter", "sortBy"):
        return list_of(operand.params[0]) if operand.params else list_of(DYN)
    if kind in ("map", "transformList"):
        return list_of(step)
    if kind == "transformMap":
        return map_of(operand.params[0] if operand.name == MAP else _key_of(operand), step)
    return BOOL


def _key_of(operand: Type) -> Type:
    return INT if operand.name == LIST else STRING if operand.name == MAP else DYN


def _size_of(root: Node) -> int:
    """Return how many parts a step has; those of macros inside are paid for by themselves."""
    size, waiting = 0, [root]
    while waiting:
        node = waiting.pop()
        size += 1
        inner = (node.operand,) if isinstance(node, syntax.Macro) else syntax.children_of(node)
        waiting.extend(inner)
    return size


def _all(walk: _Walk, steps: Sequence[Run]) -> Run:
    return _deciding(walk, steps[0], deciding=False)


def _exists(walk: _Walk, steps: Sequence[Run]) -> Run:
    return _deciding(walk, steps[0], deciding=True)


def _deciding(walk: _Walk, holds: Run, *, deciding: bool) -> Run:
    """Return a walk that ends with the first round that decides; it makes up for failed ones."""

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


def _exists_one(walk: _Walk, steps: Sequence[Run]) -> Run:
    (holds,) = steps
    return lambda frame: sum(1 for _ in walk.rounds(frame) if holds(frame)) == 1


def _filter(walk: _Walk, steps: Sequence[Run]) -> Run:
    (holds,) = steps
    return lambda frame: [each for each in walk.rounds(frame) if holds(frame)]


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


_MAKERS: Final[Mapping[str, _Make]] = {
    "all": _all,
    "exists": _exists,
    "exists_one": _exists_one,
    "existsOne": _exists_one,
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
        held = source(frame)
        if not isinstance(held, Optional):
            raise no_overload()
        if not held.is_there:
            return NONE
        frame.slots[slot] = held.held
        value = step.run(frame)
        return value if is_flat else Optional(value, is_there=True)

    return Code(step.type if is_flat else optional_of(step.type), run)
