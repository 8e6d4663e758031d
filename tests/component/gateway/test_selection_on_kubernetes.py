"""Virtual labels, any field and sorted pages, with a real kube-apiserver among the members."""

from collections.abc import AsyncGenerator
from urllib.parse import quote

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import Site, fleet_site
from tests.component.gateway.watch_streams import watching

from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import Object
from clusterspace.testing.builders import NAMESPACES, SECRETS, namespace, secret
from clusterspace.testing.steps import edit

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

PATH = "/api/v1/namespaces/shop/secrets"
SHOP = ResourcePath(SECRETS, "shop")
EAST, SOUTH = ".clusterspace.east", ".clusterspace.south"
ONE, TWO, THREE = "MQ==", "Mg==", "Mw=="
IS_ONE, OTHER_THAN_ONE = "data.k=MQ\\=\\=", "data.k!=MQ\\=\\="


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """East, ours, has b (2); south, a kube-apiserver, has a (1) and c (3)."""
    async with fleet_site(tmp_path_factory.mktemp("fleet"), members=("east",)) as running:
        running.members["south"] = await running.fleet.add_kubernetes("south")
        await running.fleet.join("south", running.members["south"])
        await running.wait_for("south")
        for cluster, names in (("east", "b"), ("south", "ac")):
            client = running.members[cluster].client
            await client.create(ResourcePath(NAMESPACES), namespace("shop"))
            for name in names:
                value = {"a": ONE, "b": TWO, "c": THREE}[name]
                made = {**secret(name, {}, namespace="shop"), "data": {"k": value}}
                await client.create(SHOP, made)
        yield running


async def test_lists_are_selected_by_cluster_and_by_any_field_and_sorted(site: Site):
    by_label = await site.ask("GET", f"{PATH}?labelSelector=clusterspace.io/cluster%3Dsouth")
    not_south = await site.ask("GET", f"{PATH}?labelSelector=clusterspace.io/cluster%21%3Dsouth")
    in_south = "/api/v1/namespaces/shop/clusterspaces/south/secrets"
    of_none = await site.ask("GET", f"{in_south}?labelSelector=clusterspace.io/cluster%3Deast")
    by_field = await site.ask("GET", f"{PATH}?fieldSelector={quote(OTHER_THAN_ONE)}")
    names: list[str] = []
    token = ""
    while not names or token:
        page = await site.ask("GET", f"{PATH}?sortBy=-.data.k&limit=1&continue={quote(token)}")
        names += page.names
        token = page.body["metadata"].get("continue", "")

    assert by_label.names == [f"a{SOUTH}", f"c{SOUTH}"]
    assert not_south.names == [f"b{EAST}"]
    assert (of_none.code, of_none.names) == (200, [])
    assert by_field.names == [f"b{EAST}", f"c{SOUTH}"]
    assert names == [f"c{SOUTH}", f"b{EAST}", f"a{SOUTH}"]


async def test_a_watch_by_any_field_goes_on_from_a_list(site: Site):
    selector = f"fieldSelector={quote(IS_ONE)}"
    listed = await site.ask("GET", f"{PATH}?{selector}")
    version = quote(listed.body["metadata"]["resourceVersion"])
    south = site.members["south"].client

    def with_value(value: str) -> Object:
        return {"data": {"k": value}}

    async with watching(
        site.connection("root-token"), f"{PATH}?{selector}&watch=1&resourceVersion={version}"
    ) as found:
        await edit(south, SHOP.at("shop/c"), lambda each: {**each, **with_value(ONE)})
        await edit(south, SHOP.at("shop/a"), lambda each: {**each, **with_value(TWO)})
        await found.until(lambda each: len(each.told) >= 2)

    assert listed.names == [f"a{SOUTH}"]
    assert found.told == [("ADDED", f"c{SOUTH}"), ("DELETED", f"a{SOUTH}")]


async def test_a_deletion_that_names_a_cluster_by_label_reaches_that_one_alone(site: Site):
    answer = await site.ask("DELETE", f"{PATH}?labelSelector=clusterspace.io/cluster%3Dsouth")
    left = await site.ask("GET", PATH)

    assert answer.code == 200, answer.body
    assert left.names == [f"b{EAST}"]
