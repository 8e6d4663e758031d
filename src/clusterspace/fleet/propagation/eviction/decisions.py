"""What is decided about evictions: who must leave, when a task is over, and when nobody moves.

    placed ──taint, or failing for too long──> task ──the scheduler finds a place──> leaving
      ▲                                          │                                      │
      └── the taint went, or it is well again ───┘     replacement healthy, or no grace ─┴─> left

A task alone removes nothing. As long as the scheduler finds no other place the cluster stays in
`spec.clusters`, and what runs there runs on, however long ago it should have left.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from clusterspace.apis.clusters import DRAIN_TAINT, conditions_of, is_pull, taints_of
from clusterspace.apis.witnesses import CONFIRMED
from clusterspace.apis.works import HEALTHY, UNHEALTHY, TargetCluster, clusters_of
from clusterspace.errors import Malformed, MalformedObject
from clusterspace.kube.conditions import find_condition, is_true
from clusterspace.kube.json_paths import read_braced_path, text_of
from clusterspace.kube.names import label_value_problems
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    metadata_of,
    uid_of,
    with_value,
    without_value,
)
from clusterspace.kube.selectors import tolerates
from clusterspace.kube.times import format_time, parse_time

NO_EXECUTE: Final = "NoExecute"
PRODUCER: Final = "TaintManager"
UNTOLERATED: Final = "TaintUntolerated"
APPLICATION_PRODUCERS: Final = {
    True: "resource-binding-application-failover-controller",
    False: "cluster-resource-binding-application-failover-controller",
}
"""By whether the binding has a namespace; the names under which Karmada writes these tasks."""
APPLICATION_FAILURE: Final = "ApplicationFailure"
DIRECTLY: Final = "Directly"
GRACEFULLY: Final = "Gracefully"
NEVER: Final = "Never"
TOLERATED_SECONDS: Final = 300.0
"""For how long an application may fail when its policy does not say."""

_OLD_NAMES: Final = {"Immediately": DIRECTLY, "Graciously": GRACEFULLY}

_READY: Final = "Ready"
_TASKS: Final = ("spec", "gracefulEvictionTasks")


@dataclass(frozen=True, slots=True)
class EvictionSettings:
    """Whether taints evict workloads at all, and how carefully anything is evicted.

    Applications that fail are evicted when their policies ask for it, and all that may leave when
    a person drains a cluster, whether taints evict or not.
    """

    is_on: bool = False
    purge_mode: str = GRACEFULLY
    """Of bindings whose policy says nothing about it."""
    each_second: float = 0.5
    """How many evictions begin in a second, over the whole fleet; 0 begins none."""
    domain_each_second: float = 0.25
    """How many begin in a second in one failure domain: a region, or a provider."""
    domain_percent: float = 50.0
    """How much of a failure domain may begin to leave it within ten minutes; 100 is all of it."""
    grace_seconds: float = 600.0
    """How long a replacement may take to become healthy before the old copy goes all the same."""
    settle_seconds: float = 60.0
    """How long nobody is evicted after a start, and after most of the fleet looked dead."""
    quiet_seconds: float = 20.0
    """For how long an agent may not be heard before its cluster counts among those that look dead.

    Half the time after which it is Unknown: when many fall silent, some are noticed later.
    """
    margin_seconds: float = 60.0
    """How much longer than its lease an exclusive copy of a silent cluster is waited for."""
    witnesses: int = 1
    """How many other places must not reach a Push cluster that looks dead; 0 asks nobody else."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What evictions depend on of a Cluster."""

    uid: str = ""
    is_ready: bool = False
    is_leaving: bool = False
    is_pull: bool = False
    confirmed: str = ""
    """What its condition says of whether others do not reach it, either: has bindings looked at."""
    domain: str = ""
    """The region of the cluster, or its provider: what fails together."""
    taints: tuple[Object, ...] = field(default=(), compare=True)
    """Those with effect NoExecute."""

    def evicting(self, *, by_all: bool) -> tuple[Object, ...]:
        """Return the taints that evict: all of them, or only that of a person who drains."""
        if by_all:
            return self.taints
        return tuple(each for each in self.taints if each.get("key") == DRAIN_TAINT)


