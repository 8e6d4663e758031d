"""What the member end says: heartbeats, room, properties, and how leaving goes."""

import msgspec
from tests.unit.fleet.membership.fleet_objects import node, pod
from tests.unit.fleet.membership.member_clusters.invitations import condition, internal

from clusterspace.controllers.controller import more_than_status_changed
from clusterspace.controllers.informers import Update
from clusterspace.fleet.membership.health import Health, State
from clusterspace.fleet.membership.member_clusters.agent import (
    healthy_condition,
    joined,
    left,
    reported_properties,
    resource_usage,
    with_heartbeat,
    with_inventory,
)
from clusterspace.fleet.membership.status import Inventory, Report
from clusterspace.kube.objects import Object, find_at

NOW = 1_800_000_000.0


def test_a_heartbeat_is_stamped_and_other_agents_keep_their_word() -> None:
    other = {"type": "ServiceExportImportAgent", "conditions": [condition("Joined", "True")]}
    told = with_heartbeat(internal(status={"agentStatus": [other]}), (joined(1),), NOW)
    ours, theirs = told["status"]["agentStatus"]
    assert ours["type"] == "MemberAgent"
    assert ours["lastReceivedHeartbeat"] == "2027-01-15T08:00:00Z"
    assert theirs == other


def test_leaving_keeps_the_last_word_on_health() -> None:
    held = internal("True")
    held["status"]["agentStatus"][0]["conditions"].append(condition("Healthy", "True"))
    told = with_heartbeat(held, (left(2),), NOW)
    said = {each["type"]: each["reason"] for each in told["status"]["agentStatus"][0]["conditions"]}
    assert said == {"Joined": "InternalMemberClusterLeft", "Healthy": "Told"}


def test_a_cluster_that_cannot_be_asked_has_what_it_had() -> None:
    held = internal("True", status={"resourceUsage": {"capacity": {"cpu": "4"}}})
    assert with_inventory(held, Report(Health(State.UNREACHABLE)), "", NOW) == held


def test_a_look_replaces_usage_and_properties() -> None:
    report = Report(Health(State.READY), Inventory(nodes=[node("a")]))
    seen = with_inventory(internal("True"), report, "id-1", NOW)
    assert find_at(seen, "status", "resourceUsage", "allocatable", "cpu") == "8"
    assert find_at(seen, "status", "properties", "clusterspace.io/cluster-id", "value") == "id-1"


def test_what_we_told_ourselves_is_no_news_and_orders_are() -> None:
    before, after = internal("True"), internal("False")
    leave = internal("True", state="Leave")
    assert not more_than_status_changed(_update(before, after))
    assert more_than_status_changed(_update(before, leave))


def _update(before: object, after: object) -> Update:
    return Update("fleet-member-west/west", msgspec.json.encode(before), msgspec.json.encode(after))


def sized(name: str, cpu: str, memory: str) -> Object:
    held = node(name, cpu=cpu, memory=memory)
    return {**held, "status": {**held["status"], "capacity": {"cpu": "10", "memory": memory}}}


def test_usage_is_summed_over_nodes_and_what_bound_pods_leave_is_available() -> None:
    nodes = [sized("a", "8", "32Gi"), sized("b", "2", "16Gi")]
    found = resource_usage(nodes, [pod("a", cpu="500m", memory="1Gi"), pod("b", cpu="1")], 0.0)
    assert found == {
        "capacity": {"cpu": "20", "memory": "48Gi"},
        "allocatable": {"cpu": "10", "memory": "48Gi"},
        "available": {"cpu": "8500m", "memory": "47Gi"},
        "observationTime": "1970-01-01T00:00:00Z",
    }


def test_pods_that_wait_succeeded_or_failed_use_nothing() -> None:
    pods = [
        pod("", cpu="1"),
        pod("a", phase="Succeeded", cpu="1"),
        pod("a", phase="Failed", cpu="1"),
    ]
    assert resource_usage([sized("a", "8", "1Gi")], pods, 0.0)["available"]["cpu"] == "8"


def test_more_asked_for_than_there_is_leaves_nothing_and_not_less() -> None:
    found = resource_usage([sized("a", "1", "1Gi")], [pod("a", cpu="5", memory="5Gi")], 0.0)
    assert found["available"] == {"cpu": "0", "memory": "0"}


def test_a_cluster_without_nodes_has_nothing() -> None:
    found = resource_usage([], [], 0.0)
    assert found["capacity"] == found["available"] == {"cpu": "0", "memory": "0"}
    assert reported_properties([], "id-1", 0.0)["kubernetes-fleet.io/node-count"]["value"] == "0"


def test_who_the_cluster_is_is_told_when_it_is_known() -> None:
    assert reported_properties([], "id-1", 0.0)["clusterspace.io/cluster-id"]["value"] == "id-1"
    assert "clusterspace.io/cluster-id" not in reported_properties([], "", 0.0)


def test_health_has_kubefleets_reasons() -> None:
    well = healthy_condition(Health(State.READY), 1)
    unwell = healthy_condition(Health(State.UNHEALTHY, "its health check answered 500"), 1)
    assert (well.status, well.reason) == ("True", "InternalMemberClusterHealthy")
    assert (unwell.status, unwell.reason) == ("False", "InternalMemberClusterUnhealthy")
    assert "500" in unwell.message
