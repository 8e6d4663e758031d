"""DaemonSets: one pod on every node that takes it."""

from tests.unit.sim.pretend_api import pretend_cluster
from tests.unit.sim.workload_objects import node, template, workload

from clusterspace.kube.objects import find_at, name_of, with_value


async def test_every_node_gets_one_pod_and_a_node_that_joins_gets_one_too() -> None:
    async with pretend_cluster(nodes=2) as cluster:
        await cluster.api.create(workload("DaemonSet", name="ds"))
        await cluster.settle()

        assert {find_at(pod, "spec", "nodeName") for pod in cluster.pods()} == {
            "east-node-0",
            "east-node-1",
        }
        assert cluster.get("DaemonSet", "ds")["status"]["numberAvailable"] == 2


async def test_a_node_that_is_not_selected_gets_none() -> None:
    async with pretend_cluster(nodes=2) as cluster:
        chosen = template()
        chosen["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "east-node-1"}
        await cluster.api.create(workload("DaemonSet", name="ds", template=chosen))
        await cluster.settle()

        assert [find_at(pod, "spec", "nodeName") for pod in cluster.pods()] == ["east-node-1"]


async def test_an_update_has_one_pod_missing_at_a_time() -> None:
    async with pretend_cluster(nodes=4) as cluster:
        ds = await cluster.api.create(workload("DaemonSet", name="ds"))
        await cluster.settle()
        before = cluster.pod_names()

        await cluster.edit(ds, template("web:2"), "spec", "template")
        least = 4
        for _ in range(200):
            await cluster.settle(0.05)
            least = min(least, cluster.ready_count())

        assert least == 3
        assert not before & cluster.pod_names()
        assert cluster.get("DaemonSet", "ds")["status"]["updatedNumberScheduled"] == 4


async def test_a_cordoned_node_keeps_its_daemon() -> None:
    async with pretend_cluster(nodes=1) as cluster:
        await cluster.api.create(workload("DaemonSet", name="ds"))
        await cluster.settle()
        before = cluster.pod_names()

        held = cluster.get("Node", "east-node-0", namespace="")
        await cluster.api.update(with_value(held, True, "spec", "unschedulable"))
        await cluster.settle()

        assert cluster.pod_names() == before


async def test_a_tainted_node_loses_its_daemon() -> None:
    async with pretend_cluster(nodes=1) as cluster:
        await cluster.api.create(workload("DaemonSet", name="ds"))
        await cluster.settle()

        taint = node("x", taints=[{"key": "gpu", "effect": "NoExecute"}])["spec"]["taints"]
        held = cluster.get("Node", "east-node-0", namespace="")
        await cluster.api.update(with_value(held, taint, "spec", "taints"))
        await cluster.settle()

        assert cluster.pod_names() == set()


async def test_an_update_that_may_surge_never_has_a_node_without_its_daemon() -> None:
    limits = {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}, "type": "RollingUpdate"}
    async with pretend_cluster(nodes=4) as cluster:
        ds = await cluster.api.create(workload("DaemonSet", name="ds", updateStrategy=limits))
        await cluster.settle()
        before = cluster.pod_names()

        await cluster.edit(ds, template("web:2"), "spec", "template")
        least, most = 4, 4
        for _ in range(200):
            await cluster.settle(0.05)
            least, most = min(least, cluster.ready_count()), max(most, len(cluster.pods()))

        assert least >= 4
        assert most <= 6
        assert not before & cluster.pod_names()
        assert len(cluster.pods()) == 4
        assert cluster.get("DaemonSet", "ds")["status"]["updatedNumberScheduled"] == 4


async def test_a_daemon_that_failed_is_replaced() -> None:
    async with pretend_cluster(nodes=1) as cluster:
        await cluster.api.create(workload("DaemonSet", name="ds"))
        await cluster.settle()
        (before,) = cluster.pods()

        await cluster.api.update_status(with_value(before, "Failed", "status", "phase"))
        await cluster.settle()

        (after,) = cluster.pods()
        assert name_of(after) != name_of(before)


async def test_going_back_restarts_only_what_had_moved() -> None:
    async with pretend_cluster(nodes=3) as cluster:
        ds = await cluster.api.create(workload("DaemonSet", name="ds"))
        await cluster.settle()
        before = cluster.pod_names()
        broken = template("web:2", annotations={"sim.clusterspace.io/ready-after": "never"})
        await cluster.edit(ds, broken, "spec", "template")
        await cluster.settle()
        stayed = before & cluster.pod_names()
        assert len(stayed) == 2

        await cluster.edit(ds, template(), "spec", "template")
        await cluster.settle()

        assert stayed < cluster.pod_names()
        assert cluster.ready_count() == 3
