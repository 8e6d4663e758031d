"""The tables of the fleet API, row by row, on a running fleet: who is reached, and nobody else.

Every row is tried with federation and without, for a clusterspace that is a member (`foo`), the
control plane (`karmada`) or `all`, and in vanilla paths. `foo` is a simulated member, and then a
real kube-apiserver where there is one. Each object is in all three clusters under the same name.
"""

import itertools
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import (
    PULL,
    PUSH,
    Heard,
    Site,
    fleet_site,
    pulled,
    without_federation,
)
from tests.conformance.widgets import GROUP, widget, widget_definition
from tests.flows.members import KINDS, KUBERNETES, SIM, running_member

from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.gateway.merge import versions
from clusterspace.fleet.gateway.routes import HUB
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import DEPLOYMENTS, deployment
from clusterspace.testing.hubs import OURS, SEVERAL
from clusterspace.testing.stage import Side
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
DEFINITIONS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
NAMESPACED = "/apis/apps/v1/namespaces/default/{space}deployments"
EVERYWHERE = "/apis/apps/v1/{space}deployments"
CLUSTER_WIDE = "/apis/rbac.authorization.k8s.io/v1/{space}clusterroles"
MERGE = "application/merge-patch+json"
_numbers = itertools.count(1)


@dataclass
class Tables:
    """The clusters, and a fleet API server for each kind of federation."""

    by_federation: dict[bool, Site]
    clusters: dict[str, Side]


STAGES = (
    *((kind, OURS, PUSH) for kind in KINDS),
    (SIM, OURS, PULL),
    pytest.param((KUBERNETES, OURS, PULL), marks=pytest.mark.slow),
    pytest.param((SIM, KUBERNETES, PUSH), marks=pytest.mark.slow),
    pytest.param((SIM, KUBERNETES, PULL), marks=pytest.mark.slow),
    pytest.param((SIM, SEVERAL, PUSH), marks=pytest.mark.slow),
)
"""What the member is, what the hub is, and whether the member is dialled or has an agent."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=STAGES, ids="-".join)
async def tables(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Tables]:
    (kind, hub_kind, mode), directory = request.param, tmp_path_factory.mktemp("tables")
    (directory / "foo").mkdir()
    async with AsyncExitStack() as stack:
        member = await stack.enter_async_context(running_member(kind, directory / "foo"))
        site = await stack.enter_async_context(
            fleet_site(directory, members=("bar",), hub_kind=hub_kind)
        )
        if mode == PULL:
            await stack.enter_async_context(pulled(site, "foo", member))
        else:
            await site.fleet.join("foo", member)
            await site.wait_for("foo")
        site.members["foo"] = member
        without = await stack.enter_async_context(without_federation(site))
        clusters = {HUB: site.hub, "foo": member, "bar": site.members["bar"]}
        yield Tables({True: site, False: without}, clusters)


@dataclass(frozen=True)
class Row:
    """A row of the tables that is about one object, and the cluster it is to reach."""

    collection: str
    space: str | None
    suffix: str
    federation: bool

    def __str__(self) -> str:
        kind = "deployments" if self.is_namespaced else "clusterroles"
        federation = "federation" if self.federation else "no federation"
        return f"{kind}, {self.space or 'vanilla'}, name in {self.suffix or 'URL'}, {federation}"

    @property
    def is_namespaced(self) -> bool:
        return self.collection is NAMESPACED

    @property
    def target(self) -> str:
        return self.suffix or self.space or ""

    @property
    def path(self) -> str:
        return spaced(self.collection, self.space)

    def called(self, name: str) -> str:
        return f"{name}.clusterspace.{self.suffix}" if self.suffix else name

    def place(self, name: str = "") -> ResourcePath:
        return (
            ResourcePath(DEPLOYMENTS, "default", name)
            if self.is_namespaced
            else ResourcePath(ROLES, "", name)
        )

    def body(self, name: str, colour: str) -> Object:
        made = deployment(name, replicas=0) if self.is_namespaced else cluster_role(name)
        labels = {"row": name.partition(".")[0]}
        metadata = {**made["metadata"], "labels": labels, "annotations": {"colour": colour}}
        return {**made, "metadata": metadata}


def spaced(collection: str, space: str | None) -> str:
    return collection.format(space=f"clusterspaces/{space}/" if space else "")


def cluster_role(name: str) -> Object:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    return {**kind, "metadata": {"name": name}, "rules": rules}


def object_rows() -> Iterator[Row]:
    """Yield rows for `all` and vanilla by the name, for one cluster by the URL and by both."""
    named = [(space, cluster) for space in (None, "all") for cluster in ("foo", HUB)]
    spaces = [(space, suffix) for space in ("foo", HUB) for suffix in ("", space)]
    for collection in (NAMESPACED, CLUSTER_WIDE):
        for federation in (True, False):
            for space, suffix in (*named, *spaces):
                yield Row(collection, space, suffix, federation)


OBJECT_ROWS = pytest.mark.parametrize("row", list(object_rows()), ids=str)


def new_name() -> str:
    return f"xx-{next(_numbers)}"


async def put_everywhere(tables: Tables, row: Row) -> str:
    """Create an object in every cluster, painted in the cluster's name; return its name."""
    name = new_name()
    for cluster, side in tables.clusters.items():
        await side.client.create(row.place(), row.body(name, colour=cluster))
    return name


