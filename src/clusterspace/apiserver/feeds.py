"""One subscription to the store per resource, many watchers.

A change reaches the feed once. It is rendered once for every style that somebody watches in
(JSON, protobuf, metadata, Table), framed once for the wire, and the same bytes are written to every
watcher. Nobody waits for a slow watcher: it gets 410 and is cut off.
"""

import asyncio
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from clusterspace.aio.clocks import Alarm, Clock, SystemClock
from clusterspace.apiserver import forms
from clusterspace.apiserver.http.fairness.step import PROMPT_WATCHERS
from clusterspace.apiserver.http.messages import Stream, frame_chunk
from clusterspace.apiserver.options import Selection
from clusterspace.apiserver.store.interface import Event, KeyValue, Revision, Store, Subscription
from clusterspace.errors import ApiError, Expired, StoreClosed, StoreError
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object
from clusterspace.kube.protobuf.encoding import encode as encode_protobuf
from clusterspace.kube.protobuf.encoding import encode_watch_event
from clusterspace.telemetry import metrics

SLOW_BYTES: Final = 2 * 1024 * 1024
"""A watcher with this much unread is cut off: it would cost memory and never catch up."""


CROWD_SLICE_SECONDS: Final = 0.00025
"""How long one user's watchers beyond PROMPT_WATCHERS are told without a break. A request passes
several turns of the event loop on the way to its answer, and may wait this long in each of them."""

CROWD_PAUSE_SECONDS: Final = 0.001
"""How long everybody else has the loop to themselves after that. While others ask, all crowds of a
hub together have a fifth of its time, whatever is written and however many they are."""

CROWD_ALONE_SECONDS: Final = 0.0001
"""What a turn of the loop takes, at most, in which nobody but a crowd had anything to do."""

CROWD_BATCH_BYTES: Final = 32 * 1024
"""What one of them is written at once, of all that happened since it was written to."""

MOST_BEHIND: Final = 1000
"""Events that the rest of them may be behind by; then they are cut off, as one is that is slow."""


class Style(Protocol):
    """How a watcher wants its objects; equal keys mean equal bytes."""

    @property
    def key(self) -> Hashable:
        """Distinguishes styles."""
        ...

    @property
    def framing(self) -> "Framing":
        """How events stand in the stream."""
        ...

    def render(self, entry: KeyValue, *, is_stored: bool = True) -> bytes:
        """Return the event's object.

        `is_stored` is False for what left: its last content, at a revision at which the store has
        other content, or none. Nothing made from it may be kept for that revision.
        """
        ...


@dataclass(frozen=True, slots=True)
class Framing:
    """How the events of a watch stand in its stream."""

    encode: Callable[[Object], bytes]
    """An object that is not stored, such as a Status, as the stream has it."""
    frame: Callable[[str, bytes], bytes]
    """The type and the object of an event, as one chunk."""

    def error(self, error: ApiError) -> bytes:
        """Return the event that ends a watch with a reason."""
        return self.frame("ERROR", self.encode(statuses.status_of(error)))


def _frame_json(kind: str, shown: bytes) -> bytes:
    return frame_chunk(b'{"type":"%b","object":%b}\n' % (kind.encode(), shown))


def _frame_protobuf(kind: str, shown: bytes) -> bytes:
    return frame_chunk(encode_watch_event(kind, shown))


JSON_FRAMING: Final = Framing(forms.encode, _frame_json)
PROTOBUF_FRAMING: Final = Framing(encode_protobuf, _frame_protobuf)


class Change:
    """One event of the store, with what has been rendered of it so far."""

    __slots__ = ("_decoded", "_frames", "event")

    def __init__(self, event: Event) -> None:
        self.event = event
        self._frames: dict[Hashable, bytes] = {}
        self._decoded: dict[tuple[Revision, str], Object] = {}

    def frame(self, kind: str, style: Style) -> bytes:
        """Return the framed bytes of this change, made on first use."""
        key = (kind, style.key)
        framed = self._frames.get(key)
        if framed is None:
            entry = self._shown(kind)
            shown = style.render(entry, is_stored=entry is self.event.item)
            framed = self._frames[key] = style.framing.frame(kind, shown)
        return framed

    def decode(self, entry: KeyValue, form: forms.Form) -> Object:
        """Return the object as it is or was, decoded once however many watchers look at it."""
        key = (entry.mod_revision, form.api_version)
        decoded = self._decoded.get(key)
        if decoded is None:
            decoded = self._decoded[key] = forms.decode_stored(entry, form)
        return decoded

    def _shown(self, kind: str) -> KeyValue:
        event = self.event
        if kind != "DELETED" or event.previous is None:
            return event.item
        # What left is shown as it last was, but at the revision at which it left: a client that
        # resumed from an older one would be sent this event again.
        last = event.previous
        return KeyValue(last.key, last.value, last.create_revision, event.revision)


