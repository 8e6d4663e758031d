"""Lists of members whose objects are known already: as fresh, as guarded and as whole as any."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from aiohttp import web
from tests.component.gateway.fleet_site import (
    TABLE,
    Site,
    fake_member,
    fleet_site,
    grant,
    member_at,
    reaching,
    using,
)

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import DeleteOptions
from clusterspace.fleet.gateway import object_cache, shared_watches
from clusterspace.fleet.gateway.answers import known_lists
from clusterspace.fleet.gateway.fanout import FleetLimits
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import uid_of
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace, secret
from clusterspace.testing.builders import SECRETS as SECRETS_KIND
from clusterspace.testing.faults import fault_proxy, status_reply
from clusterspace.testing.hubs import client_for_test, real_server_for_test
from clusterspace.testing.stage import Side
from clusterspace.testing.steps import edit, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/shop/configmaps"
SHOP = ResourcePath(CONFIG_MAPS, "shop")
AS_TABLE = (("Accept", TABLE),)
COUNT = 40
METADATA, WHOLE, CELLS = "metadata", "whole", "cells"


@pytest.fixture(scope="module", params=["protobuf", "JSON"])
def form(request: pytest.FixtureRequest) -> str:
    """In which form members are asked for metadata: what is shown must not depend on it."""
    return request.param


@pytest.fixture(autouse=True)
def _whatever_it_takes(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Ask for metadata however long that takes: what is shown must not depend on it either."""
    monkeypatch.setattr(object_cache, "_WORTHWHILE", float("inf"))
    if form == "JSON":
        monkeypatch.setattr(object_cache.ObjectCache, "takes_protobuf", lambda *_: False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory, form: str) -> AsyncGenerator[Site]:
    """East and west with some ConfigMaps of a kilobyte each, of a fleet for each form."""
    async with fleet_site(tmp_path_factory.mktemp("fleet"), federation=False) as running:
        for name, side in running.members.items():
            await fill(side, name)
        yield running


async def fill(side: Side, name: str) -> None:
    await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
    for number in range(COUNT):
        labels = {"side": "left" if number % 2 else "right"}
        made = config_map(f"{name}-{number:02}", padded(0), namespace="shop", labels=labels)
        await side.client.create(SHOP, made)


def padded(number: int) -> dict[str, str]:
    return {"n": str(number), "padding": "x" * 1000}


async def change(side: Side, name: str, number: int) -> None:
    await edit(side.client, SHOP.at(f"shop/{name}"), lambda held: {**held, "data": padded(number)})


async def own_list(side: Side, cluster: str, query: str = "") -> list[Any]:
    """Return a member's own list, with the names that the fleet gives."""
    answer = await side.client.connection.ask(ApiRequest("GET", f"{MAPS}{query}"))
    items = json.loads(answer.body)["items"]
    for each in items:
        each["metadata"]["name"] += f".clusterspace.{cluster}"
    return items


async def every_list(site: Site, query: str = "") -> list[Any]:
    lists = [await own_list(side, name, query) for name, side in site.members.items()]
    return [each for items in lists for each in items]


async def warm(site: Site, path: str = MAPS, token: str = "root-token") -> None:
    for _ in range(2):
        assert (await site.ask("GET", path, token=token)).code == 200


@asynccontextmanager
async def observed(site: Site, side: Side, name: str) -> AsyncGenerator[list[str]]:
    """Have a cluster join by another name, and write down which form of lists it is asked for."""
    asked: list[str] = []

    def note(request: web.Request) -> bool:
        if "/configmaps" in request.path:
            is_metadata = "PartialObjectMetadataList" in request.headers.get("Accept", "")
            form = METADATA if is_metadata else WHOLE
            asked.append(CELLS if request.query.get("includeObject") == "None" else form)
        return False

    async with AsyncExitStack() as stack:
        upstream = Connection(side.settings, clock=SystemClock(), random=Random(1))
        stack.push_async_callback(upstream.close)
        proxy = await stack.enter_async_context(fault_proxy(upstream))
        proxy.inject(status_reply(503, "ServiceUnavailable"), when=note, times=None)
        await stack.enter_async_context(member_at(site, name, proxy.settings.server))
        yield asked


def of(answer: Any, cluster: str) -> list[Any]:
    suffix = f".clusterspace.{cluster}"
    return [each for each in answer.body["items"] if each["metadata"]["name"].endswith(suffix)]


