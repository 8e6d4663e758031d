"""How many objects may be deleted on a member before a person has to look.

Whatever goes wrong upstream, a policy that matches nothing any more, a hub restored from an old
backup, a bug of ours: it ends here, as too many Works that go at once. What is about to be deleted
counts as much as what was, so that a great wave is stopped before its first object.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import conditions_of
from clusterspace.kube.conditions import FALSE, TRUE, Condition, is_true
from clusterspace.kube.objects import Object, annotations_of
from clusterspace.kube.timestamps import parse_time

FREE_DELETIONS: Final = 10
LARGEST_SHARE: Final = 0.2
WINDOW_SECONDS: Final = 600.0

PAUSED: Final = "DeletionsPaused"
"""Condition of a Cluster: True while nothing is deleted there, False since it was resumed."""

APPROVED_UNTIL: Final = "clusterspace.io/deletions-approved-until"
"""Annotation of a Cluster: Works that were deleted by then may go, a person said so."""


@dataclass(frozen=True, slots=True)
class Withdrawals:
    """What goes and what stays on one member."""

    staying: int
    waiting: int
    """Objects that are to be deleted and are still there."""
    recent: int
    """Objects that were deleted within the window."""

    @property
    def is_too_much(self) -> bool:
        """Whether deleting all of this needs a person's word."""
        going = self.waiting + self.recent
        return going > FREE_DELETIONS and going > LARGEST_SHARE * (self.staying + going)

    @property
    def message(self) -> str:
        """What a person is told."""
        going = self.waiting + self.recent
        return (
            f"{going} of {self.staying + going} objects were to be deleted within"
            f" {WINDOW_SECONDS / 60:g} minutes, {self.recent} of them are:"
            " nothing more is deleted until `clusterspace resume` says so"
        )


class DeletionWindow:
    """The deletions of the last minutes on one member."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: deque[float] = deque()

    def note(self) -> None:
        """Count a deletion."""
        self._times.append(self._clock.monotonic())

    def count(self) -> int:
        """Return how many there were within the window."""
        oldest = self._clock.monotonic() - WINDOW_SECONDS
        while self._times and self._times[0] <= oldest:
            self._times.popleft()
        return len(self._times)

    def clear(self) -> None:
        """Begin anew: a person has looked."""
        self._times.clear()


def paused_condition(withdrawals: Withdrawals) -> Condition:
    """Return the condition of a Cluster on which deletions pause."""
    return Condition(PAUSED, TRUE, "TooManyDeletions", withdrawals.message)


def resumed_condition() -> Condition:
    """Return the condition of a Cluster on which deletions go on."""
    return Condition(PAUSED, FALSE, "Resumed", "Deletions go on: a person said so")


def is_paused(cluster: Object) -> bool:
    """Whether deletions pause on a member, as far as its Cluster tells."""
    return is_true(conditions_of(cluster), PAUSED)


def approved_until(cluster: Object) -> float:
    """Return until when a Work must have been deleted for a person to have approved of it."""
    approved = annotations_of(cluster).get(APPROVED_UNTIL)
    return parse_time(approved) if approved else 0.0
