"""A compiled expression: what it gives, what it looks at, and how to run it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from clusterspace.kube.cel.types import Type
from clusterspace.kube.cel.values import Meter


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
