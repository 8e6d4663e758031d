"""What agents report, and their silence, in the words of a MemberCluster."""

import pytest
from tests.unit.fleet.membership.member_clusters.invitations import (
    condition,
    internal,
    member_cluster,
)

from clusterspace.fleet.membership.member_clusters.status import (
    Heartbeats,
    Pulse,
    has_left,
    heartbeat_condition,
    joined_condition,
    next_status,
    relayed_status,
    seconds_to_silence,
)
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object

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


HEARD = Pulse("2026-01-01T00:00:00Z", 1.0)


def reasons(status: Object) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def test_the_first_pass_says_only_that_it_is_ready_to_join() -> None:
    status = next_status(member_cluster(), None, Pulse(), 0.0)
    assert reasons(status) == {"ReadyToJoin": ("True", "MemberClusterReadyToJoin")}


@pytest.mark.parametrize(
    ("said", "status", "reason"),
    [
        ("", "Unknown", "MemberClusterJoinStateUnknown"),
        ("Unknown", "Unknown", "MemberClusterJoinStateUnknown"),
        ("True", "True", "MemberClusterJoined"),
        ("False", "False", "MemberClusterLeft"),
    ],
)
def test_joined_is_what_the_agent_says(said: str, status: str, reason: str) -> None:
    found = joined_condition(internal(said), 3)
    assert (found.status, found.reason, found.observed_generation) == (status, reason, 3)


def test_why_an_agent_cannot_leave_is_passed_on() -> None:
    stuck = internal("Unknown", message="not withdrawn yet: web")
    assert "not withdrawn yet: web" in joined_condition(stuck, 3).message


def test_what_the_hub_refuses_has_not_joined_whatever_the_agent_says() -> None:
    status = next_status(member_cluster(), internal("True"), HEARD, 0.0, "west has this ID")
    held = find_condition(status["conditions"], "Joined") or {}
    assert (held["status"], held["message"]) == ("Unknown", "west has this ID")


def test_an_agent_nobody_expects_is_passed_on_and_not_believed() -> None:
    other = {"type": "ServiceExportImportAgent", "conditions": [condition("Joined", "True")]}
    told = internal(status={"agentStatus": [other]})
    status = next_status(member_cluster(), told, Pulse(), 0.0)
    assert reasons(status)["Joined"][0] == "Unknown"
    assert status["agentStatus"][0]["type"] == "ServiceExportImportAgent"


def test_usage_properties_and_conditions_come_along_with_our_generation() -> None:
    told = internal(
        "True",
        status={
            "agentStatus": [{"type": "MemberAgent", "conditions": [condition("Joined", "True")]}],
            "resourceUsage": {"capacity": {"cpu": "4"}},
            "properties": {"a": {"value": "1"}},
            "conditions": [condition("ClusterPropertyCollectionSucceeded", "True", 9)],
        },
    )
    status = relayed_status(member_cluster(generation=7), told)
    assert status["resourceUsage"] == {"capacity": {"cpu": "4"}}
    assert status["properties"] == {"a": {"value": "1"}}
    assert status["conditions"][0]["observedGeneration"] == 7
    assert status["agentStatus"][0]["conditions"][0]["observedGeneration"] == 7


def test_an_agent_cannot_speak_for_the_hub() -> None:
    forged = internal(status={"conditions": [condition("ReadyToJoin", "False")]})
    assert relayed_status(member_cluster(), forged)["conditions"] == []


def test_what_an_agent_no_longer_reports_is_gone_but_its_conditions_stay() -> None:
    before = {
        "resourceUsage": {"capacity": {"cpu": "4"}},
        "conditions": [condition("ClusterPropertyProviderStarted", "True")],
    }
    status = relayed_status(member_cluster(status=before), internal("True"))
    assert "resourceUsage" not in status
    assert [each["type"] for each in status["conditions"]] == ["ClusterPropertyProviderStarted"]


def test_nothing_changes_when_nothing_was_told() -> None:
    held = member_cluster()
    told = internal("True")
    once = next_status(held, told, HEARD, 100.0)
    twice = next_status({**held, "status": once}, told, HEARD, 200.0)
    assert twice == once


@pytest.mark.parametrize(
    ("told", "is_out"),
    [
        (internal("False", generation=2), True),
        (internal("True", generation=2), False),
        (internal(""), False),
    ],
    ids=["left", "in", "silent"],
)
def test_only_an_agent_that_says_so_has_left(told: Object, is_out: bool) -> None:
    assert has_left(told) is is_out


def test_having_left_an_earlier_time_is_not_having_left_now() -> None:
    earlier = internal("False", generation=1)
    earlier["metadata"]["generation"] = 2
    assert not has_left(earlier)
