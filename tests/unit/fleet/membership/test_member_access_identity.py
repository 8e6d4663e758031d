"""Who a cluster is, and that the same one does not join twice."""

import pytest
from tests.unit.fleet.membership.fleet_objects import cluster

from clusterspace.errors import CannotJoin
from clusterspace.fleet.membership.member_access import (
    ClusterIdentity,
    Creation,
    PropertyApi,
    needs_property,
    property_definition,
    refuse_if_taken,
)

SILENT = ClusterIdentity("uid-1", {}, PropertyApi.CURRENT)


def test_a_cluster_is_who_it_says_it_is() -> None:
    properties = {"cluster.clusterset.k8s.io": "older", "id.k8s.io": "mine", "other": "x"}

    assert ClusterIdentity("uid-1", properties).id == "mine"
    assert ClusterIdentity("uid-1", {"cluster.clusterset.k8s.io": "older"}).id == "older"


def test_a_cluster_that_says_nothing_is_its_kube_system_namespace() -> None:
    assert SILENT.id == "uid-1"


def test_unset_neither_creates_nor_refuses() -> None:
    assert needs_property("west", SILENT, Creation.UNSET) is False


def test_false_refuses_a_cluster_that_does_not_say_who_it_is() -> None:
    with pytest.raises(CannotJoin, match=r"no ClusterProperty id\.k8s\.io"):
        needs_property("west", SILENT, Creation.REFUSE)


@pytest.mark.parametrize("api", [PropertyApi.CURRENT, PropertyApi.MISSING])
def test_true_creates_what_is_missing(api: PropertyApi) -> None:
    assert needs_property("west", ClusterIdentity("uid-1", {}, api), Creation.CREATE) is True


def test_true_asks_to_upgrade_an_older_api() -> None:
    with pytest.raises(CannotJoin, match="upgrade it to v1beta1"):
        needs_property("west", ClusterIdentity("uid-1", {}, PropertyApi.OLDER), Creation.CREATE)


@pytest.mark.parametrize("creation", list(Creation))
def test_a_cluster_that_says_who_it_is_needs_nothing(creation: Creation) -> None:
    declared = ClusterIdentity("uid-1", {"id.k8s.io": "mine"}, PropertyApi.OLDER)

    assert needs_property("west", declared, creation) is False


def test_the_same_id_under_another_name_is_refused_and_named() -> None:
    with pytest.raises(CannotJoin, match="has joined as east"):
        refuse_if_taken("west", "id-1", [cluster("east", cluster_id="id-1")])


def test_the_same_name_with_another_id_is_refused() -> None:
    with pytest.raises(CannotJoin, match="another cluster, with the ID id-2"):
        refuse_if_taken("west", "id-1", [cluster("west", cluster_id="id-2")])


def test_the_same_cluster_under_the_same_name_is_known() -> None:
    held = cluster("west", cluster_id="id-1")

    assert refuse_if_taken("west", "id-1", [cluster("east", cluster_id="id-2"), held]) is held
    assert refuse_if_taken("north", "id-3", [held]) is None


def test_the_definition_we_install_serves_the_version_we_write() -> None:
    versions = property_definition()["spec"]["versions"]

    assert [each["name"] for each in versions if each["storage"]] == ["v1beta1"]
