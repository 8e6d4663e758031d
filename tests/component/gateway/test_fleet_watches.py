"""Watches of every cluster over real sockets: begun, broken, gone on with, and ended."""

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from tests.component.fake_clusters import status
from tests.component.gateway.fleet_site import (
    HOSTILE,
    MASTERS_TRAVEL,
    ROOT,
    TABLE,
    Site,
    fake_member,
    fleet_site,
    member_at,
    until_reached,
)
from tests.component.gateway.watch_streams import Watching, watching

from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.client.watch import LineSplitter
from clusterspace.controllers.informers import Informer
from clusterspace.fleet.gateway.fanout import FleetLimits, exchange
from clusterspace.fleet.gateway.merge import versions
from clusterspace.roots.fleet import running_fleet
from clusterspace.roots.hub import running_hub
from clusterspace.roots.settings import FleetSettings, HubSettings
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace
from clusterspace.testing.faults import FaultProxy, fault_proxy, is_watch, status_reply
from clusterspace.testing.hubs import client_for_test, hub_for_test, part_of_hub
from clusterspace.testing.stage import Side
from clusterspace.testing.steps import stop, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/shop/configmaps"
INITIAL = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
SHOP = ResourcePath(CONFIG_MAPS, "shop")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    limits = FleetLimits(list_seconds=2.0, slow_seconds=2.0)
    async with fleet_site(tmp_path_factory.mktemp("fleet"), limits=limits) as running:
        for side in (running.hub, *running.members.values()):
            await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
            # What a server makes by itself is not what these tests wait for.
            await until(lambda own=side.client: own.find(SHOP.at("shop/kube-root-ca.crt")))
        yield running


async def create(member: Side, name: str, **labels: str) -> None:
    made = config_map(name, {"k": name}, namespace="shop", labels=labels)
    await member.client.create(SHOP, made)


async def change(side: Side, name: str, value: str) -> None:
    held = await side.client.get(SHOP.at(f"shop/{name}"))
    await side.client.update(SHOP.at(f"shop/{name}"), {**held, "data": {"k": value}})


async def delete(side: Side, name: str) -> None:
    held = await side.client.get(SHOP.at(f"shop/{name}"))
    await side.client.delete(SHOP.at(f"shop/{name}"), DeleteOptions(held["metadata"]["uid"]))


@asynccontextmanager
async def watch(site: Site, query: str = "", **options: Any) -> AsyncGenerator[Watching]:
    connection = site.connection(ROOT)
    async with watching(connection, f"{MAPS}?watch=1{query}", **options) as found:
        yield found


async def listed_version(site: Site) -> str:
    answer = await site.ask("GET", MAPS)
    return str(answer.body["metadata"]["resourceVersion"])


async def test_a_watch_from_a_list_tells_what_happens_in_every_cluster(site: Site):
    version = await listed_version(site)
    async with watch(site, f"&resourceVersion={version}") as found:
        await create(site.members["east"], "a1")
        await create(site.members["west"], "a1")
        await create(site.hub, "a1")
        await change(site.members["west"], "a1", "new")
        await delete(site.members["east"], "a1")

        await found.until(lambda each: len(each.told) >= 5)

    assert set(found.told) == {
        ("ADDED", "a1.clusterspace.east"),
        ("ADDED", "a1.clusterspace.west"),
        ("ADDED", "a1"),
        ("MODIFIED", "a1.clusterspace.west"),
        ("DELETED", "a1.clusterspace.east"),
    }
    assert all(
        versions.is_vector(each["object"]["metadata"]["resourceVersion"]) for each in found.events
    )


async def test_what_a_watch_shows_can_be_written_back(site: Site):
    await create(site.members["east"], "b1")
    async with watch(site) as found:
        await found.until_told(("ADDED", "b1.clusterspace.east"))
    shown = next(
        each["object"]
        for each in found.events
        if each["object"]["metadata"]["name"] == "b1.clusterspace.east"
    )

    answer = await site.ask("PUT", f"{MAPS}/b1.clusterspace.east", {**shown, "data": {"k": "2"}})

    assert answer.code == 200, answer.body


