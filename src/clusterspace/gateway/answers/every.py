"""Every cluster: lists, whole or page by page, of all that answer in time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from clusterspace.client.requests import Ask
from clusterspace.errors import ClusterMisbehaved, Expired
from clusterspace.gateway import fanout, respond
from clusterspace.gateway.answers.asking import Asking
from clusterspace.gateway.answers.pages import (
    Slice,
    Stop,
    how_many_next,
    plan_page,
    read_limit,
    without_paging,
)
from clusterspace.gateway.directory import Link
from clusterspace.gateway.flow import Reply, Skipped, Subject
from clusterspace.gateway.merge import continues, failures, lists, tables, versions
from clusterspace.gateway.merge.continues import Continue
from clusterspace.gateway.merge.parts import ListMetadata, Part, read_part
from clusterspace.gateway.rewriting import queries
from clusterspace.gateway.routes import naming_in
from clusterspace.kube import statuses
from clusterspace.kube.objects import find_at
from clusterspace.serving.messages import Response

_NOT_OLDER: Final = "NotOlderThan"


async def list_every(asking: Asking) -> Response | None:
    """Answer a list with the objects of every cluster."""
    walk = _Walk(asking)
    token = asking.route.info.query.get("continue")
    page = await (walk.next_page(continues.decode(token)) if token else walk.first_page())
    subject, representation = Subject.of(asking.route.info), asking.representation
    merge = tables.merge if representation.is_table else lists.merge
    pieces = merge(page.parts, subject=subject, metadata=page.metadata)
    return await respond.send_merged(asking.call, pieces, page.replies, representation)


@dataclass(frozen=True, slots=True)
class _Received:
    """One cluster's reply, and the list it holds, if it holds one."""

    reply: Reply
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class _Page:
    """A page that is ready to be written."""

    parts: Sequence[Part]
    replies: Sequence[Reply]
    metadata: ListMetadata


