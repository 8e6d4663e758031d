"""The controllers of Works beside a live hub; bindings are as detector and scheduler leave them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.component.reconcilers import following

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.apis import stamps, works
from clusterspace.apis.clusters import CLUSTERS, WORK_FINALIZER, WORKS, execution_namespace
from clusterspace.apis.works import (
    binding_key_of,
    cluster_of,
    identifier_of,
    manifests_of,
    reference_to,
)
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import Client, ClusterClient, DeleteOptions
from clusterspace.controllers.commit import commit, release
from clusterspace.controllers.controller import Controller
from clusterspace.controllers.events import EVENTS, EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import Conflict, NotFound
from clusterspace.fleet.propagation.namespaces import NamespaceWorks
from clusterspace.fleet.propagation.statuses import BindingStatuses
from clusterspace.fleet.propagation.templates import TemplateInformers
from clusterspace.fleet.propagation.works.controller import BindingWorks
from clusterspace.kube.objects import Object, namespace_of, uid_of
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource, ResourceInfo
from clusterspace.testing.builders import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, namespace
from clusterspace.testing.steps import stop, until

SECONDS = 30.0
CONFIG_MAP_INFO = ResourceInfo("", "v1", "ConfigMap", "configmaps", "configmap", True, ())
APPLIED = {"type": "Applied", "status": "True", "reason": "AppliedSuccessful", "message": "done"}


@dataclass
class Running:
    """The controllers at work; `task` ends when one of them is killed."""

    events: EventRecorder
    task: asyncio.Task[None]


class ConfigMapTemplates:
    """Templates of one kind: enough for many short lives."""

    resource = CONFIG_MAPS
    info = CONFIG_MAP_INFO

    def __init__(self, caches: HubCaches) -> None:
        self.informer = caches.informer(self.resource)

    @property
    def has_synced(self) -> bool:
        return self.informer.has_synced

    def find(self, kind: GroupVersionKind, namespace: str, name: str) -> Object | None:
        return self.informer.cache.find(f"{namespace}/{name}") if self._is_ours(kind) else None

    def find_info(self, kind: GroupVersionKind) -> ResourceInfo | None:
        return self.info if self._is_ours(kind) else None

    def _is_ours(self, kind: GroupVersionKind) -> bool:
        return kind == GroupVersionKind(self.info.group, self.info.version, self.info.kind)


class DeploymentTemplates(ConfigMapTemplates):
    """The same of Deployments."""

    resource = DEPLOYMENTS
    info = ResourceInfo("apps", "v1", "Deployment", "deployments", "deployment", True, ())


class ConfigMapCaches(HubCaches):
    """Caches in which ConfigMaps are the only templates."""

    templates: type[ConfigMapTemplates] = ConfigMapTemplates

    def shared(self, make: Any) -> Any:
        return super().shared(self.templates if make is TemplateInformers else make)


class DeploymentCaches(ConfigMapCaches):
    """Caches in which Deployments are."""

    templates = DeploymentTemplates


@asynccontextmanager
async def running_works(
    hub_client: ClusterClient,
    writer: Client | None = None,
    caches: HubCaches | None = None,
    silence: Clock | None = None,
) -> AsyncGenerator[Running]:
    """Run one life of the three controllers; `silence` is the clock for how long clusters are."""
    caches, clock, hub = caches or HubCaches(hub_client), SystemClock(), writer or hub_client
    events = EventRecorder(hub_client, component="test", clock=clock)
    reconcilers = (
        BindingWorks(hub, caches, events, silence or clock),
        NamespaceWorks(hub, caches, events),
        BindingStatuses(hub, caches, events, clock),
    )
    templates = caches.shared(TemplateInformers)

    async def control() -> None:
        await until(lambda: _told(templates))
        try:
            async with asyncio.TaskGroup() as group:
                for each in controllers:
                    group.create_task(each.run())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the first is the reason

    controllers = [Controller.of(each, clock=clock, random=Random(1)) for each in reconcilers]
    running = following(caches)
    task = asyncio.create_task(control())
    try:
        yield Running(events, task)
    finally:
        await stop(task, *running)


@dataclass
class Site:
    """What a test sees and changes on the hub."""

    hub_client: ClusterClient

    async def join(self, name: str, mode: str = "Push", **metadata: Any) -> Object:
        await self.hub_client.create(ResourcePath(NAMESPACES), namespace(execution_namespace(name)))
        cluster = {
            "apiVersion": "cluster.karmada.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": name, **metadata},
            "spec": {"syncMode": mode, "id": f"id-of-{name}"},
        }
        return await self.hub_client.create(ResourcePath(CLUSTERS), cluster)

    async def put(self, resource: GroupVersionResource, made: Object) -> Object:
        return await self.hub_client.create(ResourcePath(resource, namespace_of(made)), made)

    async def bind(
        self, template: Object, *clusters: str, replicas: int = 0, **spec: Any
    ) -> ResourcePath:
        """Make a binding as the detector and the scheduler leave it."""
        is_namespaced = bool(namespace_of(template))
        place = ResourcePath(
            works.resource_for(namespace_of(template)),
            namespace_of(template),
            works.name_for(template),
        )
        targets = [
            {"name": each, **({"replicas": replicas} if replicas else {})} for each in clusters
        ]
        metadata: Object = {"name": place.name}
        if is_namespaced:
            metadata["namespace"] = place.namespace
        binding = {
            "apiVersion": works.BINDING_API_VERSION,
            "kind": "ResourceBinding" if is_namespaced else "ClusterResourceBinding",
            "metadata": metadata,
            "spec": {
                "resource": reference_to(template),
                "clusters": targets,
                **({"replicas": replicas} if replicas else {}),
                **spec,
            },
        }
        await self.hub_client.create(place.collection, binding)
        return place

    async def change(self, place: ResourcePath, edit: Callable[[Object], Object]) -> Object:
        """Change an object, whoever else writes to it at the same time."""
        while True:
            held = await self.hub_client.get(place)
            with suppress(Conflict):
                return await commit(self.hub_client, place, held, edit(held))

    async def delete(self, place: ResourcePath) -> None:
        held = await self.hub_client.get(place)
        await self.hub_client.delete(place, DeleteOptions(uid=uid_of(held)))

    async def works_of(self, place: ResourcePath) -> dict[str, Object]:
        """Return the Works of a binding by cluster."""
        works = await self.hub_client.list_objects(ResourcePath(WORKS))
        return {cluster_of(work): work for work in works if binding_key_of(work) == place.key}

    async def until_works(self, place: ResourcePath, *clusters: str) -> dict[str, Object]:
        async def holds() -> bool:
            return set(await self.works_of(place)) == set(clusters)

        await until(holds)
        return await self.works_of(place)

    async def report(self, work: Object, counters: Object | None = None, **applied: Any) -> Object:
        """Report of a Work as its cluster's executor does."""
        manifest = manifests_of(work)[0]
        told: Object = {"identifier": identifier_of(manifest, 0), "health": "Healthy"}
        if counters is not None:
            told["status"] = counters
        condition = {**APPLIED, **applied, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        reported = {"conditions": [condition], "manifestStatuses": [told]}
        place = resource_path_of(WORKS, work)
        return await self.change(place, lambda held: {**held, "status": reported})

    async def execute_deletions(self) -> None:
        """Let go of Works that are being deleted, as executors do when the object is gone."""
        for work in await self.hub_client.list_objects(ResourcePath(WORKS)):
            if not work["metadata"].get("deletionTimestamp"):
                continue
            place, live = resource_path_of(WORKS, work), work
            while live is not None:
                with suppress(Conflict):  # its controllers write to it as well
                    await release(self.hub_client, place, live, WORK_FINALIZER)
                    break
                live = await self.hub_client.find(place)

    async def is_gone(self, place: ResourcePath) -> bool:
        try:
            await self.hub_client.get(place)
        except NotFound:
            return True
        return False

    async def events(self, running: Running, reason: str) -> set[tuple[str, str]]:
        """Return kinds and messages of the events that were recorded for a reason."""
        await running.events.flush()
        told = await self.hub_client.list_objects(ResourcePath(EVENTS))
        return {
            (each["involvedObject"]["kind"], each["message"])
            for each in told
            if each["reason"] == reason
        }


async def _told(templates: TemplateInformers | ConfigMapTemplates) -> bool:
    return templates.has_synced


def deployment_place(name: str) -> ResourcePath:
    return ResourcePath(DEPLOYMENTS, "default", name)


def work_id_of(work: Object) -> str:
    return work["metadata"]["labels"][stamps.WORK_ID]
