"""The rollout as a decision: who gets the newest state now, and who has to wait."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apis.fleet_placements import BOUND, SCHEDULED, UNSCHEDULED
from clusterspace.fleet.propagation.placements.rollout import (
    ClusterProgress,
    Pace,
    plan_rollout,
    read_pace,
    read_period,
)


def behind(cluster: str, **more: Any) -> ClusterProgress:
    return ClusterProgress(cluster, BOUND, **{"is_ready": True, **more})


def new(cluster: str) -> ClusterProgress:
    return ClusterProgress(cluster, SCHEDULED, was_bound=False)


def leaving(cluster: str, **more: Any) -> ClusterProgress:
    return ClusterProgress(cluster, UNSCHEDULED, **{"is_ready": True, **more})


def done(cluster: str, *, is_ready: bool = True) -> ClusterProgress:
    return ClusterProgress(cluster, BOUND, is_latest=True, is_ready=is_ready)


def test_new_clusters_all_begin_at_once() -> None:
    steps = plan_rollout([new("a"), new("b")], Pace(2, max_unavailable=1, max_surge=1))

    assert steps.forward == ("a", "b")


def test_no_more_clusters_are_updated_at_once_than_may_be_unavailable() -> None:
    steps = plan_rollout([behind("a"), behind("b"), behind("c")], Pace(3, 1, 1))

    assert steps.forward == ("a",)
    assert steps.blocked == ("b", "c")


def test_the_next_cluster_waits_until_the_one_before_is_available() -> None:
    waiting = [done("a", is_ready=False), behind("b"), behind("c")]
    assert plan_rollout(waiting, Pace(3, 1, 1)).forward == ()

    going_on = [done("a"), behind("b"), behind("c")]
    assert plan_rollout(going_on, Pace(3, 1, 1)).forward == ("b",)


def test_a_cluster_that_failed_already_is_updated_whatever_else_waits() -> None:
    broken = behind("a", is_ready=False, has_failed=True)

    assert plan_rollout([broken, behind("b")], Pace(2, 1, 0)).forward == ("a",)


def test_removal_comes_before_updates() -> None:
    steps = plan_rollout([leaving("x"), behind("a"), behind("b")], Pace(2, 0, 0))

    assert steps.removed == ("x",)
    assert steps.forward == ()


def test_a_cluster_with_nothing_on_it_or_that_is_gone_is_let_go_at_once() -> None:
    idle = ClusterProgress("a", UNSCHEDULED, was_bound=False)
    gone = leaving("b", is_gone=True)
    failed = leaving("c", is_ready=False, has_failed=True)

    assert plan_rollout([idle, gone, failed], Pace(3, 0, 0)).removed == ("a", "b", "c")


def test_a_placement_that_moves_begins_elsewhere_before_it_leaves() -> None:
    steps = plan_rollout([leaving("a"), new("b")], Pace(1, max_unavailable=0, max_surge=1))

    assert steps.forward == ("b",)
    assert steps.blocked == ("a",)


def test_without_surge_it_leaves_before_it_begins_elsewhere() -> None:
    steps = plan_rollout([leaving("a"), new("b")], Pace(1, max_unavailable=1, max_surge=0))

    assert steps.removed == ("a",)
    assert steps.blocked == ("b",)


@pytest.mark.parametrize(
    ("share", "wanted", "count"), [("25%", 4, 1), ("25%", 5, 2), (3, 5, 3), (None, 10, 3)]
)
def test_shares_are_rounded_up(share: object, wanted: int, count: int) -> None:
    rolling = {} if share is None else {"maxUnavailable": share}
    placement = {"spec": {"strategy": {"rollingUpdate": rolling}}}

    assert read_pace(placement, wanted).max_unavailable == count


def test_what_cannot_tell_counts_as_available_after_a_minute_unless_told() -> None:
    assert read_period({}) == 60.0
    told = {"spec": {"strategy": {"rollingUpdate": {"unavailablePeriodSeconds": 0}}}}
    assert read_period(told) == 0.0


@given(
    ready=st.lists(st.booleans(), min_size=1, max_size=8),
    unavailable=st.integers(0, 4),
    surge=st.integers(0, 4),
)
def test_an_update_never_takes_more_clusters_out_than_allowed(
    ready: list[bool], unavailable: int, surge: int
) -> None:
    standings = [behind(f"m{n}", is_ready=each) for n, each in enumerate(ready)]

    steps = plan_rollout(standings, Pace(len(ready), unavailable, surge))

    untouched = sum(e.is_ready for e in standings if e.cluster not in steps.forward)
    assert untouched >= sum(ready) - unavailable
    assert len(steps.forward) <= unavailable
