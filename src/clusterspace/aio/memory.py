"""Memory that was freed, given back to the system.

The allocator of glibc keeps what is freed between two pieces that are still in use, for the next
time. After a burst (a thousand connections, a list of a hundred megabytes) there may be no next
time: 9,000 connections of nobody left a hub of 80 MB at 540 MB, all of it free, and one call
brought it back to 92 MB. The call took 60 ms for these 450 MB and 0.1 ms when there is nothing to
give back, so it is made when memory has grown and has stopped growing.
"""

import asyncio
import ctypes
import math
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clusterspace.aio.clocks import Clock

LOOK_SECONDS: Final = 5.0
RESERVE_BYTES: Final = 12 * 1024 * 1024
"""How much more than at its smallest a process may be before it is worth a call."""
AGAIN_SECONDS: Final = 30.0
"""When to try again what gave too little: whoever used the memory may have ended meanwhile."""
_CALM_BYTES: Final = 8 * 1024 * 1024
"""What the process may have grown since the last look and still count as calm."""
_SIZES: Final = Path("/proc/self/statm")


@dataclass(slots=True)
class Burst:
    """Decides when memory is given back, from how large the process is now and then."""

    smallest: int
    previous: int
    after_last: int = 0
    last: float = -math.inf

    def is_over(self, resident: int, now: float) -> bool:
        """Whether there may be much to give back, and nobody seems to be about to need it."""
        is_calm = resident - self.previous < _CALM_BYTES
        self.previous = resident
        self.smallest = min(self.smallest, resident)
        if not is_calm or resident - self.smallest < RESERVE_BYTES:
            return False
        return resident - self.after_last >= RESERVE_BYTES or now - self.last >= AGAIN_SECONDS

    def end(self, resident: int, now: float) -> None:
        """Note what is left after memory was given back."""
        self.previous = self.after_last = resident
        self.last = now


async def give_back_freed(clock: Clock) -> None:
    """Give freed memory back after every burst, until cancelled; elsewhere than on glibc, wait."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None or not _SIZES.exists():
        # Waits instead of returning: a kept task that returns counts as failed.
        await asyncio.get_running_loop().create_future()
        return
    burst = Burst(smallest=_resident(), previous=_resident())
    while True:
        await clock.sleep(LOOK_SECONDS)
        if burst.is_over(_resident(), clock.monotonic()):
            # In a thread: the call gives up the interpreter's lock, which goes on meanwhile and
            # needs the allocator only for pieces too large for its own pools. Work that asks for
            # such a piece waits for the allocator's lock, at most for the 60 ms above.
            await asyncio.to_thread(trim, 0)
            burst.end(_resident(), clock.monotonic())


def _resident() -> int:
    return int(_SIZES.read_text().split()[1]) * mmap.PAGESIZE
