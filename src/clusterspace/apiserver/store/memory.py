"""The reference implementation: a store in memory, for tests and simulated members."""

import asyncio

from clusterspace.apiserver.store.index import Index
from clusterspace.apiserver.store.indexed import IndexedStore
from clusterspace.apiserver.store.revisions import KeyValue, Revision
from clusterspace.apiserver.store.watchers import MAXIMUM_WAITING_EVENTS
from clusterspace.apiserver.store.writes import Delete, Put, Write, answer_to, checked, decide

COMPACTION_BATCH = 1_000
"""How many events are forgotten in one step of the loop: about a millisecond."""


class MemoryStore(IndexedStore):
    """A Store that keeps every promise except one: nothing outlives the process."""

    def __init__(self, *, maximum_waiting_events: int = MAXIMUM_WAITING_EVENTS) -> None:
        super().__init__(Index(), maximum_waiting_events=maximum_waiting_events)

    async def put(self, key: str, value: bytes, *, expected: Revision | None = None) -> KeyValue:
        """Set the key and return it as it now is."""
        return self._write(Put(key, value, expected))

    async def delete(self, key: str, *, expected: Revision) -> KeyValue:
        """Delete the key and return its last value with the revision of the delete."""
        return self._write(Delete(key, expected))

    async def compact(self, revision: Revision) -> None:
        """Forget every older revision, a little at a time."""
        self._check_open()
        self._index.compact(revision)
        dropped = self._index.drop_compacted(COMPACTION_BATCH)
        while dropped:
            await asyncio.sleep(0)
            dropped = self._index.drop_compacted(COMPACTION_BATCH)

    async def close(self) -> None:
        """End every watch. Closing twice is harmless."""
        self._closed = True
        self._watchers.close()

    def _write(self, write: Write) -> KeyValue:
        self._check_open()
        held = self._index.get(checked(write).key)
        event = decide(write, held, Revision(self._index.revision + 1))
        self._publish((event,))
        return answer_to(event)