def state_of(cluster: Object) -> ClusterState:
    """Return what evictions depend on of a Cluster."""
    return ClusterState(
        uid=uid_of(cluster),
        is_ready=is_true(conditions_of(cluster), _READY),
        is_leaving=is_being_deleted(cluster),
        is_pull=is_pull(cluster),
        confirmed=str((find_condition(conditions_of(cluster), CONFIRMED) or {}).get("status", "")),
        domain=str(
            find_at(cluster, "spec", "region") or find_at(cluster, "spec", "provider") or ""
        ),
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


def find_evicting(
    taints: Iterable[Object], tolerations: Sequence[Object], now: float
) -> Object | None:
    """Return the first NoExecute taint that is not tolerated, or no longer."""
    return next((e for e in taints if seconds_tolerated((e,), tolerations, now) == 0), None)


def tasks_of(binding: Object) -> list[Object]:
    """Return the eviction tasks of a binding."""
    return cast("list[Object]", find_at(binding, *_TASKS) or [])


def with_tasks(binding: Object, tasks: Sequence[Object]) -> Object:
    """Return the binding with these tasks, and no others."""
    return with_value(binding, list(tasks), *_TASKS) if tasks else without_value(binding, *_TASKS)


def new_task(
    binding: Object, cluster: TargetCluster, default_mode: str, now: float, because: str = ""
) -> Object:
    """Return the task that has a binding leave a tainted cluster, `because` of which taint."""
    behaviour = cast("Object | None", find_at(binding, "spec", "failover", "cluster"))
    mode = default_mode if behaviour is None else mode_of(behaviour)
    task = _task(binding, cluster, mode, now, behaviour or {})
    task |= {"producer": PRODUCER, "reason": UNTOLERATED}
    return {**task, "message": because} if because else task


def new_application_task(binding: Object, cluster: TargetCluster, now: float) -> Object:
    """Return the task that has an application leave the cluster on which it fails."""
    behaviour = cast("Object", find_at(binding, "spec", "failover", "application") or {})
    mode = mode_of(behaviour)
    task = _task(binding, cluster, mode, now, behaviour)
    task["producer"] = APPLICATION_PRODUCERS[bool(metadata_of(binding).get("namespace"))]
    task["reason"] = APPLICATION_FAILURE
    grace = behaviour.get("gracePeriodSeconds")
    if mode == GRACEFULLY and grace is not None:
        task["gracePeriodSeconds"] = grace
    if mode == NEVER:
        task["suppressDeletion"] = True
    return task


def _task(
    binding: Object, cluster: TargetCluster, mode: str, now: float, behaviour: Object
) -> Object:
    task: Object = {"fromCluster": cluster.name, "purgeMode": mode}
    task["creationTimestamp"] = format_time(now)
    if cluster.replicas:
        task["replicas"] = cluster.replicas
    if state := preserved_state(binding, cluster.name, behaviour):
        task["preservedLabelState"] = state
        task["clustersBeforeFailover"] = [each.name for each in clusters_of(binding)]
    return task


def mode_of(behaviour: Object) -> str:
    """Return how the old copy goes by a policy: Directly, Gracefully or Never."""
    mode = str(behaviour.get("purgeMode") or GRACEFULLY)
    return _OLD_NAMES.get(mode, mode)


def preserved_state(binding: Object, cluster: str, behaviour: Object) -> dict[str, str]:
    """Return the labels that tell the next copy how far the one on a cluster was.

    MalformedObject when a rule finds nothing there, or what no label can have: an application that
    goes on from its state must not begin anew because that was not to be read.
    """
    rules = cast("list[Object]", find_at(behaviour, "statePreservation", "rules") or [])
    status = _reports_of(binding).get(cluster, {}).get("status")
    state: dict[str, str] = {}
    for rule in rules:
        path = str(rule.get("jsonPath") or "")
        found = read_braced_path(path).find_all(status)
        text = " ".join(text_of(each) for each in found)
        where = f"what {cluster} reports at {path}"
        if not text:
            raise MalformedObject(f"there is nothing in {where}", place=path)
        if problems := label_value_problems(text):
            raise MalformedObject(f"{where} is no label: {problems[0]}", place=path)
        state[str(rule.get("aliasLabelName"))] = text
    return state


def failing_clusters(binding: Object, clusters: Mapping[str, ClusterState]) -> frozenset[str]:
    """Return the clusters that report that the application they were given fails there.

    By a cluster that is heard: what a silent one said last is no news of its application.
    """
    if find_at(binding, "spec", "failover", "application") is None:
        return frozenset()
    reports = _reports_of(binding)
    return frozenset(
        each.name
        for each in clusters_of(binding)
        if reports.get(each.name, {}).get("health") == UNHEALTHY
        and each.name in clusters
        and clusters[each.name].is_ready
    )


def tolerated_failure(binding: Object) -> float:
    """Return for how many seconds an application may fail before it is evicted."""
    path = ("spec", "failover", "application", "decisionConditions", "tolerationSeconds")
    seconds = find_at(binding, *path)
    return TOLERATED_SECONDS if seconds is None else max(float(seconds), 0.0)


def _reports_of(binding: Object) -> dict[str, Object]:
    listed = cast("list[Object]", find_at(binding, "status", "aggregatedStatus") or [])
    return {str(each.get("clusterName")): each for each in listed}


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
    must_leave: Callable[[Object], bool],
    grace_seconds: float,
    now: float,
) -> Assessment:
    """Decide about every task of a binding; `must_leave` tells whether its reason holds.

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
            is_ours = task.get("producer") in (PRODUCER, *APPLICATION_PRODUCERS.values())
            if is_ours and not must_leave(task):
                cancelled.append(name)
            else:
                kept.append(task)
        elif suppressed is False:
            finished.append(name)  # a person looked, and says that it may go
        elif suppressed or task.get("purgeMode") == NEVER or not targets:
            kept.append(task)
        elif is_replaced or now >= _ends_at(binding, task, grace_seconds, now):
            finished.append(name)
        else:
            kept.append(task)
    return Assessment(tuple(kept), tuple(finished), tuple(cancelled))


def is_answered(binding: Object) -> bool:
    """Whether nobody waits to have a binding placed anew."""
    asked = find_at(binding, "spec", "rescheduleTriggeredAt")
    last = find_at(binding, "status", "lastScheduledTime")
    return asked is None or (last is not None and parse_time(str(last)) >= parse_time(str(asked)))


def is_scheduled(binding: Object) -> bool:
    """Whether the clusters were chosen in knowledge of all that the binding says now."""
    seen = find_at(binding, "status", "schedulerObservedGeneration")
    return seen is not None and seen == metadata_of(binding).get("generation")


def all_healthy(binding: Object, clusters: Mapping[str, ClusterState]) -> bool:
    """Whether every cluster of a binding is heard, and says that its whole part is healthy."""
    reports = _reports_of(binding)
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
