"""A stage on which the controllers see hub and members through proxies that lie when told to."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from tests.flows.stages import MEMBERS, SIM, Stage, running_members

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.errors import LeadershipLost
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.controllers import run_controllers
from clusterspace.testing.faults import (
    HTML,
    Fault,
    FaultProxy,
    Freeze,
    Reply,
    Rule,
    Truncate,
    everything,
    fault_proxy,
    is_streamed_list,
    is_watch,
    status_reply,
)
from clusterspace.testing.hubs import client_for_test, part_of_hub
from clusterspace.testing.stage import Side, move_cluster, quick, running_fleet, until_ready
from clusterspace.testing.steps import stop

EXPIRED = status_reply(410, "Expired")
NOT_STREAMED = status_reply(400, "BadRequest")
STALE = "stale"
LIES: dict[str, Fault | None] = {
    "empty": None,
    "403": status_reply(403, "Forbidden"),
    "404": status_reply(404, "NotFound"),
    "HTML": HTML,
    "truncated": Truncate(after_bytes=300),
    STALE: None,
}


@dataclass
class FaultyStage(Stage):
    """A stage with proxies between the controllers and everybody else."""

    hub_proxy: FaultProxy
    member_proxies: dict[str, FaultProxy]

    @property
    def proxies(self) -> tuple[FaultProxy, ...]:
        return (self.hub_proxy, *self.member_proxies.values())

    @property
    def deletions(self) -> list[str]:
        """Every deletion the controllers asked anybody for."""
        return [each for proxy in self.proxies for each in proxy.requests if each[:6] == "DELETE"]

    def proxy_of(self, side: str) -> FaultProxy:
        return self.hub_proxy if side == "hub" else self.member_proxies[side]

    def heal(self) -> None:
        for proxy in self.proxies:
            proxy.heal()
            proxy.cut()

    @asynccontextmanager
    async def controllers(self) -> AsyncGenerator[None]:
        """Run the controllers behind the proxies for as long as the block lasts."""
        settings = quick(self.hub_proxy.settings)

        async def work() -> None:
            while True:
                # A hub that lies for long costs the leadership, as it should; whoever runs the
                # controllers starts them again.
                with suppress(LeadershipLost):
                    await run_controllers(settings, SystemClock())

        task = asyncio.create_task(work())
        try:
            yield
        finally:
            await stop(task)


@asynccontextmanager
async def faulty_stage(directory: Path) -> AsyncGenerator[FaultyStage]:
    """Run a hub and two members; nothing is placed while no controllers run."""
    async with AsyncExitStack() as stack:
        members = await stack.enter_async_context(running_members(SIM, directory))
        fleet = await stack.enter_async_context(running_fleet(directory))
        as_controllers = part_of_hub(directory / "hub", "controllers")
        hub = await stack.enter_async_context(_proxy_to(Side(as_controllers, fleet.hub.client)))
        proxies: dict[str, FaultProxy] = {}
        for name in MEMBERS:
            await fleet.join(name, members[name])
            proxies[name] = await stack.enter_async_context(_proxy_to(members[name]))
            settings = proxies[name].settings
            authority = settings.trust.authority.data
            await move_cluster(fleet.hub.client, name, settings.server, authority)
        yield FaultyStage(fleet, members, hub, proxies)


@asynccontextmanager
async def _proxy_to(side: Side) -> AsyncGenerator[FaultProxy]:
    """Run a proxy with connections of its own: the test's are not to wait for it."""
    async with client_for_test(side.settings) as client, fault_proxy(client.connection) as proxy:
        yield proxy


async def until_members_are_ready(stage: FaultyStage) -> None:
    for name in MEMBERS:
        await until_ready(stage.fleet, name)


Listed = dict[GroupVersionResource, bytes]


async def lists_of(cluster: ClusterClient, resources: Iterable[GroupVersionResource]) -> Listed:
    """Return what a cluster answers now, to be told again later."""
    return {
        each: (await cluster.connection.ask(ApiRequest("GET", ResourcePath(each).path))).body
        for each in resources
    }


def tell_lies(proxy: FaultProxy, lie: str, earlier: Listed) -> list[Rule]:
    """Lie about collections, whoever asks for them how, until the proxy is healed.

    Watches end at once, and lists are not streamed: everybody has to list, and is lied to.
    """
    told: list[Rule] = []
    for resource, body in earlier.items():
        fault = LIES[lie] or _list_like(lie, body)
        if lie in ("empty", STALE):
            proxy.inject(NOT_STREAMED, when=_asks(resource, is_streamed_list), times=None)
            ended = EXPIRED if lie == "empty" else Freeze()
            proxy.inject(EXPIRED, when=_asks(resource, is_watch), times=1)
            proxy.inject(ended, when=_asks(resource, is_watch), times=None)
        told.append(proxy.inject(fault, when=_asks(resource, everything), times=None))
    proxy.cut()
    return told


def _list_like(lie: str, body: bytes) -> Reply:
    """Return a list as it was earlier; or nothing at all, at that version."""
    if lie == STALE:
        return Reply(200, body)
    return Reply(200, json.dumps({**json.loads(body), "items": []}).encode())


def _asks(
    resource: GroupVersionResource, when: Callable[[web.Request], bool]
) -> Callable[[web.Request], bool]:
    """Match what asks for a collection, in whatever namespace."""
    start, end = ResourcePath(resource).path.rsplit("/", 1)

    def matches(request: web.Request) -> bool:
        is_one = request.path.startswith(start) and request.path.endswith(f"/{end}")
        return request.method == "GET" and is_one and when(request)

    return matches
