from typing import Any

from tests.corpus import load_scenario

from clusterspace.builtins.definitions import (
    mark_definition_deleted,
    plan_status,
    released,
)
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import with_metadata

NOW = 1_700_000_000.0
MOMENT = "2023-11-14T22:13:20Z"


def _recorded(method: str) -> dict[str, Any]:
    steps = load_scenario("apiserver", "crd")["steps"]
    bodies = [
        step["response"]["body"]
        for step in steps
        if step.get("request", {}).get("method") == method
        and "customresourcedefinitions" in step["request"]["path"]
    ]
    return bodies[0]


def _timeless(status: dict[str, Any]) -> dict[str, Any]:
    conditions = [{**each, "lastTransitionTime": "<time>"} for each in status["conditions"]]
    return {**status, "conditions": conditions}


def _definition(plural: str, kind: str, **names: Any) -> dict[str, Any]:
    given = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "metadata": {"name": f"{plural}.probe.io"},
        "spec": {"group": "probe.io", "names": {**given, **names}},
        "status": {"storedVersions": ["v1"]},
    }


def _settled(definition: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    return {**definition, "status": plan_status(definition, others, NOW)}


def test_a_new_definition_gets_the_recorded_status():
    created, settled = _recorded("POST"), _recorded("GET")
    status = plan_status(created, [created], NOW)
    assert _timeless(status) == settled["status"]


def test_a_status_that_is_right_is_left_alone():
    settled = _settled(_definition("things", "Thing"))
    assert plan_status(settled, [settled], NOW + 60) is settled["status"]


def test_names_that_are_taken_are_not_given_away_twice():
    first = _settled(_definition("things", "Thing"))
    second = _settled(_definition("gadgets", "Thing", shortNames=["tt"]), first)
    accepted = find_condition(second["status"]["conditions"], "NamesAccepted")
    served = find_condition(second["status"]["conditions"], "Established")
    assert accepted is not None
    assert served is not None
    assert (accepted["reason"], accepted["message"]) == (
        "ListKindConflict",
        '"ThingList" is already in use',
    )
    assert (served["status"], served["reason"]) == ("False", "NotAccepted")
    assert second["status"]["acceptedNames"] == {
        "plural": "gadgets",
        "kind": "",
        "shortNames": ["tt"],
    }


def test_a_definition_is_served_once_the_names_are_free():
    first = _settled(_definition("things", "Thing"))
    second = _settled(_definition("gadgets", "Thing"), first)
    freed = _settled(second)
    assert freed["status"]["acceptedNames"]["kind"] == "Thing"
    assert all(each["status"] == "True" for each in freed["status"]["conditions"])


def test_the_same_names_in_another_group_do_not_matter():
    other = _settled(_definition("things", "Thing"))
    other = {**other, "spec": {**other["spec"], "group": "other.io"}}
    status = plan_status(_definition("gadgets", "Thing"), [other], NOW)
    assert status["acceptedNames"]["kind"] == "Thing"


def test_a_deleted_definition_looks_as_recorded():
    old, answered = _recorded("GET"), _recorded("DELETE")
    marked = with_metadata(
        old, deletionTimestamp=MOMENT, deletionGracePeriodSeconds=0, generation=2
    )
    deleted = mark_definition_deleted(marked, old)
    assert _timeless(deleted["status"]) == answered["status"]
    differing = ("deletionTimestamp", "resourceVersion")
    kept = {k: v for k, v in deleted["metadata"].items() if k not in differing}
    assert kept == {k: v for k, v in answered["metadata"].items() if k not in differing}


def test_deleting_twice_changes_nothing():
    old = with_metadata(_definition("things", "Thing"), deletionTimestamp=MOMENT)
    assert mark_definition_deleted(old, old) == old


def test_letting_go_takes_only_our_own_finalizer():
    held = with_metadata(
        _definition("things", "Thing"),
        finalizers=["a/b", "customresourcecleanup.apiextensions.k8s.io"],
    )
    assert released(held)["metadata"]["finalizers"] == ["a/b"]
