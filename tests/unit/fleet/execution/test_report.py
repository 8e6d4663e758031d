from typing import Any

from tests.unit.fleet.execution.member_objects import ordered

from clusterspace.apis.fleet_placements import PARENT
from clusterspace.fleet.execution.report import Finding, next_status
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object
from clusterspace.testing.builders import config_map

MANIFEST = ordered(config_map("a"))


def work(status: Object | None = None, **spec: Any) -> Object:
    body: Object = {"metadata": {"name": "w"}, "spec": spec}
    return {**body, "status": status} if status else body


def applied(status: Object) -> Object:
    return find_condition(status["conditions"], "Applied") or {}


def test_success_is_told_in_karmadas_words() -> None:
    status = next_status(work(), [Finding(MANIFEST, live=MANIFEST)], 0)

    assert [each["type"] for each in status["conditions"]] == ["Dispatching", "Applied"]
    assert applied(status)["reason"] == "AppliedSuccessful"
    assert status["manifestStatuses"][0]["health"] == "Healthy"


def test_what_was_said_once_is_not_said_again() -> None:
    first = next_status(work(), [Finding(MANIFEST, live=MANIFEST)], 0)

    assert next_status(work(first), [Finding(MANIFEST, live=MANIFEST)], 99) == first


def test_a_problem_is_told_with_how_many_manifests_are_in_force() -> None:
    findings = [Finding(MANIFEST, live=MANIFEST), Finding(MANIFEST, problem="it is in the way")]

    status = next_status(work(), findings, 0)

    assert applied(status)["status"] == "False"
    assert applied(status)["message"] == ("Failed to apply all manifests (1/2): it is in the way")
    assert len(status["manifestStatuses"]) == 1


def test_an_object_that_was_made_again_is_told_of() -> None:
    before = next_status(work(), [Finding(MANIFEST, live=MANIFEST)], 0)

    status = next_status(work(before), [Finding(MANIFEST, live=MANIFEST, is_recreated=True)], 5)

    assert applied(status)["reason"] == "ReCreateSuccessful"
    assert applied(status)["lastTransitionTime"] == applied(before)["lastTransitionTime"]


def test_a_suspended_work_says_nothing_new_about_being_applied() -> None:
    status = next_status(work(suspendDispatching=True), [Finding(MANIFEST)], 0)

    told = find_condition(status["conditions"], "Dispatching") or {}
    assert (told["status"], told["reason"]) == ("False", "SuspendDispatching")
    assert applied(status) == {}
    assert "manifestStatuses" not in status


def test_a_placements_work_says_which_of_its_states_it_tells_of() -> None:
    def placed(generation: int, status: Object | None = None) -> Object:
        metadata = {"name": "w", "labels": {PARENT: "crp"}, "generation": generation}
        return {**work(status), "metadata": metadata}

    first = next_status(placed(1), [Finding(MANIFEST, live=MANIFEST)], 0)
    second = next_status(placed(2, first), [Finding(MANIFEST, live=MANIFEST)], 5)
    third = next_status(placed(3, second), [Finding(MANIFEST, problem="no")], 9)

    told = [applied(each)["observedGeneration"] for each in (first, second, third)]
    assert told == [1, 2, 3]
    assert applied(first)["lastTransitionTime"] == applied(second)["lastTransitionTime"]
