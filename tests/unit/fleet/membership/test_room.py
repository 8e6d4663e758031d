"""How much room a cluster has is exact arithmetic."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fleet.membership.fleet_objects import node, pod

from clusterspace.apis.clusters import default_resource_models
from clusterspace.apis.estimates import Claim, Estimate, read_estimate
from clusterspace.fleet.membership.room import (
    estimate_of,
    grade_of,
    node_summary,
    pod_requests,
    resource_summary,
    usage_of,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.quantities import parse_quantity

MODELS = default_resource_models()
CPU = Claim({"cpu": parse_quantity("1")})


def test_nodes_are_counted_and_the_ready_ones_among_them() -> None:
    broken = {**node("b"), "status": {"conditions": [{"type": "Ready", "status": "False"}]}}

    assert node_summary([node("a"), broken]) == {"totalNum": 2, "readyNum": 1}
    assert node_summary([]) == {}


def test_pods_count_by_whether_they_have_a_node() -> None:
    pods = [pod("a", cpu="500m"), pod("a", cpu="250m"), pod(cpu="1"), pod(phase="Pending")]

    summary = resource_summary([node("a")], usage_of(pods), MODELS)

    assert summary["allocatable"] == {"cpu": "8", "memory": "32Gi", "pods": "110"}
    assert summary["allocated"] == {"cpu": "750m", "pods": "2"}
    assert summary["allocating"] == {"cpu": "1", "pods": "2"}


def test_a_finished_pod_uses_nothing() -> None:
    pods = [pod("a", phase="Succeeded", cpu="1"), pod("a", phase="Failed", cpu="1")]

    assert "allocated" not in resource_summary([node("a")], usage_of(pods), MODELS)


def test_an_empty_cluster_tells_only_the_sizes_it_counts_by() -> None:
    modelings = [{"grade": grade, "count": 0} for grade in range(9)]

    assert resource_summary([], usage_of([]), MODELS) == {"allocatableModelings": modelings}


def test_a_full_node_is_not_counted_and_those_behind_it_are() -> None:
    nodes = [node("full", pods="1"), node("free")]

    summary = resource_summary(nodes, usage_of([pod("full")]), MODELS)

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

    forwards = resource_summary([], usage_of(pods), [])
    backwards = resource_summary([], usage_of(pods[::-1]), [])

    assert forwards == backwards
    total = parse_quantity(forwards.get("allocated", {}).get("cpu", "0"))
    assert total.milli == sum(millis)


def labelled(name: str, **spec: object) -> Object:
    return {
        **node(name, cpu="4"),
        "metadata": {"name": name, "labels": {"os": "linux"}},
        "spec": spec,
    }


def estimated(
    nodes: list[Object], pods: list[Object], quotas: list[Object] | None = None
) -> tuple[Object, Estimate]:
    written = estimate_of(nodes, usage_of(pods), quotas, {})
    found = read_estimate(written)
    assert found is not None
    return written, found


def test_what_is_free_is_told_node_by_node() -> None:
    written, found = estimated(
        [labelled("a"), labelled("b"), labelled("c")], [pod("a", cpu="3500m")]
    )

    free = {"memory": "32Gi", "pods": "110"}
    assert written == {
        "labels": {"os": "linux"},
        "nodes": [
            {
                "rooms": [
                    {"count": 1, "free": {"cpu": "500m", **free, "pods": "109"}},
                    {"count": 2, "free": {"cpu": "4", **free}},
                ]
            }
        ],
    }
    assert found.fits(CPU) == 8


def test_a_pod_without_a_node_takes_its_place_in_advance() -> None:
    nodes = [labelled("a"), labelled("b")]

    assert estimated(nodes, [pod(cpu="1") for _ in range(3)])[1].fits(CPU) == 5
    assert estimated(nodes, [pod(cpu="100")])[1].fits(CPU) == 8


def test_nodes_that_take_nobody_are_not_counted() -> None:
    broken = {**labelled("broken"), "status": {**node("b")["status"], "conditions": []}}
    broken["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    full = {**node("full", pods="1"), "spec": {}}
    nodes = [labelled("a"), labelled("cordoned", unschedulable=True), broken, full]

    written, found = estimated(nodes, [pod("full")])

    assert found.fits(CPU) == 4
    assert sorted(t["key"] for each in written["nodes"] for t in each.get("taints", ())) == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unschedulable",
    ]


def test_quotas_that_could_not_be_read_are_still_known() -> None:
    quota = {"metadata": {"namespace": "a", "name": "b"}, "spec": {"hard": {"pods": "3"}}}
    before = estimate_of([node("a")], usage_of([]), [quota], {})

    unread = estimate_of([node("a")], usage_of([]), None, before)
    gone = estimate_of([node("a")], usage_of([]), [], before)

    assert unread == before
    assert "quotas" not in gone


def test_a_cluster_that_shows_no_node_is_not_said_to_be_full() -> None:
    assert estimate_of([], usage_of([]), [], {}) == {}
