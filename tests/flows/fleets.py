"""A hub and members in this event loop, joined as people join them, with what was told."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.endpoints import LOOPBACK, Network
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.fleet.membership import names
from clusterspace.fleet.membership.health import Thresholds
from clusterspace.fleet.membership.leases import MonitorSettings
from clusterspace.fleet.membership.push_join import JoinRequest
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, name_of, with_metadata, with_value
from clusterspace.roots.controllers import ControllersSettings, run_controllers
from clusterspace.roots.membership import UnjoinRequest, join_cluster, unjoin_cluster
from clusterspace.testing.hubs import client_for_test, hub_for_test, part_of_hub
from clusterspace.testing.steps import edit, stop

PATIENCE = 60.0


def quick(
    hub: ConnectionSettings, member_cidrs: tuple[Network, ...] = LOOPBACK
) -> ControllersSettings:
    """Return the product's timings, fifty times faster, for members on this machine."""
    return ControllersSettings(
        hub=hub,
        status_seconds=0.2,
        thresholds=Thresholds(success_seconds=0.4, failure_seconds=0.4),
        member_cidrs=member_cidrs,
        monitor=MonitorSettings(period_seconds=0.1, grace_seconds=1.0, startup_grace_seconds=1.5),
    )


@dataclass
class Side:
    """A cluster, seen by its administrator."""

    settings: ConnectionSettings
    client: ClusterClient

    async def names_of(self, place: ResourcePath) -> set[str]:
        return {name_of(each) for each in await self.client.list_objects(place)}

    async def everything_of_ours(self) -> set[str]:
        """What memberships leave on a cluster, by resource and name."""
        found: set[str] = set()
        for resource in (names.NAMESPACES, names.CLUSTER_ROLES, names.CLUSTER_ROLE_BINDINGS):
            found |= {
                f"{resource.resource}/{name}"
                for name in await self.names_of(ResourcePath(resource))
                if name.startswith("karmada-")
            }
        for resource in (names.SECRETS, names.SERVICE_ACCOUNTS):
            inside = ResourcePath(resource, "karmada-cluster")
            found |= {f"{resource.resource}/{name}" for name in await self.names_of(inside)}
        return found - {"serviceaccounts/default"}


@dataclass
class Fleet:
    """A hub with its members."""

    hub: Side
    directory: Path
    stack: AsyncExitStack
    told: list[str] = field(default_factory=list)

    async def add_member(self, name: str) -> Side:
        """Start a cluster that may join: a hub, for they speak the same language."""
        directory = self.directory / name
        directory.mkdir()
        settings = await self.stack.enter_async_context(hub_for_test(directory, name=name))
        return Side(settings, await self.stack.enter_async_context(client_for_test(settings)))

    async def join(self, name: str, member: Side, **options: Any) -> None:
        is_dry_run = options.pop("is_dry_run", False)
        request = JoinRequest(name, member.settings, **options)
        await join_cluster(request, self.hub.settings, self.told.append, is_dry_run=is_dry_run)

    async def unjoin(self, name: str, **options: Any) -> None:
        request = UnjoinRequest(name, **options)
        await unjoin_cluster(request, self.hub.settings, self.told.append)

    async def cluster(self, name: str) -> Object:
        return await self.hub.client.get(names.cluster_place(name))

    async def ready(self, name: str) -> tuple[str, str]:
        """Return the status and the reason of the Ready condition."""
        cluster = await self.cluster(name)
        found = find_condition(find_at(cluster, "status", "conditions"), "Ready") or {}
        return str(found.get("status", "")), str(found.get("reason", ""))

    async def taints(self, name: str) -> set[str]:
        taints = find_at(await self.cluster(name), "spec", "taints") or []
        return {f"{each['key']}:{each['effect']}" for each in taints}

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
async def running_fleet(directory: Path) -> AsyncGenerator[Fleet]:
    """Run a hub without members."""
    async with AsyncExitStack() as stack:
        (directory / "hub").mkdir()
        settings = await stack.enter_async_context(hub_for_test(directory / "hub"))
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
        names.cluster_place(name),
        lambda held: with_value(held, server, "spec", "apiEndpoint"),
    )
    for each in (name, names.impersonator_secret(name)):
        await edit(hub, names.secret_place(each), moved)
