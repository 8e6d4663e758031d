"""What one cluster sends into the stream of one client that watches all of them, without end.

    ┌─> list ──whole──> watch ──ends, breaks, falls silent──> wait ──┐
    │                     ^                                          │
    │                     └───────────── from where it was ──────────┤
    └──────── the cluster forgot the version, or is behind it ───────┘

What a cluster sends is put into the merger and written to the client in one step, with no wait in
between: see `merge.watches` for what would go wrong otherwise. Behind a step that leaves much
unread, the feed waits for the client before it reads on. So a cluster that floods is slowed down by
the client, and clients are not cut off for what a cluster sends.
"""

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Final
from urllib.parse import quote

import structlog

from clusterspace.aio import clocks
from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.request_info import Query
from clusterspace.client.requests import ApiRequest
from clusterspace.errors import (
    AnswerOverrun,
    ApiError,
    ClusterError,
    ClusterMisbehaved,
    Details,
    Expired,
    Forbidden,
    ServiceUnavailable,
)
from clusterspace.fleet.gateway.answers.list_all import EXACT, NOT_OLDER, Slice
from clusterspace.fleet.gateway.answers.reviews import may
from clusterspace.fleet.gateway.clusters import LOOK_SECONDS, Link
from clusterspace.fleet.gateway.fanout import FleetContext, ask_for_list
from clusterspace.fleet.gateway.merge.events import Event
from clusterspace.fleet.gateway.merge.failures import Reply
from clusterspace.fleet.gateway.merge.lists import ClusterList
from clusterspace.fleet.gateway.merge.watches import WatchMerger
from clusterspace.fleet.gateway.routes import HUB, path_in_cluster
from clusterspace.fleet.gateway.shared_watches import Subscription, Wanted
from clusterspace.fleet.gateway.streams import ClientStream
from clusterspace.kube import statuses

_log = structlog.get_logger(__name__)

_MOST_AT_ONCE: Final = 250
"""Objects of a page: a megabyte of pods, which is all that a stream holds of a list at a time."""
_QUIET_SECONDS: Final = 150.0
"""Servers send a bookmark about once a minute; a stream that skips two is asked for anew."""
_SHORTEST_WATCH: Final = 300
_LONGEST_DELAY: Final = 5.0
_HEALTHY_SECONDS: Final = 10.0
"""A stream that lived this long was all right: what comes next is a new trouble, if it is one."""

OPTIONS: Final = frozenset(
    {
        "allowWatchBookmarks", "continue", "includeObject", "limit", "resourceVersion",
        "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch",
    }
)  # fmt: skip
"""The parameters of a watch that are ours to answer, and differ for each cluster."""


