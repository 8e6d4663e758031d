"""What every Cluster gets from the hub: its finalizer, its execution namespace, its taints.

And at its end, the way out: a Cluster that is being deleted leaves, step by step, and is held by
its finalizer until all of it is done.
"""

from collections.abc import Iterable
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTERS, FINALIZER, execution_namespace, taints_of
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit, ensure_finalizer
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import AlreadyExists, CannotLeave
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.connections import MemberClients
from clusterspace.fleet.membership.leave import BeforeRemoval, Cleaner, Leave
from clusterspace.fleet.membership.taints import health_taints, with_taints
from clusterspace.kube.objects import Object, is_being_deleted, name_of

_log = structlog.get_logger(__name__)

_REQUEUE_SECONDS: Final = 2.0


class ClusterController(Reconciler):
    """Gives every Cluster its finalizer, its execution namespace and its taints; lets it leave."""

    name = "clusters"

    def __init__(
        self,
        hub: Client,
        caches: HubCaches,
        events: EventRecorder,
        members: MemberClients,
        clock: Clock,
    ) -> None:
        self._hub = hub
        self._clusters = caches.informer(CLUSTERS)
        self._events = events
        self._members = members
        self._clock = clock

    def watches(self) -> Iterable[Watch]:
        """Return Clusters."""
        yield Watch(self._clusters)

    async def reconcile(self, request: Request) -> Result:
        """Give a Cluster what it needs, or let it go."""
        path = manifests.cluster_path(request.name)
        # Read live: taints are written by the Ready condition that others write just now.
        cluster = await self._hub.find(path)
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
        cluster = await ensure_finalizer(self._hub, path, cluster, FINALIZER)
        await self._ensure_execution_namespace(cluster)
        taints = health_taints(cluster, self._clock.now())
        if taints != list(taints_of(cluster)):
            await commit(self._hub, path, cluster, with_taints(cluster, taints))
            described = ", ".join(f"{each['key']}:{each['effect']}" for each in taints) or "none"
            self._events.record(cluster, "TaintClusterSucceed", f"taints are now: {described}")
        return Done()

    async def _ensure_execution_namespace(self, cluster: Object) -> None:
        name = execution_namespace(name_of(cluster))
        path = manifests.namespace_path(name)
        if await self._hub.find(path) is not None:
            return
        try:
            await self._hub.create(path.collection, manifests.namespace(name))
        except AlreadyExists:
            return
        message = f"created execution namespace {name}"
        self._events.record(cluster, "CreateExecutionSpaceSucceed", message)

    async def _leave(self, cluster: Object) -> None:
        """Take the next steps of a Cluster on its way out; CannotLeave says what it waits for."""
        name = name_of(cluster)

        async def clean(hub_id: str, before_removal: BeforeRemoval) -> object:
            cleaner = Cleaner(await self._members.reach(cluster), is_administrator=False)
            cleaned = await cleaner.clean(name, hub_id, before_removal)
            _log.info("member cleaned", cluster=name, removed=cleaned.removed, kept=cleaned.foreign)
            return cleaned

        await Leave(self._hub, name, clean).step()
        message = f"removed execution namespace {execution_namespace(name)}"
        self._events.record(cluster, "RemoveExecutionSpaceSucceed", message)
        await self._members.forget(name)
