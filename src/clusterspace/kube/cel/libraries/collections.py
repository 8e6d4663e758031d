"""Lists, sets and optionals."""

from itertools import pairwise
from typing import Any, Final, cast

from clusterspace.kube.cel.faults import EvaluationFailed
from clusterspace.kube.cel.signatures import Function, function, method
from clusterspace.kube.cel.values import (
    NONE,
    Duration,
    Meter,
    Optional,
    checked_int,
    checked_uint,
    contains,
    equals,
)

_ORDERED: Final = ("int", "uint", "double", "bool", "string", "bytes", "timestamp", "duration")


def _is_sorted(elements: list[Any]) -> bool:
    return all(left <= right for left, right in pairwise(elements))


def _smallest(elements: list[Any]) -> Any:
    if not elements:
        raise EvaluationFailed("min called on empty list")
    return min(elements)


def _largest(elements: list[Any]) -> Any:
    if not elements:
        raise EvaluationFailed("max called on empty list")
    return max(elements)


def _ordered() -> list[Function]:
    return [
        declared
        for kind in _ORDERED
        for declared in (
            method(f"list({kind}).isSorted() -> bool", _is_sorted),
            method(f"list({kind}).min() -> {kind}", _smallest),
            method(f"list({kind}).max() -> {kind}", _largest),
            method(f"list({kind}).sort() -> list({kind})", sorted),
        )
    ]


def _index_of(meter: Meter, elements: list[Any], wanted: Any) -> int:
    found = (index for index, each in enumerate(elements) if equals(meter, each, wanted))
    return next(found, -1)


def _last_index_of(meter: Meter, elements: list[Any], wanted: Any) -> int:
    places = range(len(elements) - 1, -1, -1)
    return next((index for index in places if equals(meter, elements[index], wanted)), -1)


def _includes(meter: Meter, left: list[Any], right: list[Any]) -> bool:
    return all(contains(meter, left, each) for each in right)


def _equivalent(meter: Meter, left: list[Any], right: list[Any]) -> bool:
    return _includes(meter, left, right) and _includes(meter, right, left)


def _intersects(meter: Meter, left: list[Any], right: list[Any]) -> bool:
    return any(contains(meter, left, each) for each in right)


def _flattened(meter: Meter, elements: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise EvaluationFailed("level must be non-negative")
    flat: list[Any] = []
    for each in elements:
        inner = cast("list[Any]", each) if isinstance(each, list) else None
        if inner is not None and depth > 0:
            flat.extend(_flattened(meter, inner, depth - 1))
        else:
            flat.append(each)
    meter.spend(len(flat))
    return flat


def _distinct(meter: Meter, elements: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for each in elements:
        if not contains(meter, kept, each):
            kept.append(each)
    return kept


def _slice(elements: list[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(elements):
        why = f"cannot slice({start}, {end}), list is length {len(elements)}"
        raise EvaluationFailed(why)
    return elements[start:end]


def _range(meter: Meter, count: int) -> list[int]:
    meter.spend(max(count, 0))
    return list(range(count))


def _first(elements: list[Any]) -> Optional:
    return Optional(elements[0], is_there=True) if elements else NONE


def _last(elements: list[Any]) -> Optional:
    return Optional(elements[-1], is_there=True) if elements else NONE


def _of_non_zero(value: Any) -> Optional:
    is_zero = value is None or value in (False, 0, 0.0, "", b"") or value in ([], {})
    return NONE if is_zero or value == Duration(0) else Optional(value, is_there=True)


def _or(left: Optional, right: Optional) -> Optional:
    return left if left.is_there else right


def _or_value(left: Optional, other: Any) -> Any:
    return left.held if left.is_there else other


def _optional_element(elements: list[Any], index: int) -> Optional:
    if 0 <= index < len(elements):
        return Optional(elements[index], is_there=True)
    return NONE


def _optional_value(held: dict[Any, Any], key: Any) -> Optional:
    return Optional(held[key], is_there=True) if key in held else NONE


def _optional_of_element(held: Optional, index: Any) -> Optional:
    if not held.is_there:
        return NONE
    if isinstance(held.held, list):
        return _optional_element(cast("list[Any]", held.held), index)
    return _optional_value(held.held, index)


FUNCTIONS: Final = (
    *_ordered(),
    method("list(int).sum() -> int", lambda elements: checked_int(sum(elements))),
    method("list(uint).sum() -> uint", lambda elements: checked_uint(sum(elements))),
    method("list(double).sum() -> double", lambda elements: float(sum(elements))),
    method(
        "list(duration).sum() -> duration",
        lambda elements: Duration(sum(each.nanos for each in elements)),
    ),
    method("list(A).indexOf(A) -> int", _index_of, metered=True),
    method("list(A).lastIndexOf(A) -> int", _last_index_of, metered=True),
    method("list(dyn).flatten() -> list(dyn)", _flattened, metered=True),
    method("list(dyn).flatten(int) -> list(dyn)", _flattened, metered=True),
    method("list(A).distinct() -> list(A)", _distinct, metered=True),
    method("list(A).slice(int, int) -> list(A)", _slice),
    function("lists.range(int) -> list(int)", _range, metered=True),
    method("list(A).first() -> optional_type(A)", _first),
    method("list(A).last() -> optional_type(A)", _last),
    method("list(A).reverse() -> list(A)", lambda elements: elements[::-1]),
    function("sets.contains(list(A), list(A)) -> bool", _includes, metered=True),
    function("sets.equivalent(list(A), list(A)) -> bool", _equivalent, metered=True),
    function("sets.intersects(list(A), list(A)) -> bool", _intersects, metered=True),
    function("optional.of(A) -> optional_type(A)", lambda value: Optional(value, is_there=True)),
    function("optional.ofNonZeroValue(A) -> optional_type(A)", _of_non_zero),
    function("optional.none() -> optional_type(A)", lambda: NONE),
    method("optional_type(A).hasValue() -> bool", lambda held: held.is_there),
    method("optional_type(A).value() -> A", Optional.value),
    method("optional_type(A).or(optional_type(A)) -> optional_type(A)", _or),
    method("optional_type(A).orValue(A) -> A", _or_value),
    function("_[?_](list(A), int) -> optional_type(A)", _optional_element),
    function("_[?_](map(K, V), K) -> optional_type(V)", _optional_value),
    function("_[?_](optional_type(list(A)), int) -> optional_type(A)", _optional_of_element),
    function("_[?_](optional_type(map(K, V)), K) -> optional_type(V)", _optional_of_element),
)
