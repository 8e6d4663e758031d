"""How many objects may be deleted on a member before a person has to look, and the pause.

Whatever goes wrong upstream, a policy that matches nothing any more, a hub restored from an old
backup, a bug of ours: it ends here, as too many Works that go at once. What is about to be deleted
counts as much as what was, so that a great wave is stopped before its first object.

The pause is a condition of the Cluster, so it outlives us and people see it. It ends when a person
says so, by `clusterspace resume`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTERS, conditions_of
from clusterspace.client.requests import resource_path_of
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.events import EventRecorder
from clusterspace.kube.conditions import FALSE, TRUE, Condition, is_true, set_condition
from clusterspace.kube.objects import Object, annotations_of, is_being_deleted, name_of, with_value
from clusterspace.kube.times import parse_time

_log = structlog.get_logger(__name__)

FREE_DELETIONS: Final = 10
LARGEST_SHARE: Final = 0.2
WINDOW_SECONDS: Final = 600.0

PAUSED: Final = "DeletionsPaused"
"""Condition of a Cluster: True while nothing is deleted there, False since it was resumed."""

APPROVED_UNTIL: Final = "clusterspace.io/deletions-approved-until"
"""Annotation of a Cluster: Works that were deleted by then may go, a person said so."""


@dataclass(frozen=True, slots=True)
class DeletionCounts:
    """How many objects go from one member, and how many stay."""

    staying: int
    pending: int
    """Objects that are to be deleted and are still there."""
    recent: int
    """Objects that were deleted within the window."""

    @property
    def is_too_much(self) -> bool:
        """Whether deleting all of this needs a person's word."""
        going = self.pending + self.recent
        return going > FREE_DELETIONS and going > LARGEST_SHARE * (self.staying + going)

    @property
    def message(self) -> str:
        """The message of the pause."""
        going = self.pending + self.recent
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


def paused_condition(counts: DeletionCounts) -> Condition:
    """Return the condition of a Cluster on which deletions pause."""
    return Condition(PAUSED, TRUE, "TooManyDeletions", counts.message)


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


class DeletionBudget:
    """The budget of one member: knows its Works, and says whether an object may be deleted."""

    # Three tasks meet here. The informer of Works says which of them go (`note_work`), the moment
    # it hears; the informer of Clusters says when a pause began or ended (`cluster_changed`); and
    # many workers ask (`permits`) and count (`note_deletion`). None of them awaits while it reads
    # or writes the counts, so no lock is needed.
    #
    # A worker that was permitted deletes the objects of its Work without asking again, so what is
    # under way in other workers may exceed the budget by as many Works as there are workers. Great
    # waves, which the budget is for, are seen whole before their first: a Work that goes is counted
    # as pending as soon as its deletion is heard of, and not when its turn in the queue comes.
    #
    # The window is lost with the process. A restart therefore forgives what was deleted in the last
    # ten minutes, but not what is pending, and not a pause, which is on the Cluster.

    def __init__(
        self,
        hub: Client,
        find_cluster: Callable[[], Object | None],
        events: EventRecorder,
        clock: Clock,
    ) -> None:
        self._hub = hub
        self._find_cluster = find_cluster
        self._events = events
        self._clock = clock
        self._window = DeletionWindow(clock)
        self._goes_since: dict[str, float | None] = {}
        self._is_pausing = False
        """We have written the pause, and the cache of Clusters does not show it yet."""

    def note_work(self, name: str, goes_since: float | None) -> None:
        """Remember a Work, and since when its objects are to be deleted, if they are."""
        self._goes_since[name] = goes_since

    def forget_work(self, name: str) -> None:
        """Forget a Work that is gone."""
        self._goes_since.pop(name, None)

    def note_deletion(self, goes_since: float) -> None:
        """Count a deletion that was carried out, unless a person had approved of it."""
        cluster = self._find_cluster()
        # Deletions that a person approved of do not count towards the next pause: `resume` after a
        # great wave would otherwise be followed by a pause at the first object of it.
        if goes_since > (0.0 if cluster is None else approved_until(cluster)):
            self._window.note()

    def cluster_changed(self, before: Object | None, after: Object) -> bool:
        """Take in a change of the Cluster; return whether deletions may go on since."""
        if is_paused(after):
            self._is_pausing = False  # the cache shows it, and shows its end when that comes
        was_paused = before is not None and is_paused(before)
        is_resumed = was_paused and not is_paused(after)
        if is_resumed:
            self._window.clear()
        return is_resumed

    async def permits(self, goes_since: float) -> bool:
        """Whether an object may be deleted now that was to go since this time; pause if not."""
        cluster = self._find_cluster()
        if cluster is None:
            return False  # not seen yet after a start, or gone: nobody can have approved of it
        approved = approved_until(cluster)
        if is_being_deleted(cluster) or goes_since <= approved:
            # Leaving takes all that was placed along, or hands it over: that choice was made.
            return True
        if self._is_pausing or is_paused(cluster):
            return False
        going = [each for each in self._goes_since.values() if each is not None]
        counts = DeletionCounts(
            staying=len(self._goes_since) - len(going),
            pending=sum(each > approved for each in going),
            recent=self._window.count(),
        )
        if not counts.is_too_much:
            return True
        # Several workers may come here before the first has written the pause. The others are
        # refused as conflicts, since all commit against the same version; their Works are tried
        # again, and find the pause. It is written before anything is refused because of it: a
        # crash in between leaves no pause, and whoever comes next counts the same and pauses.
        condition = paused_condition(counts)
        conditions = set_condition(conditions_of(cluster), condition, self._clock.now()).conditions
        paused = with_value(cluster, conditions, "status", "conditions")
        await commit(self._hub, resource_path_of(CLUSTERS, cluster), cluster, paused)
        self._is_pausing = True
        self._events.record(cluster, PAUSED, condition.message, is_warning=True)
        _log.warning("deletions paused", cluster=name_of(cluster), reason=condition.message)
        return False