# The way of a write to its watchers:
#
#     writer thread: fsync of 46 ──> loop: publish 46 ─┬─> index shows 46
#                                                      ├─> feed "pods": a frame per style
#                                                      │     ├─> watcher A  (socket buffer)
#                                                      │     └─> watcher B  (over SLOW_BYTES: 410)
#                                                      └─> then: the writer's POST is answered 201
#
# Up to the answer that is one step of the event loop, with nothing awaited. It follows that
#
# - by the time a write is answered, its event is in every stream that has caught up;
# - `watcher.seen` and `feed.revision` can be compared without a lock (`Feeds.join`);
# - rendering costs everybody: whatever `Style.render` does, all connections wait for it.
#
# Two thousand watches of one user are 40 ms of writing for each event, and everybody would wait for
# them. So a user has so many watchers of a feed that are told at once; the others, the crowd, are
# told behind the answer, in slices of the loop's time with pauses between them while others ask
# (`_Crowds`). What happens meanwhile comes to each of them in one piece: encrypting and sending
# costs by the piece, so that a crowd costs the same whether one object changes in a second or a
# hundred. Each has every event, in order. It may be some tenths of a second late, and a bookmark to
# it never tells of more than it has been written (`Feeds.revision`).
class Watcher:
    """One client's view of a feed."""

    __slots__ = (
        "_prefix",
        "_selection",
        "_stream",
        "_style_of",
        "_wrote",
        "ended",
        "owner",
        "seen",
    )

    def __init__(
        self,
        stream: Stream,
        *,
        prefix: str,
        selection: Selection,
        style_of: Callable[[bool], Style],
        seen: Revision,
        owner: str = "",
    ) -> None:
        self._stream = stream
        self.owner = owner
        """Who watches."""
        self._prefix = prefix
        self._selection = selection
        self._style_of = style_of
        self._wrote = False
        self.seen = seen
        """Everything at or below this revision has been written."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def offer(self, *changes: Change, most_bytes: int = SLOW_BYTES) -> None:
        """Write those changes that concern this watcher, in one piece.

        Once there is so much to write, the rest is left to be offered again.
        """
        frames: list[bytes] = []
        size = 0
        for change in changes:
            event = change.event
            if event.revision <= self.seen:
                continue
            # Before anything else: an event that is not for this watcher, or that ends it, counts
            # as seen too. Between here and the write there is no await, so `seen` is never ahead of
            # the stream when somebody else looks at it.
            self.seen = event.revision
            if not event.key.startswith(self._prefix) or self.ended.done():
                continue
            kind = self._kind_of(change)
            if kind is None:
                continue
            frames.append(change.frame(kind, self.style()))
            self._wrote = True  # a Table has its columns only in the first of them
            size += len(frames[-1])
            if size >= most_bytes:
                break
        if not frames:
            return
        if self._stream.buffered > SLOW_BYTES:
            # Dropping single events would leave a gap nobody could see; ending the stream makes
            # the client list again. The reason goes out behind what is buffered, if at all.
            metrics.watcher_evicted()
            self.end(Expired("the watch was too slow and has been closed; list again"))
            return
        self.write_framed(frames[0] if len(frames) == 1 else b"".join(frames))

    def style(self) -> Style:
        """Return the style of the next event; a Table has its columns only in the first."""
        return self._style_of(not self._wrote)

    def write_framed(self, framed: bytes) -> None:
        """Write an event, unless the stream has ended: nothing follows the reason for the end."""
        if not self.ended.done():
            self._wrote = True
            self._stream.write_framed(framed)

    def _kind_of(self, change: Change) -> str | None:
        """Return the event type for a watcher that sees only what it selects; None for no event.

        A change that moves an object into the selection is ADDED to it; out of it, DELETED.
        """
        event, selection = change.event, self._selection
        if selection.is_everything:
            if event.is_delete:
                return "DELETED"
            return "ADDED" if event.is_create else "MODIFIED"
        is_in = not event.is_delete and selection.matches_entry(event.item, change.decode)
        last = event.previous
        was_in = last is not None and selection.matches_entry(last, change.decode)
        if is_in:
            return "MODIFIED" if was_in else "ADDED"
        return "DELETED" if was_in else None

    def end(self, error: ApiError | None = None) -> None:
        """End the stream, telling the client why if there is a reason."""
        if self.ended.done():
            return
        if error is not None:
            self._stream.write_framed(self.style().framing.error(error))
        self.ended.set_result(None)


class _Crowd:
    """Those watchers of a feed that are told later, and what they have not been told."""

    def __init__(self, wake: Callable[["_Crowd"], None]) -> None:
        self.watchers: dict[Watcher, None] = {}
        self.changes: list[Change] = []
        """What not everybody has been told, in order."""
        self._revisions: list[Revision] = []
        self._bytes = 0
        self._wake = wake
        # A round goes through all watchers once. `_upto` is how far everybody has been told when it
        # is over: up to what was there when it began, or less where somebody has more to be told
        # than fits in a batch. Who joins meanwhile is in the next round, and has seen all that was
        # there when this one began (`Feeds.join`): nothing that is dropped is missing to anybody.
        self._round: Iterator[Watcher] | None = None
        self._upto = Revision(0)

    def receive(self, change: Change) -> None:
        """Take a change to be told later."""
        if not self.watchers:
            return
        self._bytes += len(change.event.item.value)
        if self.changes and (len(self.changes) >= MOST_BEHIND or self._bytes > SLOW_BYTES):
            # They hold as much as a watcher may that does not read, and come no nearer.
            self.forget()
            for watcher in tuple(self.watchers):
                metrics.watcher_evicted()
                watcher.end(Expired("there are too many watches of one user to tell; list again"))
            return
        self.changes.append(change)
        self._revisions.append(change.event.revision)
        if len(self.changes) == 1:
            self._wake(self)

    def tell_next(self) -> bool:
        """Tell whoever is next all there is; say whether that was not the last of it."""
        if not self.changes:
            return False
        if self._round is None:
            self._round = iter(tuple(self.watchers))
            self._upto = self._revisions[-1]
        for watcher in self._round:
            if watcher in self.watchers and not watcher.ended.done():
                unseen = self.changes[bisect_right(self._revisions, watcher.seen) :]
                watcher.offer(*unseen, most_bytes=CROWD_BATCH_BYTES)
                self._upto = min(self._upto, watcher.seen)
                return True
        self._round = None
        over = bisect_right(self._revisions, self._upto)
        self._bytes -= sum(len(change.event.item.value) for change in self.changes[:over])
        del self.changes[:over], self._revisions[:over]
        return bool(self.changes)

    def forget(self) -> None:
        """Forget what is to be told."""
        self.changes.clear()
        self._revisions.clear()
        self._bytes = 0
        self._round = None


# Pauses are for others, and where nobody else asks they would only make a crowd wait: then slices
# follow one another, in turns of the loop with nothing in between.
#
#     others ask    slice │ 1 ms of everybody else's │ slice │ 1 ms of everybody else's │ …
#     nobody does   slice │ sockets │ slice │ sockets │ slice │ …
#
# Whoever comes waits for the slice that has begun, and is noticed before the next. Requests
# are, from when they begin until they are answered, whatever they wait for (`is_quiet`); what is no
# request any more, a long answer that is being sent or the bytes of an exec, by the time it took.
class _Crowds:
    """Has the crowds of all feeds told by feed in turns, in the part of the time others leave."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[_Crowd] = deque()
        self._alarm = Alarm(clock, self._tell)
        self._rests_until = 0.0
        self._is_alone = False
        """Whether the next slice follows the last without a pause, unless somebody comes."""
        self.is_quiet: Callable[[], bool] = lambda: False

    def wake(self, crowd: _Crowd) -> None:
        """Have a crowd told that has something to be told now, and had nothing before."""
        if crowd not in self._waiting:
            self._waiting.append(crowd)
            if len(self._waiting) == 1:
                # Woken by a write that has yet to be answered: the first slice is behind that.
                self._is_alone = False
                self._alarm.set(self._rests_until - self._clock.monotonic())

    def dismiss(self, crowd: _Crowd) -> None:
        """Tell this crowd nothing more: its feed has ended, or nobody watches it."""
        crowd.watchers.clear()
        crowd.forget()
        if crowd in self._waiting:
            self._waiting.remove(crowd)
            if not self._waiting:
                self._alarm.cancel()

    def _tell(self) -> None:
        monotonic = self._clock.monotonic
        now = monotonic()
        if self._is_alone:
            is_slow = now - self._rests_until > CROWD_ALONE_SECONDS
            if is_slow or not self.is_quiet():
                self._rest(CROWD_PAUSE_SECONDS)
                return
        until = now + CROWD_SLICE_SECONDS
        while self._waiting and monotonic() < until:
            if not self._waiting[0].tell_next():
                self._waiting.popleft()
        self._waiting.rotate(-1)
        self._rest(0.0 if self.is_quiet() else CROWD_PAUSE_SECONDS)

    def _rest(self, seconds: float) -> None:
        self._is_alone = not seconds
        self._rests_until = self._clock.monotonic() + seconds
        if self._waiting:
            self._alarm.set(seconds)


