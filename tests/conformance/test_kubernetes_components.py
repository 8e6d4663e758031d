"""Kubernetes' own kube-controller-manager and kube-scheduler at work on our hub, unmodified."""

from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.kube.objects import Object, find_at, labels_of, name_of, resource_version_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import (
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    deployment,
    namespace,
)
from clusterspace.testing.hubs import client_for_test, hub_for_test, real_component_for_test
from clusterspace.testing.steps import delete, edit, until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

NODES = GroupVersionResource("", "v1", "nodes")
CLAIMS = GroupVersionResource("", "v1", "persistentvolumeclaims")
SLICES = GroupVersionResource("discovery.k8s.io", "v1", "endpointslices")
LEASES = GroupVersionResource("coordination.k8s.io", "v1", "leases")
SERVICES = GroupVersionResource("", "v1", "services")
PATIENCE = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ClusterClient]:
    """A hub with both components beside it, and a node that runs nothing."""
    directory = tmp_path_factory.mktemp("hub")
    pki = directory / "pki"
    async with (
        hub_for_test(directory) as settings,
        real_component_for_test("kube-controller-manager", directory, *manager_flags(pki)),
        real_component_for_test("kube-scheduler", directory, *scheduler_flags(pki)),
        client_for_test(settings) as client,
    ):
        await client.create(ResourcePath(NODES), node("node-a"))
        await edit(client, ResourcePath(NODES, "", "node-a"), without_taints)
        await edit(client, ResourcePath(NODES, "", "node-a").with_subresource("status"), ready)
        await client.create(ResourcePath(NAMESPACES), namespace("shop"))
        yield client


def manager_flags(pki: Path) -> tuple[str, ...]:
    return (
        f"--kubeconfig={pki.parent / 'kubeconfig'}",
        f"--service-account-private-key-file={pki / 'sa.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        "--node-monitor-grace-period=24h",
        "--secure-port=0",
    )


def scheduler_flags(pki: Path) -> tuple[str, ...]:
    return (f"--kubeconfig={pki.parent / 'kubeconfig'}", "--secure-port=0")


def node(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def without_taints(live: Object) -> Object:
    return {**live, "spec": {}}


def ready(live: Object) -> Object:
    room = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    said = {"type": "Ready", "status": "True", "reason": "MadeUp", "message": "runs nothing"}
    return {**live, "status": {"capacity": room, "allocatable": room, "conditions": [said]}}


async def test_both_hold_their_leases_by_which_the_hub_tells_that_they_are_well(
    hub: ClusterClient,
) -> None:
    components = GroupVersionResource("", "v1", "componentstatuses")

    async def healthy() -> bool:
        names = ("controller-manager", "scheduler")
        found = [await hub.get(ResourcePath(components, "", name)) for name in names]
        return all(each["conditions"][0]["status"] == "True" for each in found)

    await until(healthy, seconds=PATIENCE)
    for name in ("kube-controller-manager", "kube-scheduler"):
        assert await hub.find(ResourcePath(LEASES, "kube-system", name))


async def test_a_deployment_becomes_pods_on_a_node(hub: ClusterClient) -> None:
    made = deployment("web", replicas=2, namespace="shop")
    await hub.create(ResourcePath(DEPLOYMENTS, "shop"), made)

    async def placed() -> list[Object]:
        pods = await hub.list_objects(ResourcePath(PODS, "shop"))
        on_node = [each for each in pods if find_at(each, "spec", "nodeName") == "node-a"]
        return on_node if len(on_node) == 2 else []

    pods = await until(placed, seconds=PATIENCE)
    owners = {each["metadata"]["ownerReferences"][0]["kind"] for each in pods}
    assert owners == {"ReplicaSet"}


async def test_a_service_gets_slices(hub: ClusterClient) -> None:
    service: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"app": "nobody"}, "ports": [{"port": 80}]},
    }
    await hub.create(ResourcePath(SERVICES, "shop"), service)

    async def sliced() -> bool:
        found = await hub.list_objects(ResourcePath(SLICES, "shop"))
        return any(labels_of(each).get("kubernetes.io/service-name") == "web" for each in found)

    await until(sliced, seconds=PATIENCE)


async def test_a_namespace_ends_under_two_controllers_that_end_namespaces(
    hub: ClusterClient,
) -> None:
    await hub.create(ResourcePath(NAMESPACES), namespace("ending"))
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "ending"},
        "spec": asked,
    }
    await hub.create(ResourcePath(CLAIMS, "ending"), claim)
    idle = deployment("web", replicas=0, namespace="ending")  # nobody would end pods on the node
    await hub.create(ResourcePath(DEPLOYMENTS, "ending"), idle)

    await delete(hub, ResourcePath(NAMESPACES, "", "ending"))

    async def gone() -> bool:
        names = {name_of(each) for each in await hub.list_objects(ResourcePath(NAMESPACES))}
        return "ending" not in names

    await until(gone, seconds=PATIENCE)


QUOTAS = GroupVersionResource("", "v1", "resourcequotas")
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")


async def test_both_count_quotas_and_agree(hub: ClusterClient) -> None:
    await hub.create(ResourcePath(NAMESPACES), namespace("counted"))

    async def make_quota(name: str) -> Object:
        """Make a quota and return it once it is counted and every ConfigMap is there."""
        hard = {"count/configmaps": "9", "pods": "3", "requests.cpu": "1500m", "memory": "1Gi"}
        metadata = {"name": name, "namespace": "counted"}
        wanted = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}
        place = ResourcePath(QUOTAS, "counted", name)
        await hub.create(place.collection, {**wanted, "spec": {"hard": hard}})

        async def is_counted() -> Object | None:
            found = await hub.get(place)
            used = find_at(found, "status", "used") or {}
            return found if used.keys() == hard.keys() else None

        return await until(is_counted, seconds=PATIENCE)

    await make_quota("all")
    for number in range(4):
        metadata = {"name": f"map-{number}", "namespace": "counted"}
        made: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        await hub.create(ResourcePath(CONFIG_MAPS, "counted"), made)
    asked = {"requests": {"cpu": "0.5", "memory": "128Mi"}}
    container = {"name": "web", "image": "web:1", "resources": asked}
    spec = {"schedulerName": "nobody", "containers": [container]}
    for name in ("one", "two"):
        metadata = {"name": name, "namespace": "counted"}
        pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        await hub.create(ResourcePath(PODS, "counted"), pod)
    await delete(hub, ResourcePath(CONFIG_MAPS, "counted", "map-0"))
    await delete(hub, ResourcePath(PODS, "counted", "one"))

    # kube-root-ca.crt is a ConfigMap of every namespace.
    expected = {"count/configmaps": "4", "pods": "1", "requests.cpu": "500m", "memory": "128Mi"}

    async def all_used() -> Object | None:
        found = await hub.get(ResourcePath(QUOTAS, "counted", "all"))
        return found if find_at(found, "status", "used") == expected else None

    quota = partial(hub.get, ResourcePath(QUOTAS, "counted", "all"))
    settled = await until(all_used, seconds=PATIENCE, explain=quota)
    # Another quota is counted by both after whatever they had to say about this one.
    later = await make_quota("later")
    assert find_at(later, "status", "used") == expected
    after = await hub.get(ResourcePath(QUOTAS, "counted", "all"))
    assert resource_version_of(after) == resource_version_of(settled)
