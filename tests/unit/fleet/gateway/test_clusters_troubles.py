"""Which clusters are left out because they could not be reached a moment ago."""

import pytest

from clusterspace.errors import (
    AnswerOverrun,
    ApiError,
    ClusterError,
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
    Forbidden,
)
from clusterspace.fleet.gateway.clusters import Lapses, ListKey, Troubles
from clusterspace.testing.clocks import ManualClock

DEAD = ClusterUnreachable("west", "refused", was_sent=False)


@pytest.mark.parametrize(
    "failure", [DEAD, ClusterTimeout("west", "late"), AnswerOverrun("west", "on and on")]
)
async def test_a_cluster_that_could_not_be_asked_is_in_trouble(failure: Exception):
    troubles = Troubles(ManualClock())

    troubles.note("west", failure, "jane")

    assert troubles.find("west", "jane") is failure
    assert troubles.find("east", "jane") is None


@pytest.mark.parametrize("answer", [None, Forbidden("no"), ClusterMisbehaved("west", "HTML")])
async def test_whatever_it_answers_a_cluster_that_answers_is_out_of_trouble(
    answer: Exception | None,
):
    troubles = Troubles(ManualClock())
    troubles.note("west", DEAD, "jane")

    troubles.note("west", answer, "jane")

    assert troubles.find("west", "jane") is None


# For how long informers wait for a cluster.

WRONG = ApiError("something broke")
LATE = ClusterTimeout("west", "late")
PODS = ListKey("west", "pods.", "jane")


def lapses(clock: ManualClock) -> Lapses:
    return Lapses(clock, grace_seconds=30.0, lost_seconds=300.0)


async def test_a_cluster_that_answers_wrongly_is_waited_for_until_the_grace_is_over():
    clock = ManualClock()
    held = lapses(clock)
    held.note(PODS, WRONG)

    assert not held.is_set_aside(PODS, WRONG)
    await clock.advance(29)
    held.note(PODS, WRONG)
    assert not held.is_set_aside(PODS, WRONG)
    await clock.advance(1)
    assert held.is_set_aside(PODS, WRONG)
    assert not held.is_set_aside(PODS._replace(resource="secrets."), WRONG)
    assert not held.is_set_aside(PODS._replace(cluster="east"), WRONG)


async def test_one_that_cannot_be_reached_is_waited_for_longer():
    clock = ManualClock()
    held = lapses(clock)
    for _ in range(10):
        held.note(PODS, LATE)
        await clock.advance(29)

    assert not held.is_set_aside(PODS, LATE)
    assert not held.is_set_aside(PODS, DEAD)
    await clock.advance(29)
    assert held.is_set_aside(PODS, LATE)


async def test_who_lists_well_again_is_waited_for_again():
    clock = ManualClock()
    held = lapses(clock)
    held.note(PODS, WRONG)
    await clock.advance(31)
    held.note(PODS, None)

    held.note(PODS, WRONG)

    assert not held.is_set_aside(PODS, WRONG)


async def test_two_blips_are_not_one_long_trouble():
    clock = ManualClock()
    held = lapses(clock)
    held.note(PODS, WRONG)
    await clock.advance(3600)

    held.note(PODS, WRONG)

    assert not held.is_set_aside(PODS, WRONG)


# What a cluster says of versions.


async def test_a_version_that_is_old_may_have_been_forgotten():
    clock = ManualClock()
    held = lapses(clock)
    held.note_version(PODS, "5")
    await clock.advance(61)

    assert held.believes_expiry(PODS, "5")
    assert held.believes_expiry(PODS, "never-given-here")


async def test_a_server_that_was_watched_well_is_believed_at_once():
    held = lapses(ManualClock())
    held.note_version(PODS, "5")
    held.note_watch(PODS)

    assert held.believes_expiry(PODS, "5")


async def test_who_forgets_what_it_has_just_given_is_not_believed_but_for_ten_minutes():
    clock = ManualClock()
    held = lapses(clock)
    held.note_version(PODS, "5")
    assert not held.believes_expiry(PODS, "5")
    await clock.advance(61)
    assert held.believes_expiry(PODS, "5")
    await clock.advance(1)
    held.note_version(PODS, "6")

    await clock.advance(500)
    assert not held.believes_expiry(PODS, "6")
    await clock.advance(101)
    assert held.believes_expiry(PODS, "6")