class _Feed:
    """The live changes of one resource; a Sink of the store."""

    def __init__(
        self, store: Store, prefix: str, crowds: _Crowds, on_end: Callable[[], object]
    ) -> None:
        self.watchers: set[Watcher] = set()
        self._on_end = on_end
        self._prompt: Counter[str] = Counter()
        """By owner, how many are told at once."""
        self._crowds = crowds
        self.crowd = _Crowd(crowds.wake)
        after = store.current_revision
        self.subscription: Subscription = store.subscribe(prefix, after=after, sink=self)

    @property
    def revision(self) -> Revision:
        return self.subscription.revision

    def receive(self, events: tuple[Event, ...]) -> None:
        for event in events:
            change = Change(event)
            # A copy: offering writes to a socket and may end the watcher, and nothing that sets
            # off may change the set under the loop.
            for watcher in tuple(self.watchers):
                watcher.offer(change)
            self.crowd.receive(change)

    def join(self, watcher: Watcher) -> None:
        if self._prompt[watcher.owner] < PROMPT_WATCHERS:
            self._prompt[watcher.owner] += 1
            self.watchers.add(watcher)
        else:
            self.crowd.watchers[watcher] = None

    def leave(self, watcher: Watcher) -> None:
        self.crowd.watchers.pop(watcher, None)
        if watcher in self.watchers:
            self.watchers.discard(watcher)
            self._prompt[watcher.owner] -= 1
            if not self._prompt[watcher.owner]:
                del self._prompt[watcher.owner]

    def everybody(self) -> tuple[Watcher, ...]:
        return (*self.watchers, *self.crowd.watchers)

    def end(self, reason: StoreError) -> None:
        # Forgotten first, so that whoever watches next makes a new feed on a new subscription.
        self._on_end()
        is_closing = isinstance(reason, StoreClosed)
        for watcher in self.everybody():
            watcher.end(None if is_closing else Expired(statuses.WATCH_TOO_OLD))
        self.watchers.clear()
        self._crowds.dismiss(self.crowd)


