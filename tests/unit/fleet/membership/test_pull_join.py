"""Who may register, decided before a token is used up or anything is made."""

import pytest
from tests.unit.fleet.membership.fleet_objects import cluster

from clusterspace.errors import CannotJoin
from clusterspace.fleet.membership.pull_join import (
    RegisterRequest,
    refuse_other_agent,
    same_cluster,
)
from clusterspace.kube.objects import Object

REQUEST = RegisterRequest("west", "hub:6443", "sha256:00", "abcdef.secret")


def registration(name: str = "west", hub: str = "sha256:00") -> Object:
    marks = {"clusterspace.io/cluster": name, "clusterspace.io/hub-id": hub}
    return {"metadata": {"name": "karmada-kubeconfig", "annotations": marks}}


def test_a_member_may_register_for_the_first_time_and_again() -> None:
    refuse_other_agent(REQUEST, None)
    refuse_other_agent(REQUEST, registration())


@pytest.mark.parametrize(
    "other",
    [
        registration(name="east"),
        registration(hub="sha256:11"),
        {"metadata": {"name": "karmada-kubeconfig"}},
    ],
    ids=["another name", "another hub", "a Karmada's agent"],
)
def test_a_member_with_another_agent_is_refused(other: Object) -> None:
    with pytest.raises(CannotJoin, match="unregister it there first"):
        refuse_other_agent(REQUEST, other)


def test_a_cluster_that_registered_before_is_known_again() -> None:
    known = cluster(mode="Pull", cluster_id="id-1")

    assert same_cluster(known, "west", "id-1") is known


def test_the_name_of_another_cluster_is_refused() -> None:
    with pytest.raises(CannotJoin, match="belongs to another cluster, with the ID id-2"):
        same_cluster(cluster(mode="Pull", cluster_id="id-2"), "west", "id-1")


def test_a_cluster_the_hub_reaches_itself_is_refused() -> None:
    with pytest.raises(CannotJoin, match="unjoin it first"):
        same_cluster(cluster(mode="Push", cluster_id="id-1"), "west", "id-1")


def test_a_token_is_not_shown_in_logs() -> None:
    assert "secret" not in repr(REQUEST)
