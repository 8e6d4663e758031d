"""Lists of every cluster in the order of a field, whole and page by page."""

from collections.abc import AsyncGenerator
from urllib.parse import quote

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import TABLE, Heard, Site, fleet_site

from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import Object
from clusterspace.testing.builders import DEPLOYMENTS, NAMESPACES, deployment, namespace
from clusterspace.testing.steps import delete, edit

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/apis/apps/v1/namespaces/shop/deployments"
SHOP = ResourcePath(DEPLOYMENTS, "shop")
EAST, WEST = ".clusterspace.east", ".clusterspace.west"
BY_REPLICAS = ["h1", f"w2{WEST}", f"e3{EAST}", f"e4{EAST}", f"w5{WEST}", f"e12{EAST}"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """Deployments that are called by their cluster and by how many replicas they have."""
    async with fleet_site(tmp_path_factory.mktemp("fleet")) as running:
        sides = {"h": running.hub, "e": running.members["east"], "w": running.members["west"]}
        for letter, side in sides.items():
            await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
            for count in {"h": (1,), "e": (12, 3, 4), "w": (5, 2)}[letter]:
                made = deployment(f"{letter}{count}", namespace="shop", replicas=count)
                await side.client.create(SHOP, made)
        yield running


async def ask(site: Site, sort_by: str, more: str = "", **options: str) -> Heard:
    headers = tuple(options.items())
    return await site.ask("GET", f"{PATH}?sortBy={quote(sort_by)}{more}", headers=headers)


@pytest.mark.parametrize(
    ("sort_by", "names"),
    [
        (".spec.replicas", BY_REPLICAS),
        ("spec.replicas", BY_REPLICAS),
        ("{.spec.replicas}", BY_REPLICAS),
        ("-.spec.replicas", BY_REPLICAS[::-1]),
        (
            ".metadata.name",
            [f"e12{EAST}", f"e3{EAST}", f"e4{EAST}", "h1", f"w2{WEST}", f"w5{WEST}"],
        ),
        # All alike, as nobody has one: they stay as answers have them.
        (".spec.paused", ["h1", f"e12{EAST}", f"e3{EAST}", f"e4{EAST}", f"w2{WEST}", f"w5{WEST}"]),
        ("-.spec", ["h1", f"e12{EAST}", f"e3{EAST}", f"e4{EAST}", f"w2{WEST}", f"w5{WEST}"]),
    ],
)
async def test_a_list_is_in_the_order_of_a_field(site: Site, sort_by: str, names: list[str]):
    listed = await ask(site, sort_by)
    table = await ask(site, sort_by, Accept=TABLE)
    paged: list[str] = []
    token = ""
    while not paged or token:
        page = await ask(site, sort_by, f"&limit=2&continue={quote(token)}")
        assert len(page.names) == 2
        paged += page.names
        token = page.body["metadata"].get("continue", "")

    assert (listed.names, listed.warning) == (names, "")
    assert [row["object"]["metadata"]["name"] for row in table.body["rows"]] == names
    assert {row["object"]["kind"] for row in table.body["rows"]} == {"PartialObjectMetadata"}
    assert paged == names


async def test_pages_are_of_one_moment_whatever_happens_meanwhile(site: Site):
    first = await ask(site, ".spec.replicas", "&limit=3")
    east = site.members["east"].client

    def grown(existing: Object) -> Object:
        return {**existing, "spec": {**existing["spec"], "replicas": 99}}

    await east.create(SHOP, deployment("e0", namespace="shop", replicas=0))
    await edit(site.members["west"].client, SHOP.at("shop/w2"), grown)
    token = first.body["metadata"]["continue"]
    second = await ask(site, ".spec.replicas", f"&limit=3&continue={quote(token)}")
    now = await ask(site, ".spec.replicas")

    assert first.names + second.names == BY_REPLICAS
    assert first.body["metadata"]["resourceVersion"] == second.body["metadata"]["resourceVersion"]
    assert now.names[0] == f"e0{EAST}"
    assert now.names[-1] == f"w2{WEST}"
    await delete(east, SHOP.at("shop/e0"))

    def shrunk(existing: Object) -> Object:
        return {**existing, "spec": {**existing["spec"], "replicas": 2}}

    await edit(site.members["west"].client, SHOP.at("shop/w2"), shrunk)


async def test_what_is_sorted_may_be_selected_too(site: Site):
    selected = "&labelSelector=clusterspace.io/cluster%21%3Dwest&fieldSelector=spec.replicas%21%3D3"
    listed = await ask(site, "-.spec.replicas", selected)
    nothing = await ask(site, ".spec.replicas", "&labelSelector=clusterspace.io/cluster%3Dnowhere")

    assert listed.names == [f"e12{EAST}", f"e4{EAST}", "h1"]
    assert (nothing.code, nothing.names, nothing.body["kind"]) == (200, [], "DeploymentList")


async def test_a_token_is_for_the_order_it_was_made_for(site: Site):
    sorted_token = (await ask(site, ".spec.replicas", "&limit=2")).body["metadata"]["continue"]
    plain = await site.ask("GET", f"{PATH}?limit=2")
    plain_token = plain.body["metadata"]["continue"]

    other = await ask(site, ".metadata.name", f"&limit=2&continue={quote(sorted_token)}")
    none = await site.ask("GET", f"{PATH}?limit=2&continue={quote(sorted_token)}")
    mixed = await ask(site, ".spec.replicas", f"&limit=2&continue={quote(plain_token)}")

    assert (other.code, none.code, mixed.code) == (410, 400, 400)


@pytest.mark.parametrize("sort_by", ["..x", "-", "[", "{}", "*"])
async def test_an_order_that_names_no_field_is_refused(site: Site, sort_by: str):
    refused = await ask(site, sort_by)

    assert refused.code == 400
    assert "sortBy" in refused.message


async def test_sorting_is_for_lists_of_all_clusters(site: Site):
    watch = await ask(site, ".spec.replicas", "&watch=1")
    one = PATH.replace("deployments", "clusterspaces/east/deployments")
    of_one = await site.ask("GET", f"{one}?sortBy=.spec.replicas")

    assert watch.code == 400
    assert of_one.code == 200
    assert "labelSelector=clusterspace.io/cluster=east" in of_one.warning


async def test_what_is_to_be_deleted_is_the_hub_s_in_any_order(site: Site):
    headers = (("Kubectl-Command", "kubectl delete"),)
    listed = await site.ask("GET", f"{PATH}?sortBy=.spec.replicas", headers=headers)

    assert listed.names == ["h1"]
