"""One watch of a cluster for all clients that would ask the cluster for the same one.

    a cluster ──lines──> SharedWatch ──each read once──┬──> Subscription ──> the feed of a client
                          │ the last few               ├──> Subscription ──> the feed of another
                          └── for who comes late       └──> …

The same one: of the same resource, with the same selectors, in the same form, **in the name of the
same user and groups**. What one of them may see, each of them may, so nothing that a cluster sends
reaches anybody whom it would refuse. Rights change, though, and a watch that is open stays open. So
who joins one that the cluster allowed longer ago than `REVIEWED_SECONDS` asks it anew whether this
user may watch; unless that is a plain yes, a watch of its own is opened, and the cluster decides.

Who comes late begins at a version of its own, and is told what is newer than that, from the last
few events and from then on. That takes versions to be numbers which grow with every event, as those
of a Kubernetes API server do (KEP-5504). Where one does not, nobody joins any more.

A client that is slow has events wait for it, up to a bound. Behind that its subscription ends, and
it goes on with a watch of its own at its own pace, as if nothing were shared: others do not notice.
Only when all of them have enough to do is nothing more read, and the cluster waits too.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Generic, TypeVar

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Supervisor, report
from clusterspace.client.connection import Connection
from clusterspace.client.requests import AnswerMemory, ApiRequest, Headers, Query, failure_of
from clusterspace.errors import ApiError, ClusterError, ClusterMisbehaved
from clusterspace.fleet.gateway.clusters import Link
from clusterspace.fleet.gateway.merge.events import Event, read_event
from clusterspace.fleet.gateway.merge.versions import is_lower, is_number
from clusterspace.fleet.gateway.routes import Naming
from clusterspace.fleet.gateway.streams import lines_of
from clusterspace.kube import statuses

REVIEWED_SECONDS: Final = 10.0
"""How long a cluster's word that a user may watch counts for the next who would join."""

_MOST_ERROR_BYTES: Final = 4 * 1024 * 1024
_MOST_RECENT: Final = 128
_MOST_RECENT_BYTES: Final = 256 * 1024
"""What is kept for who comes late: seconds of a busy collection, between a list and its watch."""
_MOST_KEPT_BYTES: Final = 32 * 1024 * 1024
"""The same of all watches together, as they came: what is made of them takes as much again."""
_ENOUGH, _ENOUGH_BYTES = 64, 512 * 1024
"""With this much waiting for every subscriber, nothing more is read."""
_TOO_MANY, _TOO_MANY_BYTES = 1024, 4 * 1024 * 1024
"""With this much waiting for one subscriber, the others go on without it."""
_AT_ONCE: Final = 16
"""Events that are handed out before whoever got them has its turn."""
_ENDED_SECONDS: Final = 30.0
_MOST_ENDED: Final = 1024

_OF_ONE_CLIENT: Final = frozenset(
    {
        "accept-language", "cache-control", "kubectl-command", "kubectl-session", "origin",
        "traceparent", "tracestate", "user-agent",
    }
)  # fmt: skip
"""Headers that say nothing of what is to be seen, or who may see it."""
_OF_ONE_REQUEST: Final = frozenset({"resourceVersion", "timeoutSeconds"})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WatchKey:
    """What makes two watches the same one."""

    connection: Connection
    path: str
    query: Query
    headers: Headers
    """With who asks, and in which form."""
    naming: Naming

    @classmethod
    def of(cls, link: Link, request: ApiRequest, naming: Naming) -> "WatchKey":
        """Return the key of a request for a watch."""
        query = tuple(pair for pair in request.query if pair[0] not in _OF_ONE_REQUEST)
        headers = tuple(pair for pair in request.headers if pair[0].lower() not in _OF_ONE_CLIENT)
        return cls(link.connection, request.path, query, headers, naming)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The watch that a client would open by itself."""

    link: Link
    naming: Naming
    version: str
    make_request: Callable[[str], ApiRequest]
    """The request for a watch from a version on."""
    review: Callable[[], Awaitable[bool]]
    """Asks the cluster whether the user may watch this, now."""
    is_alone: bool = False
    """Whether nobody is to be joined: the last attempt to do so has not gone well."""


class _OneQuestion(Generic[T]):
    """A question that is asked once for all who want to know at the same time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._asked = 0
        self._answer: T | None = None
        self._failure: ApiError | ClusterError | None = None

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T | None:
        """Return the answer, or raise the failure, of a question that ended just now."""
        asked = self._asked
        async with self._turn:
            # Who asked while we waited asked for us, too. A failure counts as well: a thousand
            # who wait for each other would each wait for a cluster that does not answer.
            if self._asked == asked:
                self._answer = self._failure = None
                try:
                    self._answer = await question()
                except (ApiError, ClusterError) as failure:
                    self._failure = failure
                self._asked += 1
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            return self._answer


