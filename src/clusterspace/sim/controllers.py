"""Controllers, worked on one after the other: look at the mirror, decide, carry out."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

import structlog

from clusterspace.aio import clocks
from clusterspace.aio.clocks import Clock
from clusterspace.aio.queues import WorkQueue
from clusterspace.errors import AlreadyExists, ApiError, Conflict, NotFound
from clusterspace.sim.api import Change, Key, Mirror, SimApi
from clusterspace.sim.autoscaling import AutoscalerController
from clusterspace.sim.disruption import DisruptionController
from clusterspace.sim.nodes import NodeController, PodEvictions
from clusterspace.sim.plans import Plan
from clusterspace.sim.services import (
    EndpointsController,
    EndpointSliceController,
    MirroringController,
)
from clusterspace.sim.volumes import VolumeController
from clusterspace.sim.workloads.controller import OrphanedJobPods, WorkloadController
from clusterspace.sim.workloads.cron_jobs import CronJobController

_log = structlog.get_logger(__name__)

_LONG_SECONDS: Final = 0.003
_REST_FACTOR: Final = 10.0


class Controller(Protocol):
    """Keeps one kind as it should be; it decides, and others carry out."""

    @property
    def name(self) -> str:
        """What it is called in logs."""
        ...

    @property
    def batch_seconds(self) -> float:
        """How long changes are collected before an object is looked at."""
        ...

    def requests(self, change: Change) -> Iterable[Key]:
        """Return the objects of its kind that a change concerns."""
        ...

    def plan(self, key: Key, now: float) -> Plan:
        """Decide what to do about one of them, which may be gone."""
        ...


class _Request(NamedTuple):
    controller: Controller
    key: Key


class Controllers:
    """The controllers of one simulated cluster, on one queue."""

    def __init__(self, api: SimApi, mirror: Mirror, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._controllers: tuple[Controller, ...] = (
            WorkloadController(mirror),
            OrphanedJobPods(mirror),
            CronJobController(mirror),
            EndpointsController(mirror),
            EndpointSliceController(mirror),
            MirroringController(mirror),
            VolumeController(mirror),
            DisruptionController(mirror),
            AutoscalerController(mirror),
            NodeController(mirror),
            PodEvictions(mirror),
        )
        self._queue = WorkQueue[_Request](clock, lambda: clocks.exponential(0.05, 5))
        self._rests: dict[_Request, float] = {}
        """Until when something is not looked at again whose last look took long."""
        mirror.watch(self._enqueue)

    def _enqueue(self, change: Change) -> None:
        for controller in self._controllers:
            for key in controller.requests(change):
                request = _Request(controller, key)
                rest = self._rests.get(request, 0.0) - self._clock.monotonic()
                self._queue.add_after(request, max(controller.batch_seconds, rest))

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.work(self._reconcile)

    async def _reconcile(self, request: _Request) -> None:
        controller = request.controller
        try:
            # No await between reading the mirror and the plan: a plan is made of one moment. What
            # changes while it is carried out, or before, queues the key again; a write at a version
            # that has passed is a Conflict, and the plan is made anew.
            began = self._clock.monotonic()
            plan = controller.plan(request.key, self._clock.now())
            await self._rest(request, self._clock.monotonic() - began)
            await self._carry_out(plan)
        except ApiError as error:
            if _is_namespace_ending(error):
                self._queue.forget(request)
                return  # nothing new is let in, and what is there goes by itself
            if not isinstance(error, (Conflict, NotFound)):
                _log.warning(
                    "controller step refused",
                    controller=controller.name,
                    key=request.key,
                    reason=error.message,
                )
            self._queue.retry(request)
            return
        self._queue.forget(request)
        if plan.again_after is not None:
            self._queue.add_after(request, plan.again_after)

    async def _rest(self, request: _Request, took: float) -> None:
        """Let others have a turn after a long look, and let changes gather before the next one.

        A look takes time by the number of pods there are, and every one of them brings the key
        back: without a rest, a thousand pods that start would be a thousand long looks in a row.
        """
        if took < _LONG_SECONDS:
            self._rests.pop(request, None)
            return
        self._rests[request] = self._clock.monotonic() + took * _REST_FACTOR
        await self._clock.sleep(0)

    async def _carry_out(self, plan: Plan) -> None:
        try:
            for new in plan.create:
                with suppress(AlreadyExists):
                    await self._api.create(new)
            for changed in plan.update:
                await self._api.update(changed)
            for surplus in plan.delete:
                await self._api.delete(surplus)
            for orphan in plan.remove:
                await self._api.delete(orphan, grace_seconds=0)
        except ApiError as error:
            failure = None if plan.on_refusal is None else plan.on_refusal(error)
            is_passing = isinstance(error, (Conflict, NotFound)) or _is_namespace_ending(error)
            if failure is not None and not is_passing:
                await self._api.update_status(failure)
            raise
        if plan.status is not None:
            await self._api.update_status(plan.status)


def _is_namespace_ending(error: ApiError) -> bool:
    causes = () if error.details is None else error.details.causes
    return any(each.reason == "NamespaceTerminating" for each in causes)
