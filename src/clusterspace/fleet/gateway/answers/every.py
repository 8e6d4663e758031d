"""Every cluster: lists, whole or page by page, of all that answer in time."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from clusterspace.apiserver.http.messages import Response
from clusterspace.client.requests import ApiRequest
from clusterspace.errors import ClusterMisbehaved, Expired, Forbidden
from clusterspace.fleet.gateway import fanout, respond
from clusterspace.fleet.gateway.answers.asking import Asking
from clusterspace.fleet.gateway.answers.pages import (
    Slice,
    Stop,
    how_many_next,
    plan_page,
    read_limit,
    without_paging,
)
from clusterspace.fleet.gateway.directory import Link
from clusterspace.fleet.gateway.flow import Reply, Subject
from clusterspace.fleet.gateway.merge import failures, lists, tables, versions
from clusterspace.fleet.gateway.merge.lists import ClusterList, ListMetadata, read_cluster_list
from clusterspace.fleet.gateway.merge.versions import Continue
from clusterspace.fleet.gateway.renaming import inbound
from clusterspace.fleet.gateway.routes import naming_in
from clusterspace.kube import statuses
from clusterspace.kube.objects import find_at

_NOT_OLDER: Final = "NotOlderThan"


async def list_every(asking: Asking) -> Response | None:
    """Answer a list with the objects of every cluster."""
    walk = _Walk(asking)
    token = asking.route.info.query.get("continue")
    page = await (walk.next_page(versions.decode_continue(token)) if token else walk.first_page())
    subject, representation = Subject.of(asking.route.info), asking.representation
    merge = tables.merge if representation.is_table else lists.merge_lists
    pieces = merge(page.parts, subject=subject, metadata=page.metadata)
    return await respond.send_merged(asking.context, pieces, page.replies, representation)


@dataclass(frozen=True, slots=True)
class _Received:
    """One cluster's reply, and the list it holds, if it holds one."""

    reply: Reply
    part: ClusterList | None = None


@dataclass(frozen=True, slots=True)
class _Page:
    """A page that is ready to be written."""

    parts: Sequence[ClusterList]
    replies: Sequence[Reply]
    metadata: ListMetadata


