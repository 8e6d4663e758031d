"""How fast drift is repaired: at once the first time, then ever more slowly for who keeps at it.

Somebody on the member who changes an object back each time, an operator or an old pipeline, would
otherwise have the two of us write it forever, as fast as both can.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from clusterspace.aio.clocks import Clock

LONGEST_SECONDS: Final = 300.0
CALM_SECONDS: Final = 600.0
"""An object that stayed as it should be for this long is repaired at once again."""

BURST: Final = 20
PER_SECOND: Final = 5.0
"""Repairs on one member: a few at once, then so many a second."""


@dataclass(slots=True)
class _Turns:
    """How often one object was repaired in a row, and when last."""

    count: int
    at: float


class RepairPace:
    """Says how long a repair has to wait, for each object and for the member as a whole."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turns: dict[Hashable, _Turns] = {}
        self._tokens = float(BURST)
        self._filled_at = clock.monotonic()

    def wait_seconds(self, subject: Hashable) -> float:
        """Return how long to wait before repairing; a zero is taken, and counts as a repair."""
        now = self._clock.monotonic()
        turns = self._turns.get(subject)
        if turns is not None and now - turns.at >= CALM_SECONDS:
            turns = None
        due = 0.0 if turns is None else turns.at + _delay(turns.count)
        if due > now:
            return due - now
        self._fill(now)
        if self._tokens < 1:
            return (1 - self._tokens) / PER_SECOND
        self._tokens -= 1
        self._turns[subject] = _Turns(1 if turns is None else turns.count + 1, now)
        return 0.0

    def forget(self, subject: Hashable) -> None:
        """Forget an object that is no longer ours to repair."""
        self._turns.pop(subject, None)

    def _fill(self, now: float) -> None:
        self._tokens = min(self._tokens + (now - self._filled_at) * PER_SECOND, float(BURST))
        self._filled_at = now


def _delay(repairs: int) -> float:
    """Return the pause after so many repairs in a row: 1 s, 2 s, 4 s, up to five minutes."""
    return min(2.0 ** (repairs - 1), LONGEST_SECONDS)
