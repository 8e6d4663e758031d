"""Going back to an earlier group of clusters, when it has been well for as long as asked for.

    in group 2 of clusterAffinities ──group 1 would do──> for so long ──> a task, and placed anew
                                       ▲                     │
                                       └── a change there ───┘ the time begins anew

Nothing goes back unless the policy says so, with the annotation `clusterspace.io/failback-after`.
"""

from collections.abc import Mapping
from typing import Final, cast

from clusterspace.aio.clocks import Clock
from clusterspace.apis.policies import FAILBACK
from clusterspace.apis.works import clusters_of, placement_of
from clusterspace.controllers.controller import Request
from clusterspace.fleet.propagation.eviction.decisions import (
    GRACEFULLY,
    PRODUCER,
    is_answered,
    with_tasks,
)
from clusterspace.fleet.propagation.scheduler.decisions import plan_for
from clusterspace.fleet.propagation.scheduler.filters import Candidate
from clusterspace.fleet.propagation.scheduler.peers import NO_PEERS, Peers
from clusterspace.kube.objects import Object, annotations_of, find_at, with_value
from clusterspace.kube.times import format_time, parse_time

FAILED_BACK: Final = "Failback"
"""The reason of the tasks by which a binding leaves the clusters that it fell back to."""


def seconds_asked(binding: Object) -> float | None:
    """Return for how long an earlier group is to be well before it is gone back to; None never."""
    text = annotations_of(binding).get(FAILBACK, "")
    return float(text) if text.isdecimal() else None


def find_home(
    binding: Object, candidates: Mapping[str, Candidate], now: float, peers: Peers = NO_PEERS
) -> frozenset[str]:
    """Return the clusters of an earlier group that would take a binding now; none when none would.

    As the scheduler decides it for whoever asks to have it placed anew.
    """
    groups = cast("list[Object]", (placement_of(binding) or {}).get("clusterAffinities") or [])
    names = [str(each.get("affinityName") or "") for each in groups]
    in_use = str(find_at(binding, "status", "schedulerObservingAffinityName") or "")
    if in_use not in names[1:] or not is_answered(binding):
        return frozenset()
    decision = plan_for(_asked_anew(binding, now), candidates, peers)
    is_earlier = decision.is_success and names.index(decision.group_name) < names.index(in_use)
    return frozenset(decision.targets) if is_earlier else frozenset()


def going_home(binding: Object, home: frozenset[str], now: float) -> Object:
    """Return the binding that is placed anew, and leaves where it is when that is replaced.

    Both in one write: placed anew alone, the old copy would go before the next one is healthy.
    """
    tasks: list[Object] = []
    for each in clusters_of(binding):
        if each.name in home:
            continue
        task: Object = {
            "fromCluster": each.name,
            "purgeMode": GRACEFULLY,
            "producer": PRODUCER,
            "reason": FAILED_BACK,
            "message": "an earlier group of clusters is well again",
            "creationTimestamp": format_time(now),
        }
        tasks.append({**task, "replicas": each.replicas} if each.replicas else task)
    return _asked_anew(with_tasks(binding, tasks), now)


def _asked_anew(binding: Object, now: float) -> Object:
    last = find_at(binding, "status", "lastScheduledTime")
    asked = max(now, parse_time(str(last)) + 1 if last else 0.0)
    return with_value(binding, format_time(asked), "spec", "rescheduleTriggeredAt")


class Failbacks:
    """Since when bindings could go back, by our own steady clock.

    Lost with the process: an earlier group then has to be well for its whole time once more.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[Request, tuple[frozenset[str], float]] = {}
        self._changed: dict[str, float] = {}

    def note_change(self, cluster: str) -> None:
        """Take in that a cluster's health or taints have changed: its time begins anew."""
        self._changed[cluster] = self._clock.monotonic()

    def forget(self, request: Request) -> None:
        """Drop what is known of a binding."""
        self._since.pop(request, None)

    def wait(
        self,
        request: Request,
        binding: Object,
        candidates: Mapping[str, Candidate],
        peers: Peers = NO_PEERS,
    ) -> tuple[frozenset[str], float | None]:
        """Return where a binding could go back to, and how long that still has to be well.

        No cluster when there is none, or it is where it belongs; no time when nobody asked.
        """
        seconds = seconds_asked(binding)
        if seconds is None:
            self.forget(request)
            return frozenset(), None
        home = find_home(binding, candidates, self._clock.now(), peers)
        if not home:
            self.forget(request)
            return home, 0.0
        now = self._clock.monotonic()
        known, since = self._since.get(request, (home, now))
        if known != home:
            since = now
        self._since[request] = home, since
        begun = max(since, *(self._changed.get(each, since) for each in home))
        return home, max(begun + seconds - now, 0.0)
