"""One change as a row on disk, and rows replayed into an index.

A record's checksum covers its revision, its key and its value, so a row that was damaged, or that
ended up in another row's place, is noticed. The state row holds how many records there are and the
exclusive-or of their checksums, so a row that is missing is noticed too.
"""

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from clusterspace.apiserver.store.index import Delete, Index, Put, Write, decide
from clusterspace.apiserver.store.interface import ABSENT, FIRST_REVISION, Event, KeyValue, Revision
from clusterspace.errors import StoreCorrupt, StoreError

Row: TypeAlias = tuple[int, bytes, bytes | None, int, int]
"""revision, key, value (NULL for a delete), create revision, checksum."""

_RECORD_HEAD = struct.Struct("<qqiq")
_STATE = struct.Struct("<qqqq")


@dataclass(frozen=True, slots=True)
class Record:
    """One change as it is kept on disk; `value` is None for a delete."""

    revision: Revision
    key: str
    value: bytes | None
    create_revision: Revision
    checksum: int


@dataclass(frozen=True, slots=True)
class State:
    """The file's own record of its revisions, size and digest, rewritten with every commit."""

    revision: Revision = FIRST_REVISION
    oldest: Revision = FIRST_REVISION
    records: int = 0
    digest: int = 0


def row_of(event: Event) -> Row:
    """Return the row that keeps this change."""
    key = event.key.encode()
    value = None if event.is_delete else event.value
    created = event.item.create_revision
    return (event.revision, key, value, created, checksum_of(event.revision, created, key, value))


def read_record(row: tuple[Any, ...]) -> Record:
    """Return the record in a row as read; `StoreCorrupt` names the revision that is damaged."""
    revision, key, value, created, checksum = row
    if not isinstance(key, bytes) or not isinstance(value, bytes | None):
        raise StoreCorrupt(f"the record at revision {revision} holds the wrong types")
    if (
        not isinstance(created, int)
        or checksum_of(revision, created, key, value) != checksum
        or not ABSENT <= created <= revision
    ):
        name = key.decode(errors="backslashreplace")
        raise StoreCorrupt(f"the record at revision {revision}, key {name}, fails its checksum")
    try:
        name = key.decode()
    except UnicodeDecodeError as error:
        raise StoreCorrupt(f"the key of the record at revision {revision} is not text") from error
    return Record(Revision(revision), name, value, Revision(created), checksum)


def checksum_of(revision: int, create_revision: int, key: bytes, value: bytes | None) -> int:
    """Return the checksum of a record; a delete (None) differs from an empty value."""
    value_bytes = -1 if value is None else len(value)
    head = _RECORD_HEAD.pack(revision, create_revision, len(key), value_bytes)
    return zlib.crc32(value or b"", zlib.crc32(key, zlib.crc32(head)))


def state_row(state: State) -> tuple[int, int, int, int, int]:
    """Return the row that keeps the state."""
    fields = (state.revision, state.oldest, state.records, state.digest)
    return (*fields, zlib.crc32(_STATE.pack(*fields)))


def read_state(row: tuple[Any, ...] | None) -> State:
    """Return the state in its row as read."""
    if row is None or not all(isinstance(field, int) for field in row):
        raise StoreCorrupt("the state row is missing or holds the wrong types")
    *fields, checksum = cast("tuple[int, ...]", row)
    if zlib.crc32(_STATE.pack(*fields)) != checksum:
        raise StoreCorrupt("the state row fails its checksum")
    revision, oldest, records, digest = fields
    return State(Revision(revision), Revision(oldest), records, digest)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file holds: the index, and records that a crash kept compaction from erasing."""

    index: Index
    leftover: tuple[Revision, ...]


def load(records: Iterable[Record], state: State) -> Loaded:
    """Replay records in revision order; `StoreCorrupt` when they do not follow from each other."""
    # Up to the compacted revision only the newest record of a key counts, and the others should be
    # gone: those that a crash kept compaction from erasing are returned, to be erased after all.
    # Above it every revision must have its record.
    #
    #     state: oldest 5, newest 7     3 PUT web   4 PUT db   5 DELETE db   6 PUT web   7 PUT api
    #     index at 5                    web as of 3;  leftover: 4 (replaced), 5 (a delete)
    #     replayed                      6 and 7
    present: dict[str, KeyValue] = {}
    leftover: list[Revision] = []
    recent: list[Record] = []
    for record in records:
        if record.revision > state.oldest:
            recent.append(record)
            continue
        replaced = present.pop(record.key, None)
        if replaced is not None:
            leftover.append(replaced.mod_revision)
        if record.value is None:
            leftover.append(record.revision)
        else:
            present[record.key] = KeyValue(
                record.key, record.value, record.create_revision, record.revision
            )
    index = Index(present.values(), revision=state.oldest)
    for record in recent:
        index.apply((_replay(record, index),))
    if index.revision != state.revision:
        raise StoreCorrupt(f"the last revision is {state.revision}, its record is missing")
    return Loaded(index, tuple(leftover))


def _replay(record: Record, index: Index) -> Event:
    """Make the event of a record again; it must come out as it was written."""
    if record.revision != index.revision + 1:
        raise StoreCorrupt(f"the record at revision {index.revision + 1} is missing")
    current = index.get(record.key)
    if record.value is not None:
        write: Write = Put(record.key, record.value, expected=None)
    else:
        write = Delete(record.key, expected=current.mod_revision if current else ABSENT)
    described = f"the record at revision {record.revision}, key {record.key}"
    try:
        event = decide(write, current, record.revision)
    except StoreError as error:
        raise StoreCorrupt(f"{described}, deletes what is not there") from error
    if event.item.create_revision != record.create_revision:
        raise StoreCorrupt(f"{described}, does not follow from the one before")
    return event


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
