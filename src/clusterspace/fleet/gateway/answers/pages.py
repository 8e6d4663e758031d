"""Which items of which clusters make a page: pure decisions about parts that are already here.

A list with a limit walks the clusters in the order of answers. The first page asks them all, for it
tells the version of each; a later one asks the cluster it goes on in, then those behind it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from clusterspace.apiserver.http.request_info import Query
from clusterspace.errors import BadRequest
from clusterspace.fleet.gateway.merge.lists import ClusterList

_PAGING: Final = frozenset({"limit", "continue", "resourceVersion", "resourceVersionMatch"})
_MOST_DIGITS: Final = 18
_MOST_TOGETHER: Final = 8


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a page ends before all is listed."""

    cluster: str
    token: str = ""
    """The cluster's own continue token; empty for its first item."""


@dataclass(frozen=True, slots=True)
class PagePlan:
    """What to put on a page."""

    taken: tuple[ClusterList, ...]
    stop: Stop | None = None
    is_cut: bool = False
    """Whether some of the items of the cluster it stops at still fit: ask it for just those."""

    @property
    def count(self) -> int:
        """How many items there are so far."""
        return sum(part.count for part in self.taken)


def plan_page(parts: Sequence[ClusterList], room: int, *, is_fresh: bool) -> PagePlan:
    """Fill a page that has room for so many items with parts, in the order given.

    The first part of a fresh page is taken whatever its size: a server that gives more than it was
    asked for would give as much the next time.
    """
    taken: list[ClusterList] = []
    for part in parts:
        if part.count > room and (taken or not is_fresh):
            return PagePlan(tuple(taken), Stop(part.cluster), is_cut=room > 0)
        taken.append(part)
        room -= part.count
        if part.metadata.continue_token:
            return PagePlan(tuple(taken), Stop(part.cluster, part.metadata.continue_token))
    return PagePlan(tuple(taken))


def how_many_next(room: int, counts: Sequence[int]) -> int:
    """Return how many clusters to ask together for the rest of a page.

    As many as would fill it if they are like those asked before, `counts` items each: what does
    not fit is listed in vain. No room means that there is no bound.

    >>> how_many_next(400, [100]), how_many_next(10, [500]), how_many_next(0, [3])
    (4, 1, 8)
    """
    usual = sum(counts) // len(counts) if counts else 0
    if not room or not usual:
        return _MOST_TOGETHER
    return max(1, min(_MOST_TOGETHER, room // usual))


def read_limit(query: Query) -> int:
    """Return how many items a page may have; 0 when there is no bound.

    With the version "0" any state will do, and servers answer from memory, whole.
    """
    text = query.get("limit")
    if not text or query.get("resourceVersion") == "0":
        return 0
    if not text.isascii() or not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise BadRequest(f"limit: {text[:64]!r} is not a number of items")
    return int(text)


def without_paging(query: Query) -> Query:
    """Return the parameters that are the same for every cluster and every page."""
    return Query(tuple(pair for pair in query.pairs if pair[0] not in _PAGING))


@dataclass(frozen=True, slots=True)
class Slice:
    """Which of its items a cluster is asked for."""

    limit: int = 0
    token: str = ""
    version: str = ""
    match: str = ""

    def added_to(self, query: Query) -> Query:
        """Return the parameters that ask for it."""
        asked = {
            "limit": str(self.limit) if self.limit else "",
            "continue": self.token,
            "resourceVersion": "" if self.token else self.version,
            "resourceVersionMatch": "" if self.token or not self.version else self.match,
        }
        return Query((*query.pairs, *((key, value) for key, value in asked.items() if value)))
