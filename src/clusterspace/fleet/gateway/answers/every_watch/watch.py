"""The stream of one client, from its first event to its end."""

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Supervisor
from clusterspace.apiserver.http.negotiation import JSON
from clusterspace.apiserver.http.responses import headers_for
from clusterspace.errors import ApiError, ClusterError, Expired, Forbidden, TaskFailed
from clusterspace.fleet.gateway.answers.asking import Asking
from clusterspace.fleet.gateway.answers.every_watch.feeds import ClusterFeed, Surroundings
from clusterspace.fleet.gateway.answers.every_watch.opening import Opening, open_watch
from clusterspace.fleet.gateway.answers.every_watch.ways import ClusterWay
from clusterspace.fleet.gateway.answers.every_watch.wishes import WatchWish, read_wish
from clusterspace.fleet.gateway.directory import Membership
from clusterspace.fleet.gateway.flow import HUB, Subject
from clusterspace.fleet.gateway.merge.events import PlainStyle, Style, TableStyle
from clusterspace.fleet.gateway.merge.lists import ClusterList
from clusterspace.fleet.gateway.merge.watches import WatchMerger
from clusterspace.fleet.gateway.routes import naming_in
from clusterspace.fleet.gateway.watching import ClientStream

_log = structlog.get_logger(__name__)

_SHORTEST_SECONDS: Final = 1800.0
"""A watch without a timeout lives this long and up to twice it, so that reconnects spread out."""
BOOKMARK_SECONDS: Final = 60.0
_LAST_BOOKMARK_SECONDS: Final = 2.0
"""A planned end is announced this long before it, so that the client goes on from there."""


async def watch_every(asking: Asking) -> None:
    """Answer a watch with the events of every cluster, until somebody ends it."""
    wish = read_wish(asking.route.info.query)
    # Listened to from before the clusters are counted: whoever joins meanwhile is told of.
    with asking.fleet.directory.listening() as membership:
        watch = await _start(asking, wish)
        asking.context.on_end = watch.client_stream.end
        asking.context.guards.append(watch.leave_unreachable)
        with asking.fleet.streams.holding(watch.client_stream):
            await watch.run(membership)


async def _start(asking: Asking, wish: WatchWish) -> "_Watch":
    """Start the answer; what clusters listed is held until it is told, and no longer."""
    opening = await open_watch(asking, wish)
    hub = (await asking.fleet.directory.link(HUB)).connection
    stream = asking.context.request.start_stream(200, headers_for(asking.context, JSON))
    client_stream = ClientStream(stream, slow_seconds=asking.fleet.limits.slow_seconds)
    return _Watch(asking, wish, opening, client_stream, hub.clock, hub.random)


