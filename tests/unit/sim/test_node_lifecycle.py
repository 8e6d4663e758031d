"""Nodes that fall silent or go, and their pods."""

from tests.unit.sim.pretend_api import PretendCluster, pretend_cluster
from tests.unit.sim.workload_objects import deployment, node, pod

from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at


def ready(name: str) -> Object:
    made = node(name)
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {**made, "status": {**made["status"], "conditions": [condition]}}


def taints(cluster: PretendCluster, name: str) -> set[tuple[str, str]]:
    found = find_at(cluster.get("Node", name, ""), "spec", "taints") or ()
    return {(each["key"].rpartition("/")[2], each["effect"]) for each in found}


def on(name: str, seconds: int | None) -> Object:
    toleration: Object = {"operator": "Exists", "effect": "NoExecute"}
    if seconds is not None:
        toleration["tolerationSeconds"] = seconds
    return pod(f"p-{seconds}", node=name, tolerations=[toleration])


async def test_a_node_without_a_kubelet_is_lost_and_its_pods_leave_as_they_tolerate() -> None:
    async with pretend_cluster(nodes=1) as cluster:
        await cluster.api.create(ready("b"))
        for seconds in (None, 20, 200):
            await cluster.api.create(on("b", seconds))
        await cluster.settle(40)
        assert taints(cluster, "b") == set()

        await cluster.settle(20)
        conditions = find_at(cluster.get("Node", "b", ""), "status", "conditions")
        assert (find_condition(conditions, "Ready") or {})["status"] == "Unknown"
        assert taints(cluster, "b") == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
        assert taints(cluster, "east-node-0") == set()

        await cluster.settle(60)

        leaving = {key.name for key, each in cluster.api.objects.items() if _is_leaving(each)}
        assert leaving == {"p-20"}


def _is_leaving(kube_object: Object) -> bool:
    return kube_object["kind"] == "Pod" and "deletionTimestamp" in kube_object["metadata"]


async def test_a_lease_that_is_renewed_keeps_a_node() -> None:
    async with pretend_cluster(nodes=1) as cluster:
        await cluster.api.create(ready("b"))
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "b", "namespace": "kube-node-lease"},
            "spec": {"renewTime": "2999-01-01T00:00:00.000000Z"},
        }
        await cluster.api.create(lease)
        await cluster.settle(300)

        assert taints(cluster, "b") == set()


async def test_pods_of_a_node_that_is_gone_are_replaced() -> None:
    async with pretend_cluster(nodes=2) as cluster:
        await cluster.api.create(ready("b"))
        orphan = await cluster.api.create(pod("orphan", node="b"))
        await cluster.api.create(deployment(replicas=2))
        await cluster.settle(10)

        await cluster.api.delete(cluster.get("Node", "b", ""))
        await cluster.settle(60)

        assert orphan["metadata"]["name"] not in cluster.pod_names()
        assert cluster.ready_count() == 2


async def test_a_node_that_is_cordoned_says_so_as_a_taint() -> None:
    async with pretend_cluster(nodes=1) as cluster:
        await cluster.edit(cluster.get("Node", "east-node-0", ""), True, "spec", "unschedulable")
        await cluster.settle(5)
        assert taints(cluster, "east-node-0") == {("unschedulable", "NoSchedule")}

        await cluster.edit(cluster.get("Node", "east-node-0", ""), False, "spec", "unschedulable")
        await cluster.settle(5)

        assert taints(cluster, "east-node-0") == set()
