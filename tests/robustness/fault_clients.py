"""Clients of hubs that others make trouble for: what they do, and what they note of it.

Everybody talks to whichever hub the seed says, over HTTP, and waits only so long. Writers note
calls and answers (`shared_registers.run_client`); watchers note every event, bookmark and list, and
go on at another hub from where they were; candidates elect a leader, who acts, and stands still now
and then for longer than his lease between a look at it and the act.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
from tests.component.hub_wire import CONFIG_MAPS, HubClient, WatchStream, config_map, request_bytes
from tests.component.serving.wire import Answer, RawClient
from tests.robustness.fault_world import FaultyHub
from tests.robustness.shared_registers import NotDoneError, RefusedError, Seen, UnknownError

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.leases import (
    LEASES,
    Candidacy,
    Epoch,
    LeaderElection,
    LeaseTimings,
)
from clusterspace.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    LeadershipLost,
    NotLeading,
    ServiceUnavailable,
)
from clusterspace.kube.objects import Object

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 4.0
"""How long a client waits; then it does not know."""

LEASE = LeaseTimings(lease_seconds=2.0, renew_seconds=1.3, retry_seconds=0.3)
LEASES_PATH = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

_BROKEN = (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError, ValueError)


class _QuickClient(HubClient):
    """A client that tells whether its request was sent at all."""

    async def connect(self) -> RawClient:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await super().connect()
        except _BROKEN as error:
            raise NotDoneError from error

    def close(self) -> None:
        with suppress(AttributeError):  # what a transport of asyncio says whose TLS has ended
            super().close()


class Way:
    """One client's way to one hub."""

    def __init__(self, hub: FaultyHub, keys: str = "") -> None:
        self._hub = hub
        self._keys = keys
        """What the names of its keys begin with."""
        self._client: HubClient | None = None

    async def ask(
        self, method: str, path: str, content: Any = None, headers: Sequence[str] = ()
    ) -> Answer:
        """Return the answer; NotDone when nothing was sent, Unknown when none came."""
        if self._client is None:
            known = self._hub.client()
            self._client = _QuickClient(known.host, known.port, known.tls)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._client.ask(method, path, content, headers=headers)
        except NotDoneError:
            self.close()
            raise
        except _BROKEN as error:
            self.close()
            raise UnknownError from error

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    # -- a Hub of shared_registers -------------------------------------------------------------

    def _name(self, key: str) -> str:
        return f"{self._keys}{key.strip('/')}"

    async def read(self, key: str) -> Seen:
        try:
            answer = await self.ask("GET", f"{CONFIG_MAPS}/{self._name(key)}")
        except UnknownError:
            raise NotDoneError from None
        if answer.status == 404:
            return Seen(None, 0)
        if answer.status != 200:
            raise NotDoneError
        body = msgspec.json.decode(answer.body)
        return Seen(body["data"]["v"], int(body["metadata"]["resourceVersion"]))

    async def create(self, key: str, value: str) -> int:
        content = config_map(self._name(key), data={"v": value})
        return version_in(await self.ask("POST", CONFIG_MAPS, content))

    async def update(self, key: str, value: str, version: int) -> int:
        content = config_map(self._name(key), data={"v": value}, resourceVersion=str(version))
        return version_in(await self.ask("PUT", f"{CONFIG_MAPS}/{self._name(key)}", content))

    async def delete(self, key: str, version: int) -> None:
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"resourceVersion": str(version)},
        }
        version_in(await self.ask("DELETE", f"{CONFIG_MAPS}/{self._name(key)}", options))


def version_in(answer: Answer) -> int:
    """Return the version that a write has got."""
    if answer.status in (200, 201):
        metadata = msgspec.json.decode(answer.body).get("metadata") or {}
        return int(metadata.get("resourceVersion") or 0)
    if answer.status in (404, 409):
        raise RefusedError
    is_full = answer.status == 500 and b"out of disk space" in answer.body
    if answer.status in (429, 503) or is_full:  # the hub says: it has not been carried out
        raise NotDoneError
    raise UnknownError(f"{answer.status}")


