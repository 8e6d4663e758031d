"""What every key holds now, and what it held at any revision still kept, in memory.

The present is a dictionary and a sorted list of its keys. The past is the list of events since
`oldest`, and for every key that changed since then its own events. A key's value at an older
revision is therefore what its first event above that revision calls `previous`:

    revision   2              3              4              5
    event      PUT web "a"    PUT web "b"    DELETE web     PUT web "c"
    previous   none           "a"            "b"            none

    web at 2 -> previous of the event at 3 -> "a"
    web at 4 -> previous of the event at 5 -> none
    web at 5 -> no event above 5           -> the present, "c"

    compact(4) drops the events up to 4. web at 3 is Compacted; web at 4 is still none.

Keys deleted within the kept past stay in a second sorted list: an older revision may show them.
An insertion moves the tail of one list, 20 microseconds at 100,000 keys; a commit costs more.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator

from clusterspace.apiserver.store.revisions import (
    FIRST_REVISION,
    Event,
    HistorySize,
    KeyValue,
    Page,
    Revision,
)
from clusterspace.errors import Compacted, FutureRevision


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
            self._apply_one(event)

    def _apply_one(self, event: Event) -> None:
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
        self._value_bytes += _held_bytes(event)
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
        return self._held_at(key, at)

    def _held_at(self, key: str, at: Revision) -> KeyValue | None:
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
        if at is None or at == self.revision:
            return self._present_page(prefix, start_after, limit)
        self.check_readable(at)
        items = list(self._items_at(prefix, start_after, at))
        cut = len(items) if limit is None else limit
        return Page(tuple(items[:cut]), at, remaining=max(len(items) - cut, 0))

    def _present_page(self, prefix: str, start_after: str | None, limit: int | None) -> Page:
        span = _span(self._keys, prefix, start_after)
        taken = span if limit is None else span[:limit]
        present = self._present
        items = tuple([present[key] for key in self._keys[taken.start : taken.stop]])
        return Page(items, self.revision, remaining=len(span) - len(taken))

    def _items_at(self, prefix: str, start_after: str | None, at: Revision) -> Iterator[KeyValue]:
        kept = _span(self._keys, prefix, start_after)
        deleted = _span(self._deleted_keys, prefix, start_after)
        keys = self._keys[kept.start : kept.stop]
        if deleted:
            # Two sorted runs: sorting them is one merge.
            keys = sorted(keys + self._deleted_keys[deleted.start : deleted.stop])
        for key in keys:
            item = self._held_at(key, at)
            if item is not None:
                yield item

    def events_after(self, revision: Revision, limit: int) -> list[Event]:
        """Return up to `limit` kept events above the revision, oldest first."""
        if revision < self.oldest:
            raise Compacted(revision, self.oldest)
        first = bisect_right(self._events, revision, key=_revision_of)
        return self._events[first : first + limit]

    def compact(self, revision: Revision) -> None:
        """Refuse everything older from now on; `drop_compacted` then frees it."""
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        self.oldest = max(self.oldest, revision)

    def drop_compacted(self, limit: int) -> list[Event]:
        """Let go of up to `limit` events that are too old to be asked for, and return them."""
        compacted = bisect_right(self._events, self.oldest, key=_revision_of)
        dropped = self._events[: min(compacted, limit)]
        del self._events[: len(dropped)]
        for key, times in Counter(event.key for event in dropped).items():
            self._drop_events_of(key, times)
        self._value_bytes -= sum(_held_bytes(event) for event in dropped)
        return dropped

    def _drop_events_of(self, key: str, times: int) -> None:
        events = self._events_of[key]
        del events[:times]
        if not events:
            del self._events_of[key]
            self._discard_deleted(key)


def _span(keys: list[str], prefix: str, start_after: str | None = None) -> range:
    """Return the places in sorted `keys` that have the prefix and lie behind `start_after`."""
    first = bisect_left(keys, prefix)
    if start_after is not None:
        first = max(first, bisect_right(keys, start_after))
    end = _end_of_prefix(prefix)
    return range(first, len(keys) if end is None else max(first, bisect_left(keys, end)))


def _end_of_prefix(prefix: str) -> str | None:
    """Return the first text above all texts with the prefix, or None when there is none."""
    kept = prefix.rstrip("\U0010ffff")
    return kept[:-1] + chr(ord(kept[-1]) + 1) if kept else None


def _revision_of(event: Event) -> Revision:
    return event.item.mod_revision


def _held_bytes(event: Event) -> int:
    """Return the bytes that only the past holds on to, once the key has moved on."""
    return len(event.previous.value) if event.previous is not None else 0
