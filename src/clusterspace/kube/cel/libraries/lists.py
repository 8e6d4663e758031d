"""Lists, sets and optionals."""

from itertools import pairwise
from typing import Any, Final, cast

from clusterspace.kube.cel.types import Library
from clusterspace.kube.cel.values import (
    NONE,
    Duration,
    EvaluationFailed,
    Meter,
    Optional,
    checked_int,
    checked_uint,
    contains,
    equals,
)

LIBRARY: Final = Library()

_ORDERED: Final = ("int", "uint", "double", "bool", "string", "bytes", "timestamp", "duration")


@LIBRARY.method(*(f"list({kind}).isSorted() -> bool" for kind in _ORDERED))
def _is_sorted(elements: list[Any]) -> bool:
    return all(left <= right for left, right in pairwise(elements))


@LIBRARY.method(*(f"list({kind}).min() -> {kind}" for kind in _ORDERED))
def _smallest(elements: list[Any]) -> Any:
    if not elements:
        raise EvaluationFailed("min called on empty list")
    return min(elements)


@LIBRARY.method(*(f"list({kind}).max() -> {kind}" for kind in _ORDERED))
def _largest(elements: list[Any]) -> Any:
    if not elements:
        raise EvaluationFailed("max called on empty list")
    return max(elements)


LIBRARY.methods({f"list({kind}).sort() -> list({kind})": sorted for kind in _ORDERED})
LIBRARY.methods(
    {
        "list(int).sum() -> int": lambda elements: checked_int(sum(elements)),
        "list(uint).sum() -> uint": lambda elements: checked_uint(sum(elements)),
        "list(double).sum() -> double": lambda elements: float(sum(elements)),
        "list(duration).sum() -> duration": lambda elements: Duration(
            sum(each.nanos for each in elements)
        ),
        "list(A).reverse() -> list(A)": lambda elements: elements[::-1],
    }
)


@LIBRARY.method("list(A).indexOf(A) -> int", metered=True)
def _index_of(meter: Meter, elements: list[Any], wanted: Any) -> int:
    found = (index for index, each in enumerate(elements) if equals(meter, each, wanted))
    return next(found, -1)


@LIBRARY.method("list(A).lastIndexOf(A) -> int", metered=True)
def _last_index_of(meter: Meter, elements: list[Any], wanted: Any) -> int:
    places = range(len(elements) - 1, -1, -1)
    return next((index for index in places if equals(meter, elements[index], wanted)), -1)


@LIBRARY.method(
    "list(dyn).flatten() -> list(dyn)", "list(dyn).flatten(int) -> list(dyn)", metered=True
)
def _flatten(meter: Meter, elements: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise EvaluationFailed("level must be non-negative")
    flat: list[Any] = []
    for each in elements:
        inner = cast("list[Any]", each) if isinstance(each, list) else None
        if inner is not None and depth > 0:
            flat.extend(_flatten(meter, inner, depth - 1))
        else:
            flat.append(each)
    meter.spend(len(flat))
    return flat


@LIBRARY.method("list(A).distinct() -> list(A)", metered=True)
def _distinct(meter: Meter, elements: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for each in elements:
        if not contains(meter, kept, each):
            kept.append(each)
    return kept


@LIBRARY.method("list(A).slice(int, int) -> list(A)")
def _slice(elements: list[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(elements):
        why = f"cannot slice({start}, {end}), list is length {len(elements)}"
        raise EvaluationFailed(why)
    return elements[start:end]


@LIBRARY.function("lists.range(int) -> list(int)", metered=True)
def _range(meter: Meter, count: int) -> list[int]:
    meter.spend(max(count, 0))
    return list(range(count))


@LIBRARY.function("sets.contains(list(A), list(A)) -> bool", metered=True)
def _includes(meter: Meter, left: list[Any], right: list[Any]) -> bool:
    return all(contains(meter, left, each) for each in right)


@LIBRARY.function("sets.equivalent(list(A), list(A)) -> bool", metered=True)
def _equivalent(meter: Meter, left: list[Any], right: list[Any]) -> bool:
    return _includes(meter, left, right) and _includes(meter, right, left)


@LIBRARY.function("sets.intersects(list(A), list(A)) -> bool", metered=True)
def _intersects(meter: Meter, left: list[Any], right: list[Any]) -> bool:
    return any(contains(meter, left, each) for each in right)


@LIBRARY.function("optional.ofNonZeroValue(A) -> optional_type(A)")
def _of_non_zero(value: Any) -> Optional:
    is_zero = value is None or value in (False, 0, 0.0, "", b"") or value in ([], {})
    return NONE if is_zero or value == Duration(0) else Optional(value, is_present=True)


@LIBRARY.function("_[?_](list(A), int) -> optional_type(A)")
def _optional_element(elements: list[Any], index: int) -> Optional:
    if 0 <= index < len(elements):
        return Optional(elements[index], is_present=True)
    return NONE


@LIBRARY.function("_[?_](map(K, V), K) -> optional_type(V)")
def _optional_value(entries: dict[Any, Any], key: Any) -> Optional:
    return Optional(entries[key], is_present=True) if key in entries else NONE


@LIBRARY.function(
    "_[?_](optional_type(list(A)), int) -> optional_type(A)",
    "_[?_](optional_type(map(K, V)), K) -> optional_type(V)",
)
def _member_of_optional(collection: Optional, index: Any) -> Optional:
    if not collection.is_present:
        return NONE
    if isinstance(collection.content, list):
        return _optional_element(cast("list[Any]", collection.content), index)
    return _optional_value(collection.content, index)


LIBRARY.functions(
    {
        "optional.of(A) -> optional_type(A)": lambda value: Optional(value, is_present=True),
        "optional.none() -> optional_type(A)": lambda: NONE,
    }
)
LIBRARY.methods(
    {
        "list(A).first() -> optional_type(A)": lambda elements: _optional_element(elements, 0),
        "list(A).last() -> optional_type(A)": lambda elements: _optional_element(
            elements, len(elements) - 1
        ),
        "optional_type(A).hasValue() -> bool": lambda optional: optional.is_present,
        "optional_type(A).value() -> A": Optional.value,
        "optional_type(A).or(optional_type(A)) -> optional_type(A)": lambda left, right: (
            left if left.is_present else right
        ),
        "optional_type(A).orValue(A) -> A": lambda left, other: (
            left.content if left.is_present else other
        ),
    }
)
