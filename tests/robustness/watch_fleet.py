"""A fleet whose every part fails now and then, and what really happened in its clusters."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.component.gateway.fleet_site import forget_secrets, write_member

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.http.users import MemberIdentities
from clusterspace.client.connection import Connection
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import DeleteOptions
from clusterspace.client.settings import ConnectionSettings
from clusterspace.client.watch import EventType, RawEvent, WatchOptions, watch
from clusterspace.errors import NotFound
from clusterspace.fleet.gateway.fanout import FleetLimits
from clusterspace.fleet.membership import manifests
from clusterspace.roots.fleet import running_fleet
from clusterspace.roots.hub import running_hub
from clusterspace.roots.settings import FleetSettings, HubSettings
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace
from clusterspace.testing.faults import FaultProxy, fault_proxy, is_watch, status_reply
from clusterspace.testing.hubs import client_for_test, part_of_hub
from clusterspace.testing.stage import Side
from clusterspace.testing.watch_histories import ClusterLog, Logged

SHOP = ResourcePath(CONFIG_MAPS, "shop")
KEYS = 12
FORGOTTEN = 2**62
"""Of a cluster that was made to forget, whatever the moment, only sums are compared."""


def is_left(labels: Mapping[str, str]) -> bool:
    return labels.get("side") == "left"


async def events_of(side: Side) -> AsyncGenerator[RawEvent]:
    """Yield everything that happens in a cluster, told by itself, for ever; no bookmarks."""
    version = "0"
    while True:
        options = WatchOptions(resource_version=version)
        async for events in watch(side.client.connection, SHOP, options):
            for event in events:
                version = event.item.version.resource_version
                if event.type is not EventType.BOOKMARK:
                    yield event


@dataclass
class Member:
    """A cluster, the way to it, and its own log."""

    name: str
    side: Side
    proxy: FaultProxy
    start: int = 0
    changes: list[Logged] = field(default_factory=list[Logged])
    has_forgotten: bool = False
    is_joined: bool = False
    events: int = 0
    present: dict[str, Any] = field(default_factory=dict[str, Any])
    """The metadata of each object there is, as its only writer knows."""

    def log(self, *, only_left: bool) -> ClusterLog:
        forgotten = FORGOTTEN if self.has_forgotten else 0
        if only_left:
            return ClusterLog(self.changes, is_left, forgotten=forgotten)
        return ClusterLog(self.changes, forgotten=forgotten)

    async def prepare(self) -> None:
        await self.side.client.create(ResourcePath(NAMESPACES), namespace("shop"))

    async def record(self) -> None:
        """Write down everything that happens, told by the cluster itself."""
        async for event in events_of(self.side):
            self._note(event.type, event.item)

    def _note(self, kind: EventType, item: Any) -> None:
        shown = item.decode()
        labels = None if kind is EventType.DELETED else shown["metadata"].get("labels", {})
        version = int(item.version.resource_version)
        self.changes.append(Logged(version, item.key, item.version.uid, labels))

    async def write(self, random: Random, count: int, pause: float) -> None:
        """Make this many changes."""
        while self.events < count:
            name = f"c{random.randrange(KEYS)}"
            labels = {"side": random.choice(("left", "right"))}
            wanted = config_map(name, {"n": str(self.events)}, namespace="shop", labels=labels)
            if name in self.present and random.random() < 0.2:
                uid = self.present.pop(name)["uid"]
                await self.side.client.delete(SHOP.at(f"shop/{name}"), DeleteOptions(uid))
            else:
                self.present[name] = (await self._put(name, wanted))["metadata"]
            self.events += 1
            await asyncio.sleep(pause * random.random())

    async def _put(self, name: str, wanted: Any) -> Any:
        if name not in self.present:
            return await self.side.client.create(SHOP, wanted)
        version = {"resourceVersion": self.present[name]["resourceVersion"]}
        versioned = {**wanted, "metadata": {**wanted["metadata"], **version}}
        return await self.side.client.update(SHOP.at(f"shop/{name}"), versioned)


@dataclass
class FragileFleet:
    """A hub, members behind proxies, and a gateway that can be started anew."""

    hub: Side
    directory: Path
    members: list[Member]
    port: int = 0
    is_up: asyncio.Event = field(default_factory=asyncio.Event)
    _gateway: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def settings(self) -> ConnectionSettings:
        """How a client reaches the gateway, as the hub's administrator."""
        found = read_kubeconfig([self.directory / each / "kubeconfig" for each in ("fleet", "hub")])
        return found.settings(cluster="fleet")

    async def start_gateway(self) -> None:
        settings = FleetSettings(
            part_of_hub(self.directory / "hub", "fleet"),
            self.directory / "fleet",
            port=self.port,
            federation=False,
            member_cidrs=LOOPBACK,
            limits=FleetLimits(list_seconds=5.0),
            identities=MemberIdentities(passes_masters=True),
        )
        running = await self._gateway.enter_async_context(running_fleet(settings))
        self.port = int(running.url.rpartition(":")[2])
        self.is_up.set()

    async def stop_gateway(self) -> None:
        self.is_up.clear()
        gateway, self._gateway = self._gateway, AsyncExitStack()
        await gateway.aclose()

    async def join(self, member: Member) -> None:
        await write_member(self.hub.client, member.name, member.proxy.settings.server)
        member.is_joined = True

    async def leave(self, member: Member) -> None:
        place = manifests.cluster_path(member.name)
        held = await self.hub.client.get(place)
        await self.hub.client.delete(place, DeleteOptions(held["metadata"]["uid"]))
        member.is_joined = False
        while True:
            try:
                await self.hub.client.get(place)
            except NotFound:
                await forget_secrets(self.hub.client, member.name)
                return
            await asyncio.sleep(0.02)


