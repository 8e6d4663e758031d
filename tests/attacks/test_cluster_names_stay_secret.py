"""Guessing the names of clusters: who may not reach a cluster cannot tell it from a made-up one."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import Heard, Site, fleet_site, grant, reaching, using

from clusterspace.client.requests import ApiRequest
from clusterspace.errors import ClusterUnreachable
from clusterspace.fleet.gateway.merge import versions
from clusterspace.fleet.gateway.merge.versions import Continue
from clusterspace.fleet.gateway.routes import HUB
from clusterspace.testing.builders import config_map

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOBODY, JANE, CARL = "", "jane-token", "carl-token"
THERE, MADE_UP = "west", "wast"
"""Of the same length: no answer may differ but for the name."""
MAPS = "/api/v1/namespaces/default/configmaps"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
KARMADA = "/apis/cluster.karmada.io/v1alpha1/clusters/{}/proxy"
REVIEW = {
    "apiVersion": "authorization.k8s.io/v1",
    "kind": "SelfSubjectAccessReview",
    "spec": {
        "resourceAttributes": {"resource": "configmaps", "verb": "get", "namespace": "default"}
    },
}
FORMS = (
    MAPS + "/a.clusterspace.{}",
    "/api/v1/namespaces/default.clusterspace.{}/configmaps",
    "/api/v1/namespaces/default.clusterspace.{}",
    "/api/v1/namespaces/default/clusterspaces/{}/configmaps/a",
    "/api/v1/clusterspaces/{}/nodes",
    MAPS + "?fieldSelector=metadata.name%3Da.clusterspace.{}",
    MAPS + "?fieldSelector=metadata.name%3Da.clusterspace.{}&watch=true",
    "/clusterspaces/{}/version",
    "/clusterspaces/{}" + MAPS,
    "/clusterspaces/{}/api/v1/namespaces/default/pods/p/exec?command=ls",
    KARMADA,
    KARMADA + MAPS,
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """Jane reaches east alone; Carl reaches everything."""
    async with fleet_site(tmp_path_factory.mktemp("fleet")) as running:
        await grant(running.hub, "jane", reaching("east"), "jane-reaches")
        await grant(running.hub, "carl", reaching(), "carl-reaches")
        yield running


def without(name: str, answer: Heard) -> tuple[int, str, dict[str, str]]:
    """Return all that an answer tells but for the name, and what differs between any two."""
    headers = {
        key: value for key, value in answer.headers.items() if key not in ("audit-id", "date")
    }
    text = json.dumps(answer.body) if not isinstance(answer.body, bytes) else str(answer.body)
    return answer.code, text.replace(name, "NAME"), headers


async def both(
    site: Site, method: str, form: str, body: dict[str, Any] | None, token: str
) -> tuple[Heard, Heard]:
    """Ask the same of a cluster that is there and of one that is not."""

    def said(name: str) -> Any:
        return None if body is None else json.loads(json.dumps(body).replace("NAME", name))

    there = await site.ask(method, form.format(THERE), said(THERE), token=token)
    made_up = await site.ask(method, form.format(MADE_UP), said(MADE_UP), token=token)
    return there, made_up


@pytest.mark.parametrize("token", [NOBODY, JANE])
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "POST"])
async def test_a_cluster_out_of_reach_looks_like_one_that_is_not_there(
    site: Site, method: str, token: str
):
    body = None if method in ("GET", "DELETE") else config_map("a")
    for form in FORMS:
        there, made_up = await both(site, method, form, body, token)

        assert without(THERE, there) == without(MADE_UP, made_up), form
        assert there.code in (400, 403), form


@pytest.mark.parametrize("token", [NOBODY, JANE])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_silent_cluster_out_of_reach_looks_like_one_that_is_not_there(
    site: Site, method: str, token: str
):
    """Who may reach it is told at once that it does not answer; others are told nothing of it."""
    silence = ClusterUnreachable(THERE, "refused the connection", was_sent=False)
    troubles = site.running.fleet.directory.troubles
    for form in FORMS:
        # Just before each request: it is well, and our own look will find that.
        troubles.note_single(THERE, silence)
        known = await site.ask("GET", MAPS + f"/a.clusterspace.{THERE}", token=CARL)
        troubles.note_single(THERE, silence)
        there, made_up = await both(
            site, method, form, None if method == "GET" else config_map("a"), token
        )

        troubles.let_go(THERE)
        assert known.code == 504
        assert without(THERE, there) == without(MADE_UP, made_up), form
        assert there.code in (400, 403), form


@pytest.mark.parametrize("token", [NOBODY, JANE])
async def test_the_name_in_a_body_tells_no_more(site: Site, token: str):
    created = await both(site, "POST", MAPS, config_map("a.clusterspace.NAME"), token)
    there = json.loads(json.dumps(REVIEW).replace('"default"', '"default.clusterspace.NAME"'))
    reviewed = await both(site, "POST", REVIEWS, there, token)
    explicit = await both(
        site, "POST", REVIEWS.replace("/v1/", "/v1/clusterspaces/{}/"), REVIEW, token
    )

    for there, made_up in (created, reviewed, explicit):
        assert without(THERE, there) == without(MADE_UP, made_up)
        assert there.code == 403


async def test_the_hub_tells_no_more_than_the_gateway(site: Site):
    for who in ("jane", "mallory"):
        heard: list[str] = []
        for name in (THERE, MADE_UP):
            ask = ApiRequest("GET", KARMADA.format(name), headers=(("Impersonate-User", who),))
            answer = await site.hub.client.connection.exchange(ask)
            heard.append(answer.body.decode().replace(name, "NAME"))
            assert answer.status == 403
        assert heard[0] == heard[1]


async def test_who_may_reach_everything_is_told_what_is_not_there(site: Site):
    there, made_up = await both(site, "GET", "/clusterspaces/{}/version", None, CARL)
    created = await both(site, "POST", MAPS, config_map("a.clusterspace.NAME"), CARL)

    assert (there.code, made_up.code) == (200, 404)
    assert "no cluster 'wast' in the fleet" in made_up.message
    assert created[1].code == 400


VERSIONED = (
    MAPS + "?resourceVersion={}",
    MAPS + "?resourceVersion={}&watch=true",
    MAPS
    + "?resourceVersion={}&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watch=true",
    MAPS + "/a.clusterspace.east?resourceVersion={}",
)


@pytest.mark.parametrize("token", [NOBODY, JANE])
async def test_a_version_of_clusters_out_of_reach_is_one_of_clusters_that_are_not_there(
    site: Site, token: str
):
    """Anybody can put a version together that speaks of a name they guess."""
    for form in VERSIONED:
        heard: list[Any] = []
        for name in (THERE, MADE_UP):
            made = versions.encode({HUB: "1", "east": "1", name: "1"})
            answer = await site.ask("GET", form.format(made), token=token)
            heard.append(without(name, answer))
        assert heard[0] == heard[1], form


@pytest.mark.parametrize("token", [NOBODY, JANE])
async def test_so_is_a_token_to_go_on_with(site: Site, token: str):
    heard: list[Any] = []
    for name in (THERE, MADE_UP):
        vector = versions.encode({HUB: "1", name: "1"})
        place = versions.encode_continue(Continue(name, "", vector))
        answer = await site.ask("GET", f"{MAPS}?limit=5&continue={place}", token=token)
        heard.append(without(name, answer))

    assert heard[0] == heard[1]


async def test_so_is_a_version_in_a_body(site: Site):
    await grant(site.members["east"], "jane", using("configmaps"), "jane-uses")
    heard: list[Any] = []
    for name in (THERE, MADE_UP):
        vector = versions.encode({"east": "1", name: "1"})
        made = config_map("a.clusterspace.east", resourceVersion=vector)
        answer = await site.ask("PUT", f"{MAPS}/a.clusterspace.east", made, token=JANE)
        heard.append(without(name, answer))

    assert heard[0] == heard[1]
