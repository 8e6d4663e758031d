"""A scheduler beside a live hub, with Clusters and bindings as the other controllers leave them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tests.component.reconcilers import reconciling

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.works import RESOURCE_BINDINGS, clusters_of
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, ClusterClient, DeleteOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import Reconciler
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Informer
from clusterspace.errors import Conflict
from clusterspace.fleet.propagation.scheduler.controller import Scheduler
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, uid_of
from clusterspace.testing.steps import until

SECONDS = 30.0


@dataclass
class Running:
    """A scheduler at work, with those beside it that were asked for."""

    scheduler: Scheduler
    clusters: Informer
    events: EventRecorder
    task: asyncio.Task[None]
    beside: asyncio.Task[None] | None = None
    reconciler: Reconciler | None = None
    """What runs beside it."""


@asynccontextmanager
async def running_scheduler(
    hub_client: ClusterClient,
    writer: Client | None = None,
    beside: Callable[[HubCaches, EventRecorder], Reconciler] | None = None,
) -> AsyncGenerator[Running]:
    """Run one life of the scheduler and of what is beside it; a task ends when it is killed."""
    caches, clock = HubCaches(hub_client), SystemClock()
    events = EventRecorder(hub_client, component="default-scheduler", clock=clock)
    scheduler = Scheduler(writer or hub_client, caches, events, clock)
    others = () if beside is None else (beside(caches, events),)
    async with reconciling(caches, scheduler, *others) as (task, *tasks):
        clusters = caches.informer(CLUSTERS)
        other = next(iter(tasks), None)
        yield Running(scheduler, clusters, events, task, other, next(iter(others), None))


@dataclass
class Fleet:
    """What a test sees and changes on the hub."""

    hub_client: ClusterClient

    async def join(
        self, name: str, *, pods: int = 100, labels: Mapping[str, str] | None = None
    ) -> None:
        cluster = {
            "apiVersion": "cluster.karmada.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": name},
            "spec": {"syncMode": "Push", "id": f"id-of-{name}"},
        }
        made = await self.hub_client.create(ResourcePath(CLUSTERS), cluster)
        served = [
            {
                "groupVersion": "apps/v1",
                "resources": [{"name": "deployments", "kind": "Deployment"}],
            },
            {
                "groupVersion": "rbac.authorization.k8s.io/v1",
                "resources": [{"name": "clusterroles", "kind": "ClusterRole"}],
            },
        ]
        status = {"apiEnablements": served, "resourceSummary": room(pods)}
        await commit(
            self.hub_client, ResourcePath(CLUSTERS, name=name), made, {**made, "status": status}
        )

    async def leave(self, name: str) -> None:
        place = ResourcePath(CLUSTERS, name=name)
        held = await self.hub_client.get(place)
        await self.hub_client.delete(place, DeleteOptions(uid=uid_of(held)))

    async def change(self, place: ResourcePath, edit: Callable[[Object], Object]) -> Object:
        """Change an object, whoever else writes to it at the same time."""
        while True:
            held = await self.hub_client.get(place)
            with suppress(Conflict):
                return await commit(self.hub_client, place, held, edit(held))

    async def bind(
        self, name: str, placement: Object, *, replicas: int = 2, **spec: Any
    ) -> ResourcePath:
        """Make a binding as the detector does, for a Deployment."""
        binding = {
            "apiVersion": "work.karmada.io/v1alpha2",
            "kind": "ResourceBinding",
            "metadata": {
                "name": f"{name}-deployment",
                "namespace": "default",
                "labels": {stamps.POLICY_ID: "some-policy"},
            },
            "spec": {
                "placement": placement,
                "replicas": replicas,
                "schedulerName": "default-scheduler",
                "resource": {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "namespace": "default",
                    "name": name,
                    "uid": f"uid-of-{name}",
                },
                **spec,
            },
        }
        collection = ResourcePath(RESOURCE_BINDINGS, "default")
        await self.hub_client.create(collection, binding)
        return collection.named(f"{name}-deployment")

    async def targets(self, place: ResourcePath) -> dict[str, int]:
        binding = await self.hub_client.get(place)
        return {each.name: each.replicas for each in clusters_of(binding)}

    async def until_targets(self, place: ResourcePath, wanted: Mapping[str, int]) -> None:
        async def holds() -> bool:
            return await self.targets(place) == dict(wanted)

        await until(holds)

    async def until_told(self, place: ResourcePath, reason: str) -> Object:
        """Wait for the Scheduled condition to have a reason; return the binding."""

        async def holds() -> bool:
            return scheduled(await self.hub_client.get(place)).get("reason") == reason

        await until(holds)
        return await self.hub_client.get(place)


def room(pods: int) -> Object:
    """Return a summary of resources with room for so many pods."""
    return {"allocatable": {"pods": str(pods), "cpu": "64"}}


def scheduled(binding: Object) -> Object:
    """Return the Scheduled condition of a binding, or an empty one."""
    return find_condition(find_at(binding, "status", "conditions"), "Scheduled") or {}