@pytest.mark.parametrize("suffix", ["", ".clusterspace.east"], ids=["hub", "member"])
async def test_a_controller_recognises_its_own_write_when_the_watch_tells_it(
    site: Site, suffix: str
):
    """kopf held its create handler back for 5 s: it waits for the version its patch was answered.

    Whichever is there first, the answer or the event: both have the version of the cluster.
    """
    name = f"own-{len(suffix)}{suffix}"
    merge = "application/merge-patch+json"
    version = await listed_version(site)
    written: list[str] = []
    async with watch(site, f"&resourceVersion={version}&allowWatchBookmarks=true") as found:
        made = await site.ask("POST", MAPS, config_map(name, {"k": "v"}, namespace="shop"))
        written.append(made.body["metadata"]["resourceVersion"])
        for number in range(3):
            patch = {"metadata": {"annotations": {"n": str(number)}}}
            patched = await site.ask("PATCH", f"{MAPS}/{name}", patch, content_type=merge)
            written.append(patched.body["metadata"]["resourceVersion"])
        await create(site.members["west"], f"other-{len(suffix)}")
        await found.until_told(("ADDED", f"other-{len(suffix)}.clusterspace.west"))

    told = [(each["type"], each["object"]["metadata"]) for each in found.events]
    own = [metadata["resourceVersion"] for _, metadata in told if metadata.get("name") == name]
    assert own == written
    # Nobody can go on from such a version, so the vector follows each; others have it themselves.
    assert [kind for kind, _ in told[:8:2]] == ["ADDED", *["MODIFIED"] * 3]
    assert [kind for kind, _ in told[1:8:2]] == ["BOOKMARK"] * 4
    assert all(versions.is_vector(metadata["resourceVersion"]) for _, metadata in told[1:8:2])
    assert versions.is_vector(told[-1][1]["resourceVersion"])

    async with watch(site, f"&resourceVersion={told[3][1]['resourceVersion']}") as later:
        await later.until(lambda each: len(each.told) == 3)
    # Each cluster tells what it has by itself: in which order they are heard, nobody promises.
    assert [each for each in later.told if each[1] == name] == [("MODIFIED", name)] * 2
    refused = await site.ask("GET", f"{MAPS}?watch=1&resourceVersion={written[-1]}")
    assert (refused.code, refused.body["reason"]) == (410, "Expired")


async def test_what_others_write_and_who_asks_for_no_bookmarks_has_vectors_throughout(site: Site):
    version = await listed_version(site)
    async with (
        watch(site, f"&resourceVersion={version}&allowWatchBookmarks=true") as asking,
        watch(site, f"&resourceVersion={version}") as plain,
    ):
        await create(site.members["east"], "foreign")
        await site.ask(
            "POST", MAPS, config_map("mine.clusterspace.east", {"k": "v"}, namespace="shop")
        )
        for each in (asking, plain):
            await each.until_told(("ADDED", "mine.clusterspace.east"))

    foreign = next(
        each["object"]["metadata"]
        for each in asking.events
        if each["object"]["metadata"].get("name") == "foreign.clusterspace.east"
    )
    assert versions.is_vector(foreign["resourceVersion"])
    assert [each["type"] for each in plain.events] == ["ADDED", "ADDED"]
    assert all(
        versions.is_vector(each["object"]["metadata"]["resourceVersion"]) for each in plain.events
    )


