"""Other people's clients that keep a copy lose nothing when a member stops and starts."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kr8s.asyncio
import kubernetes
import pytest
import pytest_asyncio
from kubernetes.client import ApiClient
from kubernetes.watch import Watch
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site, member_at
from tests.component.gateway.watch_streams import watching

from clusterspace.client.requests import ResourcePath
from clusterspace.roots.kubeconfigs import merged_kubeconfig
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace
from clusterspace.testing.faults import FaultProxy, fault_proxy, status_reply
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.stage import Side
from clusterspace.testing.steps import stop, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/api/v1/namespaces/shop/configmaps"
TYPED = "application/vnd.kubernetes.protobuf,application/json"
"""What typed clients of Go ask for since 0.32; a JSON answer is fine with them."""
FIRST = "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true"
AGAIN = "allowWatchBookmarks=true&resourceVersion="


@dataclass
class Fleet:
    """A fleet with a member that stops and starts."""

    site: Site
    member: Side
    proxy: FaultProxy
    made: int = 0

    @property
    def kubeconfig(self) -> Path:
        """What an administrator has: where the fleet is, and who they are at the hub."""
        parts = [self.site.directory / each / "kubeconfig" for each in ("fleet", "hub")]
        merged = self.site.directory / "kubeconfig"
        merged.write_bytes(merged_kubeconfig([each.read_bytes() for each in parts]))
        return merged

    async def create(self) -> str:
        """Create one more object in the member; return what the fleet calls it."""
        self.made += 1
        name = f"n{self.made}"
        await self.member.client.create(
            ResourcePath(CONFIG_MAPS, "shop"), config_map(name, namespace="shop")
        )
        return f"{name}.clusterspace.north"

    async def stop_and_start(self) -> str:
        """Stop the member, have something happen in it, and start it; return what happened."""
        self.proxy.inject(status_reply(503, "ServiceUnavailable"), times=None)
        self.proxy.cut()
        name = await self.create()
        await asyncio.sleep(0.5)
        self.proxy.heal()
        return name


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Fleet]:
    directory = tmp_path_factory.mktemp("fleet")
    async with fleet_site(directory, members=("east",)) as site, _north(site) as found:
        yield found


@asynccontextmanager
async def _north(site: Site) -> AsyncGenerator[Fleet]:
    home = site.directory / "north"
    home.mkdir()
    async with hub_for_test(home, name="north") as settings, client_for_test(settings) as own:
        north = Side(settings, own)
        for side in (north, site.hub, site.members["east"]):
            await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
        async with (
            fault_proxy(own.connection) as proxy,
            member_at(site, "north", proxy.settings.server),
        ):
            yield Fleet(site, north, proxy)


@dataclass
class Copy:
    """What a client was told."""

    names: set[str] = field(default_factory=set[str])
    deleted: list[str] = field(default_factory=list[str])

    def note(self, kind: str, name: str) -> None:
        if kind == "DELETED":
            self.deleted.append(name)
        else:
            self.names.add(name)

    def has(self, name: str) -> Callable[[], Awaitable[bool]]:
        async def is_so() -> bool:
            return name in self.names

        return is_so


async def test_the_official_python_client_is_told_of_no_deletion(fleet: Fleet):
    first, copy, is_over = await fleet.create(), Copy(), threading.Event()
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(fleet.kubeconfig), client_configuration=configuration)

    def follow() -> None:
        with ApiClient(configuration) as api_client:
            core: Any = kubernetes.client.CoreV1Api(api_client)
            while not is_over.is_set():
                events: Any = Watch().stream(
                    core.list_namespaced_config_map, "shop", timeout_seconds=1
                )
                for event in events:
                    copy.note(event["type"], event["object"].metadata.name)

    following = asyncio.create_task(asyncio.to_thread(follow))
    await until(copy.has(first))
    second = await fleet.stop_and_start()
    await until(copy.has(second))
    is_over.set()
    await following

    assert copy.deleted == []


async def test_kr8s_is_told_of_no_deletion(fleet: Fleet):
    first, copy = await fleet.create(), Copy()
    api = await kr8s.asyncio.api(kubeconfig=str(fleet.kubeconfig))

    async def follow() -> None:
        async with aclosing(api.async_watch("configmaps", namespace="shop")) as events:
            async for kind, shown in events:
                copy.note(kind, shown.name)

    following = asyncio.create_task(follow())
    await until(copy.has(first))
    second = await fleet.stop_and_start()
    await until(copy.has(second))
    await stop(following)

    assert copy.deleted == []


async def test_what_an_informer_of_go_asks_keeps_its_copy(fleet: Fleet):
    first, copy = await fleet.create(), Copy()
    connection = fleet.site.connection(ROOT)
    path = f"{PATH}?{FIRST}&timeoutSeconds=300&watch=true"
    async with watching(connection, path, accept=TYPED) as initial:
        await initial.until(lambda each: bool(each.ends))
    assert ("ADDED", first) in initial.told
    assert len(initial.ends) == 1

    path = f"{PATH}?{AGAIN}{initial.version}&timeoutSeconds=300&watch=true"
    async with watching(connection, path, accept=TYPED) as later:
        second = await fleet.stop_and_start()
        await later.until_told(("ADDED", second))
    for kind, name in later.told:
        copy.note(kind, name)

    assert copy.deleted == []
    assert later.told == [("ADDED", second)]
