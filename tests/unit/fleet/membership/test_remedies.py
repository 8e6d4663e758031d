"""Remedies: which clusters they are for, and when they act."""

from typing import Any

import pytest

from clusterspace.fleet.membership.remedies import actions_for
from clusterspace.kube.objects import Object


def cluster(name: str = "west", **conditions: str) -> Object:
    listed = [{"type": kind, "status": status} for kind, status in conditions.items()]
    return {"metadata": {"name": name}, "status": {"conditions": listed}}


def remedy(*actions: str, **spec: Any) -> Object:
    return {"metadata": {"name": "r"}, "spec": {"actions": list(actions), **spec}}


def when(kind: str, operator: str, status: str) -> Object:
    asked = {"conditionType": kind, "operator": operator, "conditionStatus": status}
    return {"clusterConditionMatch": asked}


def test_a_remedy_without_conditions_acts_at_once_everywhere() -> None:
    assert actions_for(cluster(), [remedy("TrafficControl")]) == ["TrafficControl"]


def test_a_remedy_acts_on_the_clusters_that_it_names() -> None:
    named = remedy("TrafficControl", clusterAffinity={"clusterNames": ["west"]})
    nobody = remedy("TrafficControl", clusterAffinity={})

    assert actions_for(cluster("west"), [named]) == ["TrafficControl"]
    assert actions_for(cluster("east"), [named]) == []
    assert actions_for(cluster("west"), [nobody]) == []


@pytest.mark.parametrize(
    ("match", "acts"),
    [
        (when("Dns", "Equal", "False"), True),
        (when("Dns", "Equal", "True"), False),
        (when("Dns", "NotEqual", "True"), True),
        (when("Dns", "NotEqual", "False"), False),
        (when("Absent", "NotEqual", "True"), False),
        ({}, False),
    ],
)
def test_a_condition_decides_and_one_that_is_not_known_does_not(match: Object, acts: bool) -> None:
    asked = remedy("TrafficControl", decisionMatches=[match])

    assert bool(actions_for(cluster(Dns="False"), [asked])) is acts


def test_one_of_several_conditions_is_enough_and_actions_are_told_once() -> None:
    either = [when("Dns", "Equal", "True"), when("Ready", "Equal", "False")]
    remedies = [remedy("b", "a", decisionMatches=either), remedy("a")]

    assert actions_for(cluster(Dns="False", Ready="False"), remedies) == ["a", "b"]
    assert actions_for(cluster(Dns="False", Ready="True"), remedies) == ["a"]


def test_a_remedy_that_is_being_deleted_asks_for_nothing() -> None:
    leaving = remedy("a")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert actions_for(cluster(), [leaving]) == []
