"""The controllers of one process, run together: their informers, their queues, their events."""

import asyncio
from collections.abc import Iterable
from random import Random

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Supervisor
from clusterspace.controllers.background import Tasks, keep_all, report
from clusterspace.controllers.controller import Controller
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.hub_caches import HubCaches
from clusterspace.controllers.reconcile import Reconciler


class ControllerManager:
    """Runs reconcilers over one set of caches.

        caches = HubCaches(hub)
        reconcilers = (Detector(hub, caches, events), Scheduler(hub, caches, events, clock))
        manager = ControllerManager(caches, events, reconcilers, clock=clock, random=random)
        await election.lead(lambda epoch: manager.run())

    It is made for one leadership and run once. When the lease is lost, `run` is cancelled in the
    middle of whatever is being done; the next leader begins with empty caches and reconciles
    everything once, so nothing that was queued here has to be handed over.
    """

    def __init__(
        self,
        caches: HubCaches,
        events: EventRecorder,
        reconcilers: Iterable[Reconciler],
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self._caches = caches
        self._events = events
        self._clock = clock
        self._reconcilers = tuple(reconcilers)
        self._controllers: dict[str, Controller] = {}
        for each in self._reconcilers:
            if each.name in self._controllers:
                raise ValueError(f"two controllers are called {each.name}")
            self._controllers[each.name] = Controller.of(each, clock=clock, random=random)

    def tasks(self) -> Tasks:
        """Return everything that is to run, by the names it has in logs."""
        controllers = {name: each.run for name, each in self._controllers.items()}
        beside = {name: run for each in self._reconcilers for name, run in each.tasks().items()}
        return {"events": self._events.run, **self._caches.tasks(), **beside, **controllers}

    async def run(self) -> None:
        """Run until cancelled; what fails is reported and started again."""
        async with Supervisor(self._clock, report) as tasks:
            keep_all(tasks, self.tasks())
            await asyncio.Event().wait()