# -- watchers ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Piece:
    """One stretch of a watch: complete from `after` up to `reached`, and what was told."""

    hub: str
    after: int
    reached: int
    events: list[tuple[str, str, int, str]] = field(default_factory=list[tuple[str, str, int, str]])
    """Type, name, version, value."""
    bookmarks: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Version, and how many events came before it."""


@dataclass(slots=True)
class Listed:
    """One list: when it was asked for, its version, and what was in it."""

    hub: str
    called: float
    version: int
    items: dict[str, tuple[int, str]]


@dataclass(slots=True)
class Diary:
    """All that one watcher was told."""

    pieces: list[Piece] = field(default_factory=list[Piece])
    lists: list[Listed] = field(default_factory=list[Listed])
    expired: int = 0
    reached: int = 0
    """Up to where it was told everything, by a list or by events."""


class Watcher:
    """Follows all ConfigMaps of a namespace, at one hub after the other."""

    def __init__(self, hubs: Sequence[FaultyHub], seed: str) -> None:
        self._hubs = hubs
        self._random = Random(seed)
        self._told: list[int] = []
        self.diary = Diary()

    async def run(self) -> None:
        """Watch until cancelled."""
        after = 0
        while True:
            hub = self._random.choice(self._hubs)
            try:
                if not after:
                    after = await self._list(hub)
                # From where it was, and now and then from where anybody may have been.
                start = after
                if self._told and self._random.random() < 0.2:
                    start = self._random.choice(self._told[-50:])
                after = max(after, await self._watch(hub, start))
            except ExpiredError:
                self.diary.expired += 1
                after = 0
            except (NotDoneError, UnknownError):
                await asyncio.sleep(0.05)
            if after:
                self._told.append(after)

    async def _list(self, hub: FaultyHub) -> int:
        way = Way(hub)
        called = time.monotonic()
        try:
            answer = await way.ask("GET", CONFIG_MAPS)
        finally:
            way.close()
        if answer.status != 200:
            raise NotDoneError
        body = msgspec.json.decode(answer.body)
        version = int(body["metadata"]["resourceVersion"])
        items = {
            each["metadata"]["name"]: (
                int(each["metadata"]["resourceVersion"]),
                (each.get("data") or {}).get("v", ""),
            )
            for each in body["items"]
        }
        self.diary.lists.append(Listed(hub.name, called, version, items))
        # Who gets through only after the last write of a round finds it in the list, which the
        # judge looks at, and no event of it can ever come.
        self.diary.reached = max(self.diary.reached, version)
        return version

    async def _watch(self, hub: FaultyHub, start: int) -> int:
        known = hub.client()
        client = _QuickClient(known.host, known.port, known.tls)
        piece = Piece(hub.name, start, start)
        self.diary.pieces.append(piece)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2 + self._random.random() * 2.5):
                    query = f"resourceVersion={start}&allowWatchBookmarks=true"
                    stream = await self._opened(client, query)
                    while (event := await stream.next()) is not None:
                        if event.type == "ERROR":
                            if event.object.get("code") == 410:
                                raise ExpiredError
                            break
                        if event.type == "BOOKMARK":
                            piece.bookmarks.append((event.revision, len(piece.events)))
                        else:
                            value = (event.object.get("data") or {}).get("v", "")
                            told = (event.type, event.name, event.revision, value)
                            piece.events.append(told)
                        piece.reached = max(piece.reached, event.revision)
                        self.diary.reached = max(self.diary.reached, piece.reached)
        except _BROKEN:
            pass
        finally:
            client.close()
        return piece.reached

    async def _opened(self, client: HubClient, query: str) -> WatchStream:
        connection = await client.connect()
        await connection.send(request_bytes("GET", f"{CONFIG_MAPS}?watch=1&{query}"))
        status, headers = await connection.head()
        if status == 410:
            raise ExpiredError
        if status != 200:
            raise NotDoneError
        return WatchStream(connection, headers)


class ExpiredError(Exception):
    """The hub says that it has forgotten."""


# -- leaders -------------------------------------------------------------------------------------


class HeldClock(SystemClock):
    """A clock whose owner can be made to stand still: he wakes up late."""

    def __init__(self) -> None:
        self._goes_on = asyncio.Event()
        self._goes_on.set()

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        await self._goes_on.wait()

    async def hold(self, seconds: float) -> None:
        self._goes_on.clear()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._goes_on.set()


class _Leases:
    """The Lease, at whichever hub."""

    def __init__(self, ways: Sequence[Way], random: Random) -> None:
        self._ways = ways
        self._random = random

    async def find(self, place: ResourcePath) -> Object | None:
        return await self._ask("GET", place.name)

    async def create(self, place: ResourcePath, kube_object: Object) -> Object:
        del place
        return await self._ask("POST", "", kube_object) or {}

    async def update(self, place: ResourcePath, kube_object: Object) -> Object:
        return await self._ask("PUT", place.name, kube_object) or {}

    async def _ask(self, method: str, name: str, content: Object | None = None) -> Object | None:
        path = f"{LEASES_PATH}/{name}" if name else LEASES_PATH
        try:
            answer = await self._random.choice(self._ways).ask(method, path, content)
        except (NotDoneError, UnknownError):
            raise ServiceUnavailable("nobody answers") from None
        if answer.status in (200, 201):
            return msgspec.json.decode(answer.body)
        if answer.status == 404 and method == "GET":
            return None
        if answer.status == 409:
            raise AlreadyExists("taken") if method == "POST" else Conflict("changed")
        raise ServiceUnavailable(f"{answer.status}")


@dataclass(frozen=True, slots=True)
class Act:
    """What a leader did: the name of what he created says in which epoch."""

    epoch: Epoch
    name: str


class Candidate:
    """Stands for election, and acts while he believes that he leads."""

    def __init__(self, hubs: Sequence[FaultyHub], seed: int, number: int) -> None:
        self._random = Random(f"candidate {seed} {number}")
        self._ways = [Way(each) for each in hubs]
        self._clock = HeldClock()
        self._seed = seed
        self._number = number
        self._election: LeaderElection | None = None
        self.acts: list[Act] = []
        self.refused = 0
        self.pauses = 0

    async def run(self) -> None:
        """Stand for election until cancelled."""
        place = ResourcePath(LEASES, "default", f"led-{self._seed}")
        leases = _Leases(self._ways, self._random)
        elections = 0
        try:
            while True:
                elections += 1  # whoever starts over is somebody else, as a new process is
                candidacy = Candidacy(place, f"candidate-{self._number}-{elections}", LEASE)
                election = LeaderElection(leases, candidacy, clock=self._clock, random=self._random)
                self._election = election
                with suppress(LeadershipLost, NotLeading, ApiError):
                    await election.lead(self._act)
        finally:
            for way in self._ways:
                way.close()

    async def _act(self, epoch: Epoch) -> None:
        assert self._election is not None
        fence = self._election.fence("hub", is_leases=True)
        while True:
            headers = await fence.admit()
            if self._random.random() < 0.1:
                self.pauses += 1
                await self._clock.hold(self._random.uniform(0.8, 2.2) * LEASE.lease_seconds)
            act = Act(epoch, f"act-{self._seed}-{epoch}-{self._number}-{len(self.acts)}")
            self.acts.append(act)
            content = config_map(act.name, data={"v": act.name})
            lines = [f"{name}: {value}" for name, value in headers]
            with suppress(NotDoneError, UnknownError):
                way = self._random.choice(self._ways)
                answer = await way.ask("POST", CONFIG_MAPS, content, lines)
                fence.answered(answer.headers)
                if answer.status == 409:
                    self.refused += 1
            await self._clock.sleep(0.02)
