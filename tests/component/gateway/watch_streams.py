"""A client that watches the fleet, and what it has been told so far."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from clusterspace.client.connection import Connection
from clusterspace.client.requests import ApiRequest
from clusterspace.client.watch import LineSplitter
from clusterspace.errors import ClusterError
from clusterspace.testing.steps import stop

PATIENCE = 30.0


@dataclass
class Watching:
    """One stream, read as it comes."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)
    is_over: bool = False
    is_broken: bool = False
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def events(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]

    @property
    def told(self) -> list[tuple[str, str]]:
        """Type and name of every event but bookmarks."""
        return [
            (each["type"], each["object"]["metadata"]["name"])
            for each in self.events
            if each["type"] not in ("BOOKMARK", "ERROR")
        ]

    @property
    def ends(self) -> list[Any]:
        """The bookmarks that end the initial events."""
        return [each for each in self.events if _is_end(each)]

    @property
    def version(self) -> str:
        """Where the client would go on from."""
        return self.events[-1]["object"]["metadata"]["resourceVersion"]

    async def until(self, condition: Callable[["Watching"], bool]) -> "Watching":
        """Wait until the condition holds of what has been told."""
        async with asyncio.timeout(PATIENCE):
            while not condition(self):
                self._news.clear()
                await self._news.wait()
        return self

    async def until_told(self, *told: tuple[str, str]) -> "Watching":
        return await self.until(lambda watching: all(each in watching.told for each in told))

    async def read(self, connection: Connection, ask: ApiRequest) -> None:
        splitter = LineSplitter()
        try:
            async with connection.stream(ask) as answer:
                self.status, self.headers = answer.status, dict(answer.headers)
                self._news.set()
                async for chunk in answer.chunks():
                    self.lines += splitter.feed(chunk)
                    self._news.set()
        except ClusterError:
            self.is_broken = True
        self.is_over = True
        self._news.set()


def _is_end(event: Any) -> bool:
    if event["type"] != "BOOKMARK":
        return False
    return "k8s.io/initial-events-end" in event["object"]["metadata"].get("annotations", {})


@asynccontextmanager
async def watching(
    connection: Connection,
    path: str,
    *,
    accept: str = "application/json",
    headers: tuple[tuple[str, str], ...] = (),
) -> AsyncGenerator[Watching]:
    """Watch for as long as the block lasts."""
    found = Watching()
    ask = ApiRequest("GET", path, headers=(("Accept", accept), *headers))
    task = asyncio.create_task(found.read(connection, ask))
    try:
        await found.until(lambda each: each.status != 0 or each.is_over)
        yield found
    finally:
        await stop(task)
