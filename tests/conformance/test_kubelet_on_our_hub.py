"""A real kubelet runs real containers for our hub; Kubernetes' other components stand beside it."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from tests.conformance.real_nodes import IMAGE, NODE, PATIENCE, running_node
from tests.conformance.test_kubernetes_components import manager_flags, scheduler_flags

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, find_at, is_being_deleted, name_of
from clusterspace.testing.builders import DEPLOYMENTS, NAMESPACES, PODS, namespace
from clusterspace.testing.hubs import client_for_test, hub_for_test, real_component_for_test
from clusterspace.testing.steps import delete, edit, until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ClusterClient]:
    """A hub whose one node is this machine."""
    directory = tmp_path_factory.mktemp("hub")
    pki = directory / "pki"
    async with (
        hub_for_test(directory) as settings,
        client_for_test(settings) as client,
        real_component_for_test("kube-controller-manager", directory, *manager_flags(pki)),
        real_component_for_test("kube-scheduler", directory, *scheduler_flags(pki)),
        running_node(client, directory / "kubeconfig", tmp_path_factory.mktemp("ctr")),
    ):
        await client.create(ResourcePath(NAMESPACES), namespace("shop"))
        yield client
        # The kubelet ends the containers before it is ended itself.
        await delete(client, ResourcePath(NAMESPACES, "", "shop"))
        await until(lambda: has_no_pods(client), seconds=PATIENCE)


async def has_no_pods(hub: ClusterClient) -> bool:
    return not await hub.list_objects(ResourcePath(PODS, "shop"))


def workload(name: str, script: str) -> Object:
    labels = {"app": name}
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
    }
    pod = {"hostNetwork": True, "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


async def pods_of(hub: ClusterClient, name: str) -> list[Object]:
    pods = await hub.list_objects(ResourcePath(PODS, "shop"))
    return [each for each in pods if name_of(each).startswith(f"{name}-")]


async def test_a_kubelet_runs_a_deployment_of_our_hub(hub: ClusterClient) -> None:
    await hub.create(ResourcePath(DEPLOYMENTS, "shop"), workload("web", "sleep 100000"))

    async def running() -> Object | None:
        pods = await pods_of(hub, "web")
        ready = (is_true(find_at(each, "status", "conditions"), "Ready") for each in pods)
        return pods[0] if pods and all(ready) else None

    pod = await until(running, seconds=PATIENCE)

    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["containerStatuses"][0]["containerID"].startswith("containerd://")
    assert pod["spec"]["nodeName"] == NODE


async def test_a_container_that_fails_is_started_again(hub: ClusterClient) -> None:
    await hub.create(ResourcePath(DEPLOYMENTS, "shop"), workload("bad", "exit 3"))

    async def restarted() -> bool:
        pods = await pods_of(hub, "bad")
        counts = [find_at(each, "status", "containerStatuses") or [] for each in pods]
        return any(each["restartCount"] > 0 for statuses in counts for each in statuses)

    await until(restarted, seconds=PATIENCE)


async def test_a_pod_that_is_deleted_ends_and_another_takes_its_place(hub: ClusterClient) -> None:
    async def pods() -> set[str]:
        return {name_of(each) for each in await pods_of(hub, "web") if not is_being_deleted(each)}

    (before,) = await pods()
    await delete(hub, ResourcePath(PODS, "shop", before))

    async def replaced() -> bool:
        names = {name_of(each) for each in await pods_of(hub, "web")}
        return before not in names and len(names) == 1

    await until(replaced, seconds=PATIENCE)


async def test_a_new_state_is_rolled_out_to_the_node(hub: ClusterClient) -> None:
    place = ResourcePath(DEPLOYMENTS, "shop", "web")
    changed = workload("web", "sleep 200000")["spec"]["template"]
    await edit(hub, place, lambda live: {**live, "spec": {**live["spec"], "template": changed}})

    async def rolled_out() -> bool:
        live = await hub.get(place)
        status, generation = live.get("status") or {}, live["metadata"]["generation"]
        is_seen = status.get("observedGeneration") == generation
        return is_seen and status.get("availableReplicas") == status.get("updatedReplicas") == 1

    await until(rolled_out, seconds=PATIENCE)
