"""The changes of a collection, without end: one watch, and the Reflector that goes on after it.

    ┌─> start over ──whole──> watch ──the stream ends, breaks, falls silent──┐
    │   (streamed or paged)     ^                                            │
    │                           └──────────────── resume ────────────────────┤
    └──────────────────────── 410: the version is forgotten ─────────────────┘

A watch is chunks to lines to events, until the server ends it. Whatever fails, what is known stays
known. Starting over yields the difference to what is known.

A list that leaves objects out is how fleets lost what they ran: a cold cache, a proxy, a bug on the
way answers 200 with nothing in it. So an object that a list lacks counts as gone only when asking
for it by name says so. Of a few hundred missing ones a sample is asked for; whoever answers "empty"
by mistake fails the first question.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, KeysView, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import Any, Final, Protocol, cast

import msgspec
import structlog

from clusterspace.aio import clocks
from clusterspace.client.connection import Connection
from clusterspace.client.requests import ApiRequest, Query, ResourcePath, api_error, unreadable
from clusterspace.client.resources import (
    ClusterClient,
    ListOptions,
    RawObject,
    Reader,
    Version,
    raise_refusal,
    read_raw_object,
)
from clusterspace.errors import (
    ApiError,
    BadRequest,
    ClusterError,
    ClusterMisbehaved,
    ClusterTimeout,
    DeadlineExceeded,
    Expired,
    Forbidden,
    Invalid,
    NotServed,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.objects import Object, labels_of, resource_version_of, uid_of
from clusterspace.kube.selectors import LabelSelector, parse_label_selector

LONGEST_LINE: Final = 8 * 1024 * 1024
"""More than twice the largest object a Kubernetes API takes."""

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


class EventType(Enum):
    """What happened to an object; BOOKMARK is only about the version reached."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class RawEvent:
    """One event; the object is not decoded yet."""

    type: EventType
    item: RawObject
    ends_initial_events: bool = False


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What to watch, from where on, and for how long at most."""

    resource_version: str = ""
    label_selector: str = ""
    field_selector: str = ""
    timeout_seconds: int = 300
    sends_initial_events: bool = False
    quiet_seconds: float | None = None

    def query(self) -> Query:
        """Return the query."""
        pairs = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.resource_version,
            "labelSelector": self.label_selector,
            "fieldSelector": self.field_selector,
            "timeoutSeconds": str(self.timeout_seconds),
        }
        if self.sends_initial_events:
            pairs |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        return tuple((key, value) for key, value in pairs.items() if value)


class LineSplitter:
    """Cuts a stream of chunks into lines; what is behind the last newline waits for the next."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that are whole now; a ValueError when one has no end."""
        end = chunk.rfind(b"\n")
        if end < 0:
            self._keep(chunk)
            return []
        self._pieces.append(chunk[:end])
        lines = b"".join(self._pieces).split(b"\n")
        self._pieces, self._size = [], 0
        self._keep(chunk[end + 1 :])
        return [line for line in lines if line]

    @property
    def rest_bytes(self) -> int:
        """How much there is of a line that began and did not end."""
        return self._size

    def _keep(self, part: bytes) -> None:
        if part:
            self._pieces.append(part)
            self._size += len(part)
        if self._size > LONGEST_LINE:
            raise ValueError(f"an event of more than {LONGEST_LINE} bytes")


async def watch(
    connection: Connection, place: ResourcePath, options: WatchOptions
) -> AsyncGenerator[list[RawEvent]]:
    """Yield events as they come, those that came together in one list.

    Ends when the server ends it, which is normal. Raises what an ERROR event tells, above all
    Expired, and ClusterError when the stream breaks.
    """
    request = ApiRequest(
        "GET",
        place.path,
        options.query(),
        # Events are read as they come. Servers from 1.37 on compress a streamed list if they may.
        headers=(("Accept-Encoding", "identity"),),
        quiet_seconds=options.quiet_seconds,
    )
    splitter = LineSplitter()
    async with connection.stream(request) as stream:
        await raise_refusal(connection.cluster, stream)
        async for chunk in stream.chunks():
            try:
                lines = splitter.feed(chunk)
            except ValueError as error:
                raise ClusterMisbehaved(connection.cluster, f"sent {error}") from error
            if lines:
                yield [read_event(connection.cluster, line) for line in lines]
    if splitter.rest_bytes:
        raise unreadable(connection.cluster, "the watch ended in the middle of an event")