async def test_a_table_has_one_header_and_a_column_for_the_cluster(site: Site):
    await create(site.members["east"], "c1")
    await create(site.members["west"], "c1")
    async with watch(site, accept=TABLE) as found:
        await found.until(lambda each: len(each.lines) >= 2)
        await create(site.members["east"], "c2")

        def shows_new(each: Watching) -> bool:
            return any(b"c2.clusterspace.east" in line for line in each.lines)

        await found.until(shows_new)

    headers = [each["object"]["columnDefinitions"] for each in found.events]
    assert [column["name"] for column in headers[0]] == ["Name", "Cluster", "Data", "Age"]
    assert set(map(str, headers[1:])) == {"None"}
    rows = [each["object"]["rows"][0] for each in found.events]
    assert ["c1.clusterspace.west", "west", 1] in [row["cells"][:3] for row in rows]
    assert {row["object"]["kind"] for row in rows} == {"PartialObjectMetadata"}


async def test_a_table_without_objects_has_none(site: Site):
    await create(site.members["east"], "d1")
    async with watch(site, "&includeObject=None", accept=TABLE) as found:
        await found.until(lambda each: bool(each.lines))

    assert found.events[0]["object"]["rows"][0]["object"] is None


async def test_metadata_alone_can_be_watched(site: Site):
    await create(site.members["west"], "e1")
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    async with watch(site, INITIAL, accept=accept) as found:
        await found.until(lambda each: bool(each.ends))

    assert {each["object"]["kind"] for each in found.events} == {"PartialObjectMetadata"}
    assert ("ADDED", "e1.clusterspace.west") in found.told


async def test_selectors_hold_in_every_cluster(site: Site):
    version = await listed_version(site)
    query = f"&resourceVersion={version}&labelSelector=side%3Dleft"
    async with watch(site, query) as found:
        await create(site.members["east"], "f1", side="right")
        await create(site.members["east"], "f2", side="left")
        await create(site.members["west"], "f3", side="right")
        await create(site.members["west"], "f4", side="left")
        # In each cluster the one that matches comes after the one that does not.
        await found.until(lambda each: len(each.told) == 2)

    assert sorted(found.told) == [
        ("ADDED", "f2.clusterspace.east"),
        ("ADDED", "f4.clusterspace.west"),
    ]


async def test_an_informer_is_told_once_that_it_has_everything(site: Site):
    await create(site.members["east"], "g1")
    await create(site.members["west"], "g2")
    async with watch(site, INITIAL) as found:
        await found.until(lambda each: bool(each.ends))
        initial = list(found.events)
        await create(site.members["west"], "g3")
        await found.until_told(("ADDED", "g3.clusterspace.west"))

    assert len(found.ends) == 1
    end = initial[-1]["object"]
    assert (end["kind"], end["apiVersion"]) == ("ConfigMap", "v1")
    everybody = site.running.fleet.directory.all_clusters()
    vector = versions.decode(end["metadata"]["resourceVersion"], everybody)
    assert set(vector) - {HOSTILE} == {"karmada", "east", "west"}
    names = {each["object"]["metadata"].get("name") for each in initial}
    assert {"g1.clusterspace.east", "g2.clusterspace.west"} <= names


async def test_a_client_goes_on_from_any_event_it_was_told(site: Site):
    version = await listed_version(site)
    async with watch(site, f"&resourceVersion={version}") as found:
        for number in range(3):
            await create(site.members["east"], f"h{number}")
            await create(site.members["west"], f"h{number}")
        await found.until(lambda each: len(each.told) == 6)
    for index, event in enumerate(found.events):
        resumed = event["object"]["metadata"]["resourceVersion"]
        async with watch(site, f"&resourceVersion={resumed}") as later:
            await later.until(lambda each, left=5 - index: len(each.told) == left)

        assert sorted(later.told) == sorted(found.told[index + 1 :])


