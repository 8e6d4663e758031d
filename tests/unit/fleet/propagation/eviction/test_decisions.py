"""Who must leave a cluster, when a task is over, and when nobody is evicted."""

from typing import Any

import pytest

from clusterspace.apis.works import TargetCluster
from clusterspace.errors import Malformed
from clusterspace.fleet.propagation.eviction.decisions import (
    ClusterState,
    assess,
    failing_clusters,
    look_dead,
    new_application_task,
    new_task,
    seconds_tolerated,
    tolerated_failure,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.times import format_time

NOW = 1_800_000_000.0
WELL = ClusterState(is_ready=True)
DEAD = ClusterState(is_ready=False)
EXISTS = {"key": "gone", "operator": "Exists", "effect": "NoExecute"}


def taint(key: str = "gone", *, ago: float = 0) -> Object:
    return {"key": key, "effect": "NoExecute", "timeAdded": format_time(NOW - ago)}


@pytest.mark.parametrize(
    ("taints", "tolerations", "wanted"),
    [
        pytest.param([], [], None, id="no taints"),
        pytest.param([taint()], [], 0.0, id="not tolerated"),
        pytest.param([taint()], [EXISTS], None, id="tolerated for ever"),
        pytest.param([taint()], [{**EXISTS, "tolerationSeconds": 30}], 30.0, id="for a while"),
        pytest.param(
            [taint(ago=20)], [{**EXISTS, "tolerationSeconds": 30}], 10.0, id="for the rest"
        ),
        pytest.param([taint(ago=40)], [{**EXISTS, "tolerationSeconds": 30}], 0.0, id="no longer"),
        pytest.param([taint()], [{**EXISTS, "tolerationSeconds": -5}], 0.0, id="less than nothing"),
        pytest.param([taint(), taint("other")], [EXISTS], 0.0, id="one of two"),
        pytest.param(
            [{"key": "gone", "effect": "NoExecute"}],
            [{**EXISTS, "tolerationSeconds": 30}],
            30.0,
            id="nobody says since when",
        ),
    ],
)
def test_a_taint_is_tolerated_for_so_long(
    taints: list[Object], tolerations: list[Object], wanted: float | None
):
    assert seconds_tolerated(taints, tolerations, NOW) == wanted


@pytest.mark.parametrize(
    ("ready", "dead", "is_suspended"),
    [(3, 0, False), (2, 1, False), (1, 1, False), (1, 2, True), (0, 1, True), (0, 0, False)],
)
def test_when_more_than_half_look_dead_the_hub_suspects_itself(
    ready: int, dead: int, *, is_suspended: bool
):
    leaving = ClusterState(is_ready=False, is_leaving=True)

    assert bool(look_dead([WELL] * ready + [DEAD] * dead + [leaving] * 5)) is is_suspended


def report(cluster: str, *, health: str = "Healthy", ready: int = 2) -> Object:
    status = {"replicas": ready, "readyReplicas": ready}
    return {"clusterName": cluster, "health": health, "status": status}


def leaving_west(
    *reports: Object, ago: float = 10, clusters: tuple[str, ...] = ("east",), **task: Any
) -> Object:
    """Return a binding that leaves west for east, where it is to have two replicas."""
    made = new_task({}, TargetCluster("west", 2), "Gracefully", NOW - ago)
    return {
        "metadata": {"generation": 4},
        "spec": {
            "clusters": [{"name": name, "replicas": 2} for name in clusters],
            "gracefulEvictionTasks": [{**made, **task}],
        },
        "status": {"schedulerObservedGeneration": 4, "aggregatedStatus": list(reports)},
    }


def outcome(binding: Object, *, east: ClusterState = WELL, must_leave: bool = True) -> str:
    states = {"east": east, "west": DEAD}
    result = assess(binding, states, lambda _: must_leave, 600, NOW)
    assert len([*result.kept, *result.finished, *result.cancelled]) == 1
    return "kept" if result.kept else "finished" if result.finished else "cancelled"


def test_the_old_copy_goes_when_its_replacement_is_healthy():
    assert outcome(leaving_west(report("east"))) == "finished"


@pytest.mark.parametrize(
    "binding",
    [
        pytest.param(leaving_west(), id="nothing is reported"),
        pytest.param(leaving_west(report("east", health="Unknown")), id="not known to be healthy"),
        pytest.param(leaving_west(report("east", ready=1)), id="healthy with what it had before"),
        pytest.param(
            {**leaving_west(report("east")), "metadata": {"generation": 5}}, id="not scheduled yet"
        ),
        pytest.param(leaving_west(report("east"), suppressDeletion=True), id="a person decides"),
        pytest.param(leaving_west(report("east"), purgeMode="Never"), id="never"),
        pytest.param(leaving_west(clusters=(), ago=9999), id="nothing replaces it"),
        pytest.param(
            leaving_west(report("east"), clusters=("east", "west"), ago=9999), id="no other place"
        ),
    ],
)
def test_the_old_copy_stays(binding: Object):
    assert outcome(binding) == "kept"


def test_an_old_report_of_a_dead_cluster_is_no_replacement():
    assert outcome(leaving_west(report("east")), east=DEAD) == "kept"


def test_when_the_grace_period_has_run_out_the_old_copy_goes():
    assert outcome(leaving_west(ago=599)) == "kept"
    assert outcome(leaving_west(ago=600)) == "finished"
    assert outcome(leaving_west(ago=30, gracePeriodSeconds=20)) == "finished"


def test_the_grace_period_begins_when_a_replacement_was_chosen():
    binding = leaving_west(ago=9999)
    binding["status"]["lastScheduledTime"] = format_time(NOW - 10)

    assert outcome(binding) == "kept"


def test_a_person_who_says_that_it_may_go_is_not_kept_waiting():
    assert outcome(leaving_west(suppressDeletion=False)) == "finished"


def test_what_was_never_left_and_need_not_be_stays_for_good():
    binding = leaving_west(clusters=("west",))

    assert outcome(binding, must_leave=False) == "cancelled"


def test_somebody_elses_task_is_not_cancelled():
    binding = leaving_west(clusters=("west",), producer="somebody")

    assert outcome(binding, must_leave=False) == "kept"


def test_a_task_without_a_time_gets_one():
    binding = leaving_west(report("east"), creationTimestamp=None)

    kept = assess(binding, {"east": WELL}, lambda _: True, 600, NOW).kept

    assert kept[0]["creationTimestamp"] == format_time(NOW)


@pytest.mark.parametrize(
    ("failover", "wanted"),
    [
        (None, "Gracefully"),
        ({"cluster": {}}, "Gracefully"),
        ({"cluster": {"purgeMode": "Directly"}}, "Directly"),
    ],
)
def test_the_policy_says_how_it_leaves(failover: Object | None, wanted: str):
    binding = {"spec": {"failover": failover}}

    assert new_task(binding, TargetCluster("west", 3), "Gracefully", NOW) == {
        "fromCluster": "west",
        "purgeMode": wanted,
        "producer": "TaintManager",
        "reason": "TaintUntolerated",
        "replicas": 3,
        "creationTimestamp": format_time(NOW),
    }


def failing(health: str = "Unhealthy", **application: Any) -> Object:
    """Return a binding whose application is on west, and says this of itself."""
    return {
        "metadata": {"namespace": "default"},
        "spec": {
            "clusters": [{"name": "west", "replicas": 2}],
            "failover": {"application": application},
        },
        "status": {"aggregatedStatus": [report("west", health=health)]},
    }


def test_an_application_fails_where_a_cluster_that_is_heard_says_so():
    assert failing_clusters(failing(), {"west": WELL}) == {"west"}
    assert failing_clusters(failing(), {"west": DEAD}) == frozenset()
    assert failing_clusters(failing("Unknown"), {"west": WELL}) == frozenset()
    without = {**failing(), "spec": {"clusters": [{"name": "west"}]}}
    assert failing_clusters(without, {"west": WELL}) == frozenset()


def test_for_how_long_it_may_fail():
    assert tolerated_failure(failing()) == 300
    assert tolerated_failure(failing(decisionConditions={"tolerationSeconds": 0})) == 0
    assert tolerated_failure(failing(decisionConditions={"tolerationSeconds": 20})) == 20


@pytest.mark.parametrize(
    ("application", "wanted"),
    [
        ({}, {"purgeMode": "Gracefully"}),
        (
            {"purgeMode": "Graciously", "gracePeriodSeconds": 30},
            {"purgeMode": "Gracefully", "gracePeriodSeconds": 30},
        ),
        ({"purgeMode": "Immediately"}, {"purgeMode": "Directly"}),
        ({"purgeMode": "Never"}, {"purgeMode": "Never", "suppressDeletion": True}),
    ],
)
def test_the_task_of_an_application_says_what_its_policy_asks_for(
    application: Object, wanted: Object
):
    task = new_application_task(failing(**application), TargetCluster("west", 2), NOW)

    assert task == {
        "fromCluster": "west",
        "producer": "resource-binding-application-failover-controller",
        "reason": "ApplicationFailure",
        "replicas": 2,
        "creationTimestamp": format_time(NOW),
        **wanted,
    }


def preserving(*paths: str) -> Object:
    rules = [{"aliasLabelName": f"l{i}", "jsonPath": path} for i, path in enumerate(paths)]
    return failing(purgeMode="Directly", statePreservation={"rules": rules})


def test_a_task_takes_along_what_was_reported():
    binding = preserving("{.replicas}", "{ .readyReplicas }")

    task = new_application_task(binding, TargetCluster("west", 2), NOW)

    assert task["preservedLabelState"] == {"l0": "2", "l1": "2"}
    assert task["clustersBeforeFailover"] == ["west"]


@pytest.mark.parametrize(
    "path", ["{.nothing}", ".replicas", "{.replicas}{.replicas}", "{.[}", "{}"]
)
def test_state_that_cannot_be_read_is_not_left_behind(path: str):
    with pytest.raises(Malformed):
        new_application_task(preserving(path), TargetCluster("west", 2), NOW)
