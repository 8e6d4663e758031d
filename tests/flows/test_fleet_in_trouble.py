"""Ten members, four of them in trouble: the rest is shown in time, and who is missing is said."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from tests.component.gateway.fleet_site import TABLE, Site, fake_member, fleet_site, member_at

from clusterspace.client.requests import ResourcePath
from clusterspace.testing.builders import CONFIG_MAPS, DEPLOYMENTS, config_map, deployment

pytestmark = pytest.mark.asyncio(loop_scope="module")

WELL = tuple(f"m{number}" for number in range(6))
DEADLINE = 2.0
SLACK = 3.0
"""What a busy machine may take on top; the slow member would take ten times as long."""
MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYS = "/apis/apps/v1/namespaces/default/deployments"
IN_TROUBLE = {
    "down": "refused the connection",
    "page": "answered 200 with text/html",
    "slow": f"gave no answer within {DEADLINE:g}s",
}


async def slow(_request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(30)
    return web.json_response({"kind": "ConfigMapList", "apiVersion": "v1", "items": []})


async def page(_request: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>Please log in</html>", content_type="text/html")


async def half(request: web.Request) -> web.StreamResponse:
    """Serve the core group, and none of the others."""
    if not request.path.startswith("/api/v1"):
        return web.Response(status=404, text="404 page not found\n")
    item = {"metadata": {"name": "same", "namespace": "default", "resourceVersion": "1"}}
    if request.path == MAPS:
        metadata = {"resourceVersion": "1"}
        listed = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata}
        return web.json_response({**listed, "items": [item]})
    return web.json_response({"kind": "ConfigMap", "apiVersion": "v1", **item})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    directory = tmp_path_factory.mktemp("fleet")
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(
            fleet_site(directory, members=WELL, list_seconds=DEADLINE, request_seconds=DEADLINE)
        )
        for side in running.members.values():
            await side.client.create(ResourcePath(CONFIG_MAPS, "default"), config_map("same"))
            await side.client.create(ResourcePath(DEPLOYMENTS, "default"), deployment("same"))
        for name, handle in (("half", half), ("page", page), ("slow", slow)):
            await stack.enter_async_context(fake_member(running, name, handle))
        await stack.enter_async_context(member_at(running, "down", "https://127.0.0.1:1"))
        yield running


@pytest.mark.parametrize("accept", ["application/json", TABLE], ids=["json", "table"])
async def test_a_list_answers_within_the_deadline_with_the_rest_and_says_so(
    site: Site, accept: str
):
    site.running.fleet.directory.troubles.let_go("slow")  # as if nobody had asked it yet
    loop = asyncio.get_running_loop()
    started = loop.time()

    answer = await site.ask("GET", MAPS, headers=(("Accept", accept),))

    assert loop.time() - started < DEADLINE + SLACK
    assert answer.code == 200
    assert names_in(answer.body) == [f"same.clusterspace.{each}" for each in ("half", *WELL)]
    assert answer.warning.startswith('299 - "the answer is incomplete: 3 of 11 clusters')
    for cluster, why in IN_TROUBLE.items():
        assert f"{cluster} ({why})" in answer.warning
    assert "127.0.0.1" not in answer.warning


def names_in(body: Any) -> list[str]:
    if body["kind"] == "Table":
        shown = [row["cells"][0] for row in body["rows"]]
    else:
        shown = [each["metadata"]["name"] for each in body["items"]]
    return [name for name in shown if name.startswith("same")]


async def test_a_member_with_half_the_apis_is_in_the_lists_of_the_other_half(site: Site):
    deployments = await site.ask("GET", DEPLOYS)

    assert names_in(deployments.body) == [f"same.clusterspace.{each}" for each in WELL]
    assert "half" not in deployments.warning
    assert "3 of 10 clusters unreachable" in deployments.warning


async def test_the_next_list_does_not_wait_for_those_in_trouble(site: Site):
    await site.ask("GET", MAPS)
    loop = asyncio.get_running_loop()
    started = loop.time()

    answer = await site.ask("GET", MAPS)

    assert loop.time() - started < DEADLINE
    assert "slow (gave no answer" in answer.warning


@pytest.mark.parametrize("cluster", IN_TROUBLE)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_nothing_unreachable_is_reported_as_not_found(site: Site, cluster: str, method: str):
    answer = await site.ask(method, f"{MAPS}/same.clusterspace.{cluster}")

    assert answer.code in (503, 504), answer.body
    assert answer.body["reason"] in ("ServiceUnavailable", "Timeout")
    assert cluster in answer.message
    assert "127.0.0.1" not in answer.message


async def test_what_is_really_missing_is_not_found(site: Site):
    missing = await site.ask("GET", f"{MAPS}/none.clusterspace.m0")
    lacking = await site.ask("GET", f"{DEPLOYS}/same.clusterspace.half")

    assert (missing.code, missing.body["reason"]) == (404, "NotFound")
    assert lacking.code == 404


async def test_who_keeps_a_copy_gets_all_or_nothing(site: Site):
    cached = await site.ask("GET", f"{MAPS}?resourceVersion=0")

    assert (cached.code, cached.body["reason"]) == (503, "ServiceUnavailable")
    assert cached.headers["retry-after"] == "1"
    assert all(cluster in cached.message for cluster in IN_TROUBLE)
