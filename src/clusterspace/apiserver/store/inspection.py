"""Everything that can be checked about a store file, and what is in it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw

from clusterspace.apiserver.store.files import (
    connect,
    read_records,
    read_state_of,
    settle_log,
    translated_errors,
)
from clusterspace.apiserver.store.loading import load
from clusterspace.apiserver.store.records import Record
from clusterspace.apiserver.store.revisions import Revision
from clusterspace.errors import StoreCorrupt, StoreUnreadable


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a sound store file holds."""

    path: Path
    file_bytes: int
    revision: Revision
    oldest: Revision
    keys: int
    value_bytes: int
    records: int
    history_events: int
    leftover_records: int


def inspect(path: Path) -> Inspection:
    """Check every page, checksum and revision of a store file; the store may be in use.

    Raises `StoreCorrupt` or `StoreUnreadable`, which name the place.
    """
    if not path.is_file():
        raise StoreUnreadable(f"there is no store at {path}")
    settle_log(path)
    with translated_errors(path):
        connection = connect(path, writable=False)
        try:
            connection.execute("BEGIN")  # all of it at one revision; closing ends it
            return _inspect(path, connection)
        finally:
            connection.close()


def read_log(path: Path) -> Iterator[Record]:
    """Read the records of a store file in revision order, every checksum verified."""
    with translated_errors(path):
        connection = connect(path, writable=False)
        try:
            connection.execute("BEGIN")
            yield from read_records(connection, read_state_of(path, connection))
        finally:
            connection.close()


def _inspect(path: Path, connection: apsw.Connection) -> Inspection:
    state = read_state_of(path, connection)
    for (finding,) in connection.execute("PRAGMA integrity_check(1)"):
        if finding != "ok":
            raise StoreCorrupt(str(finding))
    loaded = load(read_records(connection, state), state)
    present = loaded.index.page("", start_after=None, limit=None, at=None).items
    return Inspection(
        path=path,
        file_bytes=path.stat().st_size,
        revision=state.revision,
        oldest=state.oldest,
        keys=len(present),
        value_bytes=sum(len(item.value) for item in present),
        records=state.records,
        history_events=loaded.index.history.events,
        leftover_records=len(loaded.leftover),
    )
