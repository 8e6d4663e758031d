"""Replicas that find no node on their cluster go where there is room."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.fleet.propagation.scheduler.fleet_objects import binding, cluster, fleet

from clusterspace.apis import stamps
from clusterspace.fleet.propagation.scheduler.decisions import Decision, plan_for, with_targets
from clusterspace.kube.objects import Object, annotations_of, with_value

DIVIDED = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}
DYNAMIC: Object = {
    "replicaScheduling": {
        **DIVIDED,
        "weightPreference": {"dynamicWeight": "AvailableReplicas"},
    }
}
STATIC: Object = {"replicaScheduling": DIVIDED}


def reporting(
    stuck: Mapping[str, int], placement: Object = DYNAMIC, *, said: int = 3, **spec: Any
) -> Object:
    """Return a binding of six replicas on a and b, of which some find no node."""
    placed = binding(placement, placed={"a": 3, "b": 3}, replicas=6, **spec)
    reports = [
        {"clusterName": name, "status": {"replicas": said, "unschedulableReplicas": count}}
        for name, count in stuck.items()
    ]
    versioned = with_value(placed, "7", "spec", "resource", "resourceVersion")
    return with_value(versioned, reports, "status", "aggregatedStatus")


def planned(given: Object, room: int = 100) -> Decision:
    return plan_for(given, fleet(*(cluster(name, pods=room) for name in ("a", "b", "c"))))


def test_replicas_that_find_no_node_go_to_clusters_with_room() -> None:
    decision = planned(reporting({"a": 2}))

    assert decision.targets["a"] == 1
    assert sum(decision.targets.values()) == 6
    assert decision.relocated == {"a"}


def test_no_replica_is_given_up_before_there_is_room_for_it() -> None:
    assert planned(reporting({"a": 2}), room=0).targets == {"a": 3, "b": 3}
    assert planned(reporting({"a": 2, "b": 3}), room=1).targets == {"a": 2, "b": 3, "c": 1}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(reporting({"a": 2}, STATIC), id="weights say where"),
        pytest.param(reporting({"a": 2}, said=5), id="a report of before the last move"),
        pytest.param(
            with_value(reporting({"a": 2}), "StatefulSet", "spec", "resource", "kind"),
            id="never in two places",
        ),
        pytest.param(reporting({"c": 2}), id="not placed there"),
        pytest.param(reporting({}), id="all have nodes"),
    ],
)
def test_others_stay_where_they_are(given: Object) -> None:
    assert planned(given).targets == {"a": 3, "b": 3}


def test_what_fits_nowhere_does_not_go_round_and_round() -> None:
    first = reporting({"a": 3})
    moved = with_targets(first, planned(first))
    assert annotations_of(moved)[stamps.FOUND_NO_NODE] == '{"a":"7"}'
    reports = [
        {
            "clusterName": each["name"],
            "status": {"replicas": each["replicas"], "unschedulableReplicas": each["replicas"]},
        }
        for each in moved["spec"]["clusters"]
    ]

    again = with_value(moved, reports, "status", "aggregatedStatus")
    stays = planned(again)
    assert "a" not in stays.targets
    changed = with_value(again, "8", "spec", "resource", "resourceVersion")
    assert planned(changed).targets["a"] > 0, "a changed template may fit again"
