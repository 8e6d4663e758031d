"""Replicas are shared out exactly, in proportion, and without moving what may stay."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fleet.propagation.scheduler.fleet_objects import DYNAMIC, binding, cluster, fleet

from clusterspace.fleet.propagation.scheduler.decisions import (
    allot,
    fill,
    grow,
    plan_for,
    shrink,
)

NAMES = [f"member{number}" for number in range(1, 9)]

weights = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 60), min_size=1)
heavy = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 60), min_size=1)
replicas = st.integers(0, 90)


@st.composite
def tiers(draw: st.DrawFn) -> Sequence[Mapping[str, int]]:
    room = draw(heavy)
    cut = draw(st.integers(0, len(room)))
    items = list(room.items())
    return [dict(items[:cut]), dict(items[cut:])]


def one_by_one(count: int, held: Mapping[str, int], *, last_name_first: bool) -> dict[str, int]:
    """Webster's method as the definition has it: one seat at a time."""
    given_seats = dict.fromkeys(held, 0)
    order = sorted(held, reverse=last_name_first)
    for _ in range(count):
        best = min(
            (name for name in order if held[name]),
            key=lambda name: (-Fraction(held[name], 2 * given_seats[name] + 1), given_seats[name]),
        )
        given_seats[best] += 1
    return given_seats


@pytest.mark.parametrize(
    ("count", "held", "expected"),
    [
        (6, {"member1": 1, "member2": 2}, {"member1": 2, "member2": 4}),
        (8, {"a": 100, "b": 80, "c": 30, "d": 20}, {"a": 3, "b": 3, "c": 1, "d": 1}),
        (4, {"a": 1200, "b": 900, "c": 400}, {"a": 2, "b": 1, "c": 1}),
        (1, {"a": 1, "b": 1}, {"a": 1, "b": 0}),
        (3, {"a": 1, "b": 1}, {"a": 2, "b": 1}),
        (2, {"a": 0, "b": 5}, {"a": 0, "b": 2}),
        (5, {"a": 0}, {"a": 0}),
        (5, {}, {}),
    ],
)
def test_replicas_are_shared_out_by_weight(count, held, expected):
    assert allot(count, held) == expected


def test_of_equal_clusters_the_last_name_can_be_first():
    assert allot(3, {"a": 1, "b": 1}, last_name_first=True) == {"a": 1, "b": 2}


@given(replicas, heavy, st.booleans())
def test_shares_are_those_of_the_definition(count, held, last_name_first):
    assert allot(count, held, last_name_first=last_name_first) == one_by_one(
        count, held, last_name_first=last_name_first
    )


@given(replicas, heavy)
def test_nothing_is_lost_and_nothing_is_made_up(count, held):
    assert sum(allot(count, held).values()) == count


@given(replicas, heavy)
def test_one_more_replica_goes_to_one_cluster_and_takes_from_none(count, held):
    before, after = allot(count, held), allot(count + 1, held)

    changed = {name: after[name] - before[name] for name in held if after[name] != before[name]}

    assert list(changed.values()) == [1]


@given(heavy, st.data())
def test_no_cluster_gets_more_than_it_holds(held, data):
    count = data.draw(st.integers(0, sum(held.values())))

    assert all(got <= held[name] for name, got in allot(count, held).items())


def test_a_thousand_million_replicas_are_shared_out_at_once():
    given_seats = allot(2**31 - 1, {f"c{number}": number + 1 for number in range(500)})

    assert sum(given_seats.values()) == 2**31 - 1


@given(replicas, tiers(), st.booleans())
def test_the_next_tier_gets_only_what_the_first_cannot_hold(count, held, on_few):
    first, second = held

    got = fill(min(count, sum(first.values()) + sum(second.values())), held, on_few=on_few)

    overflow = sum(got.get(name, 0) for name in second)
    assert overflow == max(min(count, sum({**first, **second}.values())) - sum(first.values()), 0)


@given(heavy, heavy, replicas, st.booleans())
def test_scaling_up_takes_from_nobody(placed, free, more, on_few):
    wanted = sum(placed.values()) + more

    got = grow(placed, wanted, [free], on_few=on_few)

    if more > sum(free.values()):
        assert got is None
    else:
        assert got is not None
        assert sum(got.values()) == wanted
        assert all(got[name] >= count for name, count in placed.items())
        assert all(got[name] - placed.get(name, 0) <= free.get(name, 0) for name in got)


@given(heavy, st.booleans(), st.data())
def test_scaling_down_gives_to_nobody(placed, on_few, data):
    wanted = data.draw(st.integers(0, sum(placed.values())))

    got = shrink([placed], wanted, on_few=on_few)

    assert sum(got.values()) == wanted
    assert all(count <= placed[name] for name, count in got.items())


@given(heavy, st.booleans())
def test_what_is_right_is_left_alone(placed, on_few):
    wanted = sum(placed.values())

    assert grow(placed, wanted, [{}], on_few=on_few) == placed
    assert shrink([placed], wanted, on_few=on_few) == placed


def test_few_clusters_are_no_more_than_are_needed():
    room = {"large": 10, "medium": 6, "small": 3}

    assert fill(9, [room], on_few=True) == {"large": 9}
    assert fill(12, [room], on_few=True) == {"large": 7, "medium": 5}
    assert set(fill(17, [room], on_few=True)) == {"large", "medium", "small"}


def test_few_replicas_by_room_are_in_as_many_regions_as_the_policy_asks_for() -> None:
    spread = {"spreadByField": "region", "minGroups": 2, "maxGroups": 2}
    placement = {"spreadConstraints": [spread], "replicaScheduling": DYNAMIC}
    clusters = (
        cluster("a", pods=90, region="eu"),
        cluster("b", pods=80, region="eu"),
        cluster("c", pods=20, region="us"),
    )

    # By room alone both would be in eu.
    assert plan_for(binding(placement, replicas=2), fleet(*clusters)).targets == {"a": 1, "c": 1}
    # One is not enough for two regions, and what is placed does not move.
    assert plan_for(binding(placement, replicas=1), fleet(*clusters)).targets == {"a": 1}
    stays = binding(placement, replicas=3, placed={"a": 1, "b": 1})
    assert plan_for(stays, fleet(*clusters)).targets == {"a": 1, "b": 1, "c": 1}
    fewer = binding(placement, replicas=2, placed={"a": 2, "b": 1, "c": 1})
    assert plan_for(fewer, fleet(*clusters)).targets == {"a": 1, "c": 1}
