"""Nodes and their heartbeats."""

from tests.unit.sim.pretend_api import pretend_cluster

from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import find_at
from clusterspace.sim.nodes import NodeShape, new_node, node_address, pod_network, without_taints


async def test_nodes_are_ready_with_the_capacity_they_were_given() -> None:
    async with pretend_cluster(nodes=2, shape=NodeShape(cpu="16", memory="64Gi")) as cluster:
        node = cluster.get("Node", "east-node-1", namespace="")

        assert is_true(find_at(node, "status", "conditions"), "Ready")
        assert find_at(node, "status", "capacity", "cpu") == "16"
        assert find_at(node, "status", "allocatable", "memory") == "64Gi"


async def test_leases_are_renewed_and_a_deleted_one_comes_back() -> None:
    async with pretend_cluster(nodes=1) as cluster:
        lease = cluster.get("Lease", "east-node-0", namespace="kube-node-lease")
        await cluster.settle(15)
        renewed = cluster.get("Lease", "east-node-0", namespace="kube-node-lease")
        assert renewed["spec"]["renewTime"] > lease["spec"]["renewTime"]

        await cluster.api.delete(renewed)
        await cluster.settle(30)

        assert cluster.get("Lease", "east-node-0", namespace="kube-node-lease")


async def test_a_deleted_node_registers_again() -> None:
    async with pretend_cluster(nodes=1) as cluster:
        await cluster.api.delete(cluster.get("Node", "east-node-0", namespace=""))

        await cluster.settle(15)

        assert cluster.get("Node", "east-node-0", namespace="")


def test_no_two_nodes_share_an_address_or_a_network() -> None:
    count = 5000
    assert len({node_address(index) for index in range(count)}) == count
    assert len({pod_network(index) for index in range(count)}) == count


def test_only_the_taint_of_a_node_that_joins_is_taken_off() -> None:
    own = {"key": "gpu", "effect": "NoSchedule"}
    node = new_node("east", 0, NodeShape())
    joined = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    node["spec"]["taints"] = [own, joined]

    assert without_taints(node)["spec"]["taints"] == [own]
