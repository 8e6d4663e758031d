"""All clusters: lists, whole or page by page, of all that answer in time.

A list with a limit walks the clusters in the order of answers. The first page asks them all, for it
tells the version of each, but most of them for little; a later one asks the cluster it goes on in,
then those behind it.

Of a member that is away people are shown what it last answered them, with a Warning that says how
old that is. An informer is told to come back while it may have objects of the member; once that
is given up it is shown the last state too, so that it does not take the gap for a deletion.

A list by a command that deletes what it lists is of the hub's objects only, unless its selector
names clusters. Members are asked how many they have, for the Warning that says so.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgspec

from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import Query
from clusterspace.errors import AnswerOverrun, BadRequest, ClusterError, Expired, Forbidden
from clusterspace.fleet.gateway import fanout, virtual_labels
from clusterspace.fleet.gateway.answers.known_lists import ListQuestion, ask_for_list
from clusterspace.fleet.gateway.clusters import Link
from clusterspace.fleet.gateway.fanout import (
    FleetContext,
    Targets,
    ask_all,
    ask_targets,
    find_targets,
    send_merged,
    take_apart,
)
from clusterspace.fleet.gateway.last_lists import written_age
from clusterspace.fleet.gateway.merge import failures, lists, versions
from clusterspace.fleet.gateway.merge.failures import Reply
from clusterspace.fleet.gateway.merge.lists import ClusterList, ListMetadata
from clusterspace.fleet.gateway.merge.sorting import (
    Order,
    SortedPlace,
    question_of,
    read_place,
    sorted_page,
)
from clusterspace.fleet.gateway.merge.versions import Continue
from clusterspace.fleet.gateway.routes import ALL, HUB, in_order, position
from clusterspace.kube import statuses
from clusterspace.kube.objects import find_at

NOT_OLDER: Final = "NotOlderThan"
EXACT: Final = "Exact"
_PLACE: Final = frozenset({"limit", "continue", "resourceVersion", "resourceVersionMatch"})
_PAGING: Final = _PLACE | {"sortBy"}
_MOST_DIGITS: Final = 18
_MOST_TOGETHER: Final = 8
_MOST_WHOLE: Final = 2
"""How many clusters are asked for a whole page: the hub, which mostly has little, and a member."""
_MOST_ASKED: Final = 4
"""How many pages all clusters are asked for together, to fill the first one."""
_DELETING: Final = (["apply"], ["delete"], ["diff"])
"""The commands that delete what they list, name by name, as kubectl says them behind its own name.
`delete` lists for `--all` and selectors, `apply` for `--prune` and nothing else, and `diff` to
foretell that. Commands of theirs, such as `apply view-last-applied`, only look; whoever says no
command is taken for somebody who looks."""
_MOST_COUNTED: Final = 500
"""How many objects of a member are looked at to say that they are left alone."""


async def list_all(context: FleetContext) -> Response | None:
    """Answer a list with the objects of every cluster."""
    walk = _Walk(context)
    place = versions.decode_continue(walk.token) if walk.token else None
    if place is not None and (place.cluster == ALL) is not (context.order is not None):
        raise BadRequest("invalid continue token: the list it goes on with was sorted otherwise")
    if context.order is not None and not walk.is_for_deletion:
        metadata = await walk.sorted_page(context.order, place)
    elif place is not None:
        metadata = await walk.next_page(place)
    elif walk.is_for_deletion:
        metadata = await walk.first_page_of_hub()
    else:
        metadata = await walk.first_page()
    walk.warn_of_last_states()
    merge = lists.merge_tables if context.representation.is_table else lists.merge_lists
    pieces = merge(walk.taken, subject=context.subject, metadata=metadata)
    return await send_merged(context.http, pieces, walk.replies, context.representation)


class _Walk:
    """One page of a list on its way through the clusters."""

    def __init__(self, context: FleetContext) -> None:
        self._context = context
        query = context.info.query
        asked = query.first
        self._limit = read_limit(query, is_sorted=context.order is not None)
        self._version = asked.get("resourceVersion", "")
        self._match = asked.get("resourceVersionMatch", "")
        self.token = asked.get("continue", "")
        self._shared = without_paging(query)
        self._question = Query(tuple(pair for pair in query.pairs if pair[0] not in _PLACE))
        command = context.http.header("kubectl-command")
        # Whether whoever asks keeps a copy, and would delete there what is missing here. Such a
        # client names a version. When that is too old it lists without one, page by page; people do
        # so too, by kubectl, which says that it is kubectl, or asks for a Table.
        self._is_for_reflector = bool(self._version or asked.get("sendInitialEvents")) or (
            bool(self._limit) and not context.representation.is_table and not command
        )
        words = command.split()[1:]
        # A selector that names clusters says where to delete. Not so to `apply`, which goes by the
        # selector among its own manifests first: none has the label, and all there is would go.
        # What the client has written, that is: a path of search selects clusters by itself.
        written = virtual_labels.read_selector(context.http.info.query.get("labelSelector"))
        is_named = bool(written.named) and words == ["delete"]
        is_spared = not (context.fleet.bulk_delete_members or is_named)
        self.is_for_deletion = is_spared and words in _DELETING
        """Whether what is shown will be deleted, so that it has to be the hub's."""
        self._shows_last = words not in _DELETING
        """Whether members that are away may be shown as they were: what is shown is not deleted."""
        self._ages: dict[str, str] = {}
        """The clusters that are shown as they were, and how long ago that was."""
        self._compared: frozenset[str] = frozenset()
        """The clusters whose objects were sorted: a page tells of all, by what it lacks, too."""
        self._shown_before: dict[str, int] = {}
        """How many objects of the cluster that a page goes on in were on the pages before."""
        self.taken: list[ClusterList] = []
        """What is on the page so far."""
        self.replies: list[Reply] = []

    async def first_page(self) -> ListMetadata:
        """Ask every cluster; their versions together are the version of the list."""
        context = self._context
        wanted = await context.positions(self._version)
        targets = await find_targets(context, context.fleet.all_clusters())

        # Whoever comes first may fill the page. The others are on it only where there is little.
        first = in_order(targets.chosen)[:_MOST_WHOLE]
        share = share_of_page(self._limit, len(targets.chosen))

        def slice_of(cluster: str) -> Slice:
            limit = self._limit if cluster in first else share
            return Slice(limit, "", wanted.get(cluster, ""), self._match)

        copied: Collection[str] = ()
        if self._is_for_reflector:
            # The clusters it may have a copy of, and would delete it. Who names a vector has just
            # what is in it. Who names none may have anything.
            is_vector = self._version not in ("", "0")
            copied = wanted.keys() if is_vector else context.fleet.all_clusters()
        listed = await self._ask_all(targets, slice_of, copied)
        # A cluster that is not selected says no more than of what kind nothing is. A version of it
        # would say that the client has what is selected there, whatever that will be by then.
        pinned = {} if targets.witnesses else _versions_of(listed)
        return self._metadata(pinned, await self._take(listed))

    async def first_page_of_hub(self) -> ListMetadata:
        """Ask the hub for what it has, and members for how many they have besides.

        What is shown here is deleted next, name by name. So the page has nothing of a member, and
        its version and token speak of the hub alone: the next page cannot stray either.
        """
        context = self._context
        wanted = await context.positions(self._version)
        targets = await find_targets(context, context.fleet.all_clusters())

        def slice_of(cluster: str) -> Slice:
            if cluster == HUB:
                return Slice(self._limit, "", wanted.get(cluster, ""), self._match)
            return Slice(_MOST_COUNTED)

        asked = targets.chosen or targets.witnesses
        replies = await ask_all(context, asked, self._request_for(slice_of))
        context.note_skipped(targets.skipped)
        of_hub = [each for each in replies if each.cluster == HUB]
        of_members = [each for each in replies if each.cluster != HUB]
        listed = [each.listed for each in of_hub if each.listed is not None]
        shows_any = any(each.count for each in listed)
        for warning in failures.left_alone(
            of_members, targets.skipped, context.info, copies_follow=shows_any
        ):
            context.http.warn(warning)
        if not listed:
            # The hub says why, unless it is not in the view or has no such kind. Then the list is
            # empty, and members say of what kind: it is one of theirs.
            is_absent = all(failures.is_lacking(each) for each in of_hub)
            skipped = targets.skipped if is_absent else ()
            verdict = failures.judge(
                replies if is_absent else of_hub, skipped, is_given_up=context.is_given_up
            )
            if verdict.error is not None:
                raise verdict.error
            listed = [
                replace(
                    each.listed,
                    metadata=ListMetadata(each.listed.metadata.resource_version),
                    items=(),
                    rows=(),
                )
                for each in of_members
                if each.listed is not None
            ]
        self.replies += of_hub
        pinned = {} if targets.witnesses else _versions_of(listed)
        return _metadata(pinned, await self._take(listed))

    async def sorted_page(self, order: Order, place: Continue | None) -> ListMetadata:
        """Ask every cluster for all it has, sort it, and cut the page out of it.

        A later page is cut out of the same objects: each cluster is asked for what it had at the
        version of page one. So no object is shown twice or skipped, whatever happens meanwhile.
        A cluster that has forgotten that version answers 410, and the client begins anew; without
        one that does not answer there is no telling which objects come next.
        """
        context, asked = self._context, self._context.info.query
        question = question_of(
            *(asked.get(each) for each in ("sortBy", "fieldSelector", "labelSelector"))
        )
        start, clusters = 0, context.fleet.all_clusters()
        wanted, match = await context.positions(self._version), self._match
        copied: Collection[str] = clusters if self._is_for_reflector else ()
        if place is not None:
            wanted, match = await context.positions(place.versions), EXACT
            clusters = copied = tuple(in_order(wanted))
            found = read_place(place.token)
            start = found.shown
            if found.question != question or not all(map(context.selects, clusters)):
                raise Expired(statuses.CONTINUE_TOO_OLD)

        def slice_of(cluster: str) -> Slice:
            return Slice(0, "", wanted.get(cluster, ""), match)

        targets = await find_targets(context, clusters)
        # One more than are shown, so that there is one where the list goes on.
        most = start + self._limit + 1 if self._limit else 0
        listed = await self._ask_all(targets, slice_of, copied, most)
        if place is not None and len(listed) < len(clusters):
            raise Expired(statuses.CONTINUE_TOO_OLD)
        self.taken += sorted_page(listed, order, start, self._limit)
        self._compared = frozenset(each.cluster for each in listed)
        pinned = wanted if place is not None else _versions_of(listed)
        pinned = {} if targets.witnesses else pinned
        shown = start + sum(each.count for each in self.taken)
        total = sum(each.count for each in listed)
        if shown >= total:
            return _metadata(pinned, None)
        return _metadata(pinned, Stop(ALL, str(SortedPlace(question, shown))))

    async def next_page(self, place: Continue) -> ListMetadata:
        """Go on where the last page stopped, in the clusters the first one was of.

        Those behind are asked for what they have by then: no list runs too old.
        """
        context = self._context
        self._shown_before[place.cluster] = place.shown
        pinned = await context.positions(place.versions)
        # Whoever holds a token may have made it up, or got it from a list for other eyes.
        behind = place.remaining(pinned)
        if self.is_for_deletion:
            behind = [each for each in behind if each == HUB]
        if self._is_for_reflector and not all(map(context.selects, pinned)):
            raise Expired(statuses.CONTINUE_TOO_OLD)  # a cluster was relabelled since page one
        behind = [each for each in behind if context.selects(each)]
        targets = await find_targets(context, behind)
        refused = [each for each in targets.skipped if isinstance(each.error, Forbidden)]
        if refused and (error := failures.judge((), refused).error):
            raise error
        skipped = [Reply(each.cluster, failure=each.error) for each in targets.skipped]
        # Of a list that had begun there is no telling what the rest was.
        begun = (place.cluster,) if place.token else ()
        last = await self._recall(
            [each for each in skipped if each.cluster not in begun],
            lambda cluster: Slice(version=pinned[cluster], match=NOT_OLDER),
        )
        self._go_on_without(skipped, len(pinned))

        chosen = set(targets.chosen)
        remaining = [each for each in behind if each in chosen or each in last]
        token = place.token if remaining[:1] == [place.cluster] else ""
        count = 1  # alone at first: a cluster that was reached in a page may well fill the next
        while remaining:
            asked, remaining = remaining[:count], remaining[count:]
            well = [each for each in asked if each not in last]
            replies = await self._ask(well, Slice(self._room, token))
            last |= await self._recall(
                [each for each in replies if each.cluster not in begun],
                lambda cluster: Slice(version=pinned[cluster], match=NOT_OLDER),
            )
            for reply in replies:
                if isinstance(reply.failure, Expired) and self._is_for_reflector:
                    # With the place where the cluster's list may go on all the same, if it says so.
                    status: Any = msgspec.json.decode(reply.body or b"null")
                    is_status = isinstance(status, dict)
                    fresh = find_at(status, "metadata", "continue") if is_status else None
                    onward = Continue(reply.cluster, str(fresh), place.versions, place.shown)
                    raise Expired(
                        statuses.CONTINUE_TOO_OLD,
                        continue_token=versions.encode_continue(onward) if fresh else "",
                    )
            self._go_on_without([each for each in replies if each.listed is None], len(pinned))
            found = {
                each.cluster: each.listed for each in replies if each.listed is not None
            } | last
            listed = [found[each] for each in asked if each in found]
            stop = await self._take(listed)
            if stop is None and self._limit and self._room <= 0 and remaining:
                stop = Stop(remaining[0])
            if stop is not None:
                return self._metadata(pinned, stop)
            token = ""
            count = how_many_next(self._room, [each.count for each in listed])
        if not self.taken:
            # Nobody has gone on, so that nobody says what kind of list this is; whoever made the
            # token up, or lost all rights since, is told why.
            lost = [each for each in self.replies if each.listed is None]
            verdict = failures.judge(lost, targets.skipped) if lost or targets.skipped else None
            raise (verdict and verdict.error) or Expired(statuses.CONTINUE_TOO_OLD)
        return _metadata(pinned, None)

    def _unless_endless(self, reply: Reply) -> Reply:
        """Return a reply, or a failure in place of one that goes on where a list must have ended.

        Each page is asked for by the client, who would go on asking for as long as there is one.
        """
        listed, most = reply.listed, self._context.fleet.limits.watched_objects
        if listed is None or reply.cluster == HUB or not listed.metadata.continue_token:
            return reply
        if self._shown_before.get(reply.cluster, 0) + listed.count <= most:
            return reply
        endless = AnswerOverrun(reply.cluster, "its list does not end", code=200)
        return Reply(reply.cluster, failure=endless)

    def _metadata(self, pinned: Mapping[str, str], stop: "Stop | None") -> ListMetadata:
        if stop is None or not stop.token:
            return _metadata(pinned, stop)
        shown = sum(each.count for each in self.taken if each.cluster == stop.cluster)
        before = self._shown_before.get(stop.cluster, 0)
        return _metadata(pinned, replace(stop, shown=before + shown))

    def _go_on_without(self, lost: Sequence[Reply], of: int) -> None:
        """Go on without clusters that a list began with and cannot go on in, or refuse to.

        People are told. Who keeps a copy has a part of theirs already, and would take the version
        of the list for all of it; once such a cluster is set aside the list has to begin anew, in
        one piece, which then has all of it or nothing.
        """
        if not lost:
            return
        context = self._context
        copied = context.fleet.all_clusters() if self._is_for_reflector else ()
        context.refuse_or_warn(
            failures.judge_page(lost, of, copied=copied, is_given_up=context.is_given_up)
        )
        if self._is_for_reflector:
            raise Expired(statuses.CONTINUE_TOO_OLD)

    async def _ask_all(
        self,
        targets: Targets,
        slice_of: "Callable[[str], Slice]",
        copied: Collection[str],
        most: int = 0,
    ) -> list[ClusterList]:
        """Ask all clusters at once; return the list of each that answers, or is shown as it was.

        Where any state will do, or one that is known is wanted, a member is not asked. `most` is
        how many objects of each are needed of a list that is sorted.
        """
        context = self._context
        question = ListQuestion(context, self._shared, most)

        def version_of(cluster: str) -> tuple[str, bool]:
            wanted = slice_of(cluster)
            return wanted.version, wanted.match == EXACT

        known: dict[str, Reply] = {}
        if self._shows_last and (self._version or self.token):
            known = await question.find_known(targets.chosen, version_of)
        unknown = tuple(each for each in targets.chosen if each not in known)
        replies = [
            *known.values(),
            *await ask_targets(
                context, replace(targets, chosen=unknown), self._request_for(slice_of, question)
            ),
        ]
        skipped = [Reply(each.cluster, failure=each.error) for each in targets.skipped]
        # Where no cluster is selected, whoever says so says it of now.
        asked = () if targets.witnesses else (*replies, *skipped)
        last = await self._recall(asked, slice_of)
        context.refuse_or_warn(
            failures.judge(
                replies,
                targets.skipped,
                copied=copied,
                recalled=last,
                is_given_up=context.is_given_up,
            )
        )
        self.replies += replies
        answered = [each.listed for each in replies if each.listed is not None]
        return sorted([*answered, *last.values()], key=lambda each: position(each.cluster))

    async def _recall(
        self, replies: Sequence[Reply], slice_of: "Callable[[str], Slice]"
    ) -> dict[str, ClusterList]:
        """Return what members that are away have last answered to this list, if that is known."""
        context, found = self._context, dict[str, ClusterList]()
        for reply in replies:
            cluster, failure = reply.cluster, reply.failure
            if cluster == HUB or not context.fleet.directory.is_away(cluster, failure):
                continue
            is_waited_for = failure is None or not context.is_given_up(cluster, failure)
            if not self._shows_last or (self._is_for_reflector and is_waited_for):
                continue
            question = context.question_to(cluster, self._question)
            if question is None:
                continue
            asked, is_wider = slice_of(cluster), False
            find = partial(
                context.fleet.last_lists.find, wanted=asked.version, exactly=asked.match == EXACT
            )
            last = find(question)
            if last is None and context.info.is_in_namespace:
                # Who was shown the objects of all namespaces was shown those of this one.
                wider = context.question_to(cluster, self._question, of_all_namespaces=True)
                last, is_wider = wider and find(wider), True
            if last is None:
                continue
            if context.hold is not None:
                # It counts as the answer that it stands for would have.
                size = sum(page.size for page in last.pages)
                reading = context.hold.read(cluster, context.fleet.limits.answer_bytes)
                try:
                    reading.resize(size)
                    reading.whole()
                except ClusterError:
                    continue
            pages: list[ClusterList] = []
            for page in last.pages:
                listed = page.reply.listed or (await take_apart(context, page.reply)).listed
                if listed is not None and is_wider:
                    listed = lists.in_namespace(listed, context.info.namespace)
                if listed is not None:
                    pages.append(replace(listed, naming=context.labelled(listed.naming)))
            if len(pages) < len(last.pages):
                continue
            self._ages[cluster] = written_age(last.age)
            found[cluster] = lists.joined(pages, context.subject, age=self._ages[cluster])
        return found

    def warn_of_last_states(self) -> None:
        """Say which clusters on the page are shown as they were, and how long ago that was."""
        shown = self._compared.union(each.cluster for each in self.taken)
        if ages := {each: age for each, age in self._ages.items() if each in shown}:
            self._context.http.warn(failures.shown_as_they_were(ages))

    @property
    def _room(self) -> int:
        return self._limit and self._limit - sum(each.count for each in self.taken)

    async def _take(self, listed: Sequence[ClusterList]) -> "Stop | None":
        """Put on the page what fits; return where it stops, if it does."""
        if not self._limit:
            self.taken += listed
            return None
        plan = plan_page(listed, self._room, is_fresh=not self.taken)
        self.taken += plan.taken
        if plan.stop is None or not plan.is_cut:
            return plan.stop
        cluster = plan.stop.cluster
        if cluster in self._ages:
            return plan.stop  # as it was, all of it, on the next page
        (again,) = await self._ask((cluster,), Slice(self._room))
        if again.listed is None:
            return plan.stop  # it has just failed: the next page will tell
        self.taken.append(again.listed)
        if token := again.listed.metadata.continue_token:
            return Stop(cluster, token)
        clusters = [each.cluster for each in listed]
        behind = clusters[clusters.index(cluster) + 1 :]
        return Stop(behind[0]) if behind else None

    async def _ask(self, clusters: Sequence[str], start: "Slice") -> list[Reply]:
        # Of now, which is no older than what the first page knew. To say so by its version would do
        # as well, and would cost seconds, and then a refusal, of servers that cannot tell whether
        # their caches are that new: those before Kubernetes 1.31, for kinds that nobody writes.
        replies = await ask_all(self._context, clusters, self._request_for(lambda _: start))
        self.replies += replies
        return replies

    def _request_for(
        self, slice_of: "Callable[[str], Slice]", asked: ListQuestion | None = None
    ) -> Callable[[Link], Awaitable[Reply]]:
        context = self._context
        listing = asked or ListQuestion(context, self._shared)

        async def ask(link: Link) -> Reply:
            page, asked_at = slice_of(link.cluster), context.fleet.cache.clock.monotonic()
            make_request = partial(context.list_request, query=page.added_to(self._shared))
            if self.is_for_deletion:
                # The labels of what is about to be deleted are read: the objects are needed.
                reply = await fanout.ask_for_list(context, link, make_request, token=page.token)
            else:
                reply = await ask_for_list(listing, link, make_request, token=page.token)
            reply = self._unless_endless(reply)
            if self._shows_last and link.cluster != HUB and page.match != EXACT:
                question = context.question_to(link.cluster, self._question)
                if question is not None:
                    context.fleet.last_lists.note(question, page.token, reply, asked_at)
            return reply

        return ask


