"""One writer, many bounded readers; a slow reader is evicted, never waited for."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Generic, TypeVar

from clusterspace.errors import Evicted

Item = TypeVar("Item")


class Broadcast(Generic[Item]):
    """Hands every item to every reader there is at the time."""

    def __init__(self) -> None:
        self._readers: set[Reader[Item]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._readers)

    def subscribe(self, *, capacity: int) -> "Reader[Item]":
        """Return a reader of everything sent from now on, at most `capacity` items behind."""
        reader = Reader(self, capacity)
        if self._is_closed:
            reader.end()
        else:
            self._readers.add(reader)
        return reader

    def send(self, item: Item) -> None:
        """Give the item to every reader; those with no room for it are evicted."""
        # No await in here: every reader has the item before any of them runs. So whoever subscribes
        # and takes a snapshot in one step of the loop misses nothing and gets nothing twice.
        evicted = [reader for reader in self._readers if not reader.offer(item)]
        # Afterwards: a set must not change while it is gone through.
        self._readers.difference_update(evicted)

    def close(self) -> None:
        """End every reader once it has read what it was given."""
        # The flag stays: who subscribes to what is over must end, too, and not wait for ever.
        self._is_closed = True
        for reader in self._readers:
            reader.end()
        self._readers.clear()

    def forget(self, reader: "Reader[Item]") -> None:
        """Stop sending to a reader; it ends once it has read what it was given."""
        self._readers.discard(reader)
        reader.end()


class Reader(Generic[Item]):
    """One reader's place in a broadcast; one task at a time may wait on it.

    It is an asynchronous iterator that ends when the broadcast closes, and a context manager
    that leaves the broadcast.
    """

    def __init__(self, broadcast: Broadcast[Item], capacity: int) -> None:
        self._broadcast = broadcast
        self._capacity = capacity
        self._unread: deque[Item] = deque()
        self._changed = asyncio.Event()
        """Set by the writer whenever one of the three others has changed; cleared by `_wait`."""
        self._is_evicted = False
        self._is_ended = False

    def __len__(self) -> int:
        return len(self._unread)

    def __enter__(self) -> "Reader[Item]":
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        await self._wait()
        if not self._unread:
            raise StopAsyncIteration
        return self._unread.popleft()

    async def read_batch(self) -> list[Item]:
        """Wait for something and return everything there is; nothing means the end."""
        await self._wait()
        batch = list(self._unread)
        self._unread.clear()
        return batch

    def close(self) -> None:
        """Leave the broadcast."""
        self._broadcast.forget(self)

    def offer(self, item: Item) -> bool:
        """Take an item from the broadcast; False when there is no room, which evicts."""
        if len(self._unread) >= self._capacity:
            # What was unread is useless with a hole behind it, and holds memory. From here on the
            # reader raises Evicted each time it is asked, also when it was in the middle of a
            # batch: it can never mistake the hole for the end.
            self._unread.clear()
            self._is_evicted = True
        else:
            self._unread.append(item)
        self._changed.set()
        return not self._is_evicted

    def end(self) -> None:
        """Take no more; the broadcast is over."""
        self._is_ended = True
        self._changed.set()

    async def _wait(self) -> None:
        # Between the look and the clear nobody else runs, so an item that comes after the look
        # sets the event again: no wake-up is lost. A wake-up may be for nothing (the item was read
        # by `read_batch` meanwhile), hence the loop. Unread items come before the end: `close`
        # of the broadcast loses nothing that was sent.
        while not (self._unread or self._is_evicted or self._is_ended):
            self._changed.clear()
            await self._changed.wait()
        if self._is_evicted:
            raise Evicted(f"more than {self._capacity} items behind")
