"""What is written on a binding, and that nothing is written when nothing changed."""

from tests.unit.fleet.propagation.scheduler.fleet_objects import binding, names

from clusterspace.apis import stamps
from clusterspace.controllers.commit import plan_commit
from clusterspace.fleet.propagation.scheduler.decisions import Decision, Reason
from clusterspace.fleet.propagation.scheduler.results import (
    result_text,
    with_outcome,
    with_targets,
)
from clusterspace.kube.objects import annotations_of

NOW = 1_700_000_000.0
LATER = NOW + 60
NO_FIT = Decision({}, Reason.NO_CLUSTER_FIT, "0/2 clusters are available: none.")


def test_success_is_noted_with_its_clusters_and_its_time():
    held = with_targets(binding(names("b", "a"), replicas=3), Decision({"b": 2, "a": 1}))
    told = with_outcome(held, Decision({"b": 2, "a": 1}), NOW)

    assert told["spec"]["clusters"] == [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 2}]
    assert annotations_of(told)[stamps.APPLIED_PLACEMENT] == (
        '{"clusterAffinity":{"clusterNames":["b","a"]}}'
    )
    assert told["status"] == {
        "conditions": [
            {
                "type": "Scheduled",
                "status": "True",
                "reason": "Success",
                "message": "Binding has been scheduled successfully.",
                "lastTransitionTime": "2023-11-14T22:13:20Z",
            }
        ],
        "schedulerObservedGeneration": 3,
        "lastScheduledTime": "2023-11-14T22:13:20Z",
    }


def test_objects_without_replicas_are_listed_by_name_alone():
    held = with_targets(binding({}), Decision({"b": 0, "a": 0}))

    assert held["spec"]["clusters"] == [{"name": "a"}, {"name": "b"}]


def test_a_failure_is_not_noted_as_seen():
    told = with_outcome(with_targets(binding({}), NO_FIT), NO_FIT, NOW)

    assert set(told["status"]) == {"conditions"}
    assert "clusters" not in told["spec"]
    assert annotations_of(told)[stamps.APPLIED_PLACEMENT] == "{}"


def test_what_waits_for_room_is_not_noted_as_applied():
    short = Decision({}, Reason.UNSCHEDULABLE, "no room")

    assert stamps.APPLIED_PLACEMENT not in annotations_of(with_targets(binding({}), short))


def test_deciding_the_same_again_writes_nothing():
    decision = Decision({"a": 1, "b": 1})
    settled = with_outcome(with_targets(binding({}, replicas=1), decision), decision, NOW)

    again = with_outcome(with_targets(settled, decision), decision, LATER)

    assert plan_commit(settled, again) is None


def test_being_asked_anew_is_noted_even_if_nothing_moves():
    decision = Decision({"a": 1})
    settled = with_outcome(with_targets(binding({}, replicas=1), decision), decision, NOW)

    again = with_outcome(settled, Decision({"a": 1}, is_repeat=True), LATER)

    assert again["status"]["lastScheduledTime"] == "2023-11-14T22:14:20Z"


def test_the_same_clusters_in_another_order_stay_as_they_are():
    held = binding({}, replicas=1, placed={"b": 1, "a": 1})

    assert with_targets(held, Decision({"a": 1, "b": 1}))["spec"] == held["spec"]


def test_events_name_the_clusters_with_their_replicas():
    assert result_text({"member2": 4, "member1": 2}) == "{member1:2, member2:4}"
    assert result_text({"member2": 0, "member1": 0}) == "{member1, member2}"
