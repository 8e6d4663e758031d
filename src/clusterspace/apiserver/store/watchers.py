"""Watchers that are in sync, catching up, or evicted.

    catching up   it has reached a revision in the kept past; it reads on from there, buffers
                  nothing, and gets `Compacted` if the past is forgotten before it has read it
    in sync       it has seen everything there is; each commit is put into its buffer
    evicted       its buffer overflowed; the buffer is gone and its next read says so

A watcher moves from the first to the second state between two steps of the event loop, in which
nothing can be committed: that is why there is no gap. Watchers of one prefix share one tuple of
events per commit, so a thousand of them cost a thousand appends and no copies.
"""

import asyncio
from collections import deque
from typing import Protocol, Self

from clusterspace.apiserver.store.index import Index
from clusterspace.apiserver.store.interface import Event, Revision, Sink
from clusterspace.errors import Compacted, StoreClosed, StoreError, WatcherEvicted

MAXIMUM_WAITING_EVENTS = 10_000
"""How many events may wait for one reader: seconds of a busy store, not minutes."""

CATCH_UP_EVENTS = 1_000
"""How many past events are looked through in one step of the loop: well under a millisecond."""


class Receiver(Protocol):
    """Somebody who is in sync: a watch or a subscription."""

    def receive(self, events: tuple[Event, ...]) -> None:
        """Take events of a commit that match the prefix, oldest first."""
        ...

    def end(self, reason: StoreError) -> None:
        """Learn that nothing more will come."""
        ...