async def test_a_client_goes_on_at_a_gateway_that_knows_nothing_of_it(site: Site):
    version = await listed_version(site)
    async with watch(site, f"&resourceVersion={version}") as found:
        await create(site.members["east"], "i1")
        await found.until_told(("ADDED", "i1.clusterspace.east"))
    await create(site.members["west"], "i2")
    settings = FleetSettings(
        part_of_hub(site.directory / "hub", "fleet"),
        site.directory / "other",
        port=0,
        member_cidrs=LOOPBACK,
        identities=MASTERS_TRAVEL,
    )
    async with running_fleet(settings) as second:
        other = Site(site.fleet, second, site.members, "other")
        async with watch(other, f"&resourceVersion={found.version}") as later:
            await later.until_told(("ADDED", "i2.clusterspace.west"))
        await other.close()

    assert later.told == [("ADDED", "i2.clusterspace.west")]


async def test_a_gateway_that_stops_ends_its_watches_in_good_order(site: Site):
    settings = FleetSettings(
        part_of_hub(site.directory / "hub", "fleet"),
        site.directory / "brief",
        port=0,
        member_cidrs=LOOPBACK,
        identities=MASTERS_TRAVEL,
    )
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_fleet(settings))
        running.fleet.lapses.__class__ = site.running.fleet.lapses.__class__
        brief = Site(site.fleet, running, site.members, "brief")
        await until_reached(brief, *site.members)
        async with watch(brief, INITIAL) as found:
            await found.until(lambda each: bool(each.ends))
            stopping = asyncio.create_task(stack.aclose())
            await found.until(lambda each: each.is_over)
        await stopping
        await brief.close()

    assert not found.is_broken
    assert found.events[-1]["type"] != "ERROR"


@pytest.mark.parametrize("version", ["12345", "cs1.AAAA", "cs9.xyz"])
async def test_a_version_of_somebody_else_is_too_old(site: Site, version: str):
    answer = await site.ask("GET", f"{MAPS}?watch=1&resourceVersion={version}")

    assert (answer.code, answer.body["reason"]) == (410, "Expired")


async def test_wishes_that_make_no_sense_are_refused(site: Site):
    answer = await site.ask("GET", f"{MAPS}?watch=1&sendInitialEvents=true")
    late = await site.ask("GET", f"{MAPS}?watch=1&timeoutSeconds=soon")

    assert (answer.code, late.code) == (422, 400)


async def test_a_watch_ends_in_time_and_in_good_order(site: Site):
    async with watch(site, "&allowWatchBookmarks=true&timeoutSeconds=3") as found:
        await found.until(lambda each: each.is_over)

    assert found.events[-1]["type"] == "BOOKMARK"


async def test_a_watch_from_now_on_begins_with_nothing(site: Site):
    await create(site.members["east"], "j1")
    query = "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
    async with watch(site, query) as found:
        await create(site.members["west"], "j2")
        await found.until_told(("ADDED", "j2.clusterspace.west"))

    assert found.told == [("ADDED", "j2.clusterspace.west")]


async def test_one_object_is_watched_in_its_own_cluster(site: Site):
    await create(site.members["east"], "k1")
    query = "&fieldSelector=metadata.name%3Dk1.clusterspace.east"
    async with watch(site, query) as found:
        await found.until_told(("ADDED", "k1.clusterspace.east"))
        await change(site.members["east"], "k1", "new")
        await found.until_told(("MODIFIED", "k1.clusterspace.east"))

    own = (await site.members["east"].client.get(SHOP.at("shop/k1")))["metadata"]
    assert found.version == own["resourceVersion"]


@pytest.mark.parametrize("media_type", ["application/json", "application/yaml"])
@pytest.mark.parametrize("prefix", ["", "/clusterspaces/east"])
async def test_a_path_with_a_name_is_read_and_not_watched(site: Site, prefix: str, media_type: str):
    name = f"named-{len(prefix)}-{len(media_type)}-{media_type[-4:]}"
    await create(site.members["east"], name)
    shown = name if prefix else f"{name}.clusterspace.east"
    ask = ApiRequest("GET", f"{prefix}{MAPS}/{shown}?watch=1", headers=(("accept", media_type),))

    answer = await exchange(site.connection(ROOT), ask)

    assert answer.status == 200
    assert answer.headers["content-type"].startswith(media_type)
    assert shown.encode() in answer.body
    assert b"ADDED" not in answer.body


