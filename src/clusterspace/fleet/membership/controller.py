"""What every Cluster gets from the hub: its finalizer, its execution namespace, its taints.

And at its end, the way out: a Cluster that is being deleted leaves, step by step, and is held by
its finalizer until all of it is done.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import FINALIZER, execution_namespace, taints_of
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.finalizers import ensure_finalizer, is_being_deleted
from clusterspace.controllers.reconcile import Done, Request, RequeueAfter, Result
from clusterspace.errors import AlreadyExists, CannotLeave
from clusterspace.fleet.membership import manifests, names
from clusterspace.fleet.membership.taints import health_taints, with_taints
from clusterspace.kube.objects import Object, name_of

_log = structlog.get_logger(__name__)

_REQUEUE_SECONDS: Final = 2.0

Leave: TypeAlias = Callable[[Object], Awaitable[None]]
"""Takes the next steps of a Cluster on its way out; CannotLeave says what it waits for."""


class ClusterController:
    """Reconciles Clusters."""

    def __init__(self, hub: Client, leave: Leave, events: EventRecorder, clock: Clock) -> None:
        self._hub = hub
        self._leave = leave
        self._events = events
        self._clock = clock

    async def reconcile(self, request: Request) -> Result:
        """Give a Cluster what it needs, or let it go."""
        place = names.cluster_place(request.name)
        cluster = await self._hub.find(place)
        if cluster is None:
            return Done()
        if is_being_deleted(cluster):
            try:
                await self._leave(cluster)
            except CannotLeave as waiting:
                _log.debug("cluster is leaving", cluster=request.name, waits_for=waiting.why)
                self._events.record(cluster, "ClusterLeaving", waiting.why)
                return RequeueAfter(_REQUEUE_SECONDS)
            return Done()

        # Before the first thing is made for it: from now on it cannot go without a leave.
        cluster = await ensure_finalizer(self._hub, place, cluster, FINALIZER)
        await self._ensure_execution_namespace(cluster)
        taints = health_taints(cluster, self._clock.now())
        if taints != list(taints_of(cluster)):
            await commit(self._hub, place, cluster, with_taints(cluster, taints))
            described = ", ".join(f"{each['key']}:{each['effect']}" for each in taints) or "none"
            self._events.record(cluster, "TaintClusterSucceed", f"taints are now: {described}")
        return Done()

    async def _ensure_execution_namespace(self, cluster: Object) -> None:
        name = execution_namespace(name_of(cluster))
        place = names.namespace_place(name)
        if await self._hub.find(place) is not None:
            return
        try:
            await self._hub.create(place.collection, manifests.namespace(name))
        except AlreadyExists:
            return
        message = f"created execution namespace {name}"
        self._events.record(cluster, "CreateExecutionSpaceSucceed", message)
