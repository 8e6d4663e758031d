"""The controllers as a process: membership and propagation, behind one lease.

Any number of these may run; one works. When it cannot renew its lease it stops at once and the
process ends, to be started anew by whoever runs it.
"""

import hashlib
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from random import Random, SystemRandom
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.aio.tasks import Supervisor, report
from clusterspace.apis.clusters import CLUSTERS, is_pull
from clusterspace.apis.consumers import Address
from clusterspace.apis.identities import CONTROLLERS_LEASE
from clusterspace.client.connection import Connection, ConnectionLimits
from clusterspace.client.endpoints import AddressRules
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, ClusterClient, Reader
from clusterspace.client.settings import (
    ConnectionSettings,
    CredentialSource,
    KubeconfigCredentials,
    Pem,
)
from clusterspace.client.webhooks import Webhooks
from clusterspace.controllers.controller import ControllerManager, Reconciler
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Informer
from clusterspace.controllers.leases import LEASES, Candidacy, LeaderElection
from clusterspace.fleet.autoscaling.cron_federated_hpa import CronFederatedHpaController
from clusterspace.fleet.autoscaling.federated_hpa import FederatedHpaController
from clusterspace.fleet.execution.controller import Execution
from clusterspace.fleet.execution.exclusive import ExclusiveCopies, LeasedWrites
from clusterspace.fleet.execution.fleet_delivery import FleetDelivery
from clusterspace.fleet.interpretation.interpreter import Interpreter
from clusterspace.fleet.membership.connections import (
    MemberClients,
    proxied_settings,
    read_user_settings,
)
from clusterspace.fleet.membership.consumers import ClusterConsumers
from clusterspace.fleet.membership.controller import ClusterController
from clusterspace.fleet.membership.impersonation import Impersonation
from clusterspace.fleet.membership.leases import LeaseMonitor
from clusterspace.fleet.membership.member_clusters.controller import (
    MemberClusterController,
)
from clusterspace.fleet.membership.remedies import RemedyController
from clusterspace.fleet.membership.status import PushStatus, StatusSettings
from clusterspace.fleet.membership.watchdogs import Watchdogs
from clusterspace.fleet.membership.witnesses import Witness
from clusterspace.fleet.propagation.dependencies import DependencyDistributor
from clusterspace.fleet.propagation.detector import Detector, PolicyLifecycle
from clusterspace.fleet.propagation.eviction.controller import Eviction
from clusterspace.fleet.propagation.eviction.decisions import EvictionSettings
from clusterspace.fleet.propagation.eviction.taint_policies import ClusterTaintPolicies
from clusterspace.fleet.propagation.eviction.witnesses import ClusterConfirmations
from clusterspace.fleet.propagation.metrics_readers import MetricsReaders
from clusterspace.fleet.propagation.namespaces import NamespaceWorks
from clusterspace.fleet.propagation.placements.controller import PlacementController
from clusterspace.fleet.propagation.placements.evictions import PlacementEvictions
from clusterspace.fleet.propagation.placements.override_snapshots import OverrideSnapshots
from clusterspace.fleet.propagation.placements.staged_update_runs import StagedUpdateRuns
from clusterspace.fleet.propagation.quotas import FederatedQuotas
from clusterspace.fleet.propagation.rebalancer import RebalancerController
from clusterspace.fleet.propagation.rollouts.controller import PolicyRollouts
from clusterspace.fleet.propagation.scale_targets import ScaleTargets
from clusterspace.fleet.propagation.scheduler.controller import Scheduler
from clusterspace.fleet.propagation.services.exports import ServiceExports
from clusterspace.fleet.propagation.services.imports import ServiceImports
from clusterspace.fleet.propagation.services.multi_cluster_services import MultiClusterServices
from clusterspace.fleet.propagation.statuses import BindingStatuses
from clusterspace.fleet.propagation.watchdogs import WatchdogWorks
from clusterspace.fleet.propagation.works.controller import BindingWorks
from clusterspace.kube.objects import Object
from clusterspace.roots.clients import connect, member_rules, read_pem
from clusterspace.roots.processes import (
    process_identity,
    serving_metrics,
    stop_event,
    warn_of_full_rights,
)
from clusterspace.roots.settings import ControllersSettings

_log = structlog.get_logger(__name__)

_COMPONENT: Final = "clusterspace-controllers"
_LEASE: Final = ResourcePath(LEASES, "kube-system", CONTROLLERS_LEASE)
LONGEST_PATIENCE: Final = ConnectionLimits().silent_peer_seconds
"""For how long a member may not acknowledge what it was sent, whatever the margin is."""


