"""List, then watch, into a cache; tells handlers what changed."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import structlog

from clusterspace.aio.clocks import Alarm
from clusterspace.client.changes import Change
from clusterspace.client.following import Batch, Follower
from clusterspace.client.places import Place
from clusterspace.client.raw_objects import decode_object
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.client.watch import EventType
from clusterspace.controllers.caches import Cache, IndexKeys
from clusterspace.kube.objects import Object

_log = structlog.get_logger(__name__)

STALE_SECONDS: Final = 300.0
"""Twice the silence after which a watch is opened anew: by now somebody should look."""

_CHECK_SECONDS: Final = STALE_SECONDS / 10


@dataclass(frozen=True)
class Update:
    """What happened to one object; `before` and `after` are undecoded, and None when absent.

    The last known state of a deleted object is `before`. Each is decoded once at most, however
    many handlers want to know: they share what they get.
    """

    key: str
    before: bytes | None
    after: bytes | None

    @property
    def is_deletion(self) -> bool:
        """Whether the object is gone."""
        return self.after is None

    def decode_before(self) -> Object | None:
        """Return the object as it was, or None."""
        return self._decoded_before

    def decode_after(self) -> Object | None:
        """Return the object as it is, or None."""
        return self._decoded_after

    @cached_property
    def _decoded_before(self) -> Object | None:
        return None if self.before is None else decode_object(self.before)

    @cached_property
    def _decoded_after(self) -> Object | None:
        return None if self.after is None else decode_object(self.after)


Handler: TypeAlias = Callable[[Update], None]
"""Told of every change, in order; it must not wait."""


class Informer:
    """Keeps a cache equal to one collection of one cluster.

        pods = Informer(member_client, Place(PODS), indexes={"owner": by_owner_uid})
        pods.add_handler(note_change)
        tasks.keep("pods", pods.run)
        await pods.wait_synced()

    Until it is synced the cache may lack objects; afterwards it may lag, never lie. Ask `trouble`
    and `silent_seconds` how far to trust it.
    """

    def __init__(
        self,
        cluster_client: ClusterClient,
        place: Place,
        *,
        selection: ListOptions | None = None,
        indexes: Mapping[str, IndexKeys] | None = None,
    ) -> None:
        self.cluster = cluster_client.cluster
        self.place = place
        self.cache = Cache(indexes)
        self._clock = cluster_client.connection.clock
        self._follower = Follower(cluster_client, place, self.cache, selection)
        self._handlers: list[Handler] = []
        self._synced = asyncio.Event()
        self._alarm = Alarm(self._clock, self._check_staleness)
        self._was_stale = False

    def add_handler(self, handler: Handler) -> None:
        """Tell a handler of every change from now on, and of what is there already as added."""
        self._handlers.append(handler)
        for key in list(self.cache.keys()):
            handler(Update(key, None, self.cache.find_raw(key)))

    @property
    def has_synced(self) -> bool:
        """Whether the cache has held the whole collection once."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Wait until the cache holds the whole collection."""
        await self._synced.wait()

    @property
    def trouble(self) -> Exception | None:
        """Why nothing is heard from the cluster at the moment, if that is so."""
        return self._follower.trouble

    @property
    def silent_seconds(self) -> float:
        """For how long the cluster has not said anything about this collection."""
        return self._clock.monotonic() - self._follower.last_heard

    @property
    def is_stale(self) -> bool:
        """Whether the silence is so long that something must be wrong."""
        return self.silent_seconds >= STALE_SECONDS

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        self._alarm.set(_CHECK_SECONDS)
        try:
            async with aclosing(self._follower.batches()) as batches:
                async for batch in batches:
                    self._take(batch)
        finally:
            self._alarm.cancel()

    def _take(self, batch: Batch) -> None:
        for change in batch.changes:
            update = self._put(change)
            for handler in self._handlers:
                handler(update)
        if batch.is_whole and not self._synced.is_set():
            self._synced.set()
            _log.debug(
                "synced", cluster=self.cluster, resource=str(self.place), held=len(self.cache)
            )

    def _put(self, change: Change) -> Update:
        key = change.item.key
        if change.type is EventType.DELETED:
            before = self.cache.remove(key)
            # The event of a deletion carries the last state; absence in a list does not.
            return Update(key, change.item.raw or before, None)
        before = self.cache.find_raw(key)
        self.cache.put(change.item)
        return Update(key, before, change.item.raw)

    def _check_staleness(self) -> None:
        """Log once when the cluster falls silent, and once when it speaks again."""
        self._alarm.set(_CHECK_SECONDS)
        if self.is_stale == self._was_stale:
            return
        self._was_stale = self.is_stale
        _log.warning(
            "informer is stale" if self._was_stale else "informer is fresh again",
            cluster=self.cluster,
            resource=str(self.place),
            silent_seconds=round(self.silent_seconds),
            reason=str(self.trouble or ""),
        )
