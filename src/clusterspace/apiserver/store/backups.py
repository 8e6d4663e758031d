"""Store files beside a running store: checking one, copying one, bringing a copy back.

A backup is such a file wherever the objects are kept, so each is checked and restored the same way.

A restored store must not continue the old count of revisions: clients may remember revisions that
were made after the backup, and would take new events for old ones. So the revision jumps far ahead
and everything below counts as compacted; every watcher is told so and lists again.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import apsw

from clusterspace.apiserver.store.files import (
    StoreFile,
    connect,
    read_records,
    read_state_of,
    settle_log,
    sync_directory,
    translated_errors,
)
from clusterspace.apiserver.store.interface import Event, EventType, KeyValue, Revision
from clusterspace.apiserver.store.records import Record, State, load
from clusterspace.errors import StoreCorrupt, StoreUnreadable

RESTORE_JUMP = 1_000_000_000
"""What etcd's documentation advises: a week of writes at 1,500 a second does not get there."""


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
    with translated_errors(path), closing(connect(path, writable=False)) as connection:
        connection.execute("BEGIN")  # all of it at one revision; closing ends it
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


def read_log(path: Path) -> Iterator[Record]:
    """Read the records of a store file in revision order, every checksum verified."""
    with translated_errors(path), closing(connect(path, writable=False)) as connection:
        connection.execute("BEGIN")
        yield from read_records(connection, read_state_of(path, connection))


def back_up(source: Path, target: Path) -> State:
    """Copy the store at `source` to the new file `target`, and verify the copy.

    The store may be in use; the copy is what it was at one revision. The target appears complete
    and verified, or not at all. Returns the copied state.
    """
    if not source.is_file():
        raise StoreUnreadable(f"there is no store at {source}")
    if not target.parent.is_dir():
        # A path that was mistyped would be made, and the backup found by nobody.
        raise StoreUnreadable(f"there is no directory {target.parent}: make it first")
    settle_log(source)
    return _make_file(target, lambda draft: _copy(source, draft))


def write_backup(items: Iterable[KeyValue], revision: Revision, target: Path) -> State:
    """Make a backup, as `back_up` does, of objects that are kept elsewhere; verify it.

    They are as they were at `revision`; nothing from before is in it.
    """
    if not target.parent.is_dir():
        raise StoreUnreadable(f"there is no directory {target.parent}: make it first")
    in_order = sorted(items, key=lambda item: item.mod_revision)
    for one, other in pairwise(in_order):
        if one.mod_revision == other.mod_revision:
            raise StoreCorrupt(
                f"{one.key} and {other.key} have the same revision: no hub wrote that"
            )

    def fill(draft: Path) -> State:
        with translated_errors(draft), closing(StoreFile.open(draft)) as file:
            if in_order:
                file.append([Event(EventType.PUT, item, None) for item in in_order])
            file.rewrite_state(replace(file.state, revision=revision, oldest=revision))
        with translated_errors(draft), closing(connect(draft, writable=True)) as copy:
            copy.pragma("synchronous", "FULL")
            copy.pragma("journal_mode", "delete")  # one file, as every backup
            state = verify(draft, copy)
        if read_backup(draft)[0] != in_order:
            raise StoreCorrupt(f"{target} would not hold what was read: its disk may be broken")
        return state

    return _make_file(target, fill)


def read_backup(path: Path) -> tuple[list[KeyValue], State]:
    """Read what a backup or a store file holds, in the order of its changes, and verify it."""
    if not path.is_file():
        raise StoreUnreadable(f"there is no backup at {path}")
    with translated_errors(path), closing(connect(path, writable=False)) as connection:
        connection.execute("BEGIN")
        state = read_state_of(path, connection)
        index = load(read_records(connection, state), state).index
    items = index.page("", start_after=None, limit=None, at=None).items
    return sorted(items, key=lambda item: item.mod_revision), state


def restore(backup: Path, target: Path, *, jump: int = RESTORE_JUMP) -> State:
    """Make the new store file `target` from a backup, its revision moved ahead by `jump`.

    Refuses to replace a store. Returns the restored state.
    """
    if not backup.is_file():
        raise StoreUnreadable(f"there is no backup at {backup}")

    def copy_ahead(draft: Path) -> State:
        _copy(backup, draft)
        with closing(StoreFile.open(draft, create=False)) as file:
            ahead = Revision(file.state.revision + jump)
            restored = replace(file.state, revision=ahead, oldest=ahead)
            file.rewrite_state(restored)
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        return restored

    return _make_file(target, copy_ahead)


def verify(path: Path, connection: apsw.Connection) -> State:
    """Read everything in the file, raising at the first damage, and return its state."""
    state = read_state_of(path, connection)
    load(read_records(connection, state), state)
    return state


def _make_file(target: Path, fill: Callable[[Path], State]) -> State:
    """Fill a draft beside the target, make it durable, then give it its name."""
    draft = target.with_name(f"{target.name}.draft-{os.getpid()}")
    if target.exists():
        raise StoreUnreadable(f"{target} is there already and is not overwritten")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = fill(draft)
        # A crash before this line leaves a draft that nobody takes for a store; after it, the
        # whole file under its name.
        os.link(draft, target)  # unlike a rename, this fails if somebody was quicker
        sync_directory(target.parent)
    except FileExistsError as error:
        raise StoreUnreadable(f"{target} is there already and is not overwritten") from error
    except OSError as error:
        raise StoreUnreadable(f"{target} cannot be written: {error.strerror}") from error
    finally:
        for leftover in target.parent.glob(f"{draft.name}*"):
            leftover.unlink()
    return state


def _copy(source: Path, draft: Path) -> State:
    with translated_errors(source), closing(connect(source, writable=False)) as origin:
        read_state_of(source, origin)
        with closing(connect(draft, writable=True, create=True)) as copy:
            copy.pragma("synchronous", "FULL")
            with copy.backup("main", origin, "main") as pages:
                pages.step(-1)  # in one go: a writer between two steps would make it start again
            # Without the write-ahead log a backup is one file, and stays one when it is read.
            copy.pragma("journal_mode", "delete")
            return verify(draft, copy)
