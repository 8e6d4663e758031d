"""A hub and a member in this event loop, an executor between them, and Works to order things."""

import asyncio
import itertools
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS, WORK_FINALIZER, WORKS, execution_namespace
from clusterspace.apis.works import manifests_of
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions, WriteOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.events import EVENTS, EventRecorder
from clusterspace.controllers.informers import HubCaches, Informer
from clusterspace.errors import AlreadyExists, Conflict
from clusterspace.fleet.execution.controller import MemberExecution
from clusterspace.fleet.execution.exclusive import ExclusiveCopies
from clusterspace.fleet.interpretation.interpreter import Interpreter
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.testing.builders import NAMESPACES, namespace
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.steps import until

PATIENCE = 30.0
CLUSTER = "west"
SPACE = execution_namespace(CLUSTER)
_numbers = itertools.count(1)


def new_name() -> str:
    return f"thing-{next(_numbers)}"


def stamped(manifest: Object, work_name: str, work_id: str, resolution: str = "abort") -> Object:
    """Return a manifest as a binding's Work has it."""
    labels = {
        **manifest["metadata"].get("labels", {}),
        stamps.MANAGED: "true",
        stamps.WORK_ID: work_id,
    }
    annotations = {
        **manifest["metadata"].get("annotations", {}),
        stamps.TEMPLATE_UID: "11111111-2222-3333-4444-555555555555",
        stamps.TEMPLATE_GENERATION: "2",
        stamps.WORK_NAMESPACE: SPACE,
        stamps.WORK_NAME: work_name,
    }
    if resolution:
        annotations[stamps.CONFLICT_RESOLUTION] = resolution
    listed = {*annotations, stamps.MANAGED_LABELS_LIST, stamps.MANAGED_ANNOTATIONS_LIST}
    lists = {
        stamps.MANAGED_LABELS_LIST: ",".join(sorted(labels)),
        stamps.MANAGED_ANNOTATIONS_LIST: ",".join(sorted(listed)),
    }
    return with_metadata(manifest, labels=labels, annotations={**annotations, **lists})


def work_of(*manifests: Object, resolution: str = "abort", **spec: Any) -> Object:
    """Return a Work for objects, as the hub's controllers would write it."""
    first = manifests[0]
    name = stamps.work_name(str(first["kind"]), namespace_of(first), name_of(first))
    work_id = str(uuid.uuid4())
    return {
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {
            "name": name,
            "namespace": SPACE,
            "labels": {stamps.WORK_ID: work_id},
            "finalizers": [WORK_FINALIZER],
        },
        "spec": {
            "workload": {
                "manifests": [stamped(each, name, work_id, resolution) for each in manifests]
            },
            **spec,
        },
    }


@dataclass
class Site:
    """Both ends, and what a test does at either."""

    hub: ClusterClient
    member: ClusterClient
    foreign: WriteOptions = field(default_factory=lambda: WriteOptions(field_manager="kubectl"))

    async def order(self, work: Object) -> Object:
        return await self.hub.create(ResourcePath(WORKS, SPACE), work)

    def work_path(self, name: str) -> ResourcePath:
        return ResourcePath(WORKS, SPACE, name)

    async def work(self, name: str) -> Object:
        return await self.hub.get(ResourcePath(WORKS, SPACE, name))

    async def find_work(self, name: str) -> Object | None:
        return await self.hub.find(ResourcePath(WORKS, SPACE, name))

    async def change_order(self, name: str, change: Callable[[Object], Object]) -> None:
        """Change the first manifest of a Work, whatever the executor reports of it meanwhile."""
        while True:
            before = await self.work(name)
            manifests = [change(manifests_of(before)[0]), *manifests_of(before)[1:]]
            after = with_value(before, manifests, "spec", "workload", "manifests")
            with suppress(Conflict):
                await commit(self.hub, ResourcePath(WORKS, SPACE, name), before, after)
                return

    async def delete_work(self, name: str) -> None:
        work = await self.work(name)
        await self.hub.delete(ResourcePath(WORKS, SPACE, name), DeleteOptions(uid_of(work)))

    async def condition(self, name: str, condition_type: str) -> Object:
        work = await self.work(name)
        return find_condition(find_at(work, "status", "conditions"), condition_type) or {}

    async def applied(self, name: str, status: str = "True") -> Object:
        """Wait until a Work says whether it is applied; return that condition."""

        async def said() -> Object | None:
            condition = await self.condition(name, "Applied")
            return condition if condition.get("status") == status else None

        return await until(said)

    async def gone(self, name: str) -> None:
        async def is_gone() -> bool:
            return await self.find_work(name) is None

        await until(is_gone)

    async def event(self, reason: str, about: str) -> Object:
        async def found() -> Object | None:
            listed = await self.hub.list_objects(ResourcePath(EVENTS))
            named = [e for e in listed if e["involvedObject"]["name"] == about]
            return next((e for e in named if e["reason"] == reason), None)

        return await until(found)


@asynccontextmanager
async def joined_hub(directory: Path) -> AsyncGenerator[ClusterClient]:
    """Run a hub that knows a member."""
    async with (
        hub_for_test(directory) as settings,
        client_for_test(settings) as hub,
    ):
        await hub.create(ResourcePath(NAMESPACES), namespace(SPACE))
        await hub.create(ResourcePath(CLUSTERS), _cluster())
        yield hub


@asynccontextmanager
async def two_clusters(directory: Path) -> AsyncGenerator[Site]:
    """Run a hub that knows a member, and the member."""
    async with (
        joined_hub(directory / "hub") as hub,
        hub_for_test(directory / "member", name=CLUSTER) as settings,
        client_for_test(settings) as member,
    ):
        yield Site(hub, member)


@asynccontextmanager
async def executing(
    site: Site,
    *,
    member: ClusterClient | None = None,
    exclusive: ExclusiveCopies | None = None,
) -> AsyncGenerator[MemberExecution]:
    """Run one life of the execution for one member."""
    events = EventRecorder(site.hub, component="execution", clock=SystemClock())
    interpreter = Interpreter(HubCaches(site.hub))
    works = Informer(site.hub, ResourcePath(WORKS))
    clusters = Informer(site.hub, ResourcePath(CLUSTERS))
    execution = MemberExecution(
        CLUSTER,
        member or site.member,
        site.hub,
        events,
        works=works.cache,
        clusters=clusters.cache,
        interpreter=interpreter,
        exclusive=exclusive,
    )
    works.add_handler(execution.work_changed)

    def cluster_changed(update: Any) -> None:
        if update.key == CLUSTER and not update.is_deletion:
            execution.cluster_changed(update.decode_before(), update.decode_after())

    clusters.add_handler(cluster_changed)
    async with asyncio.TaskGroup() as group:
        known = (works, clusters, *interpreter.informers)
        tasks = [group.create_task(each.run()) for each in (*known, events, interpreter)]
        for each in known:
            await each.wait_synced()
        tasks.append(group.create_task(execution.run()))
        try:
            yield execution
        finally:
            for task in tasks:
                task.cancel()


async def make_namespace(cluster: ClusterClient, name: str) -> None:
    try:
        await cluster.create(ResourcePath(NAMESPACES), namespace(name))
    except AlreadyExists:
        return


def _cluster() -> Object:
    return {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": CLUSTER},
        "spec": {"syncMode": "Push", "apiEndpoint": "https://127.0.0.1:1"},
    }
