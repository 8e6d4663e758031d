"""The tables of the fleet API: every operation, in every form, with federation and without."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from clusterspace.errors import MethodNotAllowed
from clusterspace.fleet.gateway.routes import (
    HUB,
    BodyNames,
    Naming,
    Reach,
    read_fleet_request,
    route_for,
)

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/{space}deployments"
ALL_DEPLOYMENTS = "/apis/apps/v1/{space}deployments"
CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/{space}clusterroles"

OPERATIONS = {
    "get": ("GET", "/{name}"),
    "list": ("GET", ""),
    "watch": ("GET", "?watch=true"),
    "create": ("POST", ""),
    "update": ("PUT", "/{name}"),
    "patch": ("PATCH", "/{name}"),
    "delete": ("DELETE", "/{name}"),
    "deletecollection": ("DELETE", ""),
}

# Of one cluster everything can be asked. What is asked of all goes to the cluster in the name;
# lists go to everyone, and nobody deletes whole collections everywhere.
REACHES = dict.fromkeys(OPERATIONS, "the cluster in the name") | {
    "list": "every cluster",
    "watch": "every cluster",
    "deletecollection": "nobody",
}


@dataclass(frozen=True)
class Row:
    operation: str
    collection: str
    space: str | None
    federation: bool

    def __str__(self) -> str:
        path = self.collection.format(space="")
        return f"{self.operation} {path} {self.space or 'vanilla'} {self.federation}"

    @property
    def reaches(self) -> str:
        if self.space in ("foo", HUB):
            return self.space
        return REACHES[self.operation]

    def url(self, name: str) -> str:
        space = f"clusterspaces/{self.space}/" if self.space else ""
        tail = OPERATIONS[self.operation][1].format(name=name)
        return self.collection.format(space=space) + tail


def rows() -> Iterator[Row]:
    for federation in (True, False):
        for space in (None, "foo", HUB, "all"):
            for operation in OPERATIONS:
                yield Row(operation, DEPLOYMENTS, space, federation)
                yield Row(operation, CLUSTER_ROLES, space, federation)
            for operation in ("list", "watch"):
                yield Row(operation, ALL_DEPLOYMENTS, space, federation)


def asked(row: Row, name: str):
    path, _, query = row.url(name).partition("?")
    request = read_fleet_request(OPERATIONS[row.operation][0], path, query)
    body = BodyNames(name=name)
    return route_for(request, federation=row.federation, body_names=lambda: body)


def of_one(row: Row) -> bool:
    return row.reaches in ("foo", HUB)


@pytest.mark.parametrize("row", [row for row in rows() if of_one(row)], ids=str)
def test_a_clusterspace_reaches_that_cluster_with_its_own_names(row: Row) -> None:
    route = asked(row, "xx")

    assert (route.reach, route.naming) == (Reach.ONE, Naming(row.reaches))
    assert route.info.verb == row.operation
    own = Row(row.operation, row.collection, None, row.federation).url("xx")
    assert route.info.path == own.partition("?")[0]


@pytest.mark.parametrize(
    "row", [row for row in rows() if row.reaches == "the cluster in the name"], ids=str
)
@pytest.mark.parametrize("cluster", ["yy", HUB])
def test_a_name_reaches_the_cluster_it_ends_with(row: Row, cluster: str) -> None:
    route = asked(row, f"xx.clusterspace.{cluster}")

    assert (route.reach, route.naming) == (Reach.ONE, Naming(cluster, qualifies_names=True))
    assert route.info.verb == row.operation
    own = Row(row.operation, row.collection, None, row.federation).url("xx")
    assert route.info.path == own


@pytest.mark.parametrize("row", [row for row in rows() if row.reaches == "every cluster"], ids=str)
def test_lists_and_watches_reach_every_cluster(row: Row) -> None:
    route = asked(row, "")

    assert route.reach is Reach.ALL
    assert route.info.verb == row.operation
    assert route.info.path == row.collection.format(space="")


@pytest.mark.parametrize("row", [row for row in rows() if row.reaches == "nobody"], ids=str)
def test_deleting_a_collection_everywhere_is_not_supported(row: Row) -> None:
    with pytest.raises(MethodNotAllowed, match="one cluster"):
        asked(row, "")


@pytest.mark.parametrize(
    "row", [row for row in rows() if of_one(row) and OPERATIONS[row.operation][1] == "/{name}"]
)
def test_a_qualified_name_is_accepted_where_it_agrees_with_the_clusterspace(row: Row) -> None:
    route = asked(row, f"xx.clusterspace.{row.space}")

    assert (route.naming.cluster, route.info.name) == (row.space, "xx")
    assert route.naming.qualifies_names
