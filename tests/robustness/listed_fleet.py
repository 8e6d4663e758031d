"""A fleet that is written, read and broken all the time, and what its readers were shown."""

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from aiohttp import web
from tests.component.gateway.fleet_site import (
    RBAC,
    TABLE,
    TOKENS,
    forget_secrets,
    reaching,
    using,
    write_member,
)
from tests.component.gateway.fleet_site import grant as grant_role
from tests.robustness.list_judge import (
    JANE,
    MOST_SECONDS,
    ROOT,
    Change,
    Heard,
    Judge,
    MemberLog,
    Page,
    Promise,
    Shown,
    Told,
)
from tests.robustness.watch_fleet import KEYS, SHOP, events_of

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.connection import Connection
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.requests import Answer, ApiRequest, ResourcePath
from clusterspace.client.resources import DeleteOptions
from clusterspace.client.settings import AuthInfo, ConnectionSettings, Pem, Trust
from clusterspace.client.watch import EventType, LineSplitter
from clusterspace.errors import ApiError, ClusterError
from clusterspace.fleet.gateway import routes
from clusterspace.fleet.gateway.fanout import FleetLimits, exchange
from clusterspace.fleet.gateway.merge import versions
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import uid_of
from clusterspace.kube.protobuf.bodies import decode
from clusterspace.roots.fleet import RunningFleet, running_fleet
from clusterspace.roots.settings import FleetSettings
from clusterspace.testing import stage
from clusterspace.testing.builders import NAMESPACES, config_map, namespace
from clusterspace.testing.faults import Delay, Drop, FaultProxy, fault_proxy, is_list, status_reply
from clusterspace.testing.faults import is_watch as asks_to_watch
from clusterspace.testing.hubs import MASTERS_TRAVEL, part_of_hub
from clusterspace.testing.stage import Side
from clusterspace.testing.watch_histories import Event, Segment, read_event

PATH = "/api/v1/namespaces/shop/configmaps"
VIEWER = "viewer"
INITIAL = (("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan"))


TROUBLES = {
    "cut": 3,
    "refuse": 3,
    "slow": 3,
    "evict": 4,
    "flip": 8,
    "kill": 2,
    "forget": 2,
    "restart": 1,
    "crash": 1,
}
"""What goes wrong, and how often of all times."""


def goes_on(request: web.Request) -> bool:
    """Whether somebody wants to know what came after something that may be forgotten."""
    return asks_to_watch(request) or "continue" in request.query


ANY_STATE_SECONDS = 1.0
"""How old a list may be for who says that any state will do: so short that it matters."""


@dataclass
class Member:
    """A cluster, the way to it, its own log, and since when jane may read there."""

    name: str
    side: Side
    proxy: FaultProxy
    log: MemberLog = field(default_factory=MemberLog)
    has_forgotten: bool = False
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
        self.log.changes.append(Change(revision, name, value, side, shown["metadata"]["uid"]))

    async def write(self, random: Random) -> None:
        """Change one object there, past everything that may be broken on the way to it."""
        name = f"c{random.randrange(KEYS)}"
        labels = {"side": random.choice(("left", "right"))}
        data = {"n": f"{self.name}-{random.random()}"}
        wanted = config_map(name, data, namespace="shop", labels=labels)
        if name in self.present and random.random() < 0.2:
            uid = uid_of(self.present.pop(name))
            await self.side.client.delete(SHOP.at(f"shop/{name}"), DeleteOptions(uid))
            self.log.promises.append(Promise(time.monotonic(), deleted=uid))
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
        """Note that a write was acknowledged."""
        version = int(held["metadata"]["resourceVersion"])
        self.log.promises.append(Promise(time.monotonic(), version))

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


def ages_in(warning: str) -> dict[str, float]:
    """Return the members that a Warning says are shown as they were, and how old that is."""
    said = re.findall(r"are shown as they were: ([^\"]*)", warning)
    found = [pair for each in said for pair in re.findall(r"([a-z0-9-]+) \((\d+)s ago\)", each)]
    return {name: float(age) for name, age in found}


class _ListMetadata(msgspec.Struct):
    resourceVersion: str  # noqa: N815 - the field's own name


class _ObjectMetadata(_ListMetadata):
    name: str


class _Listed(msgspec.Struct):
    metadata: _ListMetadata
    items: list["_Object"] | None = None
    rows: list["_Row"] = []

    @property
    def named(self) -> list[_ObjectMetadata]:
        """Whatever the list names, as objects or as rows of a Table."""
        return [each.metadata for each in (*(self.items or ()), *(row.object for row in self.rows))]


class _Object(msgspec.Struct):
    metadata: _ObjectMetadata


class _Row(msgspec.Struct):
    object: _Object


