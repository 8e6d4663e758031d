"""Reading and watching an index, which every store does alike; and a store in memory on top of it.

The memory store is the reference implementation: for tests and simulated members.
"""

import asyncio

from clusterspace.apiserver.store.index import (
    Delete,
    Index,
    Put,
    Write,
    answer_to,
    check_guard,
    checked,
    decide,
)
from clusterspace.apiserver.store.interface import (
    Event,
    Guard,
    HistorySize,
    KeyValue,
    Page,
    Revision,
    Sink,
)
from clusterspace.apiserver.store.watchers import (
    MAXIMUM_WAITING_EVENTS,
    BufferedWatch,
    SinkSubscription,
    Watchers,
)
from clusterspace.errors import StoreClosed, StoreError

COMPACTION_BATCH = 1_000
"""How many events are forgotten in one step of the loop: about a millisecond."""


class IndexedStore:
    """The reading half of a Store, over an index in memory.

    `maximum_waiting_events` is how many events may wait for one watch before it is evicted.
    """

    def __init__(
        self, index: Index, *, maximum_waiting_events: int = MAXIMUM_WAITING_EVENTS
    ) -> None:
        self._index = index
        self._watchers = Watchers(index)
        self._maximum_waiting_events = maximum_waiting_events
        self._closed = False

    @property
    def current_revision(self) -> Revision:
        """The newest revision a read can show."""
        return self._index.revision

    @property
    def oldest_revision(self) -> Revision:
        """The oldest revision that can still be read, and watched `after`."""
        return self._index.oldest

    @property
    def history(self) -> HistorySize:
        """How much of the past is in memory; what compaction is decided by."""
        return self._index.history

    @property
    def is_shared(self) -> bool:
        """Whether other processes may write to the same log."""
        return False

    @property
    def is_reachable(self) -> bool:
        """Whether whoever keeps the log answered when last asked."""
        return True

    @property
    def refuses_writes(self) -> str:
        """Why writes are refused at present; empty when they are not."""
        return ""

    # Reads are coroutines because a store behind a network must wait; these never do. Two reads
    # with no other await between them therefore see the same revision, but nobody relies on it:
    # who needs two reads of one moment passes `at`.

    async def get(self, key: str, *, at: Revision | None = None) -> KeyValue | None:
        """Return the key as it is, or was at a revision; None when it is not there."""
        self._check_open()
        return self._index.get(key, at)

    async def sync(self) -> Revision:
        """Return at once: nobody else writes."""
        self._check_open()
        return self._index.revision

    async def is_stale(self, key: str) -> bool:
        """Return False: values are kept as they are put."""
        return False

    async def range(
        self,
        prefix: str,
        *,
        start_after: str | None = None,
        limit: int | None = None,
        at: Revision | None = None,
    ) -> Page:
        """Return the keys with the prefix in order, from just behind `start_after` on."""
        self._check_open()
        return self._index.page(prefix, start_after=start_after, limit=limit, at=at)

    async def count(self, prefix: str) -> int:
        """Return how many keys have the prefix now."""
        self._check_open()
        return self._index.count(prefix)

    def watch(self, prefix: str, *, after: Revision) -> BufferedWatch:
        """Watch the keys with the prefix for changes above the revision."""
        self._check_open()
        return BufferedWatch(
            self._watchers, prefix, after=after, maximum_waiting=self._maximum_waiting_events
        )

    def subscribe(self, prefix: str, *, after: Revision, sink: Sink) -> SinkSubscription:
        """Deliver changes above the revision to a sink."""
        self._check_open()
        return SinkSubscription(self._watchers, prefix, after=after, sink=sink)

    def _publish(self, events: tuple[Event, ...]) -> None:
        """Make committed changes readable, then hand them to the watchers.

        In this order and in one step of the loop: a reader that was woken by an event and reads
        finds at least what the event shows.
        """
        self._index.apply(events)
        self._watchers.publish(events)

    async def _forget(self, revision: Revision) -> None:
        """Forget every older revision in memory, a little at a time."""
        self._index.compact(revision)
        dropped = self._index.drop_compacted(COMPACTION_BATCH)
        while dropped:
            await asyncio.sleep(0)
            dropped = self._index.drop_compacted(COMPACTION_BATCH)

    def _advance(self, revision: Revision) -> None:
        """Take note that nothing has happened here up to a revision."""
        self._index.advance(revision)
        self._watchers.advance(revision)

    def _replace_index(self, index: Index, reason: StoreError) -> None:
        """Go on with what was read anew; whoever watches has to list again, for this reason."""
        self._index = index
        self._watchers.replace_index(index, reason)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")


class MemoryStore(IndexedStore):
    """A Store that keeps every promise except one: nothing outlives the process.

    It begins with `index`: with nothing, or with what was there at a revision and no past.
    """

    def __init__(
        self,
        index: Index | None = None,
        *,
        maximum_waiting_events: int = MAXIMUM_WAITING_EVENTS,
    ) -> None:
        super().__init__(index or Index(), maximum_waiting_events=maximum_waiting_events)

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        expected: Revision | None = None,
        guard: Guard | None = None,
    ) -> KeyValue:
        """Set the key and return it as it now is."""
        return self._write(Put(key, value, expected, guard))

    async def delete(self, key: str, *, expected: Revision, guard: Guard | None = None) -> KeyValue:
        """Delete the key and return its last value with the revision of the delete."""
        return self._write(Delete(key, expected, guard))

    async def compact(self, revision: Revision) -> None:
        """Forget every older revision, a little at a time."""
        self._check_open()
        await self._forget(revision)

    async def close(self) -> None:
        """End every watch. Closing twice is harmless."""
        self._closed = True
        self._watchers.close()

    def _write(self, write: Write) -> KeyValue:
        self._check_open()
        current = self._index.get(checked(write).key)
        check_guard(write, self._index.get)
        event = decide(write, current, Revision(self._index.revision + 1))
        self._publish((event,))
        return answer_to(event)