class _Frame(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _BookmarkMetadata(msgspec.Struct):
    resourceVersion: str  # noqa: N815 - the names of the wire
    annotations: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMetadata


_frame_decoder: Final = msgspec.json.Decoder(_Frame)
_bookmark_decoder: Final = msgspec.json.Decoder(_Bookmark)


def read_event(cluster: str, line: bytes) -> RawEvent:
    """Read one line of a watch; raise what it tells when it is an ERROR event."""
    try:
        frame = _frame_decoder.decode(line)
        if frame.type != "ERROR":
            event_type, raw = EventType(frame.type), bytes(frame.object)
            if event_type is not EventType.BOOKMARK:
                return RawEvent(event_type, read_raw_object(raw))
            metadata = _bookmark_decoder.decode(raw).metadata
            if not metadata.resourceVersion:
                raise ValueError("a bookmark without a resourceVersion")
            item = RawObject("", Version("", metadata.resourceVersion), b"")
            is_end = metadata.annotations.get(INITIAL_EVENTS_END) == "true"
            return RawEvent(event_type, item, ends_initial_events=is_end)
        status: Any = msgspec.json.decode(frame.object)
    except (*UNREADABLE, ValueError) as error:
        raise unreadable(cluster, "the watch sent something that is not an event", error) from error
    if not isinstance(status, dict):
        raise unreadable(cluster, "the watch sent an error that is no Status")
    raise api_error(cluster, cast("Object", status), 500)


# -- list, watch, resume, list again ---------------------------------------------------------------


class KnownObjects(Protocol):
    """The objects a follower has; it puts changes in before it asks for the next ones."""

    def keys(self) -> KeysView[str]:
        """Return the keys of all objects held."""
        ...

    def find_version(self, key: str) -> Version | None:
        """Return the version held of an object, or None."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """ADDED, MODIFIED or DELETED, and the object as it is now or last was.

    Of an object whose deletion was only seen as absence, `item.raw` is empty.
    """

    type: EventType
    item: RawObject


def changes_by_events(known: KnownObjects, events: Iterable[RawEvent]) -> tuple[ObjectChange, ...]:
    """Return the changes that events bring; bookmarks and known states bring none."""
    latest = _Latest(known)
    return tuple(change for event in events for change in latest.changes(event))


def changes_by_items(known: KnownObjects, items: Iterable[RawObject]) -> tuple[ObjectChange, ...]:
    """Return the additions and changes that items of a list bring; deletions are not among them."""
    latest = _Latest(known)
    return tuple(change for item in items for change in latest.upserts(item))


def absent(key: str, version: Version) -> ObjectChange:
    """Return the deletion of an object of which only the absence was seen."""
    return ObjectChange(EventType.DELETED, RawObject(key, version, b""))


class _Latest:
    """Versions known, and those that came earlier in the batch being read."""

    def __init__(self, known: KnownObjects) -> None:
        self._known = known
        self._batch: dict[str, Version | None] = {}

    def changes(self, event: RawEvent) -> Iterator[ObjectChange]:
        if event.type is EventType.DELETED:
            if self._find(event.item.key) is not None:
                self._batch[event.item.key] = None
                yield ObjectChange(EventType.DELETED, event.item)
        elif event.type is not EventType.BOOKMARK:
            yield from self.upserts(event.item)

    def upserts(self, item: RawObject) -> Iterator[ObjectChange]:
        known = self._find(item.key)
        if known == item.version:
            return
        self._batch[item.key] = item.version
        if known is not None and known.uid != item.version.uid:
            # Deleted and made again while we looked away: two things happened, and whoever keeps
            # something for the first object must be told of both.
            yield absent(item.key, known)
            known = None
        yield ObjectChange(EventType.ADDED if known is None else EventType.MODIFIED, item)

    def _find(self, key: str) -> Version | None:
        if key in self._batch:
            return self._batch[key]
        return self._known.find_version(key)


MOST_QUESTIONS: Final = 32
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Missing:
    """An object we know and a list left out."""

    key: str
    version: Version


@dataclass(frozen=True, slots=True)
class ListedView:
    """Which objects the list was to show."""

    place: ResourcePath
    labels: LabelSelector
    has_field_selector: bool

    def must_show(self, live: Object, missing: Missing) -> bool:
        """Whether a list that is right has this living object in it.

        Another UID is another object: ours is gone. Field selectors are the server's to judge,
        so with one of these only an object that did not change must still be there.
        """
        if uid_of(live) != missing.version.uid:
            return False
        if resource_version_of(live) == missing.version.resource_version:
            return True
        return not self.has_field_selector and self.labels.matches(labels_of(live))


async def confirm_gone(
    member: Reader, cluster: str, view: ListedView, missing: Sequence[Missing], random: Random
) -> None:
    """Return when the missing are gone; raise when one is there or cannot be asked for."""
    # Of many a random few: a list that lacks what it should have, such as an empty one, lacks most
    # of it. To ask for ten thousand by name would take down a member that has just come back.
    asked = missing if len(missing) <= MOST_QUESTIONS else random.sample(missing, MOST_QUESTIONS)
    gate = asyncio.Semaphore(_AT_ONCE)
    troubles: list[ApiError | ClusterError] = []

    async def ask_for(one: Missing) -> None:
        async with gate:
            # The first trouble is enough. It is kept and raised behind the group, not in it: out of
            # a group it would come as a group, and a task that raises while the group is being
            # cancelled from outside would turn the cancelling into an error.
            if troubles:
                return
            try:
                live = await member.find(view.place.at(one.key))
            except (ApiError, ClusterError) as trouble:
                troubles.append(trouble)
                return
            if live is not None and view.must_show(live, one):
                why = f"listed {view.place} without {one.key}, which is there"
                troubles.append(ClusterMisbehaved(cluster, why, code=200))

    async with asyncio.TaskGroup() as group:
        for one in asked:
            group.create_task(ask_for(one), name=f"confirm {one.key}")
    if troubles:
        raise troubles[0]  # it stands for all: they are of the same cluster, in the same moment


_log = structlog.get_logger(__name__)

QUIET_SECONDS: Final = 150.0
"""Servers send a bookmark about once a minute; a stream that skips two is asked for anew."""

INITIAL_SECONDS: Final = 20.0
"""Servers too old to stream a list ignore the wish and say nothing; after this we list."""

_SHORTEST_WATCH: Final = 300
_HEALTHY_SECONDS: Final = 10.0
"""A stream that lived this long was all right: what comes next is a new trouble, if it is one."""
_VERSION_TOO_LARGE: Final = "ResourceVersionTooLarge"

# Refusals that are not about streaming: a list would be refused just the same.
_PASSING: Final = (
    Expired,
    Forbidden,
    NotServed,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes that came together; once `is_whole`, all of them so far add up to the collection."""

    changes: tuple[ObjectChange, ...]
    is_whole: bool


# `_position` is all the state there is beside what the reader knows: everything up to it has been
# handed over and put into `known`. Empty means that nobody knows how far we are, not that nothing
# is known: what is known stays, and is compared with what is listed.
#
#     position   what the cluster sends or says            what the reader gets
#     ""         initial events a@3 b@5, their end at 7    a, b added; whole
#     7          MODIFIED b@9                              b modified
#     9          the stream breaks, and is resumed at 9    nothing, and nothing twice
#     9          410: what was before 20 is forgotten      nothing; the position is ""
#     ""         a list of b@9 c@15, at 21                 c added; is a gone? asked for by name
#     ""         "a is there": a wrong list                nothing; listed again, later
#     ""         "no such a"                               a deleted; whole; the position is 21
#
# A stream that breaks, or a list that is wrong, therefore never makes anything vanish: objects go
# by a DELETED event, or by absence that was confirmed.
class Reflector:
    """Follows one collection of one cluster for as long as its batches are read."""

    def __init__(
        self,
        cluster_client: ClusterClient,
        place: ResourcePath,
        known: KnownObjects,
        selection: ListOptions | None = None,
        position: str = "",
    ) -> None:
        """Follow from a position when all up to it is known already; else from a list."""
        self._cluster_client = cluster_client
        self._place = place
        self._known = known
        self._clock = cluster_client.connection.clock
        self._random = cluster_client.connection.random
        self._selection = selection or ListOptions()
        labels = parse_label_selector(self._selection.label_selector)
        self._view = ListedView(place, labels, bool(self._selection.field_selector))
        self._position = position
        self._may_stream = True
        self.last_heard = self._clock.monotonic()
        """When the cluster last said something about this collection."""
        self.trouble: Exception | None = None
        """Why nothing is heard at the moment, if that is so."""

    async def batches(self) -> AsyncGenerator[Batch]:
        """Yield batches without end; failures are waited out, never raised."""
        delays = self._new_delays()
        while True:
            started = self._clock.monotonic()
            try:
                if self._position:
                    following = self._resume()
                else:
                    following = (
                        self._start_streaming() if self._may_stream else self._start_listing()
                    )
                # Closed here and now, whatever ends the loop: a generator that is left to the
                # collector would keep its connection open until it looks.
                async with aclosing(following) as batches:
                    async for batch in batches:
                        self.last_heard = self._clock.monotonic()
                        self.trouble = None
                        yield batch
            except (ApiError, ClusterError) as error:
                self._note(error)
            if self._clock.monotonic() - started >= _HEALTHY_SECONDS:
                delays = self._new_delays()
            # Even a stream that ended in good order is not asked for anew at once: a cluster that
            # ends them all would be asked without a pause.
            await self._clock.sleep(next(delays))

    async def _resume(self) -> AsyncGenerator[Batch]:
        """Go on from the position until the stream ends."""
        async with aclosing(self._watch(self._position)) as events:
            async for several in events:
                # The position moves behind the yield, when the reader has put the batch into what
                # it knows. Ended in between, we read the same events again, and `changes_by_events`
                # drops what is known; the other way round they would be lost.
                yield Batch(changes_by_events(self._known, several), is_whole=True)
                self._position = several[-1].item.version.resource_version

    async def _start_listing(self) -> AsyncGenerator[Batch]:
        """Yield the difference between what is known and what a list has."""
        seen: set[str] = set()
        # Not `self._position` yet: a list that breaks off half way must begin anew, not resume
        # behind pages nobody has read.
        position = ""
        pages = self._cluster_client.pages(self._place, self._selection)
        try:
            async with aclosing(pages):
                async for page in pages:
                    position = page.head.resource_version
                    seen.update(item.key for item in page.items)
                    yield Batch(changes_by_items(self._known, page.items), is_whole=False)
        except Expired:
            # The cluster forgot the first page while we read the others. All at once, next time.
            self._selection = replace(self._selection, limit=0)
            raise
        yield Batch(await self._gone(seen), is_whole=True)
        self._position = position

    async def _start_streaming(self) -> AsyncGenerator[Batch]:
        """Do as `_start_listing` with events, and go on with the same stream."""
        seen: set[str] = set()
        async with aclosing(self._watch("", sends_initial_events=True)) as events:
            while not self._position:
                several = await self._next_initial(events)
                if several is None:
                    break
                end = next(
                    (n for n, event in enumerate(several) if event.ends_initial_events), None
                )
                initial = [event.item for event in several[:end] if event.item.key]
                seen.update(item.key for item in initial)
                yield Batch(changes_by_items(self._known, initial), is_whole=False)
                if end is not None:
                    # What was not among the initial events is gone by now, or was when they were
                    # sent: confirmed first, and before the events that came behind the end, one of
                    # which may be the making of a new object by the same name.
                    yield Batch(await self._gone(seen), is_whole=True)
                    yield Batch(changes_by_events(self._known, several[end:]), is_whole=True)
                    self._position = several[-1].item.version.resource_version
            while several := await anext(events, None):
                yield Batch(changes_by_events(self._known, several), is_whole=True)
                self._position = several[-1].item.version.resource_version
        if not self._position:
            async for batch in self._start_listing():
                yield batch

    async def _next_initial(self, events: AsyncIterator[list[RawEvent]]) -> list[RawEvent] | None:
        """Return the next initial events; None when there will be no more, so that we must list."""
        try:
            async with asyncio.timeout(INITIAL_SECONDS):
                return await anext(events, None)
        except _PASSING:
            raise
        except (ApiError, TimeoutError) as error:
            # A server that does not know the wish will not learn it; one that stumbled may.
            self._may_stream = not isinstance(error, BadRequest | Invalid | TimeoutError)
            _log.debug("list not streamed", cluster=self._cluster, reason=str(error))
            return None

    def _watch(
        self, position: str, *, sends_initial_events: bool = False
    ) -> AsyncGenerator[list[RawEvent]]:
        options = WatchOptions(
            resource_version=position,
            label_selector=self._selection.label_selector,
            field_selector=self._selection.field_selector,
            # Not all at the same moment, five minutes after the cluster came back.
            timeout_seconds=_SHORTEST_WATCH + self._random.randrange(_SHORTEST_WATCH),
            sends_initial_events=sends_initial_events,
            quiet_seconds=QUIET_SECONDS,
        )
        return watch(self._cluster_client.connection, self._place, options)

    async def _gone(self, seen: set[str]) -> tuple[ObjectChange, ...]:
        """Return the deletions a whole list stands for, each of them confirmed or sampled."""
        missing = [
            Missing(key, version)
            for key in self._known.keys() - seen
            if (version := self._known.find_version(key)) is not None
        ]
        if missing:
            await confirm_gone(
                self._cluster_client, self._cluster, self._view, missing, self._random
            )
        return tuple(absent(one.key, one.version) for one in missing)

    @property
    def _cluster(self) -> str:
        return self._cluster_client.cluster

    def _note(self, error: ApiError | ClusterError) -> None:
        """Decide whether the position is still good, and remember what is wrong."""
        details = error.details if isinstance(error, DeadlineExceeded) else None
        # The cluster is younger than our position: it was restored from a backup.
        is_too_large = details is not None and any(
            cause.reason == _VERSION_TOO_LARGE for cause in details.causes
        )
        if isinstance(error, Expired) or is_too_large:
            self._position = ""
        # A collection in which nothing happens may be silent all day on a server without
        # bookmarks: no trouble, as long as it lets us come back.
        if not (isinstance(error, ClusterTimeout) and self._position):
            self.trouble = error
        _log.debug(
            "watch interrupted",
            cluster=self._cluster,
            resource=str(self._place),
            reason=str(error),
            starts_over=not self._position,
        )

    def _new_delays(self) -> Iterator[float]:
        return clocks.jittered(0.2, 30.0, self._random)
