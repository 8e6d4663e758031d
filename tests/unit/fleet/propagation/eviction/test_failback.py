"""When a workload goes back to an earlier group of clusters, and how."""

from typing import Any

from tests.unit.fleet.propagation.scheduler.fleet_objects import AGGREGATED, binding, cluster, fleet

from clusterspace.apis.policies import FAILBACK, policy_causes
from clusterspace.controllers.controller import Request
from clusterspace.fleet.propagation.eviction.decisions import tasks_of
from clusterspace.fleet.propagation.eviction.failback import Failbacks, find_home, going_home
from clusterspace.kube.objects import Object, annotations_of, find_at, with_metadata
from clusterspace.testing.clocks import ManualClock

GROUPS = [
    {"affinityName": "home", "clusterNames": ["west"]},
    {"affinityName": "away", "clusterNames": ["east"]},
    {"affinityName": "last", "clusterNames": ["north"]},
]
PLACEMENT = {"clusterAffinities": GROUPS, "replicaScheduling": AGGREGATED}
CORDON = {"key": "cluster.karmada.io/unschedulable", "effect": "NoSchedule"}
WEB = Request("web-deployment", "default")


def away(after: str = "600") -> Object:
    made = binding(PLACEMENT, replicas=2, placed={"east": 2})
    made["status"] = {
        "schedulerObservingAffinityName": "away",
        "lastScheduledTime": "2026-01-01T00:00:00Z",
    }
    noted = {**annotations_of(made), FAILBACK: after} if after else annotations_of(made)
    return with_metadata(made, annotations=noted)


def all_of(**west: Any) -> Any:
    return fleet(cluster("west", **west), cluster("east"), cluster("north"))


def test_home_is_an_earlier_group_that_would_do() -> None:
    assert find_home(away(), all_of(), 0.0) == {"west"}
    assert find_home(away(), all_of(taints=[CORDON]), 0.0) == frozenset()
    assert find_home(away(), all_of(pods=1), 0.0) == frozenset()
    at_home = away()
    at_home["status"]["schedulerObservingAffinityName"] = "home"
    assert find_home(at_home, all_of(), 0.0) == frozenset()


def test_home_has_to_be_well_for_the_whole_time_without_a_pause() -> None:
    clock = ManualClock()
    failbacks = Failbacks(clock)

    def left() -> float | None:
        return failbacks.wait(WEB, away(), all_of())[1]

    assert left() == 600
    clock.freeze(400)
    assert left() == 200
    failbacks.note_change("west")
    assert left() == 600
    clock.freeze(600)
    assert left() == 0
    assert failbacks.wait(WEB, away(), all_of(taints=[CORDON]))[0] == frozenset()
    assert left() == 600


def test_nothing_goes_back_unless_its_policy_asks_for_it() -> None:
    assert Failbacks(ManualClock()).wait(WEB, away(""), all_of()) == (frozenset(), None)


def test_the_old_copy_is_kept_until_what_replaces_it_is_healthy() -> None:
    now = ManualClock().now()
    going = going_home(away(), frozenset({"west"}), now)

    (task,) = tasks_of(going)
    assert (task["fromCluster"], task["purgeMode"], task["replicas"]) == ("east", "Gracefully", 2)
    assert find_at(going, "spec", "rescheduleTriggeredAt") is not None
    # And whoever looks again before the scheduler has, does not ask again.
    assert find_home(going, all_of(), now) == frozenset()


def test_a_policy_that_asks_in_other_words_or_for_nothing_is_refused() -> None:
    selector = {"apiVersion": "v1", "kind": "ConfigMap"}

    def causes(after: str, placement: Object) -> list[str]:
        policy: Object = {
            "metadata": {"name": "web", "namespace": "default", "annotations": {FAILBACK: after}},
            "spec": {"resourceSelectors": [selector], "placement": placement},
        }
        return [each.message for each in policy_causes(policy, None)]

    assert causes("600", PLACEMENT) == []
    assert "whole seconds" in causes("soon", PLACEMENT)[0]
    assert "a group to go back to" in causes("600", {})[0]