@dataclass(frozen=True)
class _Rights:
    """How often rights in members had been given or taken when somebody began to look."""

    who: str
    flips: dict[str, int]

    def permitted(self, members: dict[str, Member]) -> frozenset[str]:
        """Return where they had a right ever since."""
        return frozenset(
            name
            for name, member in members.items()
            if self.who == ROOT or (self.flips[name] == member.flips and member.flips % 2)
        )

    def forbidden(self, members: dict[str, Member]) -> frozenset[str]:
        """Return where they had none ever since."""
        return frozenset(
            name
            for name, member in members.items()
            if self.who == JANE and self.flips[name] == member.flips and not member.flips % 2
        )


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
    heard: list[Heard] = field(default_factory=list[Heard])
    refused: list[str] = field(default_factory=list[str])
    """Lists and watches that were refused to who may have them."""
    longest_stall: float = 0.0
    """How long nothing at all happened here: the machine had others to serve."""
    _life: int = 0
    """How often the gateway was started."""
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
            limits=FleetLimits(list_seconds=MOST_SECONDS, any_state_seconds=ANY_STATE_SECONDS),
            identities=MASTERS_TRAVEL,
        )
        self._life += 1
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

    def hear(self, member: Member) -> None:
        """Note what a member answers to whom, on the way between it and the gateway."""

        def hears(request: web.Request, status: int, body: bytes) -> None:
            user = request.headers.get("Impersonate-User", "")
            # What is asked for by name is none of the lists: they have named it before.
            if request.path != PATH or not user or "fieldSelector" in request.query:
                return
            if request.query.get("includeObject") == "None":
                return  # cells alone: what they are of is named beside, and of the same version
            version, objects = 0, frozenset[tuple[str, str]]()
            if body and status == 200:
                is_protobuf = body.startswith(b"k8s\0")
                read: Any = decode(body) if is_protobuf else msgspec.json.decode(body)
                listed = msgspec.convert(read, _Listed)
                version = int(listed.metadata.resourceVersion)
                objects = frozenset((each.name, each.resourceVersion) for each in listed.named)
            self.heard.append(
                Heard(
                    time.monotonic(),
                    self._life,
                    JANE if user == "jane" else ROOT,
                    member.name,
                    status,
                    request.query.get("labelSelector", ""),
                    asks_to_watch(request),
                    version,
                    objects,
                )
            )

        member.proxy.hears = hears

    def _rights(self, who: str) -> _Rights:
        return _Rights(who, {name: member.flips for name, member in self.members.items()})

    # -- readers and writers ------------------------------------------------------------------

    async def read(self, random: Random, who: str) -> None:
        """List once, in one of many ways, and write down what came."""
        side = random.choice(("", "", "left"))
        words: dict[str, str] = {}
        if side and random.random() < 0.5:
            words["labelSelector"] = f"side={side}"
        elif side:  # which no member selects by
            words["fieldSelector"] = f"metadata.labels.side={side}"
        is_any = random.random() < 0.2
        is_sorted = random.random() < 0.25
        if is_sorted:
            words["sortBy"] = ".data.n"
        limit = random.choice((0, 0, 0, 5, 17))
        query = {**words, **({"limit": str(limit)} if limit else {})}
        before = self._vectors.setdefault((who, side), deque(maxlen=8))
        wanted = match = ""
        if is_any:
            query["resourceVersion"] = "0"
        elif before and not limit and random.random() < 0.2:
            wanted, match = random.choice(before), random.choice(("Exact", "NotOlderThan"))
            query |= {"resourceVersion": wanted, "resourceVersionMatch": match}
        headers: tuple[tuple[str, str], ...] = ()
        if random.random() < 0.15:
            headers = (("Accept", TABLE),)
            query["includeObject"] = words["includeObject"] = "Object"
        items: list[Any] = []
        pages: list[Page] = []
        vector = token = ""
        while True:
            rights, started, life = self._rights(who), time.monotonic(), self._life
            pairs = tuple({**query, **({"continue": token} if token else {})}.items())
            if token:
                pairs = tuple(pair for pair in pairs if pair[0] != "resourceVersion")
            answer = await self._ask(who, ApiRequest("GET", PATH, pairs, headers, seconds=20.0))
            if answer is None:
                return
            body: Any = msgspec.json.decode(answer.body)
            page = [row["object"] for row in body["rows"]] if headers else body["items"]
            items += page
            vector = vector or str(body["metadata"]["resourceVersion"])
            warning = answer.headers.get("warning", "")
            found: dict[str, dict[str, tuple[str, str]]] = {}
            for each in page:
                name = routes.split(each["metadata"]["name"])
                held = (each["metadata"]["resourceVersion"], each["data"].get("n", ""))
                found.setdefault(str(name.cluster), {})[name.name] = held
            pages.append(
                Page(
                    started,
                    time.monotonic(),
                    life,
                    found,
                    warning,
                    ages_in(warning),
                    rights.permitted(self.members),
                    rights.forbidden(self.members),
                )
            )
            token = body["metadata"].get("continue", "")
            if not token:
                break
        if not (is_any or is_sorted or limit or headers or "fieldSelector" in words):
            before.append(vector)
        self.shown.append(
            Shown(
                who,
                side,
                tuple(words.items()),
                words.get("labelSelector", ""),
                not is_any and not wanted,
                is_sorted or is_any or not limit,
                vector,
                pages,
                len(items),
                [each["data"].get("n", "") for each in items] if is_sorted else (),
                wanted,
                is_exact=match == "Exact",
                is_for_people=bool(headers),
            )
        )

    async def watch(self, random: Random, who: str) -> None:
        """Watch for a while, from a list or from the beginning, and write down what came."""
        side = random.choice(("", "", "left"))
        selected = (("labelSelector", f"side={side}"),) if side else ()
        rights, life = self._rights(who), self._life
        vector = ""
        before = self._vectors.setdefault((who, side), deque(maxlen=8))
        if before and random.random() < 0.4:
            vector = random.choice(before)  # of a time when other rights may have held
        elif random.random() < 0.7:
            answer = await self._ask(who, ApiRequest("GET", PATH, selected, seconds=20.0))
            if answer is None:
                return
            vector = str(msgspec.json.decode(answer.body)["metadata"]["resourceVersion"])
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
                    self._note_refusal(who, stream.status)
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
                        forbidden |= rights.forbidden(self.members) & {event.cluster}
        segment = Segment(events, vector)
        unsteady = frozenset(self.members) - rights.permitted(self.members)
        self.told.append(
            Told(
                who,
                side,
                life,
                time.monotonic(),
                segment,
                values,
                frozenset(forbidden),
                unsteady,
            )
        )

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
            self._note_refusal(who, answer.status)
        await asyncio.sleep(0.02)
        return None

    def _note_refusal(self, who: str, status: int) -> None:
        if who == ROOT and status in (401, 403, 404):
            self.refused.append(f"{who} was refused what they may have, with {status}")

    async def note_stalls(self) -> None:
        """Look how late the loop is, until cancelled."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.1)
            self.longest_stall = max(self.longest_stall, time.monotonic() - before - 0.1)

    # -- what goes wrong ----------------------------------------------------------------------

    async def break_something(self, random: Random) -> None:
        member = random.choice(list(self.members.values()))
        (trouble,) = random.choices(list(TROUBLES), list(TROUBLES.values()))
        self.troubles[trouble] = self.troubles.get(trouble, 0) + 1
        if trouble == "cut":
            member.proxy.cut()
        elif trouble == "refuse":
            member.proxy.inject(status_reply(503, "ServiceUnavailable"), when=is_list, times=3)
        elif trouble == "slow":
            member.proxy.inject(Delay(0.05), when=is_list, times=5)
        elif trouble == "evict" and self.running is not None:
            self.running.fleet.cache.sweep(random.sample(sorted(self.members), 1))
        elif trouble == "kill":
            member.proxy.inject(Drop(), times=None)
            member.proxy.cut()
            await asyncio.sleep(random.random())
            member.proxy.heal()
        elif trouble == "forget":
            # A third of the members forget; of the others every single event is compared.
            member = random.choice(list(self.members.values())[::3])
            member.has_forgotten = True
            member.proxy.inject(status_reply(410, "Expired"), when=goes_on, times=3)
            member.proxy.cut()
        elif trouble == "restart":
            await self.stop_gateway()
            await self.start_gateway()
        elif trouble == "crash":
            # What is known is on disk as it was a while ago: the rest was not written in time.
            kept = self.directory / "fleet" / "cache"
            former = {path.name: path.read_bytes() for path in kept.glob("*.cache")}
            await self.stop_gateway()
            for path in kept.glob("*.cache"):
                if path.name in former:
                    path.write_bytes(former[path.name])
                else:
                    path.unlink()
            await self.start_gateway()
        elif trouble == "flip":
            await member.flip()

    def problems(self) -> list[str]:
        """Return every promise that was broken towards a reader."""
        logs = {name: member.log for name, member in self.members.items()}
        for member in self.members.values():
            member.log.has_forgotten = member.has_forgotten
        judge = Judge(logs, self.heard, ANY_STATE_SECONDS, self.longest_stall)
        return self.refused + judge.problems(self.shown, self.told)


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
        for member in members.values():
            fleet.hear(member)
        await fleet.start_gateway()
        stack.push_async_callback(fleet.close)
        yield fleet