def propagation_controllers(
    hub: Client,
    caches: HubCaches,
    events: EventRecorder,
    clock: Clock,
    random: Random,
    evictions: EvictionSettings | None = None,
    is_failing: Callable[[str], bool] = lambda _: False,
) -> tuple[Reconciler, ...]:
    """Return the controllers that carry templates to bindings to Works, and statuses back.

    Taints evict nobody unless the operator turned that on; policies may ask to leave where their
    applications fail. `is_failing` tells of Push clusters that did not answer just now.
    """
    evictions = evictions or EvictionSettings()
    return (
        Detector(hub, caches, events, random=random),
        PolicyLifecycle(hub, caches, events, random=random),
        DependencyDistributor(hub, caches, events, random=random),
        OverrideSnapshots(hub, caches),
        PlacementController(hub, caches, events, clock, random=random),
        StagedUpdateRuns(hub, caches, events, clock),
        PolicyRollouts(hub, caches, events, clock),
        PlacementEvictions(hub, caches, events, clock),
        Scheduler(hub, caches, events, clock),
        RebalancerController(hub, caches, events, clock),
        ClusterConfirmations(hub, caches, events, evictions),
        ClusterTaintPolicies(
            hub,
            caches,
            events,
            clock,
            may_evict=evictions.is_on,
            witnesses=evictions.witnesses,
        ),
        Eviction(hub, caches, events, clock, evictions, is_failing),
        BindingWorks(hub, caches, events, clock, margin_seconds=evictions.margin_seconds),
        ScaleTargets(hub, caches),
        MetricsReaders(hub, caches),
        NamespaceWorks(hub, caches, events),
        FederatedQuotas(hub, caches, events, clock),
        BindingStatuses(hub, caches, events, clock),
        ServiceExports(hub, caches, events),
        ServiceImports(hub, caches, events),
        MultiClusterServices(hub, caches, events, clock, random=random),
    )


async def lead(
    settings: ControllersSettings,
    hub: ClusterClient,
    rules: AddressRules,
    election: LeaderElection,
    known_as: CredentialSource,
) -> None:
    """Run all controllers until cancelled: one leadership, with empty caches at its start."""
    clock, random = hub.connection.clock, SystemRandom()

    caches = HubCaches(hub)
    # What was sent and hangs in the network is given up before silence proves that copies have
    # stopped: see fleet/membership/watchdogs.py.
    patience = min(max(int(settings.evictions.margin_seconds / 2), 1), LONGEST_PATIENCE)
    limits = ConnectionLimits(silent_peer_seconds=patience)

    async def reach(cluster: Object) -> ClusterClient:
        return await members.reach(cluster)

    watchdogs = Watchdogs(hub, caches, reach, clock)

    def connect_member(member: ConnectionSettings) -> ClusterClient:
        fence = election.fence(member.cluster)
        guard = LeasedWrites(watchdogs.lease_of(member.cluster), fence, member.cluster)
        return connect(member, clock, limits, guard=guard)

    def exclusive_copies(name: str, member: ClusterClient) -> ExclusiveCopies:
        return ExclusiveCopies(hub, member, watchdogs.lease_of(name), clock, name)

    members = MemberClients(hub, connect_member, rules)
    impersonators = MemberClients(hub, connect_member, rules, read=read_user_settings)

    async def read_proxied(
        _hub: Reader, cluster: Object, _rules: AddressRules
    ) -> ConnectionSettings:
        return proxied_settings(settings.hub, cluster)

    def connect_proxied(member: ConnectionSettings) -> ClusterClient:
        return connect(member, clock, limits, credentials=known_as)

    # Read, and never written to: what is to be done on a Pull member, its agent does.
    proxied = MemberClients(hub, connect_proxied, rules, read=read_proxied)

    async def reach_to_measure(cluster: Object) -> ClusterClient:
        return await (proxied if is_pull(cluster) else members).reach(cluster)

    events = EventRecorder(hub, component=_COMPONENT, clock=clock)
    caches.shared(Interpreter).reach_by(Webhooks(rules, clock))
    address = None
    if settings.consumers_server:
        named = settings.consumers_authority
        authority = Pem(file=named) if named else settings.hub.trust.authority
        address = Address(settings.consumers_server, read_pem(authority))
    statuses = StatusSettings(settings.status_seconds, settings.thresholds)
    push_status = PushStatus(hub, caches, events, members, statuses)
    reconcilers: tuple[Reconciler, ...] = (
        ClusterController(hub, caches, events, members, clock),
        push_status,
        Impersonation(hub, caches, events, members, impersonators, settings.status_seconds),
        LeaseMonitor(hub, caches, events, clock, settings.monitor),
        RemedyController(hub, caches, events),
        MemberClusterController(hub, caches, events, clock, settings.member_clusters),
        ClusterConsumers(hub, caches, events, clock, address),
    )
    if settings.federation:
        reconcilers = (
            *reconcilers,
            *propagation_controllers(
                hub, caches, events, clock, random, settings.evictions, push_status.is_failing
            ),
            FederatedHpaController(
                hub, caches, events, reach_to_measure, clock, settings.autoscaling_seconds
            ),
            CronFederatedHpaController(hub, caches, events, clock),
            watchdogs,
            WatchdogWorks(hub, caches, settings.watchdog_image),
            Execution(
                hub,
                caches,
                events,
                members.reach,
                limits=settings.deletions,
                exclusive=exclusive_copies,
                unschedulable_seconds=settings.unschedulable_seconds,
                deliver=FleetDelivery,
            ),
        )
    manager = ControllerManager(caches, events, reconcilers, clock=clock, random=random)
    try:
        await manager.run()
    finally:
        await members.close()
        await impersonators.close()
        await proxied.close()


