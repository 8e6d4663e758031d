"""Work queue: de-duplicating, delayed, rate-limited, serial per key.

A key is waiting, or being worked on, or both: a key added while it is worked on waits for the
worker to be done before anyone is handed it again.

    add ──> waiting ──take──> worked on ──done──> gone
               ^                  │ added meanwhile
               └───────done───────┘

Each key is in the queue once, so the queue is bounded by the number of keys there are.

What holds between any two steps of the loop (nothing here awaits but `__anext__` and `drained`):

    key in _wanted_since      somebody asked for it, and nobody has taken it since
    key in _worked_on_since   a worker has it
    key in _ready             wanted and not worked on; each such key stands there exactly once
    key in _later             to be wanted at a time; never while it is wanted already
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import suppress
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

from clusterspace.aio.clocks import Alarm, Clock, Delays

Key = TypeVar("Key", bound=Hashable)


class QueueObserver(Protocol):
    """Told what happens in a queue, to count and measure it."""

    def depth_changed(self, depth: int) -> None:
        """Note how many keys are ready to be taken."""
        ...

    def taken(self, waited_seconds: float) -> None:
        """Note how long a key was ready before it was taken."""
        ...

    def finished(self, worked_seconds: float) -> None:
        """Note how long a key was worked on."""
        ...

    def retried(self) -> None:
        """Note that a key will be tried again."""
        ...


class _Prioritized(Generic[Key]):
    """Keys in the order of their priority, the highest first; among equals the first come first."""

    def __init__(self, priority_of: Callable[[Key], int]) -> None:
        self._priority_of = priority_of
        self._heap: list[tuple[int, int, Key]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def append(self, key: Key) -> None:
        self._count += 1  # no two are equal up to here: keys themselves are never compared
        heappush(self._heap, (-self._priority_of(key), self._count, key))

    def popleft(self) -> Key:
        return heappop(self._heap)[2]

    def clear(self) -> None:
        self._heap.clear()


class WorkQueue(Generic[Key]):
    """Keys to be worked on, each by one worker at a time.

        async for key in queue:
            try:
                ...
            finally:
                queue.done(key)

    Iteration ends when the queue was shut down and nothing is left to take.
    """

    def __init__(
        self,
        clock: Clock,
        delays: Delays,
        observer: QueueObserver | None = None,
        priority_of: Callable[[Key], int] | None = None,
    ) -> None:
        """Hand out keys in the order in which they come; with priorities, the highest first.

        A key has the priority that it has when it becomes ready.
        """
        self._clock = clock
        self._delays = delays
        self._observer = observer
        self._ready: deque[Key] | _Prioritized[Key] = (
            deque() if priority_of is None else _Prioritized(priority_of)
        )
        # The times of the metrics are at the same time the sets that the invariants speak of.
        self._wanted_since: dict[Key, float] = {}
        self._worked_on_since: dict[Key, float] = {}
        self._later = _LaterKeys[Key]()
        self._alarm = Alarm(clock, self._add_due)
        self._alarm_at: float | None = None
        self._retries: dict[Key, _Retries] = {}
        self._takers: deque[asyncio.Future[None]] = deque()
        self._all_done = asyncio.Event()
        self._is_shut_down = False

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: Key) -> None:
        """Ask for the key to be worked on; asking twice before it is taken is asking once."""
        if self._is_shut_down or key in self._wanted_since:
            return
        self._later.drop(key)
        self._wanted_since[key] = self._clock.monotonic()
        # Worked on right now: the worker may have read the state before the change that this call
        # is about, so the key must be worked on once more. Not before `done`, though, or two
        # workers would write the same object.
        if key not in self._worked_on_since:
            self._make_ready(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Add the key once this much time has passed; the earliest of several times counts.

        A key that is to be worked on anyway is not added a second time for later: the work
        done now will say again when it wants to be repeated.
        """
        if seconds <= 0:
            self.add(key)
        elif not self._is_shut_down and key not in self._wanted_since:
            # A key that is worked on may be put here, by its own worker above all: `done` leaves it
            # alone, and the alarm adds it.
            self._later.put(key, self._clock.monotonic() + seconds)
            self._set_alarm()

    def retry(self, key: Key) -> float | None:
        """Add the key after the next of its growing delays; None when its delays ran out."""
        retries = self._retries.setdefault(key, _Retries(self._delays()))
        delay = next(retries.delays, None)
        if delay is None:
            self.forget(key)
            return None
        retries.count += 1
        if self._observer is not None:
            self._observer.retried()
        self.add_after(key, delay)
        return delay

    def forget(self, key: Key) -> None:
        """Let the key's next retry start with the shortest delay again."""
        self._retries.pop(key, None)

    def due_within(self, seconds: float) -> dict[Key, float]:
        """Return the keys to be worked on until then, with when: 0 for now, or being worked on."""
        at_work = dict.fromkeys([*self._wanted_since, *self._worked_on_since], 0.0)
        return self._later.due_until(self._clock.monotonic() + seconds) | at_work

    def retries_of(self, key: Key) -> int:
        """Return how often the key was retried since it was last forgotten."""
        retries = self._retries.get(key)
        return 0 if retries is None else retries.count

    def __aiter__(self) -> AsyncIterator[Key]:
        return self

    async def __anext__(self) -> Key:
        """Wait for a key that nobody works on, and take it; `done` gives it back."""
        while not self._ready:
            # A key may be worked on and wanted again; somebody must stay to take it.
            if self._is_shut_down and not self._wanted_since:
                raise StopAsyncIteration
            # Each key that becomes ready wakes one taker. By the time that one runs, a worker that
            # never waited may have taken the key: then it waits again. Were all takers woken for
            # every key, a thousand idle workers would cost a thousand steps each time.
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                if taker.cancelled():
                    # Somebody may have tried to wake it between its cancelling and this line, and
                    # has taken it out of the line then; `_wake` went on to the next one.
                    with suppress(ValueError):
                        self._takers.remove(taker)
                elif self._ready:
                    # Woken and cancelled in the same step of the loop: without this the key it was
                    # woken for would lie there until the next one is added.
                    self._wake_one_taker()
                raise
        # No await from here to the end: nobody else can take the same key.
        key = self._ready.popleft()
        now = self._clock.monotonic()
        self._worked_on_since[key] = now
        waited = now - self._wanted_since.pop(key)
        if self._observer is not None:
            self._observer.taken(waited)
            self._observer.depth_changed(len(self._ready))
        return key

    def done(self, key: Key) -> None:
        """Say that a key taken earlier is no longer worked on."""
        worked = self._clock.monotonic() - self._worked_on_since.pop(key)
        if self._observer is not None:
            self._observer.finished(worked)
        # Asked for while it was worked on: at the end of the line, behind keys that waited longer.
        if key in self._wanted_since:
            self._make_ready(key)
        self._note_if_all_done()

    async def work(self, step: Callable[[Key], Awaitable[None]]) -> None:
        """Take one key after the other and work on it, until cancelled; then take no more."""
        try:
            async for key in self:
                try:
                    await step(key)
                finally:
                    self.done(key)
        finally:
            # Keys that were to come later would otherwise still ring in a loop that ends.
            self.shut_down(drain=False)

    def shut_down(self, *, drain: bool = True) -> None:
        """Take no more keys, and forget those that were to come later.

        With `drain`, what is ready is still handed out; without, it is dropped.
        """
        # Keys to come later are dropped even when the rest is drained: a retry in five minutes
        # would keep the process from ending. Whoever runs next lists everything anyway.
        self._is_shut_down = True
        self._alarm.cancel()
        self._later = _LaterKeys[Key]()
        if not drain:
            self._ready.clear()
            self._wanted_since.clear()
        self._wake_all_takers()
        self._note_if_all_done()

    async def drained(self) -> None:
        """Wait until the queue was shut down and the last key is done."""
        await self._all_done.wait()

    def _make_ready(self, key: Key) -> None:
        self._ready.append(key)
        if self._observer is not None:
            self._observer.depth_changed(len(self._ready))
        self._wake_one_taker()

    def _wake_one_taker(self) -> None:
        while self._takers:
            if _wake(self._takers.popleft()):
                return

    def _wake_all_takers(self) -> None:
        while self._takers:
            _wake(self._takers.popleft())

    def _add_due(self) -> None:
        self._alarm_at = None
        for key in self._later.take_due(self._clock.monotonic()):
            self.add(key)
        self._set_alarm()

    def _set_alarm(self) -> None:
        # One alarm for all keys, at the earliest time. It is not taken back when that key is
        # dropped: it rings for nothing then, and is set for the next.
        earliest = self._later.earliest()
        if earliest is not None and earliest != self._alarm_at:
            self._alarm_at = earliest
            self._alarm.set(earliest - self._clock.monotonic())

    def _note_if_all_done(self) -> None:
        if self._is_shut_down and not self._wanted_since and not self._worked_on_since:
            self._all_done.set()
            self._wake_all_takers()


