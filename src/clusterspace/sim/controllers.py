"""Workloads, worked on one after the other: look at the mirror, decide, carry out."""

from collections.abc import Awaitable
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
    SimApi,
)
from clusterspace.sim.mirror import Key, Mirror, controller_of, key_of
from clusterspace.sim.workloads.claims import plan_claim
from clusterspace.sim.workloads.daemon_sets import plan_daemon_set
from clusterspace.sim.workloads.deployments import plan_deployment
from clusterspace.sim.workloads.jobs import plan_job
from clusterspace.sim.workloads.plans import Plan
from clusterspace.sim.workloads.replica_sets import plan_replica_set
from clusterspace.sim.workloads.stateful_sets import plan_stateful_set

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
        mirror.watch(self._see)

    async def run(self) -> None:
        """Work until cancelled."""
        async for key in self._queue:
            try:
                await self._work_on(key)
            finally:
                self._queue.done(key)

    # -- what is concerned ---------------------------------------------------------------------

    def _see(self, kube_object: Object, is_gone: bool) -> None:
        if kube_object["kind"] in _WORKLOADS and not is_gone:
            self._queue.add(key_of(kube_object))
        if kube_object["kind"] == NODE.name:
            for daemon_set in self._mirror.all(DAEMON_SET):
                self._queue.add(key_of(daemon_set))
        self._add_owner(kube_object, is_gone=is_gone)

    def _add_owner(self, kube_object: Object, *, is_gone: bool) -> None:
        reference = controller_of(kube_object)
        if reference is None or reference["kind"] not in _WORKLOADS:
            return
        key = Key(str(reference["kind"]), namespace_of(kube_object), str(reference["name"]))
        self._queue.add(key)
        owner = self._mirror.find(key) if is_gone else None
        if owner is not None:
            # A Deployment that recreates waits for the pods of its ReplicaSets to be gone.
            self._add_owner(owner, is_gone=False)

    # -- what is done about it -----------------------------------------------------------------

    async def _work_on(self, key: Key) -> None:
        workload = self._mirror.find(key)
        if workload is None:
            self._queue.forget(key)
            return
        try:
            plan = self._plan(workload)
            await self._carry_out(plan)
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

    async def _carry_out(self, plan: Plan) -> None:
        for wanted in plan.create:
            await _unless_taken(self._api.create(wanted))
        for changed in plan.update:
            await self._api.update(changed)
        for surplus in plan.delete:
            await self._api.delete(surplus)
        if plan.status is not None:
            await self._api.update_status(plan.status)


async def _unless_taken(creation: Awaitable[Object]) -> None:
    try:
        await creation
    except AlreadyExists:
        return
