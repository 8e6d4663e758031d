"""What is new to somebody who knows a collection already: events or a list to changes."""

from collections.abc import Iterable, Iterator, KeysView
from dataclasses import dataclass
from typing import Protocol

from clusterspace.client.raw_objects import RawObject, Version
from clusterspace.client.watch import EventType, RawEvent


class KnownObjects(Protocol):
    """What somebody knows; changes are put into it before the next ones are asked for."""

    def keys(self) -> KeysView[str]:
        """Return the keys of all objects held."""
        ...

    def find_version(self, key: str) -> Version | None:
        """Return the version held of an object, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """ADDED, MODIFIED or DELETED, and the object as it is now or last was.

    Of an object whose deletion was only seen as absence, `item.raw` is empty.
    """

    type: EventType
    item: RawObject


def changes_by_events(known: KnownObjects, events: Iterable[RawEvent]) -> tuple[Change, ...]:
    """Return what events change; bookmarks, and what is known already, change nothing."""
    latest = _Latest(known)
    return tuple(change for event in events for change in latest.changes(event))


def changes_by_items(known: KnownObjects, items: Iterable[RawObject]) -> tuple[Change, ...]:
    """Return what items of a list add or modify; what the list lacks is not told here."""
    latest = _Latest(known)
    return tuple(change for item in items for change in latest.upserts(item))


def absent(key: str, version: Version) -> Change:
    """Return the deletion of an object of which only the absence was seen."""
    return Change(EventType.DELETED, RawObject(key, version, b""))


class _Latest:
    """Versions known, and those that came earlier in the batch being read."""

    def __init__(self, known: KnownObjects) -> None:
        self._known = known
        self._batch: dict[str, Version | None] = {}

    def changes(self, event: RawEvent) -> Iterator[Change]:
        if event.type is EventType.DELETED:
            if self._find(event.item.key) is not None:
                self._batch[event.item.key] = None
                yield Change(EventType.DELETED, event.item)
        elif event.type is not EventType.BOOKMARK:
            yield from self.upserts(event.item)

    def upserts(self, item: RawObject) -> Iterator[Change]:
        held = self._find(item.key)
        if held == item.version:
            return
        self._batch[item.key] = item.version
        if held is not None and held.uid != item.version.uid:
            # Deleted and made again while we looked away: two things happened, tell both.
            yield absent(item.key, held)
            held = None
        yield Change(EventType.ADDED if held is None else EventType.MODIFIED, item)

    def _find(self, key: str) -> Version | None:
        if key in self._batch:
            return self._batch[key]
        return self._known.find_version(key)