class _Retries:
    """How often one key was retried, and the delays it has left."""

    def __init__(self, delays: Iterator[float]) -> None:
        self.delays = delays
        self.count = 0


class _LaterKeys(Generic[Key]):
    """Keys with the time each is due; a key due twice is due at the earlier time."""

    def __init__(self) -> None:
        self._due: dict[Key, float] = {}
        # The heap may hold times a key is no longer due at; `_due` knows. Taking one out of the
        # middle of a heap would mean to search all of it; left there, it is popped when it comes to
        # the top.
        self._heap: list[tuple[float, int, Key]] = []
        self._count = 0

    def put(self, key: Key, due: float) -> None:
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        self._count += 1  # so that keys due together leave in order and are never compared
        heappush(self._heap, (due, self._count, key))

    def drop(self, key: Key) -> None:
        self._due.pop(key, None)

    def earliest(self) -> float | None:
        while self._heap:
            due, _, key = self._heap[0]
            if self._due.get(key) == due:
                return due
            heappop(self._heap)
        return None

    def due_until(self, time: float) -> dict[Key, float]:
        return {key: due for key, due in self._due.items() if due <= time}

    def take_due(self, now: float) -> list[Key]:
        taken: list[Key] = []
        while (due := self.earliest()) is not None and due <= now:
            _, _, key = heappop(self._heap)
            del self._due[key]
            taken.append(key)
        return taken


def _wake(taker: asyncio.Future[None]) -> bool:
    """Wake a taker; False when it stopped waiting before."""
    if taker.done():
        return False
    taker.set_result(None)
    return True


Item = TypeVar("Item")
