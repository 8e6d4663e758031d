"""Work queue: de-duplicating, delayed, rate-limited, serial per key.

A key is waiting, or being worked on, or both: a key added while it is worked on waits for the
worker to be done before anyone is handed it again.

    add ──> waiting ──take──> worked on ──done──> gone
               ^                  │ added meanwhile
               └───────done───────┘

Each key is held once, so the queue is bounded by the number of keys there are.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import suppress
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

from clusterspace.aio.backoff import Delays
from clusterspace.aio.clocks import Alarm, Clock

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


class WorkQueue(Generic[Key]):
    """Keys to be worked on, each by one worker at a time.

        async for key in queue:
            try:
                ...
            finally:
                queue.done(key)

    Iteration ends when the queue was shut down and nothing is left to take.
    """

    def __init__(self, clock: Clock, delays: Delays, observer: QueueObserver | None = None) -> None:
        self._clock = clock
        self._delays = delays
        self._observer = observer
        self._ready: deque[Key] = deque()
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
            await self._wait_for_news()
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

    async def _wait_for_news(self) -> None:
        taker = asyncio.get_running_loop().create_future()
        self._takers.append(taker)
        try:
            await taker
        except asyncio.CancelledError:
            if taker.cancelled():
                # Somebody may have tried to wake it between its cancelling and this line.
                with suppress(ValueError):
                    self._takers.remove(taker)
            elif self._ready:
                # Woken and cancelled at once: the key it was woken for goes to another.
                self._wake_one_taker()
            raise

    def _add_due(self) -> None:
        self._alarm_at = None
        for key in self._later.take_due(self._clock.monotonic()):
            self.add(key)
        self._set_alarm()

    def _set_alarm(self) -> None:
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
        # The heap may hold times a key is no longer due at; `_due` knows.
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
