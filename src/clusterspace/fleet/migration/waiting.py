"""Waiting for what controllers do: looked at now and then, until it is seen or patience ends."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from clusterspace.aio.clocks import Clock

FIRST_LOOK: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_WEIGHT: Final = 0.2
"""Of what was seen last, in how long things usually take."""

Seen = TypeVar("Seen")


class Waiting:
    """Waits for many things of one sort, and learns how long they usually take.

    Thousands of objects are waited for, and each look is a request. Whoever looks when things
    usually are there looks once or twice, on a fast fleet and on a slow one.
    """

    def __init__(self, clock: Clock, patience: float) -> None:
        self._clock = clock
        self._patience = patience
        self._usual = FIRST_LOOK

    async def until_seen(self, look: Callable[[], Awaitable[Seen | None]]) -> Seen | None:
        """Return what `look` returns as soon as that is something; None when patience ends."""
        began = self._clock.monotonic()
        pause = self._usual
        while True:
            # Patience is measured before the look: what is there at the end of it is seen.
            waited = self._clock.monotonic() - began
            if waited >= pause or waited >= self._patience:
                if (seen := await look()) is not None:
                    took = max(waited, FIRST_LOOK)
                    self._usual += _WEIGHT * (min(took, _LONGEST_PAUSE) - self._usual)
                    return seen
                if waited >= self._patience:
                    return None
                pause = min(max(1.5 * pause, waited + FIRST_LOOK), waited + _LONGEST_PAUSE)
            await self._clock.sleep(max(min(pause, self._patience) - waited, 0.01))
