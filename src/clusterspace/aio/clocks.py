"""The Clock protocol and the system clock; nobody else reads the time.

Also what is made of it: an alarm, delays that grow and are jittered, how late the event loop is by
its own fault, and a wait that is told without filling the log.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Final, Protocol, TypeAlias

import structlog


class Clock(Protocol):
    """What time it is, and how to wait for it to pass."""

    def now(self) -> float:
        """Return seconds since 1970. It may jump, either way: for timestamps only."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some moment. It never goes back: for measuring and deadlines."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once that many seconds have passed; at the next turn of the loop if none."""
        ...


class SystemClock:
    """The time of this machine."""

    # The functions themselves: a request asks what time it is ten times.
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop."""
        await asyncio.sleep(max(seconds, 0))


class Alarm:
    """Calls back once, at the time it was last set to."""

    def __init__(self, clock: Clock, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._callback = callback
        self._pending: asyncio.Task[None] | None = None

    def set(self, seconds: float) -> None:
        """Call back after this many seconds, and no longer when it was to be before."""
        # At most one task waits. One whose sleep is over but which has not run yet is cancelled as
        # well: a task that is cancelled before its next step never takes that step.
        self.cancel()
        self._pending = asyncio.create_task(self._ring_after(seconds), name="alarm")

    def cancel(self) -> None:
        """Do not call back."""
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None

    async def _ring_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        # Cleared first: the callback may set the alarm again, which must not cancel this task. No
        # await follows, so nobody can cancel between here and the end of the callback.
        self._pending = None
        self._callback()


PERIOD_SECONDS: Final = 0.025
"""How often the loop is looked at; a stall is known to within this."""


async def measure_stalls(clock: Clock, observe: Callable[[float], None]) -> None:
    """Observe after each period by how many seconds this process was late by itself; for ever.

    Everybody who asks a server something waits while its loop does not turn. A timer that rings
    late shows it; on a crowded machine it is late because others were given the processor, which
    nothing in this process could help. So what counts is the part of the delay in which we ran.
    """
    while True:
        began, used = clock.monotonic(), time.process_time()
        await clock.sleep(PERIOD_SECONDS)
        late = clock.monotonic() - began - PERIOD_SECONDS
        # The processor time is that of all threads: with a lane at work it may be more than the
        # delay, which is then the bound.
        observe(max(0.0, min(late, time.process_time() - used)))


Delays: TypeAlias = Callable[[], Iterator[float]]
"""Starts a new series of delays; a series that ends means giving up."""


def exponential(first: float, longest: float, *, factor: float = 2.0) -> Iterator[float]:
    """Yield delays that grow by the factor, without end, and stay at the longest."""
    delay = min(first, longest)
    while True:
        yield delay
        delay = min(delay * factor, longest)


def jittered(
    first: float, longest: float, random: Random, *, factor: float = 2.0, spread: float = 0.5
) -> Iterator[float]:
    """Yield growing delays, each shortened by a random part of itself, at most `spread`.

    Those who failed together would otherwise come back together. Jitter only shortens, so
    `longest` is a promise.
    """
    for delay in exponential(first, longest, factor=factor):
        yield delay * (1 - spread * random.random())


_log = structlog.get_logger(__name__)

AGAIN_SECONDS: Final = 60.0
"""Somebody who looks at the log finds what is waited for in its last minute."""


class Waiting:
    """Tells what is waited for: at once, when the reason changes, every minute, and when it ends.

    Whoever tries something again and again calls `failed` with each reason, and `over` when it
    worked; most of these calls say nothing.
    """

    def __init__(self, clock: Clock, what: str, **fields: object) -> None:
        self._clock = clock
        self._what = what
        self._fields = fields
        self._reason: str | None = None
        self._since = 0.0
        self._reported = 0.0

    @property
    def reason(self) -> str:
        """Why it did not work last; empty when nothing is waited for."""
        return self._reason or ""

    def failed(self, reason: str) -> None:
        """Tell that it did not work yet, unless that is known."""
        now = self._clock.monotonic()
        if self._reason is None:
            self._since = now
        elif reason == self._reason and now - self._reported < AGAIN_SECONDS:
            return
        self._reason, self._reported = reason, now
        waited = round(now - self._since)
        _log.warning(
            "waiting", what=self._what, reason=reason, waited_seconds=waited, **self._fields
        )

    def over(self) -> None:
        """Tell that it worked, if anybody was told that it did not."""
        if self._reason is None:
            return
        self._reason = None
        waited = round(self._clock.monotonic() - self._since)
        _log.info("waiting is over", what=self._what, waited_seconds=waited, **self._fields)
