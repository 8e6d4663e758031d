"""What is about the fleet itself, the view without the hub, and the kubeconfig for all of it."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from tests.component.gateway.fleet_site import HOSTILE, ROOT, Site, fake_member, fleet_site

from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.kubeconfigs import all_contexts, fleet_settings
from clusterspace.testing.builders import CONFIG_MAPS, config_map
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/default/configmaps"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
DEFINITIONS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"plural": "widgets", "kind": "Widget", "singular": "widget"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """A view without the hub; `only` is in west, `both` in both members."""
    directory = tmp_path_factory.mktemp("fleet")
    async with fleet_site(directory, federation=False, list_seconds=1.0) as running:
        maps = ResourcePath(CONFIG_MAPS, "default")
        await running.members["west"].client.create(maps, config_map("only"))
        for side in running.members.values():
            await side.client.create(maps, config_map("both"))
        yield running


async def test_a_bare_name_that_is_in_one_cluster_is_found_there(site: Site):
    answer = await site.ask("GET", f"{MAPS}/only")

    assert (answer.code, answer.body["metadata"]["name"]) == (200, "only")
    assert "only was found in cluster west: only.clusterspace.west" in answer.warning


async def test_a_bare_name_that_is_in_several_is_asked_back_about(site: Site):
    answer = await site.ask("GET", f"{MAPS}/both")

    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")
    assert "both.clusterspace.east, both.clusterspace.west" in answer.message


async def test_a_bare_name_that_is_nowhere_is_not_found(site: Site):
    answer = await site.ask("GET", f"{MAPS}/nowhere")

    assert (answer.code, answer.body["reason"]) == (404, "NotFound")


async def test_a_bare_name_cannot_be_judged_while_a_cluster_is_silent(site: Site):
    async def silent(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=502, text="bad gateway")

    async with fake_member(site, "odd", silent):
        answer = await site.ask("GET", f"{MAPS}/nowhere")

    assert (answer.code, answer.body["reason"]) == (503, "ServiceUnavailable")


async def test_a_bare_name_is_never_written_to(site: Site):
    made = await site.ask("POST", MAPS, config_map("new"))
    deleted = await site.ask("DELETE", f"{MAPS}/only")

    assert (made.code, deleted.code) == (400, 400)
    assert "new.clusterspace.CLUSTER" in made.message
    assert await site.members["west"].client.find(ResourcePath(CONFIG_MAPS, "default", "only"))


async def test_the_hub_is_not_in_the_lists(site: Site):
    names = (await site.ask("GET", MAPS)).names

    assert {name.rpartition(".")[2] for name in names} == {"east", "west"}


async def test_discovery_is_the_union_of_all_clusters(site: Site):
    await site.members["west"].client.create(ResourcePath(DEFINITIONS), WIDGETS)

    async def is_served() -> bool:
        return (await site.ask("GET", "/apis/example.com/v1")).code == 200

    await until(is_served)
    roots = [
        await site.ask("GET", path, headers=(("Accept", AGGREGATED),)) for path in ("/api", "/apis")
    ]
    legacy = await site.ask("GET", "/apis")
    tag = roots[1].headers["etag"]
    known = await site.ask("GET", "/apis", headers=(("Accept", AGGREGATED), ("If-None-Match", tag)))

    groups = {group["metadata"].get("name", "") for each in roots for group in each.body["items"]}
    assert {"", "apps", "example.com", "cluster.karmada.io"} <= groups
    assert roots[0].headers["content-type"].endswith("as=APIGroupDiscoveryList")
    assert "example.com" in {group["name"] for group in legacy.body["groups"]}
    assert known.code == 304
    assert (await site.ask("GET", "/apis/nobody.example")).code == 404


async def test_a_kind_that_one_cluster_has_is_listed(site: Site):
    widget: Any = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    path = "/apis/example.com/v1/namespaces/default/widgets"
    created = await site.ask("POST", f"/clusterspaces/west{path}", widget)

    answer = await site.ask("GET", path)

    assert created.code == 201
    assert (answer.code, answer.names, answer.warning) == (200, ["w.clusterspace.west"], "")


async def test_schemas_of_every_cluster_are_found(site: Site):
    index = await site.ask("GET", "/openapi/v3")
    paths = index.body["paths"]

    widgets = await site.ask("GET", paths["apis/example.com/v1"]["serverRelativeURL"])
    core = await site.ask("GET", paths["api/v1"]["serverRelativeURL"])

    assert "com.example.v1.Widget" in widgets.body["components"]["schemas"]
    assert core.code == 200
    assert (await site.ask("GET", "/openapi/v3/apis/nobody.example/v1")).code == 404


async def test_the_fleet_has_a_version_and_is_well(site: Site):
    version = await site.ask("GET", "/version")
    metrics = await site.ask("GET", "/metrics")

    assert (version.body["major"], version.body["minor"]) == ("1", "35")
    assert b"apiserver_request_total" in metrics.body
    assert (await site.ask("GET", "/metrics", token="jane-token")).code == 403
    assert (await site.ask("POST", "/version", {"x": 1})).code == 405


async def test_a_cluster_that_joins_is_in_the_next_list(site: Site):
    async def empty(_request: web.Request) -> web.StreamResponse:
        item = {"metadata": {"name": "late"}}
        listed = {"kind": "ConfigMapList", "apiVersion": "v1", "items": [item]}
        return web.json_response({**listed, "metadata": {"resourceVersion": "1"}})

    before = await site.ask("GET", MAPS)
    async with fake_member(site, "new", empty):
        during = await site.ask("GET", MAPS)
    after = await site.ask("GET", MAPS)

    assert "late.clusterspace.new" in during.names
    assert before.names == after.names
    vanished = during.body["metadata"]["resourceVersion"]
    assert (await site.ask("GET", f"{MAPS}?resourceVersion={vanished}")).code == 410


async def test_one_kubeconfig_leads_to_every_cluster(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    parts = [str(site.directory / each / "kubeconfig") for each in ("fleet", "hub")]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(parts))
    own = fleet_settings(None)
    written = tmp_path / "all.yaml"
    written.write_bytes(await all_contexts(own))

    config = read_kubeconfig([written])
    seen: dict[str, bool] = {}
    for context in (each for each in config.contexts if each != HOSTILE):
        settings = config.settings(context)
        async with client_for_test(settings) as client:
            maps = await client.list_objects(ResourcePath(CONFIG_MAPS, "default"))
            seen[context] = "only" in {each["metadata"]["name"] for each in maps}

    assert seen == {"fleet": False, "hub": False, "east": False, "west": True}
    assert config.current_context == "fleet"
    assert ROOT not in yaml.safe_dump(yaml.safe_load(written.read_text()))


async def test_version_2_of_the_schemas_is_that_of_the_first_cluster_reached(site: Site):
    """Clients read version 3, which is a union; what still reads version 2 gets a whole one."""
    answer = await site.ask("GET", "/openapi/v2")
    again = await site.ask(
        "GET", "/openapi/v2", headers=(("If-None-Match", answer.headers["etag"]),)
    )

    assert answer.code == 200
    assert "io.k8s.api.core.v1.Pod" in answer.body["definitions"]
    assert again.code == 304
