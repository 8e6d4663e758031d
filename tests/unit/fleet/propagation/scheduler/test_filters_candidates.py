"""Room is counted as the cluster reported it, and never made up."""

from collections.abc import Mapping

import pytest
from tests.unit.fleet.propagation.scheduler.fleet_objects import (
    AGGREGATED,
    DYNAMIC,
    binding,
    cluster,
    plan,
)

from clusterspace.fleet.propagation.scheduler.decisions import Reason
from clusterspace.fleet.propagation.scheduler.filters import most_replicas, room_of
from clusterspace.kube.objects import Object
from clusterspace.kube.quantities import parse_quantity

SMALL = {"cpu": parse_quantity("500m"), "memory": parse_quantity("1Gi")}


def reporting(models: list[Object] | None = None, **summary: object) -> Object:
    return {"spec": {"resourceModels": models or []}, "status": {"resourceSummary": summary}}


def test_without_needs_only_pods_count():
    room = room_of(
        reporting(allocatable={"pods": "110"}, allocated={"pods": "30"}, allocating={"pods": "5"})
    )

    assert most_replicas(room, {}) == 75


def test_the_scarcest_resource_decides():
    room = room_of(
        reporting(
            allocatable={"pods": "110", "cpu": "8", "memory": "16Gi"},
            allocated={"cpu": "2", "memory": "13Gi"},
        )
    )

    assert most_replicas(room, SMALL) == 3


@pytest.mark.parametrize(
    "cluster",
    [
        {},
        reporting(),
        reporting(allocatable={"cpu": "100", "memory": "100Gi"}),
        reporting(allocatable={"pods": "10", "cpu": "1"}, allocated={"pods": "11"}),
        reporting(allocatable={"pods": "10", "cpu": "nonsense"}),
        reporting(allocatable={"pods": "10", "memory": "100Gi"}),
    ],
)
def test_what_was_not_reported_is_not_there(cluster):
    assert most_replicas(room_of(cluster), SMALL) == 0


def test_crumbs_on_many_nodes_are_no_place():
    models = [
        {"grade": 0, "ranges": [{"name": "cpu", "min": "0"}, {"name": "memory", "min": "0"}]},
        {"grade": 1, "ranges": [{"name": "cpu", "min": "1"}, {"name": "memory", "min": "4Gi"}]},
    ]
    room = room_of(
        reporting(
            models,
            allocatable={"pods": "1000", "cpu": "100", "memory": "400Gi"},
            allocatableModelings=[{"grade": 0, "count": 300}, {"grade": 1, "count": 3}],
        )
    )

    assert most_replicas(room, SMALL) == 6
    assert most_replicas(room, {"cpu": parse_quantity("2")}) == 0
    assert most_replicas(room, {"example.com/gpu": parse_quantity("1")}) == 0
    assert most_replicas(room, {}) == 1000


def estimating(name: str, **estimate: object) -> Object:
    told = cluster(name)
    return {**told, "status": {**told["status"], "estimate": estimate}}


def test_replicas_are_divided_by_what_fits_on_nodes_and_into_quotas() -> None:
    rooms = [{"count": 10, "free": {"cpu": "900m", "pods": "110"}}]
    crumbs = estimating("crumbs", nodes=[{"rooms": rooms}])
    whole = [{"count": 2, "free": {"cpu": "4", "pods": "110"}}]
    quota = {"namespace": "default", "name": "q", "free": {"requests.cpu": "2"}}
    limited = estimating("limited", nodes=[{"rooms": whole}], quotas=[quota])
    free = estimating("free", nodes=[{"rooms": whole}])
    requirements = {"resourceRequest": {"cpu": "1"}}

    def targets(scheduling: Object) -> Mapping[str, int]:
        asked = binding(
            {"replicaScheduling": scheduling}, replicas=9, replicaRequirements=requirements
        )
        return plan(asked, crumbs, limited, free).targets

    assert targets(DYNAMIC) == {"free": 7, "limited": 2}
    assert targets(AGGREGATED) == {"free": 7, "limited": 2}
    assert targets({"replicaSchedulingType": "Duplicated"}).keys() == {"crumbs", "limited", "free"}


def test_a_taint_on_all_nodes_is_no_room_for_who_does_not_tolerate_it() -> None:
    taint = {"key": "gpu", "effect": "NoSchedule"}
    rooms = [{"count": 2, "free": {"cpu": "4", "pods": "110"}}]
    gpus = estimating("gpus", nodes=[{"taints": [taint], "rooms": rooms}])

    decision = plan(binding({"replicaScheduling": DYNAMIC}, replicas=1), gpus)

    assert decision.reason is Reason.UNSCHEDULABLE
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    tolerant = binding(
        {"replicaScheduling": DYNAMIC},
        replicas=1,
        replicaRequirements={"nodeClaim": {"tolerations": tolerations}},
    )
    assert plan(tolerant, gpus).targets == {"gpus": 1}


def test_an_estimate_that_makes_no_sense_counts_for_nothing_and_the_summary_counts() -> None:
    nonsense = estimating("west", nodes=[{"rooms": [{"count": 1, "free": {"cpu": "lots"}}]}])

    decision = plan(binding({"replicaScheduling": DYNAMIC}, replicas=100), nonsense)

    assert decision.targets == {"west": 100}


def test_what_a_silent_cluster_said_last_counts_and_it_is_said_how_old_it_is() -> None:
    rooms = [{"count": 2, "free": {"cpu": "4", "pods": "2"}}]
    since = "2026-01-01T00:00:00Z"
    silent = estimating("west", nodes=[{"rooms": rooms}], staleSince=since)

    few = plan(binding({"replicaScheduling": DYNAMIC}, replicas=4), silent)
    many = plan(binding({"replicaScheduling": DYNAMIC}, replicas=5), silent)

    assert few.targets == {"west": 4}
    assert many.message == (
        "The clusters that fit (west) have room for 4 of 5 replicas. "
        f"west has not said anything new since {since}."
    )


def parts(*sizes: tuple[str, int]) -> list[Object]:
    return [
        {
            "name": f"part-{number}",
            "replicas": replicas,
            "replicaRequirements": {"resourceRequest": {"cpu": cpu}},
        }
        for number, (cpu, replicas) in enumerate(sizes)
    ]


def test_components_go_where_all_of_them_fit_together() -> None:
    small, large, crumbs = (
        estimating(name, nodes=[{"rooms": [{"count": count, "free": {"cpu": cpu, "pods": "9"}}]}])
        for name, count, cpu in (("small", 2, "2"), ("large", 3, "2"), ("crumbs", 9, "1"))
    )
    one = {"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}
    placement = {**one, "replicaScheduling": AGGREGATED}
    job = binding(placement, components=parts(("2", 1), ("1", 3)))
    job["spec"]["resource"].update(apiVersion="apps/v1", kind="Deployment")

    assert plan(job, small, large, crumbs).targets == {"large": 0}
    refused = plan(job, small, crumbs)
    assert refused.reason is Reason.SCHEDULER_ERROR
    assert refused.message == (
        "no enough resource when selecting 1 clusters: "
        "The clusters that fit (crumbs, small) have no room for all its components together."
    )
    assert plan(job, cluster("without")).targets == {"without": 0}
    everywhere = binding({"replicaScheduling": AGGREGATED}, components=parts(("2", 1), ("1", 3)))
    everywhere["spec"]["resource"].update(apiVersion="apps/v1", kind="Deployment")
    assert plan(everywhere, small, large).targets == {"large": 0}
