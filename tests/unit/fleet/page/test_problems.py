"""What is broken, decided from objects alone."""

from typing import Any

import pytest

from clusterspace.fleet.page.problems import (
    cluster_rows,
    cluster_state,
    find_problems,
    read_repair,
    summarize,
)
from clusterspace.kube.objects import Object


def cluster(name: str, ready: str = "True", message: str = "", **more: Any) -> Object:
    condition = {"type": "Ready", "status": ready, "message": message}
    status = {"conditions": [condition], **more}
    return {"metadata": {"name": name}, "spec": {}, "status": status}


def binding(name: str, places: dict[str, Object], **spec: Any) -> Object:
    resource = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": name}
    clusters = [{"name": each, "replicas": 2} for each in places]
    reported = [{"clusterName": each, "applied": True, **how} for each, how in places.items()]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"resource": resource, "clusters": clusters, **spec},
        "status": {"aggregatedStatus": reported},
    }


def repair(name: str, count: int, fields: str = "spec.replicas", where: str = "east") -> Object:
    return {
        "involvedObject": {"kind": "Deployment", "namespace": "shop", "name": name},
        "reason": "DriftRepaired",
        "message": f"Put back in the cluster {where}: {fields}",
        "count": count,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:10:00Z",
    }


def words_of(
    clusters: list[Object], bindings: list[Object], events: tuple[Object, ...] = ()
) -> list[tuple[str, str, str, str]]:
    repairs = [each for each in map(read_repair, events) if each is not None]
    found = find_problems(clusters, [summarize(each) for each in bindings], repairs)
    return [(each.word, each.what, each.cluster, each.why) for each in found]


def test_nothing_is_broken_where_all_is_as_it_should_be() -> None:
    web = binding("web", {"east": {"health": "Healthy", "status": {"readyReplicas": 2}}})

    assert words_of([cluster("east")], [web]) == []


def test_the_worst_comes_first() -> None:
    moving = [{"fromCluster": "east", "reason": "TaintUntolerated"}]
    web = binding("web", {"east": {"status": {"replicas": 2}}}, gracefulEvictionTasks=moving)
    pay = binding("pay", {"east": {"applied": False, "appliedMessage": "exists already"}})

    assert words_of([cluster("east"), cluster("north", "False", "refuses")], [web, pay]) == [
        ("Unwell", "Cluster north", "", "refuses"),
        ("Not applied", "Deployment shop/pay", "east", "exists already"),
        ("Not ready", "Deployment shop/web", "east", "0 of 2 ready"),
        ("Moving", "Deployment shop/web", "east", "is being moved away: TaintUntolerated"),
    ]


def test_what_a_silent_cluster_last_said_is_old_and_is_said_with_the_cluster() -> None:
    web = binding("web", {"south": {"health": "Unhealthy"}})

    assert words_of([cluster("south", "Unknown", "no heartbeat")], [web]) == [
        ("Silent", "Cluster south", "", "no heartbeat; what is known of 1 object there is that old")
    ]


def test_what_is_put_back_once_is_mended_and_what_is_put_back_over_and_over_is_broken() -> None:
    events = (repair("web", 2), repair("web", 1, "metadata.labels.x"), repair("cart", 2))

    assert words_of([], [], events) == [
        (
            "Put back",
            "Deployment shop/web",
            "east",
            "changed there and put back 3 times within the hour: spec.replicas",
        )
    ]


def test_all_replicas_that_are_unhealthy_are_not_counted_as_if_one_were_missing() -> None:
    web = binding("web", {"east": {"health": "Unhealthy", "status": {"readyReplicas": 2}}})

    assert words_of([], [web]) == [("Not ready", "Deployment shop/web", "east", "unhealthy")]


@pytest.mark.parametrize("said", ["2", [], {}, True, None, 1.5])
def test_what_a_member_says_in_place_of_a_number_is_no_number(said: Any) -> None:
    web = binding("web", {"east": {"health": "Healthy", "status": {"readyReplicas": said}}})

    assert words_of([], [web]) == []


def test_a_cluster_that_has_not_reported_yet_is_joining_and_nothing_is_broken() -> None:
    fresh: Object = {"metadata": {"name": "new", "creationTimestamp": "2026-01-01T00:00:00Z"}}

    assert cluster_state(fresh).name == "joining"
    assert words_of([fresh], []) == []


def test_rows_say_how_much_is_asked_for_and_nothing_where_that_is_not_known() -> None:
    summary = {
        "allocatable": {"cpu": "8", "memory": "much", "pods": "0"},
        "allocated": {"cpu": "1500m", "memory": "1Gi", "pods": "3"},
    }
    web = binding("web", {"east": {"applied": False}})

    (row,) = cluster_rows([cluster("east", resourceSummary=summary)], [summarize(web)])

    assert row.shares == (19, None, None)
    assert (row.placed, row.failing) == (1, 1)
