"""A hub and simulated members in this event loop, and all that carries placements to them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.clusters import CLUSTERS, WORKS, execution_namespace
from clusterspace.apis.fleet_placements import (
    API_VERSION,
    PARENT,
    scope_at,
    scope_of,
)
from clusterspace.apis.member_clusters import owner_reference
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import Client, ClusterClient, DeleteOptions, ListOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import ControllerManager
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import ClusterUnreachable, Conflict
from clusterspace.fleet.execution.controller import Execution
from clusterspace.fleet.propagation.dependencies import DependencyDistributor
from clusterspace.fleet.propagation.detector import Detector, PolicyLifecycle
from clusterspace.fleet.propagation.namespaces import NamespaceWorks
from clusterspace.fleet.propagation.placements.controller import PlacementController
from clusterspace.fleet.propagation.placements.evictions import PlacementEvictions
from clusterspace.fleet.propagation.placements.override_snapshots import OverrideSnapshots
from clusterspace.fleet.propagation.placements.staged_update_runs import StagedUpdateRuns
from clusterspace.fleet.propagation.rollouts.controller import PolicyRollouts
from clusterspace.fleet.propagation.scheduler.controller import Scheduler
from clusterspace.fleet.propagation.statuses import BindingStatuses
from clusterspace.fleet.propagation.works.controller import BindingWorks
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, name_of, uid_of, with_value
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import format_time
from clusterspace.testing.builders import NAMESPACES, config_map, namespace
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.stage import running_sim_member
from clusterspace.testing.steps import until, until_equal

PATIENCE = 30.0
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
CLUSTER_ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
APIS = [
    {
        "groupVersion": "rbac.authorization.k8s.io/v1",
        "resources": [{"name": "clusterroles", "kind": "ClusterRole"}],
    },
    {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
    {"groupVersion": "v1", "resources": [{"name": "configmaps", "kind": "ConfigMap"}]},
]


def namespace_selector(name: str, **more: Any) -> Object:
    return {"group": "", "version": "v1", "kind": "Namespace", "name": name, **more}


def role_selector(**chosen: Any) -> Object:
    kind = {"group": "rbac.authorization.k8s.io", "version": "v1", "kind": "ClusterRole"}
    return {**kind, **chosen}


def cluster_role(name: str, **labels: str) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels},
        "rules": [],
    }


def placement(
    name: str = "crp", *selectors: Object, policy: Object | None = None, **strategy: Any
) -> Object:
    """Return a placement of the namespace `app`, unless told to select something else."""
    spec: Object = {"resourceSelectors": list(selectors) or [namespace_selector("app")]}
    if policy is not None:
        spec["policy"] = policy
    if strategy:
        spec["strategy"] = strategy
    metadata = {"name": name}
    return {
        "apiVersion": API_VERSION,
        "kind": "ClusterResourcePlacement",
        "metadata": metadata,
        "spec": spec,
    }


def resource_placement(
    name: str = "rp", *selectors: Object, policy: Object | None = None, **strategy: Any
) -> Object:
    """Return a placement of the ConfigMaps of namespace `app`, unless told to select others."""
    every = {"group": "", "version": "v1", "kind": "ConfigMap"}
    made = placement(name, *(selectors or (every,)), policy=policy, **strategy)
    metadata = {"name": name, "namespace": "app"}
    return {**made, "kind": "ResourcePlacement", "metadata": metadata}


def pick_n(number: int, **more: Any) -> Object:
    return {"placementType": "PickN", "numberOfClusters": number, **more}


def pick_fixed(*names: str) -> Object:
    return {"placementType": "PickFixed", "clusterNames": list(names)}


def path_of(key: str) -> ResourcePath:
    """Return where a placement is; a ResourcePlacement's key has a namespace."""
    namespace, _, name = key.rpartition("/")
    return ResourcePath(scope_at(key).placements, namespace, name)


def of_cluster(status: Object, cluster: str) -> Object:
    """Return what a placement tells of one cluster."""
    told = status.get("placementStatuses") or []
    return next((each for each in told if each.get("clusterName") == cluster), {})


