"""What one cluster tells into the stream of one client, without end.

    ┌─> list ──whole──> watch ──ends, breaks, falls silent──> wait ──┐
    │                     ^                                          │
    │                     └───────────── from where it was ──────────┤
    └──────────────── the cluster forgot the version ────────────────┘

What a cluster tells is put into the merger and written to the client in one step, with no wait in
between: see `merge.watches` for what would go wrong otherwise. Behind a step that leaves much
unread, the feed waits for the client before it reads on. So a cluster that floods is slowed down by
the client, and clients are not cut off for what a cluster sends.
"""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from random import Random
from typing import Final

import structlog

from clusterspace.aio import backoff
from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.relays import open_answer
from clusterspace.client.answers import AnswerStream, failure_of
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
from clusterspace.fleet.gateway.answers.every_watch.ways import MOST_AT_ONCE, ClusterWay
from clusterspace.fleet.gateway.directory import Link
from clusterspace.fleet.gateway.merge.lists import ClusterList
from clusterspace.fleet.gateway.merge.watches import WatchMerger
from clusterspace.fleet.gateway.watching import ClientStream, lines_of
from clusterspace.kube import statuses

_log = structlog.get_logger(__name__)

_LONGEST_DELAY: Final = 5.0
_HEALTHY_SECONDS: Final = 10.0
"""A stream that lived this long was all right: what comes next is a new trouble, if it is one."""
_MOST_ERROR_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the tasks of one client's stream share."""

    merger: WatchMerger
    client_stream: ClientStream
    clock: Clock
    random: Random


