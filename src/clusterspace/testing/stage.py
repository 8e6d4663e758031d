"""A stage to play on: a hub, members of any kind, their agents, and the controllers.

    async with running_fleet(tmp_path) as fleet, fleet.controllers():
        west = await fleet.add_member("west")            # or add_sim, or add_kubernetes
        await fleet.join("west", west)                   # or register, and running_agent
        await until_ready(fleet, "west")
        await fleet.hub.client.create(place, template)
        await until(lambda: west.client.find(place))
        await settled()                                  # and nothing more comes of it

Everything runs in this event loop, over loopback TLS, with the product's own settings but for its
timings, which are twenty times faster.
"""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.http.users import MemberIdentities
from clusterspace.client.connection import Connection
from clusterspace.client.endpoints import LOOPBACK, Network
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.health import Thresholds
from clusterspace.fleet.membership.leases import MonitorSettings, RenewalSettings
from clusterspace.fleet.membership.pull_join import RegisterRequest
from clusterspace.fleet.membership.push_join import JoinRequest
from clusterspace.fleet.membership.registration import (
    REGISTRATION_PLACE,
    AgentCredentials,
    read_registration,
)
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, name_of, with_metadata, with_value
from clusterspace.roots.agent import run_agent
from clusterspace.roots.controllers import run_controllers
from clusterspace.roots.membership import (
    UnjoinRequest,
    UnregisterRequest,
    join_cluster,
    register_cluster,
    unjoin_cluster,
    unregister_cluster,
)
from clusterspace.roots.settings import (
    AgentSettings,
    ControllersSettings,
    Invitation,
    SimSettings,
)
from clusterspace.roots.sim import running_sim
from clusterspace.roots.tokens import NewToken, create_token
from clusterspace.testing.etcd import several_hubs_for_test
from clusterspace.testing.hubs import (
    MASTERS_TRAVEL,
    OURS,
    SEVERAL,
    client_for_test,
    hub_for_test,
    kubernetes_hub_for_test,
    part_of_hub,
    real_controllers_for_test,
    real_server_for_test,
)
from clusterspace.testing.steps import edit, stop, until

PATIENCE: Final = 60.0
STATUS_SECONDS: Final = 0.5
"""How often a member is looked at. Each look is a dozen requests, of every fleet of every worker
for as long as a test waits for something else: at 0.2 they were a third of what a machine did."""
PROMPT: Final = Thresholds(success_seconds=0.4, failure_seconds=0.4)
"""A change counts at the second look that sees it."""
SOON_UNKNOWN: Final = MonitorSettings(
    period_seconds=0.1, grace_seconds=1.0, startup_grace_seconds=1.5
)
"""A cluster whose agent is silent for a second is Unknown."""
CONTROLLERS: Final = (
    "deployment-controller",
    "replicaset-controller",
    "namespace-controller",
    "garbage-collector-controller",
)
"""What a real member runs besides its API; there are no nodes, so no pod ever starts."""


def quick(
    hub: ConnectionSettings, member_cidrs: tuple[Network, ...] = LOOPBACK
) -> ControllersSettings:
    """Return the product's timings, twenty times faster, for members on this machine.

    But for the time that agents may be silent: on a busy machine all of them are for a second.
    Tests of silence take `SOON_UNKNOWN`.
    """
    return ControllersSettings(
        hub=hub,
        status_seconds=STATUS_SECONDS,
        thresholds=PROMPT,
        autoscaling_seconds=0.5,
        member_cidrs=member_cidrs,
        monitor=MonitorSettings(period_seconds=0.5, grace_seconds=20.0, startup_grace_seconds=30.0),
    )


