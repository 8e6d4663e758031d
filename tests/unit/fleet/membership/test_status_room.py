"""How much room a cluster has is exact arithmetic."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fleet.membership.fleet_objects import node, pod

from clusterspace.apis.clusters import default_resource_models
from clusterspace.fleet.membership.status import (
    grade_of,
    node_summary,
    pod_requests,
    resource_summary,
)
from clusterspace.kube.quantities import parse_quantity

MODELS = default_resource_models()


def test_nodes_are_counted_and_the_ready_ones_among_them() -> None:
    broken = {**node("b"), "status": {"conditions": [{"type": "Ready", "status": "False"}]}}

    assert node_summary([node("a"), broken]) == {"totalNum": 2, "readyNum": 1}
    assert node_summary([]) == {}


def test_pods_count_by_whether_they_have_a_node() -> None:
    pods = [pod("a", cpu="500m"), pod("a", cpu="250m"), pod(cpu="1"), pod(phase="Pending")]

    summary = resource_summary([node("a")], pods, MODELS)

    assert summary["allocatable"] == {"cpu": "8", "memory": "32Gi", "pods": "110"}
    assert summary["allocated"] == {"cpu": "750m", "pods": "2"}
    assert summary["allocating"] == {"cpu": "1", "pods": "2"}


def test_a_finished_pod_uses_nothing() -> None:
    pods = [pod("a", phase="Succeeded", cpu="1"), pod("a", phase="Failed", cpu="1")]

    assert "allocated" not in resource_summary([node("a")], pods, MODELS)


def test_an_empty_cluster_tells_only_the_sizes_it_counts_by() -> None:
    modelings = [{"grade": grade, "count": 0} for grade in range(9)]

    assert resource_summary([], [], MODELS) == {"allocatableModelings": modelings}


def test_a_full_node_is_not_counted_and_those_behind_it_are() -> None:
    nodes = [node("full", pods="1"), node("free")]

    summary = resource_summary(nodes, [pod("full")], MODELS)

    assert [each["count"] for each in summary["allocatableModelings"]] == [
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        0,
        0,
    ]


def test_the_scarcer_resource_decides_the_size() -> None:
    free = {"cpu": parse_quantity("64"), "memory": parse_quantity("8Gi")}

    assert grade_of(free, MODELS) == 1


def test_a_pod_asks_for_its_containers_or_its_largest_init_container() -> None:
    asked = pod_requests(
        {
            "spec": {
                "containers": [
                    {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
                    {"resources": {"requests": {"cpu": "1"}}},
                ],
                "initContainers": [{"resources": {"requests": {"cpu": "3"}}}],
                "overhead": {"cpu": "100m"},
            }
        }
    )

    assert {key: str(value) for key, value in asked.items()} == {"cpu": "3100m", "memory": "1Gi"}


def test_a_sidecar_runs_beside_the_containers() -> None:
    sidecar = {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    main = {"resources": {"requests": {"cpu": "2"}}}

    asked = pod_requests({"spec": {"containers": [main], "initContainers": [sidecar]}})

    assert str(asked["cpu"]) == "3"


@given(st.lists(st.integers(0, 10_000), max_size=20))
def test_what_pods_ask_for_adds_up_whatever_their_order(millis: list[int]) -> None:
    pods = [pod("a", cpu=f"{each}m") for each in millis]

    forwards = resource_summary([], pods, [])
    backwards = resource_summary([], pods[::-1], [])

    assert forwards == backwards
    total = parse_quantity(forwards.get("allocated", {}).get("cpu", "0"))
    assert total.milli == sum(millis)
