"""List, then watch, into a cache; handlers are called for every change."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import structlog

from clusterspace.aio.clocks import Alarm
from clusterspace.client.raw_objects import decode_object, version_in
from clusterspace.client.reflector import Batch, Reflector
from clusterspace.client.requests import ResourcePath, key_of
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.client.watch import EventType
from clusterspace.controllers.caches import Cache, IndexKeys
from clusterspace.kube.objects import Object, name_of, namespace_of, resource_version_of
from clusterspace.kube.resources import GroupVersionResource

_log = structlog.get_logger(__name__)

STALE_SECONDS: Final = 300.0
"""Twice the silence after which a watch is opened anew: by now somebody should look."""

_CHECK_SECONDS: Final = STALE_SECONDS / 10
_UNNAMED: Final = GroupVersionResource("", "", "")


@dataclass(frozen=True)
class Update:
    """A change of one object; `before` and `after` are undecoded, and None when absent.

    The last known state of a deleted object is `before`. Each is decoded once at most, however
    many handlers want to know: they share what they get.
    """

    key: str
    before: bytes | None
    after: bytes | None
    resource: GroupVersionResource = _UNNAMED
    """The collection it is in, for handlers that follow several."""

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

        pods = Informer(member_client, ResourcePath(PODS), indexes={"owner": by_owner_uid})
        pods.add_handler(note_change)
        tasks.keep("pods", pods.run)
        await pods.wait_synced()

    Until it is synced the cache may lack objects; afterwards it may lag, never lie. Ask `trouble`
    and `silent_seconds` how far to trust it.
    """

    def __init__(
        self,
        cluster_client: ClusterClient,
        place: ResourcePath,
        *,
        selection: ListOptions | None = None,
        indexes: Mapping[str, IndexKeys] | None = None,
    ) -> None:
        self.cluster = cluster_client.cluster
        self.cluster_client = cluster_client
        self.place = place
        self.selection = selection
        self.cache = Cache(indexes)
        self._clock = cluster_client.connection.clock
        self._follower = Reflector(cluster_client, place, self.cache, selection)
        self._handlers: list[Handler] = []
        self._synced = asyncio.Event()
        self._alarm = Alarm(self._clock, self._check_staleness)
        self._was_stale = False

    def add_handler(self, handler: Handler) -> None:
        """Tell a handler of every change from now on, and of what is there already as added."""
        self._handlers.append(handler)
        for key in list(self.cache.keys()):
            handler(Update(key, None, self.cache.find_raw(key), self.place.resource))

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
        """Bring the cache to a batch of changes, and call the handlers for each."""
        # No await in here: whoever reads the cache between two turns of the loop sees whole
        # batches, and a handler that looks at the cache finds what it was called for.
        for change in batch.changes:
            key, resource = change.item.key, self.place.resource
            if change.type is EventType.DELETED:
                before = self.cache.remove(key)
                # The event of a deletion carries the last state; absence in a list does not.
                update = Update(key, change.item.raw or before, None, resource)
            else:
                before = self.cache.find_raw(key)
                self.cache.put(change.item)
                update = Update(key, before, change.item.raw, resource)
            for handler in self._handlers:
                handler(update)
        if batch.is_whole and not self._synced.is_set():
            self._synced.set()
            _log.debug(
                "synced", cluster=self.cluster, resource=str(self.place), objects=len(self.cache)
            )

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


class OwnWrites:
    """A cache with our own latest writes on top of it.

    A cache lags behind our own writes. Who plans by it alone creates an object twice, takes back
    what was written a moment ago, or lets go of an object while one that it owns is on its way
    into the cache. So what the hub answered to a write is kept here until the informer has seen
    that version or a later one. The two may come in any order: an event can be faster than the
    answer to the write that caused it, and then there is nothing to keep.
    """

    def __init__(self, informer: Informer) -> None:
        self._cache = informer.cache
        self._unseen: dict[str, Object | None] = {}
        """Objects as written, by key; None for one that we deleted."""
        informer.add_handler(self._see)

    def find(self, key: str) -> Object | None:
        """Return the latest known state of an object, or None."""
        return self._unseen[key] if key in self._unseen else self._cache.find(key)

    def objects_at(self, index: str, word: str) -> list[Object]:
        """Return the objects an index of the cache has under a word, in the order of their keys."""
        keys = set(self._cache.keys_at(index, word))
        keys |= {
            key
            for key, each in self._unseen.items()
            if each is not None and word in self._cache.words_of(index, each)
        }
        objects = (self.find(key) for key in sorted(keys))
        return [each for each in objects if each is not None]

    def note(self, written: Object) -> None:
        """Remember an object as the hub answered it, until the cache is as far."""
        key = key_of(namespace_of(written), name_of(written))
        cached = self._cache.find_version(key)
        if cached is None or int(cached.resource_version) < int(resource_version_of(written)):
            self._unseen[key] = written

    def note_deleted(self, deleted: Object) -> None:
        """Remember that we deleted an object, until the cache is as far."""
        key = key_of(namespace_of(deleted), name_of(deleted))
        if key in self._cache:
            self._unseen[key] = None
        else:
            self._unseen.pop(key, None)

    def forget(self, key: str) -> None:
        """Drop what was noted of an object: the hub says that there is none."""
        self._unseen.pop(key, None)

    def _see(self, update: Update) -> None:
        if update.key not in self._unseen:
            return
        noted = self._unseen[update.key]
        if update.after is None:
            del self._unseen[update.key]
        elif noted is not None:
            seen = int(version_in(update.after).resource_version)
            if seen >= int(resource_version_of(noted)):
                del self._unseen[update.key]