@asynccontextmanager
async def north(site: Site, directory: Any) -> AsyncGenerator[tuple[Side, FaultProxy]]:
    """A member behind a proxy that the test breaks; it has one ConfigMap, n1."""
    async with hub_for_test(directory, name="north") as settings, client_for_test(settings) as own:
        side = Side(settings, own)
        await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
        await until(lambda: own.find(SHOP.at("shop/kube-root-ca.crt")))  # the server's own
        await create(side, "n1")
        async with (
            fault_proxy(own.connection) as proxy,
            member_at(site, "north", proxy.settings.server),
        ):
            yield side, proxy


async def test_a_member_that_stops_and_starts_is_not_noticed(site: Site, tmp_path: Any):
    async with north(site, tmp_path) as (side, proxy), watch(site, INITIAL) as found:
        await found.until(lambda each: bool(each.ends))
        down = status_reply(503, "ServiceUnavailable")
        refusal = proxy.inject(down, times=None)
        proxy.cut()
        await create(side, "n2")
        await create(site.members["east"], "l1")
        await found.until_told(("ADDED", "l1.clusterspace.east"))
        await until(lambda: refusal.hits >= 2)  # who asks again has heard the first
        proxy.heal()
        await found.until_told(("ADDED", "n2.clusterspace.north"))

        assert "DELETED" not in {kind for kind, _ in found.told}
        assert found.told.count(("ADDED", "n1.clusterspace.north")) == 1
        assert not found.is_over


async def test_a_member_that_forgot_is_told_as_the_difference(site: Site, tmp_path: Any):
    async with north(site, tmp_path) as (side, proxy), watch(site, INITIAL) as found:
        await found.until(lambda each: bool(each.ends))
        before = len(found.told)
        proxy.inject(status_reply(503, "ServiceUnavailable"), times=None)
        proxy.cut()
        await create(side, "n2")
        await delete(side, "n1")
        proxy.heal()
        proxy.inject(status_reply(410, "Expired"), when=is_watch)
        await found.until_told(("DELETED", "n1.clusterspace.north"))
        await create(side, "n3")
        await found.until_told(("ADDED", "n3.clusterspace.north"))

        assert found.told[before:] == [
            ("ADDED", "n2.clusterspace.north"),
            ("DELETED", "n1.clusterspace.north"),
            ("ADDED", "n3.clusterspace.north"),
        ]


async def test_a_client_that_went_on_lists_again_when_a_member_forgot(site: Site, tmp_path: Any):
    async with north(site, tmp_path) as (_, proxy):
        version = await listed_version(site)
        proxy.inject(status_reply(410, "Expired"), when=is_watch)
        async with watch(site, f"&resourceVersion={version}") as found:
            await found.until(lambda each: each.is_over)

        assert found.events[-1]["type"] == "ERROR"
        assert found.events[-1]["object"]["code"] == 410


@asynccontextmanager
async def restorable(directory: Path) -> AsyncGenerator[Side]:
    """Run a member on what its directory has; stopped and copied, it is a backup."""
    async with running_hub(HubSettings(data_dir=directory, port=0, member_cidrs=LOOPBACK)):
        settings = read_kubeconfig([directory / "kubeconfig"]).settings(cluster="north")
        async with client_for_test(settings) as own:
            yield Side(settings, own)


@asynccontextmanager
async def backed_up(site: Site, directory: Path) -> AsyncGenerator[tuple[Side, FaultProxy, Path]]:
    """A member with three ConfigMaps that was backed up, and then had its first one changed."""
    now, backup = directory / "now", directory / "backup"
    async with restorable(now) as side:
        await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
        for name in ("n1", "n2", "n3"):
            await create(side, name)
    shutil.copytree(now, backup)
    async with (
        restorable(now) as side,
        fault_proxy(side.client.connection) as proxy,
        member_at(site, "north", proxy.settings.server),
    ):
        yield side, proxy, backup


