"""Keys that changed, handed to a look, one at a time: the loop under every controller here.

A key says only where to look. The look reads what is there now and decides from that, so a key
seen twice, or after its object has changed again, does no harm.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias

import structlog

from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.revisions import Event
from clusterspace.errors import ApiError, StoreError

_log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 1.0
"""How long a look that failed waits for the next one."""

Look: TypeAlias = Callable[[str], Awaitable[None]]
"""Looks at what is now behind a key and does what has to be done about it."""


class _Changes:
    """A sink that remembers which keys changed."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._woken = asyncio.Event()
        self.ended_by: StoreError | None = None

    def receive(self, events: tuple[Event, ...]) -> None:
        self.add(event.key for event in events)

    def end(self, reason: StoreError) -> None:
        self.ended_by = reason
        self._woken.set()

    def add(self, keys: Iterable[str]) -> None:
        self._keys.update(keys)
        self._woken.set()

    async def take(self) -> list[str]:
        """Wait for changes and return their keys, in order."""
        await self._woken.wait()
        self._woken.clear()
        taken, self._keys = sorted(self._keys), set()
        return taken


async def follow(hub: HubState, prefixes: Sequence[str], look: Look) -> None:
    """Look at every key under the prefixes, then at those that change, until cancelled."""
    while True:
        reason = await _follow_once(hub, prefixes, look)
        _log.warning("objects are listed again", reason=str(reason))
        await hub.clock.sleep(RETRY_SECONDS)


async def _follow_once(hub: HubState, prefixes: Sequence[str], look: Look) -> StoreError:
    """Follow until the store ends the subscription; return why it did."""
    changes = _Changes()
    after = hub.store.current_revision
    subscriptions = [hub.store.subscribe(each, after=after, sink=changes) for each in prefixes]
    try:
        for prefix in prefixes:
            page = await hub.store.range(prefix)
            changes.add(entry.key for entry in page.items)
        while changes.ended_by is None:
            failed = [key for key in await changes.take() if not await _is_seen(look, key)]
            if failed:
                # One key that keeps failing slows the others down; it never stops them.
                await hub.clock.sleep(RETRY_SECONDS)
                changes.add(failed)
    finally:
        for subscription in subscriptions:
            subscription.close()
    return changes.ended_by


async def _is_seen(look: Look, key: str) -> bool:
    try:
        await look(key)
    except (ApiError, StoreError) as error:
        _log.warning("look failed and is repeated", key=key, reason=str(error))
        return False
    return True