class Subscription:
    """The part that one client has in a watch: what it has not taken yet."""

    def __init__(self, watch: "SharedWatch", version: str) -> None:
        self.version = version
        self.is_over = False
        self.fell_behind = False
        """Whether it ended for want of room: who goes on is better off alone."""
        self._watch = watch
        self._waiting: list[Event] = []
        self._bytes = 0
        self._waker: asyncio.Future[None] | None = None

    def is_answered(self, error: ApiError) -> bool:
        """Whether an error is about what this client has asked for.

        That a version is too old may be said of the one that somebody else has; or, by a server
        that has sent events before, of its own buffers.
        """
        is_ours = self._watch.start == self.version and not self._watch.has_sent
        return is_ours or not statuses.is_about_the_version(error)

    @property
    def has_enough(self) -> bool:
        """Whether much waits for the client."""
        return len(self._waiting) >= _ENOUGH or self._bytes >= _ENOUGH_BYTES

    @property
    def has_too_much(self) -> bool:
        """Whether nothing more may wait for the client."""
        return len(self._waiting) >= _TOO_MANY or self._bytes >= _TOO_MANY_BYTES

    def put(self, event: Event, size: int) -> None:
        """Have an event wait for the client."""
        self._waiting.append(event)
        self._bytes += size
        self.wake()

    def wake(self) -> None:
        """Let the client see that something has changed."""
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def events(self) -> list[Event]:
        """Return what has come, as soon as there is something; nothing when the watch has ended.

        Raises what ended the watch, behind all that came before.
        """
        while not self._waiting and not self.is_over:
            self._waker = asyncio.get_running_loop().create_future()
            await self._waker
        taken, self._waiting, self._bytes = self._waiting, [], 0
        if taken:
            self._watch.note_taken()
        elif not self.fell_behind and self._watch.failure is not None:
            raise self._watch.failure.with_traceback(None)
        return taken

    async def require_newest(self, version: str, ask: Callable[[], Awaitable[str]]) -> str:
        """Return a version that the cluster has given since this watch was opened.

        It is not below `version`, unless the cluster's newest one is. Empty if it gives none.
        """
        return await self._watch.require_newest(version, ask)


