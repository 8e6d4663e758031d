"""What every key holds now, what it held at any revision still kept, and what a write changes.

The present is a dictionary and a sorted list of its keys. The past is the list of events since
`oldest`, and for every key that changed since then its own events. A key's value at an older
revision is therefore what its first event above that revision calls `previous`.

Keys deleted within the kept past stay in a second sorted list: an older revision may show them.
An insertion moves the tail of one list, 20 microseconds at 100,000 keys; a commit costs more.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from clusterspace.apiserver.store.interface import (
    ABSENT,
    FIRST_REVISION,
    Event,
    EventType,
    Guard,
    HistorySize,
    KeyValue,
    Page,
    Revision,
)
from clusterspace.errors import (
    Compacted,
    FutureRevision,
    GuardChanged,
    RevisionMismatch,
    Unstorable,
)

MAXIMUM_KEY_BYTES = 4096
"""Five names of 253 bytes and their separators fit three times over."""

MAXIMUM_VALUE_BYTES = 16 * 1024 * 1024
"""A request body is 3 MiB at most; this is the fence behind that one."""


@dataclass(frozen=True, slots=True)
class Put:
    """Set a key; `expected` is its mod revision, 0 for "not there", None for "whatever is"."""

    key: str
    value: bytes
    expected: Revision | None
    guard: Guard | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Take a key away, if it is still at the expected revision."""

    key: str
    expected: Revision
    guard: Guard | None = None


Write: TypeAlias = Put | Delete


def decide(write: Write, current: KeyValue | None, revision: Revision) -> Event:
    """Return the change this write makes at `revision`, given what the key holds now.

    Raises `RevisionMismatch` when the key is not at the expected revision.
    """
    actual = current.mod_revision if current is not None else ABSENT
    if isinstance(write, Delete):
        if current is None or write.expected != actual:
            raise RevisionMismatch(write.key, write.expected, actual)
        gone = KeyValue(write.key, b"", create_revision=ABSENT, mod_revision=revision)
        return Event(EventType.DELETE, gone, previous=current)
    if write.expected is not None and write.expected != actual:
        raise RevisionMismatch(write.key, write.expected, actual)
    created = current.create_revision if current is not None else revision
    return Event(
        EventType.PUT, KeyValue(write.key, write.value, created, revision), previous=current
    )


def check_guard(write: Write, find: Callable[[str], KeyValue | None]) -> None:
    """Raise `GuardChanged` when the other key that a write is tied to is elsewhere."""
    if write.guard is not None:
        found = find(write.guard.key)
        if (ABSENT if found is None else found.mod_revision) != write.guard.revision:
            raise GuardChanged(write.key, write.guard.key)


def answer_to(event: Event) -> KeyValue:
    """Return the answer to the write: the item put, or the last value deleted."""
    if event.type is EventType.PUT or event.previous is None:
        return event.item
    last = event.previous
    return KeyValue(last.key, last.value, last.create_revision, mod_revision=event.revision)


def checked(write: Write) -> Write:
    """Return the write, or raise `Unstorable` for what no store could keep and give back."""
    try:
        key_bytes = len(write.key.encode())
    except UnicodeEncodeError as error:
        raise Unstorable(f"the key {write.key!r} is not valid Unicode") from error
    if not 0 < key_bytes <= MAXIMUM_KEY_BYTES:
        raise Unstorable(f"a key of {key_bytes} bytes; 1 to {MAXIMUM_KEY_BYTES} are allowed")
    if isinstance(write, Put) and len(write.value) > MAXIMUM_VALUE_BYTES:
        size = len(write.value)
        raise Unstorable(f"{write.key}: {size} bytes; at most {MAXIMUM_VALUE_BYTES} are allowed")
    return write