async def test_a_cluster_that_is_slow_again_and_again_is_looked_at_less_and_less():
    clock = ManualClock()
    troubles = Troubles(clock)
    pauses: list[float] = []
    for _ in range(4):
        troubles.note("west", AnswerOverrun("west", "on and on"), "jane")
        trouble = troubles._own.find("jane", "west")
        assert trouble is not None
        pauses.append(trouble.pause)
        troubles.note("west", None, "jane")

    assert pauses == [1.0, 2.0, 4.0, 8.0]


# Whose trouble it is.

BROKEN = ClusterUnreachable("west", "closed the connection", was_sent=True)


async def test_that_nobody_could_be_reached_concerns_everybody():
    troubles = Troubles(ManualClock())

    troubles.note_single("west", DEAD)

    assert troubles.find("west", "jane") is DEAD
    assert troubles.find("west", "carl") is DEAD


@pytest.mark.parametrize("failure", [LATE, BROKEN, AnswerOverrun("west", "on and on")])
async def test_an_answer_that_may_be_the_callers_doing_concerns_the_caller(failure: ClusterError):
    troubles = Troubles(ManualClock())

    troubles.note("west", failure, "mallory")
    troubles.note_single("west", failure)

    assert troubles.find("west", "mallory") is failure
    assert troubles.find("west", "jane") is None


async def test_one_users_success_is_no_word_about_anothers_trouble():
    troubles = Troubles(ManualClock())
    troubles.note("west", LATE, "jane")

    troubles.note("west", None, "carl")

    assert troubles.find("west", "jane") is LATE


async def test_however_many_have_trouble_what_is_remembered_is_bounded():
    troubles, clock = Troubles(ManualClock()), ManualClock()
    held = lapses(clock)
    troubles.note("west", LATE, "jane")
    held.note(PODS, WRONG)
    held.note_version(PODS, "5")

    for number in range(20_000):
        troubles.note(f"c{number}", LATE, "mallory" * 100)
        held.note(ListKey("west", f"r{number}" * 500, "mallory"), WRONG)
        held.note_version(ListKey("west", f"r{number}" * 500, "mallory"), "5")
    await clock.advance(30)

    assert len(troubles._own) <= 8192
    assert len(held._lapses) <= 16384
    assert len(held._promises) <= 16384
    assert troubles.find("west", "jane") is LATE, "nobody has others' entries forgotten"
    assert held.is_set_aside(PODS, WRONG)
    assert not held.believes_expiry(PODS, "5")


# What a cluster says of watches.


async def test_a_refused_watch_is_heard_once_by_all_who_had_begun():
    clock = ManualClock()
    held = lapses(clock)
    early = clock.monotonic()
    await clock.advance(1)

    assert held.note_refusal(PODS, "5", since=early)
    assert held.note_refusal(PODS, "5", since=early)
    await clock.advance(1)
    late = clock.monotonic()
    assert not held.note_refusal(PODS, "5", since=late)
    assert not held.note_refusal(PODS, "5", since=None)
    assert held.refuses_watches(PODS)
    await clock.advance(600)
    assert held.note_refusal(PODS, "5", since=late)
    held.note_open(PODS)
    assert not held.refuses_watches(PODS)


async def test_a_refused_watch_is_heard_by_who_listed_before_and_comes_behind():
    clock = ManualClock()
    held = lapses(clock)
    held.note_version(PODS, "5")
    early = clock.monotonic()
    await clock.advance(1)
    assert held.note_refusal(PODS, "5", since=early)
    await clock.advance(1)
    late = clock.monotonic()

    assert held.note_refusal(PODS, "5", since=late)
    held.note_version(PODS, "6")
    assert not held.note_refusal(PODS, "6", since=clock.monotonic())
    held.note_version(PODS, "5")
    assert not held.note_refusal(PODS, "5", since=clock.monotonic()), "given anew since"
