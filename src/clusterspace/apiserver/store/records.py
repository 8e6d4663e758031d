"""One change as a row on disk, with the checksum that proves it was read back as written.

A record's checksum covers its revision, its key and its value, so a row that was damaged, or that
ended up in another row's place, is noticed. The state row holds how many records there are and the
exclusive-or of their checksums, so a row that is missing is noticed too.
"""

import struct
import zlib
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from clusterspace.apiserver.store.revisions import ABSENT, FIRST_REVISION, Event, Revision
from clusterspace.errors import StoreCorrupt

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
    """What the file says about itself, rewritten with every commit."""

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
