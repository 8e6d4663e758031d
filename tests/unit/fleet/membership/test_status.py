"""One look at a member becomes its status; what did not change stays."""

import pytest
from tests.unit.fleet.membership.fleet_objects import cluster, node

from clusterspace.client.discovery import ServedResources
from clusterspace.fleet.membership.health import Health, History, State
from clusterspace.fleet.membership.status import (
    Inventory,
    Report,
    api_enablements,
    apis_condition,
    inventory_pause,
    next_status,
    ready_status,
)
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.resources import GroupVersion, ResourceInfo

NOW = 1_800_000_000.0
WELL = Health(State.READY)
GONE = Health(State.UNREACHABLE, "refused the connection")


def served(*names: str) -> ServedResources:
    return ServedResources(
        tuple(
            ResourceInfo("apps", "v1", name.title(), name, "", namespaced=True, verbs=("get",))
            for name in names
        )
    )


def test_what_a_member_tells_of_itself_is_its_status() -> None:
    inventory = Inventory("v1.35.0", served("deployments"), [node("a")], [], {"id.k8s.io": "me"})

    status = next_status(cluster(), Report(WELL, inventory), History(is_ready=True), NOW)

    assert status["kubernetesVersion"] == "v1.35.0"
    assert status["nodeSummary"] == {"totalNum": 1, "readyNum": 1}
    assert status["clusterProperty"] == {"id.k8s.io": "me"}
    assert [each["type"] for each in status["conditions"]] == ["CompleteAPIEnablements", "Ready"]


def test_the_same_look_twice_changes_nothing() -> None:
    report = Report(WELL, Inventory("v1.35.0", served("deployments"), [node("a")]))
    first = next_status(cluster(), report, History(is_ready=True), NOW)

    again = next_status({**cluster(), "status": first}, report, History(is_ready=True), NOW + 60)

    assert again == first


def test_a_member_that_is_gone_keeps_what_was_known_of_it() -> None:
    known = cluster(ready="True", kubernetesVersion="v1.35.0")

    status = next_status(known, Report(GONE), History(is_ready=False), NOW)

    assert status["kubernetesVersion"] == "v1.35.0"
    ready = find_condition(status["conditions"], "Ready")
    assert ready is not None
    assert ready["reason"] == "ClusterNotReachable"
    assert ready["lastTransitionTime"] == "2027-01-15T08:00:00Z"


def test_a_change_that_has_yet_to_last_is_not_told() -> None:
    known = cluster(ready="True")
    unsure = History(is_ready=True, otherwise_since=1.0)

    assert next_status(known, Report(GONE), unsure, NOW) == known["status"]


def test_what_a_silent_member_could_take_is_kept_with_since_when_it_is_silent() -> None:
    report = Report(WELL, Inventory("v1.35.0", served("deployments"), [node("a")], quotas=()))
    heard = next_status(cluster(), report, History(is_ready=True), NOW)
    known = {**cluster(), "status": heard}

    silent = next_status(known, Report(GONE), History(is_ready=False), NOW)
    later = next_status(
        {**cluster(), "status": silent}, Report(GONE), History(is_ready=False), NOW + 600
    )
    back = next_status({**cluster(), "status": later}, report, History(is_ready=True), NOW + 900)

    assert later["estimate"] == {**heard["estimate"], "staleSince": "2027-01-15T08:00:00Z"}
    assert back["estimate"] == heard["estimate"]


def test_a_member_that_was_only_asked_how_it_is_has_what_it_had() -> None:
    report = Report(WELL, Inventory("v1.35.0", served("deployments"), [node("a")]))
    told = {**cluster(), "status": next_status(cluster(), report, History(is_ready=True), NOW)}
    assert "estimate" in told["status"]

    later = next_status(told, Report(WELL, was_asked=False), History(is_ready=True), NOW + 60)

    assert later == told["status"]


@pytest.mark.parametrize(("members", "looks"), [(1, 1), (100, 1), (200, 2), (1000, 10)])
def test_ten_members_a_second_are_asked_what_they_have(members: int, looks: int) -> None:
    pause = inventory_pause(members, 10.0)

    assert next(n for n in range(1, 100) if n * 10.0 - 0.5 >= pause) == looks


def test_a_property_that_is_gone_is_no_longer_told() -> None:
    known = cluster(ready="True", clusterProperty={"old": "1"})

    status = next_status(known, Report(WELL, Inventory()), History(is_ready=True), NOW)

    assert "clusterProperty" not in status


def test_apis_are_told_in_a_fixed_order() -> None:
    told = api_enablements(served("statefulsets", "deployments"))

    assert told == [
        {
            "groupVersion": "apps/v1",
            "resources": [
                {"kind": "Deployments", "name": "deployments"},
                {"kind": "Statefulsets", "name": "statefulsets"},
            ],
        }
    ]


def test_it_is_told_whether_all_apis_are_known() -> None:
    partly = ServedResources(served("deployments").resources, (GroupVersion("x", "v1"),))

    reasons = [apis_condition(each).reason for each in (served("pods"), partly, served())]

    assert reasons == ["Complete", "Partial", "Empty"]


def test_a_cluster_nobody_spoke_of_has_no_ready_status() -> None:
    assert ready_status(cluster()) == ""
    assert ready_status(cluster(ready="Unknown")) == "Unknown"