class Chaos:
    """What goes wrong, how often, in an order that a seed decides."""

    def __init__(self, fleet: FragileFleet, random: Random) -> None:
        self._fleet = fleet
        self._random = random
        self.done: dict[str, int] = {}

    async def rage(self, pause: float) -> None:
        """Break something now and then until cancelled."""
        troubles = {
            "disconnect": self._disconnect,
            "outage": self._outage,
            "compaction": self._forget,
            "gateway restart": self._restart,
            "leave and join": self._leave_and_join,
        }
        weights = (6, 3, 3, 1, 1)
        while True:
            await asyncio.sleep(pause * (0.5 + self._random.random()))
            (chosen,) = self._random.choices(list(troubles), weights)
            await troubles[chosen]()
            self.done[chosen] = self.done.get(chosen, 0) + 1

    def _any_member(self) -> Member:
        return self._random.choice(self._fleet.members)

    async def _disconnect(self) -> None:
        self._any_member().proxy.cut()

    async def _outage(self) -> None:
        member = self._any_member()
        member.proxy.inject(status_reply(503, "ServiceUnavailable"), times=None)
        member.proxy.cut()
        await asyncio.sleep(self._random.random())
        member.proxy.heal()

    async def _forget(self) -> None:
        # A third of the members forget; of the others every single event is compared.
        member = self._random.choice(self._fleet.members[::3])
        member.has_forgotten = True
        member.proxy.inject(status_reply(410, "Expired"), when=is_watch, times=3)
        member.proxy.cut()

    async def _restart(self) -> None:
        await self._fleet.stop_gateway()
        await self._fleet.start_gateway()

    async def _leave_and_join(self) -> None:
        member = self._any_member()
        await self._fleet.leave(member)
        await asyncio.sleep(self._random.random())
        await self._fleet.join(member)


@asynccontextmanager
async def fragile_fleet(directory: Path, count: int) -> AsyncGenerator[FragileFleet]:
    """Run a hub, members and a gateway for as long as the block lasts."""
    async with AsyncExitStack() as stack:
        hub = await _server(directory / "hub", "hub", stack)
        await hub.client.create(ResourcePath(NAMESPACES), namespace("karmada-cluster"))
        members = [await _member(directory, f"m{each}", stack) for each in range(count)]
        fleet = FragileFleet(hub, directory, members)
        for member in members:
            await fleet.join(member)
        await fleet.start_gateway()
        stack.push_async_callback(fleet.stop_gateway)
        yield fleet


async def _server(directory: Path, name: str, stack: AsyncExitStack) -> Side:
    settings = HubSettings(directory, port=0, store="memory", member_cidrs=LOOPBACK)
    await stack.enter_async_context(running_hub(settings))
    reached = read_kubeconfig([directory / "kubeconfig"]).settings(cluster=name)
    return Side(reached, await stack.enter_async_context(client_for_test(reached)))


async def _member(directory: Path, name: str, stack: AsyncExitStack) -> Member:
    side = await _server(directory / name, name, stack)
    upstream = Connection(side.settings, clock=SystemClock(), random=Random(1))
    stack.push_async_callback(upstream.close)
    proxy = await stack.enter_async_context(fault_proxy(upstream))
    member = Member(name, side, proxy)
    await member.prepare()
    return member
