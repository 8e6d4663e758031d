"""Reads, decides, makes sure, writes: the scheduler as a controller.

    ResourceBinding, ClusterResourceBinding ─┐
                                             ├──> spec.clusters ──> status ──> events
    Cluster ─────────────────────────────────┘

A binding takes two writes: where its object is to be, and how that was found. Killed between the
two, the next life finds the first done and does the second.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.bindings import clusters_of, template_of
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.confinement import why_not_carried
from clusterspace.client.places import Place
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import Informer, Update
from clusterspace.controllers.reconcile import Done, Outcome, Request, RequeueAfter, request_for
from clusterspace.fleet.propagation.scheduling.candidates import (
    Candidate,
    KnownClusters,
    candidate_of,
)
from clusterspace.fleet.propagation.scheduling.decisions import Decision, plan_for
from clusterspace.fleet.propagation.scheduling.demands import is_to_schedule
from clusterspace.fleet.propagation.scheduling.results import (
    SCHEDULED,
    result_text,
    with_outcome,
    with_targets,
)
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, resource_version_of

_log = structlog.get_logger(__name__)

_STALE_SECONDS: Final = 10.0
"""When to look again while nothing is heard of the clusters, and something would be removed."""


@dataclass(frozen=True, slots=True)
class SchedulerSources:
    """What the scheduler follows on the hub."""

    bindings: Informer
    cluster_bindings: Informer
    clusters: Informer


class Scheduler:
    """Gives every binding its clusters.

    controller = Controller("scheduler", scheduler.reconcile, ...)
    controller.watch(sources.bindings)
    controller.watch(sources.cluster_bindings)
    controller.watch(sources.clusters, scheduler.affected_by)
    """

    def __init__(
        self, hub_client: Client, sources: SchedulerSources, events: EventRecorder, clock: Clock
    ) -> None:
        self._hub_client = hub_client
        self._sources = sources
        self._events = events
        self._clock = clock
        self._known = KnownClusters(sources.clusters.cache)
        self._waiting: set[Request] = set()
        self._overwritten: dict[Request, frozenset[str]] = {}

    async def reconcile(self, request: Request) -> Outcome:
        """Bring one binding to where it should be."""
        source = self._source_of(request)
        binding = source.cache.find(request.key)
        if binding is None or not is_to_schedule(binding):
            self._forget(request)
            return Done()
        if resource_version_of(binding) in self._overwritten.get(request, ()):
            return Done()  # we wrote a later state; it comes back to us as an event
        candidates = self._known.candidates()
        decision = plan_for(binding, candidates)
        if _removes(binding, decision):
            if self._sources.clusters.is_stale:
                return RequeueAfter(_STALE_SECONDS)
            decision = plan_for(binding, await self._confirmed(binding, candidates))
        await self._write(request, binding, decision)
        self._note_waiting(request, decision)
        return Done()

    def affected_by(self, update: Update) -> Iterable[Request]:
        """Return the bindings to look at again because a Cluster changed.

        Room comes and goes all the time, and matters to those only that wait for it.
        """
        before, after = update.decode_before(), update.decode_after()
        if before is not None and after is not None:
            was, is_now = candidate_of(before), candidate_of(after)
            if was == is_now:
                return ()
            if was.differs_only_in_room(is_now):
                return tuple(self._waiting)
        sources = (self._sources.bindings, self._sources.cluster_bindings)
        return [request_for(key) for source in sources for key in source.cache]

    def _source_of(self, request: Request) -> Informer:
        sources = self._sources
        return sources.bindings if request.namespace else sources.cluster_bindings

    async def _confirmed(
        self, binding: Object, candidates: Mapping[str, Candidate]
    ) -> Mapping[str, Candidate]:
        """Return the clusters, those in use as they are at this moment and not as remembered."""
        in_use = {each.name for each in clusters_of(binding)}
        found = {name: await self._hub_client.find(Place(CLUSTERS, name=name)) for name in in_use}
        live = {name: candidate_of(each) for name, each in found.items() if each is not None}
        others = {name: each for name, each in candidates.items() if name not in in_use}
        return dict(sorted({**others, **live}.items()))

    async def _write(self, request: Request, binding: Object, decision: Decision) -> None:
        place = self._source_of(request).place.at(request.key)
        placed = await commit(self._hub_client, place, binding, with_targets(binding, decision))
        told = with_outcome(placed, decision, self._clock.now())
        stored = await commit(self._hub_client, place, placed, told)
        versions = {resource_version_of(each) for each in (binding, placed)}
        self._overwritten[request] = frozenset(versions - {resource_version_of(stored)})
        is_moved = find_at(binding, "spec", "clusters") != find_at(stored, "spec", "clusters")
        if is_moved or _condition_of(binding) != _condition_of(stored):
            self._tell(stored, decision)

    def _tell(self, binding: Object, decision: Decision) -> None:
        reason = "ScheduleBindingSucceed" if decision.is_success else "ScheduleBindingFailed"
        message = decision.message
        if decision.is_success:
            message = f"{message} Result: {result_text(decision.targets)}"
        # A binding written by hand may name anybody's object; that one's owner is not told.
        template = () if why_not_carried(binding) else (template_of(binding).outline,)
        for about in (binding, *template):
            self._events.record(about, reason, message, is_warning=not decision.is_success)
        _log.info(
            "binding scheduled" if decision.is_success else "binding not scheduled",
            targets=dict(decision.targets),
            reason=decision.reason.value,
        )

    def _forget(self, request: Request) -> None:
        self._waiting.discard(request)
        self._overwritten.pop(request, None)

    def _note_waiting(self, request: Request, decision: Decision) -> None:
        if decision.is_success:
            self._waiting.discard(request)
        else:
            self._waiting.add(request)


def _removes(binding: Object, decision: Decision) -> bool:
    return any(each.name not in decision.targets for each in clusters_of(binding))


def _condition_of(binding: Object) -> tuple[object, ...]:
    held = find_condition(find_at(binding, "status", "conditions"), SCHEDULED) or {}
    return held.get("status"), held.get("reason"), held.get("message")