class _Walk:
    """One list on its way through the clusters."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._query = asking.route.info.query
        self._limit = read_limit(self._query)
        self._taken: list[Part] = []
        self._replies: list[Reply] = []

    async def first_page(self) -> _Page:
        """Ask every cluster; their versions together are the version of the list."""
        wanted = await self._asking.positions(self._query.get("resourceVersion"))
        match = self._query.get("resourceVersionMatch")
        targets = await self._asking.targets(self._asking.fleet.everybody())
        received = await self._ask(
            targets.chosen, lambda each: Slice(self._limit, "", wanted.get(each, ""), match)
        )
        parts = self._judged(received, targets.skipped)
        pinned = {part.cluster: part.metadata.resource_version for part in parts}
        stop = await self._take(parts, pinned)
        return self._page(versions.encode(pinned), stop)

    async def next_page(self, place: Continue) -> _Page:
        """Go on where the last page stopped, in the clusters the first one was of.

        Those behind are asked for nothing older than the first page knew: no list runs too old.
        """
        pinned = await self._asking.positions(place.versions)
        remaining, token = place.remaining(pinned), place.token
        await self._require_reach(remaining)
        count = 1  # alone at first: a cluster that was reached in a page may well fill the next
        while remaining:
            asked, remaining = remaining[:count], remaining[count:]
            start = Slice(self._room, token)
            parts = self._whole(await self._ask(asked, self._slices(pinned, start)), place)
            stop = await self._take(parts, pinned)
            if stop is None and self._is_full and remaining:
                stop = Stop(remaining[0])
            if stop is not None:
                return self._page(place.versions, stop)
            token = ""
            count = how_many_next(self._room, [part.count for part in parts])
        return self._page(place.versions, None)

    async def _require_reach(self, clusters: Sequence[str]) -> None:
        """Refuse to go on without a cluster; whoever holds a token may have made it up."""
        skipped = (await self._asking.targets(clusters)).skipped
        if skipped and (error := failures.judge((), skipped, for_reflector=True).error):
            raise error

    @property
    def _room(self) -> int:
        return self._limit and self._limit - sum(part.count for part in self._taken)

    @property
    def _is_full(self) -> bool:
        return bool(self._limit) and self._room <= 0

    def _slices(self, pinned: Mapping[str, str], start: Slice) -> Callable[[str], Slice]:
        def slice_of(cluster: str) -> Slice:
            return Slice(start.limit, start.token, pinned[cluster], _NOT_OLDER)

        return slice_of

    async def _take(self, parts: Sequence[Part], pinned: Mapping[str, str]) -> Stop | None:
        """Put on the page what fits; return where it stops, if it does."""
        if not self._limit:
            self._taken += parts
            return None
        plan = plan_page(parts, self._room, is_fresh=not self._taken)
        self._taken += plan.taken
        if plan.stop is None or not plan.is_cut:
            return plan.stop
        cluster = plan.stop.cluster
        again = await self._ask((cluster,), self._slices(pinned, Slice(self._room)))
        if again[0].part is None:
            return plan.stop  # it has just failed: the next page will tell
        self._taken.append(again[0].part)
        token = again[0].part.metadata.continue_token
        return Stop(cluster, token) if token else _behind(cluster, parts)

    def _page(self, vector: str, stop: Stop | None) -> _Page:
        token = continues.encode(Continue(stop.cluster, stop.token, vector)) if stop else ""
        return _Page(self._taken, self._replies, ListMetadata(vector, token))

    async def _ask(
        self, clusters: Sequence[str], slice_of: Callable[[str], Slice]
    ) -> list[_Received]:
        asking, limits = self._asking, self._asking.fleet.limits
        shared = without_paging(self._query)

        def make_ask(link: Link) -> Ask:
            naming = naming_in(asking.route, link.cluster)
            own = queries.rewrite(shared, naming)
            query = slice_of(link.cluster).added_to(own)
            return asking.ask(link, query, seconds=limits.list_seconds)

        async def receive(link: Link) -> _Received:
            reply = asking.note(await fanout.ask_one(link, make_ask))
            if reply.failure is not None:
                return _Received(reply)
            try:
                return _Received(
                    reply, read_part(reply.body, naming_in(asking.route, link.cluster))
                )
            except ClusterMisbehaved as nonsense:
                return _Received(Reply(link.cluster, reply.status, failure=nonsense))

        links = await asking.links(clusters)
        received = await fanout.ask_all(links, receive, at_once=limits.clusters_at_once)
        self._replies += [each.reply for each in received]
        return received

    def _judged(self, received: Sequence[_Received], skipped: Sequence[Skipped]) -> list[Part]:
        """Return what can be shown, with a warning about the rest, or refuse."""
        replies = [each.reply for each in received]
        verdict = failures.judge(replies, skipped, for_reflector=self._is_for_reflector)
        if verdict.error is not None:
            raise verdict.error
        if verdict.warning:
            self._asking.call.warn(verdict.warning)
        return [each.part for each in received if each.part is not None]

    def _whole(self, received: Sequence[_Received], place: Continue) -> list[Part]:
        """Return the parts of a later page: nobody who was in the first may be missing."""
        for each in received:
            if isinstance(each.reply.failure, Expired):
                raise _expired(each.reply, place)
        verdict = failures.judge([each.reply for each in received], (), for_reflector=True)
        if verdict.error is not None:
            raise verdict.error
        return [each.part for each in received if each.part is not None]

    @property
    def _is_for_reflector(self) -> bool:
        """Whether whoever asks keeps a copy, and would delete there what is missing here.

        Such a client names a version. When that is too old it lists without one, page by page;
        people do so too, by kubectl, which says that it is kubectl, or asks for a Table.
        """
        if self._query.get("resourceVersion") or self._query.get("sendInitialEvents"):
            return True
        call = self._asking.call
        is_person = self._asking.representation.is_table or bool(call.header("kubectl-command"))
        return bool(self._limit) and not is_person


def _behind(cluster: str, parts: Sequence[Part]) -> Stop | None:
    """Return the cluster that follows, if there is one."""
    clusters = [part.cluster for part in parts]
    following = clusters[clusters.index(cluster) + 1 :]
    return Stop(following[0]) if following else None


def _expired(reply: Reply, place: Continue) -> Expired:
    """Return the 410 of a cluster, with the place where its list may go on all the same."""
    status: Any = msgspec.json.decode(reply.body or b"null")
    token = find_at(status, "metadata", "continue") if isinstance(status, dict) else None
    fresh = Continue(reply.cluster, str(token), place.versions) if token else None
    return Expired(
        statuses.CONTINUE_TOO_OLD, continue_token=continues.encode(fresh) if fresh else ""
    )
