"""Clients that ask for protobuf first, at the fleet address: answers that are merged are JSON."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site
from tests.component.gateway.watch_streams import watching

from clusterspace.client.requests import ResourcePath
from clusterspace.kube.protobuf.bodies import decode
from clusterspace.testing.builders import CONFIG_MAPS, config_map

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/default/configmaps"
PROTOBUF = "application/vnd.kubernetes.protobuf"
TYPED = (("Accept", f"{PROTOBUF},application/json"),)
ONLY = (("Accept", PROTOBUF),)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("fleet")) as running:
        for side in (running.hub, *running.members.values()):
            await side.client.create(ResourcePath(CONFIG_MAPS, "default"), config_map("both"))
        yield running


async def test_a_merged_list_is_json(site: Site) -> None:
    listed = await site.ask("GET", MAPS, headers=TYPED)

    assert listed.headers["content-type"] == "application/json"
    assert {"both", "both.clusterspace.east", "both.clusterspace.west"} <= {*listed.names}


@pytest.mark.parametrize("name", ["both.clusterspace.west", "none.clusterspace.west"])
async def test_a_renamed_object_is_json(site: Site, name: str) -> None:
    answer = await site.ask("GET", f"{MAPS}/{name}", headers=TYPED)

    assert answer.headers["content-type"] == "application/json"


async def test_the_refusal_of_protobuf_alone_does_not_offer_it(site: Site) -> None:
    answer = await site.ask("GET", MAPS, headers=ONLY)

    assert answer.code == 406
    assert answer.headers["content-type"] == PROTOBUF
    told = decode(answer.body)["message"]
    assert told.endswith("Available representations: application/json, application/yaml")


@pytest.mark.parametrize("cluster", ["hub", "west"])
async def test_one_cluster_as_a_whole_answers_in_its_own_form(site: Site, cluster: str) -> None:
    answer = await site.ask("GET", f"/clusterspaces/{cluster}{MAPS}/both", headers=TYPED)
    missing = await site.ask("GET", f"/clusterspaces/{cluster}{MAPS}/none", headers=TYPED)

    assert answer.headers["content-type"] == missing.headers["content-type"] == PROTOBUF
    assert decode(answer.body)["metadata"]["name"] == "both"
    assert decode(missing.body)["reason"] == "NotFound"


async def test_the_watch_of_one_member_is_json(site: Site) -> None:
    path = f"/clusterspaces/west{MAPS}?watch=1"
    async with watching(site.connection(ROOT), path, accept=TYPED[0][1]) as stream:
        await stream.until_told(("ADDED", "both"))

        assert stream.headers["content-type"] == "application/json"


async def test_the_watch_of_one_member_is_refused_in_protobuf_alone(site: Site) -> None:
    answer = await site.ask("GET", f"/clusterspaces/west{MAPS}?watch=1", headers=ONLY)

    assert answer.code == 406