class Index:
    """The present and the kept past of a store. Not thread-safe: it lives in the event loop."""

    def __init__(
        self, present: Iterable[KeyValue] = (), *, revision: Revision = FIRST_REVISION
    ) -> None:
        """Start with what was there at `revision`, and no past."""
        self._present = {item.key: item for item in present}
        self._keys = sorted(self._present)
        self._deleted_keys: list[str] = []
        self._events: list[Event] = []
        self._events_of: dict[str, list[Event]] = {}
        self._value_bytes = 0
        self.revision = revision
        self.oldest = revision

    @property
    def history(self) -> HistorySize:
        """How much of the past is held."""
        return HistorySize(len(self._events), self._value_bytes, self.oldest, self.revision)

    def apply(self, events: Iterable[Event]) -> None:
        """Take in changes, in revision order; they are readable when this returns."""
        for event in events:
            key = event.item.key
            if event.is_delete:
                del self._present[key]
                del self._keys[bisect_left(self._keys, key)]
                insort(self._deleted_keys, key)
            else:
                if event.is_create:
                    insort(self._keys, key)
                    self._discard_deleted(key)
                self._present[key] = event.item
            self._events.append(event)
            self._events_of.setdefault(key, []).append(event)
            self._value_bytes += _past_bytes(event)
            self.revision = event.item.mod_revision

    def _discard_deleted(self, key: str) -> None:
        place = bisect_left(self._deleted_keys, key)
        if place < len(self._deleted_keys) and self._deleted_keys[place] == key:
            del self._deleted_keys[place]

    def check_readable(self, at: Revision) -> None:
        """Raise unless the state at this revision is known."""
        if at < self.oldest:
            raise Compacted(at, self.oldest)
        if at > self.revision:
            raise FutureRevision(at, self.revision)

    def get(self, key: str, at: Revision | None = None) -> KeyValue | None:
        """Return the key as it is, or was at a revision."""
        if at is None:
            return self._present.get(key)
        self.check_readable(at)
        return self._get_at(key, at)

    # A key's value at a revision is what its first event above it calls `previous`:
    #
    # revision   2              3              4              5
    # event      PUT web "a"    PUT web "b"    DELETE web     PUT web "c"
    # previous   none           "a"            "b"            none
    #
    # web at 2 -> previous of the event at 3 -> "a"
    # web at 4 -> previous of the event at 5 -> none
    # web at 5 -> no event above 5           -> the present, "c"
    #
    # compact(4) drops the events up to 4. web at 3 is Compacted; web at 4 is still none.
    def _get_at(self, key: str, at: Revision) -> KeyValue | None:
        item = self._present.get(key)
        if item is not None and item.mod_revision <= at:
            return item
        events = self._events_of.get(key)
        if not events:
            return item
        first_above = bisect_right(events, at, key=_revision_of)
        return events[first_above].previous if first_above < len(events) else item

    def count(self, prefix: str) -> int:
        """Return how many keys have the prefix now."""
        return len(_span(self._keys, prefix))

    def page(
        self, prefix: str, *, start_after: str | None, limit: int | None, at: Revision | None
    ) -> Page:
        """Return up to `limit` items of the prefix in key order, and how many come after."""
        span = _span(self._keys, prefix, start_after)
        if at is None or at == self.revision:
            taken = span if limit is None else span[:limit]
            present = self._present
            items = tuple([present[key] for key in self._keys[taken.start : taken.stop]])
            return Page(items, self.revision, remaining=len(span) - len(taken))
        self.check_readable(at)
        keys = self._keys[span.start : span.stop]
        deleted = _span(self._deleted_keys, prefix, start_after)
        if deleted:
            # Two sorted runs: sorting them is one merge.
            keys = sorted(keys + self._deleted_keys[deleted.start : deleted.stop])
        past = [item for item in (self._get_at(key, at) for key in keys) if item is not None]
        cut = len(past) if limit is None else limit
        return Page(tuple(past[:cut]), at, remaining=max(len(past) - cut, 0))

    def events_after(self, revision: Revision, limit: int) -> list[Event]:
        """Return kept events above the revision, oldest first.

        `limit` of them, and whatever else belongs to the revision of the last one.
        """
        if revision < self.oldest:
            raise Compacted(revision, self.oldest)
        first = bisect_right(self._events, revision, key=_revision_of)
        end = first + limit
        # All of a revision or nothing of it: a reader goes on behind the last one it was given.
        if 0 < end < len(self._events):
            end = bisect_right(self._events, self._events[end - 1].revision, key=_revision_of)
        return self._events[first:end]

    def changes_of(self, key: str, after: Revision) -> list[Event]:
        """Return the kept events of one key above the revision, oldest first."""
        if after < self.oldest:
            raise Compacted(after, self.oldest)
        events = self._events_of.get(key, [])
        return events[bisect_right(events, after, key=_revision_of) :]

    def advance(self, revision: Revision) -> None:
        """Take note that nothing else has happened up to a revision."""
        self.revision = max(self.revision, revision)

    def holds_same_as(self, other: "Index") -> bool:
        """Whether both have the same keys now, each last changed at the same revision."""
        mine, theirs = self._present, other._present
        return mine.keys() == theirs.keys() and all(
            item.mod_revision == theirs[key].mod_revision for key, item in mine.items()
        )

    def compact(self, revision: Revision) -> None:
        """Refuse everything older from now on; `drop_compacted` then frees it.

        In this order, so that between two steps of `drop_compacted` no read finds half of a past.
        """
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        self.oldest = max(self.oldest, revision)

    def drop_compacted(self, limit: int) -> list[Event]:
        """Let go of up to `limit` events that are too old to be asked for, and return them."""
        compacted = bisect_right(self._events, self.oldest, key=_revision_of)
        dropped = self._events[: min(compacted, limit)]
        del self._events[: len(dropped)]
        # The list of all events is in revision order, and so is each key's own: what is dropped
        # of a key is the head of its list.
        for key, times in Counter(event.key for event in dropped).items():
            events = self._events_of[key]
            del events[:times]
            if not events:
                del self._events_of[key]
                self._discard_deleted(key)
        self._value_bytes -= sum(_past_bytes(event) for event in dropped)
        return dropped


def _span(keys: list[str], prefix: str, start_after: str | None = None) -> range:
    """Return the places in sorted `keys` that have the prefix and lie behind `start_after`."""
    first = bisect_left(keys, prefix)
    if start_after is not None:
        first = max(first, bisect_right(keys, start_after))
    # The first text above all texts with the prefix has its last character one higher; the
    # highest character has none above it, so it is the one before it that counts.
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return range(first, len(keys))
    end = kept[:-1] + chr(ord(kept[-1]) + 1)
    return range(first, max(first, bisect_left(keys, end)))


def _revision_of(event: Event) -> Revision:
    return event.item.mod_revision


def _past_bytes(event: Event) -> int:
    """Return the bytes that only the past holds on to, once the key has moved on."""
    return len(event.previous.value) if event.previous is not None else 0
