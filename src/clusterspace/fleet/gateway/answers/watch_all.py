"""All clusters: watches, of all that are there now and of those that join.

    options ──> where each cluster begins, and who is missing ──> one stream, fed by each cluster

All that is found out before the first event is refused with a status; afterwards a stream can only
end, which clients go on from, or end with 410, after which they list again.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from clusterspace.aio.tasks import Supervisor
from clusterspace.apiserver.http.context import headers_for
from clusterspace.apiserver.http.request_info import JSON, Query
from clusterspace.errors import (
    ApiError,
    BadRequest,
    Cause,
    ClusterError,
    Expired,
    Forbidden,
    TaskFailed,
)
from clusterspace.fleet.gateway.answers.cluster_feeds import (
    ClusterFeed,
    ClusterRequests,
    MergedStream,
)
from clusterspace.fleet.gateway.answers.list_all import NOT_OLDER
from clusterspace.fleet.gateway.clusters import Link, Membership
from clusterspace.fleet.gateway.fanout import FleetContext, Targets, fan_out, find_targets
from clusterspace.fleet.gateway.merge import failures
from clusterspace.fleet.gateway.merge.events import Head, PlainStyle, TableStyle
from clusterspace.fleet.gateway.merge.failures import Reply, Skipped, Verdict
from clusterspace.fleet.gateway.merge.lists import ClusterList
from clusterspace.fleet.gateway.merge.watches import WatchMerger
from clusterspace.fleet.gateway.routes import HUB
from clusterspace.fleet.gateway.streams import ClientStream
from clusterspace.kube import causes, statuses
from clusterspace.kube.resources import GroupKind

_log = structlog.get_logger(__name__)

_MOST_DIGITS: Final = 9
_SHORTEST_SECONDS: Final = 1800.0
"""A watch without a timeout lives this long and up to twice it, so that reconnects spread out."""
BOOKMARK_SECONDS: Final = 60.0
_LAST_BOOKMARK_SECONDS: Final = 2.0
"""A planned end is announced this long before it, so that the client goes on from there."""


# -- what a client asks for: read once, refused as Kubernetes refuses ------------------------------


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How a watch is to begin, what it is to show, and when it is to end."""

    version: str = ""
    sends_initial: bool | None = None
    """Whether it begins with everything there is, and says when that is complete."""
    wants_bookmarks: bool = False
    seconds: int = 0
    """After which it ends; 0 leaves that to us."""
    include: str = ""
    """How much of an object stands beside its row in a Table."""

    @property
    def resumes(self) -> bool:
        """Whether it goes on from a version."""
        return self.version not in ("", "0") and not self.sends_initial

    @property
    def starts_now(self) -> bool:
        """Whether it is of what happens from now on, and nothing else."""
        return not self.resumes and self.sends_initial is False


def read_options(query: Query) -> WatchOptions:
    """Read the parameters of a watch; raise Invalid with every combination that makes no sense."""
    field, match = "resourceVersionMatch", query.get("resourceVersionMatch")
    found: list[Cause] = []
    if not query.get("sendInitialEvents"):
        if match:
            why = f"{field} is forbidden for watch unless sendInitialEvents is provided"
            found.append(causes.forbidden(field, why))
    elif match != NOT_OLDER:
        why = f"sendInitialEvents requires setting {field} to {NOT_OLDER}"
        found.append(causes.forbidden(field, why))
        if match:
            found.append(causes.not_supported(field, match, (NOT_OLDER,)))
    if found:
        raise statuses.invalid(GroupKind("meta.k8s.io", "ListOptions"), "", found)
    if query.get("sortBy"):
        raise BadRequest("sortBy is for lists: events come in the order in which things happen")
    seconds = query.get("timeoutSeconds")
    if seconds and not (seconds.isascii() and seconds.isdecimal() and len(seconds) <= _MOST_DIGITS):
        raise BadRequest(f"timeoutSeconds: {seconds[:64]!r} is not a number of seconds")
    is_said = bool(query.get("sendInitialEvents"))
    return WatchOptions(
        version=query.get("resourceVersion"),
        sends_initial=query.is_true("sendInitialEvents") if is_said else None,
        wants_bookmarks=query.is_true("allowWatchBookmarks"),
        seconds=int(seconds or 0),
        include=query.get("includeObject"),
    )


