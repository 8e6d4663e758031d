"""A fleet that is written, read and broken all the time, and what its readers were shown."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from tests.component.gateway.fleet_site import (
    RBAC,
    TOKENS,
    forget_secrets,
    reaching,
    using,
    write_member,
)
from tests.component.gateway.fleet_site import grant as grant_role
from tests.robustness.watch_fleet import KEYS, SHOP, events_of

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.connection import Connection
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.requests import Answer, ApiRequest, ResourcePath
from clusterspace.client.resources import DeleteOptions
from clusterspace.client.settings import AuthInfo, ConnectionSettings, Pem, Trust
from clusterspace.client.watch import EventType, LineSplitter
from clusterspace.errors import ApiError, ClusterError
from clusterspace.fleet.gateway import fanout, routes
from clusterspace.fleet.gateway.fanout import FleetLimits, exchange
from clusterspace.fleet.gateway.merge import versions
from clusterspace.fleet.gateway.merge.failures import Reply
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import uid_of
from clusterspace.roots.fleet import RunningFleet, running_fleet
from clusterspace.roots.settings import FleetSettings
from clusterspace.testing import stage
from clusterspace.testing.builders import NAMESPACES, config_map, namespace
from clusterspace.testing.faults import Delay, FaultProxy, fault_proxy, is_list, status_reply
from clusterspace.testing.hubs import MASTERS_TRAVEL, part_of_hub
from clusterspace.testing.stage import Side
from clusterspace.testing.watch_histories import (
    ClusterLog,
    Event,
    Logged,
    Segment,
    problems_of,
    read_event,
)

PATH = "/api/v1/namespaces/shop/configmaps"
ROOT, JANE = "root-token", "jane-token"
VIEWER = "viewer"
INITIAL = (("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan"))


@dataclass(frozen=True)
class Change:
    """One change in the log of a member; `value` is None for a deletion."""

    revision: int
    name: str
    value: str | None
    side: str = ""
    uid: str = ""


@dataclass
class Member:
    """A cluster, the way to it, its own log, and since when jane may read there."""

    name: str
    side: Side
    proxy: FaultProxy
    changes: list[Change] = field(default_factory=list[Change])
    written: int = 0
    """The newest version that a write was promised to have."""
    flips: int = 0
    """Grows before a right is given and after it was taken: odd while jane may or might read."""
    present: dict[str, Any] = field(default_factory=dict[str, Any])

    async def record(self) -> None:
        """Write down everything that happens, told by the cluster itself."""
        async for event in events_of(self.side):
            version = int(event.item.version.resource_version)
            self._note(event.type, event.item.decode(), version)

    def _note(self, kind: EventType, shown: Any, revision: int) -> None:
        name = shown["metadata"]["name"]
        side = shown["metadata"].get("labels", {}).get("side", "")
        value = None if kind is EventType.DELETED else shown["data"].get("n", "")
        self.changes.append(Change(revision, name, value, side, shown["metadata"]["uid"]))

    async def write(self, random: Random) -> None:
        """Change one object there, past everything that may be broken on the way to it."""
        name = f"c{random.randrange(KEYS)}"
        labels = {"side": random.choice(("left", "right"))}
        data = {"n": f"{self.name}-{random.random()}"}
        wanted = config_map(name, data, namespace="shop", labels=labels)
        if name in self.present and random.random() < 0.2:
            uid = uid_of(self.present.pop(name))
            await self.side.client.delete(SHOP.at(f"shop/{name}"), DeleteOptions(uid))
            return
        if name not in self.present:
            self.present[name] = await self.side.client.create(SHOP, wanted)
        else:
            version = self.present[name]["metadata"]["resourceVersion"]
            metadata = {**wanted["metadata"], "resourceVersion": version}
            self.present[name] = await self.side.client.update(
                SHOP.at(f"shop/{name}"), {**wanted, "metadata": metadata}
            )
        self.promise(self.present[name])

    def promise(self, held: Any) -> None:
        self.written = max(self.written, int(held["metadata"]["resourceVersion"]))

    async def flip(self) -> None:
        """Give jane the right to read here, or take it."""
        place = manifests.role_binding_path(VIEWER)
        if self.flips % 2:
            held = await self.side.client.get(place)
            await self.side.client.delete(place, DeleteOptions(uid_of(held)))
            self.flips += 1
            return
        self.flips += 1
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": VIEWER},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": VIEWER},
            "subjects": [{"kind": "User", "name": "jane", "apiGroup": RBAC}],
        }
        await self.side.client.create(place.collection, binding)

    def state_at(self, revision: int, side: str = "") -> dict[str, tuple[str, str]]:
        """Return version and value of each object at a revision, of those on one side."""
        state: dict[str, tuple[str, str, str]] = {}
        for each in self.changes:
            if each.revision > revision:
                break
            if each.value is None:
                state.pop(each.name, None)
            else:
                state[each.name] = (str(each.revision), each.value, each.side)
        return {name: held[:2] for name, held in state.items() if side in ("", held[2])}

    def log(self, side: str = "") -> ClusterLog:
        """Return what happened here, as it is told to who selects one side."""
        logged = [
            Logged(
                each.revision,
                f"shop/{each.name}",
                each.uid,
                None if each.value is None else {"side": each.side},
            )
            for each in self.changes
        ]
        return ClusterLog(logged, lambda labels: side in ("", labels["side"]))


@dataclass(frozen=True)
class Shown:
    """A list as a reader got it, and what it had to show."""

    who: str
    side: str
    is_of_now: bool
    is_paged: bool
    vector: str
    items: dict[str, dict[str, tuple[str, str]]]
    count: int
    warning: str
    promised: Mapping[str, int]
    """The newest version of each member that was promised before the list was asked for."""
    forbidden: tuple[str, ...] = ()
    """The members in which the reader had no right, from before it was asked until it was there."""
    recalled: frozenset[str] = frozenset()
    """The members that were away, and shown as the reader had seen them before."""
    order: tuple[str, ...] = ()
    """The values of what was asked for in their order, as they came."""


def recalled_in(warning: str) -> frozenset[str]:
    """Return the members that a Warning says are shown as they were."""
    said = re.findall(r"are shown as they were: ([^\"]*)", warning)
    return frozenset(name for each in said for name in re.findall(r"([a-z0-9-]+) \(", each))


@dataclass(frozen=True)
class Told:
    """A watch as a client got it."""

    who: str
    side: str
    segment: Segment
    values: Sequence[tuple[str, str, str, str | None]]
    """Cluster, name, own version and value of each object; no value for one that is gone."""
    forbidden: frozenset[str]
    """The members that were told of though the client had no right, from before it asked on."""


class _ListMetadata(msgspec.Struct):
    resourceVersion: str  # noqa: N815 - the field's own name


class _Listed(msgspec.Struct):
    metadata: _ListMetadata


@dataclass
class ListedFleet:
    """A hub, members behind proxies, a gateway that can be started anew, and its readers."""

    hub: Side
    directory: Path
    members: dict[str, Member]
    running: RunningFleet | None = None
    shown: list[Shown] = field(default_factory=list[Shown])
    told: list[Told] = field(default_factory=list[Told])
    troubles: dict[str, int] = field(default_factory=dict[str, int])
    _port: int = 0
    _given: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
    """Which version of which member each reader was given, by the member itself."""
    _vectors: dict[tuple[str, str], deque[str]] = field(
        default_factory=dict[tuple[str, str], deque[str]]
    )
    _gateway: AsyncExitStack = field(default_factory=AsyncExitStack)
    _connections: dict[str, Connection] = field(default_factory=dict[str, Connection])

    async def start_gateway(self) -> None:
        settings = FleetSettings(
            part_of_hub(self.directory / "hub", "fleet"),
            self.directory / "fleet",
            port=self._port,
            federation=False,
            member_cidrs=LOOPBACK,
            limits=FleetLimits(list_seconds=5.0),
            identities=MASTERS_TRAVEL,
        )
        self.running = await self._gateway.enter_async_context(running_fleet(settings))
        self._port = int(self.running.url.rpartition(":")[2])
        if not self._connections:
            authority = (self.directory / "fleet" / "pki" / "ca.crt").read_bytes()
            for token in (ROOT, JANE):
                way = ConnectionSettings(
                    "fleet", self.running.url, Trust(Pem(authority)), AuthInfo(token=token)
                )
                self._connections[token] = Connection(way, clock=SystemClock(), random=Random(1))

    async def stop_gateway(self) -> None:
        gateway, self._gateway = self._gateway, AsyncExitStack()
        await gateway.aclose()

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()
        await self.stop_gateway()

    @contextmanager
    def hearing_members(self) -> Generator[None]:
        """Write down which lists members give to whom, be the answer as a whole refused or not."""
        original = fanout.ask_one

        async def ask_one(link: Any, make_request: Callable[[Any], ApiRequest]) -> Reply:
            reply = await original(link, make_request)
            with suppress(msgspec.DecodeError, ApiError):
                headers = dict(make_request(link).headers)
                who = JANE if headers.get("impersonate-user") == "jane" else ROOT
                version = msgspec.json.decode(reply.body, type=_Listed).metadata.resourceVersion
                self._given.add((who, link.cluster, version))
            return reply

        fanout.ask_one = ask_one
        try:
            yield
        finally:
            fanout.ask_one = original

    # -- readers and writers ------------------------------------------------------------------

    async def read(self, random: Random, who: str) -> None:
        """List once, in one of many ways, and write down what came."""
        side = random.choice(("", "", "left"))
        query: dict[str, str] = {"labelSelector": f"side={side}"} if side else {}
        is_any = random.random() < 0.15
        limit = random.choice((0, 0, 0, 5, 17))
        is_sorted = not is_any and random.random() < 0.25
        if is_any:
            query["resourceVersion"] = "0"
        elif limit:
            query["limit"] = str(limit)
        if is_sorted:
            query["sortBy"] = ".data.n"
        promised = {name: member.written for name, member in self.members.items()}
        flips = {name: member.flips for name, member in self.members.items()}
        items: list[Any] = []
        vector = token = warning = ""
        while True:
            pairs = tuple({**query, **({"continue": token} if token else {})}.items())
            request = ApiRequest("GET", PATH, pairs, seconds=20.0)
            answer = await self._ask(who, request)
            if answer is None:
                return
            body: Any = msgspec.json.decode(answer.body)
            items += body["items"]
            vector = vector or str(body["metadata"]["resourceVersion"])
            warning += answer.headers.get("warning", "")
            self._note_given(who, answer, vector)
            token = body["metadata"].get("continue", "")
            if not token:
                break
        found: dict[str, dict[str, tuple[str, str]]] = {}
        for each in items:
            name = routes.split(each["metadata"]["name"])
            version = each["metadata"]["resourceVersion"]
            found.setdefault(str(name.cluster), {})[name.name] = (
                version,
                each["data"].get("n", ""),
            )
        never = [
            name
            for name, member in self.members.items()
            if who == JANE and flips[name] == member.flips and member.flips % 2 == 0
        ]
        self.shown.append(
            Shown(
                who,
                side,
                not is_any,
                bool(limit) and not is_any and not is_sorted,  # sorted pages are of one moment
                vector,
                found,
                len(items),
                warning,
                promised,
                tuple(never),
                recalled_in(warning),
                tuple(each["data"].get("n", "") for each in items) if is_sorted else (),
            )
        )

    def _note_given(self, who: str, answer: Answer, vector: str) -> None:
        recalled = recalled_in(answer.headers.get("warning", ""))
        for name, version in versions.decode(vector, list(self.members)).items():
            if name not in recalled:
                self._given.add((who, name, version))

    async def watch(self, random: Random, who: str) -> None:
        """Watch for a while, from a list or from the beginning, and write down what came."""
        side = random.choice(("", "", "left"))
        selected = (("labelSelector", f"side={side}"),) if side else ()
        flips = {name: member.flips for name, member in self.members.items()}
        vector = ""
        before = self._vectors.setdefault((who, side), deque(maxlen=8))
        if before and random.random() < 0.4:
            vector = random.choice(before)  # of a time when other rights may have held
        elif random.random() < 0.7:
            answer = await self._ask(who, ApiRequest("GET", PATH, selected, seconds=20.0))
            if answer is None:
                return
            vector = str(msgspec.json.decode(answer.body)["metadata"]["resourceVersion"])
            self._note_given(who, answer, vector)
            before.append(vector)
        starts = not vector
        query = (
            ("watch", "1"),
            *selected,
            *(INITIAL if starts else (("resourceVersion", vector),)),
        )
        events: list[Event] = []
        values: list[tuple[str, str, str, str | None]] = []
        forbidden: set[str] = set()
        splitter = LineSplitter()
        with suppress(TimeoutError, ClusterError):
            async with (
                asyncio.timeout(0.1 + 1.5 * random.random()),
                self._connections[who].stream(ApiRequest("GET", PATH, query)) as stream,
            ):
                if stream.status != 200:
                    return
                async for chunk in stream.chunks():
                    for line in splitter.feed(chunk):
                        event = read_event(line)
                        if event.type == "ERROR":
                            break
                        events.append(event)
                        if event.type == "BOOKMARK":
                            continue
                        shown: Any = msgspec.json.decode(line)["object"]
                        own = versions.version_in(event.vector, event.cluster, list(self.members))
                        is_gone = event.type == "DELETED"
                        value = None if is_gone else str(shown["data"].get("n", ""))
                        name = event.key.partition("/")[2]
                        values.append((event.cluster, name, own or "", value))
                        has_right = who == ROOT or self.members[event.cluster].flips % 2
                        if (
                            not has_right
                            and flips[event.cluster] == self.members[event.cluster].flips
                        ):
                            forbidden.add(event.cluster)
        segment = Segment(events, vector)
        self.told.append(Told(who, side, segment, values, frozenset(forbidden)))

    async def write_and_read(self, random: Random) -> None:
        """Write through the gateway; the lists that follow have to show it."""
        member = random.choice(list(self.members.values()))
        name = f"g{random.randrange(3)}"
        labels, data = {"side": "left"}, {"n": f"g-{random.random()}"}
        patch = config_map(name, data, namespace="shop", labels=labels)
        path = f"{PATH}/{name}.clusterspace.{member.name}?fieldManager=suite&force=true"
        request = ApiRequest(
            "PATCH", path.partition("?")[0], (("fieldManager", "suite"), ("force", "true")),
            (("Content-Type", "application/apply-patch+yaml"),), msgspec.json.encode(patch),
            seconds=20.0,
        )  # fmt: skip
        answer = await self._ask(ROOT, request)
        if answer is None:
            return
        member.promise(msgspec.json.decode(answer.body))
        await self.read(random, ROOT)

    async def _ask(self, who: str, request: ApiRequest) -> Answer | None:
        """Ask once; None when it was refused, or the gateway is being started anew."""
        with suppress(ClusterError):
            answer = await exchange(self._connections[who], request)
            if answer.status < 400:
                return answer
        await asyncio.sleep(0.02)
        return None

    # -- what goes wrong ----------------------------------------------------------------------

    async def break_something(self, random: Random) -> None:
        member = random.choice(list(self.members.values()))
        troubles = ("cut", "refuse", "slow", "evict", "flip", "restart")
        (trouble,) = random.choices(troubles, (3, 3, 3, 4, 8, 1))
        self.troubles[trouble] = self.troubles.get(trouble, 0) + 1
        if trouble == "cut":
            member.proxy.cut()
        elif trouble == "refuse":
            member.proxy.inject(status_reply(503, "ServiceUnavailable"), when=is_list, times=3)
        elif trouble == "slow":
            member.proxy.inject(Delay(0.05), when=is_list, times=5)
        elif trouble == "evict" and self.running is not None:
            self.running.fleet.cache.sweep(random.sample(sorted(self.members), 1))
        elif trouble == "restart":
            await self.stop_gateway()
            await self.start_gateway()
        elif trouble == "flip":
            await member.flip()

    # -- what must hold -----------------------------------------------------------------------

    def problems(self) -> list[str]:
        """Return every promise that was broken towards a reader."""
        found = [each for shown in self.shown for each in self._problems_of(shown)]
        known = {
            (name, each.name, str(each.revision)): each.value
            for name, member in self.members.items()
            for each in member.changes
        }
        logs = {
            side: {name: member.log(side) for name, member in self.members.items()}
            for side in ("", "left")
        }
        for told in self.told:
            found += [f"{told.who} is told of {each} without a right to" for each in told.forbidden]
            for cluster, name, version, value in told.values:
                if value is not None and known.get((cluster, name, version)) != value:
                    found.append(f"{cluster}/{name}@{version} is told as {value}, not as it was")
            if told.who == ROOT:  # jane's rights come and go, and with them what she is told of
                found += problems_of(told.segment, logs[told.side])
        return found

    def _problems_of(self, shown: Shown) -> list[str]:
        found: list[str] = []
        at = versions.decode(shown.vector, list(self.members))
        ordered = [each for each in shown.order if each]
        if ordered != sorted(ordered):
            found.append(f"{shown.who}: {ordered} are not in their order")
        if shown.count != sum(map(len, shown.items.values())):
            found.append(f"{shown.who}: an object is shown twice")
        for name, member in self.members.items():
            items = shown.items.get(name, {})
            is_recalled = name in shown.recalled
            if is_recalled and (shown.who, name, at.get(name, "")) not in self._given:
                found.append(f"{shown.who} is shown {name} as it was never shown to them")
            if name in shown.forbidden and items and not is_recalled:
                found.append(f"{shown.who} is shown objects of {name} without a right to")
            if name not in at:
                if items or (shown.who == ROOT and name not in shown.warning):
                    found.append(f"{name} is missing without a word")
                continue
            known = {(each.name, str(each.revision)): each.value for each in member.changes}
            for key, (version, value) in items.items():
                if known.get((key, version)) != value:
                    found.append(f"{name}/{key}@{version} is shown as {value}, not as it was")
            if shown.is_paged:
                continue  # what comes after the first page may be newer than its version
            expected = member.state_at(int(at[name]), shown.side)
            if items != expected:
                found.append(f"{name} at {at[name]}: {items} instead of {expected}")
            if is_recalled:
                continue  # it says so, and how old it is
            if shown.is_of_now and int(at[name]) < shown.promised[name]:
                found.append(f"{name}: {at[name]} is older than {shown.promised[name]}, promised")
        return found


@asynccontextmanager
async def listed_fleet(directory: Path, count: int) -> AsyncGenerator[ListedFleet]:
    """Run a hub, members and a gateway for as long as the block lasts."""
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(stage.running_fleet(directory, tokens=TOKENS))
        hub = site.hub
        with suppress(ApiError):
            await hub.client.create(ResourcePath(NAMESPACES), namespace("karmada-cluster"))
        await grant_role(hub, "jane", reaching(), "jane")
        members: dict[str, Member] = {}
        for number in range(count):
            name = f"m{number}"
            side = await site.add_member(name)
            upstream = Connection(side.settings, clock=SystemClock(), random=Random(1))
            stack.push_async_callback(upstream.close)
            proxy = await stack.enter_async_context(fault_proxy(upstream, acts_for_users=True))
            await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
            role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": VIEWER}}
            role["rules"] = using("configmaps")  # pyright: ignore[reportArgumentType]
            await side.client.create(ResourcePath(manifests.CLUSTER_ROLES), role)
            await write_member(hub.client, name, proxy.settings.server)
            stack.push_async_callback(forget_secrets, hub.client, name)
            members[name] = Member(name, side, proxy)
        fleet = ListedFleet(hub, directory, members)
        stack.enter_context(fleet.hearing_members())
        await fleet.start_gateway()
        stack.push_async_callback(fleet.close)
        yield fleet
