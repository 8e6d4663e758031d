"""The story of a move, as the events of a binding tell it.

The hub keeps events for an hour; what happened before that is not known.
"""

from collections.abc import Iterable
from typing import Final

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ListOptions, Reader
from clusterspace.controllers.events import EVENTS
from clusterspace.errors import ApiError
from clusterspace.fleet.propagation.eviction.controller import (
    CANCELLED,
    FAILED,
    STARTED,
    SUCCEEDED,
    SUSPENDED,
)
from clusterspace.fleet.propagation.rebalancer import TRIGGERED
from clusterspace.fleet.propagation.works.exclusive import NOT_STOPPED
from clusterspace.kube.objects import Object, find_at, namespace_of, uid_of

_WRITTEN: Final = "SyncWorkSucceed"
_REASONS: Final = (
    TRIGGERED,
    SUSPENDED,
    STARTED,
    FAILED,
    "ScheduleBindingSucceed",
    "ScheduleBindingFailed",
    NOT_STOPPED,
    _WRITTEN,
    CANCELLED,
    SUCCEEDED,
)
"""In the order in which they happen: events tell whole seconds only."""
_MOVES: Final = frozenset(
    {TRIGGERED, SUSPENDED, STARTED, FAILED, NOT_STOPPED, CANCELLED, SUCCEEDED}
)
_MOST: Final = 12


async def read_events(hub: Reader, binding: Object) -> tuple[Object, ...]:
    """Read the events of a binding; none for whoever may not see them."""
    selection = ListOptions(field_selector=f"involvedObject.uid={uid_of(binding)}")
    place = ResourcePath(EVENTS, namespace_of(binding) or "default")
    try:
        return tuple(await hub.list_objects(place, selection))
    except ApiError:
        return ()


def story_of(events: Iterable[Object]) -> tuple[str, ...]:
    """Return what happened on the way from one cluster to another, with its times, in order.

    Nothing when it never moved: that it was placed once is said elsewhere.
    """
    steps = [each for each in events if each.get("reason") in _REASONS]
    if not any(each.get("reason") in _MOVES for each in steps):
        return ()

    def order(event: Object) -> tuple[str, int]:
        return str(event.get("lastTimestamp") or ""), _REASONS.index(str(event["reason"]))

    lines: list[str] = []
    for each in sorted(steps, key=order)[-_MOST:]:
        count = int(find_at(each, "count") or 1)
        often = f" ({count} times)" if count > 1 else ""
        nobody = "nobody was evicted: " if each["reason"] == SUSPENDED else ""
        lines.append(f"{each.get('lastTimestamp')} {nobody}{each.get('message')}{often}")
    return tuple(lines)
