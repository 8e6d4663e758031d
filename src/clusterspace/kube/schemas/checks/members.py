"""What a schema may ask of a list or map as a whole: how many members, and none of them twice."""

from collections.abc import Hashable, Mapping, Sequence, Sized
from typing import Any, cast

import msgspec

from clusterspace.kube import causes
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.checks.problems import NONE, Check, Found, Problem


def size_checks(raw: Mapping[str, Any], unit: str) -> list[Check]:
    """Return the checks of `minItems` and `maxItems`, or of their twins for `Properties`."""
    fewest, most = raw.get(f"min{unit}"), raw.get(f"max{unit}")
    checks: list[Check] = []
    if fewest is not None:
        checks.append(_fewest_check(fewest, unit.lower()))
    if most is not None:
        checks.append(_most_check(most))
    return checks


def _fewest_check(fewest: int, unit: str) -> Check:
    def check(members: Sized) -> Found:
        size = len(members)
        if size >= fewest:
            return NONE
        rule = f"should have at least {fewest} {unit}"
        return (
            Problem(
                lambda where: causes.invalid(where.field, size, f"{where.name} in body {rule}")
            ),
        )

    return check


def _most_check(most: int) -> Check:
    def check(members: Sized) -> Found:
        size = len(members)
        if size <= most:
            return NONE
        return (Problem(lambda where: causes.too_many(where.field, size, most)),)

    return check


def find_repetition(elements: Sequence[Any]) -> Found:
    """Return the one problem of a list with `uniqueItems` that has an element twice."""
    if not _repeated([identity_of(element) for element in elements]):
        return NONE
    rule = "shouldn't contain duplicates"
    return (Problem(lambda where: causes.invalid(where.field, "", f"{where.name} in body {rule}")),)


def find_set_duplicates(elements: Sequence[Any]) -> Found:
    """Return a problem for each element that is there a second time."""
    if _are_distinct(elements):
        return NONE
    return [
        _duplicate_at(index, elements[index])
        for index in _repeated([identity_of(element) for element in elements])
    ]


def find_map_duplicates(elements: Sequence[Any], keys: Sequence[str]) -> Found:
    """Return a problem for each element whose key fields are there a second time."""
    for index, element in enumerate(elements):
        if element is not None and not isinstance(element, dict):
            return (_not_an_object(index, element),)
    members = cast("Sequence[Object | None]", elements)
    if _are_distinct([tuple(map(member.get, keys)) if member else None for member in members]):
        return NONE
    named = [_key_fields(member, keys) for member in members]
    return [
        _duplicate_at(index, named[index])
        for index in _repeated([identity_of(fields) for fields in named])
    ]


def identity_of(value: Any) -> Hashable:
    """Return what makes a JSON value the same as another: 1, true and 1.0 are three values."""
    if isinstance(value, (dict, list)):
        return msgspec.json.encode(value, order="sorted")
    return (type(value).__name__, value)


def _are_distinct(values: Sequence[Any]) -> bool:
    """Tell quickly that nothing is repeated; False may also mean that it takes a closer look."""
    try:
        return len(set(values)) == len(values)
    except TypeError:  # a list or object among them
        return False


def _key_fields(element: Object | None, keys: Sequence[str]) -> Object:
    return {key: element[key] for key in keys if key in element} if element else {}


def _repeated(identities: Sequence[Hashable]) -> list[int]:
    """Return where each repeated identity is met for the second time; a third is no news."""
    times: dict[Hashable, int] = {}
    repeated: list[int] = []
    for index, identity in enumerate(identities):
        times[identity] = times.get(identity, 0) + 1
        if times[identity] == 2:
            repeated.append(index)
    return repeated


def _duplicate_at(index: int, value: Any) -> Problem:
    return Problem(
        lambda where: causes.duplicate(where.element, value), (index,), is_duplicate=True
    )


def _not_an_object(index: int, value: Any) -> Problem:
    detail = "must be an object for an array of list-type map"
    return Problem(
        lambda where: causes.invalid(where.element, value, detail), (index,), is_duplicate=True
    )
