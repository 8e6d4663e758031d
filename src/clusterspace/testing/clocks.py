"""A clock the test turns by hand."""

import asyncio
from heapq import heappop, heappush
from typing import Final, cast

_START: Final = 1_700_000_000.0

# Event loops that do not show their queue are given this many turns to get through it.
_BLIND_TURNS: Final = 200

# Tasks that still spin after this many turns will spin for ever.
_MOST_TURNS: Final = 100_000


class ManualClock:
    """Time that stands still until `advance`: no test ever really sleeps.

        clock = ManualClock()
        async with asyncio.TaskGroup() as group:
            group.create_task(renew_every(10, clock))
            await clock.advance(25)     # renewed twice, at 10 and at 20

    It knows nothing of sockets, threads and subprocesses: only what waits on this clock, and
    what that sets going, is run to the end.
    """

    def __init__(self, start: float = _START) -> None:
        self._wall_offset = start
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> float:
        """Return the time of day, as far as it was turned."""
        return self._wall_offset + self._elapsed

    def monotonic(self) -> float:
        """Return the seconds turned so far."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has turned the clock far enough."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        awakened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1  # those who wake at the same time wake in the order they fell asleep
        heappush(self._sleepers, (self._elapsed + seconds, self._count, awakened))
        await awakened

    @property
    def sleeping(self) -> int:
        """How many wait on the clock."""
        return sum(not awakened.done() for _, _, awakened in self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Turn the clock, stopping at every sleeper on the way until all it wakes is done."""
        target = self._elapsed + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, awakened = heappop(self._sleepers)
            if awakened.done():
                continue
            self._elapsed = max(self._elapsed, due)  # one that was due in a freeze wakes after it
            awakened.set_result(None)
            await settle()
        self._elapsed = target
        await settle()

    def jump(self, seconds: float) -> None:
        """Move the time of day alone, as a correction of the machine's clock does."""
        self._wall_offset += seconds

    def freeze(self, seconds: float) -> None:
        """Let time pass in which nothing runs, as for a process that is stopped and goes on."""
        self._elapsed += seconds


async def settle() -> None:
    """Let every task run until all of them wait for something; one caller at a time."""
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    if ready is None:
        for _ in range(_BLIND_TURNS):
            await asyncio.sleep(0)
        return
    for _ in range(_MOST_TURNS):
        await asyncio.sleep(0)
        # We went to the end of the queue: whatever is in it now was set going meanwhile.
        if not len(cast("list[object]", ready)):
            return
    raise AssertionError(f"tasks are still running after {_MOST_TURNS} turns of the event loop")
