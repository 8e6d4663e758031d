"""The words a store speaks in, and the Store protocol, its guarantees stated line by line.

Semantics are etcd's, so that an etcd cluster can stand behind the same interface. Every promise
below is a test in `clusterspace.testing.store_contract`. A store's life (a new store is at
revision 1, with nothing in it):

    put /pods/web "a"      revision 2   PUT     item (create 2, mod 2)   previous none
    put /pods/web "b"      revision 3   PUT     item (create 2, mod 3)   previous (create 2, mod 2)
    delete /pods/web       revision 4   DELETE  item (create 0, mod 4)   previous (create 2, mod 3)
    put /pods/web "c"      revision 5   PUT     item (create 5, mod 5)   previous none
"""

import enum
from dataclasses import dataclass
from typing import NewType, Protocol, Self

from clusterspace.errors import StoreError

Revision = NewType("Revision", int)
"""A moment in the life of the whole store; every change makes a later one."""

ABSENT = Revision(0)
"""The revision of a key that is not there: what `put` expects when it must create."""

FIRST_REVISION = Revision(1)
"""Where a new store starts: 0 is taken, Kubernetes clients read it as "any version"."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key with its value, when it came to be and when it last changed."""

    key: str
    value: bytes
    create_revision: Revision
    mod_revision: Revision


@dataclass(frozen=True, slots=True)
class Guard:
    """Another key, which a write is tied to: it counts only while that one is at this revision."""

    key: str
    revision: Revision


class EventType(enum.Enum):
    """The kind of a change of a key."""

    PUT = "PUT"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class Event:
    """One change. `previous` is what the key held just before, or None."""

    type: EventType
    item: KeyValue
    previous: KeyValue | None

    @property
    def key(self) -> str:
        """The key that changed."""
        return self.item.key

    @property
    def value(self) -> bytes:
        """The value put; empty for a delete."""
        return self.item.value

    @property
    def revision(self) -> Revision:
        """The revision this change made."""
        return self.item.mod_revision

    @property
    def is_create(self) -> bool:
        """Whether the key was not there before."""
        return self.previous is None

    @property
    def is_delete(self) -> bool:
        """Whether the key is gone."""
        return self.type is EventType.DELETE


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the keys of a range, in key order, all as they were at `revision`."""

    items: tuple[KeyValue, ...]
    revision: Revision
    remaining: int
    """How many keys of the range come after the last item."""

    @property
    def more(self) -> bool:
        """Whether the limit cut the range short; go on with `start_after=items[-1].key`."""
        return self.remaining > 0


@dataclass(frozen=True, slots=True)
class HistorySize:
    """How much of the past a store still holds."""

    events: int
    value_bytes: int
    oldest: Revision
    newest: Revision


class Sink(Protocol):
    """Receives the events of a subscription, called by the store in the event loop.

    Both methods are called between two steps of the loop: they must not block and must not raise.
    A sink that raises is ended and reported; the others go on.
    """

    def receive(self, events: tuple[Event, ...]) -> None:
        """Take the next events, oldest first; never empty."""
        ...

    def end(self, reason: StoreError) -> None:
        """Learn that nothing more will come. Not called after the subscription's own `close`."""
        ...


class Subscription(Protocol):
    """A running delivery of events to a Sink."""

    @property
    def revision(self) -> Revision:
        """Everything at or below this revision has been delivered, even if nothing matched."""
        ...

    def close(self) -> None:
        """Stop delivering. Closing twice is harmless."""
        ...


class Watch(Protocol):
    """A running delivery of events to one reader, as an asynchronous iterator.

    Each step yields the events that were committed together, oldest first, never an empty tuple.
    It raises `Compacted` when the reader must list again because its place was forgotten,
    `WatcherEvicted` when it let too many events wait, `StoreClosed` when the store was closed.
    After its own `close` the iterator simply ends.
    """

    @property
    def revision(self) -> Revision:
        """Everything at or below this revision has been handed to the reader.

        It moves on when other keys change too, so it is what a bookmark may say, and
        `watch(prefix, after=revision)` always resumes without a gap or a repeat.
        """
        ...

    def __aiter__(self) -> Self:
        """Iterate over this watch."""
        ...

    async def __anext__(self) -> tuple[Event, ...]:
        """Wait for the next events."""
        ...

    def close(self) -> None:
        """End the watch and wake its reader. Closing twice is harmless."""
        ...


