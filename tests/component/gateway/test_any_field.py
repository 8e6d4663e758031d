"""Field selectors over any field: lists, pages and watches of every cluster."""

from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import TABLE, Site, fleet_site
from tests.component.gateway.watch_streams import watching

from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import Object, with_metadata
from clusterspace.testing.builders import DEPLOYMENTS, NAMESPACES, deployment, namespace
from clusterspace.testing.stage import Side
from clusterspace.testing.steps import delete, edit

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/apis/apps/v1/namespaces/shop/deployments"
SHOP = ResourcePath(DEPLOYMENTS, "shop")
INITIAL = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
IMAGE = "spec.template.spec.containers[0].image"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
EAST, WEST = ".clusterspace.east", ".clusterspace.west"


def with_image(made: Object, image: str) -> Object:
    spec = made["spec"]
    template = spec["template"]
    container = {**template["spec"]["containers"][0], "image": image}
    pod = {**template["spec"], "containers": [container]}
    return {**made, "spec": {**spec, "template": {**template, "spec": pod}}}


async def create(side: Side, name: str, image: str, replicas: int) -> None:
    made = deployment(name, namespace="shop", replicas=replicas)
    marked = with_metadata(made, annotations={"example.com/owner": f"team-{name}"})
    await side.client.create(SHOP, with_image(marked, image))


async def set_image(side: Side, name: str, image: str) -> None:
    await edit(side.client, SHOP.at(f"shop/{name}"), lambda each: with_image(each, image))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """The hub has h (v5, 1), east a (v5, 2) and b (v4, 2), west a (v4, 3)."""
    async with fleet_site(tmp_path_factory.mktemp("fleet")) as running:
        for side in (running.hub, *running.members.values()):
            await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
        await create(running.hub, "h", "web:v5", 1)
        await create(running.members["east"], "a", "web:v5", 2)
        await create(running.members["east"], "b", "web:v4", 2)
        await create(running.members["west"], "a", "web:v4", 3)
        yield running


def selecting(selector: str, more: str = "") -> str:
    return f"{PATH}?fieldSelector={quote(selector)}{more}"


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        (f"{IMAGE}=web:v5", ["h", f"a{EAST}"]),
        (f"{IMAGE}!=web:v5", [f"b{EAST}", f"a{WEST}"]),
        ("spec.template.spec.containers[*].image==web:v4", [f"b{EAST}", f"a{WEST}"]),
        ("spec.template.spec.containers[1].image=", ["h", f"a{EAST}", f"b{EAST}", f"a{WEST}"]),
        ("spec.replicas=2", [f"a{EAST}", f"b{EAST}"]),
        (f"spec.replicas=2,{IMAGE}=web:v4", [f"b{EAST}"]),
        ("spec.replicas!=2,metadata.namespace=shop", ["h", f"a{WEST}"]),
        ("spec.paused=", ["h", f"a{EAST}", f"b{EAST}", f"a{WEST}"]),
        ("spec.paused=true", []),
        ("spec.template=x", []),
        ("metadata.annotations['example.com/owner']=team-b", [f"b{EAST}"]),
        (f"metadata.name!=a{EAST},spec.replicas=2", [f"b{EAST}"]),
        (f"{IMAGE}!=a{EAST}", ["h", f"a{EAST}", f"b{EAST}", f"a{WEST}"]),
    ],
)
async def test_any_field_selects_in_lists_pages_tables_and_watches(
    site: Site, selector: str, names: list[str]
):
    listed = await site.ask("GET", selecting(selector))
    page = await site.ask("GET", selecting(selector, "&limit=1"))
    paged = list(page.names)
    while token := page.body["metadata"].get("continue"):
        page = await site.ask("GET", selecting(selector, f"&limit=1&continue={quote(token)}"))
        paged += page.names
    table = await site.ask("GET", selecting(selector), headers=(("Accept", TABLE),))
    partial = await site.ask("GET", selecting(selector), headers=(("Accept", PARTIAL),))
    path = selecting(selector, f"&watch=1{INITIAL}")
    async with watching(site.connection("root-token"), path) as found:
        await found.until(lambda each: bool(each.ends))

    assert (listed.code, listed.names, paged) == (200, names, names)
    assert all("spec" in each for each in listed.body["items"])
    beside = [row["object"] for row in table.body["rows"]]
    assert [each["metadata"]["name"] for each in beside] == names
    assert all(each["kind"] == "PartialObjectMetadata" for each in beside)
    assert all("spec" not in each for each in beside)
    assert (partial.names, partial.body["kind"]) == (names, "PartialObjectMetadataList")
    assert all("spec" not in each for each in partial.body["items"])
    assert sorted(name for _, name in found.told) == sorted(names)


