"""An informer through everything that goes wrong on the way to a cluster."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
import structlog

from clusterspace.apiserver.store.interface import Revision
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions, ListOptions, PatchType
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.informers import STALE_SECONDS, Informer, Update, by_label
from clusterspace.kube.objects import Object, resource_version_of, uid_of
from clusterspace.roots import hub
from clusterspace.testing.builders import CONFIG_MAPS, config_map
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.faults import (
    HTML,
    HTML_NOT_FOUND,
    Drop,
    Fault,
    FaultProxy,
    Freeze,
    Truncate,
    empty_list,
    fault_proxy,
    is_list,
    is_streamed_list,
    is_watch,
    status_reply,
)
from clusterspace.testing.hubs import client_for_test, hub_for_test, real_server_for_test
from clusterspace.testing.steps import stop, until

MAPS = ResourcePath(CONFIG_MAPS, "default")
SECONDS = 60.0

Compact = Callable[[int], Awaitable[None]]


@dataclass
class Server:
    """An API server that can be made to forget its past."""

    settings: ConnectionSettings
    compact: Compact


@dataclass
class Seen:
    """What a handler was told."""

    deleted: list[str] = field(default_factory=list[str])

    def note(self, update: Update) -> None:
        if update.is_deletion:
            self.deleted.append(update.key)


@asynccontextmanager
async def our_hub(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Server]:
    store = MemoryStore()

    async def open_ours(_settings: object) -> MemoryStore:
        return store

    async def compact(revision: int) -> None:
        await store.compact(Revision(revision))

    monkeypatch.setattr(hub, "open_store", open_ours)
    async with hub_for_test(directory) as settings:
        yield Server(settings, compact)


@asynccontextmanager
async def real_server(directory: Path, _patch: pytest.MonkeyPatch) -> AsyncGenerator[Server]:
    # Without its cache of config maps the server asks etcd, which really forgets.
    async with real_server_for_test(directory, "--watch-cache-sizes=configmaps#0") as server:
        yield Server(server.settings, server.compact)


@asynccontextmanager
async def running(informer: Informer) -> AsyncGenerator[Informer]:
    task = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(SECONDS):
            await informer.wait_synced()
        yield informer
    finally:
        await stop(task)


async def in_parallel(work: Iterator[Awaitable[Any]], *, at_once: int = 32) -> None:
    async def run() -> None:
        for each in work:
            await each

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(run())


async def held_by(server_client: ClusterClient) -> dict[str, Object]:
    listed = await server_client.list_objects(MAPS, ListOptions(limit=1000))
    return {f"default/{each['metadata']['name']}": each for each in listed}


async def become_equal(informer: Informer, server_client: ClusterClient) -> dict[str, Object]:
    wanted = await held_by(server_client)
    versions = {key: resource_version_of(each) for key, each in wanted.items()}

    def is_equal() -> bool:
        held = {key: informer.cache.find_version(key) for key in informer.cache}
        return {key: each.resource_version for key, each in held.items() if each} == versions

    await until(is_equal)
    return wanted


class Changes:
    """Updates, deletes and creates that touch different objects."""

    def __init__(self, server_client: ClusterClient) -> None:
        self._client = server_client
        self.deleted: set[str] = set()
        self.next = 0

    async def make(self, count: int) -> None:
        numbers = range(self.next, self.next + count)
        self.next += count
        await in_parallel((self._change(number) for number in numbers), at_once=8)

    async def _change(self, number: int) -> None:
        place = MAPS.named(f"m{number:05}")
        if number % 10 == 7:
            await self._client.create(MAPS, config_map(f"new{number:05}"))
        held = await self._client.get(place)
        if number % 10 in (3, 7):
            await self._client.delete(place, DeleteOptions(uid=uid_of(held)))
            self.deleted.add(place.key)
            return
        version = {"resourceVersion": resource_version_of(held)}
        patch = {"metadata": version, "data": {"number": "changed"}}
        await self._client.patch(place, PatchType.MERGE, patch)


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("start", [our_hub, real_server])
async def test_a_cache_equals_the_server_after_disconnects_and_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Any, count: int
):
    async with (
        start(tmp_path, monkeypatch) as server,
        client_for_test(server.settings) as server_client,
        fault_proxy(server_client.connection) as proxy,
        client_for_test(proxy.settings) as watcher_client,
    ):
        names = (f"m{number:05}" for number in range(count))
        await in_parallel(server_client.create(MAPS, config_map(name)) for name in names)
        seen = Seen()
        informer = Informer(watcher_client, MAPS, selection=ListOptions(limit=count // 20))
        informer.add_handler(seen.note)
        async with running(informer):
            changes = Changes(server_client)
            for _ in range(3):
                async with asyncio.TaskGroup() as group:
                    group.create_task(changes.make(250))
                    await until(lambda: proxy.under_way > 0)
                    assert proxy.cut() == 1
            await become_equal(informer, server_client)
            starts = sum("sendInitialEvents" in each for each in proxy.requests)
            await make_unseen(proxy, changes, 250)
            await server.compact(await newest_version(server_client))
            proxy.heal()
            wanted = await become_equal(informer, server_client)

            assert {key: informer.cache.find(key) for key in informer.cache} == wanted
    assert changes.next == 1000
    assert sorted(seen.deleted) == sorted(changes.deleted)
    assert sum("sendInitialEvents" in each for each in proxy.requests) > starts


async def make_unseen(proxy: FaultProxy, changes: Changes, count: int) -> None:
    """Make changes while the informer is cut off."""
    proxy.inject(Drop(), when=is_watch, times=None)
    proxy.cut()
    await changes.make(count)


async def newest_version(server_client: ClusterClient) -> int:
    made = await server_client.create(MAPS, config_map("newest"))
    return int(resource_version_of(made))


@dataclass
class Bench:
    """A hub with three config maps, and the faulty way to it."""

    server_client: ClusterClient
    watcher_client: ClusterClient
    proxy: FaultProxy
    compact: Compact


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    async with (
        our_hub(tmp_path, monkeypatch) as server,
        client_for_test(server.settings) as server_client,
        fault_proxy(server_client.connection) as proxy,
        client_for_test(proxy.settings) as watcher_client,
    ):
        for name in ("a", "b", "c"):
            await server_client.create(MAPS, config_map(name, labels={"name": name}))
        yield Bench(server_client, watcher_client, proxy, server.compact)


LIES = {
    "an empty list": empty_list("ConfigMapList"),
    "forbidden": status_reply(403, "Forbidden"),
    "not found": status_reply(404, "NotFound"),
    "a page for people": HTML,
    "a page for people that says 404": HTML_NOT_FOUND,
    "unauthorized": status_reply(401, "Unauthorized"),
    "a redirect": status_reply(302, "", location="http://127.0.0.1:1/"),
    "half an answer": Truncate(200),
    "nothing": Drop(),
    "an error": status_reply(500, "InternalError"),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
async def test_no_lie_about_a_collection_deletes_from_the_cache(bench: Bench, lie: Fault):
    seen = Seen()
    informer = Informer(bench.watcher_client, MAPS)
    informer.add_handler(seen.note)
    async with running(informer):
        before = len(bench.proxy.requests)
        # Streaming is refused, so that it lists; the version is forgotten, so that it must.
        bench.proxy.inject(status_reply(422, "Invalid"), when=is_streamed_list, times=None)
        rule = bench.proxy.inject(lie, when=is_list, times=1)
        bench.proxy.inject(status_reply(410, "Expired"), when=is_watch)
        bench.proxy.cut()
        await until(lambda: rule.hits == 1)
        made = await bench.server_client.create(MAPS, config_map("d"))
        await become_equal(informer, bench.server_client)

        assert informer.cache.find("default/d") == made
    assert seen.deleted == []
    assert len(bench.proxy.requests) > before


async def test_a_deletion_nobody_saw_is_told_once_after_the_relist(bench: Bench):
    seen = Seen()
    informer = Informer(bench.watcher_client, MAPS)
    informer.add_handler(seen.note)
    async with running(informer):
        bench.proxy.inject(Drop(), when=is_watch, times=None)
        bench.proxy.cut()
        held = await bench.server_client.get(MAPS.named("b"))
        await bench.server_client.delete(MAPS.named("b"), DeleteOptions(uid=uid_of(held)))
        await bench.compact(await newest_version(bench.server_client))
        bench.proxy.heal()
        await become_equal(informer, bench.server_client)

    assert seen.deleted == ["default/b"]


async def test_a_change_that_one_handler_cannot_read_reaches_the_others_and_so_do_all_later_ones(
    bench: Bench, logged_errors: list[str]
):
    """Whoever wrote the object may have meant just that: the others must not miss anything."""
    heard: list[str] = []

    def stumble(update: Update) -> None:
        if update.key.endswith("/odd"):
            raise ValueError("what is this?")

    informer = Informer(bench.watcher_client, MAPS)
    informer.add_handler(stumble)
    informer.add_handler(lambda update: heard.append(update.key))
    async with running(informer):
        for name in ("odd", "plain"):
            await bench.server_client.create(MAPS, config_map(name))
        await become_equal(informer, bench.server_client)

    assert heard[-2:] == ["default/odd", "default/plain"]
    assert any("default/odd" in each for each in logged_errors)


async def test_an_object_made_anew_under_its_old_name_is_a_deletion_and_an_addition(bench: Bench):
    told: list[tuple[str, bool]] = []
    informer = Informer(bench.watcher_client, MAPS)
    async with running(informer):
        informer.add_handler(lambda update: told.append((update.key, update.is_deletion)))
        told.clear()
        bench.proxy.inject(Drop(), when=is_watch, times=None)
        bench.proxy.cut()
        held = await bench.server_client.get(MAPS.named("b"))
        await bench.server_client.delete(MAPS.named("b"), DeleteOptions(uid=uid_of(held)))
        await bench.server_client.create(MAPS, config_map("b"))
        await bench.compact(await newest_version(bench.server_client))
        bench.proxy.heal()
        await become_equal(informer, bench.server_client)

    assert [each for each in told if each[0] == "default/b"] == [
        ("default/b", True),
        ("default/b", False),
    ]


async def test_a_server_that_does_not_stream_lists_is_listed(bench: Bench):
    bench.proxy.inject(status_reply(422, "Invalid"), when=is_streamed_list, times=None)

    async with running(Informer(bench.watcher_client, MAPS)) as informer:
        assert set(informer.cache) >= {"default/a", "default/b", "default/c"}


async def test_a_server_that_ignores_the_wish_to_stream_is_listed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("clusterspace.client.watch.INITIAL_SECONDS", 0.2)
    bench.proxy.inject(Freeze(), when=is_streamed_list, times=None)

    async with running(Informer(bench.watcher_client, MAPS)) as informer:
        assert set(informer.cache) >= {"default/a", "default/b", "default/c"}


async def test_a_watch_that_freezes_is_opened_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("clusterspace.client.watch.QUIET_SECONDS", 0.3)
    async with running(Informer(bench.watcher_client, MAPS)) as informer:
        bench.proxy.inject(Freeze(), when=is_watch, times=2)
        bench.proxy.cut()
        await bench.server_client.create(MAPS, config_map("d"))

        await become_equal(informer, bench.server_client)
        assert informer.silent_seconds < 10


async def test_an_index_follows_every_change(bench: Bench):
    informer = Informer(bench.watcher_client, MAPS, indexes={"name": by_label("name")})
    async with running(informer):
        held = await bench.server_client.get(MAPS.named("b"))
        version = {"resourceVersion": resource_version_of(held)}
        patch = {"metadata": {**version, "labels": {"name": "a"}}}
        await bench.server_client.patch(MAPS.named("b"), PatchType.MERGE, patch)
        await become_equal(informer, bench.server_client)

        assert informer.cache.keys_at("name", "a") == {"default/a", "default/b"}
        assert informer.cache.keys_at("name", "b") == frozenset()


async def test_a_selection_drops_what_no_longer_matches_and_nothing_else(bench: Bench):
    seen = Seen()
    selection = ListOptions(label_selector="name in (a,b)")
    informer = Informer(bench.watcher_client, MAPS, selection=selection)
    informer.add_handler(seen.note)
    async with running(informer):
        assert set(informer.cache.keys()) == {"default/a", "default/b"}
        bench.proxy.inject(Drop(), when=is_watch, times=None)
        bench.proxy.cut()
        held = await bench.server_client.get(MAPS.named("b"))
        version = {"resourceVersion": resource_version_of(held)}
        patch = {"metadata": {**version, "labels": {"name": "z"}}}
        await bench.server_client.patch(MAPS.named("b"), PatchType.MERGE, patch)
        await bench.compact(await newest_version(bench.server_client))
        bench.proxy.heal()
        await until(lambda: "default/b" not in informer.cache)

    assert seen.deleted == ["default/b"]


async def test_an_informer_that_hears_nothing_raises_an_alarm_once(unused_tcp_port: int):
    clock = ManualClock()
    settings = ConnectionSettings("west", f"http://127.0.0.1:{unused_tcp_port}")
    connection = Connection(settings, clock=clock, random=Random(1))
    informer = Informer(ClusterClient(connection), MAPS)
    task = asyncio.create_task(informer.run())
    with structlog.testing.capture_logs() as lines:
        await clock.advance(STALE_SECONDS - 1)
        assert not informer.is_stale
        await clock.advance(STALE_SECONDS)
    await stop(task)
    await connection.close()

    assert informer.is_stale
    assert not informer.has_synced
    alarms = [line for line in lines if line["event"] == "informer is stale"]
    assert [line["cluster"] for line in alarms] == ["west"]