async def colours(tables: Tables, row: Row, name: str) -> dict[str, Any]:
    """Return what the object looks like in each cluster that has it, without asking the fleet."""
    found: dict[str, Any] = {}
    for cluster, side in tables.clusters.items():
        held = await side.client.find(row.place(name))
        if held is not None and find_at(held, "metadata", "deletionTimestamp") is None:
            found[cluster] = find_at(held, "metadata", "annotations", "colour")
    return found


async def ask(tables: Tables, row: Row, method: str, name: str, body: Any = None) -> Heard:
    site = tables.by_federation[row.federation]
    tail = f"/{row.called(name)}" if name else ""
    return await site.ask(
        method,
        row.path + tail,
        body,
        content_type=MERGE if method == "PATCH" else "application/json",
    )


@OBJECT_ROWS
async def test_get_reads_the_object_of_that_cluster(tables: Tables, row: Row):
    name = await put_everywhere(tables, row)

    answer = await ask(tables, row, "GET", name)

    assert answer.code == 200, answer.body
    assert answer.body["metadata"]["name"] == row.called(name)
    assert answer.body["metadata"]["annotations"]["colour"] == row.target


@OBJECT_ROWS
async def test_create_creates_in_that_cluster_and_in_no_other(tables: Tables, row: Row):
    name = new_name()

    answer = await ask(tables, row, "POST", "", row.body(row.called(name), "new"))

    assert answer.code == 201, answer.body
    assert answer.body["metadata"]["name"] == row.called(name)
    assert await colours(tables, row, name) == {row.target: "new"}


@OBJECT_ROWS
async def test_update_replaces_in_that_cluster_and_in_no_other(tables: Tables, row: Row):
    name = await put_everywhere(tables, row)
    before = await colours(tables, row, name)

    async def replace() -> Heard:
        read = await ask(tables, row, "GET", name)
        metadata = {**read.body["metadata"], "annotations": {"colour": "replaced"}}
        return await ask(tables, row, "PUT", name, {**read.body, "metadata": metadata})

    answer = await replace()
    while answer.code == 409:  # a simulated member may have noted its status in between
        answer = await replace()

    assert (answer.code, answer.body["metadata"]["name"]) == (200, row.called(name)), answer.body
    assert await colours(tables, row, name) == {**before, row.target: "replaced"}


@OBJECT_ROWS
async def test_patch_changes_in_that_cluster_and_in_no_other(tables: Tables, row: Row):
    name = await put_everywhere(tables, row)
    before = await colours(tables, row, name)
    change = {"metadata": {"name": row.called(name), "annotations": {"colour": "patched"}}}

    answer = await ask(tables, row, "PATCH", name, change)

    assert (answer.code, answer.body["metadata"]["name"]) == (200, row.called(name)), answer.body
    assert await colours(tables, row, name) == {**before, row.target: "patched"}


@OBJECT_ROWS
async def test_delete_deletes_in_that_cluster_and_in_no_other(tables: Tables, row: Row):
    name = await put_everywhere(tables, row)
    before = await colours(tables, row, name)

    answer = await ask(tables, row, "DELETE", name)

    assert answer.code == 200, answer.body
    del before[row.target]
    assert await colours(tables, row, name) == before


@pytest.mark.parametrize("federation", [True, False])
@pytest.mark.parametrize("collection", [NAMESPACED, CLUSTER_WIDE], ids=["deployments", "roles"])
@pytest.mark.parametrize("space", ["foo", HUB])
async def test_deletecollection_deletes_in_that_cluster_and_in_no_other(
    tables: Tables, space: str, collection: str, federation: bool
):
    row = Row(collection, space, "", federation)
    name = await put_everywhere(tables, row)
    before = await colours(tables, row, name)
    site = tables.by_federation[federation]

    answer = await site.ask("DELETE", f"{row.path}?labelSelector=row%3D{name}")

    assert answer.code == 200, answer.body
    del before[space]

    async def is_gone() -> bool:
        return await colours(tables, row, name) == before

    await until(is_gone)


@pytest.mark.parametrize("federation", [True, False])
@pytest.mark.parametrize("collection", [NAMESPACED, CLUSTER_WIDE], ids=["deployments", "roles"])
@pytest.mark.parametrize("space", [None, "all"])
async def test_deletecollection_of_all_clusters_is_not_supported(
    tables: Tables, space: str | None, collection: str, federation: bool
):
    row = Row(collection, space, "", federation)
    name = await put_everywhere(tables, row)
    before = await colours(tables, row, name)
    site = tables.by_federation[federation]

    answer = await site.ask("DELETE", f"{row.path}?labelSelector=row%3D{name}")

    assert (answer.code, answer.body["reason"]) == (405, "MethodNotAllowed")
    assert "one cluster" in answer.message
    assert await colours(tables, row, name) == before