def replayed(watching: Watching, cluster: str) -> dict[str, Any]:
    """What a client has of a cluster that took in every event it was told."""
    found: dict[str, Any] = {}
    for event in watching.events:
        name = event["object"]["metadata"].get("name", "")
        if event["type"] == "DELETED":
            found.pop(name, None)
        elif name.endswith(f".clusterspace.{cluster}"):
            found[name] = event["object"]["data"]
    return found


@pytest.mark.sqlite("a copied directory has a history of its own")
async def test_a_fleet_watch_across_the_restore_of_a_member_ends_equal_to_the_list(
    site: Site, tmp_path: Path
):
    async with (
        backed_up(site, tmp_path) as (side, proxy, backup),
        watch(site, INITIAL) as found,
    ):
        await found.until(lambda each: bool(each.ends))
        for value in ("lost-1", "lost-2"):
            await change(side, "n1", value)
        await delete(side, "n2")
        for index in range(10):
            await create(side, f"lost-{index}")
        await found.until_told(("ADDED", "lost-9.clusterspace.north"))

        async with restorable(backup) as restored:
            # Counts the same versions again, for other changes.
            await change(restored, "n1", "kept-1")
            await change(restored, "n1", "kept-2")
            proxy.lead_to(restored.client.connection)
            await found.until_told(("DELETED", "lost-0.clusterspace.north"))
            await create(restored, "after")
            await found.until_told(("ADDED", "after.clusterspace.north"))
            listed = (await site.ask("GET", MAPS)).body["items"]

        suffix = ".clusterspace.north"
        now = {each["metadata"]["name"]: each["data"] for each in listed}
        expected = {name: data for name, data in now.items() if name.endswith(suffix)}
        assert replayed(found, "north") == expected
        assert expected["n1.clusterspace.north"] == {"k": "kept-2"}
        assert not found.is_over


@pytest.mark.sqlite("a copied directory has a history of its own")
async def test_a_client_that_goes_on_behind_the_restore_of_a_member_lists_again(
    site: Site, tmp_path: Path
):
    async with backed_up(site, tmp_path) as (side, proxy, backup):
        async with watch(site, INITIAL) as before:
            await before.until(lambda each: bool(each.ends))
            for name in ("lost-1", "lost-2", "lost-3"):
                await create(side, name)
            await before.until_told(("ADDED", "lost-3.clusterspace.north"))
        async with restorable(backup) as restored:
            proxy.lead_to(restored.client.connection)
            async with watch(site, f"&resourceVersion={before.version}") as found:
                await found.until(lambda each: each.is_over)

    assert found.events[-1]["type"] == "ERROR"
    assert found.events[-1]["object"]["code"] == 410
    assert "north has gone back" in found.events[-1]["object"]["message"]


async def test_a_member_that_joins_is_spliced_in_and_one_that_leaves_ends_the_watch(
    site: Site, tmp_path: Any
):
    async with watch(site, INITIAL) as found:
        await found.until(lambda each: bool(each.ends))
        async with north(site, tmp_path):
            await found.until_told(("ADDED", "n1.clusterspace.north"))
            await found.until(lambda each: each.events[-1]["type"] == "BOOKMARK")
            assert len(found.ends) == 1
            version = found.version
        await found.until(lambda each: each.is_over)
    answer = await site.ask("GET", f"{MAPS}?watch=1&resourceVersion={version}")

    assert found.events[-1]["object"]["reason"] == "Expired"
    assert (answer.code, answer.body["reason"]) == (410, "Expired")