class _Walk:
    """One list on its way through the clusters."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._query = asking.route.info.query
        self._limit = read_limit(self._query)
        self._taken: list[ClusterList] = []
        self._replies: list[Reply] = []

    async def first_page(self) -> _Page:
        """Ask every cluster; their versions together are the version of the list."""
        wanted = await self._asking.positions(self._query.get("resourceVersion"))
        match = self._query.get("resourceVersionMatch")
        targets = await self._asking.targets(self._asking.fleet.everybody())
        received = await self._ask(
            targets.chosen, lambda each: Slice(self._limit, "", wanted.get(each, ""), match)
        )
        self._asking.note_skipped(targets.skipped)
        replies = [each.reply for each in received]
        verdict = failures.judge(
            replies,
            targets.skipped,
            held=self._held_by_client(wanted),
            is_given_up=self._asking.is_given_up,
        )
        self._asking.refuse_or_warn(verdict)
        parts = [each.part for each in received if each.part is not None]
        pinned = {part.cluster: part.metadata.resource_version for part in parts}
        stop = await self._take(parts, pinned)
        return self._page(pinned, stop)

    async def next_page(self, place: Continue) -> _Page:
        """Go on where the last page stopped, in the clusters the first one was of.

        Those behind are asked for nothing older than the first page knew: no list runs too old.
        """
        pinned = await self._asking.positions(place.versions)
        remaining = await self._within_reach(place.remaining(pinned), len(pinned))
        token = place.token if remaining[:1] == [place.cluster] else ""
        count = 1  # alone at first: a cluster that was reached in a page may well fill the next
        while remaining:
            asked, remaining = remaining[:count], remaining[count:]
            start = Slice(self._room, token)
            received = await self._ask(asked, self._slices(pinned, start))
            parts = self._found_behind(received, place, len(pinned))
            stop = await self._take(parts, pinned)
            if stop is None and self._is_full and remaining:
                stop = Stop(remaining[0])
            if stop is not None:
                return self._page(pinned, stop)
            token = ""
            count = how_many_next(self._room, [part.count for part in parts])
        return self._page(pinned, None)

    async def _within_reach(self, clusters: Sequence[str], of: int) -> list[str]:
        """Return those that can be asked; whoever holds a token may have made it up."""
        targets = await self._asking.targets(clusters)
        refused = [each for each in targets.skipped if isinstance(each.error, Forbidden)]
        if refused and (error := failures.judge((), refused).error):
            raise error
        lost = [Reply(each.cluster, failure=each.error) for each in targets.skipped]
        self._give_up(lost, of)
        return list(targets.chosen)

    def _give_up(self, lost: Sequence[Reply], of: int) -> None:
        """Go on without clusters that a list began with and cannot go on in, or refuse to.

        People are told. Who keeps a copy has a part of theirs already, and would take the version
        of the list for all of it; once such a cluster is set aside the list has to begin anew, in
        one piece, which then has all of it or nothing.
        """
        if not lost:
            return
        everybody = self._asking.fleet.everybody()
        held = everybody if self._is_for_reflector else ()
        is_given_up = self._asking.is_given_up
        verdict = failures.judge_page(lost, of, held=held, is_given_up=is_given_up)
        self._asking.refuse_or_warn(verdict)
        if self._is_for_reflector:
            raise Expired(statuses.CONTINUE_TOO_OLD)

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

    async def _take(self, parts: Sequence[ClusterList], pinned: Mapping[str, str]) -> Stop | None:
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

    def _page(self, pinned: Mapping[str, str], stop: Stop | None) -> _Page:
        # A cluster without versions has its place in the list, and none in what is gone on from.
        vector = versions.encode({each: held for each, held in pinned.items() if held})
        token = ""
        if stop is not None:
            token = versions.encode_continue(
                Continue(stop.cluster, stop.token, versions.encode(pinned))
            )
        return _Page(self._taken, self._replies, ListMetadata(vector, token))

    async def _ask(
        self, clusters: Sequence[str], slice_of: Callable[[str], Slice]
    ) -> list[_Received]:
        asking, limits = self._asking, self._asking.fleet.limits
        shared = without_paging(self._query)

        def make_ask(link: Link) -> ApiRequest:
            naming = naming_in(asking.route, link.cluster)
            own = inbound.rewrite_query(shared, naming)
            query = slice_of(link.cluster).added_to(own)
            return asking.ask(link, query, seconds=limits.list_seconds)

        async def receive(link: Link) -> _Received:
            reply = asking.note(await fanout.ask_one(link, make_ask))
            part: ClusterList | None = None
            if reply.failure is None:
                naming = naming_in(asking.route, link.cluster)
                try:
                    part = read_cluster_list(reply.body, naming, asking.api_version)
                    token = slice_of(link.cluster).token
                    if token and part.metadata.continue_token == token:
                        raise ClusterMisbehaved(link.cluster, "its list goes on and on", code=200)
                except ClusterMisbehaved as nonsense:
                    reply = Reply(link.cluster, reply.status, failure=nonsense)
                else:
                    # A long list takes a while to be taken apart, and others take their turn.
                    await asyncio.sleep(0)
            is_whole = part is None or not part.metadata.continue_token
            asking.note_list(reply, is_whole=is_whole)
            if part is not None and part.metadata.resource_version:
                version = part.metadata.resource_version
                asking.fleet.lapses.note_version(asking.list_key(link.cluster), version)
            return _Received(reply, part)

        links = await asking.links(clusters)
        received = await fanout.ask_all(links, receive, at_once=limits.clusters_at_once)
        self._replies += [each.reply for each in received]
        return received

    def _found_behind(
        self, received: Sequence[_Received], place: Continue, of: int
    ) -> list[ClusterList]:
        """Return the parts of a later page; of those that fail, people are told."""
        for each in received:
            if isinstance(each.reply.failure, Expired) and self._is_for_reflector:
                raise _expired(each.reply, place)
        lost = [each.reply for each in received if each.part is None]
        self._give_up(lost, of)
        return [each.part for each in received if each.part is not None]

    def _held_by_client(self, wanted: Mapping[str, str]) -> Collection[str]:
        """Return the clusters that the client may have a copy of, and would delete it.

        Who names a vector has just what is in it. Who names none may have anything.
        """
        if not self._is_for_reflector:
            return ()
        is_vector = self._query.get("resourceVersion") not in ("", "0")
        return wanted.keys() if is_vector else self._asking.fleet.everybody()

    @property
    def _is_for_reflector(self) -> bool:
        """Whether whoever asks keeps a copy, and would delete there what is missing here.

        Such a client names a version. When that is too old it lists without one, page by page;
        people do so too, by kubectl, which says that it is kubectl, or asks for a Table.
        """
        if self._query.get("resourceVersion") or self._query.get("sendInitialEvents"):
            return True
        context = self._asking.context
        is_person = self._asking.representation.is_table or bool(context.header("kubectl-command"))
        return bool(self._limit) and not is_person


def _behind(cluster: str, parts: Sequence[ClusterList]) -> Stop | None:
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
        statuses.CONTINUE_TOO_OLD, continue_token=versions.encode_continue(fresh) if fresh else ""
    )
