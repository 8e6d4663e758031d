"""Everything that turns templates into bindings, run against a live hub in this event loop."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import SystemRandom
from typing import Any

from tests.component.reconcilers import reconciling

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, ClusterClient, ListOptions
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Informer
from clusterspace.fleet.propagation.dependencies import DependencyDistributor
from clusterspace.fleet.propagation.detector import Detector, PolicyLifecycle
from clusterspace.fleet.propagation.templates import TemplateInformers
from clusterspace.kube.objects import resource_version_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import NAMESPACES, namespace
from clusterspace.testing.crashes import CrashingClient
from clusterspace.testing.steps import stop

PATIENCE = 30.0

CLUSTER_ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")


@dataclass(frozen=True)
class Life:
    """One life of the controllers; it is over when one of them was killed."""

    templates: TemplateInformers
    events: EventRecorder
    tasks: list[asyncio.Task[None]]

    @property
    def is_over(self) -> bool:
        return any(task.done() for task in self.tasks)


class BlindCaches(HubCaches):
    """Caches in which no policy is ever seen."""

    def informer(
        self, resource: GroupVersionResource, namespace: str = "", **options: Any
    ) -> Informer:
        if resource == PROPAGATION_POLICIES:
            options["selection"] = ListOptions(label_selector="nobody-has=this")
        return super().informer(resource, namespace, **options)


@asynccontextmanager
async def detecting(
    hub_client: ClusterClient, writer: Client | None = None, *, sees_policies: bool = True
) -> AsyncGenerator[Life]:
    """Run detector, policy lifecycle and distributor for as long as the block lasts."""
    caches = HubCaches(hub_client) if sees_policies else BlindCaches(hub_client)
    events = EventRecorder(hub_client, component="detector", clock=SystemClock())
    reconcilers = [
        each(writer or hub_client, caches, events, random=SystemRandom())
        for each in (Detector, PolicyLifecycle, DependencyDistributor)
    ]
    async with reconciling(caches, *reconcilers) as tasks:
        yield Life(caches.shared(TemplateInformers), events, tasks)


@asynccontextmanager
async def killed_once(hub_client: ClusterClient, dying: CrashingClient) -> AsyncGenerator[None]:
    """Run one life that is killed at its crash point, and after it one that is not."""

    async def lives() -> None:
        async with detecting(hub_client, dying) as life:
            await asyncio.wait(life.tasks, return_when=asyncio.FIRST_COMPLETED)
        async with detecting(hub_client):
            await asyncio.Event().wait()

    task = asyncio.create_task(lives())
    try:
        yield
    finally:
        await stop(task)


async def new_space(hub_client: ClusterClient) -> str:
    """Make a namespace nobody has seen before."""
    name = f"space-{uuid.uuid4().hex[:8]}"
    await hub_client.create(ResourcePath(NAMESPACES), namespace(name))
    return name


async def versions(hub_client: ClusterClient, *places: ResourcePath) -> list[str]:
    return [resource_version_of(await hub_client.get(place)) for place in places]