def _versions_of(listed: Sequence[ClusterList]) -> dict[str, str]:
    return {each.cluster: each.metadata.resource_version for each in listed}


def _metadata(pinned: Mapping[str, str], stop: "Stop | None") -> ListMetadata:
    # A cluster without versions has its place in the list, and none in what is gone on from.
    vector = versions.encode({each: version for each, version in pinned.items() if version})
    if stop is None:
        return ListMetadata(vector)
    place = Continue(stop.cluster, stop.token, versions.encode(pinned), stop.shown)
    return ListMetadata(vector, versions.encode_continue(place))


# -- which items of which clusters make a page: pure decisions about lists that are here -----------


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a page ends before all is listed."""

    cluster: str
    token: str = ""
    """The cluster's own continue token; empty for its first item."""
    shown: int = 0
    """How many of its objects have been listed."""


@dataclass(frozen=True, slots=True)
class PagePlan:
    """The lists that go on a page, and where it stops."""

    taken: tuple[ClusterList, ...]
    stop: Stop | None = None
    is_cut: bool = False
    """Whether some of the items of the cluster it stops at still fit: ask it for just those."""

    @property
    def count(self) -> int:
        """How many items there are so far."""
        return sum(each.count for each in self.taken)


def plan_page(lists: Sequence[ClusterList], room: int, *, is_fresh: bool) -> PagePlan:
    """Fill a page that has room for so many items with lists, in the order given.

    The first list of a fresh page is taken whatever its size: a server that gives more than it was
    asked for would give as much the next time.
    """
    taken: list[ClusterList] = []
    for each in lists:
        if each.count > room and (taken or not is_fresh):
            return PagePlan(tuple(taken), Stop(each.cluster), is_cut=room > 0)
        taken.append(each)
        room -= each.count
        if each.metadata.continue_token:
            return PagePlan(tuple(taken), Stop(each.cluster, each.metadata.continue_token))
    return PagePlan(tuple(taken))


