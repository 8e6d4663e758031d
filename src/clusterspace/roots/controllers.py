"""The controllers as a process: membership and propagation, behind one lease.

Any number of these may run; one works. When it cannot renew its lease it stops at once and the
process ends, to be started anew by whoever runs it.
"""

import asyncio
import os
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random, SystemRandom
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.aio.tasks import Supervisor
from clusterspace.apis.clusters import CLUSTER_NAMESPACE, CLUSTERS, WORKS
from clusterspace.apis.identities import CONTROLLERS_LEASE
from clusterspace.client.endpoints import AddressRules, Network
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.background import keep_all, report
from clusterspace.controllers.controller import Controller, ControllerSettings
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.hub_caches import HubCaches
from clusterspace.controllers.leases import LEASES, Candidacy, LeaderElection, LeaseTimings
from clusterspace.controllers.manager import ControllerManager
from clusterspace.controllers.reconcile import Reconciler, Watch
from clusterspace.fleet.execution.controller import Executors, HubView
from clusterspace.fleet.membership import names
from clusterspace.fleet.membership.connections import MemberClients
from clusterspace.fleet.membership.controller import ClusterController
from clusterspace.fleet.membership.health import Thresholds
from clusterspace.fleet.membership.leases import Monitor, MonitorSettings, Watched
from clusterspace.fleet.membership.leave import BeforeRemoval, Cleaner, Leave
from clusterspace.fleet.membership.member_clusters.controller import MemberClusterSettings
from clusterspace.fleet.membership.status import (
    FREQUENCY_SECONDS,
    PushStatus,
    StatusWriter,
    when_reachable_anew,
)
from clusterspace.fleet.propagation.dependencies.controller import DependencyDistributor
from clusterspace.fleet.propagation.detector.controller import Detector
from clusterspace.fleet.propagation.namespaces.controller import NamespaceWorks
from clusterspace.fleet.propagation.placements.controller import PlacementController
from clusterspace.fleet.propagation.policies.controller import PolicyLifecycle
from clusterspace.fleet.propagation.scheduler.controller import Scheduler
from clusterspace.fleet.propagation.statuses.controller import BindingStatuses
from clusterspace.fleet.propagation.works.controller import BindingWorks
from clusterspace.kube.objects import Object, name_of
from clusterspace.roots.clients import connect, member_rules
from clusterspace.roots.connections import HubCredentials, ReadSettings, warn_of_full_rights
from clusterspace.roots.member_clusters import member_cluster_tasks
from clusterspace.roots.processes import serving_metrics, stop_event

_log = structlog.get_logger(__name__)

_COMPONENT: Final = "clusterspace-controllers"
_LEASE: Final = ResourcePath(LEASES, "kube-system", CONTROLLERS_LEASE)
_LOOKERS: Final = 64
"""Members looked at at once: a dead one takes seconds, and must not keep the others waiting."""


@dataclass(frozen=True, slots=True)
class ControllersSettings:
    """What the controllers are started with."""

    hub: ConnectionSettings
    read_hub: ReadSettings | None = None
    """Reads `hub` again from where it came from, if it came from a file."""
    status_seconds: float = FREQUENCY_SECONDS
    thresholds: Thresholds = field(default_factory=Thresholds)
    monitor: MonitorSettings = field(default_factory=MonitorSettings)
    lease: LeaseTimings = field(default_factory=LeaseTimings)
    member_clusters: MemberClusterSettings = field(default_factory=MemberClusterSettings)
    federation: bool = True
    """Whether workloads are propagated; members are looked after in any case."""
    metrics_port: int | None = None
    """Where `/metrics` is on this machine; nowhere unless told."""
    member_cidrs: tuple[Network, ...] = ()
    """Where members may be besides where they may be anyway."""


def propagation_controllers(
    hub: Client, caches: HubCaches, events: EventRecorder, clock: Clock, random: Random
) -> tuple[Reconciler, ...]:
    """Return what carries templates to bindings to Works, and statuses back."""
    return (
        Detector(hub, caches, events, random=random),
        PolicyLifecycle(hub, caches, events, random=random),
        DependencyDistributor(hub, caches, events, random=random),
        PlacementController(hub, caches, events, clock, random=random),
        Scheduler(hub, caches, events, clock),
        BindingWorks(hub, caches, events, clock),
        NamespaceWorks(hub, caches, events),
        BindingStatuses(hub, caches, events, clock),
    )