async def test_what_is_known_is_not_read_again_and_what_is_new_is(site: Site):
    side = site.members["east"]
    path = "/api/v1/namespaces/shop/clusterspaces/all/configmaps"
    async with observed(site, side, "seen") as asked:
        for _ in range(4):
            answer = await site.ask("GET", path)
            assert of(answer, "seen") == await own_list(side, "seen")
        assert asked == [WHOLE, WHOLE, METADATA, METADATA]

        asked.clear()
        await change(side, "east-03", 1)
        answer = await site.ask("GET", path)

        assert of(answer, "seen") == await own_list(side, "seen")
        assert asked == [METADATA, WHOLE]  # the list, and the one object by its name

        asked.clear()
        for number in range(20):
            await change(side, f"east-{number:02}", 2)
        answer = await site.ask("GET", path)

        assert of(answer, "seen") == await own_list(side, "seen")
        assert asked == [METADATA, WHOLE]  # the list both ways
        assert answer.body["kind"] == "ConfigMapList"
        assert answer.body["apiVersion"] == "v1"


async def test_a_list_shows_every_write_that_came_before_it(site: Site):
    await warm(site)
    east = site.members["east"]
    for number in range(10):
        wrote = await site.ask(
            "PATCH",
            f"{MAPS}/east-00.clusterspace.east",
            {"data": {"n": f"mine-{number}"}},
            content_type="application/merge-patch+json",
        )
        assert wrote.code == 200
        shown = await site.ask("GET", MAPS)
        (one,) = [each for each in shown.body["items"] if "east-00." in each["metadata"]["name"]]
        assert one["data"]["n"] == f"mine-{number}"
    held = await east.client.get(SHOP.at("shop/east-39"))
    await east.client.delete(SHOP.at("shop/east-39"), DeleteOptions(uid_of(held)))
    await east.client.create(SHOP, config_map("another", padded(1), namespace="shop"))

    assert (await site.ask("GET", MAPS)).body["items"] == await every_list(site)


async def table_of(site: Site, path: str = MAPS, token: str = "root-token") -> Any:
    answer = await site.ask("GET", path, headers=AS_TABLE, token=token)
    assert answer.code == 200
    for row in answer.body["rows"]:
        row["cells"].pop()  # its age, which is another one a moment later
    return answer.body


