import pytest
from tests.unit.fleet.membership.member_clusters.invitations import (
    condition,
    internal,
    member_cluster,
)

from clusterspace.fleet.membership.member_clusters.heartbeats import Pulse
from clusterspace.fleet.membership.member_clusters.reports import (
    has_left,
    joined_condition,
    next_status,
    relayed_status,
)
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object

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
