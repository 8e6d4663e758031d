"""How many seats a request takes.

    list, watch from the start   a seat for each 100 objects that are read for it
    a write                      a seat, and when many watch, some more while they are told
    everything else              a seat

Kubernetes' rules, but for what telling a watcher costs: there 5 ms of a seat for each ten, here
0.25 ms, which is what it takes. One of many levels must not be filled by one request, so a request
has at most 10 seats, and at most what fits into a level several times over.
"""

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from clusterspace.apiserver.http.fairness.fair_queues import ONE_SEAT, Width
from clusterspace.apiserver.http.request_info import RequestInfo

OBJECTS_PER_SEAT: Final = 100
WATCHES_PER_SEAT: Final = 10
_EVENT_SECONDS: Final = 0.00025
"""For ten watchers, one seat, while an event is written to them."""
_MOST_SEATS: Final = 10

CountObjects: TypeAlias = Callable[[RequestInfo], Awaitable[int | None]]
"""Returns how many objects there are of what a request lists; None when that is not known."""


class Watches:
    """Who watches what: how many hear of a write."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str, str]] = Counter()

    def add(self, info: RequestInfo) -> tuple[str, str, str, str]:
        """Count a watch; `remove` it by what this returns."""
        key = (info.group, info.resource, info.namespace, info.name)
        self._counts[key] += 1
        return key

    def remove(self, key: tuple[str, str, str, str]) -> None:
        """Count one less."""
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]

    def interested(self, info: RequestInfo) -> int:
        """Return how many hear of what a write changes."""
        counts = self._counts
        if not counts:
            return 0
        kind = (info.group, info.resource)
        found = counts[*kind, "", ""]
        if info.namespace:
            found += counts[*kind, info.namespace, ""]
        if info.name:
            found += counts[*kind, info.namespace, info.name]
        return found


def most_seats(nominal: int, hand_size: int) -> int:
    """Return how wide a request may be in a level of so many seats."""
    wide = min(math.ceil(nominal * 0.15), nominal // hand_size)
    return max(1, min(wide, _MOST_SEATS))


def is_from_start(info: RequestInfo) -> bool:
    """Whether a watch begins with all there is."""
    query = info.query
    if query.is_true("sendInitialEvents"):
        return True
    return query.get("resourceVersion") in ("", "0")


def list_width(info: RequestInfo, stored: int | None, most: int) -> Width:
    """Return the width of a list, or of a watch that begins with one."""
    if info.name or not stored:
        return ONE_SEAT
    query = info.query
    limit = stored
    if (said := query.get("limit")).isdigit():
        limit = min(int(said), stored) or stored
    # Only a page without selectors is read alone; `resourceVersion=0` asks for everything.
    is_page = limit < stored and query.get("resourceVersion") != "0" and not info.is_watch
    if is_page and not query.get("labelSelector") and not query.get("fieldSelector"):
        stored = limit
    seats = math.ceil(stored / OBJECTS_PER_SEAT)
    return Width(min(seats, most)) if seats > 1 else ONE_SEAT


def write_width(watchers: int, most: int) -> Width:
    """Return the width of a write that so many watchers hear of."""
    if watchers < WATCHES_PER_SEAT:
        return ONE_SEAT
    seats = math.ceil(watchers / WATCHES_PER_SEAT)
    final = min(seats, most)
    # The same work in fewer seats takes longer.
    return Width(1, final, _EVENT_SECONDS * seats / final)
