"""Workloads, worked on one after the other: look at the mirror, decide, carry out."""

from contextlib import suppress
from typing import Final

import structlog

from clusterspace.aio import backoff
from clusterspace.aio.clocks import Clock
from clusterspace.aio.queues import WorkQueue
from clusterspace.errors import AlreadyExists, ApiError, Conflict, NotFound
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.sim.api import (
    CLAIM,
    CONTROLLER_REVISION,
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    NODE,
    POD,
    REPLICA_SET,
    STATEFUL_SET,
    Key,
    Mirror,
    SimApi,
    controller_of,
    key_of,
)
from clusterspace.sim.workloads.daemon_sets import plan_daemon_set
from clusterspace.sim.workloads.deployments import plan_deployment
from clusterspace.sim.workloads.jobs import plan_job
from clusterspace.sim.workloads.plans import Plan
from clusterspace.sim.workloads.replica_sets import plan_replica_set
from clusterspace.sim.workloads.stateful_sets import plan_claim, plan_stateful_set

_log = structlog.get_logger(__name__)

_WORKLOADS: Final = frozenset(
    kind.name for kind in (DEPLOYMENT, REPLICA_SET, STATEFUL_SET, DAEMON_SET, JOB, CLAIM)
)


class Controllers:
    """The workload controllers of one simulated cluster, on one queue."""

    def __init__(self, api: SimApi, mirror: Mirror, clock: Clock) -> None:
        self._api = api
        self._mirror = mirror
        self._clock = clock
        self._queue = WorkQueue[Key](clock, lambda: backoff.exponential(0.05, 5))
        mirror.watch(self._enqueue)

    def _enqueue(self, kube_object: Object, is_gone: bool) -> None:
        """Queue the workloads that a change concerns."""
        if kube_object["kind"] in _WORKLOADS and not is_gone:
            self._queue.add(key_of(kube_object))
        if kube_object["kind"] == NODE.name:
            for daemon_set in self._mirror.all(DAEMON_SET):
                self._queue.add(key_of(daemon_set))
        owner = self._enqueue_owner(kube_object)
        if owner is not None and is_gone:
            # A Deployment that recreates waits for the pods of its ReplicaSets to be gone.
            self._enqueue_owner(owner)

    def _enqueue_owner(self, kube_object: Object) -> Object | None:
        """Queue the workload that controls an object, and return it as it is known."""
        reference = controller_of(kube_object)
        if reference is None or reference["kind"] not in _WORKLOADS:
            return None
        key = Key(str(reference["kind"]), namespace_of(kube_object), str(reference["name"]))
        self._queue.add(key)
        return self._mirror.find(key)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.work(self._reconcile)

    async def _reconcile(self, key: Key) -> None:
        workload = self._mirror.find(key)
        if workload is None:
            self._queue.forget(key)
            return
        try:
            # No await between reading the mirror and the plan: a plan is made of one moment. What
            # changes while it is carried out queues the key again; a write at a version that has
            # passed is a Conflict, and the plan is made anew.
            plan = self._plan(workload)
            for new in plan.create:
                with suppress(AlreadyExists):
                    await self._api.create(new)
            for changed in plan.update:
                await self._api.update(changed)
            for surplus in plan.delete:
                await self._api.delete(surplus)
            if plan.status is not None:
                await self._api.update_status(plan.status)
        except ApiError as error:
            if not isinstance(error, (Conflict, NotFound)):
                _log.warning("workload step refused", key=key, reason=error.message)
            self._queue.retry(key)
            return
        self._queue.forget(key)
        if plan.again_after is not None:
            self._queue.add_after(key, plan.again_after)

    def _plan(self, workload: Object) -> Plan:
        now, mirror = self._clock.now(), self._mirror
        pods = mirror.owned_by(workload, POD)
        match workload["kind"]:
            case "ReplicaSet":
                return plan_replica_set(workload, pods, now)
            case "Deployment":
                replica_sets = mirror.owned_by(workload, REPLICA_SET)
                there = {name_of(each): len(mirror.owned_by(each, POD)) for each in replica_sets}
                return plan_deployment(workload, replica_sets, there, now)
            case "StatefulSet":
                revisions = mirror.owned_by(workload, CONTROLLER_REVISION)
                return plan_stateful_set(workload, pods, revisions, now)
            case "DaemonSet":
                revisions = mirror.owned_by(workload, CONTROLLER_REVISION)
                return plan_daemon_set(workload, pods, revisions, tuple(mirror.all(NODE)), now)
            case "PersistentVolumeClaim":
                return plan_claim(workload)
            case _:
                return plan_job(workload, pods, now)
