"""Everything that turns templates into bindings, run against a live hub in this event loop."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import SystemRandom

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.bindings import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS
from clusterspace.apis.policies import (
    CLUSTER_OVERRIDE_POLICIES,
    CLUSTER_PROPAGATION_POLICIES,
    OVERRIDE_POLICIES,
    PROPAGATION_POLICIES,
)
from clusterspace.client.places import Place
from clusterspace.client.resources import Client, ClusterClient, ListOptions
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import Informer
from clusterspace.fleet.propagation.dependencies import BINDING_INDEXES
from clusterspace.fleet.propagation.detector import Detector
from clusterspace.fleet.propagation.distributor import DependencyDistributor
from clusterspace.fleet.propagation.policy_upkeep import PolicyUpkeep
from clusterspace.fleet.propagation.template_informers import DEFINITIONS, TemplateInformers
from clusterspace.fleet.propagation.triggers import Sources
from clusterspace.kube.objects import resource_version_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import NAMESPACES, namespace
from clusterspace.testing.crashes import CrashingClient

PATIENCE = 20.0

CLUSTER_ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")


@dataclass(frozen=True)
class Life:
    """One life of the controllers; it is over when one of them was killed."""

    sources: Sources
    events: EventRecorder
    tasks: list[asyncio.Task[None]]

    @property
    def is_over(self) -> bool:
        return any(task.done() for task in self.tasks)


@asynccontextmanager
async def detecting(
    hub_client: ClusterClient, writer: Client | None = None, *, sees_policies: bool = True
) -> AsyncGenerator[Life]:
    """Run detector, policy upkeep and distributor for as long as the block lasts."""
    seen = ListOptions() if sees_policies else ListOptions(label_selector="nobody-has=this")
    clock, random = SystemClock(), SystemRandom()
    definitions = Informer(hub_client, Place(DEFINITIONS))
    templates = TemplateInformers(hub_client, definitions, clock=clock)
    sources = Sources(
        templates,
        policies=Informer(hub_client, Place(PROPAGATION_POLICIES), selection=seen),
        cluster_policies=Informer(hub_client, Place(CLUSTER_PROPAGATION_POLICIES)),
        overrides=Informer(hub_client, Place(OVERRIDE_POLICIES)),
        cluster_overrides=Informer(hub_client, Place(CLUSTER_OVERRIDE_POLICIES)),
        bindings=Informer(hub_client, Place(RESOURCE_BINDINGS), indexes=BINDING_INDEXES),
        cluster_bindings=Informer(hub_client, Place(CLUSTER_RESOURCE_BINDINGS)),
    )
    events = EventRecorder(hub_client, component="detector", clock=clock)
    writes = writer or hub_client
    workers = [
        each(writes, sources, events, clock=clock, random=random)
        for each in (Detector, PolicyUpkeep, DependencyDistributor)
    ]
    informers = [
        definitions,
        sources.policies,
        sources.cluster_policies,
        sources.overrides,
        sources.cluster_overrides,
        sources.bindings,
        sources.cluster_bindings,
    ]
    runs = [each.run for each in (*informers, templates, *workers)]
    tasks = [asyncio.create_task(run(), name=str(run)) for run in runs]
    try:
        yield Life(sources, events, tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


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
        task.cancel()
        await asyncio.wait([task])


async def new_space(hub_client: ClusterClient) -> str:
    """Make a namespace nobody has seen before."""
    name = f"space-{uuid.uuid4().hex[:8]}"
    await hub_client.create(Place(NAMESPACES), namespace(name))
    return name


async def versions(hub_client: ClusterClient, *places: Place) -> list[str]:
    return [resource_version_of(await hub_client.get(place)) for place in places]
