"""What is decided about evictions: who must leave, when a task is over, and when nobody moves.

    placed ──taint, not tolerated──> task ──the scheduler finds a replacement──> leaving
      ▲                               │                                            │
      └──── the taint went first ─────┘      replacement healthy, or out of grace ─┴──> left

A task alone removes nothing. As long as the scheduler finds no other place the cluster stays in
`spec.clusters`, and what runs there runs on, however long ago it should have left.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from clusterspace.apis.clusters import conditions_of, taints_of
from clusterspace.apis.works import HEALTHY, TargetCluster, clusters_of
from clusterspace.errors import Malformed
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    metadata_of,
    with_value,
    without_value,
)
from clusterspace.kube.selectors import tolerates
from clusterspace.kube.times import format_time, parse_time

NO_EXECUTE: Final = "NoExecute"
PRODUCER: Final = "TaintManager"
UNTOLERATED: Final = "TaintUntolerated"
DIRECTLY: Final = "Directly"
GRACEFULLY: Final = "Gracefully"

_READY: Final = "Ready"
_TASKS: Final = ("spec", "gracefulEvictionTasks")


@dataclass(frozen=True, slots=True)
class EvictionSettings:
    """Whether workloads are evicted at all, and how carefully."""

    is_on: bool = False
    purge_mode: str = GRACEFULLY
    """Of bindings whose policy says nothing about it."""
    each_second: float = 0.5
    """How many evictions begin in a second, over the whole fleet; 0 begins none."""
    grace_seconds: float = 600.0
    """How long a replacement may take to become healthy before the old copy goes all the same."""
    settle_seconds: float = 60.0
    """How long nobody is evicted after a start, and after most of the fleet looked dead."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What evictions depend on of a Cluster."""

    is_ready: bool = False
    is_leaving: bool = False
    taints: tuple[Object, ...] = field(default=(), compare=True)
    """Those with effect NoExecute."""


def state_of(cluster: Object) -> ClusterState:
    """Return what evictions depend on of a Cluster."""
    return ClusterState(
        is_ready=is_true(conditions_of(cluster), _READY),
        is_leaving=is_being_deleted(cluster),
        taints=tuple(each for each in taints_of(cluster) if each.get("effect") == NO_EXECUTE),
    )


def look_dead(clusters: Iterable[ClusterState]) -> str:
    """Return why the fleet is not believed to be as it looks; empty when it is.

    That most clusters fail at once is seldom true: nearly always it is the hub's own network.
    """
    staying = [each for each in clusters if not each.is_leaving]
    dead = sum(not each.is_ready for each in staying)
    if 2 * dead <= len(staying):
        return ""
    return f"{dead} of {len(staying)} clusters are not ready: the hub suspects itself first"


def seconds_tolerated(
    taints: Iterable[Object], tolerations: Sequence[Object], now: float
) -> float | None:
    """Return for how much longer NoExecute taints are tolerated; None for ever, 0 no longer."""
    ends: list[float] = []
    for taint in taints:
        matching = next((each for each in tolerations if tolerates(each, taint)), None)
        if matching is None:
            return 0.0
        seconds = matching.get("tolerationSeconds")
        if seconds is None:
            continue
        try:
            added = parse_time(str(taint.get("timeAdded")))
        except Malformed:
            added = now  # nobody says since when: as if it had just come
        ends.append(added + max(int(seconds), 0))
    return max(min(ends) - now, 0.0) if ends else None


def tasks_of(binding: Object) -> list[Object]:
    """Return the eviction tasks of a binding."""
    return cast("list[Object]", find_at(binding, *_TASKS) or [])


def with_tasks(binding: Object, tasks: Sequence[Object]) -> Object:
    """Return the binding with these tasks, and no others."""
    return with_value(binding, list(tasks), *_TASKS) if tasks else without_value(binding, *_TASKS)