class SharedWatch:
    """One watch of a cluster, and all who have a part in it.

    It lives from its first subscription to its last, or until the cluster ends it; a new one is
    another SharedWatch.
    """

    def __init__(self, watches: "SharedWatches", key: WatchKey, wanted: Wanted, start: str) -> None:
        self.start = start
        self.reviewed_at = float("-inf")
        """When the cluster was asked, whose answer was that the user may watch."""
        self.failure: ApiError | ClusterError | None = None
        self.has_sent = False
        """Whether the cluster has sent anything yet."""
        self._review_question: _OneQuestion[bool] = _OneQuestion()
        self.key = key
        self._watches = watches
        self._wanted = wanted
        self._clock = watches.clock
        self._known_from = self._position = start
        self._last_table: Event | None = None
        self._recent: deque[tuple[Event, int]] = deque()
        self._recent_bytes = 0
        self._subscriptions: dict[Subscription, None] = {}
        self._ahead: set[Subscription] = set()
        """Those that begin at a version which the watch has not come to yet."""
        self._opened = asyncio.Event()
        self._taken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._newest = ""
        self._newest_question: _OneQuestion[str] = _OneQuestion()

    @property
    def is_open(self) -> bool:
        """Whether the cluster has answered."""
        return self._opened.is_set()

    def covers(self, version: str) -> bool:
        """Whether everything that is newer than a version is known here, or will be."""
        return is_number(version) and not is_lower(version, self._known_from)

    def subscribe(self, version: str) -> Subscription:
        """Give a client its part, from a version on that is covered."""
        subscription = Subscription(self, version)
        # What is kept and what will come are told in the same step: no event is in between.
        for event, size in self._recent:
            if is_lower(version, event.item.head.resource_version):
                subscription.put(event, size)
        if is_lower(self._position, version):
            self._ahead.add(subscription)
        self._subscriptions[subscription] = None
        self._taken.set()  # reading may stand still for those who were here before
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """Take a client's part back; with the last one the watch ends."""
        self._ahead.discard(subscription)
        self._subscriptions.pop(subscription, None)
        self._taken.set()
        if not self._subscriptions:
            # Nobody can join it from here on, in the same step: a new one would wait for nothing.
            self._watches.forget(self)
            if self._task is not None:
                self._task.cancel()

    def note_taken(self) -> None:
        """Take note that a client has taken what waited for it."""
        self._taken.set()

    async def may_be_joined(self, review: Callable[[], Awaitable[bool]]) -> bool:
        """Ask the cluster, once for all who would join, whether the user may still watch."""

        async def ask() -> bool:
            asked_at = self._clock.monotonic()
            is_allowed = await review()
            if is_allowed:
                self.reviewed_at = asked_at
            return is_allowed

        return bool(await self._review_question.ask(ask))

    async def wait_open(self) -> None:
        """Wait until the cluster has answered; raise what it answered instead of a watch."""
        await self._opened.wait()
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    async def require_newest(self, version: str, ask: Callable[[], Awaitable[str]]) -> str:
        """See Subscription."""
        # Asked while the watch is open: a cluster that goes back to a backup later breaks it.
        if not self._newest or is_lower(self._newest, version):
            newest = await self._newest_question.ask(ask) or ""
            if is_lower(newest, version):
                newest = await ask()  # asked for another client, and maybe before ours has listed
            self._newest = newest
        return self._newest

    async def run(self) -> None:
        """Read what the cluster sends, until it ends or nobody wants it."""
        self._task = asyncio.current_task()
        wanted = self._wanted
        failure: ApiError | ClusterError | None = ClusterError(
            wanted.link.cluster, "its watch has broken off"
        )
        try:
            if self._subscriptions:
                await self._read()
            failure = None
        except (ApiError, ClusterError) as error:
            failure = error
        except asyncio.CancelledError:
            failure = None
            raise
        finally:
            # Whatever happened, nobody is left to wait for what will not come.
            self.failure = failure
            self._watches.end(self, self._position)
            self._opened.set()
            for subscription in self._subscriptions:
                subscription.is_over = True
                subscription.wake()
            self._watches.kept_bytes -= self._recent_bytes

    async def _read(self) -> None:
        link, clock = self._wanted.link, self._clock
        async with AsyncExitStack() as stack:
            asked_at = clock.monotonic()
            request = replace(self._wanted.make_request(self.start), hold=None)
            answer = await link.connection.open(stack, request)
            if answer.status != 200:
                whole = await answer.read(_MOST_ERROR_BYTES)
                odd = ClusterMisbehaved(
                    link.cluster, f"answered {answer.status}", code=answer.status
                )
                raise failure_of(link.cluster, whole) or odd
            self.reviewed_at = asked_at
            self._opened.set()
            lines_read = lines_of(link.cluster, answer, self._watches.memory)
            batches = await stack.enter_async_context(aclosing(lines_read))
            async for lines in batches:
                for number, line in enumerate(lines, 1):
                    event = self._read_event(line)
                    self._publish(event, len(line))
                    while self._subscriptions and all(
                        each.has_enough for each in self._subscriptions
                    ):
                        self._taken.clear()
                        await self._taken.wait()
                    if number % _AT_ONCE == 0:
                        await asyncio.sleep(0)
                await asyncio.sleep(0)  # a cluster that sends without end leaves others their turn

    def _read_event(self, line: bytes) -> Event:
        # Only the first Table of a watch declares its columns.
        columns = () if self._last_table is None else self._last_table.item.listed.columns
        event = read_event(line, self._wanted.naming, columns)
        if event.change is not None and event.item.listed.columns:
            self._last_table = event
        return event

    def _publish(self, event: Event, size: int) -> None:
        """Hand an event to everybody whom it concerns: one step, in which nobody joins."""
        self.has_sent = True
        version, is_bookmark = event.item.head.resource_version, event.change is None
        is_in_order = is_lower(self._position, version)
        if not is_in_order and not (is_bookmark and version == self._position):
            # Versions say nothing here of what comes before what. Who is in the middle of the
            # stream needs none; who has to skip up to one does, and begins again without others.
            self._watches.forget(self)
            for subscription in tuple(self._ahead):
                self._drop(subscription)
        self._position = version
        for subscription in tuple(self._ahead):
            if is_lower(subscription.version, version):
                self._ahead.discard(subscription)
        too_slow: list[Subscription] = []
        for subscription in self._subscriptions:
            if subscription in self._ahead:
                continue  # it has listed what is told here
            if subscription.has_too_much:
                too_slow.append(subscription)
            else:
                subscription.put(event, size)
        for subscription in too_slow:
            self._drop(subscription)
        if not is_bookmark:
            self._keep(event, size)

    def _drop(self, subscription: Subscription) -> None:
        # It is told what waits for it, and then that this is all: it goes on from there.
        subscription.fell_behind = subscription.is_over = True
        subscription.wake()
        self._ahead.discard(subscription)
        self._subscriptions.pop(subscription, None)

    def _keep(self, event: Event, size: int) -> None:
        """Keep an event for who comes late, for as long as there is room."""
        watches = self._watches
        self._recent.append((event, size))
        self._recent_bytes += size
        watches.kept_bytes += size
        while self._recent and (
            len(self._recent) > _MOST_RECENT
            or self._recent_bytes > _MOST_RECENT_BYTES
            or watches.kept_bytes > _MOST_KEPT_BYTES
        ):
            oldest, oldest_size = self._recent.popleft()
            self._known_from = oldest.item.head.resource_version
            self._recent_bytes -= oldest_size
            watches.kept_bytes -= oldest_size


