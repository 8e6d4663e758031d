"""The deletion budget of one member, kept: counts what goes, and pauses when it is too much.

The pause is a condition of the Cluster, so it outlives us and people see it. It ends when a person
says so, by `clusterspace resume`.
"""

from collections.abc import Callable

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTERS, conditions_of
from clusterspace.client.places import place_of
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.fleet.execution.budget import (
    PAUSED,
    DeletionWindow,
    Withdrawals,
    approved_until,
    is_paused,
    paused_condition,
)
from clusterspace.kube.conditions import set_condition
from clusterspace.kube.objects import Object, name_of, with_value

_log = structlog.get_logger(__name__)


class DeletionGuard:
    """Knows a member's Works, and says whether what one of them holds may be deleted."""

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

    def note_work(self, name: str, goes_since: float | None) -> None:
        """Remember a Work, and since when what it holds is to be deleted, if it is."""
        self._goes_since[name] = goes_since

    def forget_work(self, name: str) -> None:
        """Forget a Work that is gone."""
        self._goes_since.pop(name, None)

    def note_deletion(self, goes_since: float) -> None:
        """Count a deletion that was carried out, unless a person had approved of it."""
        if goes_since > self._approved_until():
            self._window.note()

    def cluster_changed(self, before: Object | None, after: Object) -> bool:
        """Take in what the Cluster says now; return whether deletions may go on since."""
        if is_paused(after):
            self._is_pausing = False
        was_paused = before is not None and is_paused(before)
        is_resumed = was_paused and not is_paused(after)
        if is_resumed:
            self._window.clear()
        return is_resumed

    async def permits(self, goes_since: float) -> bool:
        """Whether an object may be deleted now that was to go since this time; pause if not."""
        cluster = self._find_cluster()
        if cluster is None:
            return False
        if is_being_deleted(cluster) or goes_since <= approved_until(cluster):
            # Leaving takes all that was placed along, or hands it over: that choice was made.
            return True
        if self._is_pausing or is_paused(cluster):
            return False
        withdrawals = self._withdrawals(approved_until(cluster))
        if not withdrawals.is_too_much:
            return True
        await self._pause(cluster, withdrawals)
        return False

    def _withdrawals(self, approved: float) -> Withdrawals:
        going = [each for each in self._goes_since.values() if each is not None]
        return Withdrawals(
            staying=len(self._goes_since) - len(going),
            waiting=sum(each > approved for each in going),
            recent=self._window.count(),
        )

    def _approved_until(self) -> float:
        cluster = self._find_cluster()
        return 0.0 if cluster is None else approved_until(cluster)

    async def _pause(self, cluster: Object, withdrawals: Withdrawals) -> None:
        condition = paused_condition(withdrawals)
        conditions = set_condition(conditions_of(cluster), condition, self._clock.now()).conditions
        paused = with_value(cluster, conditions, "status", "conditions")
        await commit(self._hub, place_of(CLUSTERS, cluster), cluster, paused)
        self._is_pausing = True
        self._events.record(cluster, PAUSED, condition.message, is_warning=True)
        _log.warning("deletions paused", cluster=name_of(cluster), reason=condition.message)