def new_task(binding: Object, cluster: TargetCluster, default_mode: str, now: float) -> Object:
    """Return the task that has a binding leave a cluster."""
    behaviour = cast("Object | None", find_at(binding, "spec", "failover", "cluster"))
    mode = default_mode if behaviour is None else str(behaviour.get("purgeMode") or GRACEFULLY)
    replicas = {"replicas": cluster.replicas} if cluster.replicas else {}
    return {
        "fromCluster": cluster.name,
        "purgeMode": mode,
        "producer": PRODUCER,
        "reason": UNTOLERATED,
        "creationTimestamp": format_time(now),
        **replicas,
    }


@dataclass(frozen=True, slots=True)
class Assessment:
    """What becomes of the tasks of a binding."""

    kept: tuple[Object, ...] = ()
    finished: tuple[str, ...] = ()
    """Clusters whose copy may go now."""
    cancelled: tuple[str, ...] = ()
    """Clusters that were never left, and need not be any more."""


def assess(
    binding: Object,
    clusters: Mapping[str, ClusterState],
    must_leave: Callable[[str], bool],
    grace_seconds: float,
    now: float,
) -> Assessment:
    """Decide about every task of a binding; `must_leave` tells whether a cluster still evicts it.

    A task is over when everything that replaces the old copy is healthy, by a report about what
    is now wanted, from a cluster that is heard: an old report of a dead cluster is no replacement.
    """
    targets = clusters_of(binding)
    in_use = {each.name for each in targets}
    is_replaced = bool(targets) and is_scheduled(binding) and all_healthy(binding, clusters)
    kept: list[Object] = []
    finished: list[str] = []
    cancelled: list[str] = []
    for task in tasks_of(binding):
        name = str(task.get("fromCluster") or "")
        created, suppressed = task.get("creationTimestamp"), task.get("suppressDeletion")
        if created is None:
            kept.append({**task, "creationTimestamp": format_time(now)})
        elif name in in_use:
            # The scheduler has not got to it, or has no other place: nothing is given up.
            if task.get("producer") == PRODUCER and not must_leave(name):
                cancelled.append(name)
            else:
                kept.append(task)
        elif suppressed is False:
            finished.append(name)  # a person looked, and says that it may go
        elif suppressed or task.get("purgeMode") == "Never" or not targets:
            kept.append(task)
        elif is_replaced or now >= _ends_at(binding, task, grace_seconds, now):
            finished.append(name)
        else:
            kept.append(task)
    return Assessment(tuple(kept), tuple(finished), tuple(cancelled))


def is_scheduled(binding: Object) -> bool:
    """Whether the clusters were chosen in knowledge of all that the binding says now."""
    seen = find_at(binding, "status", "schedulerObservedGeneration")
    return seen is not None and seen == metadata_of(binding).get("generation")


def all_healthy(binding: Object, clusters: Mapping[str, ClusterState]) -> bool:
    """Whether every cluster of a binding is heard, and says that its whole part is healthy."""
    listed = cast("list[Object]", find_at(binding, "status", "aggregatedStatus") or [])
    reports = {str(each.get("clusterName")): each for each in listed}
    for target in clusters_of(binding):
        state, report = clusters.get(target.name), reports.get(target.name, {})
        if state is None or not state.is_ready or report.get("health") != HEALTHY:
            return False
        # What it was before it got more replicas is healthy, too, until it has heard of them.
        counted = cast("Object", report.get("status") or {})
        if "replicas" in counted and int(counted.get("readyReplicas") or 0) < target.replicas:
            return False
    return True


def _ends_at(binding: Object, task: Object, grace_seconds: float, now: float) -> float:
    """Return when a task is over in any case.

    The time is counted from when a replacement was chosen, if that was later: it cannot have
    begun to become healthy before.
    """
    seconds = task.get("gracePeriodSeconds")
    grace = grace_seconds if seconds is None else float(seconds)
    begun = parse_time(str(task["creationTimestamp"]))
    scheduled = find_at(binding, "status", "lastScheduledTime")
    if scheduled is not None:
        begun = max(begun, min(parse_time(str(scheduled)), now))
    return begun + grace
