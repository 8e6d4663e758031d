"""Binding to clusters: read, decide, make sure, write.

    ResourceBinding, ClusterResourceBinding ─┐
                                             ├──> spec.clusters ──> status ──> events
    Cluster ─────────────────────────────────┘

A binding takes two writes: where its object is to be, and how that was found. Killed between the
two, the next attempt finds the first done and does the second.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

import msgspec
import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.quotas import FEDERATED_RESOURCE_QUOTAS
from clusterspace.apis.works import (
    CLUSTER_RESOURCE_BINDINGS,
    RESOURCE_BINDINGS,
    clusters_of,
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
    request_for,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.errors import Malformed, QuotaExceeded
from clusterspace.fleet.propagation.scheduler.decisions import (
    SCHEDULED,
    Decision,
    Reason,
    plan_for,
    result_text,
    with_outcome,
    with_targets,
)
from clusterspace.fleet.propagation.scheduler.demands import is_to_schedule
from clusterspace.fleet.propagation.scheduler.filters import Candidate, KnownClusters, candidate_of
from clusterspace.fleet.propagation.scheduler.peers import WorkloadGroups
from clusterspace.fleet.propagation.scheduler.reservations import Reservations
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, resource_version_of

_log = structlog.get_logger(__name__)

_STALE_SECONDS: Final = 10.0
"""When to look again while nothing is heard of the clusters, and something would be removed."""


_RESERVED_LOOK_SECONDS: Final = 15.0
"""When to look again at what found no place while others had room reserved."""


_QUOTA_LOOK_SECONDS: Final = 60.0
"""When to try again what a quota had no room for, if nothing was heard of the quota."""


_GROUPS: Final = b"workloadAffinityGroups"


class _Priority(msgspec.Struct, gc=False):
    priority: int = 0


class _Spec(msgspec.Struct, gc=False):
    schedulePriority: _Priority = msgspec.field(default_factory=_Priority)  # noqa: N815 - the wire's


class _Head(msgspec.Struct, gc=False):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_head_decoder: Final = msgspec.json.Decoder(_Head)


class Scheduler(Reconciler):
    """Gives every binding its clusters."""

    name = "scheduler"
    workers = 8

    def __init__(self, hub: Client, caches: HubCaches, events: EventRecorder, clock: Clock) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._bindings = caches.informer(RESOURCE_BINDINGS)
        self._cluster_bindings = caches.informer(CLUSTER_RESOURCE_BINDINGS)
        self._clusters = caches.informer(CLUSTERS)
        self._quotas = caches.informer(FEDERATED_RESOURCE_QUOTAS)
        self._candidates = caches.shared(KnownClusters)
        self._reservations = Reservations(clock)
        self._inherited: list[Request] | None = []
        """Bindings there were when this process started; None once their room is reserved."""
        self._groups = WorkloadGroups(caches)
        self._waiting: set[Request] = set()
        """Bindings for which no place was found: they alone care what is full."""
        self._priorities: dict[Request, int] = {}
        """Of bindings that have one, other than 0."""
        self._overwritten: dict[Request, frozenset[str]] = {}
        """Versions of each binding that we have replaced, and that the cache may still have."""

    def watches(self) -> Iterable[Watch]:
        """Return bindings of both kinds, the clusters they may go to, and what limits them."""
        for bindings in (self._bindings, self._cluster_bindings):
            yield Watch(bindings, when=self.notes_priority)
        yield Watch(self._bindings, to=self.waiting_for_peer)
        yield Watch(self._clusters, to=self.affected_by)
        yield Watch(self._quotas, to=self.waiting_for_quota)

    async def reconcile(self, request: Request) -> Result:
        """Bring one binding to where it should be."""
        informer = self._bindings if request.namespace else self._cluster_bindings
        binding = informer.cache.find(request.key)
        if binding is None or not is_to_schedule(binding):
            self._waiting.discard(request)
            self._overwritten.pop(request, None)
            self._reservations.release(request)
            self._groups.forget(request)
            return Done()
        # Our own writes come back as events. Deciding again by a state from before them would
        # conflict at best; the event of the later state is on its way.
        if resource_version_of(binding) in self._overwritten.get(request, ()):
            return Done()
        reported = self._candidates.candidates()
        self._inherit(reported)
        candidates = self._reservations.apply(reported, request)
        decision = plan_for(binding, candidates, self._groups.peers_of(request, binding))
        in_use = {each.name for each in clusters_of(binding)}
        if not in_use <= decision.targets.keys():
            # Taking a cluster away deletes what runs there, and the cache may be behind: clusters
            # in use are read live before that, and a cache that hears nothing decides nothing.
            if self._clusters.is_stale:
                return RequeueAfter(_STALE_SECONDS)
            live = {
                name: await self._hub.find(ResourcePath(CLUSTERS, name=name)) for name in in_use
            }
            confirmed = {name: candidate_of(each) for name, each in live.items() if each}
            others = {name: each for name, each in reported.items() if name not in in_use}
            # Others may have been placed while we looked.
            confirmed = self._reservations.apply({**others, **confirmed}, request)
            peers = self._groups.peers_of(request, binding)
            decision = plan_for(binding, dict(sorted(confirmed.items())), peers)
        # In the same step as the decision, and before the first await: the next one is decided by
        # what this one leaves. Clusters that could not be written give it back, and all is decided
        # anew.
        self._reservations.reserve(request, binding, decision.targets, reported)
        self._groups.note(request, binding, decision.targets)
        decision = await self._write(request, informer.path.at(request.key), binding, decision)
        if decision.is_success:
            self._waiting.discard(request)
            return Done()
        self._waiting.add(request)
        if decision.reason is Reason.QUOTA_EXCEEDED:
            self._reservations.release(request)
            self._groups.forget(request)
            return RequeueAfter(_QUOTA_LOOK_SECONDS)
        # Nothing tells when what others have reserved comes to nothing.
        return RequeueAfter(_RESERVED_LOOK_SECONDS) if self._reservations else Done()

    def notes_priority(self, update: Update) -> bool:
        """Take in the priority of a binding, before it is put in line; it is looked at in any case.

        Kept apart from the cache: a cluster that changes puts thousands in line at once.
        """
        request = request_for(update.key)
        if self._inherited is not None:
            self._inherited.append(request)
        head = None if update.after is None else _head_decoder.decode(update.after)
        if head is None or not head.spec.schedulePriority.priority:
            self._priorities.pop(request, None)
        else:
            self._priorities[request] = head.spec.schedulePriority.priority
        return True

    def _inherit(self, reported: Mapping[str, Candidate]) -> None:
        """Reserve what an earlier process has placed, and no report tells of yet."""
        # Before the first decision: another leader may have given this room away a moment ago.
        requests, self._inherited = self._inherited or (), None
        for request in requests:
            informer = self._bindings if request.namespace else self._cluster_bindings
            binding = informer.cache.find(request.key)
            # What cannot be read is said when that binding itself is decided about.
            with suppress(Malformed):
                if binding is not None:
                    self._reservations.inherit(request, binding, reported)

    def priority_of(self, request: Request) -> int:
        """Return the priority that the policy of a binding gives it."""
        return self._priorities.get(request, 0)

    def affected_by(self, update: Update) -> Iterable[Request]:
        """Map a Cluster to the bindings to look at again because it changed.

        Room comes and goes all the time, and matters to those only that wait for it.
        """
        before, after = update.decode_before(), update.decode_after()
        if before is not None and after is not None:
            was, is_now = candidate_of(before), candidate_of(after)
            if was == is_now:
                return ()
            if was.differs_only_in_room(is_now):
                return tuple(self._waiting)
        informers = (self._bindings, self._cluster_bindings)
        return [request_for(key) for informer in informers for key in informer.cache]

    def waiting_for_peer(self, update: Update) -> Iterable[Request]:
        """Map a binding of a group that is elsewhere now to what waits in its namespace."""
        # Most bindings are of no group, and are not decoded for it.
        if not self._waiting or _GROUPS not in (update.after or update.before or b""):
            return ()
        before, after = update.decode_before() or {}, update.decode_after() or {}
        if clusters_of(before) == clusters_of(after):
            return ()
        request = request_for(update.key)
        inside = (each for each in self._waiting if each.namespace == request.namespace)
        return [each for each in inside if each != request]

    def waiting_for_quota(self, update: Update) -> Iterable[Request]:
        """Map a quota that says something else to what waits in its namespace."""
        before, after = update.decode_before(), update.decode_after()
        if before and after and all(before.get(k) == after.get(k) for k in ("spec", "status")):
            return ()
        namespace = update.key.partition("/")[0]
        return [each for each in self._waiting if each.namespace == namespace]

    async def _write(
        self, request: Request, path: ResourcePath, binding: Object, decision: Decision
    ) -> Decision:
        """Write a decision, in two steps; return it as it came to be."""
        try:
            placed = await commit(self._hub, path, binding, with_targets(binding, decision))
        except QuotaExceeded as error:
            # It stays where it is, with what it has, and the condition says which quota is full.
            current = {each.name: each.replicas for each in clusters_of(binding)}
            decision = replace(
                decision,
                targets=current,
                reason=Reason.QUOTA_EXCEEDED,
                message=error.message,
            )
            placed = binding
        except BaseException:
            self._reservations.release(request)
            self._groups.forget(request)
            raise
        # Killed here, the clusters are chosen and the condition does not say so. The next attempt
        # decides the same, finds nothing to write in the spec, and writes the status. So what was
        # reserved stays if the status cannot be written: others write it in the same moment, and
        # the next attempt sees nothing more to place.
        desired = with_outcome(placed, decision, self._clock.now())
        stored = await commit(self._hub, path, placed, desired)
        self._groups.written(request, resource_version_of(stored))
        versions = {resource_version_of(each) for each in (binding, placed)}
        self._overwritten[request] = frozenset(versions - {resource_version_of(stored)})
        is_moved = find_at(binding, "spec", "clusters") != find_at(stored, "spec", "clusters")
        if not is_moved and _condition_of(binding) == _condition_of(stored):
            return decision

        reason = "ScheduleBindingSucceed" if decision.is_success else "ScheduleBindingFailed"
        message = decision.message
        if decision.is_success:
            message = f"{message} Result: {result_text(decision.targets)}"
        # A binding written by hand may name anybody's object; that one's owner is not told.
        template = () if why_not_carried(stored) else (template_of(stored).outline,)
        is_success = decision.is_success
        for about in (stored, *template):
            self._events.record(
                about, reason, message, is_warning=not is_success, is_routine=is_success
            )
        _log.info(
            "binding scheduled" if decision.is_success else "binding not scheduled",
            targets=dict(decision.targets),
            reason=decision.reason.value,
        )
        return decision


def _condition_of(binding: Object) -> tuple[object, ...]:
    condition = find_condition(find_at(binding, "status", "conditions"), SCHEDULED) or {}
    return condition.get("status"), condition.get("reason"), condition.get("message")