# -- where each cluster begins, and who is missing -------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opening:
    """The state of every cluster before the first event."""

    followed: Mapping[str, str]
    """The version of each cluster that the client goes on from."""
    listed: Sequence[ClusterList]
    """The first page of each cluster that the client has nothing of yet."""
    kinds: Sequence[ClusterList]
    """Lists that say of what kind the events are: those, or where no cluster is selected, that of
    another one, which has no part in the stream and none in its version."""
    silent: Sequence[str]
    """Clusters the client has nothing of, which cannot be asked now."""
    copied: Collection[str] = ()
    """Clusters whose objects the client would delete if they were not among the initial events."""


async def _open(context: FleetContext, options: WatchOptions) -> Opening:
    """Find out where each cluster begins, and refuse what would be taken for whole and is not."""
    fleet = context.fleet
    all_clusters = fleet.all_clusters()
    wanted = await context.positions(options.version)
    followed = wanted if options.resumes else {}
    targets = await find_targets(context, all_clusters)
    _require_all(followed, targets)
    copied: Collection[str] = ()
    if options.sends_initial:
        # Only who waits for the end of the initial events deletes what was not among them.
        copied = wanted.keys() if options.version not in ("", "0") else all_clusters

    async def first_page(link: Link) -> Reply:
        requests = ClusterRequests(context, link.cluster)
        if context.field_filter is not None and (link.cluster in followed or options.starts_now):
            # An object that stops to match is told as DELETED to who has it, and to nobody else.
            return await requests.state_at(link, followed.get(link.cluster, ""))
        if link.cluster in followed:
            return Reply(link.cluster, 200)  # it goes on from where it was: nothing to be asked
        version = wanted.get(link.cluster, "")
        return await requests.first_page(link, version, is_all=not options.starts_now)

    def judge(replies: Sequence[Reply], skipped: Sequence[Skipped]) -> Verdict:
        return failures.judge(replies, skipped, copied=copied, is_given_up=context.is_given_up)

    fanned = await fan_out(context, targets, first_page, judge)
    for reply in fanned.answered:
        if fleet.lapses.refuses_watches(context.list_key(reply.cluster)):
            why = "does not allow this watch; its objects are shown as they were"
            context.http.warn(f"cluster {reply.cluster}: {why}")
    lost = [each.cluster for each in fanned.replies if failures.may_recover(each.failure)]
    lost += [each.cluster for each in targets.skipped if failures.may_recover(each.error)]
    listed = [each.listed for each in fanned.replies if each.listed is not None]
    return Opening(
        followed=followed,
        listed=[each for each in listed if each.cluster not in (*followed, *targets.witnesses)],
        kinds=listed,
        silent=[each for each in lost if each not in followed],
        copied=copied,
    )


def _require_all(followed: Mapping[str, str], targets: Targets) -> None:
    """Refuse to go on without a cluster the client has objects of, or from the middle of one."""
    for cluster, version in followed.items():
        if not version:
            why = f"only a part of cluster {cluster} had been told"
            raise Expired(f"the resourceVersion cannot be continued from: {why}; list again")
    silent = {each.cluster for each in targets.skipped if not isinstance(each.error, Forbidden)}
    missing = sorted(followed.keys() - {*targets.chosen, *silent})
    if missing:
        raise Expired(f"cluster {missing[0]} is out of reach or not selected now; list again")


# -- the stream of one client, from its first event to its end -------------------------------------


async def watch_all(context: FleetContext) -> None:
    """Answer a watch with the events of every cluster, until somebody ends it."""
    options = read_options(context.info.query)
    # Listened to from before the clusters are counted: whoever joins meanwhile is told of.
    with context.fleet.directory.listening() as membership:
        # What clusters listed is let go of page by page: nobody but the feeds has the opening.
        watch = await _start(context, options)
        context.http.on_end = watch.client.end
        context.http.guards.append(watch.leave_unreachable)
        with context.fleet.streams.holding(watch.client):
            await watch.run(membership)


