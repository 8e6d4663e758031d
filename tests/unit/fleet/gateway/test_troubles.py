"""Which clusters are left out because they could not be reached a moment ago."""

import pytest

from clusterspace.errors import (
    AnswerOverrun,
    ApiError,
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
    Forbidden,
)
from clusterspace.fleet.gateway.troubles import Lapses, Troubles
from clusterspace.testing.clocks import ManualClock

DEAD = ClusterUnreachable("west", "refused", was_sent=False)


@pytest.mark.parametrize(
    "failure", [DEAD, ClusterTimeout("west", "late"), AnswerOverrun("west", "on and on")]
)
async def test_a_cluster_that_could_not_be_asked_is_in_trouble(failure: Exception):
    troubles = Troubles(ManualClock())

    troubles.note("west", failure)

    assert troubles.find("west") is failure
    assert troubles.find("east") is None


@pytest.mark.parametrize("answer", [None, Forbidden("no"), ClusterMisbehaved("west", "HTML")])
async def test_whatever_it_answers_a_cluster_that_answers_is_out_of_trouble(
    answer: Exception | None,
):
    troubles = Troubles(ManualClock())
    troubles.note("west", DEAD)

    troubles.note("west", answer)

    assert troubles.find("west") is None


# For how long informers wait for a cluster.

WRONG = ApiError("something broke")
LATE = ClusterTimeout("west", "late")
PODS = "pods."


def lapses(clock: ManualClock) -> Lapses:
    return Lapses(clock, grace_seconds=30.0, lost_seconds=300.0)


async def test_a_cluster_that_answers_wrongly_is_waited_for_until_the_grace_is_over():
    clock = ManualClock()
    held = lapses(clock)
    held.note("west", PODS, WRONG)

    assert not held.is_set_aside("west", PODS, WRONG)
    await clock.advance(29)
    held.note("west", PODS, WRONG)
    assert not held.is_set_aside("west", PODS, WRONG)
    await clock.advance(1)
    assert held.is_set_aside("west", PODS, WRONG)
    assert not held.is_set_aside("west", "secrets.", WRONG)
    assert not held.is_set_aside("east", PODS, WRONG)


async def test_one_that_cannot_be_reached_is_waited_for_longer():
    clock = ManualClock()
    held = lapses(clock)
    for _ in range(10):
        held.note("west", PODS, LATE)
        await clock.advance(29)

    assert not held.is_set_aside("west", PODS, LATE)
    assert not held.is_set_aside("west", PODS, DEAD)
    await clock.advance(29)
    assert held.is_set_aside("west", PODS, LATE)


async def test_who_lists_well_again_is_waited_for_again():
    clock = ManualClock()
    held = lapses(clock)
    held.note("west", PODS, WRONG)
    await clock.advance(31)
    held.note("west", PODS, None)

    held.note("west", PODS, WRONG)

    assert not held.is_set_aside("west", PODS, WRONG)


async def test_two_blips_are_not_one_long_trouble():
    clock = ManualClock()
    held = lapses(clock)
    held.note("west", PODS, WRONG)
    await clock.advance(3600)

    held.note("west", PODS, WRONG)

    assert not held.is_set_aside("west", PODS, WRONG)


# What a cluster says of versions.


async def test_a_version_that_is_old_may_have_been_forgotten():
    clock = ManualClock()
    held = lapses(clock)
    held.note_version("west", PODS, "5")
    await clock.advance(61)

    assert held.believes_expiry("west", PODS, "5")
    assert held.believes_expiry("west", PODS, "never-given-here")


async def test_a_server_that_was_watched_well_is_believed_at_once():
    held = lapses(ManualClock())
    held.note_version("west", PODS, "5")
    held.note_watch("west", PODS)

    assert held.believes_expiry("west", PODS, "5")


async def test_who_forgets_what_it_has_just_given_is_not_believed_but_for_ten_minutes():
    clock = ManualClock()
    held = lapses(clock)
    held.note_version("west", PODS, "5")
    assert not held.believes_expiry("west", PODS, "5")
    await clock.advance(61)
    assert held.believes_expiry("west", PODS, "5")
    await clock.advance(1)
    held.note_version("west", PODS, "6")

    await clock.advance(500)
    assert not held.believes_expiry("west", PODS, "6")
    await clock.advance(101)
    assert held.believes_expiry("west", PODS, "6")


async def test_a_cluster_that_is_slow_again_and_again_is_looked_at_less_and_less():
    clock = ManualClock()
    troubles = Troubles(clock)
    pauses: list[float] = []
    for _ in range(4):
        troubles.note("west", AnswerOverrun("west", "on and on"))
        pauses.append(troubles._held["west"].pause)
        troubles.forget("west")

    assert pauses == [1.0, 2.0, 4.0, 8.0]
