"""Copies of a store file: making one while the store is running, and bringing one back.

A restored store must not continue the old count of revisions: clients may remember revisions that
were made after the backup, and would take new events for old ones. So the revision jumps far ahead
and everything below counts as compacted; every watcher is told so and lists again.
"""

import os
from collections.abc import Callable
from dataclasses import replace
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
from clusterspace.apiserver.store.loading import load
from clusterspace.apiserver.store.records import State
from clusterspace.apiserver.store.revisions import Revision
from clusterspace.errors import StoreUnreadable

RESTORE_JUMP = 1_000_000_000
"""What etcd's documentation advises: a week of writes at 1,500 a second does not get there."""


def back_up(source: Path, target: Path) -> State:
    """Copy the store at `source` to the new file `target`, and verify the copy.

    The store may be in use; the copy is what it was at one revision. The target appears complete
    and verified, or not at all. Returns the copied state.
    """
    if not source.is_file():
        raise StoreUnreadable(f"there is no store at {source}")
    settle_log(source)
    return _make_file(target, lambda draft: _copy(source, draft))


def restore(backup: Path, target: Path, *, jump: int = RESTORE_JUMP) -> State:
    """Make the new store file `target` from a backup, its revision moved ahead by `jump`.

    Refuses to replace a store. Returns the restored state.
    """
    if not backup.is_file():
        raise StoreUnreadable(f"there is no backup at {backup}")
    return _make_file(target, lambda draft: _copy_ahead(backup, draft, jump))


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
    with translated_errors(source):
        origin = connect(source, writable=False)
        try:
            read_state_of(source, origin)
            return _copy_pages(origin, draft)
        finally:
            origin.close()


def _copy_pages(origin: apsw.Connection, draft: Path) -> State:
    copy = connect(draft, writable=True, create=True)
    try:
        copy.pragma("synchronous", "FULL")
        with copy.backup("main", origin, "main") as pages:
            pages.step(-1)  # in one go: a writer between two steps would make it start again
        # Without the write-ahead log a backup is one file, and stays one when it is read.
        copy.pragma("journal_mode", "delete")
        return verify(draft, copy)
    finally:
        copy.close()


def _copy_ahead(backup: Path, draft: Path, jump: int) -> State:
    _copy(backup, draft)
    file = StoreFile.open(draft, create=False)
    try:
        ahead = Revision(file.state.revision + jump)
        restored = replace(file.state, revision=ahead, oldest=ahead)
        file.rewrite_state(restored)
    finally:
        file.close()
    _sync_file(draft)
    return restored


def _sync_file(path: Path) -> None:
    with path.open("rb") as written:
        os.fsync(written.fileno())