class _Watch:
    """One client's stream, from its first event to its end."""

    def __init__(  # noqa: PLR0913 - what was found out while the stream was opened
        self,
        asking: Asking,
        wish: WatchWish,
        opening: Opening,
        client_stream: ClientStream,
        clock: Clock,
        random: Random,
    ) -> None:
        self._asking = asking
        self._wish = wish
        self.client_stream = client_stream
        self._clock = clock
        merger = WatchMerger(
            _style_of(asking, wish),
            wants_bookmarks=wish.wants_bookmarks,
            wants_initial_end=bool(wish.sends_initial),
            most_objects=asking.fleet.limits.watched_objects,
        )
        self._around = Surroundings(merger, client_stream, clock, random)
        self._held_by_client = opening.held
        self._feeds = {feed.cluster: feed for feed in self._begin(opening)}

    def _begin(self, opening: Opening) -> Iterable[ClusterFeed]:
        """Take in every cluster before anything is told of any: their columns belong together."""
        merger, wish = self._around.merger, self._wish
        for part in opening.listed:
            merger.learn(part)
        for cluster, version in opening.followed.items():
            merger.follow(naming_in(self._asking.route, cluster), version)
            yield self._feed(cluster)
        for part in opening.listed:
            if wish.starts_now:
                merger.follow(part.naming, part.metadata.resource_version)
                yield self._feed(part.cluster)
            else:
                merger.splice(part.naming, is_awaited=True)
                yield self._feed(part.cluster, part)
        for cluster in opening.silent:
            merger.splice(naming_in(self._asking.route, cluster))
            yield self._feed(cluster)

    def _feed(self, cluster: str, first_page: ClusterList | None = None) -> ClusterFeed:
        return ClusterFeed(
            ClusterWay(self._asking, cluster),
            self._around,
            first_page=first_page,
            is_awaited=first_page is not None and bool(self._wish.sends_initial),
            held=self._held_by_client,
        )

    async def run(self, membership: Membership) -> None:
        """Tell what every cluster tells, until the time is over or the stream is ended."""
        async with Supervisor(self._clock, _report) as tasks:
            for feed in self._feeds.values():
                tasks.keep(f"watch {feed.cluster}", feed.run)
            tasks.keep("join and leave", lambda: self._join_and_leave(membership, tasks))
            await self._stay()
        self.client_stream.end()

    async def _join_and_leave(self, membership: Membership, tasks: Supervisor) -> None:
        while True:
            change = await membership.get()
            if change.has_left and change.cluster in self._feeds:
                await self._leave(change.cluster)
            elif not change.has_left and change.cluster not in self._feeds:
                await self._join(change.cluster, tasks)

    async def leave_unreachable(self) -> None:
        """Let go of the members that the caller may no longer reach, as if they had left."""
        members = [each for each in self._feeds if each != HUB]
        asking = self._asking
        reachable = await asking.fleet.gatekeeper.admit(asking.context.user, "get", members)
        for cluster in members:
            if reachable.find_refusal(cluster) is not None and cluster in self._feeds:
                out_of_reach = Expired(f"cluster {cluster} is out of reach now; list again")
                await self._leave(cluster, out_of_reach)

    async def _leave(self, cluster: str, reason: Expired | None = None) -> None:
        async with self.client_stream.turn:
            try:
                self.client_stream.write(self._around.merger.leave(cluster))
            except Expired as left:
                self.client_stream.end(reason or left)
            else:
                self._feeds.pop(cluster).has_left = True

    async def _join(self, cluster: str, tasks: Supervisor) -> None:
        """Splice a cluster in, unless the caller may not reach it."""
        try:
            skipped = (await self._asking.targets((cluster,))).skipped
        except (ApiError, ClusterError) as error:
            # The hub cannot say who may reach it: the client's next stream will ask again.
            _log.debug("cluster not spliced in", cluster=cluster, reason=str(error))
            self.client_stream.end()
            return
        if any(isinstance(each.error, Forbidden) for each in skipped):
            return
        self._around.merger.splice(naming_in(self._asking.route, cluster))
        feed = self._feeds[cluster] = self._feed(cluster)
        tasks.keep(f"watch {cluster}", feed.run)

    async def _stay(self) -> None:
        """Wait for the end, with a bookmark now and then for those who asked."""
        ended, clock = self.client_stream.ended, self._clock
        seconds = self._wish.seconds or _SHORTEST_SECONDS * (1 + self._around.random.random())
        deadline = clock.monotonic() + seconds
        last_bookmark = deadline - _LAST_BOOKMARK_SECONDS
        owes_bookmark = self._wish.wants_bookmarks and last_bookmark > clock.monotonic()
        while not ended.done() and (now := clock.monotonic()) < deadline:
            until = min(now + BOOKMARK_SECONDS, last_bookmark) if owes_bookmark else deadline
            await asyncio.wait([ended], timeout=until - now)
            if owes_bookmark and not ended.done():
                self._bookmark()
                owes_bookmark = until < last_bookmark

    def _bookmark(self) -> None:
        # In the middle of a page nobody could go on from a bookmark anyway.
        if not self.client_stream.turn.locked():
            self.client_stream.write(self._around.merger.bookmark())


def _style_of(asking: Asking, wish: WatchWish) -> Style:
    subject = Subject.of(asking.route.info)
    if asking.representation.is_table:
        return TableStyle(subject, shows_objects=wish.include != "None")
    return PlainStyle(subject)


def _report(failure: TaskFailed) -> None:
    _log.error("task of a watch failed", reason=str(failure), exc_info=failure.__cause__)
