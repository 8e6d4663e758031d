"""Which node takes a pod."""

from tests.unit.sim.workload_objects import node, pod

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