class Store(Protocol):
    """A revisioned key-value log.

    Writing
      - A call that returned is on disk (or, for a store that says so, as safe as memory).
      - Every change makes a new revision of the whole store, strictly higher than the last.
        Revisions never go back and are never used twice, across crashes and restarts too.
        Between two changes there may be revisions at which nothing happened here.
      - `expected` compares and sets in one step. Of two writers that expect the same revision,
        one wins; the other gets `RevisionMismatch`, which carries the actual revision.
      - `guard` compares a second key in the same step: `GuardChanged` when it is elsewhere.
        A log that cannot compare two keys at once (kine) leaves it out; who asks has looked before.
      - A refused write changes nothing and uses up no revision.
      - A call that was cancelled, that ended with the process, or that raised `OutcomeUnknown`,
        may or may not have happened. `StoreUnavailable` means that it has not.

    Reading
      - A read shows every change whose call has returned, and no change that could still be lost.
        Several processes may share one log: changes of the others are shown after `sync`.
      - A read at an older revision shows exactly what was there then: `Compacted` below
        `oldest_revision`, `FutureRevision` above `current_revision`.
      - Keys are ordered by code point. A prefix matches as text, so end it with the separator:
        `/pods/` does not match `/podsets/web`.

    Watching
      - A watch delivers every matching change above `after`: in order, without a gap, without a
        repeat, all events of one revision in one step.
      - `after` below `oldest_revision` raises `Compacted`, from the call or from the first read.
        So does a running watch when what it should deliver next cannot be known any more.
      - `after` above `current_revision` waits for the revisions beyond it and delivers nothing
        older.
      - No change is delivered before it is readable and safe.
      - A reader that lets too many events wait is evicted. Nobody waits for it.
    """

    @property
    def current_revision(self) -> Revision:
        """The newest revision a read can show."""
        ...

    @property
    def oldest_revision(self) -> Revision:
        """The oldest revision that can still be read, and watched `after`."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other processes may write to the same log."""
        ...

    @property
    def is_reachable(self) -> bool:
        """Whether whoever keeps the log answered when last asked."""
        ...

    @property
    def refuses_writes(self) -> str:
        """Why writes are refused at present, in a sentence; empty when they are not."""
        ...

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        expected: Revision | None = None,
        guard: Guard | None = None,
    ) -> KeyValue:
        """Set the key and return it as it now is.

        `expected` is the key's mod revision, `ABSENT` (0) if it must not exist, or None to put
        whatever is there. Raises `RevisionMismatch`, `GuardChanged`, `StoreFull`, `StoreClosed`,
        `Unstorable`.
        """
        ...

    async def delete(self, key: str, *, expected: Revision, guard: Guard | None = None) -> KeyValue:
        """Delete the key and return its last value with the revision of the delete.

        A delete always names the revision it deletes: nobody deletes what they have not seen.
        A key that is not there is a `RevisionMismatch` with actual revision 0.
        """
        ...

    async def get(self, key: str, *, at: Revision | None = None) -> KeyValue | None:
        """Return the key as it is, or was at a revision; None when it is not there."""
        ...

    async def sync(self) -> Revision:
        """Return when reads show every change that any process had been answered by then.

        `StoreUnavailable` when that cannot be found out at present.
        """
        ...

    async def is_stale(self, key: str) -> bool:
        """Whether putting the same value again would change how it is kept: encrypted, or not."""
        ...

    async def range(
        self,
        prefix: str,
        *,
        start_after: str | None = None,
        limit: int | None = None,
        at: Revision | None = None,
    ) -> Page:
        """Return the keys with the prefix in order, from just behind `start_after` on."""
        ...

    async def count(self, prefix: str) -> int:
        """Return how many keys have the prefix now."""
        ...

    def watch(self, prefix: str, *, after: Revision) -> Watch:
        """Watch the keys with the prefix for changes above the revision."""
        ...

    def subscribe(self, prefix: str, *, after: Revision, sink: Sink) -> Subscription:
        """Deliver changes above the revision to a sink; the promises are those of a watch.

        Live events reach the sink before the write that made them returns to its caller. What is
        kept of the past is delivered first, before this call returns where that needs no waiting.
        """
        ...

    async def compact(self, revision: Revision) -> None:
        """Forget every older revision; what is there now stays, and so does what was at it.

        At or below `oldest_revision` it does nothing; `FutureRevision` above the current one.
        """
        ...

    async def close(self) -> None:
        """Finish the writes already taken, end every watch, let go of everything."""
        ...
