"""A compiled expression, and how its calls choose their functions."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from clusterspace.kube.cel.types import DYN, Bindings, Overload, Type, fits, is_loose, resolved
from clusterspace.kube.cel.values import Meter, kind_of, no_overload

_SIZED: Final = ("string", "bytes", "list", "map", "dyn")


class Frame:
    """One run of a program: the values of its variables, by slot, and the budget."""

    __slots__ = ("meter", "slots")

    def __init__(self, meter: Meter, slots: list[Any]) -> None:
        self.meter = meter
        self.slots = slots


Run: TypeAlias = Callable[[Frame], Any]


@dataclass(frozen=True, slots=True)
class Code:
    """A compiled part: the type of its value, and how to get it."""

    type: Type
    run: Run


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression."""

    text: str
    code: Code
    slots: Mapping[str, int]
    slot_count: int
    uses: frozenset[str]
    """The variables it looks at."""

    @property
    def type(self) -> Type:
        """The type of its value."""
        return self.code.type

    def evaluate(self, variables: Mapping[str, Any], meter: Meter) -> Any:
        """Return its value; EvaluationFailed if it has none, BudgetExceeded if it takes long."""
        slots: list[Any] = [None] * self.slot_count
        for name, value in variables.items():
            slots[self.slots[name]] = value
        return self.code.run(Frame(meter, slots))


def call_code(overloads: Sequence[Overload], args: Sequence[Code]) -> Code | None:
    """Return the compiled call; None when no overload takes arguments of these types.

    With one candidate and types that are known throughout, the choice is made now. Otherwise it
    is made at every call, by the values: `dyn(self.a) + dyn(self.b)` may add ints or join texts.
    """
    candidates: list[Overload] = []
    results: list[Type] = []
    for overload in overloads:
        bindings: Bindings = {}
        if len(overload.args) == len(args) and all(
            fits(wanted, given.type, bindings)
            for wanted, given in zip(overload.args, args, strict=True)
        ):
            candidates.append(overload)
            results.append(resolved(overload.result, bindings))
    if not candidates:
        return None
    result = results[0] if all(each == results[0] for each in results) else DYN
    runs = [arg.run for arg in args]
    functions = [(each.args, each.metered_run) for each in candidates]
    is_sure = len(candidates) == 1 and not any(_is_vague(arg.type) for arg in args)
    pays = any(arg.type.name in _SIZED for arg in args)
    _, only = functions[0]

    def call(frame: Frame) -> Any:
        values = [run(frame) for run in runs]
        if pays:
            _pay(frame.meter, values)
        return only(frame.meter, *values)

    # What is not known when compiling is paid for as if it were sized: it may turn out to be.
    def dispatch(frame: Frame) -> Any:
        values = [run(frame) for run in runs]
        _pay(frame.meter, values)
        for wanted, function in functions:
            if all(_is_of(value, each) for value, each in zip(values, wanted, strict=True)):
                return function(frame.meter, *values)
        raise no_overload()

    return Code(result, call if is_sure else dispatch)


def _is_vague(given: Type) -> bool:
    return is_loose(given) or any(_is_vague(param) for param in given.params)


def _pay(meter: Meter, values: Sequence[Any]) -> None:
    """Pay for the arguments of a call by their size."""
    sized = cast(
        "Iterable[Sized]", (each for each in values if isinstance(each, str | bytes | list | dict))
    )
    meter.spend(sum(len(value) for value in sized) // 10)


def _is_of(value: Any, wanted: Type) -> bool:
    """Tell whether a value is of a type, as far as its first element shows."""
    if wanted.is_parameter or is_loose(wanted):
        return True
    if kind_of(value) != wanted.name:
        return False
    if isinstance(value, list) and value and wanted.params:
        return _is_of(cast("list[Any]", value)[0], wanted.params[0])
    return True
