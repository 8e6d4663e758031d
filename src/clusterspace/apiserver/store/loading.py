"""Replaying the records of a file into an index."""

from collections.abc import Iterable
from dataclasses import dataclass

from clusterspace.apiserver.store.index import Index
from clusterspace.apiserver.store.records import Record, State
from clusterspace.apiserver.store.revisions import Event, KeyValue, Revision
from clusterspace.apiserver.store.writes import Delete, Put, decide
from clusterspace.errors import StoreCorrupt, StoreError


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file holds: the index, and records that a crash kept compaction from erasing."""

    index: Index
    leftover: tuple[Revision, ...]


def load(records: Iterable[Record], state: State) -> Loaded:
    """Replay records in revision order; `StoreCorrupt` when they do not follow from each other."""
    present: dict[str, KeyValue] = {}
    leftover: list[Revision] = []
    recent: list[Record] = []
    for record in records:
        if record.revision > state.oldest:
            recent.append(record)
        else:
            leftover.extend(_replace(record, present))
    index = Index(present.values(), revision=state.oldest)
    for record in recent:
        index.apply((_replay(record, index),))
    if index.revision != state.revision:
        raise StoreCorrupt(f"the last revision is {state.revision}, its record is missing")
    return Loaded(index, tuple(leftover))


def superseded(events: Iterable[Event]) -> list[Revision]:
    """Return the records that nobody needs once these events are forgotten, in a safe order.

    The value a delete took away comes before the delete itself: erased the other way round, a
    crash in between would bring the value back.
    """
    needless: list[Revision] = []
    for event in events:
        if event.previous is not None:
            needless.append(event.previous.mod_revision)
        if event.is_delete:
            needless.append(event.revision)
    return needless


def _replace(record: Record, present: dict[str, KeyValue]) -> list[Revision]:
    """Take in a record from before the kept past; return what it makes needless."""
    replaced = present.pop(record.key, None)
    needless = [replaced.mod_revision] if replaced is not None else []
    if record.value is None:
        return [*needless, record.revision]
    present[record.key] = KeyValue(
        record.key, record.value, record.create_revision, record.revision
    )
    return needless


def _replay(record: Record, index: Index) -> Event:
    """Make the event of a record again; it must come out as it was written."""
    if record.revision != index.revision + 1:
        raise StoreCorrupt(f"the record at revision {index.revision + 1} is missing")
    held = index.get(record.key)
    try:
        event = decide(_write_of(record, held), held, record.revision)
    except StoreError as error:
        place = f"the record at revision {record.revision}, key {record.key}"
        raise StoreCorrupt(f"{place}, deletes what is not there") from error
    if event.item.create_revision != record.create_revision:
        place = f"the record at revision {record.revision}, key {record.key}"
        raise StoreCorrupt(f"{place}, does not follow from the one before")
    return event


def _write_of(record: Record, held: KeyValue | None) -> Put | Delete:
    if record.value is not None:
        return Put(record.key, record.value, expected=None)
    return Delete(record.key, expected=held.mod_revision if held else Revision(0))
