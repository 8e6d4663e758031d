"""Room is counted as the cluster reported it, and never made up."""

import pytest

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