@dataclass
class Side:
    """A cluster, seen by its administrator."""

    settings: ConnectionSettings
    client: ClusterClient

    async def names_of(self, place: ResourcePath) -> set[str]:
        return {name_of(each) for each in await self.client.list_objects(place)}

    async def everything_of_ours(self) -> set[str]:
        """Return what memberships leave on a cluster, by resource and name."""
        found: set[str] = set()
        for resource in (
            manifests.NAMESPACES,
            manifests.CLUSTER_ROLES,
            manifests.CLUSTER_ROLE_BINDINGS,
        ):
            found |= {
                f"{resource.resource}/{name}"
                for name in await self.names_of(ResourcePath(resource))
                if name.startswith("karmada-")
            }
        for resource in (manifests.SECRETS, manifests.SERVICE_ACCOUNTS):
            inside = ResourcePath(resource, "karmada-cluster")
            found |= {f"{resource.resource}/{name}" for name in await self.names_of(inside)}
        return found - {"serviceaccounts/default"}


@dataclass
class Fleet:
    """A hub with its members."""

    hub: Side
    directory: Path
    stack: AsyncExitStack
    messages: list[str] = field(default_factory=list)

    async def add_member(self, name: str) -> Side:
        """Start a cluster that may join: a hub, for they speak the same language."""
        directory = self.directory / name
        directory.mkdir()
        settings = await self.stack.enter_async_context(hub_for_test(directory, name=name))
        return Side(settings, await self.stack.enter_async_context(client_for_test(settings)))

    async def join(self, name: str, member: Side, **options: Any) -> None:
        is_dry_run = options.pop("is_dry_run", False)
        request = JoinRequest(name, member.settings, **options)
        await join_cluster(request, self.hub.settings, self.messages.append, is_dry_run=is_dry_run)

    async def unjoin(self, name: str, **options: Any) -> None:
        request = UnjoinRequest(name, **options)
        await unjoin_cluster(request, self.hub.settings, self.messages.append)

    async def cluster(self, name: str) -> Object:
        return await self.hub.client.get(manifests.cluster_path(name))

    async def ready(self, name: str) -> tuple[str, str]:
        """Return the status and the reason of the Ready condition."""
        cluster = await self.cluster(name)
        found = find_condition(find_at(cluster, "status", "conditions"), "Ready") or {}
        return str(found.get("status", "")), str(found.get("reason", ""))

    async def taints(self, name: str) -> set[str]:
        taints: list[Object] = find_at(await self.cluster(name), "spec", "taints") or []
        return {f"{each['key']}:{each['effect']}" for each in taints}

    async def add_sim(self, name: str, *, nodes: int = 0) -> Side:
        """Start a simulated cluster: workloads run there, if it has nodes."""
        running = running_sim_member(name, self.directory / name, nodes=nodes)
        return await self.stack.enter_async_context(running)

    async def add_kubernetes(self, name: str, *more: str) -> Side:
        """Start a real cluster, with more controllers; skip the test, by name, where none is."""
        running = running_kubernetes(name, self.directory / name, *more)
        return await self.stack.enter_async_context(running)

    @asynccontextmanager
    async def controllers(self, **settled: Any) -> AsyncGenerator[None]:
        """Run the controllers for as long as the block lasts."""
        settings = replace(quick(part_of_hub(self.directory / "hub", "controllers")), **settled)
        task = asyncio.create_task(run_controllers(settings, SystemClock()))
        try:
            yield
        finally:
            await stop(task)


@asynccontextmanager
async def running_fleet(
    directory: Path,
    *,
    tokens: str = "",
    identities: MemberIdentities = MASTERS_TRAVEL,
    hub_kind: str = OURS,
) -> AsyncGenerator[Fleet]:
    """Run a hub without members; `tokens` are of its users, as kube-apiserver reads them.

    It is ours, or three of ours on etcd, or a real kube-apiserver: where there is no etcd or no
    such server, the test is skipped, by name.
    """
    async with AsyncExitStack() as stack:
        (directory / "hub").mkdir()
        if hub_kind == OURS:
            hub = hub_for_test(directory / "hub", tokens=tokens, identities=identities)
        elif hub_kind == SEVERAL:
            hub = several_hubs_for_test(directory / "hub", tokens=tokens, identities=identities)
        else:
            hub = kubernetes_hub_for_test(directory / "hub", tokens=tokens)
        settings = await stack.enter_async_context(hub)
        client = await stack.enter_async_context(client_for_test(settings))
        yield Fleet(Side(settings, client), directory, stack)