class Controllers:
    """All controllers of one process, built around one client of the hub."""

    def __init__(
        self,
        settings: ControllersSettings,
        hub: ClusterClient,
        clock: Clock,
        rules: AddressRules,
    ) -> None:
        self._settings = settings
        self._hub = hub
        self._clock = clock
        self._random = SystemRandom()
        self._members = MemberClients(hub, lambda each: connect(each, clock), rules)
        self._events = EventRecorder(hub, component=_COMPONENT, clock=clock)
        self._caches = HubCaches(hub)
        self._clusters = self._caches.informer(CLUSTERS)
        self._leases = self._caches.informer(names.LEASES, CLUSTER_NAMESPACE)

    async def work(self) -> None:
        """Run all controllers until cancelled."""
        try:
            async with Supervisor(self._clock, report) as tasks:
                self._start(tasks)
                await asyncio.Event().wait()
        finally:
            await self._members.close()

    def _start(self, tasks: Supervisor) -> None:
        hub, caches, events = self._hub, self._caches, self._events
        clock, random = self._clock, self._random
        around = (hub, self._clusters, events, clock)
        own = {
            "cluster upkeep": self._upkeep().run,
            "push status": self._push_status().run,
            "monitor": self._monitor,
            **member_cluster_tasks(*around, self._settings.member_clusters),
        }
        reconcilers: tuple[Reconciler, ...] = ()
        if self._settings.federation:
            works = caches.informer(WORKS)
            view = HubView(hub, self._clusters, works, events, clock, random)
            own["execution"] = Executors(view, self._members.reach).run
            reconcilers = propagation_controllers(hub, caches, events, clock, random)
        manager = ControllerManager(caches, events, reconcilers, clock=clock, random=random)
        keep_all(tasks, {**own, **manager.tasks()})

    def _upkeep(self) -> Controller:
        upkeep = ClusterController(self._hub, self._leave, self._events, self._clock)
        controller = Controller(
            "cluster-upkeep", upkeep.reconcile, clock=self._clock, random=self._random
        )
        controller.watch(Watch(self._clusters))
        return controller

    def _push_status(self) -> Controller:
        settings = self._settings
        keeper = StatusWriter(
            self._hub, self._events, clock=self._clock, thresholds=settings.thresholds
        )
        status = PushStatus(
            self._hub,
            self._members,
            keeper,
            clock=self._clock,
            frequency_seconds=settings.status_seconds,
        )
        hard = ControllerSettings(workers=_LOOKERS, longest_retry_seconds=settings.status_seconds)
        controller = Controller(
            "push-status", status.reconcile, clock=self._clock, random=self._random, settings=hard
        )
        controller.watch(Watch(self._clusters, to=when_reachable_anew))
        return controller

    async def _monitor(self) -> None:
        await self._clusters.wait_synced()
        await self._leases.wait_synced()
        watched = Watched(self._clusters.cache, self._leases.cache)
        monitor = Monitor(
            self._hub, watched, self._events, clock=self._clock, settings=self._settings.monitor
        )
        await monitor.run()

    async def _leave(self, cluster: Object) -> None:
        async def clean(hub_id: str, before_removal: BeforeRemoval) -> object:
            name = name_of(cluster)
            cleaner = Cleaner(await self._members.reach(cluster), is_administrator=False)
            cleaned = await cleaner.clean(name, hub_id, before_removal)
            _log.info("member cleaned", cluster=name, removed=cleaned.removed, kept=cleaned.foreign)
            return cleaned

        await Leave(self._hub, name_of(cluster), clean).step()
        await self._members.forget(name_of(cluster))


async def run_controllers(settings: ControllersSettings, clock: Clock) -> None:
    """Wait for the lease, then work until cancelled; LeadershipLost when it is lost."""
    async with AsyncExitStack() as stack:
        rules = await member_rules(settings.hub, settings.member_cidrs)
        known_as = HubCredentials(settings.read_hub or (lambda: settings.hub), settings.hub, clock)
        hub = connect(settings.hub, clock, credentials=known_as)
        stack.push_async_callback(hub.connection.close)
        # The lease has a connection of its own: renewing must not queue up behind the work.
        lease_hub = connect(settings.hub, clock, credentials=known_as)
        stack.push_async_callback(lease_hub.connection.close)
        identity = f"{socket.gethostname()}_{os.getpid()}"
        candidacy = Candidacy(_LEASE, identity, settings.lease)
        election = LeaderElection(lease_hub, candidacy, clock=clock, random=SystemRandom())

        async def work(epoch: int) -> None:
            _log.info("controllers are working", epoch=epoch)
            await Controllers(settings, hub, clock, rules).work()

        await election.lead(work)


async def serve_until_stopped(settings: ControllersSettings) -> None:
    """Run the controllers until told to stop."""
    stopped = stop_event()
    clock = SystemClock()
    warn_of_full_rights("controllers", settings.hub)
    async with AsyncExitStack() as stack:
        if settings.metrics_port is not None:
            site = serving_metrics("127.0.0.1", settings.metrics_port)
            port = await stack.enter_async_context(site)
            _log.info("metrics are served", url=f"http://127.0.0.1:{port}/metrics")
        tasks = await stack.enter_async_context(Supervisor(clock, report))
        tasks.keep("controllers", lambda: run_controllers(settings, clock))
        await stopped.wait()
        _log.info("controllers are stopping")
