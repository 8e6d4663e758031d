"""Taints and failing applications to eviction tasks, and tasks to their end.

    Cluster: NoExecute taint ──┬─> binding: task ──> (scheduler: spec.clusters without it)
    report: Unhealthy for long ┘    │                         │
                                 task gone <── replaced, or out of grace
                                    │
                                    └──> (works: the old copy is withdrawn, within the budget)

This is the one writer of `gracefulEvictionTasks`. Each step is one write of one field, and each
next step is taken by whoever owns the next field, so that a crash anywhere leaves a binding that
says how far it is.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTERS, DRAIN_TAINT
from clusterspace.apis.works import (
    CLUSTER_RESOURCE_BINDINGS,
    RESOURCE_BINDINGS,
    clusters_of,
    placement_of,
    template_of,
    why_not_carried,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    nothing,
    request_for,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.errors import Malformed
from clusterspace.fleet.propagation.eviction.decisions import (
    APPLICATION_FAILURE,
    ClusterState,
    EvictionSettings,
    assess,
    failing_clusters,
    find_evicting,
    is_answered,
    look_dead,
    new_application_task,
    new_task,
    seconds_tolerated,
    state_of,
    tasks_of,
    tolerated_failure,
    with_tasks,
)
from clusterspace.fleet.propagation.eviction.failback import (
    FAILED_BACK,
    Failbacks,
    going_home,
)
from clusterspace.fleet.propagation.eviction.pace import Pace
from clusterspace.fleet.propagation.eviction.witnesses import Witnesses
from clusterspace.fleet.propagation.heartbeats import Heartbeats
from clusterspace.fleet.propagation.scheduler.demands import is_to_schedule
from clusterspace.fleet.propagation.scheduler.filters import KnownClusters, taint_text
from clusterspace.fleet.propagation.scheduler.peers import NO_PEERS, is_in_a_group, peers_among
from clusterspace.kube.conditions import TRUE
from clusterspace.kube.objects import Object, is_being_deleted
from clusterspace.telemetry import fleet_metrics

_log = structlog.get_logger(__name__)

STARTED: Final = "EvictWorkloadFromClusterStarted"
SUCCEEDED: Final = "EvictWorkloadFromClusterSucceed"
FAILED: Final = "EvictWorkloadFromClusterFailed"
CANCELLED: Final = "EvictWorkloadFromClusterCancelled"
SUSPENDED: Final = "EvictWorkloadFromClusterSuspended"

_LOOK_SECONDS: Final = 10.0
"""When to look again at what waits for something that no watch tells of."""
_WITNESS_SECONDS: Final = 10.0
"""When to look again whether others do not reach a cluster, if its condition does not say so."""
_RETURN_SECONDS: Final = 5.0
"""For how long nobody leaves a cluster that is ready again because of its taints."""

_BY_CLUSTER: Final = "evictable-from"


def by_cluster(binding: Object) -> Iterable[str]:
    """Index bindings by the clusters they are on, or on their way out of."""
    leaving = (str(each.get("fromCluster") or "") for each in tasks_of(binding))
    return {*(each.name for each in clusters_of(binding)), *leaving}


class Eviction(Reconciler):
    """Has bindings leave clusters that they do not tolerate, or fail on, one by one."""

    name = "eviction"

    def __init__(
        self,
        hub: Client,
        caches: HubCaches,
        events: EventRecorder,
        clock: Clock,
        settings: EvictionSettings,
        is_failing: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._is_failing = is_failing
        """Whether a Push cluster did not answer just now, before its condition says so."""
        self._hub = hub
        self._events = events
        self._clock = clock
        self._settings = settings
        indexes = {_BY_CLUSTER: by_cluster}
        self._bindings = caches.informer(RESOURCE_BINDINGS, indexes=indexes)
        self._cluster_bindings = caches.informer(CLUSTER_RESOURCE_BINDINGS, indexes=indexes)
        self._clusters = caches.informer(CLUSTERS)
        self._heartbeats = Heartbeats(caches, clock)
        self._states: dict[str, ClusterState] = {}
        """What the cache of Clusters says, read once for each state."""
        self._settled_at = clock.monotonic() + settings.settle_seconds
        self._suspended = ""
        """Why nobody is evicted at present; empty when somebody may be."""
        self._reported: set[Request] = set()
        """Bindings of which it was said that their evictions are suspended."""
        self._pace = Pace(clock, settings)
        self._failbacks = Failbacks(clock)
        self._witnesses = caches.shared(Witnesses)
        self._unconfirmed: dict[Request, dict[str, str]] = {}
        """Why it was said, for each cluster, that one place alone takes it for dead."""
        self._ready_at: dict[str, float] = {}
        """When clusters were seen to be ready again."""
        self._candidates = caches.shared(KnownClusters)
        self._failing: dict[Request, dict[str, float]] = {}
        """Since when each application fails on each cluster, by our own steady clock.

        Lost with the process: an application then has its whole time once more.
        """

    def watches(self) -> Iterable[Watch]:
        """Return Clusters, and the bindings that are on them."""
        # First the Clusters: a binding is then looked at with all taints known.
        yield Watch(self._clusters, to=self.bindings_of)
        yield self._heartbeats.watch
        yield Watch(self._witnesses.leases, to=nothing)
        yield Watch(self._bindings, when=is_of_interest)
        yield Watch(self._cluster_bindings, when=is_of_interest)

    async def reconcile(self, request: Request) -> Result:
        """Add the tasks that are due to one binding, and end those that are over."""
        informer = self._bindings if request.namespace else self._cluster_bindings
        binding = informer.cache.find(request.key)
        if binding is None or is_being_deleted(binding) or not is_to_schedule(binding):
            self._failing.pop(request, None)
            self._unconfirmed.pop(request, None)
            self._failbacks.forget(request)
            return Done()
        now = self._clock.now()
        leaving = {str(each.get("fromCluster") or "") for each in tasks_of(binding)}
        failures = self._wait_for_failures(request, binding)
        waits: dict[str, float | None] = {}
        for each in clusters_of(binding):
            if each.name not in leaving:
                both = (self._tolerated(binding, each.name), failures.get(each.name))
                waits[each.name] = min((one for one in both if one is not None), default=None)
        due = [name for name, seconds in waits.items() if seconds == 0]
        later = min((each for each in waits.values() if each), default=None)
        if not due and not leaving:
            return await self._go_home(request, informer.path.at(request.key), binding, later)
        if self._is_suspended(request, binding):
            return RequeueAfter(min(_LOOK_SECONDS, max(self._settings.settle_seconds, 0.1)))

        result = assess(
            binding,
            self._states,
            lambda task: self._must_leave(binding, task),
            self._settings.grace_seconds,
            now,
        )
        begun, waiting = await self._begin(request, binding, due, failures)
        waiting += [] if later is None else [later]
        tasks = [*result.kept, *begun]
        if tasks != tasks_of(binding):
            # At the version in our cache: whatever the scheduler, the detector or a person wrote
            # since makes this a conflict, and all of it is looked at again.
            path = informer.path.at(request.key)
            stored = await commit(self._hub, path, binding, with_tasks(binding, tasks))
            # Killed here, the task is on the binding and no event tells of it; nothing else is
            # lost, and nobody begins or ends it twice.
            for each in begun:
                name = str(each["fromCluster"])
                self._pace.begun((request, name), self._domain_of(name))
                why = str(each.get("message") or "its taints are not tolerated, or no longer")
                if each["reason"] == APPLICATION_FAILURE:
                    why = f"it has failed there for {tolerated_failure(binding):g} s or longer"
                self._tell(stored, STARTED, f"Evicting from cluster {name}: {why}.", name)
            for name in result.finished:
                self._tell(stored, SUCCEEDED, f"Evict from cluster {name} succeed.", name)
            for name in result.cancelled:
                message = f"It stays on cluster {name}: there is no reason to leave any more."
                self._tell(stored, CANCELLED, message, name)
        if tasks:
            waiting.append(_LOOK_SECONDS)
        return RequeueAfter(min(waiting)) if waiting else Done()

    async def _go_home(
        self, request: Request, path: ResourcePath, binding: Object, later: float | None
    ) -> Result:
        """Have a binding that fell back go to an earlier group, when its time has come.

        `later` is when to look again for other reasons.
        """
        looks = [] if later is None else [later]
        peers = NO_PEERS
        if is_in_a_group(binding):
            peers = peers_among(binding, self._bindings.cache.objects())
        home, wait = self._failbacks.wait(request, binding, self._candidates.candidates(), peers)
        if not home or wait is None or wait > 0:
            # No watch tells a binding of clusters that it is not on.
            looks += [] if wait is None else [min(wait or _LOOK_SECONDS, _LOOK_SECONDS)]
            return RequeueAfter(min(looks)) if looks else Done()
        if self._is_suspended(request, binding):
            return RequeueAfter(min(_LOOK_SECONDS, max(self._settings.settle_seconds, 0.1)))
        turns = [(request, each.name) for each in clusters_of(binding) if each.name not in home]
        # None when groups overlap, and it is where it would be: then it only changes its group.
        waits = (self._pace.wait(each, self._domain_of(each[1])) for each in turns)
        if (seconds := max(waits, default=0.0)) > 0:
            return RequeueAfter(seconds)
        desired = going_home(binding, home, self._clock.now())
        stored = await commit(self._hub, path, binding, desired)
        # Killed here, the binding says all that is to happen, and no event tells of it.
        for turn in turns:
            self._pace.begun(turn, self._domain_of(turn[1]))
            why = f"{', '.join(sorted(home))} is well again, and comes first"
            self._tell(stored, STARTED, f"Evicting from cluster {turn[1]}: {why}.", turn[1])
        return RequeueAfter(_LOOK_SECONDS)

    def _is_suspended(self, request: Request, binding: Object) -> bool:
        """Whether nobody is evicted; then the binding says so, once."""
        # Before anything is begun, or ended by removing a copy: is it the fleet, or is it us?
        why = self._why_suspended()
        if why:
            if request not in self._reported:
                self._events.record(binding, SUSPENDED, why, is_warning=True)
            self._reported.add(request)
        self._suspend(why)
        return bool(why)

    async def _begin(
        self, request: Request, binding: Object, due: list[str], failures: dict[str, float]
    ) -> tuple[list[Object], list[float]]:
        """Return the tasks that begin now, and how long the others wait for what they wait for."""
        begun: list[Object] = []
        waiting: list[float] = []
        now = self._clock.now()
        for target in clusters_of(binding):
            if target.name not in due:
                continue
            if (seconds := self._wait_for_turn(request, binding, target.name)) > 0:
                waiting.append(seconds)
                continue
            # Before the live read: whoever waits for others to agree asks the hub for nothing.
            is_by_taint = self._tolerated(binding, target.name) == 0
            if is_by_taint and self._is_unconfirmed(request, binding, target.name):
                waiting.append(_WITNESS_SECONDS)
                continue
            try:
                if taint := await self._find_evicting_live(binding, target.name):
                    why = f"its taint {taint_text(taint)} is not tolerated, or no longer"
                    mode = self._settings.purge_mode
                    begun.append(new_task(binding, target, mode, now, why))
                elif failures.get(target.name) == 0:
                    # No live read: the binding itself says that it fails, and is written at the
                    # version that says so.
                    begun.append(new_application_task(binding, target, now))
            except Malformed as error:
                message = f"It stays on cluster {target.name}: {error.message}"
                self._events.record(binding, FAILED, message, is_warning=True)
                waiting.append(_LOOK_SECONDS)
        return begun, waiting

    def _is_unconfirmed(self, request: Request, binding: Object, name: str) -> bool:
        """Whether one place alone takes a Push cluster for dead; then the binding says so, once."""
        state, needed = self._states.get(name), self._settings.witnesses
        why = ""
        # What is ready and tainted was tainted for another reason than silence, and a person who
        # drains a cluster has looked at it.
        is_doubted = state is not None and not state.is_ready and not state.is_pull
        if state and is_doubted and needed > 0 and not self._is_drained(binding, name):
            verdict = self._witnesses.judge(state.uid, needed)
            why = "" if verdict.status == TRUE else verdict.message
        said = self._unconfirmed.setdefault(request, {})
        if why and said.get(name) != why:
            message = f"It stays on cluster {name}: {why}."
            self._events.record(binding, SUSPENDED, message, is_warning=True)
        said[name] = why
        return bool(why)

    async def _find_evicting_live(self, binding: Object, name: str) -> Object | None:
        """Return the taint to leave by, from the hub: somebody may have taken the cached one away.

        None when there is none.
        """
        if self._tolerated(binding, name) != 0:
            return None
        live = await self._hub.find(ResourcePath(CLUSTERS, name=name))
        taints = self._evicting(None if live is None else state_of(live))
        return find_evicting(taints, _tolerations_of(binding), self._clock.now())

    def _tolerated(self, binding: Object, name: str) -> float | None:
        """Return for how much longer a binding tolerates a cluster; None for ever, 0 no longer."""
        taints = self._evicting(self._states.get(name))
        return seconds_tolerated(taints, _tolerations_of(binding), self._clock.now())

    def _is_drained(self, binding: Object, name: str) -> bool:
        """Whether a person has a binding leave a cluster."""
        taints = self._evicting(self._states.get(name))
        drains = [each for each in taints if each.get("key") == DRAIN_TAINT]
        return find_evicting(drains, _tolerations_of(binding), self._clock.now()) is not None

    def _evicting(self, state: ClusterState | None) -> tuple[Object, ...]:
        # A cluster that is not there any more, or is leaving, is the scheduler's affair.
        if state is None or state.is_leaving:
            return ()
        return state.evicting(by_all=self._settings.is_on)

    def _must_leave(self, binding: Object, task: Object) -> bool:
        """Whether what a task of ours was made for still holds."""
        name = str(task.get("fromCluster") or "")
        if task.get("reason") == APPLICATION_FAILURE:
            return name in failing_clusters(binding, self._states)
        if task.get("reason") == FAILED_BACK:
            return not is_answered(binding)  # if there was no place after all it stays
        return self._tolerated(binding, name) == 0

    def _wait_for_failures(self, request: Request, binding: Object) -> dict[str, float]:
        """Return for how much longer each failing copy of an application may fail."""
        now, before = self._clock.monotonic(), self._failing.pop(request, {})
        failing = failing_clusters(binding, self._states)
        since = {name: before.get(name, now) for name in failing}
        if since:
            self._failing[request] = since
        tolerated = tolerated_failure(binding)
        return {name: max(begun + tolerated - now, 0.0) for name, begun in since.items()}

    def _why_suspended(self) -> str:
        """Return why nobody may be evicted now: whatever looks wrong, it may be us."""
        if self._clusters.is_stale or self._heartbeats.are_stale:
            return "nothing is heard of the clusters"
        if why := look_dead(self._seen_states()):
            # And for a while after: some are heard again sooner than others.
            self._settled_at = self._clock.monotonic() + self._settings.settle_seconds
            return why
        if self._clock.monotonic() < self._settled_at:
            return "the controllers have just started, or most of the fleet looked dead just now"
        return ""

    def _seen_states(self) -> Iterable[ClusterState]:
        """Return the clusters as they look; one that is not heard is not ready, either."""
        # Those that fall silent together are not noticed together: agents after their grace, Push
        # clusters after as many looks as their threshold takes. Whoever is noticed first must not
        # be evicted before the others have had their time.
        for name, state in self._states.items():
            has_lease = state.is_pull and self._heartbeats.find(name) is not None
            silence = self._heartbeats.silent_seconds(name) if has_lease else 0.0
            is_heard = silence < self._settings.quiet_seconds and not self._is_failing(name)
            yield replace(state, is_ready=state.is_ready and is_heard)

    def _suspend(self, why: str) -> None:
        if bool(why) != bool(self._suspended):
            fleet_metrics.evictions_suspended(are=bool(why))
            _log.warning("evictions are suspended" if why else "evictions go on", reason=why)
        if not why:
            self._reported.clear()
        self._suspended = why

    def _wait_for_turn(self, request: Request, binding: Object, cluster: str) -> float:
        """Return how long an eviction waits until it may begin."""
        domain = self._domain_of(cluster)
        if (seconds := self._pace.wait((request, cluster), domain)) > 0:
            return seconds
        if self._is_drained(binding, cluster):
            return 0.0  # a person has seen how much it is
        # Ready again, and tainted because it was not: the taint is about to go.
        hold = min(self._settings.settle_seconds, _RETURN_SECONDS)
        since = self._clock.monotonic() - self._ready_at.get(cluster, -_RETURN_SECONDS)
        if since < hold and self._tolerated(binding, cluster) == 0:
            return hold - since
        braked = self._pace.braked(domain, lambda: self._placed_in(domain))
        if braked > 0:
            why = (
                f"many workloads have left {domain} in the last ten minutes: the others wait "
                "(--domain-eviction-budget)"
            )
            self._events.record(binding, SUSPENDED, why, is_warning=True)
        return braked

    def _domain_of(self, cluster: str) -> str:
        state = self._states.get(cluster)
        return "" if state is None else state.domain

    def _placed_in(self, domain: str) -> int:
        """Return how many bindings are on clusters of a failure domain."""
        names = [name for name, state in self._states.items() if state.domain == domain]
        caches = (self._bindings.cache, self._cluster_bindings.cache)
        return sum(len(each.keys_at(_BY_CLUSTER, name)) for each in caches for name in names)

    def _tell(self, binding: Object, reason: str, message: str, cluster: str) -> None:
        template = () if why_not_carried(binding) else (template_of(binding).outline,)
        for about in (binding, *template):
            self._events.record(about, reason, message, is_warning=reason == STARTED)
        fleet_metrics.evicted(cluster, reason.removeprefix("EvictWorkloadFromCluster").lower())
        _log.info("eviction", step=reason, cluster=cluster)

    def bindings_of(self, update: Update) -> Iterable[Request]:
        """Map a Cluster to the bindings on it, when its taints or its health changed."""
        after = update.decode_after()
        state = None if after is None else state_of(after)
        if state == self._states.get(update.key):
            return ()
        self._failbacks.note_change(update.key)
        before = self._states.get(update.key)
        if state is None:
            self._states.pop(update.key, None)
            self._ready_at.pop(update.key, None)
        else:
            if state.is_ready and before is not None and not before.is_ready:
                self._ready_at[update.key] = self._clock.monotonic()
            self._states[update.key] = state
        informers = (self._bindings, self._cluster_bindings)
        keys = (each for one in informers for each in one.cache.keys_at(_BY_CLUSTER, update.key))
        return [request_for(key) for key in keys]


def _tolerations_of(binding: Object) -> list[Object]:
    return (placement_of(binding) or {}).get("clusterTolerations") or []


def is_of_interest(update: Update) -> bool:
    """Whether a binding has clusters to leave, or is leaving some."""
    after = update.decode_after()
    return after is not None and bool(clusters_of(after) or tasks_of(after))
