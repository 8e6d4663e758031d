"""Clusters that register themselves, and their agents, as tests use them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from tests.flows.fleets import Fleet, Side

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.connection import Connection
from clusterspace.client.resources import ClusterClient
from clusterspace.fleet.membership.health import Thresholds
from clusterspace.fleet.membership.leases import RenewalSettings
from clusterspace.fleet.membership.pull_join import RegisterRequest
from clusterspace.fleet.membership.registration import (
    REGISTRATION_PLACE,
    AgentCredentials,
    read_registration,
)
from clusterspace.roots.agent import AgentSettings, run_agent
from clusterspace.roots.membership import (
    UnregisterRequest,
    register_cluster,
    unregister_cluster,
)
from clusterspace.roots.tokens import NewToken, create_token
from clusterspace.testing.steps import stop, until


def request_for(token: NewToken, *, name: str = "", image: str = "") -> RegisterRequest:
    """Say what the printed command says."""
    return RegisterRequest(
        name or token.cluster_name, token.server, token.pin, token.token, image=image
    )


async def register(fleet: Fleet, name: str, member: Side, *, image: str = "") -> None:
    """Make a token and register a member with it."""
    token = await create_token(name, fleet.hub.settings)
    await register_cluster(request_for(token, image=image), member.settings, fleet.told.append)


async def unregister(fleet: Fleet, name: str, member: Side | None, **options: Any) -> None:
    """Unregister a member, as its administrator if there is one."""
    request = UnregisterRequest(name, member and member.settings, **options)
    await unregister_cluster(request, fleet.hub.settings, fleet.told.append)


@asynccontextmanager
async def running_agent(member: Side) -> AsyncGenerator[asyncio.Task[None]]:
    """Run the agent of a member, fifty times faster than the product does."""
    settings = AgentSettings(
        member.settings,
        status_seconds=0.2,
        thresholds=Thresholds(success_seconds=0.4, failure_seconds=0.4),
        lease=RenewalSettings(renew_seconds=0.1, retry_seconds=0.1),
        registration_seconds=0.2,
    )
    task = asyncio.create_task(run_agent(settings, SystemClock()))
    try:
        yield task
    finally:
        await stop(task)


@asynccontextmanager
async def as_agent(member: Side) -> AsyncGenerator[ClusterClient]:
    """Ask the hub as the agent of a member."""
    registration = read_registration(await member.client.get(REGISTRATION_PLACE))
    credentials = AgentCredentials(registration.authority, registration.keyed)
    connection = Connection(
        registration.hub, clock=SystemClock(), random=Random(1), credentials=credentials
    )
    try:
        yield ClusterClient(connection)
    finally:
        await connection.close()


async def until_ready(fleet: Fleet, name: str, status: str = "True") -> None:
    """Wait until a Cluster's Ready condition says this."""

    async def is_so() -> bool:
        return (await fleet.ready(name))[0] == status

    await until(is_so)
