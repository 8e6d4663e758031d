"""Clients of a unified watch that are killed at any moment and go on from any vector."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
from tests.robustness.watch_fleet import FragileFleet

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ApiRequest
from clusterspace.client.watch import LineSplitter
from clusterspace.errors import ApiError, ClusterError, Expired
from clusterspace.fleet.gateway import routes
from clusterspace.fleet.gateway.merge import versions
from clusterspace.testing.watch_histories import (
    ClusterLog,
    Event,
    Segment,
    problems_of,
    read_event,
    state_at,
)

PATH = "/api/v1/namespaces/shop/configmaps"
INITIAL = (("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan"))
MEMORY = 400
"""How many of the last vectors a client may go on from."""


@dataclass(frozen=True)
class Listed:
    """A list as a client got it."""

    vector: str
    state: dict[str, dict[str, tuple[str, str]]]


@dataclass
class Client:
    """One client: what it asked for, and all it was told."""

    fleet: FragileFleet
    random: Random
    only_left: bool
    is_informer: bool
    segments: list[Segment] = field(default_factory=list[Segment])
    lists: list[Listed] = field(default_factory=list[Listed])
    kills: int = 0
    expired: int = 0
    events: list[Event] = field(default_factory=list[Event])
    _connection: Connection | None = None
    _is_calm: bool = False
    _issued: list[str] = field(default_factory=list[str])

    async def run(self) -> None:
        """Watch, be killed, go on; until cancelled."""
        settings = self.fleet.settings
        self._connection = Connection(settings, clock=SystemClock(), random=Random(1))
        try:
            vector = ""
            while True:
                await self.fleet.is_up.wait()
                vector = await self._live_once(vector)
        finally:
            await self._connection.close()

    def calm_down(self) -> None:
        """Stop being killed: what is to come is to be read to the end."""
        self._is_calm = True

    @property
    def last_vector(self) -> str:
        if self.events:
            return self.events[-1].vector
        return self._issued[-1] if self._issued else ""

    async def _live_once(self, vector: str) -> str:
        """Watch once; return where to go on from, and nothing to start over."""
        try:
            if not vector and not self.is_informer and self.random.random() < 0.7:
                vector = await self._list()
            ended = await self._watch(vector)
        except Expired:
            ended = "Expired"
        except (ApiError, ClusterError):
            await asyncio.sleep(0.1)
            return vector
        if ended == "Expired":
            self.expired += 1
            self._issued.clear()
            return ""
        return self._choose()

    def _choose(self) -> str:
        """Go on from the last vector, mostly; sometimes from any other one."""
        if not self._issued:
            return ""
        if self._is_calm or self.random.random() < 0.6:
            return self._issued[-1]
        return self.random.choice(self._issued[-MEMORY:])

    @property
    def _selector(self) -> tuple[tuple[str, str], ...]:
        return (("labelSelector", "side=left"),) if self.only_left else ()

    async def _list(self) -> str:
        assert self._connection is not None
        answer = await self._connection.ask(ApiRequest("GET", PATH, self._selector))
        body: Any = msgspec.json.decode(answer.body)
        vector = str(body["metadata"]["resourceVersion"])
        self.lists.append(Listed(vector, _state_of(body["items"])))
        self._issued.append(vector)
        return vector

    async def _watch(self, vector: str) -> str:
        assert self._connection is not None
        starts = self.is_informer and not vector
        query = (
            ("watch", "1"),
            *self._selector,
            *((("resourceVersion", vector),) if vector else ()),
            *((("allowWatchBookmarks", "true"),) if self.is_informer else ()),
            *(INITIAL if starts else ()),
        )
        self.events = []
        seconds = 600.0 if self._is_calm else self.random.uniform(0.05, 3.0)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    return await self._read(ApiRequest("GET", PATH, query))
            self.kills += 1
            return "killed"
        finally:
            kept = [each for each in self.events if each.type != "ERROR"]
            self.segments.append(Segment(kept, vector, self.is_informer, starts))
            self._issued += [each.vector for each in kept]
            self.events = []

    async def _read(self, ask: ApiRequest) -> str:
        assert self._connection is not None
        splitter = LineSplitter()
        async with self._connection.stream(ask) as answer:
            if answer.status != 200:
                whole = await answer.read(1_000_000)
                status: Any = msgspec.json.decode(whole.body)
                if status["reason"] == "Expired":
                    return "Expired"
                await asyncio.sleep(0.1)
                return str(status["reason"])
            async for chunk in answer.chunks():
                for line in splitter.feed(chunk):
                    self.events.append(read_event(line))
                    if self.events[-1].type == "ERROR":
                        return str(msgspec.json.decode(line)["object"]["reason"])
        return "ended"

    def has_everything(self, logs: Mapping[str, ClusterLog]) -> bool:
        """Whether the client has been told all there is to tell."""
        vector = self.last_vector
        if not vector:
            return False
        positions = versions.decode(vector, list(logs))
        return all(
            positions.get(cluster, "") != "" and not log.between(int(positions[cluster]), 2**62)
            for cluster, log in logs.items()
        )

    def problems(self, logs: Mapping[str, ClusterLog]) -> list[str]:
        """Return every rule that was broken towards this client."""
        segments = [*self.segments]
        found = [each for segment in segments for each in problems_of(segment, logs)]
        for listed in self.lists:
            state = {name: held for name, held in state_at(listed.vector, logs).items() if held}
            if state != listed.state:
                found.append(f"the list at {listed.vector} has {listed.state}, not {state}")
        return found


def _state_of(items: list[Any]) -> dict[str, dict[str, tuple[str, str]]]:
    state: dict[str, dict[str, tuple[str, str]]] = {}
    for item in items:
        metadata = item["metadata"]
        parts = routes.split(metadata["name"])
        key = f"{metadata['namespace']}/{parts.name}"
        held = state.setdefault(str(parts.cluster), {})
        held[key] = (metadata["uid"], metadata["resourceVersion"])
    return state
