"""Forgetting old revisions without breaking a reader: when, and how far.

A store forgets what is older than a window of time, as etcd does under Kubernetes, and sooner when
the past would take too much memory. A reader that still needs the forgotten part gets `Compacted`
and lists again; it never gets a wrong answer. How a store forgets in small steps is its own affair.
"""

import contextlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.store.interface import HistorySize, Revision
from clusterspace.errors import StoreFull


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """How much of the past to keep."""

    window_seconds: float = 300.0
    """Kubernetes compacts etcd every five minutes; clients are used to it."""

    maximum_bytes: int = 128 * 1024 * 1024
    """Memory that replaced values may take before the window shrinks."""

    maximum_events: int = 500_000
    """The same for small values, where the events themselves weigh more."""

    look_every_seconds: float = 1.0
    """A second of writes is how far a limit can be overrun."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Which revision was the newest at a moment of the monotonic clock."""

    at: float
    revision: Revision


class Compactable(Protocol):
    """A store that says how much of the past it holds."""

    @property
    def history(self) -> HistorySize:
        """How much of the past is held."""
        ...

    async def compact(self, revision: Revision) -> None:
        """Forget every older revision."""
        ...


def plan_compaction(
    marks: Iterable[Mark], history: HistorySize, policy: CompactionPolicy, *, now: float
) -> Revision:
    """Return the oldest revision to keep; the present one when there is nothing to forget."""
    aged = [mark.revision for mark in marks if mark.at <= now - policy.window_seconds]
    oldest = max([history.oldest, *aged])
    share = max(history.value_bytes / policy.maximum_bytes, history.events / policy.maximum_events)
    if share <= 1.0:
        return oldest
    # Over a limit: cut to three quarters of it, taking events as equally large. To the limit
    # itself would mean to compact again at every look.
    kept = int((history.newest - history.oldest) * 0.75 / share)
    return max(oldest, Revision(history.newest - kept))


async def compact_forever(store: Compactable, clock: Clock, policy: CompactionPolicy) -> None:
    """Keep the past of a store within its policy, until cancelled or `StoreClosed` is raised.

    A full disk is not a reason to stop: the next look tries again.
    """
    marks: deque[Mark] = deque()
    while True:
        now, history = clock.monotonic(), store.history
        marks.append(Mark(now, history.newest))
        oldest = plan_compaction(marks, history, policy, now=now)
        while marks and marks[0].revision < oldest:
            marks.popleft()
        if oldest > history.oldest:
            with contextlib.suppress(StoreFull):
                await store.compact(oldest)
        await clock.sleep(policy.look_every_seconds)
