"""How fast replicas may move from old to new; the arithmetic, alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any, Final

_DEFAULT_SHARE: Final = "25%"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a rolling update must keep to."""

    surge: int
    """How many pods there may be beyond the wanted ones."""
    unavailable: int
    """How many of the wanted ones may be missing."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """One ReplicaSet's share: how many pods it is asked for, and how many can be relied on."""

    wanted: int
    available: int

    @property
    def counted(self) -> int:
        """Pods that will still be there: those about to go are not relied on."""
        return min(self.wanted, self.available)


@dataclass(frozen=True, slots=True)
class Step:
    """What to ask for next: of the new one, and of the old ones in the order given."""

    new: int
    old: tuple[int, ...]


def read_limits(strategy: dict[str, Any] | None, wanted: int) -> Limits:
    """Read maxSurge and maxUnavailable for this many replicas; both zero would never move."""
    given: dict[str, Any] = (strategy or {}).get("rollingUpdate") or {}
    surge = amount(given.get("maxSurge", _DEFAULT_SHARE), wanted, round_up=True)
    unavailable = amount(given.get("maxUnavailable", _DEFAULT_SHARE), wanted, round_up=False)
    return Limits(surge, unavailable if surge or unavailable else 1)


def amount(given: int | str, whole: int, *, round_up: bool) -> int:
    """Return a number, or a share such as `25%` of the whole.

    >>> amount("25%", 10, round_up=True), amount("25%", 10, round_up=False)
    (3, 2)
    """
    if isinstance(given, int):
        return given
    share = int(given.rstrip("%")) * whole / 100
    return ceil(share) if round_up else floor(share)


def plan_step(wanted: int, limits: Limits, new: Replicas, old: Sequence[Replicas]) -> Step:
    """Return how many replicas each should be asked for now.

    Never more than `wanted + surge` in all, never fewer than `wanted - unavailable` that can be
    relied on.
    """
    total = new.wanted + sum(each.wanted for each in old)
    room = wanted + limits.surge - total
    grown = min(new.wanted + max(room, 0), wanted)
    return Step(grown, _shrink(wanted, limits, Replicas(grown, new.available), old))


def _shrink(wanted: int, limits: Limits, new: Replicas, old: Sequence[Replicas]) -> tuple[int, ...]:
    """Take from the old what can go: first what is no use anyway, then what can be spared."""
    least = wanted - limits.unavailable
    spare = new.counted + sum(each.counted for each in old) - least
    left: list[int] = []
    for each in old:
        taken = min(max(spare, 0), each.counted)
        spare -= taken
        # What is not available is not missed by anybody.
        left.append(each.counted - taken)
    return tuple(left)
