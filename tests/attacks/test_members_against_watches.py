"""A member that lists in good form uses watches against everybody else's."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest
import pytest_asyncio
from tests.attacks.hostile_site import HOSTILE, hostile_in
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site
from tests.component.gateway.watch_streams import Watching, watching

from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.watch import LineSplitter
from clusterspace.fleet.gateway.fanout import FleetLimits
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace
from clusterspace.testing.hostile import (
    Asked,
    Behaviour,
    HostileMember,
    head,
    listing,
    refusing,
    then,
)
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/shop/configmaps"
INITIAL = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
REFUSED = refusing(403, "Forbidden")
MOST_OBJECTS = 1000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    limits = FleetLimits(
        list_seconds=3.0,
        grace_seconds=0.0,
        lost_seconds=0.0,
        walk_seconds=0.5,
        watched_objects=MOST_OBJECTS,
    )
    async with fleet_site(
        tmp_path_factory.mktemp("fleet"), members=("east",), limits=limits
    ) as running:
        for side in (running.hub, running.members["east"]):
            await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def member(site: Site) -> AsyncGenerator[HostileMember]:
    # Another user's lists are another's: each test begins as if nobody had watched here before.
    site.running.fleet.lapses._promises._users.clear()
    async with hostile_in(site, listing()) as running:
        yield running


@asynccontextmanager
async def watch(site: Site, query: str = "") -> AsyncGenerator[Watching]:
    async with watching(site.connection(ROOT), f"{MAPS}?watch=1{query}") as found:
        yield found


async def listed_version(site: Site) -> str:
    answer = await site.ask("GET", MAPS)
    assert answer.code == 200
    return str(answer.body["metadata"]["resourceVersion"])


async def goes_on(site: Site, found: Watching, name: str) -> None:
    """Assert that what happens in another cluster is still told."""
    await site.members["east"].client.create(
        ResourcePath(CONFIG_MAPS, "shop"), config_map(name, namespace="shop")
    )
    await found.until(lambda each: any(name.encode() in line for line in each.lines))
    assert not found.is_over


def watches_of(member: HostileMember) -> int:
    return sum(each.is_watch for each in member.asked)


async def test_a_member_that_lists_well_and_refuses_watches_ends_nobodys_watch(
    site: Site, member: HostileMember
):
    member.behave = then(listing(), REFUSED)
    version = await listed_version(site)

    for number, query in enumerate((f"&resourceVersion={version}", "", INITIAL)):
        before = watches_of(member)
        async with watch(site, query) as found:
            await until(lambda before=before: watches_of(member) >= before + 2)
            await goes_on(site, found, f"refused-{number}")
            is_warned = f"cluster {HOSTILE}: does not allow" in found.headers.get("warning", "")
            assert is_warned is (number > 0), "who watches next is told whose objects stand still"


def events(asked: Asked, count: int, size: int = 10) -> bytes:
    made = [
        {
            "type": "ADDED",
            "object": {
                "kind": "ConfigMap",
                "apiVersion": "v1",
                "metadata": {
                    "name": f"flood{number}",
                    "namespace": "shop",
                    "uid": f"{number}",
                    "resourceVersion": f"{100 + number}",
                },
                "data": {"k": "x" * size},
            },
        }
        for number in range(count)
    ]
    return b"".join(json.dumps(each).encode() + b"\n" for each in made)


async def test_a_watch_that_was_allowed_and_is_taken_back_is_heard_once(
    site: Site, member: HostileMember
):
    async def one_event(asked: Asked, writer: asyncio.StreamWriter) -> None:
        told = events(asked, 1)
        writer.write(head(200, f"Content-Length: {len(told)}") + told)

    watched: Behaviour = one_event

    async def fickle(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await (watched if asked.is_watch else listing(version="100"))(asked, writer)

    member.behave = fickle
    version = await listed_version(site)
    async with (
        watch(site, f"&resourceVersion={version}") as first,
        watch(site, f"&resourceVersion={version}") as second,
    ):
        for found in (first, second):
            await found.until(lambda each: bool(each.lines))
        watched = REFUSED
        for found in (first, second):
            await found.until(lambda each: each.is_over)
            assert found.events[-1]["object"]["reason"] == "Expired"

    watched = one_event
    version = await listed_version(site)
    async with watch(site, f"&resourceVersion={version}") as third:
        await third.until(lambda each: bool(each.lines))
        watched, before = REFUSED, watches_of(member)
        await until(lambda: watches_of(member) >= before + 2)
        await goes_on(site, third, "taken-back")


async def test_a_member_that_refuses_all_from_now_on_is_heard_by_who_has_objects_of_it(
    site: Site, member: HostileMember
):
    version = await listed_version(site)
    member.behave = REFUSED

    async with watch(site, f"&resourceVersion={version}") as found:
        await found.until(lambda each: each.is_over)

    assert found.events[-1]["object"]["reason"] == "Expired"
    async with watch(site, f"&resourceVersion={await listed_version(site)}") as found:
        await goes_on(site, found, "without-it")


def endless(*, per_page: int) -> Behaviour:
    """Return what lists page after page, each with a token and names of its own."""
    pages = 0

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        nonlocal pages
        pages += 1
        items = [
            {
                "metadata": {
                    "name": f"bait-{pages}-{number}",
                    "namespace": "shop",
                    "uid": f"{pages}-{number}",
                    "resourceVersion": "1",
                }
            }
            for number in range(per_page)
        ]
        metadata = {"resourceVersion": "5", "continue": f"page-{pages}"}
        await listing(*items, metadata=metadata)(asked, writer)

    return answer


@pytest.mark.parametrize("query", ["", INITIAL], ids=["plain", "awaited"])
async def test_a_list_without_end_is_given_up_and_taken_back(
    site: Site, member: HostileMember, query: str
):
    member.behave = endless(per_page=250)

    async with watch(site, query) as found:
        await found.until(has_deleted)
        told = found.told
        await goes_on(site, found, f"taken-{len(query)}")

    added = sum(change == "ADDED" and name.startswith("bait") for change, name in told)
    assert added <= MOST_OBJECTS + 250


def has_deleted(found: Watching) -> bool:
    return any(line.startswith(b'{"type":"DELETED"') for line in found.lines)


async def test_small_pages_without_end_cost_a_bounded_time(site: Site, member: HostileMember):
    member.behave = endless(per_page=1)
    troubles = site.running.fleet.directory.troubles

    async with watch(site) as found:
        await until(lambda: troubles.find(HOSTILE, "root") is not None)
        await goes_on(site, found, "small-pages")


async def test_a_flood_of_events_has_no_client_cut_that_looks_away_for_a_moment(
    site: Site, member: HostileMember
):
    has_sent = asyncio.Event()

    async def flood(asked: Asked, writer: asyncio.StreamWriter) -> None:
        told = events(asked, 1, 7_000_000)
        writer.write(head(200, f"Content-Length: {5 * len(told)}"))
        for _ in range(4):
            writer.write(told)
            await writer.drain()
        has_sent.set()
        await asyncio.sleep(60)

    member.behave = then(listing(), flood)
    ask = ApiRequest("GET", f"{MAPS}?watch=1&resourceVersion={await listed_version(site)}")
    splitter, lines = LineSplitter(), list[bytes]()

    async with site.connection(ROOT).stream(ask) as answer, asyncio.timeout(30):
        with suppress(TimeoutError):  # it is held up by now, or has sent everything
            async with asyncio.timeout(1.5):
                await has_sent.wait()
        async for chunk in answer.chunks():
            lines += splitter.feed(chunk)
            if len(lines) == 4:
                break

    assert {json.loads(line)["type"] for line in lines} == {"ADDED"}


async def test_more_objects_than_a_cluster_has_are_not_remembered(
    site: Site, member: HostileMember
):
    async def flood(asked: Asked, writer: asyncio.StreamWriter) -> None:
        told = events(asked, MOST_OBJECTS + 500)
        writer.write(head(200, f"Content-Length: {len(told) + 1}") + told)
        await writer.drain()
        await asyncio.sleep(60)

    member.behave = then(listing(), flood)

    async with watch(site) as found:
        await found.until(has_deleted)
        await goes_on(site, found, "many-objects")
