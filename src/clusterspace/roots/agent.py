"""The agent of a Pull cluster as a process: it dials the hub, and nobody dials it.

Of several agents of one cluster the newest works. It takes a Lease on the member from whoever has
it, and every write looks at that Lease: an older agent that was frozen, or cut off with its node,
finds out before it does harm. What an agent reports of its member harms nobody, and is most wanted
when the member, and the Lease on it, cannot be reached: every agent reports.

It is let in by its registration, a certificate on the member that it renews by itself; or, when a
MemberCluster invited it, by whatever credentials its operator gave it.
"""

import asyncio
from contextlib import AsyncExitStack
from random import SystemRandom
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.aio.tasks import Supervisor, Tasks, keep_all, report, restarts
from clusterspace.client.endpoints import AddressRules
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import KubeconfigCredentials
from clusterspace.client.webhooks import Webhooks
from clusterspace.controllers.controller import ControllerManager
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.controllers.leases import LEASES, Candidacy, LeaderElection
from clusterspace.errors import (
    ClusterError,
    Forbidden,
    LeadershipLost,
    NotFound,
    Unauthorized,
    UnusableKubeconfig,
)
from clusterspace.fleet.execution.controller import Execution
from clusterspace.fleet.execution.exclusive import ExclusiveCopies, HubLease, LeasedWrites
from clusterspace.fleet.interpretation.interpreter import Interpreter
from clusterspace.fleet.membership.leases import LeaseRenewal, StopPromise
from clusterspace.fleet.membership.manifests import (
    AGENT,
    AGENT_NAMESPACE,
    REGISTRATION_PLACE,
    cluster_path,
)
from clusterspace.fleet.membership.member_clusters.agent import MembershipAgent
from clusterspace.fleet.membership.member_clusters.manifests import internal_path
from clusterspace.fleet.membership.registration import (
    AgentCredentials,
    Registration,
    RegistrationRenewal,
    read_registration,
)
from clusterspace.fleet.membership.status import PullStatus, StatusSettings
from clusterspace.fleet.membership.tunnels import ViewTunnels
from clusterspace.kube.objects import Object
from clusterspace.roots.clients import LIMITS, connect
from clusterspace.roots.processes import answer_of, process_identity, stop_event
from clusterspace.roots.settings import AgentSettings

_log = structlog.get_logger(__name__)

_COMPONENT: Final = "clusterspace-agent"


