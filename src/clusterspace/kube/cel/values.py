"""Values of the language: JSON's own and those that only expressions make; the budget."""

from dataclasses import dataclass
from typing import Any, Final

from clusterspace.kube.cel.types import Type
from clusterspace.kube.quantities import Quantity

INT_RANGE: Final = range(-(2**63), 2**63)
UINT_RANGE: Final = range(2**64)


class EvaluationFailed(Exception):
    """The expression has no value for these variables: a missing key, a division by zero."""


class BudgetExceeded(Exception):
    """Finding the value takes more steps than anybody may take."""


def no_overload() -> EvaluationFailed:
    """Return the error of a call with values its function does not take."""
    return EvaluationFailed("no such overload")


class Uint(int):
    """An unsigned integer: another type, whatever its number."""

    __slots__ = ()


class SetList(list[Any]):
    """A list of which every element is there once, in no particular order."""

    __slots__ = ()


class KeyedList(list[Any]):
    """A list whose elements are identified by their key fields, in no particular order."""

    __slots__ = ("keys",)

    def __init__(self, elements: list[Any], keys: tuple[str, ...]) -> None:
        super().__init__(elements)
        self.keys = keys

    def key_of(self, element: Any) -> tuple[Any, ...]:
        """Return the values of the element's key fields."""
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

    content: Any = None
    is_present: bool = False

    def value(self) -> Any:
        """Return the value, or fail."""
        if not self.is_present:
            raise EvaluationFailed("optional.none() dereference")
        return self.content


NONE: Final = Optional()


class StructValue(dict[str, Any]):
    """An object of a named type, written out in an expression."""

    __slots__ = ("type_name",)

    def __init__(self, type_name: str, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.type_name = type_name


class Meter:
    """The budget that is left.

    Every operation pays before or while it works, in proportion to the size of its values, so
    that an expression which doubles a text sixty times runs out of budget and not out of memory:
    a call pays one step for every ten characters or elements of its arguments, equality one for
    every pair it compares, and each round of a macro as many as its body has parts.
    """

    __slots__ = ("left",)

    def __init__(self, budget: int) -> None:
        self.left = budget

    def spend(self, steps: int) -> None:
        """Pay for steps; BudgetExceeded when there is not enough left."""
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
    StructValue: "Object",
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


_NUMBERS: Final = ("int", "uint", "double")


def equals(meter: Meter, left: Any, right: Any) -> bool:
    """Compare two values: numbers by amount, everything else only with its own kind.

    Lists of type `set` compare without regard to order, and those of type `map` by their keys.
    """
    meter.spend(1)
    kind, other = kind_of(left), kind_of(right)
    if kind in _NUMBERS and other in _NUMBERS:
        return bool(left == right)
    if kind != other:
        return False
    match kind:
        case "string":
            meter.spend(min(len(left), len(right)) // 100)
            return bool(left == right)
        case "list":
            return len(left) == len(right) and _elements_equal(meter, left, right)
        case "map":
            return len(left) == len(right) and all(
                key in right and equals(meter, value, right[key]) for key, value in left.items()
            )
        case "optional_type":
            if left.is_present != right.is_present:
                return False
            return not left.is_present or equals(meter, left.content, right.content)
        case _:
            return bool(left == right)


def _elements_equal(meter: Meter, left: list[Any], right: list[Any]) -> bool:
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


def contains(meter: Meter, elements: list[Any], wanted: Any) -> bool:
    """Tell whether a list has an element equal to this one."""
    return any(equals(meter, wanted, element) for element in elements)


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
