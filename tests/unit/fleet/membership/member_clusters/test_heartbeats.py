import pytest
from tests.unit.fleet.membership.member_clusters.invitations import internal, member_cluster

from clusterspace.fleet.membership.member_clusters.heartbeats import (
    Heartbeats,
    Pulse,
    heartbeat_condition,
    seconds_to_silence,
)

STAMP = "2026-01-01T00:00:00Z"


def test_who_was_never_heard_is_not_called_silent() -> None:
    assert heartbeat_condition(Pulse(), 60, 1) is None
    assert seconds_to_silence(Pulse(), member_cluster()) is None


@pytest.mark.parametrize("period", [1, 15, 60, 600])
def test_silence_is_noticed_after_one_missed_heartbeat_and_before_the_second(period: int) -> None:
    late = heartbeat_condition(Pulse(STAMP, period * 1.05), period, 1)
    silent = heartbeat_condition(Pulse(STAMP, period * 1.5), period, 1)
    assert late is not None
    assert late.status == "True"
    assert silent is not None
    assert (silent.status, silent.reason) == ("False", "HeartbeatLost")


def test_it_is_looked_again_just_when_silence_would_begin() -> None:
    assert seconds_to_silence(Pulse(STAMP, 10.0), member_cluster(period=60)) == 80.0
    assert seconds_to_silence(Pulse(STAMP, 90.0), member_cluster(period=60)) is None


def test_the_agents_own_clock_does_not_count() -> None:
    heartbeats = Heartbeats()
    ancient = internal("True", heartbeat="1999-01-01T00:00:00Z")
    assert heartbeats.see(ancient, now=5.0).silent_seconds == 0.0
    assert heartbeats.see(ancient, now=65.0).silent_seconds == 60.0
    assert heartbeats.see(internal("True", heartbeat=STAMP), now=70.0).silent_seconds == 0.0


def test_a_member_that_comes_again_begins_anew() -> None:
    heartbeats = Heartbeats()
    heartbeats.see(internal("True"), now=0.0)
    heartbeats.forget("west")
    assert heartbeats.see(internal("True"), now=900.0).silent_seconds == 0.0