async def test_people_are_warned_and_informers_refused_when_a_member_cannot_be_asked(site: Site):
    async def refuse(_request: web.Request) -> web.Response:
        return status(503, "ServiceUnavailable")

    async with fake_member(site, "south", refuse):
        async with watch(site) as found:
            assert "south" in found.headers["warning"]
            await create(site.members["east"], "m1")
            await found.until_told(("ADDED", "m1.clusterspace.east"))
        refused = await site.ask("GET", f"{MAPS}?watch=1{INITIAL}")
        assert refused.code == 503

        version = await listed_version(site)
        async with watch(site, f"&resourceVersion={version}") as found:
            assert found.status == 200


async def test_a_client_that_does_not_read_is_cut_off_with_a_reason(site: Site):
    await create(site.members["east"], "o1")
    version = await listed_version(site)
    splitter, lines = LineSplitter(), list[bytes]()
    ask = ApiRequest("GET", f"{MAPS}?watch=1&resourceVersion={version}")
    async with site.connection(ROOT).stream(ask) as answer:
        for number in range(120):
            await change(site.members["east"], "o1", f"{number}" + "x" * 250_000)
        await no_stream_is_left(site)
        async for chunk in answer.chunks():
            lines += splitter.feed(chunk)

    last = json.loads(lines[-1])
    assert (last["type"], last["object"]["code"]) == ("ERROR", 410)
    assert "too slow" in last["object"]["message"]
    assert len(lines) < 120


async def test_an_informer_keeps_what_a_silent_member_has(site: Site, tmp_path: Any):
    informer = Informer(ClusterClient(site.connection(ROOT)), SHOP)
    deleted: list[str] = []
    informer.add_handler(
        lambda update: deleted.append(update.key) if update.after is None else None
    )
    async with north(site, tmp_path) as (side, proxy):
        task = asyncio.create_task(informer.run())
        await informer.wait_synced()
        refusal = proxy.inject(status_reply(503, "ServiceUnavailable"), times=None)
        proxy.cut()
        await create(side, "n2")
        await until(lambda: refusal.hits >= 2)  # who asks again has heard the first
        proxy.heal()

        async def has_both() -> bool:
            held = (informer.cache.find(f"shop/{each}.clusterspace.north") for each in ("n1", "n2"))
            return all(each is not None for each in held)

        await until(has_both)
        assert deleted == []
        await stop(task)


async def test_a_resource_nobody_serves_is_not_found(site: Site):
    answer = await site.ask("GET", "/apis/example.com/v1/things?watch=1")

    assert answer.code == 404


async def test_no_stream_is_left_behind(site: Site):
    await no_stream_is_left(site)


async def no_stream_is_left(site: Site) -> None:
    async def none_is_left() -> bool:
        return len(site.running.fleet.streams) == 0

    await until(none_is_left)


async def test_metadata_of_a_list_is_asked_for_as_that_of_a_list(site: Site):
    metadata = "application/json;as=PartialObjectMetadata{};v=v1;g=meta.k8s.io"

    async def strict(request: web.Request) -> web.StreamResponse:
        is_watch = "watch" in request.query
        form = request.headers["accept"].partition(",")[0]
        if form != metadata.format("" if is_watch else "List"):
            return status(406, "NotAcceptable")
        if is_watch:
            return await stand_still(request)
        return web.json_response(
            {
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": "7"},
                "items": [
                    {"metadata": {"name": "s1", "namespace": "shop", "resourceVersion": "3"}}
                ],
            }
        )

    async with fake_member(site, "south", strict):
        accept = metadata.format("List") + ",application/json"
        listed = await site.ask("GET", MAPS, headers=(("accept", accept),))
        async with watch(site, INITIAL, accept=metadata.format("")) as found:
            await found.until_told(("ADDED", "s1.clusterspace.south"))

    assert "s1.clusterspace.south" in listed.names
    assert listed.warning == ""


async def stand_still(request: web.Request) -> web.StreamResponse:
    """Answer a watch in which nothing happens."""
    answer = web.StreamResponse()
    answer.enable_chunked_encoding()
    await answer.prepare(request)
    await asyncio.sleep(3600)
    return answer
