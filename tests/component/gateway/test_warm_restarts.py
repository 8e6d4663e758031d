"""A gateway that is started again reads what has changed, and believes no strange file."""

import asyncio
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from structlog.testing import capture_logs
from tests.component.gateway.fleet_site import Heard, Site, fleet_site, member_at, until_reached

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.connection import Connection
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.gateway import clusters, object_cache
from clusterspace.fleet.gateway.fanout import FleetLimits
from clusterspace.kube.objects import with_value
from clusterspace.roots.fleet import running_fleet
from clusterspace.roots.settings import FleetSettings
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    config_map,
    deployment,
    namespace,
)
from clusterspace.testing.faults import fault_proxy, status_reply
from clusterspace.testing.hubs import MASTERS_TRAVEL, part_of_hub
from clusterspace.testing.steps import edit

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEPLOYS = "/apis/apps/v1/namespaces/shop/deployments"
MAPS = "/api/v1/namespaces/shop/configmaps"
SHOP = ResourcePath(DEPLOYMENTS, "shop")
COUNT = 40
METADATA, WHOLE = "metadata", "whole"


@pytest.fixture(autouse=True)
def _whatever_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for metadata however long that takes: what is shown must not depend on it."""
    monkeypatch.setattr(object_cache, "_WORTHWHILE", float("inf"))


@dataclass
class Watched:
    """A fleet with one more member, `seen`, whose lists are counted."""

    site: Site
    asked: list[str] = field(default_factory=list[str])

    @property
    def file(self) -> Path:
        return self.site.directory / "again" / "cache" / "seen.cache"

    @asynccontextmanager
    async def gateway(self, **settings: Any) -> AsyncGenerator[Site]:
        """Run a gateway in a directory of its own, for as long as the block lasts."""
        made = FleetSettings(
            hub=part_of_hub(self.site.directory / "hub", "fleet"),
            data_dir=self.site.directory / "again",
            port=0,
            federation=False,
            member_cidrs=LOOPBACK,
            limits=FleetLimits(list_seconds=5.0),
            identities=MASTERS_TRAVEL,
            **settings,
        )
        async with running_fleet(made) as running:
            beside = Site(self.site.fleet, running, self.site.members, "again")
            await until_reached(beside, "seen")
            try:
                yield beside
            finally:
                await beside.close()

    async def listed(self, gateway: Site, path: str = DEPLOYS) -> list[str]:
        """List once, and return in which forms `seen` was asked."""
        self.asked.clear()
        answer = await gateway.ask("GET", path)
        assert of_seen(answer) == await self.own_list(path)
        return list(self.asked)

    async def own_list(self, path: str) -> list[Any]:
        answer = await self.site.ask("GET", f"/clusterspaces/east{path}")
        return [each["metadata"]["resourceVersion"] for each in answer.body["items"]]

    async def warm(self, path: str = DEPLOYS) -> None:
        """Have a gateway know the objects, and stop it."""
        async with self.gateway() as gateway:
            for _ in range(2):
                await gateway.ask("GET", path)
            assert await self.listed(gateway, path) == [METADATA]


def of_seen(answer: Heard) -> list[str]:
    found = answer.body["items"]
    ours = [each for each in found if each["metadata"]["name"].endswith(".clusterspace.seen")]
    return [each["metadata"]["resourceVersion"] for each in ours]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Watched]:
    directory = tmp_path_factory.mktemp("fleet")
    async with fleet_site(directory, members=("east",), federation=False) as site:
        east = site.members["east"].client
        await east.create(ResourcePath(NAMESPACES), namespace("shop"))
        for number in range(COUNT):
            made = deployment(f"d{number:02}", namespace="shop")
            made["metadata"]["annotations"] = {"padding": "x" * 1000}
            await east.create(SHOP, made)
            data = {"padding": "x" * 1000}
            of_maps = ResourcePath(CONFIG_MAPS, "shop")
            await east.create(of_maps, config_map(f"c{number:02}", data, namespace="shop"))
        watched = Watched(site)

        def note(request: web.Request) -> bool:
            if request.path in (DEPLOYS, MAPS):
                is_metadata = "PartialObjectMetadataList" in request.headers.get("Accept", "")
                watched.asked.append(METADATA if is_metadata else WHOLE)
            return False

        async with AsyncExitStack() as stack:
            settings = site.members["east"].settings
            upstream = Connection(settings, clock=SystemClock(), random=Random(1))
            stack.push_async_callback(upstream.close)
            proxy = await stack.enter_async_context(fault_proxy(upstream))
            proxy.inject(status_reply(503, "ServiceUnavailable"), when=note, times=None)
            await stack.enter_async_context(member_at(site, "seen", proxy.settings.server))
            yield watched


async def test_a_restart_reads_nothing_again_but_what_has_changed(fleet: Watched):
    await fleet.warm()
    assert stat.S_IMODE(fleet.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(fleet.file.parent.stat().st_mode) == 0o700

    async with fleet.gateway() as gateway:
        assert await fleet.listed(gateway) == [METADATA]
        assert await fleet.listed(gateway) == [METADATA]

    # What is written while no gateway runs is seen: members are asked which states there are.
    east = fleet.site.members["east"].client
    await edit(east, SHOP.at("shop/d03"), lambda held: with_value(held, 7, "spec", "replicas"))
    async with fleet.gateway() as gateway:
        assert await fleet.listed(gateway) == [METADATA, WHOLE]  # the list, and one by its name
        answer = await gateway.ask("GET", DEPLOYS)
        (one,) = [each for each in answer.body["items"] if "d03.clusterspace.seen" in str(each)]
        assert one["spec"]["replicas"] == 7


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


STRANGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "changed": (flipped, "it is torn, or was changed"),
    "torn": (lambda content: content[: len(content) // 2], "it is torn, or was changed"),
    "of another version": (lambda content: b"x" + content, "it is not of this version"),
    "empty": (lambda _: b"", "it is not of this version"),
    "of another cluster": (lambda content: content, "it is of another cluster"),
}


@pytest.mark.parametrize("how", STRANGE)
async def test_a_strange_file_is_not_used_and_said_so_once(fleet: Watched, how: str):
    await fleet.warm()
    make, why = STRANGE[how]
    content = fleet.file.read_bytes()
    if how == "of another cluster":
        content = fleet.file.with_name("east.cache").read_bytes()
    fleet.file.write_bytes(make(content))

    with capture_logs() as lines:
        async with fleet.gateway() as gateway:
            assert await fleet.listed(gateway) == [WHOLE]

    said = [each for each in lines if each["event"] == "cached objects are not used"]
    assert [(each["cluster"], each["reason"]) for each in said] == [("seen", why)]


async def test_a_file_that_others_may_read_or_that_is_a_link_is_not_used(fleet: Watched):
    await fleet.warm()
    fleet.file.chmod(0o644)
    async with fleet.gateway() as gateway:
        assert await fleet.listed(gateway) == [WHOLE]

    await fleet.warm()
    moved = fleet.file.with_name("elsewhere")
    fleet.file.rename(moved)
    fleet.file.symlink_to(moved)
    async with fleet.gateway() as gateway:
        assert await fleet.listed(gateway) == [WHOLE]


async def test_another_cluster_of_the_same_name_has_none_of_it(
    fleet: Watched, monkeypatch: pytest.MonkeyPatch
):
    """The Cluster of that name has another UID, or another ID: it is another one."""
    await fleet.warm()
    monkeypatch.setattr(clusters, "id_of", lambda _: "the UID of another kube-system")

    async with fleet.gateway() as gateway:
        assert await fleet.listed(gateway) == [WHOLE]


async def test_config_maps_are_read_again_and_never_written(fleet: Watched):
    await fleet.warm(MAPS)
    assert b"ConfigMap" not in fleet.file.read_bytes()

    async with fleet.gateway() as gateway:
        assert await fleet.listed(gateway, MAPS) == [WHOLE]


async def test_files_of_clusters_that_left_and_drafts_are_removed(fleet: Watched):
    directory = fleet.file.parent
    strangers = [directory / "gone.cache", directory / ".draft-1"]
    for each in strangers:
        each.write_bytes(b"x")

    async with fleet.gateway():
        assert not any(each.exists() for each in strangers)


async def test_nothing_is_written_where_that_is_off(fleet: Watched):
    fleet.file.unlink()
    async with fleet.gateway(cache_on_disk=False) as gateway:
        for _ in range(3):
            await fleet.listed(gateway)

    assert not await asyncio.to_thread(fleet.file.exists)
