"""What each cluster serves and which release it runs, remembered; the last word counts.

A cluster that cannot be asked still serves what it served: what a client may ask for must not
change because one cluster is slow.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.client.answers import unreadable
from clusterspace.client.connection import Connection
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ApiRequest
from clusterspace.errors import ApiError, ClusterError
from clusterspace.fleet.gateway.directory import Link
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import ResourceInfo

FRESH_SECONDS: Final = 5.0
"""New kinds are served within this time; an answer that has not changed costs a cluster nothing."""

PAUSE_SECONDS: Final = 10.0
"""After which a cluster is asked again that did not answer."""

_MOST_BYTES: Final = 4 * 1024 * 1024

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class _Told(Generic[Found]):
    connection: Connection
    found: Found
    until: float

    def is_fresh(self, connection: Connection, now: float) -> bool:
        """Whether the same cluster would hardly say anything else now."""
        return self.connection is connection and now < self.until


class Survey(Generic[Found]):
    """One question, put to every cluster now and then."""

    def __init__(
        self, ask: Callable[[Connection], Awaitable[Found]], clock: Clock, *, seconds_each: float
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._seconds = seconds_each
        self._told: dict[str, _Told[Found]] = {}
        self._asking: dict[str, asyncio.Lock] = {}
        self._not_before: dict[str, float] = {}
        """When a cluster that failed is asked again."""

    async def of(self, links: Sequence[Link], silent: Iterable[str] = ()) -> dict[str, Found]:
        """Return what each cluster says, or said last; those that never said anything are out.

        `silent` are clusters that cannot be asked now.
        """
        async with asyncio.TaskGroup() as group:
            for link in links:
                group.create_task(self._refresh(link), name=f"survey {link.cluster}")
        clusters = (*(link.cluster for link in links), *silent)
        return {each: self._told[each].found for each in clusters if each in self._told}

    async def _refresh(self, link: Link) -> None:
        async with self._asking.setdefault(link.cluster, asyncio.Lock()):
            held = self._told.get(link.cluster)
            if held is not None and held.is_fresh(link.connection, self._clock.monotonic()):
                return
            if self._clock.monotonic() < self._not_before.get(link.cluster, 0.0):
                return
            try:
                async with asyncio.timeout(self._seconds):
                    found = await self._ask(link.connection)
            except (ApiError, ClusterError, TimeoutError):
                # Whoever asks next does not wait for it again: one slow cluster costs one client.
                self._not_before[link.cluster] = self._clock.monotonic() + PAUSE_SECONDS
                return
            self._not_before.pop(link.cluster, None)
            until = self._clock.monotonic() + FRESH_SECONDS
            self._told[link.cluster] = _Told(link.connection, found, until)


class Surveys:
    """All that is asked of every cluster."""

    def __init__(self, clock: Clock, *, seconds_each: float) -> None:
        self._discoveries: WeakKeyDictionary[Connection, Discovery] = WeakKeyDictionary()
        self.served = Survey(self._discover, clock, seconds_each=seconds_each)
        """The resources of each cluster."""
        self.versions = Survey(_document("/version"), clock, seconds_each=seconds_each)
        """The /version of each cluster."""
        self.schemas = Survey(_document("/openapi/v3"), clock, seconds_each=seconds_each)
        """The index of OpenAPI documents of each cluster."""

    async def _discover(self, connection: Connection) -> tuple[ResourceInfo, ...]:
        held = self._discoveries.get(connection)
        if held is None:
            # Kept, because it knows the tags of the documents it has.
            held = self._discoveries[connection] = Discovery(connection, fresh_seconds=0)
        return (await held.served()).resources


def _document(path: str) -> Callable[[Connection], Awaitable[Object]]:
    async def ask(connection: Connection) -> Object:
        headers = (("Accept", "application/json"),)
        answer = await connection.ask(
            ApiRequest("GET", path, headers=headers, most_bytes=_MOST_BYTES)
        )
        try:
            return msgspec.json.decode(answer.body, type=dict[str, Any])
        except UNREADABLE as error:
            raise unreadable(connection.cluster, f"{path} is no document", error) from error

    return ask
