"""Seats go where they are of use, within the bounds of each level."""

import pytest
from tests.unit.apiserver.http.fairness.levels import Time

from clusterspace.apiserver.http.fairness.controller import Claim, Demand, allocate


def test_without_bounds_that_matter_all_have_the_same_part_of_their_targets() -> None:
    seats, factor = allocate(30, [Claim(0, 100, 5), Claim(0, 100, 10)])

    assert seats == pytest.approx([10, 20])
    assert factor == pytest.approx(2)


def test_nobody_has_less_than_the_least_or_more_than_the_most() -> None:
    seats, _ = allocate(100, [Claim(30, 100, 30), Claim(10, 20, 20), Claim(5, 100, 50)])

    assert sum(seats) == pytest.approx(100)
    assert seats[0] >= 30
    assert seats[1] <= 20
    assert seats[2] > 40


def test_bounds_that_leave_no_choice_are_what_each_has() -> None:
    assert allocate(10, [Claim(6, 9, 6), Claim(4, 9, 4)])[0] == pytest.approx([6, 4])
    assert allocate(99, [Claim(6, 9, 6), Claim(4, 9, 4)])[0] == pytest.approx([9, 9])


def test_a_level_without_use_for_seats_keeps_those_it_does_not_lend() -> None:
    seats, _ = allocate(100, [Claim(20, 100, 20), Claim(10, 100, 300)])

    assert seats[0] == pytest.approx(20)
    assert seats[1] == pytest.approx(80)


def test_demand_is_measured_over_time_and_a_peak_is_remembered() -> None:
    time = Time()
    demand = Demand(time.monotonic)
    demand.set(10)
    time.pass_(5)
    demand.set(0)
    time.pass_(5)
    usage = demand.take()

    assert (usage.highest, usage.average, usage.deviation) == (10, 5, 5)
    smoothed = usage.smoothed(0)
    assert smoothed == pytest.approx(10)
    time.pass_(10)
    rest = demand.take()
    assert rest.highest == 0
    assert 9 < rest.smoothed(smoothed) < 10