@dataclass
class PlacementSite:
    """What a test sees and changes."""

    hub: ClusterClient
    directory: Path
    stack: AsyncExitStack
    members: dict[str, ClusterClient] = field(default_factory=dict)

    async def join(self, name: str, *, labels: Object | None = None, **spec: Any) -> None:
        """Start a simulated member and make its Cluster, healthy from the first moment."""
        if name not in self.members:
            directory = self.directory / name
            # Without nodes nothing runs there, and tests say themselves what becomes of workloads.
            member = await self.stack.enter_async_context(running_sim_member(name, directory))
            self.members[name] = member.client
        await self.declare(name, labels=labels, **spec)

    async def declare(
        self,
        name: str,
        *,
        labels: Object | None = None,
        is_ready: bool = True,
        owner: Object | None = None,
        **spec: Any,
    ) -> None:
        """Make a Cluster that nothing need be behind; `owner` is the MemberCluster it is of."""
        await self.hub.create(ResourcePath(NAMESPACES), namespace(execution_namespace(name)))
        cluster = {
            "apiVersion": "cluster.karmada.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {
                "name": name,
                "labels": labels or {},
                "ownerReferences": [owner_reference(owner)] if owner else [],
            },
            "spec": {"syncMode": "Push", "id": f"id-of-{name}", **spec},
        }
        await self.hub.create(ResourcePath(CLUSTERS), cluster)
        if is_ready:
            await self.set_ready(name, "True")

    async def set_ready(self, name: str, status: str, *, for_seconds: float = 0) -> None:
        since = format_time(SystemClock().now() - for_seconds)
        ready = {
            "type": "Ready",
            "status": status,
            "reason": "Told",
            "message": "",
            "lastTransitionTime": since,
        }
        told = {"conditions": [ready], "apiEnablements": APIS}
        await self.change(ResourcePath(CLUSTERS, "", name), lambda held: {**held, "status": told})

    async def taint(self, name: str, *taints: Object) -> None:
        place = ResourcePath(CLUSTERS, "", name)
        await self.change(place, lambda held: with_value(held, list(taints), "spec", "taints"))

    async def leave(self, name: str) -> None:
        await self.delete(ResourcePath(CLUSTERS, "", name))

    async def change(self, place: ResourcePath, edit: Callable[[Object], Object]) -> Object:
        while True:
            held = await self.hub.get(place)
            try:
                return await commit(self.hub, place, held, edit(held))
            except Conflict:
                continue

    async def edit_placement(self, name: str, value: Any, *path: str) -> None:
        await self.change(path_of(name), lambda held: with_value(held, value, "spec", *path))

    async def put(self, resource: GroupVersionResource, made: Object) -> Object:
        return await self.hub.create(resource_path_of(resource, made).collection, made)

    async def app(self, *config_maps: str, name: str = "app") -> None:
        """Make a namespace with ConfigMaps in it."""
        await self.put(NAMESPACES, namespace(name))
        for each in config_maps:
            await self.put(CONFIG_MAPS, config_map(each, {"v": "1"}, namespace=name))

    async def place(self, made: Object) -> Object:
        return await self.put(scope_of(made).placements, made)

    async def delete(self, place: ResourcePath, cluster: str = "") -> None:
        client = self.members[cluster] if cluster else self.hub
        held = await client.get(place)
        await client.delete(place, DeleteOptions(uid=uid_of(held)))

    async def status(self, name: str = "crp") -> Object:
        return (await self.hub.get(path_of(name))).get("status") or {}

    async def condition(self, kind: str, name: str = "crp") -> tuple[str, str]:
        """Return status and reason of a condition, both empty while it is not there."""
        conditions = (await self.status(name)).get("conditions")
        held = find_condition(conditions, f"{scope_at(name).kind}{kind}") or {}
        return str(held.get("status", "")), str(held.get("reason", ""))

    async def message(self, kind: str, name: str = "crp") -> str:
        conditions = (await self.status(name)).get("conditions")
        held = find_condition(conditions, f"{scope_at(name).kind}{kind}") or {}
        return str(held.get("message", ""))

    async def is_settled(self, name: str = "crp") -> bool:
        """Whether the newest generation is available everywhere."""
        held = await self.hub.get(path_of(name))
        conditions = find_at(held, "status", "conditions")
        available = find_condition(conditions, f"{scope_at(name).kind}Available") or {}
        is_new = available.get("observedGeneration") == held["metadata"]["generation"]
        return is_new and available.get("status") == "True"

    async def until_settled(self, name: str = "crp") -> None:
        await until(lambda: self.is_settled(name), explain=lambda: self.status(name))

    async def clusters(self, name: str = "crp") -> list[str]:
        """Return the clusters that have a binding, picked ones only."""
        path = path_of(name)
        named = ListOptions(label_selector=f"{PARENT}={path.name}")
        bindings = ResourcePath(scope_at(name).bindings, path.namespace)
        held = await self.hub.list_objects(bindings, named)
        states = {each["spec"]["targetCluster"]: each["spec"]["state"] for each in held}
        return sorted(each for each, state in states.items() if state != "Unscheduled")

    async def until_clusters(self, *wanted: str, name: str = "crp") -> None:
        async def look() -> Any:
            return await self.clusters(name)

        await until_equal(look, sorted(wanted))

    async def data(self, cluster: str, config_map: str, namespace: str = "app") -> Object | None:
        """Return what a member has in a ConfigMap, or None when it has none."""
        held = await self.members[cluster].find(ResourcePath(CONFIG_MAPS, namespace, config_map))
        return None if held is None else held.get("data") or {}

    async def until_data(
        self, cluster: str, config_map: str, wanted: Object | None, namespace: str = "app"
    ) -> None:
        async def look() -> Any:
            return await self.data(cluster, config_map, namespace)

        await until_equal(look, wanted)

    async def works(self, cluster: str) -> set[str]:
        held = await self.hub.list_objects(ResourcePath(WORKS, execution_namespace(cluster)))
        return {name_of(each) for each in held}

    async def set_data(self, config_map: str, data: Object, namespace: str = "app") -> None:
        place = ResourcePath(CONFIG_MAPS, namespace, config_map)
        await self.change(place, lambda held: {**held, "data": data})

    async def reach(self, cluster: Object) -> ClusterClient:
        found = self.members.get(name_of(cluster))
        if found is None:
            raise ClusterUnreachable(name_of(cluster), "nothing is behind it", was_sent=False)
        return found


