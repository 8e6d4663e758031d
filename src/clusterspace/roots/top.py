"""`top` put together: the collections of the first screen followed, and judged as the page does."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from clusterspace.aio.tasks import Supervisor, report
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient, ListOptions
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.informers import Informer, Update
from clusterspace.errors import ApiError, ClusterError, Forbidden
from clusterspace.fleet.page.problems import (
    REPAIRED,
    ClusterRow,
    Placement,
    Problem,
    Repair,
    cluster_rows,
    find_problems,
    read_repair,
    summarize,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import age
from clusterspace.roots.clients import open_client

_BINDINGS: Final = GroupVersionResource("work.karmada.io", "v1alpha2", "resourcebindings")
_CLUSTER_BINDINGS: Final = GroupVersionResource(
    "work.karmada.io", "v1alpha2", "clusterresourcebindings"
)
_EVENTS: Final = GroupVersionResource("", "v1", "events")
_FIRST_SECONDS: Final = 10.0
"""How long the hub may take to say all of it for the first time; people wait for it."""


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """What is broken and how every cluster is, as far as that is known."""

    problems: tuple[Problem, ...]
    clusters: tuple[ClusterRow, ...]
    notices: tuple[str, ...]
    """What cannot be seen at the moment, in sentences; empty when all of it is known."""


@dataclass(slots=True)
class _Feed:
    """A collection of the hub, with what counts of each of its objects."""

    what: str
    informer: Informer
    keep: Callable[[Object], Any]
    kept: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def notice(self) -> str:
        """Why this is not as it is now, or not known at all; empty when it is."""
        trouble = self.informer.trouble
        if isinstance(trouble, Forbidden):
            return f"You cannot see {self.what}: {trouble}"
        if trouble is not None:
            since = age(self.informer.silent_seconds)
            return (
                f"No answer about {self.what} for {since}: {trouble}."
                " What is shown is as it was then."
            )
        return "" if self.informer.has_synced else f"Still waiting for {self.what}."


class Overview:
    """Follows what the first screen shows, and says when there is something new."""

    def __init__(self, hub: ClusterClient) -> None:
        self._hub = hub
        self._changed = asyncio.Event()
        self._clusters = self._follow(hub, "clusters", CLUSTERS, lambda each: each)
        self._bindings = self._follow(hub, "placed objects", _BINDINGS, summarize)
        self._cluster_bindings = self._follow(
            hub, "placed cluster-wide objects", _CLUSTER_BINDINGS, summarize
        )
        self._repairs = self._follow(
            hub, "repairs", _EVENTS, read_repair, ListOptions(field_selector=f"reason={REPAIRED}")
        )
        self._feeds = (self._clusters, self._bindings, self._cluster_bindings, self._repairs)

    def _follow(
        self,
        hub: ClusterClient,
        what: str,
        resource: GroupVersionResource,
        keep: Callable[[Object], Any],
        selection: ListOptions | None = None,
    ) -> _Feed:
        feed = _Feed(what, Informer(hub, ResourcePath(resource), selection=selection), keep)

        def note(update: Update) -> None:
            after = update.decode_after()
            if after is None:
                feed.kept.pop(update.key, None)
            else:
                feed.kept[update.key] = keep(after)
            self._changed.set()

        feed.informer.add_handler(note)
        return feed

    def start(self, supervisor: Supervisor) -> None:
        """Follow the collections for as long as the supervisor is there."""
        for feed in self._feeds:
            supervisor.keep(f"follow {feed.what}", feed.informer.run)

    async def wait_known(self) -> None:
        """Wait for all that its user may see; raise why the clusters cannot be seen, if so."""

        async def wait(feed: _Feed) -> None:
            try:
                # Asked once by itself, for an informer waits out whatever is wrong.
                first = ApiRequest("GET", feed.informer.path.path, (("limit", "1"),))
                await self._hub.connection.ask(first)
            except (ApiError, ClusterError):
                if feed is self._clusters:
                    raise
                return  # why it is missing is among the notices
            await feed.informer.wait_synced()

        try:
            async with asyncio.timeout(_FIRST_SECONDS):
                for feed in self._feeds:
                    await wait(feed)
        except TimeoutError:
            return  # what is missing is among the notices

    async def wait_changed(self, seconds: float) -> None:
        """Wait for something new, but not longer than this."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    def wake(self) -> None:
        """Have whoever waits go on."""
        self._changed.set()

    def screen(self) -> FirstScreen:
        """Return the first screen as it is now."""
        clusters: list[Object] = [*self._clusters.kept.values()]
        placements: list[Placement] = [
            *self._bindings.kept.values(),
            *self._cluster_bindings.kept.values(),
        ]
        repairs: list[Repair] = [each for each in self._repairs.kept.values() if each is not None]
        return FirstScreen(
            problems=find_problems(clusters, placements, repairs),
            clusters=cluster_rows(clusters, placements),
            notices=tuple(filter(None, (each.notice for each in self._feeds))),
        )


@asynccontextmanager
async def following(hub: ConnectionSettings) -> AsyncGenerator[Overview]:
    """Follow the first screen of a fleet for as long as the block lasts.

    The block begins when it is known; an error says why that cannot be.
    """
    async with open_client(hub) as client, Supervisor(client.connection.clock, report) as tasks:
        overview = Overview(client)
        overview.start(tasks)
        await overview.wait_known()
        yield overview