class ClusterRequests:
    """The requests to one cluster on behalf of a client that watches all, in its own words."""

    def __init__(self, context: FleetContext, cluster: str) -> None:
        self._context = context
        self.cluster = cluster
        query = context.info.query
        own = context.query_for(context.route.naming_in(cluster), without_options(query))
        # Rows without their objects could not be told apart.
        is_filtered = context.field_filter is not None and context.representation.is_table
        includes = query.get("includeObject") == "Object" and not is_filtered
        beside = (("includeObject", "Object"),) if includes else ()
        self._query = Query((*own.pairs, *beside))

    async def first_page(self, link: Link, version: str, *, is_all: bool) -> Reply:
        """Ask how the cluster begins: a list not older than a version, or just its version."""
        match = NOT_OLDER if version not in ("", "0") else ""
        return await self.page(link, Slice(_MOST_AT_ONCE if is_all else 1, "", version, match))

    async def state_at(self, link: Link, version: str) -> Reply:
        """Ask for all there was at a version, or all there is: what a client has that goes on.

        In one piece, so that it is of one moment.
        """
        return await self.page(link, Slice(0, "", version, EXACT if version else ""))

    async def page(self, link: Link, wanted: Slice) -> Reply:
        """Ask for some of a list."""
        seconds = self._context.fleet.limits.list_seconds
        query = wanted.added_to(self._query)
        # A stream lives for an hour and a page of it for a moment: it counts while it is read.
        with self._context.fleet.memory.holding() as hold:
            return await ask_for_list(
                self._context,
                link,
                lambda link: replace(self._request_to(link, query, seconds), hold=hold),
                needs_version=True,
            )

    def watch(self, link: Link, version: str) -> ApiRequest:
        """Return the request for events from a version on."""
        # Not all at the same moment, five minutes after the cluster came back.
        seconds = _SHORTEST_WATCH + link.connection.random.randrange(_SHORTEST_WATCH)
        asked = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        query = Query((*self._query.pairs, *asked.items()))
        request = self._request_to(link, query, self._context.fleet.limits.list_seconds)
        headers = (*request.headers, ("accept-encoding", "identity"))
        return replace(request, headers=headers, quiet_seconds=_QUIET_SECONDS)

    async def may_watch(self, link: Link) -> bool:
        """Ask the cluster whether the client may watch this now, whatever is selected of it.

        Who may see single objects only, by their names, is told no: their watch is another one.
        """
        return await may(self._context, link, "watch")

    def _request_to(self, link: Link, query: Query, seconds: float) -> ApiRequest:
        request, info = self._context.request_to(link, query, seconds=seconds), self._context.info
        if not info.is_watch_path:
            return request
        # The old way to watch is a path of its own, under which nothing can be listed.
        plain = path_in_cluster(replace(info, is_watch_path=False))
        return replace(request, path=quote(plain, safe="/:"))


def without_options(query: Query) -> Query:
    """Return the parameters that are the cluster's business: selectors, and what we do not know."""
    return Query(tuple(pair for pair in query.pairs if pair[0] not in OPTIONS))


@dataclass(frozen=True, slots=True)
class MergedStream:
    """The stream of one client, as the feeds of all clusters share it."""

    merger: WatchMerger
    client: ClientStream
    clock: Clock
    random: Random
    copied: Collection[str] = ()
    """Clusters whose objects the client would delete if they were not among the initial events."""


