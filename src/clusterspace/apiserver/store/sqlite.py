"""The durable implementation: the index of `memory.py` over a log in a SQLite file.

Reads come from memory and never touch the disk. A write is in the file, fsynced, before it is in
the index; so nothing is ever shown that a crash could take back.
"""

import asyncio
from collections import deque
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO

from clusterspace.apiserver.store.commits import EndProcess, GroupCommit, end_process
from clusterspace.apiserver.store.files import StoreFile, take_lock
from clusterspace.apiserver.store.index import Delete, Put, Write, answer_to, checked
from clusterspace.apiserver.store.interface import Guard, KeyValue, Revision
from clusterspace.apiserver.store.memory import IndexedStore
from clusterspace.apiserver.store.records import Loaded, load, superseded
from clusterspace.apiserver.store.watchers import MAXIMUM_WAITING_EVENTS
from clusterspace.errors import FutureRevision, StoreFull

COMPACTION_BATCH = 500
"""How many records are erased per transaction: writers wait a few milliseconds behind one."""


class SqliteStore(IndexedStore):
    """A Store in one SQLite file, used by one process at a time. Make one with `open`."""

    def __init__(
        self,
        file: StoreFile,
        lock: IO[bytes],
        loaded: Loaded,
        *,
        maximum_waiting_events: int = MAXIMUM_WAITING_EVENTS,
        end_process: EndProcess = end_process,
    ) -> None:
        super().__init__(loaded.index, maximum_waiting_events=maximum_waiting_events)
        everything = loaded.index.page("", start_after=None, limit=None, at=None)
        self._file = file
        self._lock = lock
        self._needless = deque(loaded.leftover)
        self._compacting = asyncio.Lock()
        self._commits = GroupCommit(
            file,
            {item.key: item for item in everything.items},
            publish=self._publish,
            end_process=end_process,
        )

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        maximum_waiting_events: int = MAXIMUM_WAITING_EVENTS,
        end_process: EndProcess = end_process,
        vfs: str | None = None,
    ) -> "SqliteStore":
        """Open the file, or make it, and read it into memory.

        On a disk without room it is opened all the same, if it is there: reads are served, and
        `refuses_writes` says why writes are not.

        `end_process` is called, from the writer thread, when the disk can no longer be trusted;
        `vfs` names another SQLite file layer than the operating system's.
        Raises `StoreUnreadable` (not a store, a newer format, in use) or `StoreCorrupt`.
        """
        lock = take_lock(path)
        try:
            file, loaded = await asyncio.to_thread(_open_and_load, path, vfs)
        except BaseException:
            lock.close()
            raise
        return cls(
            file,
            lock,
            loaded,
            maximum_waiting_events=maximum_waiting_events,
            end_process=end_process,
        )

    @property
    def refuses_writes(self) -> str:
        """Why writes are refused at present: the disk is full; empty when they are not."""
        return self._commits.refuses_writes

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        expected: Revision | None = None,
        guard: Guard | None = None,
    ) -> KeyValue:
        """Set the key and return it as it now is, on disk."""
        return await self._write(Put(key, value, expected, guard))

    async def delete(self, key: str, *, expected: Revision, guard: Guard | None = None) -> KeyValue:
        """Delete the key and return its last value with the revision of the delete."""
        return await self._write(Delete(key, expected, guard))

    async def compact(self, revision: Revision) -> None:
        """Forget every older revision: first in writing, then in memory, then on disk in batches.

        Interrupted at any point, by cancellation or a crash, the next compaction goes on with
        what is left.
        """
        self._check_open()
        if revision > self._index.revision:
            raise FutureRevision(revision, self._index.revision)
        # Compaction has three steps, each of them safe to be the last:
        #
        #     the file says oldest = R       after a crash, the next start refuses what is older
        #     the index refuses older reads  from now on nobody needs the records before R
        #     records are erased in batches  what a crash leaves, the next compaction erases
        #
        # One compaction at a time: two would take the same needless records out of the queue.
        async with self._compacting:
            self._check_open()  # it may have been closed while this one waited for the other
            if revision > self._index.oldest:
                await self._commits.run(partial(self._file.record_compaction, revision))
                self._index.compact(revision)
            while dropped := self._index.drop_compacted(COMPACTION_BATCH):
                self._needless.extend(superseded(dropped))
                await self._erase_needless()
            await self._erase_needless()

    async def close(self) -> None:
        """Finish the writes already taken, end every watch, close the file, free the lock."""
        if self._closed:
            return
        self._closed = True
        # Commits first, while watchers still listen: the last writes reach them. The lock last:
        # the next process must find a file that is closed.
        await self._commits.stop()
        self._watchers.close()
        self._lock.close()

    async def _write(self, write: Write) -> KeyValue:
        self._check_open()
        return answer_to(await self._commits.submit(checked(write)))

    async def _erase_needless(self) -> None:
        while self._needless:
            self._check_open()
            batch = list(islice(self._needless, COMPACTION_BATCH))
            # A chore between two commits: writers wait for one batch at most. What is queued here
            # is let go only when it is erased, so a failure or cancellation loses none of it;
            # erasing a record twice does nothing.
            await self._commits.run(partial(self._file.erase, batch))
            for _ in batch:
                self._needless.popleft()


def _open_and_load(path: Path, vfs: str | None) -> tuple[StoreFile, Loaded]:
    try:
        file = StoreFile.open(path, vfs=vfs)
    except StoreFull:
        if not path.exists() or path.stat().st_size == 0:
            raise  # there is nothing to be read
        file = StoreFile.open_read_only(path, vfs=vfs)
    try:
        return file, load(file.records(), file.state)
    except BaseException:
        file.close()
        raise
