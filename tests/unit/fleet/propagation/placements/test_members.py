"""Clusters as placements see them, and which changes of them anybody has to look at."""

from dataclasses import replace
from typing import Any

import pytest

from clusterspace.fleet.propagation.placements.controller import wakes
from clusterspace.fleet.propagation.placements.picking import Member, member_of
from clusterspace.kube.objects import Object

TAINT: Object = {"key": "gpu", "effect": "NoSchedule"}
OTHER: Object = {"key": "slow", "effect": "NoSchedule"}
WEST = Member("west", {"zone": "a"}, (TAINT,))


def cluster(status: str = "True", **metadata: Any) -> Object:
    ready = {"type": "Ready", "status": status, "lastTransitionTime": "1970-01-01T00:01:40Z"}
    taints = [TAINT, {"key": "cluster.karmada.io/not-ready", "effect": "NoSchedule"}]
    return {
        "metadata": {"name": "west", "labels": {"zone": "a"}, **metadata},
        "spec": {"taints": taints},
        "status": {"conditions": [ready]},
    }


def test_the_taints_of_sickness_are_left_to_the_rules_of_health() -> None:
    assert member_of(cluster()) == WEST
    assert member_of(cluster("False")) == replace(WEST, unready_since=100.0)


def test_a_cluster_that_is_being_deleted_is_leaving() -> None:
    assert member_of(cluster(deletionTimestamp="2026-01-01T00:00:00Z")).is_leaving


def test_a_cluster_without_health_has_not_reported() -> None:
    assert not member_of({"metadata": {"name": "west"}}).has_reported


@pytest.mark.parametrize(
    ("was", "is_now", "is_woken"),
    [
        (WEST, WEST, False),
        (WEST, replace(WEST, taints=(TAINT, OTHER)), False),
        (WEST, replace(WEST, taints=()), True),
        (WEST, replace(WEST, taints=(OTHER,)), True),
        (WEST, replace(WEST, labels={}), True),
        (WEST, replace(WEST, unready_since=5.0), False),
        (replace(WEST, unready_since=5.0), WEST, True),
        (replace(WEST, has_reported=False), WEST, True),
        (WEST, replace(WEST, is_leaving=True), True),
        (None, WEST, True),
        (WEST, None, True),
    ],
)
def test_only_what_may_change_a_placement_wakes_it(
    was: Member | None, is_now: Member | None, is_woken: bool
) -> None:
    assert wakes(was, is_now) is is_woken