@pytest.mark.parametrize("federation", [True, False])
@pytest.mark.parametrize(
    "collection", [NAMESPACED, EVERYWHERE, CLUSTER_WIDE], ids=["namespace", "everywhere", "roles"]
)
@pytest.mark.parametrize("space", [None, "foo", HUB, "all"])
async def test_list_shows_the_clusters_it_is_of(
    tables: Tables, space: str | None, collection: str, federation: bool
):
    row = Row(CLUSTER_WIDE if collection is CLUSTER_WIDE else NAMESPACED, space, "", federation)
    name = await put_everywhere(tables, row)
    site = tables.by_federation[federation]

    answer = await site.ask("GET", f"{spaced(collection, space)}?labelSelector=row%3D{name}")

    assert answer.code == 200, answer.body
    shown = [(each["metadata"]["name"], paint_of(each)) for each in answer.body["items"]]
    assert shown == expected_in_list(space, name, federation=federation)
    if space in (None, "all"):
        read = versions.decode(answer.body["metadata"]["resourceVersion"], (HUB, "bar", "foo"))
        assert sorted(read) == sorted(paint for _, paint in shown)


def paint_of(shown: Object) -> Any:
    return find_at(shown, "metadata", "annotations", "colour")


def expected_in_list(space: str | None, name: str, *, federation: bool) -> list[tuple[str, str]]:
    """Return names and colours: of one cluster its own, of all of them qualified, the hub first."""
    if space in ("foo", HUB):
        return [(name, str(space))]
    members = [(f"{name}.clusterspace.{cluster}", cluster) for cluster in ("bar", "foo")]
    return [(name, HUB), *members] if federation else members


@pytest.mark.parametrize("collection", [NAMESPACED, CLUSTER_WIDE], ids=["deployments", "roles"])
@pytest.mark.parametrize("space", [None, "all"])
async def test_a_bare_name_is_the_control_plane_s_with_federation(
    tables: Tables, space: str | None, collection: str
):
    row = Row(collection, space, "", federation=True)
    name = await put_everywhere(tables, row)

    read = await ask(tables, row, "GET", name)
    patched = await ask(tables, row, "PATCH", name, {"metadata": {"annotations": {"colour": "x"}}})

    assert (read.code, paint_of(read.body)) == (200, HUB)
    assert patched.code == 200
    assert await colours(tables, row, name) == {HUB: "x", "foo": "foo", "bar": "bar"}


@pytest.mark.parametrize("collection", [NAMESPACED, CLUSTER_WIDE], ids=["deployments", "roles"])
@pytest.mark.parametrize("space", [None, "all"])
async def test_a_bare_name_without_federation_is_asked_back_about(
    tables: Tables, space: str | None, collection: str
):
    row = Row(collection, space, "", federation=False)
    name = await put_everywhere(tables, row)

    read = await ask(tables, row, "GET", name)
    deleted = await ask(tables, row, "DELETE", name)

    assert (read.code, deleted.code) == (400, 400)
    candidates = [f"{name}.clusterspace.bar", f"{name}.clusterspace.foo"]
    assert all(each in read.message for each in candidates)
    assert f"{name}.clusterspace.CLUSTER" in deleted.message
    assert len(await colours(tables, row, name)) == 3


@OBJECT_ROWS
async def test_a_name_that_contradicts_the_clusterspace_is_refused(tables: Tables, row: Row):
    if row.space in (None, "all"):
        row = Row(row.collection, "bar", row.suffix, row.federation)
    name = await put_everywhere(tables, row)
    other = "bar" if row.space != "bar" else row.suffix
    site = tables.by_federation[row.federation]

    answer = await site.ask("DELETE", f"{row.path}/{name}.clusterspace.{other}")

    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert f"{row.space} in the URL" in answer.message
    assert f"{other} in the name" in answer.message
    assert len(await colours(tables, row, name)) == 3


@pytest.mark.parametrize("federation", [True, False])
@pytest.mark.parametrize("space", [None, "all"])
async def test_a_list_passes_over_clusters_without_the_api(
    tables: Tables, space: str | None, federation: bool
):
    plural = f"gadgets{next(_numbers)}s"
    path = f"/apis/{GROUP}/v1/namespaces/default/{{space}}{plural}"
    site, foo = tables.by_federation[federation], tables.clusters["foo"]
    await foo.client.create(ResourcePath(DEFINITIONS), widget_definition(plural))
    kind = plural.removesuffix("s").capitalize()

    async def is_made() -> bool:
        made = await site.ask("POST", spaced(path, "foo"), widget(kind, "one", 1))
        return made.code == 201

    await until(is_made)
    answer = await site.ask("GET", spaced(path, space))
    nobody = await site.ask("GET", spaced(path.replace(GROUP, "nobody.example"), space))

    assert (answer.code, answer.names) == (200, ["one.clusterspace.foo"])
    assert answer.warning == ""
    assert nobody.code == 404
