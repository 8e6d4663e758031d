import pytest
from tests.unit.fleet.membership.member_clusters.invitations import SINCE, condition, member_cluster

from clusterspace.fleet.membership.member_clusters.leaving import is_overdue, leaving_condition
from clusterspace.kube.times import parse_time

SAID = parse_time(SINCE)


def test_what_goes_is_counted_and_named() -> None:
    said = leaving_condition(["ConfigMap a/b"], keeps=False, generation=2)
    assert (said.status, said.reason) == ("True", "RemovingResources")
    assert said.message == "1 placed object will be removed from the member: ConfigMap a/b"


def test_what_stays_is_said_to_stay() -> None:
    said = leaving_condition(["ConfigMap a/b", "ConfigMap a/c"], keeps=True, generation=2)
    assert said.reason == "KeepingResources"
    assert said.message.startswith("2 placed objects stay on the member: ")


def test_two_hundred_names_are_not_all_listed() -> None:
    placed = [f"ConfigMap a/{number:03}" for number in range(200)]
    assert leaving_condition(placed, keeps=False, generation=2).message.endswith("and 195 more")


@pytest.mark.parametrize(("seconds", "is_late"), [(0.0, False), (59.9, False), (60.0, True)])
def test_an_agent_has_the_time_set_from_when_the_leave_was_said(
    seconds: float, is_late: bool
) -> None:
    leaving = member_cluster(status={"conditions": [condition("Leaving", "True")]})
    assert is_overdue(leaving, SAID + seconds, 60.0) is is_late


def test_before_it_was_said_nobody_is_late() -> None:
    assert not is_overdue(member_cluster(), SAID + 1e9, 60.0)


def test_a_dead_agent_can_be_given_up_at_once() -> None:
    forced = member_cluster(
        metadata={"annotations": {"clusterspace.io/force-leave": "true"}},
        status={"conditions": [condition("Leaving", "True")]},
    )
    assert is_overdue(forced, SAID, 60.0)
