"""An executor for every Push cluster, started and stopped as Clusters come and go.

Pull clusters have an agent, which runs the one executor they need. An executor ends when its
Cluster is gone, and not when it is leaving: what was placed has to be withdrawn first.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import EXECUTION_PREFIX, execution_namespace, is_pull
from clusterspace.client.resources import Client, ClusterClient
from clusterspace.controllers.controller import Controller
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import Informer, Update
from clusterspace.controllers.reconcile import Done, Outcome, Request, RequeueAfter, request_for
from clusterspace.fleet.execution.works import Executor, Office
from clusterspace.kube.objects import Object

_log = structlog.get_logger(__name__)

CHECK_SECONDS: Final = 30.0
"""How often to ask for a member's client: it is another one once address or credentials change."""

Reach: TypeAlias = Callable[[Object], Awaitable[ClusterClient]]
"""Returns the client of a Cluster; a ClusterError says why there is none."""


@dataclass(frozen=True, slots=True)
class HubView:
    """What executors need of the hub: a client, the two collections they follow, the rest."""

    hub: Client
    clusters: Informer
    works: Informer
    events: EventRecorder
    clock: Clock
    random: Random


@dataclass(frozen=True, slots=True)
class _Running:
    member: ClusterClient
    executor: Executor
    task: asyncio.Task[None]


class Executors:
    """Runs one executor for each Push cluster.

        executors = Executors(HubView(hub, clusters, works, events, clock, random), members.reach)
        tasks.keep("execution", executors.run)

    Both informers are run by whoever made them; they may serve others too.
    """

    def __init__(self, view: HubView, reach: Reach) -> None:
        self._view = view
        self._reach = reach
        self._running: dict[str, _Running] = {}
        self._group: asyncio.TaskGroup | None = None
        self._controller = Controller(
            "executors", self.reconcile, clock=view.clock, random=view.random
        )
        self._controller.watch(view.clusters)
        view.clusters.add_handler(self._cluster_changed)
        view.works.add_handler(self._work_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._view.works.wait_synced()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                await self._controller.run()
        finally:
            self._group = None
            self._running.clear()

    async def reconcile(self, request: Request) -> Outcome:
        """Start, replace or stop the executor of one cluster."""
        cluster = self._view.clusters.cache.find(request.name)
        if cluster is None or is_pull(cluster):
            await self._stop(request.name)
            return Done()
        member = await self._reach(cluster)
        running = self._running.get(request.name)
        if running is None or running.member is not member or running.task.done():
            await self._stop(request.name)
            self._start(request.name, member)
        return RequeueAfter(CHECK_SECONDS)

    def _start(self, name: str, member: ClusterClient) -> None:
        if self._group is None:
            return
        view = self._view
        office = Office(
            hub=view.hub,
            works=view.works.cache,
            find_cluster=lambda: view.clusters.cache.find(name),
            events=view.events,
            clock=view.clock,
            random=view.random,
        )
        executor = Executor(name, member, office)
        self._tell_all_works(executor)
        task = self._group.create_task(self._keep(executor), name=f"executor {name}")
        self._running[name] = _Running(member, executor, task)
        _log.info("executor started", cluster=name)

    def _tell_all_works(self, executor: Executor) -> None:
        inside = execution_namespace(executor.cluster_name) + "/"
        cache = self._view.works.cache
        for key in [each for each in cache if each.startswith(inside)]:
            executor.work_changed(Update(key, None, cache.find_raw(key)))

    async def _keep(self, executor: Executor) -> None:
        """Run an executor; one that fails is replaced at the next check, the others go on."""
        try:
            await executor.run()
        except Exception as failure:  # noqa: BLE001 - one member's trouble is not the others'
            _log.error("executor failed", cluster=executor.cluster_name, exc_info=failure)

    async def _stop(self, name: str) -> None:
        running = self._running.pop(name, None)
        if running is None:
            return
        running.task.cancel()
        await asyncio.wait([running.task])
        _log.info("executor stopped", cluster=name)

    def _cluster_changed(self, update: Update) -> None:
        running = self._running.get(update.key)
        after = update.decode_after()
        if running is not None and after is not None:
            running.executor.cluster_changed(update.decode_before(), after)

    def _work_changed(self, update: Update) -> None:
        namespace = request_for(update.key).namespace
        running = self._running.get(namespace.removeprefix(EXECUTION_PREFIX))
        if running is not None:
            running.executor.work_changed(update)
