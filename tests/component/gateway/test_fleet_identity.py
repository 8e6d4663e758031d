"""Who asks: known by the hub, let through by the hub, and judged by each cluster as themselves."""

import json
import ssl
import urllib.error
import urllib.request
from asyncio import to_thread
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from tests.component.fake_clusters import status
from tests.component.gateway.fleet_site import (
    ROOT,
    Site,
    fake_member,
    fleet_site,
    grant,
    reaching,
    using,
)

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.identities import AGENTS
from clusterspace.apiserver.identity.authority import Authority
from clusterspace.client.requests import ResourcePath
from clusterspace.roots.installation import Installation, write_pair
from clusterspace.testing.builders import CONFIG_MAPS, config_map

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/default/configmaps"
WHO = "/apis/authentication.k8s.io/v1/clusterspaces/{}/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
JANE, CARL = "jane-token", "carl-token"
CLOCK = SystemClock()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """Jane reaches east and may use ConfigMaps there; Carl reaches both, and may in west."""
    async with fleet_site(tmp_path_factory.mktemp("fleet")) as running:
        east, west = running.members["east"], running.members["west"]
        for side, name in ((running.hub, "of-hub"), (east, "of-east"), (west, "of-west")):
            await side.client.create(ResourcePath(CONFIG_MAPS, "default"), config_map(name))
        await grant(running.hub, "jane", reaching("east"), "jane-reaches")
        await grant(running.hub, "carl", reaching(), "carl-reaches")
        await grant(east, "jane", using("configmaps"), "jane-uses")
        await grant(west, "carl", using("configmaps"), "carl-uses")
        yield running


async def test_the_same_token_is_the_same_user_everywhere(site: Site):
    told = {
        cluster: (await site.ask("POST", WHO.format(cluster), REVIEW, token=CARL)).body
        for cluster in ("hub", "east", "west")
    }

    for answer in told.values():
        user = answer["status"]["userInfo"]
        assert user["username"] == "carl"
        assert user["groups"] == ["ops", "system:authenticated"]


async def test_everybody_sees_what_each_cluster_lets_them_see(site: Site):
    jane = await site.ask("GET", MAPS, token=JANE)
    carl = await site.ask("GET", MAPS, token=CARL)

    assert jane.names_with("of-") == ["of-east.clusterspace.east"]
    assert "west" not in json.dumps(jane.body) + jane.warning
    assert "not allowed: karmada" in jane.warning
    assert carl.names_with("of-") == ["of-west.clusterspace.west"]
    assert "2 of 3 clusters not allowed: karmada" in carl.warning


async def test_a_cluster_out_of_reach_is_forbidden_by_the_hub(site: Site):
    got = await site.ask("GET", f"{MAPS}/of-west.clusterspace.west", token=JANE)
    prefix = await site.ask("GET", f"/clusterspaces/west{MAPS}", token=JANE)
    made = await site.ask("POST", MAPS, config_map("x.clusterspace.west"), token=JANE)

    for answer in (got, prefix, made):
        assert (answer.code, answer.body["reason"]) == (403, "Forbidden")
        assert 'User "jane" cannot' in answer.message
        assert '"clusters/proxy"' in answer.message


async def test_a_cluster_within_reach_still_decides_for_itself(site: Site):
    answer = await site.ask("GET", f"{MAPS}/of-east.clusterspace.east", token=CARL)

    assert (answer.code, answer.body["reason"]) == (403, "Forbidden")
    assert 'User "carl" cannot get resource "configmaps"' in answer.message


async def may_i(site: Site, token: str, **asked: str) -> tuple[bool, str]:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"resource": "configmaps", **asked}},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = await site.ask("POST", path, review, token=token)
    assert answer.code == 201, answer.body
    return answer.body["status"]["allowed"], answer.body["status"].get("reason", "")


async def test_may_i_is_answered_for_every_cluster_within_reach(site: Site):
    assert (await may_i(site, ROOT, verb="list"))[0]
    allowed, reason = await may_i(site, JANE, verb="list")

    assert not allowed
    assert reason == "denied in karmada; allowed in east"


async def test_may_i_is_answered_for_the_cluster_in_the_namespace(site: Site):
    there = await may_i(site, JANE, verb="list", namespace="default.clusterspace.east")
    named = await may_i(site, JANE, verb="get", name="a.clusterspace.karmada")

    assert (there[0], named[0]) == (True, False)


async def test_a_continue_token_of_somebody_else_opens_no_door(site: Site):
    first = await site.ask("GET", f"{MAPS}?limit=1")
    token = first.body["metadata"]["continue"]

    answer = await site.ask("GET", f"{MAPS}?limit=100&continue={token}", token=JANE)

    # As if there were no such clusters: the token must not tell her which there are.
    assert (answer.code, answer.body["reason"]) == (410, "Expired")


async def test_wrong_credentials_are_refused_and_none_are_anonymous(site: Site):
    wrong = await site.ask("GET", MAPS, token="made-up")
    anonymous = await site.ask("GET", MAPS, token="")
    health = await site.ask("GET", "/readyz", token="")

    assert (wrong.code, wrong.body["reason"]) == (401, "Unauthorized")
    assert (anonymous.code, anonymous.body["reason"]) == (403, "Forbidden")
    assert '"system:anonymous"' in anonymous.message
    assert (health.code, health.body) == (200, b"ok")