async def move_cluster(
    hub: ClusterClient, name: str, server: str, authority: bytes | None = None
) -> None:
    """Move a cluster to another address, as an operator does who may write its Secrets too."""

    def moved(secret: Object) -> Object:
        # Without the note of where it was used, the hub notes where its Cluster is now.
        unnoted = with_metadata(secret, annotations=None)
        if authority is None or "caBundle" not in secret["data"]:
            return unnoted
        return with_value(unnoted, b64encode(authority).decode(), "data", "caBundle")

    await edit(
        hub,
        manifests.cluster_path(name),
        lambda existing: with_value(existing, server, "spec", "apiEndpoint"),
    )
    for each in (name, manifests.impersonator_secret_name(name)):
        await edit(hub, manifests.secret_path(each), moved)


@asynccontextmanager
async def running_sim_member(name: str, directory: Path, *, nodes: int = 0) -> AsyncGenerator[Side]:
    """Run a simulated cluster; without nodes no pod of it ever starts."""
    directory.mkdir(exist_ok=True)  # noqa: ASYNC240 - nobody waits yet
    async with running_sim(SimSettings(name, directory, nodes=nodes, webhook_cidrs=LOOPBACK)):
        settings = read_kubeconfig([directory / "kubeconfig"]).settings(cluster=name)
        async with client_for_test(settings) as client:
            yield Side(settings, client)


@asynccontextmanager
async def running_kubernetes(name: str, directory: Path, *more: str) -> AsyncGenerator[Side]:
    """Run a real cluster, with `CONTROLLERS` and more; skip the test where there is none."""
    directory.mkdir(exist_ok=True)  # noqa: ASYNC240 - nobody waits yet
    async with (
        real_server_for_test(directory, name=name) as real,
        real_controllers_for_test(real, directory, *CONTROLLERS, *more),
        client_for_test(real.settings) as client,
    ):
        yield Side(real.settings, client)


def request_for(token: NewToken, *, name: str = "", image: str = "") -> RegisterRequest:
    """Say what the printed command says."""
    return RegisterRequest(
        name or token.cluster_name, token.server, token.pin, token.token, image=image
    )


async def register(fleet: Fleet, name: str, member: Side, *, image: str = "") -> None:
    """Make a token and register a member with it."""
    token = await create_token(name, fleet.hub.settings)
    await register_cluster(request_for(token, image=image), member.settings, fleet.messages.append)


async def unregister(fleet: Fleet, name: str, member: Side | None, **options: Any) -> None:
    """Unregister a member, as its administrator if there is one."""
    request = UnregisterRequest(name, member and member.settings, **options)
    await unregister_cluster(request, fleet.hub.settings, fleet.messages.append)


@asynccontextmanager
async def running_agent(
    member: Side,
    invitation: Invitation | None = None,
    *,
    allows_view: bool = True,
    webhook_cidrs: tuple[Network, ...] = (),
) -> AsyncGenerator[asyncio.Task[None]]:
    """Run the agent of a member, twenty times faster than the product does.

    It finds its registration on the member, unless it is one that was invited.
    """
    settings = AgentSettings(
        member.settings,
        invitation,
        status_seconds=STATUS_SECONDS,
        thresholds=PROMPT,
        lease=RenewalSettings(renew_seconds=0.2, retry_seconds=0.1),
        registration_seconds=0.5,
        allows_view=allows_view,
        webhook_cidrs=webhook_cidrs,
        tunnel_seconds=0.5,
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
        registration.hub,
        clock=SystemClock(),
        random=Random(1),  # noqa: S311 - jitter
        credentials=credentials,
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