@pytest.fixture
def _short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take Tables of so few rows for lists that are worth the trouble."""
    monkeypatch.setattr(object_cache, "_LEAST_BYTES", 1)


async def unknown_table(site: Site, path: str = MAPS) -> Any:
    """The Table as members make it, of which nothing is kept."""
    return await table_of(site, f"{path}{'&' if '?' in path else '?'}labelSelector=%21nothing")


@pytest.mark.usefixtures("_short_lists")
async def test_of_a_table_that_is_known_only_cells_are_read_and_what_is_new(site: Site):
    side = site.members["east"]
    async with observed(site, side, "seen") as asked:
        for _ in range(2):
            await table_of(site)
        asked.clear()
        known = await table_of(site)
        assert sorted(asked) == [CELLS, METADATA]
        assert known == await unknown_table(site)
        assert [each["object"]["metadata"]["labels"] for each in known["rows"]]
        assert {row["cells"][1] for row in known["rows"]} == {"east", "seen", "west"}

        asked.clear()
        await edit(side.client, SHOP.at("shop/east-05"), lambda held: {**held, "data": {}})
        changed = await table_of(site)
        assert sorted(asked) == [CELLS, METADATA, WHOLE]  # and the one object by its name
        row = next(each for each in changed["rows"] if each["cells"][0].startswith("east-05."))
        assert row["cells"][2] == 0
        assert changed == await unknown_table(site)

        held = await side.client.get(SHOP.at("shop/east-06"))
        await side.client.delete(SHOP.at("shop/east-06"), DeleteOptions(uid_of(held)))
        assert len((await table_of(site))["rows"]) == len(changed["rows"]) - 2  # by both names
        await side.client.create(SHOP, config_map("east-06", padded(0), namespace="shop"))
        assert await table_of(site) == await unknown_table(site)


@pytest.mark.usefixtures("_short_lists")
async def test_a_table_whose_cells_are_of_another_moment_is_read_whole(site: Site):
    side = site.members["west"]
    async with observed(site, side, "moved") as asked:
        for _ in range(2):
            await table_of(site)
        asked.clear()
        real, calls = known_lists._ConditionalList._cells, list[Any]()

        async def cells(self: Any, request: Any) -> Any:
            calls.append(request)
            found = await real(self, request)
            assert found is not None
            return replace(found, metadata=replace(found.metadata, resource_version="1"))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(known_lists._ConditionalList, "_cells", cells)
            found = await table_of(site)

        assert calls
        assert asked.count(WHOLE) == 1
        assert found == await unknown_table(site)


@pytest.mark.usefixtures("_short_lists")
async def test_a_member_decides_at_every_table_who_sees_it(site: Site):
    side = site.members["east"]
    await grant(site.hub, "jane", reaching(), "jane-tables")
    await grant(side, "jane", using("configmaps"), "jane-tables")
    for _ in range(3):
        shown = await table_of(site, token="jane-token")
        assert {row["cells"][1] for row in shown["rows"]} == {"east"}
    binding = manifests.role_binding_path("jane-tables")
    held = await side.client.get(binding)
    await side.client.delete(binding, DeleteOptions(uid_of(held)))

    async def is_refused() -> bool:
        return (await site.ask("GET", MAPS, headers=AS_TABLE, token="jane-token")).code == 403

    await until(is_refused)


@pytest.mark.usefixtures("_short_lists")
async def test_pages_of_a_known_table_add_up(site: Site):
    for _ in range(3):
        rows, token = list[Any](), ""
        while True:
            page = await table_of(site, f"{MAPS}?limit=7&continue={quote(token, safe='')}")
            rows += page["rows"]
            token = page["metadata"].get("continue", "")
            if not token:
                break
        assert rows == (await unknown_table(site))["rows"]


@pytest.mark.parametrize(
    "query", ["?labelSelector=side%3Dleft", "?fieldSelector=metadata.name%21%3Deast-01"]
)
async def test_selectors_are_the_members_own_affair(site: Site, query: str):
    await warm(site)
    for _ in range(3):
        assert (await site.ask("GET", MAPS + query)).body["items"] == await every_list(site, query)


async def test_pages_add_up_to_the_whole(site: Site):
    await warm(site)
    for _ in range(3):
        items: list[Any] = []
        token, versions = "", set[str]()
        while True:
            answer = await site.ask("GET", f"{MAPS}?limit=33&continue={token}")
            items += answer.body["items"]
            versions.add(answer.body["metadata"]["resourceVersion"])
            token = answer.body["metadata"].get("continue", "")
            if not token:
                break
        assert items == await every_list(site)
        assert len(versions) == 1


async def test_the_member_decides_at_every_list_who_sees_what(site: Site):
    for side in site.members.values():
        await grant(side, "carl", using("configmaps"), "carl")
    await grant(site.hub, "carl", reaching(), "carl")
    await warm(site, token="carl-token")
    assert len((await site.ask("GET", MAPS, token="carl-token")).body["items"]) > COUNT

    west = site.members["west"]
    binding = manifests.role_binding_path("carl")
    held = await west.client.get(binding)
    await west.client.delete(binding, DeleteOptions(uid_of(held)))
    answer = await site.ask("GET", MAPS, token="carl-token")

    assert of(answer, "west") == []
    assert of(answer, "east") == await own_list(site.members["east"], "east")
    assert "west" in answer.warning
    # Root has filled the cache; jane, who may reach members and read nothing there, gets nothing.
    await grant(site.hub, "jane", reaching(), "jane")
    assert (await site.ask("GET", MAPS, token="jane-token")).code == 403


async def test_secrets_and_custom_kinds_are_not_kept(site: Site):
    for number in range(3):
        made = secret(f"big-{number}", {"k": "x" * 20_000}, namespace="shop")
        await site.members["east"].client.create(ResourcePath(SECRETS_KIND, "shop"), made)
    before = site.running.fleet.cache.used_bytes
    await warm(site, "/api/v1/namespaces/shop/secrets")
    await warm(site, "/api/v1/namespaces/shop/secrets")

    assert site.running.fleet.cache.used_bytes == before


async def test_what_a_member_sends_is_never_shown_as_anothers(site: Site):
    """A member copies the metadata of an object of another one, and says nothing else of it."""
    await warm(site)
    copied = await own_list(site.members["east"], "east")
    for each in copied:
        each["metadata"]["name"] = each["metadata"]["name"].partition(".")[0]
    texts = json.dumps(copied)
    asked: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        is_metadata = "PartialObjectMetadataList" in request.headers.get("Accept", "")
        asked.append(METADATA if is_metadata else WHOLE)
        items = json.loads(texts)
        for each in items:
            each["data"] = {"n": "forged", "padding": "y" * 1000}
            if is_metadata:
                del each["data"]
        kind = "PartialObjectMetadataList" if is_metadata else "ConfigMapList"
        version = "meta.k8s.io/v1" if is_metadata else "v1"
        metadata = {"resourceVersion": "7"}
        body = {"kind": kind, "apiVersion": version, "metadata": metadata, "items": items}
        return web.json_response(body)

    async with fake_member(site, "forger", handle):
        for _ in range(4):
            answer = await site.ask("GET", MAPS)
            assert of(answer, "east") == await own_list(site.members["east"], "east")
            assert {each["data"]["n"] for each in of(answer, "forger")} == {"forged"}
    assert METADATA in asked


@pytest.mark.parametrize("broken", [b"{}", b"[]", b"<html>", b'{"kind":"Pod"}'])
async def test_a_member_that_stumbles_over_the_form_is_asked_as_ever(site: Site, broken: bytes):
    async def handle(request: web.Request) -> web.StreamResponse:
        if "PartialObjectMetadataList" in request.headers.get("Accept", ""):
            return web.Response(body=broken, content_type="application/json")
        items = [config_map(f"m-{each}", padded(each), namespace="shop") for each in range(COUNT)]
        metadata = {"resourceVersion": "7"}
        body = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items}
        return web.json_response(body)

    async with fake_member(site, "odd", handle):
        answers = [await site.ask("GET", MAPS) for _ in range(3)]
        assert [len(of(each, "odd")) for each in answers] == [COUNT] * 3
        assert [each.warning for each in answers] == [""] * 3
        assert of(answers[-1], "east") == await own_list(site.members["east"], "east")


async def test_many_at_once_see_what_is_there(site: Site):
    await warm(site)
    east = site.members["east"]

    async def write() -> None:
        for number in range(30):
            await change(east, f"east-{number % 7:02}", 100 + number)

    async def read() -> None:
        newest = 0
        for _ in range(10):
            answer = await site.ask("GET", MAPS)
            versions = [int(each["metadata"]["resourceVersion"]) for each in of(answer, "east")]
            assert max(versions) >= newest
            newest = max(versions)

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        for _ in range(3):
            group.create_task(read())

    assert (await site.ask("GET", MAPS)).body["items"] == await every_list(site)


async def test_a_real_api_server_writes_metadata_alone_as_it_writes_it_in_objects(
    site: Site, tmp_path_factory: pytest.TempPathFactory
):
    async with (
        real_server_for_test(tmp_path_factory.mktemp("real")) as real,
        client_for_test(real.settings) as client,
    ):
        side = Side(real.settings, client)
        await fill(side, "east")
        async with observed(site, side, "real") as asked:
            for _ in range(4):
                answer = await site.ask("GET", MAPS)
                assert of(answer, "real") == await own_list(side, "real")
            assert asked == [WHOLE, WHOLE, METADATA, METADATA]
            await change(side, "east-03", 1)
            answer = await site.ask("GET", MAPS)
            assert of(answer, "real") == await own_list(side, "real")
            assert asked[4:] == [METADATA, WHOLE]


async def test_nothing_is_kept_where_the_cache_is_off(tmp_path_factory: pytest.TempPathFactory):
    limits = FleetLimits(cached_bytes=0)
    async with fleet_site(
        tmp_path_factory.mktemp("off"), members=("east",), federation=False, limits=limits
    ) as off:
        await fill(off.members["east"], "east")
        for _ in range(3):
            assert (await off.ask("GET", MAPS)).body["items"] == await every_list(off)
        assert off.running.fleet.cache.used_bytes == 0


# -- any state will do -----------------------------------------------------------------------------


async def test_any_state_is_answered_from_what_was_told_a_moment_ago(site: Site):
    side = site.members["east"]
    path = "/api/v1/namespaces/shop/clusterspaces/all/configmaps"
    async with observed(site, side, "seen") as asked:
        await warm(site, path)
        fresh = await site.ask("GET", path)
        asked.clear()
        await change(side, "east-07", 77)

        any_state = await site.ask("GET", f"{path}?resourceVersion=0")
        selected = await site.ask("GET", f"{path}?resourceVersion=0&fieldSelector=data.n%3D77")
        assert asked == []
        assert of(any_state, "seen") == of(fresh, "seen")
        assert of(selected, "seen") == []
        # Its version is that of the state that was shown: who goes on there misses nothing.
        assert any_state.body["metadata"] == fresh.body["metadata"]

        # Who does not say so is shown what there is.
        selected = await site.ask("GET", f"{path}?fieldSelector=data.n%3D77")
        assert [each["data"]["n"] for each in of(selected, "seen")] == ["77"]
        selected = await site.ask("GET", f"{path}?resourceVersion=0&fieldSelector=data.n%3D77")
        assert [each["data"]["n"] for each in of(selected, "seen")] == ["77"]


async def test_any_state_is_for_who_was_told_it_and_may_see_it_still(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    any_state = f"{MAPS}?resourceVersion=0"
    await warm(site)
    await grant(site.hub, "jane", reaching(), "jane-any")
    # Root was told, and jane, who may read nothing, is not.
    assert (await site.ask("GET", any_state, token="jane-token")).code == 403

    for side in site.members.values():
        await grant(side, "jane", using("configmaps"), "jane-any")
    await warm(site, token="jane-token")
    told = await site.ask("GET", any_state, token="jane-token")
    assert len(of(told, "west")) >= COUNT

    west = site.members["west"]
    binding = manifests.role_binding_path("jane-any")
    held = await west.client.get(binding)
    await west.client.delete(binding, DeleteOptions(uid_of(held)))
    # A yes counts for some seconds; then the member is asked.
    monkeypatch.setattr(shared_watches, "REVIEWED_SECONDS", 0.0)
    told = await site.ask("GET", any_state, token="jane-token")

    assert (len(of(told, "east")) >= COUNT, of(told, "west")) == (True, [])
    assert "west" in told.warning


@pytest.mark.parametrize(
    "query",
    [
        "fieldSelector=data.n%3D0",
        "fieldSelector=data.n!%3D0",
        "fieldSelector=data.nothing%3D,data.n%3D5",
        "fieldSelector=metadata.labels.side%3Dleft,data.n!%3D1",
        "fieldSelector=metadata.uid!%3Dx&labelSelector=side%3Dleft",
        "sortBy=.data.n",
        "sortBy=-.metadata.name&fieldSelector=data.n!%3D5",
        "sortBy=-.data.nothing",
        "sortBy=.metadata.uid&limit=7",
        "sortBy=-.data.n&limit=7",
        "sortBy=-.metadata.labels.side&limit=3&labelSelector=side%3Dleft",
    ],
)
async def test_what_is_known_is_selected_and_sorted_as_what_is_read(site: Site, query: str):
    side = site.members["west"]
    for number in range(8):
        await change(side, f"west-{number:02}", number)
    path = f"{MAPS}?{query}"

    async def pages(more: str = "") -> list[str]:
        found: list[str] = []
        token = ""
        while True:
            answer = await site.ask("GET", f"{path}{more}&continue={quote(token)}")
            found += [each["metadata"]["name"] for each in answer.body["items"]]
            token = answer.body["metadata"].get("continue", "")
            if not token:
                return found
            more = ""  # the token says it all

    site.running.fleet.cache.sweep(())
    read = await pages()
    kept, known, any_state = await pages(), await pages(), await pages("&resourceVersion=0")

    assert read
    assert kept == known == any_state == read


async def test_what_is_kept_is_packed_when_half_of_the_room_is_taken(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    cache = site.running.fleet.cache
    cache.sweep(())
    await warm(site)
    whole = await every_list(site)
    plain = cache.used_bytes
    monkeypatch.setattr(cache, "most_bytes", int(plain * 1.5))
    cache.sweep(())
    await warm(site)

    assert cache.used_bytes < plain / 2
    for query in ("", "?resourceVersion=0"):
        assert (await site.ask("GET", f"{MAPS}{query}")).body["items"] == whole


async def test_an_answer_counts_once_whether_it_was_read_or_put_together(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    """With room for all objects of all members, no member is left out for want of room."""
    await warm(site)
    whole = await site.ask("GET", MAPS)
    size = len(json.dumps(whole.body, separators=(",", ":")))
    memory = site.running.fleet.memory
    monkeypatch.setattr(memory, "most_bytes", int(size * 1.1) * 2)  # one user has half of it
    for _ in range(3):
        answer = await site.ask("GET", MAPS)
        assert (answer.body["items"], answer.warning) == (whole.body["items"], "")
    assert memory.used == 0
