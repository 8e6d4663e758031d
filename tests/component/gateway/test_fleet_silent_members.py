"""Members that are frozen, refuse or are gone: whoever names one is told so, at once or soon.

`frozen` takes requests and never answers, `refusing` is an address where nobody listens, and `dead`
takes connections and does not even begin TLS.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, nullcontext
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from tests.component.gateway.fleet_site import ROOT, Site, fake_member, fleet_site, member_at
from tests.component.gateway.silent_members import LOOK, NOBODY_LISTENS, Frozen, dead_member

from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.upgrades import open_tunnel
from clusterspace.errors import ApiError
from clusterspace.testing.builders import CONFIG_MAPS, config_map
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIST_SECONDS = 1.0
REQUEST_SECONDS = 55.0
MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYS = "/apis/apps/v1/namespaces/default/deployments"
PODS = "/api/v1/namespaces/default/pods"
SCALE: dict[str, Any] = {"spec": {"replicas": 3}}

WAYS: dict[str, tuple[str, str, Any]] = {
    "get": ("GET", DEPLOYS + "/web.clusterspace.{}", None),
    "get in the namespace": (
        "GET", "/apis/apps/v1/namespaces/default.clusterspace.{}/deployments/web", None,
    ),
    "list in the namespace": ("GET", "/api/v1/namespaces/default.clusterspace.{}/pods", None),
    "get by the path": ("GET", "/api/v1/namespaces/default/clusterspaces/{}/pods/p", None),
    "watch": ("GET", "/api/v1/namespaces/default.clusterspace.{}/pods?watch=true", None),
    "whatever behind the prefix": ("GET", "/clusterspaces/{}/api/v1/nodes", None),
    "Karmada's proxy": (
        "GET", "/apis/cluster.karmada.io/v1alpha1/clusters/{}/proxy/api/v1/nodes", None,
    ),
    "logs": ("GET", PODS + "/p.clusterspace.{}/log?follow=true", None),
    "scale": ("PATCH", DEPLOYS + "/web.clusterspace.{}/scale", SCALE),
    "create": ("POST", "/api/v1/namespaces/default.clusterspace.{}/configmaps", config_map("c")),
    "delete": ("DELETE", PODS + "/p.clusterspace.{}", None),
    "exec": ("GET", PODS + "/p.clusterspace.{}/exec?command=ls&stdout=true", None),
}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    directory = tmp_path_factory.mktemp("fleet")
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(
            fleet_site(directory, members=("east",), list_seconds=LIST_SECONDS)
        )
        await stack.enter_async_context(member_at(running, "refusing", NOBODY_LISTENS))
        yield running


async def ask(site: Site, way: str, cluster: str) -> tuple[int, str, dict[str, str]]:
    """Ask one member in one way, and return the code, the sentence and the headers."""
    method, form, body = WAYS[way]
    path = form.format(cluster)
    if way == "exec":
        headers = (
            ("Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
            ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
            ("Sec-WebSocket-Version", "13"),
        )
        request = ApiRequest(method, path, headers=headers)
        try:
            async with open_tunnel(site.connection(ROOT), request, "websocket"):
                return 101, "", {}
        except ApiError as error:
            return error.code, error.message, {}
    patch = "application/merge-patch+json" if method == "PATCH" else "application/json"
    answer = await site.ask(method, path, body, content_type=patch)
    return answer.code, answer.message, answer.headers


async def until_known(site: Site, cluster: str) -> None:
    async def is_known() -> bool:
        return site.running.fleet.directory.troubles.find_silence(cluster) is not None

    await until(is_known)


async def test_a_frozen_member_does_not_hang_who_names_it(site: Site):
    """Nobody knows yet: the wait ends long before the member had its time to answer."""
    async with fake_member(site, "frozen", Frozen()), asyncio.timeout(REQUEST_SECONDS / 2):
        answers = await asyncio.gather(*(ask(site, way, "frozen") for way in WAYS))

    for code, sentence, headers in answers:
        assert code == 504
        assert sentence.startswith("cluster frozen: gave no answer within ")
        assert "\n" not in sentence
        assert "retry-after" not in headers


async def test_a_member_known_to_be_frozen_is_not_asked_again(site: Site):
    frozen = Frozen()
    async with fake_member(site, "frozen", frozen):
        directory = site.running.fleet.directory
        await directory.troubles.look("frozen", directory.find_connection, 0.1)
        before = frozen.asked_but_for_looks

        answers = [await ask(site, way, "frozen") for way in WAYS]

        assert frozen.asked_but_for_looks == before
    for code, sentence, headers in answers:
        assert code == 504
        assert sentence.startswith("cluster frozen: gave no answer within ")
        # Nothing was sent this time, so nothing can have been carried out.
        assert "carried out" not in sentence
        assert "retry-after" not in headers


@pytest.mark.parametrize(
    ("cluster", "why"),
    [("refusing", "refused the connection"), ("dead", "gave no answer within ")],
)
async def test_a_member_that_refuses_or_is_dead_is_one_sentence(site: Site, cluster: str, why: str):
    async def ask_unknown(way: str) -> tuple[int, str, dict[str, str]]:
        site.running.fleet.directory.troubles.let_go(cluster)  # as if nobody had asked it yet
        return await ask(site, way, cluster)

    # Not for all tests: each look at members in trouble takes as long as that at the dead one.
    async with dead_member(site, cluster) if cluster == "dead" else nullcontext():
        answers = await asyncio.gather(*map(ask_unknown, WAYS))

    for code, sentence, headers in answers:
        assert code == 504
        assert sentence.startswith(f"cluster {cluster}: {why}")
        assert "retry-after" not in headers


async def test_a_member_that_is_slow_and_alive_is_waited_for(site: Site):
    """A webhook may think for longer than a list waits: only who is silent is given up."""
    looks = 0

    async def slow(request: web.Request) -> web.StreamResponse:
        nonlocal looks
        if request.path == LOOK:
            looks += 1
            return web.Response(text="ok")

        async def was_looked_at_twice() -> bool:
            return looks > 1

        await until(was_looked_at_twice)
        metadata = {"name": "c", "namespace": "default", "resourceVersion": "1"}
        made = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}
        return web.json_response(made, status=201)

    async with fake_member(site, "slow", slow):
        answer = await site.ask(
            "POST", "/api/v1/namespaces/default.clusterspace.slow/configmaps", config_map("c")
        )

    assert answer.code == 201, answer.body


async def test_a_member_that_has_thawed_is_asked_again(site: Site):
    frozen = Frozen()
    async with fake_member(site, "frozen", frozen):
        await site.ask("GET", f"{MAPS}/a.clusterspace.frozen")
        frozen.has_thawed.set()

        async def answers() -> bool:
            return (await site.ask("GET", f"{MAPS}/a.clusterspace.frozen")).code == 200

        await until(answers)


async def test_a_member_that_the_hub_holds_for_not_ready_is_looked_at_before_anybody_asks(
    site: Site,
):
    frozen = Frozen()
    async with fake_member(site, "frozen", frozen):
        ready = {
            "type": "Ready",
            "status": "False",
            "reason": "ClusterNotReachable",
            "message": "the cluster is not reachable",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        status = {"conditions": [ready]}
        path = "/clusterspaces/hub/apis/cluster.karmada.io/v1alpha1/clusters/frozen/status"
        patched = await site.ask(
            "PATCH", path, {"status": status}, content_type="application/merge-patch+json"
        )
        assert patched.code == 200, patched.body

        await until_known(site, "frozen")

    assert frozen.asked_but_for_looks == 0


async def test_the_hub_is_not_slowed_by_members_that_are_silent(site: Site):
    frozen = Frozen()
    async with fake_member(site, "frozen", frozen):
        await site.hub.client.create(ResourcePath(CONFIG_MAPS, "default"), config_map("own"))

        own = await site.ask("GET", f"{MAPS}/own")
        east = await site.ask("GET", f"{MAPS}/kube-root-ca.crt.clusterspace.east")

    assert (own.code, frozen.asked) == (200, {})
    assert east.code in (200, 404)


async def test_discovery_waits_for_a_frozen_member_once_and_has_it_looked_at(site: Site):
    frozen = Frozen()
    async with fake_member(site, "frozen", frozen):
        first = await site.ask("GET", "/apis")
        await until_known(site, "frozen")
        before = frozen.asked_but_for_looks
        again = [await site.ask("GET", path) for path in ("/api", "/apis", "/openapi/v3")]

        assert frozen.asked_but_for_looks == before

    assert {first.code, *(each.code for each in again)} == {200}