@pytest.mark.parametrize("accept", ["application/json", TABLE], ids=["objects", "rows"])
@pytest.mark.parametrize("begin", ["list", "initial"])
async def test_an_object_enters_a_watch_when_it_matches_and_is_deleted_when_it_no_longer_does(
    site: Site, begin: str, accept: str
):
    east, west = site.members["east"], site.members["west"]
    for name in ("in", "out", "never"):
        await create(east, name, "app:old" if name == "in" else "app:other", 1)
    listed = await site.ask("GET", selecting(f"{IMAGE}=app:old"))
    version = quote(listed.body["metadata"]["resourceVersion"])
    more = f"&watch=1&resourceVersion={version}" if begin == "list" else f"&watch=1{INITIAL}"

    def told(events: list[Any]) -> list[tuple[str, str]]:
        rows = [
            (each["type"], row["object"]["metadata"].get("name", ""))
            for each in events
            if each["type"] != "BOOKMARK"
            for row in each["object"].get("rows", ({"object": each["object"]},))
        ]
        return [each for each in rows if each != ("ADDED", f"in{EAST}")]

    expected = [
        ("ADDED", f"out{EAST}"),
        ("MODIFIED", f"out{EAST}"),
        ("DELETED", f"in{EAST}"),
        ("DELETED", f"out{EAST}"),
        ("ADDED", f"last{WEST}"),
    ]
    connection = site.connection("root-token")
    async with watching(connection, selecting(f"{IMAGE}=app:old", more), accept=accept) as found:
        if begin == "initial":
            await found.until(lambda each: each.lines[-1:] != [] and b"BOOKMARK" in each.lines[-1])
        await set_image(east, "never", "app:another")
        await set_image(east, "out", "app:old")

        def scaled(existing: Object) -> Object:
            return {**existing, "spec": {**existing["spec"], "replicas": 9}}

        await edit(east.client, SHOP.at("shop/out"), scaled)
        await set_image(east, "in", "app:new")
        await delete(east.client, SHOP.at("shop/in"))
        await delete(east.client, SHOP.at("shop/never"))
        await delete(east.client, SHOP.at("shop/out"))
        await found.until(lambda each: len(told(each.events)) >= len(expected) - 1)
        await create(west, "last", "app:old", 1)
        await found.until(lambda each: len(told(each.events)) >= len(expected))

    assert told(found.events) == expected
    assert listed.names == [f"in{EAST}"]
    await delete(west.client, SHOP.at("shop/last"))


async def test_what_clusters_judge_themselves_they_are_sent(site: Site):
    """A Pod's phase is known to every API server; the rest of the selector is not."""
    listed = await site.ask(
        "GET", "/api/v1/pods?fieldSelector=status.phase%21%3DRunning,spec.priority%3D7"
    )

    assert (listed.code, listed.names) == (200, [])


@pytest.mark.parametrize("field", ["spec..image", "[0]", "", "spec.[", "*"])
async def test_a_field_that_is_no_path_is_refused(site: Site, field: str):
    refused = await site.ask("GET", selecting(f"{field}=x"))

    assert refused.code == 400
    assert "field label not supported" in refused.message


async def test_one_cluster_that_is_named_selects_as_it_does_itself(site: Site):
    path = PATH.replace("deployments", "clusterspaces/east/deployments")

    refused = await site.ask("GET", f"{path}?fieldSelector=spec.replicas%3D2")
    by_label = await site.ask(
        "GET", selecting("spec.replicas=2", "&labelSelector=clusterspace.io/cluster%3Deast")
    )

    assert refused.code == 400
    assert by_label.names == [f"a{EAST}", f"b{EAST}"]