async def test_acting_as_somebody_else_is_for_those_who_may(site: Site):
    as_jane = (("Impersonate-User", "jane"), ("Impersonate-Group", "dev"))

    root = await site.ask("GET", MAPS, headers=as_jane)
    carl = await site.ask("GET", MAPS, headers=as_jane, token=CARL)

    assert root.names_with("of-") == ["of-east.clusterspace.east"]
    assert (carl.code, carl.body["reason"]) == (403, "Forbidden")
    assert "impersonate" in carl.message


async def test_a_member_hears_who_asks_and_nothing_of_how_we_know(site: Site):
    heard: list[dict[str, list[str]]] = []

    async def listening(request: web.Request) -> web.StreamResponse:
        heard.append({name.lower(): request.headers.getall(name) for name in request.headers})
        if request.path.endswith("/configmaps"):
            body: dict[str, Any] = {"kind": "ConfigMapList", "apiVersion": "v1", "items": []}
        else:
            body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}}
        return web.json_response(body)

    dishonest = (
        ("X-Remote-User", "root"),
        ("X-Remote-Group", "system:masters"),
        ("X-Forwarded-For", "10.0.0.1"),
        ("Cookie", "session=1"),
        ("Proxy-Authorization", "Basic eA=="),
        ("Kubectl-Command", "kubectl get"),
        ("User-Agent", "tester/1"),
    )
    async with fake_member(site, "odd", listening):
        for path in (MAPS, f"{MAPS}/x.clusterspace.odd", f"/clusterspaces/odd{MAPS}/x"):
            await site.ask("GET", path, token=CARL, headers=dishonest)
        await site.ask("PUT", f"{MAPS}/x.clusterspace.odd", config_map("x"), token=CARL)

    assert len(heard) >= 4
    for headers in heard:
        assert headers["authorization"] == ["Bearer secret-1"]
        assert headers["impersonate-user"] == ["carl"]
        assert headers["impersonate-group"] == ["ops"]
        assert CARL not in str(headers)
        assert not [name for name in headers if name.startswith(("x-", "cookie", "proxy-"))]
        assert "impersonate-uid" not in headers
    assert heard[0]["user-agent"] == ["tester/1"]
    assert heard[0]["kubectl-command"] == ["kubectl get"]


async def test_a_cluster_that_does_not_know_us_does_not_make_the_client_a_stranger(site: Site):
    async def stranger(_request: web.Request) -> web.StreamResponse:
        return status(401, "Unauthorized")

    async with fake_member(site, "odd", stranger):
        for path in (f"{MAPS}/x.clusterspace.odd", f"/clusterspaces/odd{MAPS}/x"):
            answer = await site.ask("GET", path)

            assert (answer.code, answer.body["reason"]) == (503, "ServiceUnavailable")
            assert "does not accept the credentials" in answer.message


def certificate(site: Site, user: str, *groups: str) -> ssl.SSLContext:
    """Return a client's end of TLS with a certificate of the hub's authority."""
    pki = site.directory / "hub" / "pki"
    authorities = Installation(site.directory / "hub").prepare(CLOCK.now(), ())
    name = user.replace(":", "-")
    write_pair(
        authorities.signing.issue_client(user, groups, CLOCK.now()),
        pki / f"{name}.crt",
        pki / f"{name}.key",
    )
    context = ssl.create_default_context(cafile=str(site.directory / "fleet" / "pki" / "ca.crt"))
    context.load_cert_chain(pki / f"{name}.crt", pki / f"{name}.key")
    return context


async def ask_with(context: ssl.SSLContext, url: str) -> tuple[int, Any]:
    def ask() -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(url, context=context, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    return await to_thread(ask)


async def test_a_certificate_of_the_hub_counts_here(site: Site):
    code, body = await ask_with(certificate(site, "jane"), site.url + MAPS)

    assert code == 200
    names = {each["metadata"]["name"] for each in body["items"]}
    assert "of-east.clusterspace.east" in names
    assert not any(name.startswith(("of-west", "of-hub")) for name in names)


async def test_an_agent_has_no_business_here(site: Site):
    context = certificate(site, "system:karmada:agent:east", AGENTS)

    code, body = await ask_with(context, site.url + MAPS)

    assert (code, body["reason"]) == (401, "Unauthorized")


async def test_a_certificate_of_somebody_else_ends_the_handshake(site: Site, tmp_path: Path):
    stranger = Authority.create("stranger", CLOCK.now())
    pair = stranger.issue_client("root", ("system:masters",), CLOCK.now())
    write_pair(pair, tmp_path / "x.crt", tmp_path / "x.key")
    context = ssl.create_default_context(cafile=str(site.directory / "fleet" / "pki" / "ca.crt"))
    context.load_cert_chain(tmp_path / "x.crt", tmp_path / "x.key")

    with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
        await ask_with(context, site.url + MAPS)
