"""The first page of a list asks every cluster, and few of them for all that fits."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import Site, fleet_site

from clusterspace.client.requests import ResourcePath
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/shop/configmaps?fieldSelector=metadata.name%21%3Dkube-root-ca.crt"
"""All but the one that every namespace has."""
COUNTS = {"a": 0, "b": 3, "c": 7, "d": 1, "e": 4, "f": 9}
"""How many objects each member has: none is asked for as many as the largest has."""
EVERYTHING = [
    f"{cluster}{number}.clusterspace.{cluster}"
    for cluster, count in COUNTS.items()
    for number in range(count)
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    directory = tmp_path_factory.mktemp("fleet")
    async with fleet_site(directory, members=tuple(COUNTS), federation=False) as running:
        for cluster, count in COUNTS.items():
            member = running.members[cluster].client
            await member.create(ResourcePath(NAMESPACES), namespace("shop"))
            for number in range(count):
                made = config_map(f"{cluster}{number}", {"k": "v"}, namespace="shop")
                await member.create(ResourcePath(CONFIG_MAPS, "shop"), made)
        yield running


@pytest.mark.parametrize("limit", [*range(1, 12), 24, 25, 500])
async def test_pages_add_up_though_most_clusters_were_asked_for_little(site: Site, limit: int):
    found: list[str] = []
    versions: set[str] = set()
    token = ""
    for _ in range(2 * len(EVERYTHING)):
        page = await site.ask("GET", f"{MAPS}&limit={limit}&continue={token}")
        assert page.code == 200, page.body
        assert len(page.names) <= limit
        found += page.names
        versions.add(page.body["metadata"]["resourceVersion"])
        token = page.body["metadata"].get("continue", "")
        if not token:
            break

    assert found == EVERYTHING
    assert len(versions) == 1
