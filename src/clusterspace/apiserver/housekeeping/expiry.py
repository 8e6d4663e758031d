"""Objects that are kept for a while only, and events, which are kept for an hour."""

from collections.abc import Callable
from typing import Final

from clusterspace.apiserver import forms
from clusterspace.apiserver.state import HubState
from clusterspace.errors import MalformedTimestamp, RevisionMismatch
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.times import parse_time

EVENT_SECONDS: Final = 3600.0
"""As kube-apiserver's default."""

LOOK_SECONDS: Final = 60.0

_TIMES: Final = (
    ("lastTimestamp",),
    ("series", "lastObservedTime"),
    ("eventTime",),
    ("firstTimestamp",),
    ("metadata", "creationTimestamp"),
)


async def remove_expired(
    hub: HubState,
    group: str,
    plural: str,
    is_expired: Callable[[Object], bool],
    *,
    namespace: str = "",
) -> list[str]:
    """Remove the objects of a resource that are past their time; return the keys of those."""
    served = hub.catalog.get_storage(group, plural)
    page = await hub.store.range(served.prefix(namespace))
    removed: list[str] = []
    for entry in page.items:
        if not is_expired(forms.decode_stored(entry, served.form)):
            continue
        try:
            # By the revision that was judged: what somebody has just written again stays.
            await hub.store.delete(entry.key, expected=entry.mod_revision)
        except RevisionMismatch:
            continue
        removed.append(entry.key)
    return removed


async def expire_events(hub: HubState, *, seconds: float = EVENT_SECONDS) -> None:
    """Look at every event now and then, until cancelled."""
    while True:
        await hub.clock.sleep(LOOK_SECONDS)
        await forget_old_events(hub, seconds)


async def forget_old_events(hub: HubState, seconds: float) -> int:
    """Remove the events that last happened longer ago than this; return how many went."""
    oldest = hub.clock.now() - seconds
    return len(await remove_expired(hub, "", "events", lambda each: last_happened(each) < oldest))


def last_happened(event: Object) -> float:
    """Return when an event last happened; one without a readable time never expires."""
    times: list[float] = []
    for path in _TIMES:
        text = find_at(event, *path)
        if isinstance(text, str):
            try:
                times.append(parse_time(text))
            except MalformedTimestamp:
                continue
    return max(times, default=float("inf"))
