"""How fast replicas may move from old to new."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.sim.workloads.deployments import Limits, Replicas, plan_sizes, read_limits
from clusterspace.sim.workloads.plans import amount

REPLICAS = st.integers(0, 20).flatmap(
    lambda desired: st.builds(Replicas, st.just(desired), st.integers(0, desired))
)


@pytest.mark.parametrize(
    ("given_amount", "round_up", "expected"),
    [(2, True, 2), ("25%", True, 3), ("25%", False, 2), ("100%", True, 10), ("0%", True, 0)],
)
def test_shares_are_rounded_so_that_a_rollout_can_move(
    given_amount: int | str, round_up: bool, expected: int
) -> None:
    assert amount(given_amount, 10, round_up=round_up) == expected


def test_limits_that_would_never_let_it_move_leave_one_pod_out() -> None:
    strategy = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}

    assert read_limits(strategy, 10) == Limits(surge=0, unavailable=1)


@given(
    desired=st.integers(0, 20),
    surge=st.integers(0, 5),
    unavailable=st.integers(0, 5),
    new=REPLICAS,
    old=st.lists(REPLICAS, max_size=3),
)
def test_a_step_takes_nothing_that_is_needed_and_adds_nothing_beyond_the_surge(
    desired: int, surge: int, unavailable: int, new: Replicas, old: list[Replicas]
) -> None:
    step = plan_sizes(desired, Limits(surge, unavailable), new, old)

    total_before = new.desired + sum(each.desired for each in old)
    assert step.new <= desired or step.new == new.desired
    assert step.new + sum(each.desired for each in old) <= max(desired + surge, total_before)
    relied_on = min(new.available, step.new) + sum(each.available for each in old)
    kept = min(new.available, step.new) + sum(
        min(each.available, size) for each, size in zip(old, step.old, strict=True)
    )
    assert kept >= min(relied_on, desired - unavailable)


@given(desired=st.integers(1, 12), surge=st.integers(0, 4), unavailable=st.integers(0, 4))
def test_a_rollout_whose_pods_become_ready_always_arrives(
    desired: int, surge: int, unavailable: int
) -> None:
    limits = Limits(surge, unavailable if surge or unavailable else 1)
    new, old = Replicas(0, 0), Replicas(desired, desired)
    for _ in range(10 * desired):
        step = plan_sizes(desired, limits, new, [old])
        new, old = Replicas(step.new, step.new), Replicas(step.old[0], step.old[0])

    assert (new.desired, old.desired) == (desired, 0)