def how_many_next(room: int, counts: Sequence[int]) -> int:
    """Return how many clusters to ask together for the rest of a page.

    As many as would fill it if they are like those asked before, `counts` items each: what does
    not fit is listed in vain. No room means that there is no bound.

    >>> how_many_next(400, [100]), how_many_next(10, [500]), how_many_next(0, [3])
    (4, 1, 8)
    """
    usual = sum(counts) // len(counts) if counts else 0
    if not room or not usual:
        return _MOST_TOGETHER
    return max(1, min(_MOST_TOGETHER, room // usual))


def share_of_page(limit: int, clusters: int) -> int:
    """Return how many objects a cluster is asked for that may well not get onto the page.

    A page that four times its size would not fill is whole after one question to all. With more,
    it ends at the first cluster that has more than its share: pages may be short, and of a
    thousand clusters all but a few would be asked in vain.

    >>> share_of_page(500, 3), share_of_page(500, 10), share_of_page(500, 10_000)
    (500, 200, 1)
    """
    return min(limit, max(1, _MOST_ASKED * limit // max(1, clusters)))


def read_limit(query: Query, *, is_sorted: bool = False) -> int:
    """Return how many items a page may have; 0 when there is no bound.

    With the version "0" any state will do, and servers answer from memory, whole. A list that is
    sorted here is cut here, whatever the version.
    """
    text = query.first.get("limit", "")
    if not text or (query.first.get("resourceVersion") == "0" and not is_sorted):
        return 0
    if not text.isascii() or not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise BadRequest(f"limit: {text[:64]!r} is not a number of items")
    return int(text)


def without_paging(query: Query) -> Query:
    """Return the parameters that are the same for every cluster and every page."""
    return Query(tuple(pair for pair in query.pairs if pair[0] not in _PAGING))


@dataclass(frozen=True, slots=True)
class Slice:
    """Which of its items a cluster is asked for."""

    limit: int = 0
    token: str = ""
    version: str = ""
    match: str = ""

    def added_to(self, query: Query) -> Query:
        """Return the parameters that ask for it."""
        asked = {
            "limit": str(self.limit) if self.limit else "",
            "continue": self.token,
            "resourceVersion": "" if self.token else self.version,
            "resourceVersionMatch": "" if self.token or not self.version else self.match,
        }
        return Query((*query.pairs, *((key, value) for key, value in asked.items() if value)))