class Watchers:
    """Everybody who is in sync, by prefix."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.revision = index.revision
        """Everything at or below it has been handed to everyone here."""
        self._receivers: dict[str, dict[Receiver, None]] = {}
        self._closed = False

    def __len__(self) -> int:
        """Return how many are in sync."""
        return sum(len(receivers) for receivers in self._receivers.values())

    def add(self, prefix: str, receiver: Receiver) -> None:
        """Count a receiver as in sync: it gets every commit from now on."""
        if self._closed:
            raise StoreClosed("the store is closed")
        self._receivers.setdefault(prefix, {})[receiver] = None

    def remove(self, prefix: str, receiver: Receiver) -> None:
        """Forget a receiver, if it is known."""
        receivers = self._receivers.get(prefix, {})
        receivers.pop(receiver, None)
        if not receivers:
            self._receivers.pop(prefix, None)

    def publish(self, events: tuple[Event, ...]) -> None:
        """Hand the events of one commit to everyone they match; the index has them already."""
        for prefix, receivers in tuple(self._receivers.items()):
            matching = tuple([event for event in events if event.item.key.startswith(prefix)])
            if not matching:
                continue
            # A copy: a receiver may leave, or a new one come, while we go through them.
            for receiver in tuple(receivers):
                receiver.receive(matching)
        # Last: only now has everyone been handed them.
        self.revision = events[-1].revision

    def advance(self, revision: Revision) -> None:
        """Take note that nothing has happened up to a revision that is for anyone here."""
        self.revision = max(self.revision, revision)

    def replace_index(self, index: Index, reason: StoreError) -> None:
        """Go on with another index, behind a gap: everyone is ended, and has to list again.

        Those who are catching up are not known here. They read on from the index that is here, and
        it says `Compacted` to them: it has no past.
        """
        self.index = index
        # Ended while `revision` still says how far they have come: it is where they stopped.
        self._end_all(reason)
        self.revision = index.revision

    def close(self) -> None:
        """End everyone."""
        self._closed = True
        self._end_all(StoreClosed("the store is closed"))

    def _end_all(self, reason: StoreError) -> None:
        receivers, self._receivers = self._receivers, {}
        for each in receivers.values():
            for receiver in tuple(each):
                receiver.end(reason)


# A watch from its first event on, with the revision a client could resume from:
#
#     watch(/pods/, after=2)         reached 2, index at 4, catching up
#     reader: __anext__              reads 3 and 4 from the index, reached 4, joins: in sync
#     commit 5 (/pods/web)           waiting = [(5)]
#     commit 6 (/nodes/n1)           not for /pods/: nothing waits, but `Watchers.revision` is 6
#     .revision                      4: event 5 has not been handed out
#     reader: __anext__              hands out 5, reached 5, waiting = []
#     .revision                      6: everything up to there was handed out or is not for it
#     watch(/pods/, after=6)         resumes without a gap and without a repeat
class BufferedWatch:
    """A watch with one reader and a bounded buffer between it and the commits."""

    def __init__(
        self,
        watchers: Watchers,
        prefix: str,
        *,
        after: Revision,
        maximum_waiting: int = MAXIMUM_WAITING_EVENTS,
    ) -> None:
        """Raise `Compacted` when the past above `after` is no longer complete."""
        index = watchers.index
        if after < index.oldest:
            raise Compacted(after, index.oldest)
        self._watchers = watchers
        self._prefix = prefix
        self._maximum_waiting = maximum_waiting
        self._reached = after
        """Everything at or below it was handed out, or is not for this watch."""
        self._in_sync = False
        self._waiting: deque[tuple[Event, ...]] = deque()
        self._waiting_events = 0
        self._reader: asyncio.Future[None] | None = None
        self._end: StoreError | None = None
        self._closed = False
        if after >= index.revision:
            self._join()

    @property
    def revision(self) -> Revision:
        """Everything at or below this revision has been handed to the reader."""
        if self._waiting:
            return Revision(self._waiting[0][0].revision - 1)
        if self._in_sync:
            return max(self._reached, self._watchers.revision)
        return self._reached

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Event, ...]:
        while True:
            if self._closed:
                raise StopAsyncIteration
            if self._waiting:
                events = self._waiting.popleft()
                self._waiting_events -= len(events)
                self._reached = max(self._reached, events[-1].revision)
                return events
            # Only after what waits: a store that closes lets its readers have the rest.
            if self._end is not None:
                raise self._end
            if self._in_sync:
                self._reader = asyncio.get_running_loop().create_future()
                try:
                    await self._reader
                finally:
                    self._reader = None
            elif events := self._catch_up():
                return events
            else:
                await asyncio.sleep(0)  # a long past with nothing for us: let others run

    def receive(self, events: tuple[Event, ...]) -> None:
        """Buffer the events of a commit, or evict a reader that has too many waiting."""
        # `after` may lie in the future: then commits up to it are not for this watch.
        if events[0].revision <= self._reached:
            events = tuple(event for event in events if event.revision > self._reached)
        if not events or self._end is not None:
            return
        if self._waiting_events + len(events) > self._maximum_waiting:
            # All that waits is dropped, not only what does not fit: a reader that got the older
            # half would believe it is merely late. It learns of the eviction at its next step.
            self._drop_waiting()
            late = f"{self._maximum_waiting} events were waiting for a reader of {self._prefix!r}"
            self.end(WatcherEvicted(late))
            return
        self._waiting.append(events)
        self._waiting_events += len(events)
        self._wake()

    def end(self, reason: StoreError) -> None:
        """Let the reader have what is buffered, then the reason."""
        if self._end is None:
            if not self._waiting:
                self._reached = self.revision
            self._in_sync = False
            self._end = reason
            self._leave()

    def close(self) -> None:
        """End the watch and wake its reader."""
        if not self._closed:
            self._drop_waiting()
            self._closed = True
            self._leave()

    def _catch_up(self) -> tuple[Event, ...]:
        """Read on in the kept past; join the others when there is no more of it."""
        past = self._watchers.index.events_after(self._reached, CATCH_UP_EVENTS)
        if past:
            self._reached = past[-1].revision
        # Compared and joined with no await in between: a commit is either in the index, and then
        # was read above or will be at the next call, or comes after the joining.
        if self._reached >= self._watchers.index.revision:
            self._join()
        return tuple([event for event in past if event.item.key.startswith(self._prefix)])

    def _join(self) -> None:
        self._watchers.add(self._prefix, self)
        self._in_sync = True

    def _drop_waiting(self) -> None:
        # Set while `_waiting` still says what was never handed out: a watch that resumes from
        # `revision` gets those events again.
        self._reached = self.revision
        self._in_sync = False
        self._waiting.clear()
        self._waiting_events = 0

    def _leave(self) -> None:
        self._watchers.remove(self._prefix, self)
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class SinkSubscription:
    """A subscription: events go straight into a sink, without a buffer."""

    def __init__(self, watchers: Watchers, prefix: str, *, after: Revision, sink: Sink) -> None:
        """Deliver the kept past above `after`, then everything that comes."""
        self._watchers = watchers
        self._prefix = prefix
        self._sink = sink
        self._after = after
        self._ended_at: Revision | None = None
        # The past is read and the subscription added in one step of the loop: no gap. It is
        # delivered from here, before anything new can be published.
        past = watchers.index.events_after(after, limit=watchers.index.history.events)
        watchers.add(prefix, self)
        matching = tuple(event for event in past if event.item.key.startswith(prefix))
        if matching:
            self.receive(matching)

    @property
    def revision(self) -> Revision:
        """Everything at or below this revision has been delivered."""
        reached = self._watchers.revision if self._ended_at is None else self._ended_at
        return max(self._after, reached)

    def receive(self, events: tuple[Event, ...]) -> None:
        """Pass events on; a sink that raises is ended, so that the others lose nothing."""
        if events[0].revision <= self._after:
            events = tuple(event for event in events if event.revision > self._after)
        if not events or self._ended_at is not None:
            return
        try:
            self._sink.receive(events)
        except Exception as error:  # noqa: BLE001 - somebody else's bug must not cost the others an event
            message = f"the subscriber of {self._prefix!r} failed and gets no more events"
            context = {"message": message, "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            self._stop(Revision(events[0].revision - 1))
            # It must learn that it is behind from here on: a cache of grants that stood still
            # without knowing would go on granting what was taken away.
            self._sink.end(WatcherEvicted(message))

    def end(self, reason: StoreError) -> None:
        """Tell the sink that nothing more will come."""
        if self._ended_at is None:
            self._stop(self._watchers.revision)
            self._sink.end(reason)

    def close(self) -> None:
        """Stop delivering."""
        if self._ended_at is None:
            self._stop(self._watchers.revision)

    def _stop(self, reached: Revision) -> None:
        self._ended_at = reached
        self._watchers.remove(self._prefix, self)