class SharedWatches:
    """Every watch of a cluster on behalf of clients that watch all clusters."""

    def __init__(self, clock: Clock, memory: AnswerMemory) -> None:
        self.clock = clock
        self.memory = memory
        self.kept_bytes = 0
        self._watches: dict[WatchKey, SharedWatch] = {}
        self._ended: OrderedDict[WatchKey, tuple[str, float]] = OrderedDict()
        self._tasks = Supervisor(clock, report)

    def __len__(self) -> int:
        return len(self._tasks)

    async def __aenter__(self) -> "SharedWatches":
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._tasks.__aexit__(error_type, error, traceback)

    @asynccontextmanager
    async def joined(self, wanted: Wanted) -> AsyncGenerator[Subscription]:
        """Have a part in a watch for as long as the block lasts; raise what a cluster answers."""
        key = WatchKey.of(wanted.link, wanted.make_request(wanted.version), wanted.naming)
        watch = None if wanted.is_alone else await self._find(key, wanted)
        # From `_find`, which does not wait once it has decided, to the subscription nothing awaits:
        # what it found out still holds.
        watch = watch or self._begin(key, wanted)
        subscription = watch.subscribe(wanted.version)
        try:
            try:
                await watch.wait_open()
            except ApiError as error:
                if subscription.is_answered(error):
                    raise
                watch.leave(subscription)
                watch = self._begin(key, replace(wanted, is_alone=True))
                subscription = watch.subscribe(wanted.version)
                await watch.wait_open()
            yield subscription
        finally:
            watch.leave(subscription)

    async def _find(self, key: WatchKey, wanted: Wanted) -> SharedWatch | None:
        """Return the watch that a client may join; None if there is none for it."""
        while (watch := self._watches.get(key)) is not None and watch.covers(wanted.version):
            reviewed = self.clock.monotonic() - watch.reviewed_at
            if not watch.is_open or reviewed < REVIEWED_SECONDS:
                return watch
            try:
                if not await watch.may_be_joined(wanted.review):
                    return None
            except (ApiError, ClusterError):
                return None
            # It may have ended, or gone on too far, while the cluster was asked.
            if self._watches.get(key) is watch and watch.covers(wanted.version):
                return watch
        return None

    def _begin(self, key: WatchKey, wanted: Wanted) -> SharedWatch:
        start = wanted.version
        is_shared = not wanted.is_alone and key not in self._watches and is_number(start)
        if is_shared:
            # All who had a part in the one before may join when it goes on from where it was.
            position, ended_at = self._ended.get(key, ("", 0.0))
            is_fresh = self.clock.monotonic() - ended_at < _ENDED_SECONDS
            start = position if is_fresh and is_lower(position, start) else start
        watch = SharedWatch(self, key, wanted, start)
        if is_shared:
            self._watches[key] = watch
        self._tasks.spawn(f"watch {wanted.link.cluster}", watch.run)
        return watch

    def forget(self, watch: SharedWatch) -> None:
        """Let nobody join a watch any more."""
        if self._watches.get(watch.key) is watch:
            del self._watches[watch.key]

    def end(self, watch: SharedWatch, position: str) -> None:
        """Remember how far a watch had come, unless that is just what the cluster has forgotten."""
        if self._watches.get(watch.key) is not watch:
            return
        self.forget(watch)
        self._ended.pop(watch.key, None)
        failure = watch.failure
        is_forgotten = isinstance(failure, ApiError) and statuses.is_about_the_version(failure)
        if is_number(position) and not is_forgotten:
            self._ended[watch.key] = (position, self.clock.monotonic())
            if len(self._ended) > _MOST_ENDED:
                self._ended.popitem(last=False)
