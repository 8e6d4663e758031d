"""What the memory and the SQLite store have in common: reading and watching an index."""

from clusterspace.apiserver.store.index import Index
from clusterspace.apiserver.store.interface import Sink
from clusterspace.apiserver.store.revisions import Event, HistorySize, KeyValue, Page, Revision
from clusterspace.apiserver.store.watchers import (
    MAXIMUM_WAITING_EVENTS,
    BufferedWatch,
    SinkSubscription,
    Watchers,
)
from clusterspace.errors import StoreClosed


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
        """How much of the past is held in memory; what compaction is decided by."""
        return self._index.history

    async def get(self, key: str, *, at: Revision | None = None) -> KeyValue | None:
        """Return the key as it is, or was at a revision; None when it is not there."""
        self._check_open()
        return self._index.get(key, at)

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
        """Make committed changes readable, then tell the watchers."""
        self._index.apply(events)
        self._watchers.publish(events)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")
