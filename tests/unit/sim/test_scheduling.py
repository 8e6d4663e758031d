"""Which node takes a pod."""

from tests.unit.sim.pretend_api import pretend_cluster
from tests.unit.sim.workload_objects import node, pod

from clusterspace.kube.objects import find_at
from clusterspace.sim.nodes import NodeShape
from clusterspace.sim.scheduling import Room, choose_node, request_of


def test_the_node_with_the_most_room_left_is_chosen() -> None:
    nodes = [node("a"), node("b")]

    assert choose_node(pod(), nodes, {"a": Room(pods=2), "b": Room(pods=1)}).node == "b"


def test_a_pod_that_fits_nowhere_is_told_why_by_count() -> None:
    nodes = [node("a", cpu="1"), node("b", pods=0), node("c", unschedulable=True)]

    choice = choose_node(pod(cpu="2"), nodes, {})

    assert choice.node == ""
    assert choice.reason == (
        "0/3 nodes are available: 1 Insufficient cpu, 1 Too many pods, "
        "1 node(s) were unschedulable."
    )


def test_what_others_use_is_not_free() -> None:
    full = {"a": Room(cpu=3500, pods=1)}

    assert choose_node(pod(cpu="1"), [node("a")], full).node == ""


def test_selectors_and_affinity_narrow_the_choice() -> None:
    nodes = [node("a"), node("b")]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
                ]
            }
        }
    }

    assert choose_node(pod(nodeSelector={"zone": "b"}), nodes, {}).node == "b"
    assert choose_node(pod(affinity=affinity), nodes, {}).node == "b"
    assert choose_node(pod(nodeSelector={"zone": "z"}), nodes, {}).node == ""


def test_a_taint_keeps_pods_away_that_do_not_tolerate_it() -> None:
    tainted = [node("a", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])]
    tolerations = [{"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}]

    assert choose_node(pod(), tainted, {}).node == ""
    assert choose_node(pod(tolerations=tolerations), tainted, {}).node == "a"
    assert choose_node(pod(tolerations=[{"operator": "Exists"}]), tainted, {}).node == "a"


def test_a_pod_asks_for_the_sum_of_its_containers() -> None:
    held = pod(cpu="250m")
    held["spec"]["containers"] *= 2

    assert request_of(held) == Room(cpu=500, memory=0, pods=1)


async def test_an_important_pod_makes_the_least_important_leave_and_gets_their_room() -> None:
    async with pretend_cluster(nodes=2, shape=NodeShape(cpu="2")) as cluster:
        for name, priority in (("a", 5), ("b", 1), ("c", 5), ("d", 5)):
            await cluster.api.create(pod(name, cpu="1", priority=priority))
        await cluster.settle(5)
        assert cluster.ready_count() == 4

        await cluster.api.create(pod("urgent", cpu="1", priority=9))
        await cluster.api.create(pod("b2", cpu="1", priority=1))
        await cluster.settle(20)

        assert cluster.pod_names() == {"a", "c", "d", "urgent", "b2"}
        assert find_at(cluster.get("Pod", "urgent"), "status", "phase") == "Running"
        assert find_at(cluster.get("Pod", "b2"), "spec", "nodeName") is None


async def test_a_pod_that_preempts_nobody_waits() -> None:
    async with pretend_cluster(nodes=1, shape=NodeShape(cpu="1")) as cluster:
        await cluster.api.create(pod("a", cpu="1", priority=1))
        await cluster.settle(5)

        await cluster.api.create(pod("b", cpu="1", priority=9, preemptionPolicy="Never"))
        await cluster.api.create(pod("c", cpu="1", priority=1))
        await cluster.settle(20)

        assert find_at(cluster.get("Pod", "a"), "status", "phase") == "Running"
        assert find_at(cluster.get("Pod", "b"), "spec", "nodeName") is None


def test_other_resources_are_room_too() -> None:
    special = {"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "2"}}}]}
    asking = {**pod("p"), "spec": special}
    plain, equipped = node("a"), node("b")
    equipped["status"]["allocatable"]["example.com/gpu"] = "2"

    assert choose_node(asking, [plain], {}).reason == (
        "0/1 nodes are available: 1 Insufficient example.com/gpu."
    )
    assert choose_node(asking, [plain, equipped], {}).node == "b"
