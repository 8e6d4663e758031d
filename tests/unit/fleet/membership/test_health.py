"""Whether a member is well is believed when it lasts."""

import pytest

from clusterspace.client.requests import Answer
from clusterspace.fleet.membership.health import (
    Health,
    History,
    State,
    Thresholds,
    judge,
    ready_condition,
    silent_condition,
)
from clusterspace.fleet.membership.status import FREQUENCY_SECONDS

SLOW = Thresholds(success_seconds=30, failure_seconds=20)


def test_what_is_seen_first_counts_at_once() -> None:
    assert History().see(False, 0, SLOW).is_ready is False
    assert History().see(True, 0, SLOW).is_ready is True


def test_a_failure_counts_when_it_has_lasted() -> None:
    history = History(is_ready=True)
    for now in (100, 110, 119.9):
        history = history.see(False, now, SLOW)
        assert history.is_ready is True

    assert history.see(False, 120, SLOW) == History(is_ready=False)


@pytest.mark.parametrize("before_next_look", [0.1, 2.5, 5.0, 10.0])
def test_a_member_that_stops_is_not_ready_thirty_to_forty_seconds_later(
    before_next_look: float,
) -> None:
    stopped_at = 100 - before_next_look
    history, looks = History(is_ready=True), 0
    while history.is_ready:
        history = history.see(False, 100 + looks * FREQUENCY_SECONDS, Thresholds())
        looks += 1

    noticed_at = 100 + (looks - 1) * FREQUENCY_SECONDS
    assert 30 <= noticed_at - stopped_at <= 40


def test_one_good_answer_in_between_starts_the_count_again() -> None:
    history = History(is_ready=True).see(False, 0, SLOW).see(True, 19, SLOW)

    assert history.see(False, 21, SLOW).is_ready is True


def test_a_recovery_has_its_own_threshold() -> None:
    history = History(is_ready=False).see(True, 0, SLOW)

    assert history.see(True, 29, SLOW).is_ready is False
    assert history.see(True, 30, SLOW).is_ready is True


@pytest.mark.parametrize(
    ("state", "status", "reason"),
    [
        (State.READY, "True", "ClusterReady"),
        (State.UNHEALTHY, "False", "ClusterNotReady"),
        (State.UNREACHABLE, "False", "ClusterNotReachable"),
        (State.UNPROBED, "False", "StatusCollectionFailed"),
    ],
)
def test_each_state_has_the_reason_that_karmada_gives(
    state: State, status: str, reason: str
) -> None:
    condition = ready_condition(Health(state, "because"))

    assert (condition.status, condition.reason) == (status, reason)


def test_the_message_says_why_a_cluster_is_not_ready() -> None:
    condition = ready_condition(Health(State.UNREACHABLE, "refused the connection"))

    assert condition.message == "cluster is not reachable: refused the connection"


def test_silence_is_unknown_and_says_whether_there_ever_was_a_word() -> None:
    assert silent_condition(was_heard=True).reason == "ClusterStatusUnknown"
    assert silent_condition(was_heard=False).reason == "ClusterStatusNeverUpdated"


def test_an_answer_tells_whether_the_member_is_well_and_lets_us_in() -> None:
    states = {code: judge(Answer(code, {}, b"")).state for code in (200, 401, 403, 500)}

    assert states == {
        200: State.READY,
        401: State.UNREACHABLE,
        403: State.UNREACHABLE,
        500: State.UNHEALTHY,
    }
