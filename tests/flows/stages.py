"""A hub, its controllers and two members, of any kind and in either mode, for propagation flows."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from clusterspace.apis.clusters import CLUSTERS, WORKS
from clusterspace.apis.policies import (
    CLUSTER_OVERRIDE_POLICIES,
    CLUSTER_PROPAGATION_POLICIES,
    OVERRIDE_POLICIES,
    PROPAGATION_POLICIES,
)
from clusterspace.apis.works import CLUSTER_RESOURCE_BINDINGS, RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, WriteOptions
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    name_of,
    namespace_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing import steps
from clusterspace.testing.builders import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES
from clusterspace.testing.hubs import OURS, find_real_kubernetes
from clusterspace.testing.stage import (
    Fleet,
    Side,
    register,
    running_agent,
    running_fleet,
    running_kubernetes,
    running_sim_member,
    until_ready,
)

PATIENCE = 30.0
MEMBERS = ("member1", "member2")
SIM, KUBERNETES = "sim", "kubernetes"
KINDS = (SIM, KUBERNETES)
"""What members are: a real kube-apiserver is skipped, by name, where there is none."""
PUSH, PULL, MIXED = "push", "pull", "mixed"
"""How members belong to the hub; mixed: the first by Push, the second by Pull."""

CLUSTER_ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
RESOURCES = {
    "Cluster": CLUSTERS,
    "ClusterOverridePolicy": CLUSTER_OVERRIDE_POLICIES,
    "ClusterPropagationPolicy": CLUSTER_PROPAGATION_POLICIES,
    "ClusterResourceBinding": CLUSTER_RESOURCE_BINDINGS,
    "ClusterRole": CLUSTER_ROLES,
    "ConfigMap": CONFIG_MAPS,
    "Deployment": DEPLOYMENTS,
    "Namespace": NAMESPACES,
    "OverridePolicy": OVERRIDE_POLICIES,
    "PropagationPolicy": PROPAGATION_POLICIES,
    "ResourceBinding": RESOURCE_BINDINGS,
    "Work": WORKS,
}
KUBECTL = WriteOptions(field_manager="kubectl-client-side-apply")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass
class Stage:
    """Everything a story is played on."""

    fleet: Fleet
    members: dict[str, Side]
    hub_kind: str = field(default=OURS, kw_only=True)

    @property
    def hub(self) -> ClusterClient:
        return self.fleet.hub.client

    def client_of(self, side: str) -> ClusterClient:
        return self.hub if side == "hub" else self.members[side].client


def resource_path_of(manifest: Object) -> ResourcePath:
    return ResourcePath(RESOURCES[manifest["kind"]], namespace_of(manifest), name_of(manifest))


async def kubectl_apply(cluster: ClusterClient, manifest: Object) -> Object:
    """Create an object as `kubectl apply` does: with a note of what was applied."""
    annotations = annotations_of(manifest)
    applied = with_metadata(manifest, annotations=dict(annotations))
    text = json.dumps(
        {**applied, "metadata": {**applied["metadata"], "annotations": dict(annotations)}},
        sort_keys=True,
        separators=(",", ":"),
    )
    noted = with_metadata(manifest, annotations={**annotations, LAST_APPLIED: text + "\n"})
    return await cluster.create(resource_path_of(manifest).collection, noted, KUBECTL)


async def edit(
    cluster: ClusterClient,
    place: ResourcePath,
    change: Callable[[Object], Object],
    options: WriteOptions = KUBECTL,
) -> Object:
    """Change an object as somebody with kubectl would."""
    return await steps.edit(cluster, place, change, options)


@asynccontextmanager
async def running_members(
    kind: str, directory: Path, *, nodes: int = 0
) -> AsyncGenerator[dict[str, Side]]:
    """Run two members; neither has nodes unless told, as those had none that were recorded."""
    if kind == KUBERNETES and find_real_kubernetes() is None:
        pytest.skip("no kube-apiserver and etcd: set KUBEBUILDER_ASSETS to where they are")
    async with AsyncExitStack() as stack:
        async with asyncio.TaskGroup() as group:
            starting = {
                name: group.create_task(
                    stack.enter_async_context(_member(kind, name, directory / name, nodes))
                )
                for name in MEMBERS
            }
        yield {name: task.result() for name, task in starting.items()}


def _member(kind: str, name: str, directory: Path, nodes: int) -> AbstractAsyncContextManager[Side]:
    if kind == SIM:
        return running_sim_member(name, directory, nodes=nodes)
    return running_kubernetes(name, directory)


@asynccontextmanager
async def staged(
    kind: str, mode: str, directory: Path, *, nodes: int = 0, hub_kind: str = OURS
) -> AsyncGenerator[Stage]:
    """Run a hub that two members belong to, and all of its controllers."""
    async with AsyncExitStack() as stack:
        members = await stack.enter_async_context(running_members(kind, directory, nodes=nodes))
        fleet = await stack.enter_async_context(running_fleet(directory, hub_kind=hub_kind))
        await stack.enter_async_context(fleet.controllers())
        for name, member in members.items():
            if mode == PUSH or (mode == MIXED and name == MEMBERS[0]):
                await fleet.join(name, member)
            else:
                await register(fleet, name, member)
                await stack.enter_async_context(running_agent(member))
        for name in members:
            await until_ready(fleet, name)
        yield Stage(fleet, members, hub_kind=hub_kind)
