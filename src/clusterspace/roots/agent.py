"""The agent of a Pull cluster as a process: it dials the hub, and nobody dials it.

It is let in by its registration, a certificate on the member that it renews by itself; or, when a
MemberCluster invited it, by whatever credentials its operator gave it.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.aio.tasks import Supervisor
from clusterspace.client.connection import Connection
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.background import keep_all, report
from clusterspace.controllers.events import EventRecorder
from clusterspace.errors import UnusableKubeconfig
from clusterspace.fleet.membership.health import Thresholds
from clusterspace.fleet.membership.leases import LeaseRenewal, RenewalSettings
from clusterspace.fleet.membership.registration import (
    LOOK_SECONDS,
    REGISTRATION_PLACE,
    AgentCredentials,
    RegistrationRenewal,
    read_registration,
)
from clusterspace.fleet.membership.status import FREQUENCY_SECONDS, PullStatus, StatusWriter
from clusterspace.roots.clients import connect
from clusterspace.roots.member_clusters import membership_agent_tasks
from clusterspace.roots.member_execution import run_member_execution
from clusterspace.roots.processes import stop_event

_log = structlog.get_logger(__name__)

_COMPONENT: Final = "clusterspace-agent"


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a MemberCluster is called, and how to reach the hub as its identity."""

    cluster_name: str
    hub: ConnectionSettings


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What an agent is started with; all else is in the registration on the member."""

    member: ConnectionSettings
    invitation: Invitation | None = None
    """Instead of a registration."""
    status_seconds: float = FREQUENCY_SECONDS
    thresholds: Thresholds = field(default_factory=Thresholds)
    beat: RenewalSettings = field(default_factory=RenewalSettings)
    registration_seconds: float = LOOK_SECONDS


class Agent:
    """Everything one agent does."""

    def __init__(self, settings: AgentSettings, member: ClusterClient, clock: Clock) -> None:
        self._settings = settings
        self._member = member
        self._clock = clock

    async def work(self) -> None:
        """Work until cancelled, or until the registration is gone."""
        if self._settings.invitation is None:
            await self._work_registered()
        else:
            await self._work_invited(self._settings.invitation)

    async def _work_invited(self, invitation: Invitation) -> None:
        hub = connect(invitation.hub, self._clock)
        _log.info("agent is working", cluster=invitation.cluster_name, hub=invitation.hub.server)
        try:
            async with Supervisor(self._clock, report) as tasks:
                self._start(tasks, hub, invitation.cluster_name)
                await asyncio.Event().wait()
        finally:
            await hub.connection.close()

    async def _work_registered(self) -> None:
        secret = await self._member.find(REGISTRATION_PLACE)
        if secret is None:
            why = "the cluster is not registered: `clusterspace register` does that"
            raise UnusableKubeconfig(why, place=str(REGISTRATION_PLACE))
        registration = read_registration(secret)
        credentials = AgentCredentials(registration.authority, registration.keyed)
        connection = Connection(
            registration.hub, clock=self._clock, random=SystemRandom(), credentials=credentials
        )
        hub = ClusterClient(connection)
        renewal = RegistrationRenewal(
            self._member,
            hub,
            credentials,
            look_seconds=self._settings.registration_seconds,
        )
        _log.info(
            "agent is working", cluster=registration.cluster_name, hub=registration.hub.server
        )
        try:
            async with Supervisor(self._clock, report) as tasks:
                self._start(tasks, hub, registration.cluster_name)
                await renewal.run()
        finally:
            await connection.close()
        _log.info("the registration is gone: the agent ends", cluster=registration.cluster_name)

    def _start(self, tasks: Supervisor, hub: ClusterClient, name: str) -> None:
        settings, clock = self._settings, self._clock
        events = EventRecorder(hub, component=_COMPONENT, clock=clock)
        statuses = StatusWriter(hub, events, clock=clock, thresholds=settings.thresholds)
        status = PullStatus(
            hub,
            name,
            self._member,
            statuses,
            frequency_seconds=settings.status_seconds,
        )
        beat = LeaseRenewal(hub, name, clock=clock, settings=settings.beat)
        own = {
            "events": events.run,
            "status": status.run,
            "lease": beat.run,
            "execution": lambda: run_member_execution(hub, name, self._member, events, clock),
        }
        keep_all(tasks, {**own, **membership_agent_tasks(hub, name, self._member, clock)})


async def run_agent(settings: AgentSettings, clock: Clock) -> None:
    """Run an agent until cancelled, or until its registration is gone."""
    async with AsyncExitStack() as stack:
        member = connect(settings.member, clock)
        stack.push_async_callback(member.connection.close)
        await Agent(settings, member, clock).work()


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
