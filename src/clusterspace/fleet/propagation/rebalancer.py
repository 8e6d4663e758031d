"""WorkloadRebalancer: named workloads are placed anew, as if they had just come.

    WorkloadRebalancer ──names──> binding: spec.rescheduleTriggeredAt ──> (scheduler, afresh)
           ▲                                        │
           └────────── observedWorkloads ───────────┘

The time it asks for is that of its own creation. So a binding that was asked before a crash is
known by that time, asking twice moves nothing twice, and what was placed after the rebalancer was
made is not moved by it.
"""

from collections.abc import Iterable
from typing import Final, cast

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.stamps import binding_name
from clusterspace.apis.works import resource_for, template_of, why_not_carried
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, DeleteOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.errors import NotFound
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    metadata_of,
    name_of,
    resource_version_of,
    uid_of,
    with_value,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import format_time, parse_time

_log = structlog.get_logger(__name__)

WORKLOAD_REBALANCERS: Final = GroupVersionResource(
    "apps.karmada.io", "v1alpha1", "workloadrebalancers"
)

SUCCESSFUL: Final = "Successful"
FAILED: Final = "Failed"
BINDING_NOT_FOUND: Final = "ReferencedBindingNotFound"
TRIGGERED: Final = "RescheduleTriggered"

_REFERENCE: Final = ("apiVersion", "kind", "namespace", "name")


def to_observe(rebalancer: Object) -> list[Object]:
    """Return the workloads a rebalancer tells of, in Karmada's order; new ones have no result.

    One that its author took out of the list is still told of when it was asked to move: it was.
    """
    spec_workloads = cast("list[Object]", find_at(rebalancer, "spec", "workloads") or [])
    wanted = {_key_of(each): each for each in spec_workloads}
    observed = cast("list[Object]", find_at(rebalancer, "status", "observedWorkloads") or [])
    known = {_key_of(each["workload"]): each for each in observed}
    kept = {
        key: each
        for key, each in known.items()
        if key in wanted or each.get("result") == SUCCESSFUL
    }
    new = {key: Object(workload=each) for key, each in wanted.items() if key not in kept}
    listed = {**kept, **new}
    return [listed[key] for key in sorted(listed, key=" ".join)]


def with_observed(rebalancer: Object, observed: list[Object], now: float) -> Object:
    """Return the rebalancer with what became of each workload; all of them have a result.

    When it finished moves only when something else did, and with it the time it has left.
    """
    before = cast("Object", rebalancer.get("status") or {})
    status: Object = {
        **before,
        "observedGeneration": metadata_of(rebalancer).get("generation"),
        "observedWorkloads": observed,
    }
    if status != before or "finishTime" not in before:
        status["finishTime"] = format_time(now)
    return {**rebalancer, "status": status}


def is_about(binding: Object, workload: Object) -> bool:
    """Whether a binding is of this workload, and not of one of another group with its name."""
    group = str(workload.get("apiVersion") or "").rpartition("/")[0]
    _, kind, namespace, name = _key_of(workload)
    return template_of(binding).subject == (group, kind, namespace, name)


def _key_of(workload: Object) -> tuple[str, ...]:
    return tuple(str(workload.get(field) or "") for field in _REFERENCE)


class RebalancerController(Reconciler):
    """Has the bindings of named workloads scheduled anew, once for each rebalancer."""

    name = "workload-rebalancer"
    workers = 2

    def __init__(self, hub: Client, caches: HubCaches, events: EventRecorder, clock: Clock) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._rebalancers = caches.informer(WORKLOAD_REBALANCERS)

    def watches(self) -> Iterable[Watch]:
        """Return rebalancers whose authors wrote something."""
        yield Watch(self._rebalancers, when=is_written_by_its_author)

    async def reconcile(self, request: Request) -> Result:
        """Ask for every workload that was not asked for yet, then say so; later, clean up."""
        path = ResourcePath(WORKLOAD_REBALANCERS, name=request.name)
        # Live: what the cache has may lack our own status, or an edit of the list of workloads.
        rebalancer = await self._hub.find(path)
        if rebalancer is None or is_being_deleted(rebalancer):
            return Done()
        observed: list[Object] = []
        for each in to_observe(rebalancer):
            if each.get("result"):
                observed.append(each)
                continue
            outcome = await self._trigger(rebalancer, each["workload"])
            observed.append({"workload": each["workload"], **outcome})
        # Killed here, some bindings have been asked and nobody says so. The next attempt finds the
        # time of this rebalancer in them, writes nothing there, and comes to the same results.
        finished = with_observed(rebalancer, observed, self._clock.now())
        stored = await commit(self._hub, path, rebalancer, finished)

        lasts = find_at(stored, "spec", "ttlSecondsAfterFinished")
        if lasts is None:
            return Done()
        ends_at = parse_time(stored["status"]["finishTime"]) + max(int(lasts), 0)
        if (left := ends_at - self._clock.now()) > 0:
            return RequeueAfter(left)
        # By the version that was just seen: an author who writes now has something in mind.
        options = DeleteOptions(uid_of(stored), resource_version=resource_version_of(stored))
        try:
            await self._hub.delete(path, options)
        except NotFound:
            return Done()
        _log.info("workload rebalancer is over", rebalancer=request.name)
        return Done()

    async def _trigger(self, rebalancer: Object, workload: Object) -> Object:
        """Have one workload scheduled anew; return its result."""
        _, kind, namespace, name = _key_of(workload)
        path = ResourcePath(resource_for(namespace), namespace, binding_name(kind, name))
        binding = await self._hub.find(path)
        if binding is None or is_being_deleted(binding) or not is_about(binding, workload):
            return {"result": FAILED, "reason": BINDING_NOT_FOUND}
        asked_at = str(metadata_of(rebalancer).get("creationTimestamp"))
        before = find_at(binding, "spec", "rescheduleTriggeredAt")
        if before is None or parse_time(str(before)) < parse_time(asked_at):
            asked = with_value(binding, asked_at, "spec", "rescheduleTriggeredAt")
            stored = await commit(self._hub, path, binding, asked)
            message = f"WorkloadRebalancer {name_of(rebalancer)} has it placed anew"
            # A binding written by hand may name anybody's object; that one's owner is not told.
            template = () if why_not_carried(stored) else (template_of(stored).outline,)
            for about in (stored, *template):
                self._events.record(about, TRIGGERED, message)
        return {"result": SUCCESSFUL}


def is_written_by_its_author(update: Update) -> bool:
    """Whether a rebalancer is new, or another than before but for its status."""
    before, after = update.decode_before(), update.decode_after()
    return after is not None and (before is None or before.get("spec") != after.get("spec"))
