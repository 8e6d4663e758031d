"""When evictions begin: at the rate of the fleet, at that of a failure domain, within its budget.

    due ──turn in the fleet──turn in its domain──> within the budget of the domain ──> begins
                                                    │
                                                    └─ braked: waits until ten minutes have passed

A failure domain is a region, or a provider where clusters say no region. That much of one is to be
left at once is seldom true, and when it is the rest of the fleet has to take all of it.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from clusterspace.aio.clocks import Clock
from clusterspace.controllers.controller import Request
from clusterspace.fleet.propagation.eviction.decisions import EvictionSettings
from clusterspace.telemetry import fleet_metrics

WINDOW_SECONDS: Final = 600.0
FEWEST: Final = 10
"""So many may leave a domain in any case: a budget of a few would be none."""
PAUSE_SECONDS: Final = 10.0

Turn: TypeAlias = tuple[Request, str]
"""A binding, and the cluster that it leaves."""


class Pace:
    """Says of each eviction how long it waits before it may begin."""

    def __init__(self, clock: Clock, settings: EvictionSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._slots: dict[Turn, float] = {}
        self._next: dict[str, float] = {}
        """When the next one may have its turn, by domain; of the fleet under the empty name."""
        self._begun: dict[str, deque[float]] = {}

    def wait(self, turn: Turn, domain: str) -> float:
        """Return how long an eviction waits for its turn, at both rates."""
        fleet, own = self._settings.each_second, self._settings.domain_each_second
        if fleet <= 0 or (domain and own <= 0):
            return PAUSE_SECONDS
        now = self._clock.monotonic()
        if turn not in self._slots:
            lines = [("", fleet), (domain, own)] if domain else [("", fleet)]
            slot = now
            for line, rate in lines:
                starts = max(self._next.get(line, 0.0), now)
                self._next[line] = starts + 1 / rate
                slot = max(slot, starts)
            self._slots[turn] = slot
        return max(self._slots[turn] - now, 0.0)

    def braked(self, domain: str, placed: Callable[[], int]) -> float:
        """Return how long evictions from a domain wait because enough have begun; 0 when not.

        `placed` counts the workloads that are in the domain.
        """
        if not domain or self._settings.domain_percent >= 100:
            return 0.0
        now, begun = self._clock.monotonic(), self._begun.get(domain, deque())
        while begun and begun[0] + WINDOW_SECONDS <= now:
            begun.popleft()
        # Those that have left are not there to be counted any more.
        there = placed() + len(begun)
        is_braked = len(begun) >= max(FEWEST, there * self._settings.domain_percent / 100)
        fleet_metrics.evictions_braked(domain, are=is_braked)
        return begun[0] + WINDOW_SECONDS - now if is_braked else 0.0

    def begun(self, turn: Turn, domain: str) -> None:
        """Take in that an eviction has begun."""
        self._slots.pop(turn, None)
        if domain:
            self._begun.setdefault(domain, deque()).append(self._clock.monotonic())
