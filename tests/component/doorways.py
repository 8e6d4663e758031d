"""Both ends of the declarative door against a hub, each taking a step when it is told to."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.component.execution_site import make_namespace
from tests.component.invited_members import member_cluster

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.clusters import execution_namespace
from clusterspace.apis.member_clusters import MEMBER_CLUSTERS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.controller import Request, Result
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.fleet.membership.member_clusters import manifests
from clusterspace.fleet.membership.member_clusters.agent import MembershipAgent
from clusterspace.fleet.membership.member_clusters.controller import (
    MemberClusterController,
    MemberClusterSettings,
)
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, uid_of
from clusterspace.testing.hubs import client_for_test, hub_for_test


class ShiftedClock(SystemClock):
    """A clock that can be put forward."""

    shift = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.shift

    def now(self) -> float:
        return super().now() + self.shift


@dataclass
class Doorway:
    """A hub, a member, and both ends of the door between them."""

    settings: ConnectionSettings
    hub: ClusterClient
    reconciler: MemberClusterController
    agent: MembershipAgent
    clock: ShiftedClock

    async def look(self) -> Result:
        """Let the hub's end take a step."""
        return await self.reconciler.reconcile(Request("west"))

    async def report(self) -> Result:
        """Let the member's end take a step."""
        return await self.agent.reconcile(Request("west", "fleet-member-west"))

    async def join(self) -> None:
        await self.hub.create(ResourcePath(MEMBER_CLUSTERS), member_cluster(period=60))
        await self.look()
        await self.report()
        await self.look()
        await make_namespace(self.hub, execution_namespace("west"))
        await self.look()

    async def get(self) -> Object:
        return await self.hub.get(manifests.member_cluster_path("west"))

    async def condition(self, condition_type: str) -> Object:
        return find_condition((await self.get())["status"]["conditions"], condition_type) or {}

    async def let_go(self) -> None:
        held = await self.get()
        await self.hub.delete(manifests.member_cluster_path("west"), DeleteOptions(uid_of(held)))


@asynccontextmanager
async def doorway_for_test(directory: Path) -> AsyncGenerator[Doorway]:
    """Run a hub and a member, with nobody at work between them."""
    async with (
        hub_for_test(directory / "hub") as settings,
        hub_for_test(directory / "member", name="west") as member_settings,
        client_for_test(settings) as hub,
        client_for_test(member_settings) as member,
    ):
        clock = ShiftedClock()
        events = EventRecorder(hub, component="test", clock=clock)
        caches = HubCaches(hub)
        reconciler = MemberClusterController(
            hub, caches, events, clock, MemberClusterSettings(force_seconds=60)
        )
        agent = MembershipAgent(
            hub, caches, "west", member, clock=clock, random=Random(1), patience_seconds=10
        )
        yield Doorway(settings, hub, reconciler, agent, clock)