@dataclass(slots=True)
class _Collector:
    """A Sink that only remembers."""

    events: list[Event]
    reason: StoreError | None = None

    def receive(self, events: tuple[Event, ...]) -> None:
        self.events.extend(events)

    def end(self, reason: StoreError) -> None:
        self.reason = reason


class Waker:
    """A Sink that says that there is something new, and nothing else."""

    def __init__(self) -> None:
        self._woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def arm(self) -> asyncio.Future[None]:
        """Return what is done as soon as something changes from now on."""
        if self._woken.done():
            self._woken = asyncio.get_running_loop().create_future()
        return self._woken

    def receive(self, events: tuple[Event, ...]) -> None:
        """Wake whoever waits."""
        del events
        if not self._woken.done():
            self._woken.set_result(None)

    def end(self, reason: StoreError) -> None:
        """Wake whoever waits: the log says what is the matter."""
        del reason
        if not self._woken.done():
            self._woken.set_result(None)


@dataclass(frozen=True, slots=True)
class Missed:
    """The events a watcher missed, complete up to a revision."""

    changes: list[Change]
    upto: Revision


class Feeds:
    """The feeds of a hub, one per resource that somebody watches."""

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        self._store = store
        self._feeds: dict[str, _Feed] = {}
        self._crowds = _Crowds(clock or SystemClock())
        self._apart: dict[str, set[Watcher]] = {}
        """Watchers that read the log by themselves, because their events take time to make."""

    def set_quiet(self, is_quiet: Callable[[], bool]) -> None:
        """Take from now on what says whether nobody asks anything; without it, somebody may."""
        self._crowds.is_quiet = is_quiet

    @contextmanager
    def waker(self, prefix: str) -> Generator[Waker]:
        """Wake somebody by every change of a resource, for as long as the block lasts."""
        waker = Waker()
        after = self._store.current_revision
        subscription = self._store.subscribe(prefix, after=after, sink=waker)
        try:
            yield waker
        finally:
            subscription.close()

    def stand_apart(self, prefix: str, watcher: Watcher) -> None:
        """Deliver nothing to the watcher, but end it when the others are ended."""
        self._apart.setdefault(prefix, set()).add(watcher)

    def join(self, prefix: str, watcher: Watcher) -> bool:
        """Deliver to the watcher from now on, if it has seen all there is; say whether it has."""
        feed = self._feed(prefix)
        # Compared and added without an await in between. A commit either is at or below
        # `feed.revision` already, then the watcher has it or is sent to fetch it; or it comes
        # later, then the watcher is among those it is offered to.
        if watcher.seen < feed.revision:
            return False
        feed.join(watcher)
        return True

    def missed(self, prefix: str, after: Revision) -> Missed:
        """Return the changes a watcher missed; Compacted when they are forgotten."""
        # A subscription hands over the kept past before it returns, so one that is closed at once
        # is a read of the log, with the revision up to which it is complete.
        collector = _Collector([])
        subscription = self._store.subscribe(prefix, after=after, sink=collector)
        upto = subscription.revision
        subscription.close()
        if collector.reason is not None:
            raise collector.reason
        return Missed([Change(event) for event in collector.events], upto)

    def revision(self, prefix: str, watcher: Watcher) -> Revision:
        """Return the revision up to which a joined watcher has been served."""
        feed = self._feed(prefix)
        is_behind = feed.crowd.changes and watcher in feed.crowd.watchers
        return watcher.seen if is_behind else feed.revision

    def leave(self, prefix: str, watcher: Watcher) -> None:
        """Stop delivering; a feed nobody watches is given up."""
        apart = self._apart.get(prefix)
        if apart is not None:
            apart.discard(watcher)
            if not apart:
                del self._apart[prefix]
        feed = self._feeds.get(prefix)
        if feed is None:
            return
        feed.leave(watcher)
        if not feed.watchers and not feed.crowd.watchers:
            feed.subscription.close()
            self._crowds.dismiss(feed.crowd)
            self._feeds.pop(prefix, None)

    def end_all(self, error: ApiError | None = None, *, prefix: str = "") -> None:
        """End every watch, or those of one resource that is no longer served."""
        for feed_prefix, feed in tuple(self._feeds.items()):
            if feed_prefix.startswith(prefix):
                for watcher in feed.everybody():
                    watcher.end(error)
        for apart_prefix, apart in tuple(self._apart.items()):
            if apart_prefix.startswith(prefix):
                for watcher in tuple(apart):
                    watcher.end(error)

    @property
    def watcher_count(self) -> int:
        """How many watchers there are."""
        feeds = self._feeds.values()
        return sum(len(feed.watchers) + len(feed.crowd.watchers) for feed in feeds)

    def _feed(self, prefix: str) -> _Feed:
        feed = self._feeds.get(prefix)
        if feed is None:
            feed = _Feed(self._store, prefix, self._crowds, lambda: self._feeds.pop(prefix, None))
            self._feeds[prefix] = feed
        return feed
