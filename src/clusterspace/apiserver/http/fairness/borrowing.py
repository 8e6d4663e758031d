"""Seats that levels lend each other, by what they have lately had use for.

Every level is promised its nominal seats. Of these some may be lent while it has no use for them,
and it may borrow from others. Every ten seconds the limits are set anew: to each level as many as
it has lately used, all stretched or shrunk by one factor, within its bounds. A level that comes
back from rest has at least its own within ten seconds, whoever had borrowed them.
https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#seats
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

ADJUST_SECONDS: Final = 10.0

_SMOOTHING: Final = 0.977
"""A peak of demand is half forgotten after five minutes."""
_LEAST_TARGET: Final = 0.001


class Demand:
    """How many seats a level could have used, over the time since it was last asked."""

    __slots__ = ("_at", "_integral", "_monotonic", "_seconds", "_squares", "_value", "highest")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._at = monotonic()
        self._value = self.highest = 0
        self._seconds = self._integral = self._squares = 0.0

    def set(self, seats: int) -> None:
        """Note that so many can be used from now on."""
        self._integrate()
        self._value = seats
        if seats > self.highest:
            self.highest = seats

    def _integrate(self) -> None:
        now = self._monotonic()
        seconds, value = now - self._at, self._value
        self._at = now
        self._seconds += seconds
        self._integral += value * seconds
        self._squares += value * value * seconds

    def take(self) -> "Usage":
        """Return what was seen, and begin anew."""
        self._integrate()
        usage = Usage(self.highest)
        if self._seconds > 0:
            average = self._integral / self._seconds
            variance = max(0.0, self._squares / self._seconds - average * average)
            usage = Usage(self.highest, average, math.sqrt(variance))
        self.highest = self._value
        self._seconds = self._integral = self._squares = 0.0
        return usage


@dataclass(frozen=True, slots=True)
class Usage:
    """The seats a level could have used in a period."""

    highest: int
    average: float = 0.0
    deviation: float = 0.0

    def smoothed(self, before: float) -> float:
        """Return what to expect of it: its envelope, or what is left of a higher one before."""
        envelope = self.average + self.deviation
        return max(envelope, _SMOOTHING * before + (1 - _SMOOTHING) * envelope)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a level asks for, and between which bounds it may have it."""

    least: float
    most: float
    target: float


def allocate(seats: int, claims: Sequence[Claim]) -> tuple[list[float], float]:
    """Divide seats: to each its target times one factor, within its bounds; and that factor.

    When the bounds leave no choice, they are what each has.
    """
    targets = [max(claim.target, _LEAST_TARGET) for claim in claims]

    def divided(factor: float) -> list[float]:
        return [
            min(claim.most, max(claim.least, factor * target))
            for claim, target in zip(claims, targets, strict=True)
        ]

    # What is divided grows with the factor, in straight lines between the factors at which some
    # level reaches a bound. So it is enough to look at those, and to interpolate in between.
    bends = sorted(
        {
            bound / target
            for claim, target in zip(claims, targets, strict=True)
            for bound in (claim.least, claim.most)
        }
    )
    below = 0.0
    for above in bends:
        if sum(divided(above)) >= seats:
            low, high = sum(divided(below)), sum(divided(above))
            part = 0.0 if high <= low else max(0.0, (seats - low) / (high - low))
            factor = below + (above - below) * part
            return divided(factor), factor
        below = above
    return divided(below), below
