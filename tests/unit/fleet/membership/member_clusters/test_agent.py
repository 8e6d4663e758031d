import msgspec
from tests.unit.fleet.membership.fleet_objects import node
from tests.unit.fleet.membership.member_clusters.invitations import condition, internal

from clusterspace.controllers.informers import Update
from clusterspace.fleet.membership.health import Health, State
from clusterspace.fleet.membership.member_clusters.agent import (
    joined,
    left,
    when_told_anew,
    with_look,
    with_told,
)
from clusterspace.fleet.membership.status import Inventory, Report
from clusterspace.kube.objects import find_at

NOW = 1_800_000_000.0


def test_a_heartbeat_is_stamped_and_other_agents_keep_their_word() -> None:
    other = {"type": "ServiceExportImportAgent", "conditions": [condition("Joined", "True")]}
    told = with_told(internal(status={"agentStatus": [other]}), (joined(1),), NOW)
    ours, theirs = told["status"]["agentStatus"]
    assert ours["type"] == "MemberAgent"
    assert ours["lastReceivedHeartbeat"] == "2027-01-15T08:00:00Z"
    assert theirs == other


def test_leaving_keeps_the_last_word_on_health() -> None:
    held = internal("True")
    held["status"]["agentStatus"][0]["conditions"].append(condition("Healthy", "True"))
    told = with_told(held, (left(2),), NOW)
    said = {each["type"]: each["reason"] for each in told["status"]["agentStatus"][0]["conditions"]}
    assert said == {"Joined": "InternalMemberClusterLeft", "Healthy": "Told"}


def test_a_cluster_that_cannot_be_asked_has_what_it_had() -> None:
    held = internal("True", status={"resourceUsage": {"capacity": {"cpu": "4"}}})
    assert with_look(held, Report(Health(State.UNREACHABLE)), "", NOW) == held


def test_a_look_replaces_usage_and_properties() -> None:
    report = Report(Health(State.READY), Inventory(nodes=[node("a")]))
    seen = with_look(internal("True"), report, "id-1", NOW)
    assert find_at(seen, "status", "resourceUsage", "allocatable", "cpu") == "8"
    assert find_at(seen, "status", "properties", "clusterspace.io/cluster-id", "value") == "id-1"


def test_what_we_told_ourselves_is_no_news_and_orders_are() -> None:
    before, after = internal("True"), internal("False")
    leave = internal("True", state="Leave")
    assert list(when_told_anew(_update(before, after))) == []
    assert len(list(when_told_anew(_update(before, leave)))) == 1


def _update(before: object, after: object) -> Update:
    return Update("fleet-member-west/west", msgspec.json.encode(before), msgspec.json.encode(after))