def assembled(
    hub: ClusterClient, writer: Client, site: PlacementSite, caches: HubCaches | None = None
) -> dict[str, Any]:
    """Return everything that runs, as a process puts it together."""
    clock, random = SystemClock(), Random(1)
    # Events are for people: when they are written decides nothing.
    events = EventRecorder(site.hub, component="test", clock=clock)
    caches = caches or HubCaches(hub)
    reconcilers = (
        Detector(hub, caches, events, random=random),
        PolicyLifecycle(hub, caches, events, random=random),
        DependencyDistributor(hub, caches, events, random=random),
        OverrideSnapshots(writer, caches),
        PlacementController(writer, caches, events, clock, random=random),
        StagedUpdateRuns(writer, caches, events, clock),
        PolicyRollouts(writer, caches, events, clock),
        PlacementEvictions(writer, caches, events, clock),
        Scheduler(hub, caches, events, clock),
        BindingWorks(hub, caches, events, clock),
        NamespaceWorks(hub, caches, events),
        BindingStatuses(hub, caches, events, clock),
        Execution(hub, caches, events, site.reach),
    )
    manager = ControllerManager(caches, events, reconcilers, clock=clock, random=random)
    return dict(manager.tasks())


@asynccontextmanager
async def running(
    site: PlacementSite,
    writer: Client | None = None,
    hub: ClusterClient | None = None,
    caches: HubCaches | None = None,
) -> AsyncGenerator[Any]:
    """Run one life of everything; yields the tasks, which end when one is killed.

    `writer` is what placements write with, `hub` what everybody else does.
    """
    hub = hub or site.hub
    runs = assembled(hub, writer or hub, site, caches)
    tasks = [asyncio.create_task(run(), name=name) for name, run in runs.items()]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@asynccontextmanager
async def placement_site(directory: Path, *members: str) -> AsyncGenerator[PlacementSite]:
    """Run a hub and members, with nothing at work between them."""
    async with AsyncExitStack() as stack:
        (directory / "the-hub").mkdir()
        settings = await stack.enter_async_context(hub_for_test(directory / "the-hub"))
        hub = await stack.enter_async_context(client_for_test(settings))
        site = PlacementSite(hub, directory, stack)
        for name in members:
            await site.join(name)
        yield site
