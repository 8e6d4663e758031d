"""Watches of one user that a cluster is asked for once: who joins, who may not, who is too slow."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from aiohttp import web
from tests.component.fake_clusters import status
from tests.component.gateway.fleet_site import (
    ROOT,
    TABLE,
    Site,
    fake_member,
    fleet_site,
    grant,
    member_at,
    reaching,
    using,
)
from tests.component.gateway.watch_streams import Watching, watching

from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import DeleteOptions
from clusterspace.fleet.gateway import shared_watches
from clusterspace.fleet.gateway.fanout import FleetLimits
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import uid_of
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace
from clusterspace.testing.faults import FaultProxy, fault_proxy, is_watch, status_reply
from clusterspace.testing.stage import Side
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/shop/configmaps"
SHOP = ResourcePath(CONFIG_MAPS, "shop")
JANE = "jane-token"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_names = (f"map-{number}" for number in count())


@dataclass
class North:
    """A member whose every request is seen, in a fleet of its own."""

    site: Site
    side: Side
    proxy: FaultProxy

    def asked(self, what: str) -> int:
        """How often the member was asked for something, by all users together."""
        return sum(what in each for each in self.proxy.requests)

    async def create(self, name: str = "", size: int = 1) -> tuple[str, str]:
        """Make an object; return how the fleet tells of it."""
        name = name or next(_names)
        await self.side.client.create(SHOP, config_map(name, {"k": "x" * size}, namespace="shop"))
        return "ADDED", f"{name}.clusterspace.north"

    async def version(self, token: str = ROOT) -> str:
        answer = await self.site.ask("GET", MAPS, token=token)
        return str(answer.body["metadata"]["resourceVersion"])

    @asynccontextmanager
    async def watch(
        self, version: str, *, token: str = ROOT, **options: Any
    ) -> AsyncGenerator[Watching]:
        path = f"{MAPS}?watch=1&resourceVersion={version}"
        async with watching(self.site.connection(token), path, **options) as found:
            yield found

    async def settled(self, watches: int) -> None:
        """Wait until so many watches are open at clusters."""

        async def is_so() -> bool:
            return len(self.site.running.fleet.watches) == watches

        await until(is_so)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def north(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[North]:
    directory = tmp_path_factory.mktemp("fleet")
    limits = FleetLimits(list_seconds=2.0, slow_seconds=2.0)
    async with (
        fleet_site(directory, members=(), federation=False, limits=limits) as site,
        AsyncExitStack() as stack,
    ):
        await site.hub.client.create(ResourcePath(NAMESPACES), namespace("karmada-cluster"))
        side = await site.fleet.add_member("north")
        await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
        await until(lambda: side.client.find(SHOP.at("shop/kube-root-ca.crt")))
        await grant(site.hub, "jane", reaching(), "jane")
        await grant(side, "jane", using("configmaps"), "jane")
        proxy = await stack.enter_async_context(
            fault_proxy(side.client.connection, acts_for_users=True)
        )
        await stack.enter_async_context(member_at(site, "north", proxy.settings.server))
        yield North(site, side, proxy)


async def test_clients_of_one_user_are_told_of_everything_by_one_watch(north: North):
    version = await north.version()
    before = north.asked("watch=true")
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(north.watch(version)) for _ in range(20)]
        made = [await north.create() for _ in range(3)]
        for client in clients:
            await client.until(lambda each: len(each.told) >= 3)
        await north.settled(1)

    assert north.asked("watch=true") == before + 1
    assert all(client.told == made for client in clients)
    await north.settled(0)


async def test_whoever_leaves_disturbs_nobody(north: North):
    version = await north.version()
    async with north.watch(version):
        second = north.watch(version)
        found = await second.__aenter__()
        first = await north.create()
        await found.until_told(first)
    await found.until_told(await north.create())
    await second.__aexit__(None, None, None)

    assert len(found.told) == 2
    await north.settled(0)


async def test_who_comes_late_is_told_what_its_version_lacks_and_nothing_twice(north: North):
    versions = [await north.version()]
    made = list[tuple[str, str]]()
    before = north.asked("watch=true")
    async with north.watch(versions[0]) as first:
        for _ in range(4):
            made.append(await north.create())
            versions.append(await north.version())
        await first.until(lambda each: len(each.told) >= 4)
        async with AsyncExitStack() as stack:
            late = [await stack.enter_async_context(north.watch(each)) for each in versions]
            made.append(await north.create())
            for client in (first, *late):
                await client.until_told(made[-1])

    assert north.asked("watch=true") == before + 1
    assert [client.told for client in late] == [made[at:] for at in range(5)]


async def test_what_is_older_than_all_that_is_kept_is_asked_for_anew(
    north: North, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shared_watches, "_MOST_RECENT", 1)
    version = await north.version()
    async with north.watch(version) as first:
        made = [await north.create() for _ in range(3)]
        await first.until_told(made[-1])
        async with north.watch(version) as late:
            await late.until_told(made[-1])
            await north.settled(2)

    assert late.told == made


async def test_each_form_and_each_selection_is_a_watch_of_its_own(north: North):
    version = await north.version()
    async with (
        north.watch(version) as plain,
        north.watch(version, accept=TABLE) as table,
        north.watch(version, accept=TABLE) as another,
        north.watch(f"{version}&labelSelector=a%3Db") as selected,
    ):
        await north.settled(3)
        made = [await north.create() for _ in range(2)]
        await plain.until_told(made[-1])
        for each in (table, another):
            await each.until(lambda found: len(found.lines) >= 2)
        assert selected.lines == []

    assert table.lines == another.lines
    assert [bool(each["object"]["columnDefinitions"]) for each in table.events] == [True, False]


async def test_nobody_has_a_part_in_the_watch_of_another_user(north: North):
    version = await north.version()
    async with north.watch(version) as root, north.watch(version, token=JANE) as jane:
        made = await north.create()
        await root.until_told(made)
        await jane.until_told(made)
        await north.settled(2)


async def test_who_lost_the_right_cannot_join_the_watch_that_is_open(
    north: North, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shared_watches, "REVIEWED_SECONDS", 0.0)
    version = await north.version(JANE)
    binding = manifests.role_binding_path("jane")
    held = await north.side.client.get(binding)
    async with north.watch(version, token=JANE) as first:
        await first.until_told(await north.create())
        async with north.watch(version, token=JANE) as second:
            await second.until(lambda each: len(each.told) >= 1)
            await north.settled(1)
        await north.side.client.delete(binding, DeleteOptions(uid_of(held)))
        async with north.watch(version, token=JANE) as third:
            await third.until(lambda each: each.is_over)
        await first.until(lambda each: each.is_over)
        # The cluster has been heard by now; who comes with what it gave before hears it too.
        async with north.watch(version, token=JANE) as late:
            await late.until(lambda each: each.is_over)

    assert third.told == late.told == []
    assert [each.events[-1]["object"]["code"] for each in (first, third, late)] == [410] * 3
    assert north.asked("selfsubjectaccessreviews") >= 2
    await grant_again(north, held)


async def grant_again(north: North, held: Any) -> None:
    metadata = {"name": held["metadata"]["name"]}
    await north.side.client.create(
        manifests.role_binding_path("jane").collection, {**held, "metadata": metadata}
    )


async def test_a_cluster_that_does_not_say_who_may_watch_is_asked_for_each_watch(
    north: North, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shared_watches, "REVIEWED_SECONDS", 0.0)
    version = await north.version()
    north.proxy.inject(
        status_reply(403, "Forbidden"),
        when=lambda request: "selfsubjectaccessreviews" in request.path,
        times=None,
    )
    async with north.watch(version) as first, north.watch(version) as second:
        made = await north.create()
        await first.until_told(made)
        await second.until_told(made)
        await north.settled(2)
    north.proxy.heal()


async def test_all_go_on_when_the_watch_breaks(north: North):
    version = await north.version()
    before = north.asked("watch=true")
    async with AsyncExitStack() as stack:
        clients = list[Watching]()
        made = list[tuple[str, str]]()
        for _ in range(5):
            # Each has come further than the one before, and the watch itself not as far.
            clients.append(await stack.enter_async_context(north.watch(version)))
            await north.side.client.create(
                ResourcePath(NAMESPACES), namespace(next(_names))
            )  # of another kind
            version = await north.version()
        await north.settled(1)
        north.proxy.cut()
        made.append(await north.create())
        for client in clients:
            await client.until_told(made[-1])
        await north.settled(1)

    assert north.asked("watch=true") == before + 2
    assert all(client.told == made for client in clients)


async def test_all_list_again_when_the_cluster_has_forgotten(north: North):
    version = await north.version()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(north.watch(version)) for _ in range(5)]
        await north.settled(1)
        north.proxy.inject(status_reply(410, "Expired"), when=is_watch, times=None)
        north.proxy.cut()
        for client in clients:
            await client.until(lambda each: each.is_over)
        north.proxy.heal()

    assert {client.events[-1]["object"]["code"] for client in clients} == {410}


async def test_a_client_that_does_not_read_holds_nobody_up(
    north: North, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shared_watches, "_TOO_MANY", 4)
    monkeypatch.setattr(shared_watches, "_ENOUGH", 2)
    version = await north.version()
    ask = ApiRequest("GET", f"{MAPS}?watch=1&resourceVersion={version}")
    async with (
        north.site.connection(ROOT).stream(ask),
        north.watch(version) as reader,
    ):
        made = [await north.create(size=300_000) for _ in range(40)]
        await reader.until_told(made[-1])
        assert reader.told == made
        assert not reader.is_over

        async def is_cut() -> bool:
            return len(north.site.running.fleet.streams) == 1

        await until(is_cut)


async def test_versions_that_go_back_and_forth_are_told_as_they_come(north: North):
    told = (50, 40, 60, 45)

    async def odd(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            body = {"kind": "ConfigMapList", "apiVersion": "v1", "items": []}
            return web.json_response({**body, "metadata": {"resourceVersion": "30"}})
        if request.method != "GET":
            return status(403, "Forbidden")
        answer = web.StreamResponse()
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        await begun.wait()
        for version in told:
            metadata = {"name": f"v{version}", "namespace": "shop", "resourceVersion": str(version)}
            shown = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}
            line = msgspec.json.encode({"type": "ADDED", "object": shown})
            await answer.write(line + b"\n")
        await asyncio.sleep(3600)
        return answer

    begun = asyncio.Event()
    async with fake_member(north.site, "odd", odd):
        version = await north.version()
        async with north.watch(version) as first, north.watch(version) as second:
            begun.set()
            for each in (first, second):
                await each.until_told(("ADDED", "v45.clusterspace.odd"))

    assert first.told == second.told == [("ADDED", f"v{each}.clusterspace.odd") for each in told]


@pytest.mark.slow
async def test_a_kube_apiserver_says_who_may_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shared_watches, "REVIEWED_SECONDS", 0.0)
    async with fleet_site(tmp_path, members=(), federation=False) as site:
        south = site.members["south"] = await site.fleet.add_kubernetes("south")
        await site.fleet.join("south", south)
        await site.wait_for("south")
        await south.client.create(ResourcePath(NAMESPACES), namespace("shop"))
        await grant(site.hub, "jane", reaching(), "jane")
        await grant(south, "jane", using("configmaps"), "jane")

        async def may_list() -> bool:
            return (await site.ask("GET", MAPS, token=JANE)).code == 200

        await until(may_list)
        listed = await site.ask("GET", MAPS, token=JANE, headers=(("accept", METADATA),))
        version = listed.body["metadata"]["resourceVersion"]
        watches = site.running.fleet.watches

        def watch() -> AbstractAsyncContextManager[Watching]:
            path = f"{MAPS}?watch=1&resourceVersion={version}"
            return watching(site.connection(JANE), path)

        async with watch() as first:
            for name in ("s1", "s2"):
                made = config_map(name, {"k": name}, namespace="shop")
                await south.client.create(SHOP, made)
            await first.until_told(("ADDED", "s2.clusterspace.south"))
            async with watch() as second:
                await second.until_told(("ADDED", "s2.clusterspace.south"))
                shared = len(watches)
            binding = manifests.role_binding_path("jane")
            held = await south.client.get(binding)
            await south.client.delete(binding, DeleteOptions(uid_of(held)))

            async def is_refused() -> bool:
                return not await may_list()

            await until(is_refused)
            async with watch() as third:
                await third.until(lambda each: each.is_over)

    assert listed.body["kind"] == "PartialObjectMetadataList"
    assert shared == 1
    assert second.told == first.told
    assert (third.told, third.events[-1]["object"]["code"]) == ([], 410)
