"""What a value is when there is one: JSON's own, and those that only expressions make."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from clusterspace.kube.cel.faults import BudgetExceeded, EvaluationFailed
from clusterspace.kube.cel.types import Type
from clusterspace.kube.quantities import Quantity

INT_RANGE: Final = range(-(2**63), 2**63)
UINT_RANGE: Final = range(2**64)


class Uint(int):
    """An unsigned integer: another type, whatever its number."""

    __slots__ = ()


class SetList(list[Any]):
    """A list of which every element is there once, in no particular order."""

    __slots__ = ()


class KeyedList(list[Any]):
    """A list whose elements are told apart by their key fields, in no particular order."""

    __slots__ = ("keys",)

    def __init__(self, elements: list[Any], keys: tuple[str, ...]) -> None:
        super().__init__(elements)
        self.keys = keys

    def key_of(self, element: Any) -> tuple[Any, ...]:
        """Return what tells the element apart."""
        return tuple(element.get(key) for key in self.keys)


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A moment, in nanoseconds since 1970."""

    nanos: int


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time, in nanoseconds."""

    nanos: int


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be missing."""

    held: Any = None
    is_there: bool = False

    def value(self) -> Any:
        """Return the value, or fail."""
        if not self.is_there:
            raise EvaluationFailed("optional.none() dereference")
        return self.held


NONE: Final = Optional()


class Meter:
    """What is left of the budget."""

    __slots__ = ("left",)

    def __init__(self, budget: int) -> None:
        self.left = budget

    def spend(self, steps: int) -> None:
        """Pay for steps, or end it all."""
        self.left -= steps
        if self.left < 0:
            raise BudgetExceeded("operation cancelled: actual cost limit exceeded")


_KINDS: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null",
    list: "list",
    SetList: "list",
    KeyedList: "list",
    dict: "map",
    Timestamp: "timestamp",
    Duration: "duration",
    Optional: "optional_type",
    Type: "type",
    Quantity: "kubernetes.Quantity",
}


def register_kind(python_type: type, name: str) -> None:
    """Make a library's own kind of value known."""
    _KINDS[python_type] = name


def kind_of(value: Any) -> str:
    """Return the name of a value's type, without parameters."""
    return _KINDS[type(value)]


def checked_int(number: int) -> int:
    """Return the number if it fits, or fail."""
    if number not in INT_RANGE:
        raise EvaluationFailed("integer overflow")
    return number


def checked_uint(number: int) -> Uint:
    """Return the number if it fits, or fail."""
    if number not in UINT_RANGE:
        raise EvaluationFailed("unsigned integer overflow")
    return Uint(number)


def equals(meter: Meter, left: Any, right: Any) -> bool:
    """Compare two values: numbers by amount, everything else only with its own kind."""
    meter.spend(1)
    kind, other = kind_of(left), kind_of(right)
    if kind in _NUMBERS and other in _NUMBERS:
        return bool(left == right)
    if kind != other:
        return False
    compare = _COMPARISONS.get(kind)
    return bool(left == right) if compare is None else compare(meter, left, right)


_NUMBERS: Final = ("int", "uint", "double")


def contains(meter: Meter, elements: list[Any], wanted: Any) -> bool:
    """Tell whether a list has an element equal to this one."""
    return any(equals(meter, wanted, element) for element in elements)


def _lists_equal(meter: Meter, left: list[Any], right: list[Any]) -> bool:
    if len(left) != len(right):
        return False
    if isinstance(left, SetList):
        return all(contains(meter, right, element) for element in left)
    if isinstance(left, KeyedList):
        meter.spend(len(right))
        by_key = {left.key_of(element): element for element in right}
        return all(
            left.key_of(element) in by_key and equals(meter, element, by_key[left.key_of(element)])
            for element in left
        )
    return all(equals(meter, *pair) for pair in zip(left, right, strict=True))


def _maps_equal(meter: Meter, left: Mapping[Any, Any], right: Mapping[Any, Any]) -> bool:
    return len(left) == len(right) and all(
        key in right and equals(meter, value, right[key]) for key, value in left.items()
    )


def _optionals_equal(meter: Meter, left: Optional, right: Optional) -> bool:
    if left.is_there != right.is_there:
        return False
    return not left.is_there or equals(meter, left.held, right.held)


def _texts_equal(meter: Meter, left: str, right: str) -> bool:
    meter.spend(min(len(left), len(right)) // 100)
    return left == right


_Comparison: TypeAlias = Callable[[Meter, Any, Any], bool]

_COMPARISONS: Final[Mapping[str, _Comparison]] = {
    "list": _lists_equal,
    "map": _maps_equal,
    "optional_type": _optionals_equal,
    "string": _texts_equal,
}


def concatenated(meter: Meter, left: list[Any], right: list[Any]) -> list[Any]:
    """Add lists; sets become their union, and in keyed lists the right element wins."""
    meter.spend((len(left) + len(right)) // 10)
    if isinstance(left, SetList):
        return SetList([*left, *(each for each in right if not contains(meter, left, each))])
    if isinstance(left, KeyedList):
        merged = {left.key_of(each): each for each in left}
        merged.update((left.key_of(each), each) for each in right)
        return KeyedList(list(merged.values()), left.keys)
    return [*left, *right]