async def stand_by(
    settings: ControllersSettings, hub: ClusterClient, rules: AddressRules, election: LeaderElection
) -> None:
    """Say on the hub which clusters answer here, until we lead: the leader is one place, we two."""
    clock = hub.connection.clock
    # Who has just been started may be the only one, and waits for its own last lease to run out.
    await clock.sleep(2 * settings.lease.lease_seconds)
    members = MemberClients(hub, lambda member: connect(member, clock), rules)
    clusters = Informer(hub, ResourcePath(CLUSTERS))

    async def reach(cluster: Object) -> Connection:
        return (await members.reach(cluster)).connection

    host = socket.gethostname()
    witness = Witness(
        hub,
        hashlib.sha256(f"controllers on {host}".encode()).hexdigest()[:16],
        f"controllers that stand by on {host}",
        clusters.cache.objects,
        reach,
        clock=clock,
        random=SystemRandom(),
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(members.close)
        tasks = await stack.enter_async_context(Supervisor(clock, report))
        if not election.is_leader:
            tasks.keep("clusters", clusters.run)
            await clusters.wait_synced()
            # Every write by the connection that has no fence: it says nothing for a leader.
            await witness.run(lambda: not election.is_leader)


async def run_controllers(
    settings: ControllersSettings,
    clock: Clock,
    take_part: Callable[[LeaderElection], None] = lambda _: None,
) -> None:
    """Wait for the lease, then work until cancelled; LeadershipLost when it is lost.

    `take_part` is given the election as soon as we stand in it, for whoever asks how it goes.
    """
    async with AsyncExitStack() as stack:
        rules = await member_rules(settings.hub, settings.member_cidrs)
        known_as = KubeconfigCredentials(
            settings.read_hub or (lambda: settings.hub), settings.hub, clock
        )
        # The lease has a connection of its own: renewing must not queue up behind the work.
        lease_hub = connect(settings.hub, clock, credentials=known_as)
        stack.push_async_callback(lease_hub.connection.close)
        candidacy = Candidacy(_LEASE, process_identity(), settings.lease)
        election = LeaderElection(lease_hub, candidacy, clock=clock, random=SystemRandom())
        take_part(election)
        fence = election.fence(settings.hub.cluster, is_leases=True)
        hub = connect(settings.hub, clock, credentials=known_as, guard=fence)
        stack.push_async_callback(hub.connection.close)

        tasks = await stack.enter_async_context(Supervisor(clock, report))
        tasks.spawn("witness", lambda: stand_by(settings, lease_hub, rules, election))

        async def work(epoch: int) -> None:
            _log.info("controllers are working", epoch=epoch)
            await lead(settings, hub, rules, election, known_as)

        await election.lead(work)


async def serve_until_stopped(settings: ControllersSettings) -> None:
    """Run the controllers until told to stop."""
    stopped = stop_event()
    clock = SystemClock()
    warn_of_full_rights("controllers", settings.hub)
    elections: list[LeaderElection] = []

    def standing() -> tuple[bool, str]:
        if not elections:
            return False, "starting"
        return not elections[-1].is_waiting, elections[-1].state

    async with AsyncExitStack() as stack:
        if settings.metrics_port is not None:
            site = serving_metrics("127.0.0.1", settings.metrics_port, standing)
            port = await stack.enter_async_context(site)
            _log.info("metrics are served", url=f"http://127.0.0.1:{port}/metrics")
        tasks = await stack.enter_async_context(Supervisor(clock, report))
        tasks.keep("controllers", lambda: run_controllers(settings, clock, elections.append))
        await stopped.wait()
        _log.info("controllers are stopping")