async def _start(context: FleetContext, options: WatchOptions) -> "_Watch":
    opening = await _open(context, options)
    hub = (await context.fleet.directory.link(HUB)).connection
    stream = context.http.request.start_stream(200, headers_for(context.http, JSON))
    context.http.initialized()
    is_table = context.representation.is_table

    def is_written(cluster: str, head: Head) -> bool:
        return context.fleet.writes.knows(
            context.written_object(cluster, head.namespace, head.name)
        )

    merger = WatchMerger(
        TableStyle(context.subject, shows_objects=options.include != "None")
        if is_table
        else PlainStyle(context.subject),
        wants_bookmarks=options.wants_bookmarks,
        wants_initial_end=bool(options.sends_initial),
        most_objects=context.fleet.limits.watched_objects,
        is_written=is_written,
        field_filter=context.field_filter,
    )
    client = ClientStream(stream, slow_seconds=context.fleet.limits.slow_seconds)
    merged = MergedStream(merger, client, hub.clock, hub.random, opening.copied)
    return _Watch(context, options, opening, merged)


# Who works on one stream at the same time, and who may do what:
#
#     a ClusterFeed for each cluster   lists and watches it; calls the merger and writes, in turns
#     `_join_and_leave`                hears of members; splices feeds in, lets them go
#     `leave_unreachable`              called by the chain when rights are looked at again
#     `_stay`                          bookmarks now and then, and the end by time
#     the server's shutdown, the chain end the stream through `client.end`
#
# Merger and client belong together: what the merger returns is written in the same step of the
# loop, and whoever has to wait for a slow client in the middle of that holds `client.turn`. So a
# caller of the merger has the turn, or writes what little it is given without an await in between
# (a bookmark, and only while nobody has the turn). Ending needs no turn: what is written after an
# end goes nowhere.
#
# A cluster may leave while its feed waits for anything. The merger then knows it no more, so a feed
# looks at `has_left` whenever it has got the turn, before it names its cluster to the merger.
class _Watch:
    """One client's stream, from its first event to its end."""

    def __init__(
        self, context: FleetContext, options: WatchOptions, opening: Opening, stream: MergedStream
    ) -> None:
        self._context = context
        self._options = options
        self._stream = stream
        self._merger = stream.merger
        self._clock = stream.clock
        self.client = stream.client
        self._feeds = {feed.cluster: feed for feed in self._begin(opening)}

    def _begin(self, opening: Opening) -> Iterable[ClusterFeed]:
        """Take in every cluster before anything is told of any: their columns belong together."""
        context, merger = self._context, self._merger
        for page in opening.kinds:
            merger.learn(page)
        for cluster, version in opening.followed.items():
            state = next((each for each in opening.kinds if each.cluster == cluster), None)
            merger.follow(context.naming_in(cluster), version, state)
            yield ClusterFeed(context, cluster, self._stream)
        for page in opening.listed:
            if self._options.starts_now:
                state = page if context.field_filter is not None else None
                merger.follow(page.naming, page.metadata.resource_version, state)
                yield ClusterFeed(context, page.cluster, self._stream)
            else:
                merger.splice(page.naming, is_awaited=True)
                yield ClusterFeed(
                    context,
                    page.cluster,
                    self._stream,
                    first_page=page,
                    is_awaited=bool(self._options.sends_initial),
                )
        for cluster in opening.silent:
            merger.splice(context.naming_in(cluster))
            yield ClusterFeed(context, cluster, self._stream)

    async def run(self, membership: Membership) -> None:
        """Send what every cluster sends, until the time is over or the stream is ended."""

        def report(failure: TaskFailed) -> None:
            _log.error("task of a watch failed", reason=str(failure), exc_info=failure.__cause__)

        # Feeds never end by themselves, whatever becomes of their clusters: a cluster in trouble is
        # asked again. What ends them is this block, when `_stay` returns or the client goes away.
        async with Supervisor(self._clock, report) as tasks:
            for feed in self._feeds.values():
                tasks.keep(f"watch {feed.cluster}", feed.run)
            tasks.keep("join and leave", lambda: self._join_and_leave(membership, tasks))
            if not self._feeds and self._options.sends_initial:
                self.client.write(self._merger.bookmark())  # all initial events are out: none
            await self._stay()
        self.client.end()

    async def _join_and_leave(self, membership: Membership, tasks: Supervisor) -> None:
        # Both questions are asked of the feeds, not of the change: a cluster that joined while the
        # stream was being opened is among them already, and is told of here all the same.
        while True:
            change = await membership.get()
            cluster, feed = change.cluster, self._feeds.get(change.cluster)
            if change.has_left:
                if feed is not None:
                    await self._leave(cluster)
                continue
            is_selected = self._context.selects(cluster, anew=True)
            if feed is None and is_selected:
                await self._join(cluster, tasks)
            elif feed is not None and not is_selected:
                # What the client has of it, it has for labels that the cluster no longer has.
                await self._leave(cluster, Expired(f"cluster {cluster} was relabelled; list again"))

    async def leave_unreachable(self) -> None:
        """Let go of the members that the caller may no longer reach, as if they had left."""
        members = [each for each in self._feeds if each != HUB]
        user, gatekeeper = self._context.http.user, self._context.fleet.gatekeeper
        reachable = await gatekeeper.admit(user, "get", members)
        # Asked once more whether it is among the feeds: it may have left while the hub was asked.
        for cluster in members:
            if reachable.find_refusal(cluster) is not None and cluster in self._feeds:
                out_of_reach = Expired(f"cluster {cluster} is out of reach now; list again")
                await self._leave(cluster, out_of_reach)

    async def _leave(self, cluster: str, reason: Expired | None = None) -> None:
        # In a turn: a feed that is in the middle of a page, or takes one back, comes to its end
        # first. Afterwards it finds that its cluster has left, and touches the merger no more.
        async with self.client.turn:
            try:
                self.client.write(self._merger.leave(cluster))
            except Expired as left:
                self.client.end(reason or left)
            else:
                self._feeds.pop(cluster).has_left = True

    async def _join(self, cluster: str, tasks: Supervisor) -> None:
        """Splice a cluster in, unless the caller may not reach it."""
        try:
            skipped = (await find_targets(self._context, (cluster,))).skipped
        except (ApiError, ClusterError) as error:
            # The hub cannot say who may reach it: the client's next stream will ask again.
            _log.debug("cluster not spliced in", cluster=cluster, reason=str(error))
            self.client.end()
            return
        if any(isinstance(each.error, Forbidden) for each in skipped):
            return
        self._merger.splice(self._context.naming_in(cluster))
        feed = self._feeds[cluster] = ClusterFeed(self._context, cluster, self._stream)
        tasks.keep(f"watch {cluster}", feed.run)

    async def _stay(self) -> None:
        """Wait for the end, with a bookmark now and then for those who asked."""
        ended, clock = self.client.ended, self._clock
        seconds = self._options.seconds or _SHORTEST_SECONDS * (1 + self._stream.random.random())
        deadline = clock.monotonic() + seconds
        last_bookmark = deadline - _LAST_BOOKMARK_SECONDS
        owes_bookmark = self._options.wants_bookmarks and last_bookmark > clock.monotonic()
        while not ended.done() and (now := clock.monotonic()) < deadline:
            until = min(now + BOOKMARK_SECONDS, last_bookmark) if owes_bookmark else deadline
            await asyncio.wait([ended], timeout=until - now)
            if owes_bookmark and not ended.done():
                # In the middle of a page nobody could go on from a bookmark anyway.
                if not self.client.turn.locked():
                    self.client.write(self._merger.bookmark())
                owes_bookmark = until < last_bookmark
