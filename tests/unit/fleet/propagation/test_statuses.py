import json

import pytest
from tests.unit.fleet.propagation.works.work_objects import binding, work

from clusterspace.apis.works import Report, identifier_of, manifests_of
from clusterspace.controllers.controller import Request
from clusterspace.fleet.propagation.statuses import (
    PATIENCE_SECONDS,
    Patience,
    is_fully_applied,
    item_of,
    new_problems,
    reporting_clusters,
    reports_in,
    with_reports,
)
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object
from clusterspace.testing.clocks import ManualClock

NOW, LATER = 0.0, 1000.0


def applied(cluster: str, status: Object | None = None) -> Report:
    return Report(cluster, is_applied=True, status=status, health="Healthy")


def refused(cluster: str) -> Report:
    return Report(cluster, is_applied=False, message="no room")


def condition_of(bound: Object) -> Object | None:
    return find_condition((bound.get("status") or {}).get("conditions"), "FullyApplied")


def test_reports_come_in_the_order_of_clusters_and_not_from_works_on_their_way_out() -> None:
    leaving = work("east", deletionTimestamp="2026-01-01T00:00:00Z")

    reports = reports_in([work("south"), leaving, work("north")])

    assert [each.cluster for each in reports] == ["north", "south"]


def test_an_item_has_what_is_known_and_no_more() -> None:
    assert item_of(refused("north")) == {
        "clusterName": "north",
        "health": "Unknown",
        "appliedMessage": "no room",
    }
    assert item_of(applied("north", status={"replicas": 1})) == {
        "clusterName": "north",
        "health": "Healthy",
        "applied": True,
        "status": {"replicas": 1},
    }


@pytest.mark.parametrize(
    ("clusters", "reports", "is_full"),
    [
        (["north", "south"], [applied("north"), applied("south")], True),
        (["north", "south"], [applied("north"), refused("south")], False),
        (["north", "south"], [applied("north")], False),
        (["north"], [applied("north"), applied("south")], False),
        (["north"], [applied("north"), refused("south")], False),
        ([], [], False),
        ([], [applied("north")], False),
    ],
)
def test_fully_applied_means_every_cluster_that_is_wanted_and_no_other(
    clusters: list[str], reports: list[Report], is_full: bool
) -> None:
    assert is_fully_applied(binding(*clusters), reports) is is_full


def test_a_binding_shows_its_reports_beside_what_the_scheduler_said() -> None:
    scheduled = {"type": "Scheduled", "status": "True", "reason": "Success", "message": ""}
    bound = {
        **binding("north"),
        "status": {"conditions": [scheduled], "schedulerObservedGeneration": 2},
    }

    shown = with_reports(bound, [applied("north")], NOW)

    assert shown["status"]["conditions"][0] == scheduled
    assert shown["status"]["schedulerObservedGeneration"] == 2
    assert shown["status"]["aggregatedStatus"] == [item_of(applied("north"))]
    told = condition_of(shown) or {}
    assert (told["status"], told["reason"]) == ("True", "FullyAppliedSuccess")


def test_nothing_new_is_the_same_binding() -> None:
    shown = with_reports(binding("north"), [applied("north")], NOW)

    assert with_reports(shown, [applied("north")], LATER) is shown


def test_a_binding_that_was_sent_nowhere_is_told_nothing() -> None:
    bound = binding()

    assert with_reports(bound, [], NOW) is bound


def test_the_last_work_takes_its_report_along() -> None:
    shown = with_reports(binding("north"), [applied("north")], NOW)

    emptied = with_reports(shown, [], LATER)

    assert "aggregatedStatus" not in emptied["status"]
    assert (condition_of(emptied) or {})["status"] == "False"


def test_the_time_of_the_condition_moves_only_with_its_status() -> None:
    shown = with_reports(binding("north"), [refused("north")], NOW)
    again = with_reports(shown, [Report("north", is_applied=False, message="still none")], LATER)
    healed = with_reports(again, [applied("north")], LATER)

    first, second, third = (condition_of(each) or {} for each in (shown, again, healed))
    assert first["lastTransitionTime"] == second["lastTransitionTime"]
    assert third["lastTransitionTime"] != first["lastTransitionTime"]


def test_what_a_work_reports_reaches_the_binding() -> None:
    held = work("north")
    told = {
        "identifier": identifier_of(manifests_of(held)[0], 0),
        "health": "Unhealthy",
        "status": {"replicas": 2},
    }
    condition = {"type": "Applied", "status": "True"}
    reported = {**held, "status": {"conditions": [condition], "manifestStatuses": [told]}}

    (item,) = with_reports(binding("north"), reports_in([reported]), NOW)["status"][
        "aggregatedStatus"
    ]

    assert item == {
        "clusterName": "north",
        "applied": True,
        "health": "Unhealthy",
        "status": {"replicas": 2},
    }


def test_a_cluster_has_told_something_once_its_work_has_a_condition() -> None:
    refusal = {"conditions": [{"type": "Applied", "status": "False"}]}
    works = [
        {**work("north"), "status": refusal},
        {**work("south"), "status": {}},
        {**work("east"), "status": {"conditions": None}},
        work("west"),
    ]

    assert reporting_clusters(json.dumps(each).encode() for each in works) == {"north"}


async def test_silent_clusters_are_waited_for_only_so_long_and_then_anew() -> None:
    clock = ManualClock()
    patience, request = Patience(clock), Request("web-deployment", "default")

    waits = [patience.left(request)]
    await clock.advance(0.25)
    waits.append(patience.left(request))
    await clock.advance(PATIENCE_SECONDS)
    waits.append(patience.left(request))
    patience.end(request)
    waits.append(patience.left(request))

    assert waits == [PATIENCE_SECONDS, PATIENCE_SECONDS - 0.25, -0.25, PATIENCE_SECONDS]


def test_trouble_is_told_once_and_again_when_it_is_another() -> None:
    reports = [applied("north"), refused("south")]
    bound = binding("north", "south")

    assert new_problems(bound, reports) == [refused("south")]
    shown = with_reports(bound, reports, NOW)
    assert new_problems(shown, reports) == []
    other = Report("south", is_applied=False, message="no such kind")
    assert new_problems(shown, [applied("north"), other]) == [other]
