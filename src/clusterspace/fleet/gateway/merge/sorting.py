"""Many lists to one that is in order: by a field of the objects, wherever they are.

    sortBy=.status.startTime     what is absent first, then false and true, numbers, texts
    sortBy=-.spec.replicas       the other way round

Objects that are alike in the field stay in the order that answers have: by cluster, and within one
as the cluster lists them. So the order of the same objects is always the same one.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final, TypeAlias

import msgspec

from clusterspace.errors import BadRequest, MalformedPath
from clusterspace.fleet.gateway.merge.lists import ClusterList
from clusterspace.fleet.gateway.renaming import Fields
from clusterspace.kube.json_paths import (
    Anywhere,
    Child,
    JsonPath,
    find_in_text,
    read_json_path,
)

SortKey: TypeAlias = tuple[int, Any]

_LONGEST_TEXT: Final = 1024
"""Of a text that is sorted by: what differs only behind this counts as alike."""


@dataclass(frozen=True, slots=True)
class Order:
    """By which field objects are sorted, and which way."""

    path: JsonPath
    is_descending: bool = False

    def key_of(self, fields: Fields) -> SortKey:
        """Return what an object is sorted by: kinds of values first, so that all compare."""
        top = self.path.steps[0].name if isinstance(self.path.steps[0], Child) else ""
        field = fields.get(top)
        if field is None:
            return 0, 0
        return _key(
            self.path.find(
                {top: msgspec.json.decode(field) if isinstance(field, msgspec.Raw) else field}
            )
        )

    def key_in(self, text: msgspec.Raw, own: Callable[[str], str]) -> SortKey:
        """Return the same of an object that is text still, and has other names than its cluster.

        `own` puts names into the words of the cluster.
        """
        return _key(next(iter(find_in_text(self.path, text)), None), own)


def _key(value: Any, own: Callable[[str], str] = str) -> SortKey:
    match value:
        case bool():
            return 1, value
        case int() | float():
            return 2, value
        case str():
            return 3, own(value)[:_LONGEST_TEXT]
        case _:
            return 0, 0  # not there, or nothing that has an order


def read_order(text: str) -> Order:
    """Read a `sortBy` parameter: a JSONPath, in braces or not; `-` in front turns it round."""
    is_descending = text.startswith("-")
    bare = text.removeprefix("-").strip()
    if bare.startswith("{") and bare.endswith("}"):
        bare = bare[1:-1]
    try:
        path = read_json_path(bare if bare.startswith((".", "[")) else f".{bare}")
    except MalformedPath as error:
        raise BadRequest(f"sortBy: {error.message}") from error
    is_fit = bool(path.steps) and isinstance(path.steps[0], Child)
    if not is_fit or any(isinstance(step, Anywhere) for step in path.steps):
        raise BadRequest(
            f"sortBy: {text[:64]!r} names no field; name one by its path, as in .status.startTime"
        )
    return Order(path, is_descending)


def sorted_page(
    lists: Sequence[ClusterList], order: Order, start: int, limit: int
) -> list[ClusterList]:
    """Return the objects from `start` on, `limit` of them or all, in order, as lists in order."""

    def places_of(at: int) -> Iterator[tuple[SortKey, int, int]]:
        keys = lists[at].sort_keys
        numbers: Sequence[int] = range(len(keys))
        if not lists[at].is_sorted:
            numbers = sorted(numbers, key=keys.__getitem__, reverse=order.is_descending)
        return ((keys[index], at, index) for index in numbers)

    # Sorting and merging are stable, turned round too: what is alike stays as it was.
    places = merge(
        *map(places_of, range(len(lists))), key=itemgetter(0), reverse=order.is_descending
    )
    page = islice(places, start, start + limit if limit else None)
    parts: list[ClusterList] = []
    for at, run in groupby(page, key=lambda place: place[1]):
        listed, indexes = lists[at], [index for _, _, index in run]
        if listed.is_table:
            parts.append(replace(listed, rows=[listed.rows[index] for index in indexes]))
        elif listed.texts:
            parts.append(replace(listed, texts=[listed.texts[index] for index in indexes]))
        else:
            parts.append(replace(listed, items=[listed.items[index] for index in indexes]))
    # A list of nothing has a kind too, and columns.
    return parts or [replace(each, rows=(), items=(), texts=()) for each in lists[:1]]


@dataclass(frozen=True, slots=True)
class SortedPlace:
    """Where a sorted list goes on: behind so many objects of it."""

    question: str
    """What was asked: sorted or selected otherwise, the same place is another one."""
    shown: int

    def __str__(self) -> str:
        return f"{self.question}.{self.shown}"


def question_of(*asked: str) -> str:
    """Return a short word for what a list was asked for."""
    return hashlib.blake2b("\n".join(asked).encode(), digest_size=8).hexdigest()


def read_place(text: str) -> SortedPlace:
    """Read what `str` wrote of a place."""
    question, _, shown = text.partition(".")
    if not shown.isascii() or not shown.isdecimal():
        raise BadRequest("invalid continue token: this server did not issue it")
    return SortedPlace(question, int(shown[:18]))