class ClusterFeed:
    """Puts what one cluster tells into the stream of one client, without end."""

    def __init__(
        self,
        way: ClusterWay,
        surroundings: Surroundings,
        *,
        first_page: ClusterList | None = None,
        is_awaited: bool = False,
        held: Collection[str] = (),
    ) -> None:
        self._way = way
        self._merger = surroundings.merger
        self._client_stream = surroundings.client_stream
        self._clock = surroundings.clock
        self._random = surroundings.random
        self._first_page = first_page
        self._is_awaited = is_awaited
        self._held_by_client = held
        self._takes_pages = True
        self._began = self._clock.monotonic()
        self._was_open = False
        self._goes_well = False
        self.has_left = False
        """Whether the cluster is no member any more: the merger does not know it."""

    @property
    def cluster(self) -> str:
        """Whose events they are."""
        return self._way.cluster

    async def run(self) -> None:
        """Feed until cancelled; failures are waited out, never raised."""
        delays = self._new_delays()
        while not (self._client_stream.ended.done() or self.has_left):
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

    async def _feed_once(self) -> None:
        link = await self._way.link()
        self._require_member()
        if not self._position:
            await self._list(link)
        try:
            await self._watch(link)
        except Forbidden:
            if await self._way.believes_refusal(link, self._began, was_open=self._was_open):
                # The cluster took back what it had given: what the client has of it will not be
                # told any more, which only a new list can say.
                why = f"cluster {self.cluster} no longer allows this watch; list again"
                self._client_stream.end(Expired(why))
            raise
        except ApiError as error:
            if not statuses.is_about_the_version(error):
                raise
            if self._goes_well:
                # It says so to readers that are too slow, too. Whether it has really forgotten how
                # to go on from here is what it answers when it is asked to.
                why = f"ended the watch: {error.message}"
                raise ClusterMisbehaved(self.cluster, why, code=410) from error
            if not self._way.believes_expiry(self._position):
                why = "says that the resourceVersion it has just given is too old"
                raise ClusterMisbehaved(self.cluster, why, code=410) from error
            self._start_over()

    @property
    def _position(self) -> str:
        return self._merger.position(self.cluster)

    async def _list(self, link: Link) -> None:
        """Tell the difference between what was told and what a list has."""
        self._merger.begin_list(self.cluster)
        first, self._first_page = self._first_page, None
        try:
            page = first or await self._page(link, "")
            await self._tell(page)
            seconds = 0.0
            while token := page.metadata.continue_token:
                started = self._clock.monotonic()
                page = await self._page(link, token)
                # Not counted is what the client takes to read: that is not the cluster's doing.
                seconds += self._clock.monotonic() - started
                is_too_long = seconds > self._way.limits.walk_seconds
                if token == page.metadata.continue_token or is_too_long:
                    raise AnswerOverrun(self.cluster, "its list goes on and on", code=200)
                await self._tell(page)
        except Expired:
            # The cluster forgot the first page while we read the others. All at once, next time.
            self._takes_pages = False
            raise
        except AnswerOverrun as endless:
            # Each of its pages was in order, but no list has gone well.
            self._way.note_list(endless)
            raise
        self._is_awaited = False

    async def _page(self, link: Link, token: str) -> ClusterList:
        return await self._way.page(link, token, is_whole=not self._takes_pages)

    async def _tell(self, page: ClusterList) -> None:
        # A cluster may send more than it was asked for. What is told in one step is not more.
        for piece in page.pieces(MOST_AT_ONCE):
            async with self._client_stream.turn:
                self._require_member()
                await self._client_stream.send(self._merger.feed_page(self.cluster, piece))
            await asyncio.sleep(0)

    async def _watch(self, link: Link) -> None:
        """Pass events on until the cluster ends the stream."""
        self._goes_well = False
        async with AsyncExitStack() as stack:
            ask = self._way.watch(link, self._position)
            answer = await open_answer(stack, link.connection, ask)
            await _raise_refusal(link.cluster, answer)
            self._way.note_open()
            self._was_open = True
            lines_read = lines_of(link.cluster, answer, self._way.memory)
            batches = await stack.enter_async_context(aclosing(lines_read))
            async for lines in batches:
                for line in lines:
                    # Each in a turn of its own: another cluster's event is not to wait behind all
                    # that came with this one, nor a client to be flooded by it.
                    async with self._client_stream.turn:
                        await self._client_stream.send(self._merger.feed(link.cluster, line))
                    if not self._goes_well:
                        self._goes_well = True
                        self._way.note_watch()
                await asyncio.sleep(0)  # a cluster that sends without end leaves others their turn

    def _require_member(self) -> None:
        if self.has_left:
            raise ClusterError(self.cluster, "has left the fleet")

    def _start_over(self) -> None:
        """List the cluster again, or end the stream when that would not tell what is gone."""
        try:
            self._merger.expire(self.cluster)
        except Expired as too_old:
            self._client_stream.end(too_old)

    async def _note(self, error: ApiError | ClusterError) -> None:
        cluster = self.cluster
        self._way.note(error)
        _log.debug("watch of a cluster interrupted", cluster=cluster, reason=str(error))
        if self.has_left:
            return
        is_overfull = self._merger.is_overfull(cluster)
        if not is_overfull and (not self._is_awaited or isinstance(error, Expired)):
            return
        # A client that waits for the end of the initial events would wait for ever.
        if self._is_awaited and self._way.is_needed(error, self._held_by_client):
            why = f"cluster {cluster} could not be listed to the end: {error}"
            self._client_stream.end(ServiceUnavailable(why, Details(retry_after_seconds=1)))
            return
        # What was told of it is taken back, and with the last of it comes the end that it held up:
        # the client goes on without the cluster, which is spliced in when it can be listed. Nobody
        # else writes in between; a client that leaves here has a vector that says "in part".
        self._is_awaited = False
        async with self._client_stream.turn:
            if not self.has_left:
                for lines in self._merger.withdraw(cluster, MOST_AT_ONCE):
                    await self._client_stream.send(lines)

    def _new_delays(self) -> Iterator[float]:
        return backoff.jittered(0.1, _LONGEST_DELAY, self._random)


async def _raise_refusal(cluster: str, answer: AnswerStream) -> None:
    if answer.status == 200:
        return
    whole = await answer.read(_MOST_ERROR_BYTES)
    failure = failure_of(cluster, whole)
    raise failure or ClusterMisbehaved(cluster, f"answered {answer.status}", code=answer.status)
