"""API priority and fairness of a server: its step in the chain, by the settings it is started with.

The hub obeys its own objects; the gateway reads the same ones from the hub, and does without them
until it has, or where it may not.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Tasks
from clusterspace.apiserver.flow_control import FlowControlObjects, default_objects
from clusterspace.apiserver.http.chain import InFlightLimits, Step
from clusterspace.apiserver.http.fairness.controller import FlowController
from clusterspace.apiserver.http.fairness.dumps import FlowDumps
from clusterspace.apiserver.http.fairness.step import (
    CountObjects,
    PriorityAndFairness,
    count_nothing,
)
from clusterspace.apiserver.state import HubState
from clusterspace.builtins.flow_control import (
    GROUP,
    LEVELS,
    MANDATORY_LEVELS,
    MANDATORY_SCHEMAS,
    SCHEMAS,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.controllers.informers import Informer, Update
from clusterspace.errors import StoreFull
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.settings import RequestLimits
from clusterspace.telemetry.flow_metrics import FLOW_CONTROL

HUB_SEATS_PER_FLOW: Final = 16
"""As many writes of one user as share a commit are of use to them; more would only wait for each
other, with everybody else behind them."""


def build_controller(
    settings: RequestLimits, clock: Clock, *, most_per_flow: int | None = HUB_SEATS_PER_FLOW
) -> FlowController | None:
    """Return what says whose requests are next; None where it is switched off."""
    if not settings.priority_and_fairness:
        return None
    loop = asyncio.get_running_loop()
    controller = FlowController(
        clock,
        loop.call_soon,
        loop.call_later,
        seats=settings.reads + settings.writes,
        mandatory=(MANDATORY_SCHEMAS, MANDATORY_LEVELS),
        most_per_flow=most_per_flow,
    )
    controller.configure(*default_objects())
    return controller


@asynccontextmanager
async def limits_of(
    settings: RequestLimits,
    controller: FlowController | None,
    clock: Clock,
    count_objects: CountObjects,
) -> AsyncGenerator[Step]:
    """Yield the step that says how many requests are worked on at once, and whose."""
    if controller is None:
        yield InFlightLimits(reads=settings.reads, writes=settings.writes)
        return
    step = PriorityAndFairness(controller, clock, count_objects)
    FLOW_CONTROL.add(step)
    try:
        yield step
    finally:
        FLOW_CONTROL.remove(step)


class OwnFlows:
    """Fairness at a server that has FlowSchemas and priority levels itself, and obeys them."""

    def __init__(self, settings: RequestLimits, hub: HubState) -> None:
        self._settings = settings
        self._clock = hub.clock
        self._controller = build_controller(settings, hub.clock)
        if self._controller is not None:
            hub.feeds.set_quiet(self._controller.is_idle)
        self._objects = FlowControlObjects(hub, self._controller)

    async def install(self) -> None:
        """Make the objects every API server has."""
        with suppress(StoreFull):  # looked at every minute, and until then obeyed all the same
            await self._objects.install()

    def documents(self) -> tuple[FlowDumps, ...]:
        """Return what shows levels and queues to whoever debugs them."""
        return () if self._controller is None else (FlowDumps(self._controller, self._clock),)

    def limits(self) -> AbstractAsyncContextManager[Step]:
        """Return the step of the chain, for as long as the block lasts."""
        count = self._objects.count_objects
        return limits_of(self._settings, self._controller, self._clock, count)

    def tasks(self) -> Tasks:
        """Return the tasks that follow and keep the objects, and adjust the seats of levels."""
        tasks: Tasks = {
            "flow schemas": self._objects.run,
            "default flow schemas": self._objects.keep,
        }
        return tasks if self._controller is None else {**tasks, "seats": self._controller.run}


class FollowedFlows:
    """Fairness at a server that has no objects of its own, and follows the hub's."""

    def __init__(self, settings: RequestLimits, hub: ClusterClient) -> None:
        self._settings = settings
        self._clock = hub.connection.clock
        # As many at once as a user likes: what they wait for are members, not this event loop.
        self._controller = build_controller(settings, self._clock, most_per_flow=None)
        self._schemas, self._levels = (
            Informer(hub, ResourcePath(GroupVersionResource(GROUP, "v1", plural)))
            for plural in (SCHEMAS, LEVELS)
        )
        self._has_changed = asyncio.Event()
        for informer in (self._schemas, self._levels):
            informer.add_handler(self._note)

    def limits(self) -> AbstractAsyncContextManager[Step]:
        """Return the step of the chain, for as long as the block lasts."""
        return limits_of(self._settings, self._controller, self._clock, count_nothing)

    def tasks(self) -> Tasks:
        """Return the tasks that follow and obey the objects, and adjust the seats of levels."""
        controller = self._controller
        if controller is None:
            return {}
        return {
            "flow schemas": self._schemas.run,
            "priority levels": self._levels.run,
            "flow control": lambda: self._obey(controller),
            "seats": controller.run,
        }

    def _note(self, update: Update) -> None:
        before, after = update.decode_before(), update.decode_after()
        if before is None or after is None or before.get("spec") != after.get("spec"):
            self._has_changed.set()

    async def _obey(self, controller: FlowController) -> None:
        # Half of what the hub has would be worse than the defaults.
        await self._schemas.wait_synced()
        await self._levels.wait_synced()
        while True:
            controller.configure(self._schemas.cache.objects(), self._levels.cache.objects())
            self._has_changed.clear()
            await self._has_changed.wait()
