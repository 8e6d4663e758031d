"""How many replicas a load asks for, and how fast they may change."""

from typing import Any

import pytest

from clusterspace.kube.autoscaling import (
    PodLoad,
    ScaleHistory,
    replicas_for,
    replicas_for_value,
    tolerances_of,
)

BUSY = PodLoad(goal=50, used=100, most=100)
IDLE = PodLoad(goal=50, used=10, most=100)
CONTENT = PodLoad(goal=50, used=52, most=100)
UNKNOWN = PodLoad(goal=50, most=100)
STARTING = PodLoad(goal=50, used=100, is_ready=False, most=100)


@pytest.mark.parametrize(
    ("loads", "current", "asked"),
    [
        ([BUSY, BUSY], 2, 4),
        ([CONTENT, CONTENT], 2, 2),
        ([IDLE] * 5, 5, 1),
        # Nothing is known of three of six: they count as busy when fewer are asked for,
        ([IDLE] * 3 + [UNKNOWN] * 3, 6, 6),
        # and as idle when more are.
        ([BUSY] * 2 + [UNKNOWN], 3, 4),
        ([BUSY, UNKNOWN, UNKNOWN], 3, 3),
        # A pod that starts is busy with that.
        ([BUSY, STARTING], 2, 2),
        ([IDLE, STARTING], 2, 1),
        ([], 2, None),
        ([UNKNOWN], 2, None),
    ],
)
def test_replicas_follow_the_load_and_what_is_not_known_decides_nothing(
    loads: list[PodLoad], current: int, asked: int | None
) -> None:
    assert replicas_for(loads, current) == asked


def test_where_every_cluster_has_a_full_copy_replicas_are_those_of_one() -> None:
    assert replicas_for([BUSY] * 6, 2, share=2 / 6) == 4


def test_a_tolerance_of_ones_own_is_kept_in_its_direction() -> None:
    tolerances = tolerances_of({"behavior": {"scaleUp": {"tolerance": "500m"}}})
    busier = PodLoad(goal=50, used=70)

    assert tolerances == {"scaleUp": 0.5}
    assert replicas_for([busier] * 2, 2, tolerances=tolerances) == 2
    assert replicas_for([busier] * 2, 2) == 3


def test_one_value_for_all_pods_is_compared_with_its_goal() -> None:
    assert replicas_for_value(900, 300, ready=2, current=2) == 6
    assert replicas_for_value(310, 300, ready=2, current=2) == 2


def spec(**behavior: Any) -> dict[str, Any]:
    return {"minReplicas": 1, "maxReplicas": 20, "behavior": behavior}


def test_a_new_history_takes_the_present_size_for_what_was_asked_for() -> None:
    history = ScaleHistory()
    history.remember(8, now=1000)

    following = history.next_size(spec(), current=8, desired=2, now=1015)

    assert following.replicas == 8
    assert following.able_to_scale.reason == "ScaleDownStabilized"
    assert history.next_size(spec(), current=8, desired=2, now=1400).replicas == 2


def test_policies_bound_how_much_is_added_in_their_period() -> None:
    history = ScaleHistory()
    slowly = spec(scaleUp={"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]})

    first = history.next_size(slowly, current=2, desired=9, now=1000)
    history.stepped(2, now=1000)
    second = history.next_size(slowly, current=4, desired=9, now=1015)
    third = history.next_size(slowly, current=4, desired=9, now=1061)

    assert [first.replicas, second.replicas, third.replicas] == [4, 4, 6]
    assert first.limited.reason == "ScaleUpLimit"


def test_nothing_is_asked_for_beyond_the_bounds() -> None:
    history = ScaleHistory()

    most = history.next_size({"maxReplicas": 3}, current=2, desired=9, now=1000)
    least = ScaleHistory().next_size(
        {**spec(scaleDown={"stabilizationWindowSeconds": 0}), "minReplicas": 2}, 4, 1, 1000
    )

    assert (most.replicas, most.limited.reason) == (3, "TooManyReplicas")
    assert (least.replicas, least.limited.reason) == (2, "TooFewReplicas")


def test_scaling_to_nothing_takes_a_minimum_of_none() -> None:
    to_zero = {**spec(scaleDown={"stabilizationWindowSeconds": 0}), "minReplicas": 0}

    assert ScaleHistory().next_size(to_zero, 1, 0, 1000).replicas == 0
