"""Lists of every cluster: whole, page by page, and with some clusters missing."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from aiohttp import web
from tests.component.fake_clusters import Handle, status
from tests.component.gateway.fleet_site import TABLE, Site, fake_member, fleet_site, member_at

from clusterspace.client.requests import ResourcePath
from clusterspace.testing.builders import NAMESPACES, namespace, secret
from clusterspace.testing.builders import SECRETS as SECRETS_KIND
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRETS = "/api/v1/namespaces/shop/secrets"
EVERYTHING = [
    "h0",
    "e0.clusterspace.east",
    "e1.clusterspace.east",
    "e2.clusterspace.east",
    "w0.clusterspace.west",
    "w1.clusterspace.west",
]
AS_TABLE = (("Accept", TABLE),)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """A hub with one Secret in `shop`, east with three, west with two."""
    async with fleet_site(tmp_path_factory.mktemp("fleet"), list_seconds=1.0) as running:
        sides = {"h": (running.hub, 1)}
        sides |= {"e": (running.members["east"], 3), "w": (running.members["west"], 2)}
        for letter, (side, count) in sides.items():
            await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
            for number in range(count):
                made = secret(f"{letter}{number}", {"k": letter}, namespace="shop")
                labelled = {**made, "metadata": {**made["metadata"], "labels": {"n": f"{number}"}}}
                await side.client.create(ResourcePath(SECRETS_KIND, "shop"), labelled)
        yield running


async def test_a_list_shows_the_hub_first_and_then_every_member_by_name(site: Site):
    answer = await site.ask("GET", SECRETS)

    assert (answer.code, answer.names) == (200, EVERYTHING)
    assert answer.body["kind"] == "SecretList"
    assert answer.warning == ""
    assert {each["metadata"]["namespace"] for each in answer.body["items"]} == {"shop"}


async def test_the_word_all_means_the_same(site: Site):
    explicit = await site.ask("GET", "/api/v1/namespaces/shop/clusterspaces/all/secrets")
    prefix = await site.ask("GET", f"/clusterspaces/all{SECRETS}")

    assert explicit.names == prefix.names == EVERYTHING


async def test_selectors_hold_in_every_cluster(site: Site):
    by_label = await site.ask("GET", f"{SECRETS}?labelSelector=n%3D1")
    by_field = await site.ask(
        "GET", f"{SECRETS}?fieldSelector=metadata.name%21%3Dw1.clusterspace.west"
    )

    assert by_label.names == ["e1.clusterspace.east", "w1.clusterspace.west"]
    assert by_field.names == [name for name in EVERYTHING if not name.startswith("w1")]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 100])
async def test_pages_of_any_size_add_up_to_the_whole(site: Site, limit: int):
    found: list[str] = []
    seen: set[str] = set()
    token = ""
    for _ in range(20):
        answer = await site.ask("GET", f"{SECRETS}?limit={limit}&continue={token}")
        assert answer.code == 200, answer.body
        assert len(answer.names) <= limit
        found += answer.names
        seen.add(answer.body["metadata"]["resourceVersion"])
        token = answer.body["metadata"].get("continue", "")
        if not token:
            break

    assert found == EVERYTHING
    assert len(seen) == 1, "every page tells the same version"


async def test_the_version_of_a_list_asks_for_nothing_older(site: Site):
    version = (await site.ask("GET", SECRETS)).body["metadata"]["resourceVersion"]

    again = await site.ask("GET", f"{SECRETS}?resourceVersion={version}")
    exact = await site.ask(
        "GET", f"{SECRETS}?resourceVersion={version}&resourceVersionMatch=Exact&limit=2"
    )
    foreign = await site.ask("GET", f"{SECRETS}?resourceVersion=12345")

    assert again.names == EVERYTHING
    assert exact.names == EVERYTHING[:2]
    assert (foreign.code, foreign.body["reason"]) == (410, "Expired")


async def test_a_token_nobody_issued_is_refused(site: Site):
    answer = await site.ask("GET", f"{SECRETS}?limit=1&continue=made-up")

    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")


async def test_tables_have_one_set_of_columns_and_the_cluster(site: Site):
    answer = await site.ask("GET", SECRETS, headers=AS_TABLE)

    assert [each["name"] for each in answer.body["columnDefinitions"]] == [
        "Name",
        "Cluster",
        "Type",
        "Data",
        "Age",
    ]
    assert [row["cells"][:2] for row in answer.body["rows"]] == [
        [name, {"h": "karmada", "e": "east", "w": "west"}[name[0]]] for name in EVERYTHING
    ]
    named = [row["object"]["metadata"]["name"] for row in answer.body["rows"]]
    assert named == EVERYTHING


async def test_metadata_alone_is_merged_too(site: Site):
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

    answer = await site.ask("GET", SECRETS, headers=(("Accept", accept),))

    assert answer.body["kind"] == "PartialObjectMetadataList"
    assert answer.names == EVERYTHING
    assert "data" not in answer.body["items"][0]


async def slow(_request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(30)
    return web.json_response({})


async def page(_request: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>all is well</html>", content_type="text/html")


async def missing_page(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=404, text="<html>not here</html>", content_type="text/html")


async def nonsense(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"kind": "Pod"})


async def refusing(_request: web.Request) -> web.StreamResponse:
    return status(403, "Forbidden", kind="secrets")


async def stranger(_request: web.Request) -> web.StreamResponse:
    return status(401, "Unauthorized")


async def overloaded(_request: web.Request) -> web.StreamResponse:
    return status(500, "InternalError")


async def lacking(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=404, text="404 page not found\n")


UNREACHABLE = {
    "slow": (slow, "gave no answer within 1s"),
    "page": (page, "answered 200 with text/html"),
    "missing-page": (missing_page, "answered 404 with text/html"),
    "nonsense": (nonsense, "its answer is not a list"),
    "stranger": (stranger, "Unauthorized it is"),
    "overloaded": (overloaded, "InternalError it is"),
}


@pytest.mark.parametrize("how", UNREACHABLE)
async def test_people_see_the_rest_and_why_it_is_not_all(site: Site, how: str):
    handle, why = UNREACHABLE[how]
    async with fake_member(site, "odd", handle):
        answer = await site.ask("GET", SECRETS, headers=AS_TABLE)
        by_json = await site.ask("GET", SECRETS)

    assert (answer.code, len(answer.body["rows"])) == (200, len(EVERYTHING))
    assert "1 of 4 clusters unreachable: odd" in answer.warning
    assert why in answer.warning
    assert by_json.names == EVERYTHING
    assert why in by_json.warning


@pytest.mark.parametrize("how", UNREACHABLE)
async def test_who_keeps_a_copy_is_never_given_half_of_it(site: Site, how: str):
    handle, why = UNREACHABLE[how]
    async with fake_member(site, "odd", handle):
        cached = await site.ask("GET", f"{SECRETS}?resourceVersion=0")
        paged = await site.ask("GET", f"{SECRETS}?limit=500")

    assert (cached.code, cached.body["reason"]) == (503, "ServiceUnavailable")
    assert why in cached.message
    assert paged.code == 503


async def test_pages_of_a_member_that_cannot_tell_how_new_its_cache_is(site: Site):
    """Servers before 1.31 wait for seconds, and then refuse, where nobody writes such objects."""

    async def unsure(request: web.Request) -> web.StreamResponse:
        if "resourceVersion" in request.query:
            status = {"kind": "Status", "status": "Failure", "reason": "Timeout", "code": 504}
            message = "Timeout: Too large resource version: 9, current: 1"
            return web.json_response({**status, "message": message}, status=504)
        item = {"metadata": {"name": "quiet", "namespace": "shop", "resourceVersion": "1"}}
        metadata = {"resourceVersion": "9"}
        listed = {"kind": "SecretList", "apiVersion": "v1", "metadata": metadata, "items": [item]}
        return web.json_response(listed)

    async with fake_member(site, "unsure", unsure):
        names: list[str] = []
        token = ""
        while True:
            page = await site.ask("GET", f"{SECRETS}?limit=1&continue={token}")
            assert page.code == 200, page
            names += page.names
            token = page.body["metadata"].get("continue", "")
            if not token:
                break

    assert sorted(names) == sorted([*EVERYTHING, "quiet.clusterspace.unsure"])


async def test_a_member_without_the_api_is_passed_over_in_silence(site: Site):
    async with fake_member(site, "odd", lacking):
        answer = await site.ask("GET", f"{SECRETS}?resourceVersion=0")

    assert (answer.code, answer.names, answer.warning) == (200, EVERYTHING, "")


async def test_an_api_nobody_has_is_not_found(site: Site):
    answer = await site.ask("GET", "/apis/nobody.example/v1/things")

    assert (answer.code, answer.body["reason"]) == (404, "NotFound")


async def test_a_member_that_refuses_is_named_and_the_rest_is_shown(site: Site):
    async with fake_member(site, "odd", refusing):
        answer = await site.ask("GET", f"{SECRETS}?resourceVersion=0")

    assert (answer.code, answer.names) == (200, EVERYTHING)
    assert "1 of 4 clusters not allowed: odd (Forbidden it is)" in answer.warning


async def test_an_object_in_a_cluster_that_is_gone_is_never_not_found(site: Site):
    async with member_at(site, "odd", "https://127.0.0.1:1"):
        got = await site.ask("GET", f"{SECRETS}/x.clusterspace.odd")
        written = await site.ask("POST", SECRETS, secret("x.clusterspace.odd", namespace="shop"))
        listed = await site.ask("GET", SECRETS, headers=AS_TABLE)

    for each in (got, written):
        assert (each.code, each.body["reason"]) == (504, "Timeout")
        assert "retry-after" not in each.headers  # or kubectl would ask ten times
    assert listed.code == 200
    assert "odd (refused the connection" in listed.warning


async def test_a_dead_cluster_costs_one_deadline_and_not_every_request(site: Site):
    asked = 0
    is_well = asyncio.Event()

    async def hanging(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        if request.path == SECRETS:
            asked += 1
        if not is_well.is_set():
            await asyncio.sleep(30)
        return web.json_response({"kind": "SecretList", "apiVersion": "v1", "items": []})

    async with fake_member(site, "odd", hanging):
        loop = asyncio.get_running_loop()
        await site.ask("GET", SECRETS)
        before = loop.time()
        answers = [await site.ask("GET", SECRETS) for _ in range(5)]
        took = loop.time() - before
        asked_while_dead = asked
        is_well.set()

        async def is_whole() -> bool:
            return not (await site.ask("GET", SECRETS)).warning

        await until(is_whole)

    assert asked_while_dead == 1
    assert took < 5 * 1.0  # not a deadline for each, however busy the machine is
    assert all("odd (gave no answer within 1s)" in each.warning for each in answers)


async def test_a_list_goes_on_without_a_cluster_that_cannot_and_never_with_a_silent_gap(site: Site):
    def counting(first: list[str]) -> Handle:
        async def handle(request: web.Request) -> web.StreamResponse:
            if request.query.get("continue"):
                return status(500, "InternalError")
            items = [{"metadata": {"name": name}} for name in first]
            metadata = {"resourceVersion": "7", "continue": "more"}
            listed = {"kind": "SecretList", "apiVersion": "v1", "items": items}
            return web.json_response({**listed, "metadata": metadata})

        return handle

    async with fake_member(site, "aaa", counting(["one", "two"])):
        first = await site.ask("GET", f"{SECRETS}?limit=3", headers=AS_TABLE)
        token = first.body["metadata"]["continue"]
        second = await site.ask("GET", f"{SECRETS}?limit=30&continue={token}", headers=AS_TABLE)
        cached = await site.ask("GET", f"{SECRETS}?limit=30&continue={token}")

    assert [row["cells"][0] for row in first.body["rows"]] == [
        "h0",
        "one.clusterspace.aaa",
        "two.clusterspace.aaa",
    ]
    assert [row["cells"][0] for row in second.body["rows"]] == EVERYTHING[1:]
    assert "clusters unreachable: aaa (InternalError it is)" in second.warning
    assert (cached.code, cached.body["reason"]) == (503, "ServiceUnavailable")
