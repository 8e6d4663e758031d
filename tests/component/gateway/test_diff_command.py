"""`clusterspace diff` against a running fleet: who has which version, and who did not say."""

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from aiohttp import web
from click.testing import CliRunner, Result
from tests.component.fake_clusters import status
from tests.component.gateway.fleet_site import ROOT, Site, fake_member, fleet_site

from clusterspace.cli.commands.diff import diff
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import Object
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    config_map,
    deployment,
    namespace,
)
from clusterspace.testing.stage import Side

pytestmark = pytest.mark.asyncio(loop_scope="module")


def web_of(image: str, replicas: int) -> Object:
    made = deployment("web", namespace="shop", replicas=replicas)
    pod = {"containers": [{"name": "main", "image": image}]}
    template = {**made["spec"]["template"], "spec": pod}
    return {**made, "spec": {**made["spec"], "template": template}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """The hub, a and b have web:v5, c has web:v4, and d has none."""
    directory = tmp_path_factory.mktemp("fleet")
    async with fleet_site(directory, members=("a", "b", "c", "d")) as running:

        async def fill(side: Side, image: str, replicas: int) -> None:
            await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
            await side.client.create(ResourcePath(DEPLOYMENTS, "shop"), web_of(image, replicas))
            made = config_map("settings", {"k": image}, namespace="shop")
            await side.client.create(ResourcePath(CONFIG_MAPS, "shop"), made)

        await fill(running.hub, "registry.example:5000/web:v5", 1)
        await fill(running.members["a"], "registry.example:5000/web:v5", 1)
        await fill(running.members["b"], "registry.example:5000/web:v5", 2)
        await fill(running.members["c"], "registry.example:5000/web:v4", 2)
        yield running


async def ask(site: Site, *words: str) -> Result:
    authority = site.directory / site.data_name / "pki" / "ca.crt"
    place = {"server": site.url, "certificate-authority": str(authority)}
    document = {
        "clusters": [{"name": "fleet", "cluster": place}],
        "users": [{"name": "root", "user": {"token": ROOT}}],
        "contexts": [{"name": "fleet", "context": {"cluster": "fleet", "user": "root"}}],
    }
    kubeconfig = site.directory / "diff.kubeconfig"
    kubeconfig.write_text(json.dumps(document))
    arguments = [*words, "--kubeconfig", str(kubeconfig)]
    return await asyncio.to_thread(CliRunner().invoke, diff, arguments)


async def test_clusters_that_are_alike_are_counted_together(site: Site):
    shown = await ask(site, "deploy/web", "-n", "shop", "-o", "summary")
    by_version = await ask(site, "deploy", "web", "-n", "shop", "--by", "version", "-o", "summary")
    by_field = await ask(site, "deploy/web", "-n", "shop", "--field", "spec.replicas")
    content = await ask(site, "cm/settings", "-n", "shop", "-o", "json")

    image = "registry.example:5000/web"
    assert shown.output == f"2 clusters {image}:v5, 1 {image}:v4 (c)\n"
    assert by_version.output == "2 clusters v5, 1 v4 (c)\n"
    assert [line.split() for line in by_field.output.splitlines()] == [
        ["COUNT", ".SPEC.REPLICAS", "CLUSTERS"],
        ["2", "2", "b,", "c"],
        ["1", "1", "a"],
        ["1", "<not", "there>", "d"],
    ]
    groups = json.loads(content.output)["groups"]
    assert [each["clusters"] for each in groups] == [["a", "b"], ["c"]]
    assert all(each["value"].startswith("content ") for each in groups)


async def test_who_could_not_be_asked_is_named_and_not_counted_as_without_it(site: Site):
    async def fail(_: web.Request) -> web.StreamResponse:
        return status(500, "InternalError")

    async with fake_member(site, "lost", fail):
        read = await ask(site, "deployment/web", "-n", "shop", "-o", "json")
        shown = await ask(site, "deployment/web", "-n", "shop", "-o", "summary")

    found = json.loads(read.output)
    assert found["absent"] == ["d"]
    assert [each["cluster"] for each in found["notAsked"]] == ["lost"]
    assert found["template"] == "registry.example:5000/web:v5"
    assert sum(len(each["clusters"]) for each in found["groups"]) == 3
    assert "not asked: lost: " in shown.output


async def test_what_nobody_has_is_said_so(site: Site):
    shown = await ask(site, "deploy/none", "-n", "shop", "-o", "summary")

    assert shown.output == "in none of the clusters that answered\n"


@pytest.mark.parametrize(
    "words", [["deploy"], ["deploy/web", "--field", "[x"], ["deploy/web/x"], ["riddle/x"]]
)
async def test_what_cannot_be_asked_is_refused_in_a_sentence(site: Site, words: list[str]):
    refused = await ask(site, *words)

    assert refused.exit_code in (1, 2)
    assert "Error: " in refused.output