async def run_agent(settings: AgentSettings, clock: Clock) -> None:
    """Run an agent until cancelled, or until its registration is gone."""
    async with AsyncExitStack() as stack:
        # The lease has a connection of its own: renewing must not queue up behind the work.
        lease_member = connect(settings.member, clock)
        stack.push_async_callback(lease_member.connection.close)
        namespace = AGENT_NAMESPACE if settings.invitation is None else "kube-system"
        lease = ResourcePath(LEASES, namespace, AGENT)
        candidacy = Candidacy(lease, process_identity(), settings.leadership, takes_over=True)
        election = LeaderElection(lease_member, candidacy, clock=clock, random=SystemRandom())
        # Of this process, and not of one leadership: what was heard from the hub stays heard.
        exclusive = HubLease(clock, settings.exclusive_seconds)
        seconds = settings.exclusive_seconds
        promise = StopPromise(seconds, exclusive.heard) if seconds else None
        fence = election.fence(settings.member.cluster)
        guarded = LeasedWrites(exclusive, fence, settings.member.cluster)
        member = connect(settings.member, clock, guard=guarded)
        stack.push_async_callback(member.connection.close)
        if settings.invitation is not None:
            name, hub_settings = settings.invitation.cluster_name, settings.invitation.hub
            read_hub = settings.invitation.read_hub or (lambda: hub_settings)
            credentials = KubeconfigCredentials(read_hub, hub_settings, clock)
        else:
            server = settings.member.server
            registration = await answer_of(
                lambda: _find_registration(member), clock, "the cluster", server=server
            )
            name, hub_settings = registration.cluster_name, registration.hub
            credentials = AgentCredentials(registration.authority, registration.keyed)
        guard = election.fence(hub_settings.cluster)
        hub = connect(hub_settings, clock, credentials=credentials, guard=guard)
        stack.push_async_callback(hub.connection.close)
        reporting = connect(hub_settings, clock, credentials=credentials)
        stack.push_async_callback(reporting.connection.close)

        # What users ask is theirs, and no write of this agent: no guard, and no queue with others.
        viewed = connect(settings.member, clock, LIMITS)
        stack.push_async_callback(viewed.connection.close)

        async def reach(_cluster: Object) -> ClusterClient:
            return member

        async def welcome() -> None:
            # Leading needs the member alone. Whether the hub knows us, and by this name, is another
            # matter: until then nothing is carried out, and people look for the reason here.
            place = cluster_path(name) if settings.invitation is None else internal_path(name)
            server = hub_settings.server
            await answer_of(
                lambda: _find_welcome(hub, name, place), clock, "the hub", server=server
            )
            _log.info("agent is working", cluster=name, hub=server)

        async def work(epoch: int) -> None:
            _log.info("agent leads for its cluster", cluster=name, epoch=epoch)
            random, caches, limits = SystemRandom(), HubCaches(hub), settings.deletions
            rules = AddressRules(settings.webhook_cidrs)
            caches.shared(Interpreter).reach_by(Webhooks(rules, clock))
            events = EventRecorder(hub, component=_COMPONENT, clock=clock)
            copies = ExclusiveCopies(hub, member, exclusive, clock, name) if promise else None

            def copies_of(_name: str, _member: ClusterClient) -> ExclusiveCopies | None:
                return copies

            execution = Execution(
                hub,
                caches,
                events,
                reach,
                agent_of=name,
                limits=limits,
                exclusive=copies_of,
                unschedulable_seconds=settings.unschedulable_seconds,
            )
            manager = ControllerManager(caches, events, (execution,), clock=clock, random=random)
            tunnels = ViewTunnels(
                reporting,
                name,
                viewed.connection,
                credentials=credentials,
                random=random,
                look_seconds=settings.tunnel_seconds,
            )
            # With the lead: of two agents of one cluster, one is what it is reached through.
            async with Supervisor(clock, report) as tasks:
                tasks.spawn("welcome", welcome)
                # Beside the controllers, which wait for a hub that may never come.
                if copies is not None:
                    tasks.keep("exclusive copies", copies.run, restart=restarts)
                if settings.allows_view:
                    tasks.keep("tunnels", tunnels.run, restart=restarts)
                await manager.run()

        async def lead() -> None:
            while True:
                try:
                    await election.lead(work)
                except LeadershipLost as lost:
                    # Not an end: the one that took over may go, and then we are needed again.
                    _log.warning("another agent may work for this cluster", reason=str(lost))

        # Beside the leading: one that waits for the lease notices, too, that it is not wanted.
        async with Supervisor(clock, report) as tasks:
            reports = _reports(settings, reporting, name, member, promise)
            keep_all(tasks, {"lead": lead, **reports})
            if isinstance(credentials, AgentCredentials):
                seconds = settings.registration_seconds
                await RegistrationRenewal(member, hub, credentials, look_seconds=seconds).run()
            else:  # one that was invited stays: its member may be invited again
                await asyncio.Event().wait()
        _log.info("the registration is gone: the agent ends", cluster=name)


async def _find_registration(member: ClusterClient) -> Registration:
    secret = await member.find(REGISTRATION_PLACE)
    if secret is None:
        why = "the cluster is not registered: `clusterspace register` does that"
        raise UnusableKubeconfig(why, place=str(REGISTRATION_PLACE))
    return read_registration(secret)


async def _find_welcome(hub: ClusterClient, name: str, place: ResourcePath) -> Object:
    """Return what the hub has for this agent; ClusterError says why it has nothing for it."""
    try:
        return await hub.get(place)
    except Unauthorized as error:
        why = "the hub does not accept our credentials: a wrong token, or one that has ended"
        raise ClusterError(hub.cluster, f"{why} ({error.message})") from error
    except (Forbidden, NotFound) as error:
        why = f"the hub does not know us as the agent of {name}: no cluster of that name is ours"
        raise ClusterError(hub.cluster, f"{why} ({error.message})") from error


def _reports(
    settings: AgentSettings,
    hub: ClusterClient,
    name: str,
    member: ClusterClient,
    promise: StopPromise | None,
) -> Tasks:
    """Return what every agent does: two clocks for the hub to see, and the word of a MemberCluster.

    The member is looked at through the guarded connection, so nothing is written there either
    unless this agent leads.
    """
    clock, random = hub.connection.clock, SystemRandom()
    events = EventRecorder(hub, component=_COMPONENT, clock=clock)
    caches = HubCaches(hub)
    agent = MembershipAgent(hub, caches, name, member, clock=clock, random=random)
    manager = ControllerManager(caches, events, (agent,), clock=clock, random=random)
    statuses = StatusSettings(settings.status_seconds, settings.thresholds)
    return {
        "status": PullStatus(hub, name, member, events, statuses).run,
        "lease": LeaseRenewal(hub, name, clock=clock, settings=settings.lease, promise=promise).run,
        **manager.tasks(),
    }


async def serve_until_stopped(settings: AgentSettings) -> None:
    """Run an agent until told to stop, or until its registration is gone."""
    stopped = stop_event()
    try:
        async with asyncio.TaskGroup() as group:
            working = group.create_task(run_agent(settings, SystemClock()), name="agent")
            working.add_done_callback(lambda _: stopped.set())
            await stopped.wait()
            working.cancel()
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None  # there is one task