class ClusterFeed:
    """Puts what one cluster sends into the stream of one client, without end."""

    def __init__(
        self,
        context: FleetContext,
        cluster: str,
        stream: MergedStream,
        *,
        first_page: ClusterList | None = None,
        is_awaited: bool = False,
    ) -> None:
        self.cluster = cluster
        self.has_left = False
        """Whether the cluster is no member any more: the merger does not know it."""
        self._context = context
        self._requests = ClusterRequests(context, cluster)
        self._merger = stream.merger
        self._client = stream.client
        self._clock = stream.clock
        self._random = stream.random
        self._copied = stream.copied
        self._first_page = first_page
        self._is_awaited = is_awaited
        self._takes_pages = True
        self._is_alone = False
        self._began = self._clock.monotonic()
        self._was_open = False
        self._goes_well = False

    async def run(self) -> None:
        """Feed until cancelled; failures are waited out, never raised."""
        delays = self._new_delays()
        while not (self._client.ended.done() or self.has_left):
            started = self._clock.monotonic()
            try:
                await self._feed_once()
            except (ApiError, ClusterError) as error:
                await self._note(error)
            if self._clock.monotonic() - started >= _HEALTHY_SECONDS:
                delays = self._new_delays()
            # Even a stream that ended in good order is not asked for anew at once: a cluster that
            # ends them all would be asked without a pause.
            await self._clock.sleep(next(delays))
        # Nothing is left to do until the stream's end reaches us, as a cancellation.
        await asyncio.get_running_loop().create_future()

    def _new_delays(self) -> Iterator[float]:
        return clocks.jittered(0.1, _LONGEST_DELAY, self._random)

    async def _feed_once(self) -> None:
        directory, user = self._context.fleet.directory, self._context.http.user.name
        link = await directory.link(self.cluster)
        # One look at a cluster in trouble serves all: a thousand streams do not knock one by one.
        while directory.troubles.find(self.cluster, user) is not None:
            await self._clock.sleep(LOOK_SECONDS)
            link = await directory.link(self.cluster)
        self._require_member()
        resumes = bool(self._merger.position(self.cluster))
        if not resumes:
            await self._list(link)
        try:
            await self._watch(link, resumes=resumes)
        except Forbidden:
            if await self._is_revoked(link):
                # The cluster took back what it had given: what the client has of it will not be
                # told any more, which only a new list can say.
                why = f"cluster {self.cluster} no longer allows this watch; list again"
                self._client.end(Expired(why))
            raise
        except ApiError as error:
            if not statuses.is_about_the_version(error):
                raise
            lapses, position = self._context.fleet.lapses, self._merger.position(self.cluster)
            if not lapses.believes_expiry(self._context.list_key(self.cluster), position):
                why = "says that the resourceVersion it has just given is too old"
                raise ClusterMisbehaved(self.cluster, why, code=410) from error
            has_gone_back = not isinstance(error, Expired)
            if has_gone_back:
                _log.warning("cluster has gone back", cluster=self.cluster, reason=error.message)
            try:
                self._merger.expire(self.cluster, has_gone_back=has_gone_back)
            except Expired as too_old:
                # A new list here would not say what is gone: only the client's own can.
                self._client.end(too_old)

    async def _is_revoked(self, link: Link) -> bool:
        """Whether the cluster no longer lets the client watch, so that the client must list again.

        It is believed by a stream that it had let watch before. A stream that has just begun, maybe
        at a gateway that has just started, asks for a list too: if that is refused as well, the
        client has objects that it would not be told of any more.
        """
        is_revoked = self._was_open
        if not is_revoked:
            reply = await self._requests.page(link, Slice(1))
            is_revoked = isinstance(reply.failure, Forbidden)
        return self._context.fleet.lapses.note_refusal(
            self._context.list_key(self.cluster),
            self._merger.position(self.cluster),
            since=self._began if is_revoked else None,
        )

    async def _list(self, link: Link) -> None:
        """Send the difference between what was sent and what a list has."""
        self._merger.begin_list(self.cluster)
        page, self._first_page = self._first_page, None
        seconds, token = 0.0, ""
        try:
            if page is not None:
                await self._send(page)
            while page is None or (token := page.metadata.continue_token):
                started = self._clock.monotonic()
                limit = _MOST_AT_ONCE if self._takes_pages else 0
                reply = await self._requests.page(link, Slice(limit, token))
                if reply.listed is None:
                    nothing = ClusterMisbehaved(self.cluster, "answered with no list", code=200)
                    raise reply.failure or nothing
                page = reply.listed
                # Not counted is what the client takes to read: that is not the cluster's doing.
                seconds += self._clock.monotonic() - started
                is_too_long = seconds > self._context.fleet.limits.walk_seconds
                if token and (token == page.metadata.continue_token or is_too_long):
                    raise AnswerOverrun(self.cluster, "its list does not end", code=200)
                await self._send(page)
        except Expired:
            # The cluster forgot the first page while we read the others. All at once, next time.
            self._takes_pages = False
            raise
        except AnswerOverrun as endless:
            # Each of its pages was in order, but no list has gone well.
            if self.cluster != HUB:
                key = self._context.list_key(self.cluster)
                self._context.fleet.lapses.note(key, endless)
            raise
        self._is_awaited = False

    async def _send(self, page: ClusterList) -> None:
        # A cluster may send more than it was asked for. What is sent in one step is not more.
        for piece in page.pieces(_MOST_AT_ONCE):
            async with self._client.turn:
                self._require_member()
                await self._client.send(self._merger.feed_page(self.cluster, piece))
            await asyncio.sleep(0)

    async def _watch(self, link: Link, *, resumes: bool) -> None:
        """Pass events on until the cluster ends the stream.

        `resumes` is for a version that was not listed just now: the cluster may have been restored
        from a backup since.
        """
        self._goes_well = False
        fleet, key = self._context.fleet, self._context.list_key(self.cluster)
        wanted = Wanted(
            link,
            self._merger.naming_of(self.cluster),
            self._merger.position(self.cluster),
            lambda version: self._requests.watch(link, version),
            lambda: self._requests.may_watch(link),
            is_alone=self._is_alone,
        )
        self._is_alone = False
        async with fleet.watches.joined(wanted) as subscription:
            self._context.note(Reply(self.cluster))
            fleet.lapses.note_open(key)
            self._was_open = True
            if resumes:
                await self._require_no_return(link, subscription)
            while events := await self._next_events(subscription):
                for event in events:
                    # Each in a turn of its own: another cluster's event is not to wait behind all
                    # that came with this one, nor a client to be flooded by it.
                    async with self._client.turn:
                        await self._client.send(self._merger.take(link.cluster, event))
                    if not self._goes_well:
                        self._goes_well = True
                        fleet.lapses.note_watch(key)
            self._is_alone = subscription.fell_behind

    async def _next_events(self, subscription: Subscription) -> list[Event]:
        try:
            return await subscription.events()
        except ApiError as error:
            if subscription.is_answered(error):
                raise
            # Whether it has really forgotten how to go on from where we are is what it answers
            # when it is asked for that alone.
            self._is_alone = True
            why = f"ended the watch: {error.message}"
            raise ClusterMisbehaved(self.cluster, why, code=410) from error

    async def _require_no_return(self, link: Link, subscription: Subscription) -> None:
        """Raise "too large resource version" when the cluster is behind the one it is watched from.

        Kubernetes does not say so itself. A watch from a version of the future is answered with 200
        and with nothing until the server has counted to there, while all that happens up to then is
        missing. A list that names no version has the newest one, and is never behind an older list.
        """

        async def newest() -> str:
            reply = await self._requests.page(link, Slice(1))
            if isinstance(reply.failure, Forbidden):
                return ""  # who may watch and not list cannot be told
            if reply.listed is None:
                raise reply.failure or ClusterMisbehaved(
                    self.cluster, "answered with no list", code=200
                )
            return reply.listed.metadata.resource_version

        # After the watch was opened, not before: a cluster that goes back in between breaks the
        # watch, and one that goes back before it was opened is seen here.
        version = await subscription.require_newest(subscription.version, newest)
        async with self._client.turn:
            self._require_member()
            self._merger.require_no_return(self.cluster, version)

    def _require_member(self) -> None:
        if self.has_left:
            raise ClusterError(self.cluster, "has left the fleet")

    async def _note(self, error: ApiError | ClusterError) -> None:
        """Remember how it went; take back what cannot be told to its end, where somebody waits."""
        cluster = self.cluster
        self._context.note(Reply(cluster, failure=error))
        _log.debug("watch of a cluster interrupted", cluster=cluster, reason=str(error))
        if self.has_left:
            return
        is_overfull = self._merger.is_overfull(cluster)
        if not is_overfull and (not self._is_awaited or isinstance(error, Expired)):
            return
        # A client that waits for the end of the initial events would wait for ever.
        is_needed = cluster in self._copied and not self._context.is_given_up(cluster, error)
        if self._is_awaited and is_needed:
            why = f"cluster {cluster} could not be listed to the end: {error}"
            self._client.end(ServiceUnavailable(why, Details(retry_after_seconds=1)))
            return
        # What was sent of it is taken back, and with the last of it comes the end that it held up:
        # the client goes on without the cluster, which is spliced in when it can be listed. Nobody
        # else writes in between; a client that leaves here has a vector that says "in part".
        self._is_awaited = False
        async with self._client.turn:
            if not self.has_left:
                for lines in self._merger.withdraw(cluster, _MOST_AT_ONCE):
                    await self._client.send(lines)
