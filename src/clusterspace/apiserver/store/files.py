"""The SQLite file of a store: who may open it, what is in it, and when it counts as written.

One table holds one row per change. Compaction takes out the rows that a newer one had replaced by
the compacted revision, so what is left is the state at that revision and every change since.
"""

import contextlib
import fcntl
import os
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO

import apsw

from clusterspace.apiserver.store.index import MAXIMUM_VALUE_BYTES
from clusterspace.apiserver.store.interface import Event, Revision
from clusterspace.apiserver.store.records import (
    Record,
    State,
    read_record,
    read_state,
    row_of,
    state_row,
)
from clusterspace.errors import StoreCorrupt, StoreFull, StoreUnreadable

STORE_FILE_NAME = "store.db"
"""The store's file inside a data directory."""

FORMAT_VERSION = 1
APPLICATION_ID = 0x43537063  # "CSpc", in SQLite's own field for it

OLDEST_SAFE_SQLITE = (3, 51, 3)
"""Older ones can lose committed transactions: https://sqlite.org/wal.html#walresetbug."""

CHECKPOINT_PAGES = 2_000
"""How long the write-ahead log may grow before it is folded into the file: 8 MB."""

ROOM_TO_OPEN = 256 * 1024
"""What SQLite needs for its own files when a store is opened, and some more."""

LOCKED_SECONDS = 5
"""How long to wait for another program that holds a lock in the file."""

_SCHEMA = {
    "log": "CREATE TABLE log (revision INTEGER PRIMARY KEY, key BLOB NOT NULL, value BLOB,"
    " create_revision INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT",
    "state": "CREATE TABLE state (id INTEGER PRIMARY KEY, revision INTEGER NOT NULL,"
    " oldest INTEGER NOT NULL, records INTEGER NOT NULL, digest INTEGER NOT NULL,"
    " checksum INTEGER NOT NULL) STRICT",
}
_INSERT = "INSERT INTO log (revision, key, value, create_revision, checksum) VALUES (?, ?, ?, ?, ?)"
_SELECT = "SELECT revision, key, value, create_revision, checksum FROM log ORDER BY revision"
_ERASE = "DELETE FROM log WHERE revision = ? RETURNING checksum"
_SELECT_STATE = "SELECT revision, oldest, records, digest, checksum FROM state WHERE id = 1"
_PUT_STATE = (
    "INSERT OR REPLACE INTO state (id, revision, oldest, records, digest, checksum)"
    " VALUES (1, ?, ?, ?, ?, ?)"
)


class StoreFile:
    """An open store file. One thread at a time may use it."""

    def __init__(
        self,
        path: Path,
        connection: apsw.Connection,
        state: State,
        *,
        vfs: str | None = None,
        is_read_only: bool = False,
    ) -> None:
        self.path = path
        self.state = state
        self.is_read_only = is_read_only
        """Whether it was opened on a disk without room, and none of its writes has worked since."""
        self._vfs = vfs
        self._log_pages = 0
        self._use(connection)

    def _use(self, connection: apsw.Connection) -> None:
        def note_log_pages(_connection: apsw.Connection, _name: str, pages: int) -> int:
            self._log_pages = pages
            return apsw.SQLITE_OK

        connection.set_wal_hook(note_log_pages)
        self._connection = connection

    @classmethod
    def open(cls, path: Path, *, create: bool = True, vfs: str | None = None) -> "StoreFile":
        """Open the file for writing, or make it.

        Raises `StoreUnreadable` or `StoreCorrupt`; the caller holds the lock (`take_lock`).
        `vfs` names the SQLite file layer to use instead of the operating system's.
        """
        with translated_errors(path):
            connection = connect(path, writable=True, create=create, vfs=vfs)
            try:
                return cls(path, connection, _prepare(path, connection, create=create), vfs=vfs)
            except BaseException:
                connection.close()
                raise

    @classmethod
    def open_read_only(cls, path: Path, *, vfs: str | None = None) -> "StoreFile":
        """Open a store whose disk has no room: it can be read, and written once there is room.

        Where even SQLite's small files beside it cannot be made, it keeps them in memory; nobody
        else can read the file meanwhile. Every write tries first to open the file as usual.
        """
        with translated_errors(path):
            connection = connect(path, writable=True, vfs=vfs)
            try:
                connection.pragma("locking_mode", "EXCLUSIVE")
                connection.wal_autocheckpoint(0)
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                state = read_state_of(path, connection)
                frames, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
                check_log(path, last_valid=max(frames, 0))
            except BaseException:
                connection.close()
                raise
            return cls(path, connection, state, vfs=vfs, is_read_only=True)

    def _leave_read_only(self) -> None:
        """Open the file as usual, now that there may be room; StoreFull while there is none."""
        # Closed first, for it keeps all others out, us too. What follows needs only `self.state`:
        # the records were read when the store was opened.
        self._connection.close()
        opened = StoreFile.open(self.path, create=False, vfs=self._vfs)
        if opened.state != self.state:
            opened.close()
            raise StoreCorrupt(f"{self.path} was changed by another program")
        self._use(opened._connection)
        self.is_read_only = False

    def records(self) -> Iterator[Record]:
        """Read every record in revision order, and compare them with what the file says of itself.

        Raises `StoreCorrupt` at the first that is damaged, or at the end when one is missing.
        """
        with translated_errors(self.path):
            yield from read_records(self._connection, self.state)

    def append(self, events: Sequence[Event]) -> None:
        """Write changes in one transaction; when this returns they are on the disk.

        `StoreFull` and `StoreUnreadable` (locked by another program) leave the file as it was.
        After any other error nobody can say what is on the disk: do not go on.
        """
        rows = [row_of(event) for event in events]
        # The exclusive-or does not depend on order, and to take a checksum out is to put it in
        # once more: erasing a record needs its own checksum and no other.
        digest = self.state.digest
        for row in rows:
            digest ^= row[-1]
        records = self.state.records + len(rows)
        state = replace(self.state, revision=events[-1].revision, records=records, digest=digest)
        self._commit(state, lambda: self._connection.executemany(_INSERT, rows))

    def record_compaction(self, oldest: Revision) -> None:
        """Write down that older revisions are forgotten, before any of them is erased.

        A crash in between leaves records that nobody needs, and `load` finds them. The other way
        round it would leave a past with holes that the file still claims to have.
        """
        self._commit(replace(self.state, oldest=oldest), lambda: None)

    def erase(self, revisions: Iterable[Revision]) -> None:
        """Erase the records made at these revisions, in one transaction."""
        records, digest = self.state.records, self.state.digest
        with self._transaction():
            for revision in revisions:
                for (checksum,) in self._connection.execute(_ERASE, (revision,)):
                    records, digest = records - 1, digest ^ checksum
            erased = replace(self.state, records=records, digest=digest)
            self._connection.execute(_PUT_STATE, state_row(erased))
        self.state = erased

    def rewrite_state(self, state: State) -> None:
        """Replace what the file says of itself: for a restored copy only."""
        self._commit(state, lambda: None)

    def checkpoint_when_due(self) -> None:
        """Fold the write-ahead log into the file when it has grown long.

        The writer does it and nobody else. A full disk only leaves the log long.
        """
        # Passive: it copies what it can without waiting for readers. A backup that reads meanwhile
        # only keeps the log long until the next time.
        if self._log_pages >= CHECKPOINT_PAGES:
            with contextlib.suppress(apsw.FullError, apsw.BusyError):
                self._log_pages = 0
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def close(self) -> None:
        """Fold the write-ahead log in and close the file."""
        if self.is_read_only:
            self._connection.close()
            return
        with contextlib.suppress(apsw.FullError, apsw.BusyError):
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._connection.close()

    def _commit(self, state: State, change: Callable[[], object]) -> None:
        # Rows and state in one transaction, and `self.state` only after it: whatever goes wrong,
        # the counts in memory are those of the file.
        with self._transaction():
            change()
            self._connection.execute(_PUT_STATE, state_row(state))
        self.state = state

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None]:
        if self.is_read_only:
            self._leave_read_only()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except apsw.FullError as error:
            self._roll_back()
            raise StoreFull(f"{self.path}: no room on the disk") from error
        except apsw.BusyError as error:
            self._roll_back()
            raise StoreUnreadable(f"{self.path} is locked by another program") from error

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def take_lock(path: Path) -> IO[bytes]:
    """Take the lock that says a process uses this store; closing the returned file lets go.

    Raises `StoreUnreadable` when another process has it.
    """
    try:
        lock = path.with_name(path.name + ".lock").open("ab")
    except OSError as error:
        raise StoreUnreadable(f"{path} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise StoreUnreadable(f"{path} is in use by another process") from error
    return lock


def connect(
    path: Path, *, writable: bool, create: bool = False, vfs: str | None = None
) -> apsw.Connection:
    """Connect to the file without trusting it: no code from its schema runs, sizes are bounded."""
    sqlite = apsw.sqlite_lib_version()
    if tuple(map(int, sqlite.split("."))) < OLDEST_SAFE_SQLITE:
        raise StoreUnreadable(f"SQLite {sqlite} can lose commits; update apsw")
    if create:
        # Made for its owner only, because it will hold Secrets. SQLite gives the files it makes
        # beside it the same rights.
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, mode=0o600))
        except OSError as error:
            raise StoreUnreadable(f"{path} cannot be opened: {error.strerror}") from error
    flags = apsw.SQLITE_OPEN_READWRITE if writable else apsw.SQLITE_OPEN_READONLY
    connection = apsw.Connection(str(path), flags=flags, vfs=vfs)
    connection.set_busy_timeout(LOCKED_SECONDS * 1000)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0 if writable else 1)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, 2 * MAXIMUM_VALUE_BYTES)
    return connection


def read_state_of(path: Path, connection: apsw.Connection) -> State:
    """Return the state row, after checking that the file is a store we can read."""
    application, version = (
        connection.pragma("application_id"),
        connection.pragma("user_version"),
    )
    if application != APPLICATION_ID:
        raise StoreUnreadable(f"{path} is not a store file")
    if version != FORMAT_VERSION:
        raise StoreUnreadable(
            f"{path} has format {version}, this program reads format {FORMAT_VERSION};"
            " use the version that wrote it"
        )
    found = dict(connection.execute("SELECT name, sql FROM sqlite_schema"))
    if found != _SCHEMA:
        raise StoreCorrupt(f"{path}: the tables are not those of a store")
    return read_state(connection.execute(_SELECT_STATE).fetchone())


def read_records(connection: apsw.Connection, state: State) -> Iterator[Record]:
    """Read every record in revision order, then check that none is missing."""
    records, digest = 0, 0
    for row in connection.execute(_SELECT):
        record = read_record(row)
        records, digest = records + 1, digest ^ record.checksum
        yield record
    if (records, digest) != (state.records, state.digest):
        raise StoreCorrupt(
            f"{state.records} records were written and {records} were found, or not the same ones"
        )


@contextlib.contextmanager
def translated_errors(path: Path) -> Generator[None]:
    """Turn SQLite's errors about a file into ours, with the path."""
    try:
        yield
    except StoreCorrupt as error:
        raise StoreCorrupt(f"{path}: {error}") from error
    except apsw.NotADBError as error:
        raise StoreUnreadable(f"{path} is not a store file") from error
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError) as error:
        raise StoreUnreadable(f"{path} cannot be opened: {error}") from error
    except apsw.BusyError as error:
        raise StoreUnreadable(f"{path} is locked by another program") from error
    except apsw.FullError as error:
        raise StoreFull(f"{path}: no room on the disk") from error
    except apsw.IOError as error:
        # Making a file beside the store fails like this on a full disk, and on a broken one.
        room = os.statvfs(path.parent)
        if room.f_bavail * room.f_frsize >= ROOM_TO_OPEN:
            raise StoreCorrupt(f"{path}: {error}") from error
        raise StoreFull(f"{path}: no room on the disk") from error
    except (apsw.Error, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"{path}: {error}") from error


def settle_log(path: Path) -> None:
    """Fold in, and check, the write-ahead log that a crash left beside a store nobody uses.

    Where somebody uses the store, they did this when they opened it.
    """
    log = path.with_name(path.name + "-wal")
    if not log.exists() or log.stat().st_size == 0:
        return
    try:
        lock = take_lock(path)
    except StoreUnreadable:
        return
    with lock:
        StoreFile.open(path, create=False).close()


def sync_directory(directory: Path) -> None:
    """Make the names in a directory as durable as the files behind them."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _prepare(path: Path, connection: apsw.Connection, *, create: bool) -> State:
    """Read the state of a store, or make an empty file into one; commits are safe from now on."""
    connection.pragma("synchronous", "FULL")
    # What is erased is gone from the file, and not only from its tables: a Secret that was stored
    # before there was a key must not be found in a free page.
    connection.pragma("secure_delete", "ON")
    connection.wal_autocheckpoint(0)
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    is_new = create and tables == 0 and connection.pragma("application_id") == 0
    # Before anything is believed: even a file that looks empty may have its tables in the log.
    log_frames, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    check_log(path, last_valid=max(log_frames, 0))
    if is_new:
        connection.pragma("journal_mode", "wal")
        # One transaction: a crash leaves a file that is still empty, or a store.
        with connection:
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", FORMAT_VERSION)
            for statement in _SCHEMA.values():
                connection.execute(statement)
            connection.execute(_PUT_STATE, state_row(State()))
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        sync_directory(path.parent)
    state = read_state_of(path, connection)
    connection.pragma("journal_mode", "wal")  # a backup is a plain file until it is opened
    return state


# -- commits that a damaged write-ahead log hides ----------------------------------------------

# After a crash SQLite reads its write-ahead log up to the first frame that fails its checksum and
# takes the rest for a commit that was cut short. That is right for the last transaction in the log,
# whose fsync may never have happened, and wrong for any before it: a later transaction is only
# begun when the one before is on the disk. So a whole transaction in the unread rest that is
# followed by one more frame was acknowledged, and a store that opened without it would have lost a
# promise.
#
#     frames   1  2  3*  4  5*  6  7*      * commits; 4 fails its checksum, SQLite stops after 3
#                        └──┘   │          4-5 was committed, because 6 was begun
#
# File format: https://sqlite.org/fileformat2.html#walformat.


_HEADER = struct.Struct(">I4xI4x8sII")  # magic, version, page size, sequence, salts, checksum
_FRAME = struct.Struct(">II8s8x")  # page, size after commit or 0, salts, checksum


@dataclass(frozen=True, slots=True)
class Frame:
    """One page in the log; `commits` ends a transaction."""

    number: int
    commits: bool


def check_log(path: Path, *, last_valid: int) -> None:
    """Raise `StoreCorrupt` if a store's log holds commits behind the last frame SQLite could read.

    Only for a store that nobody else is writing to.
    """
    log = path.with_name(path.name + "-wal")
    lost = find_lost_commit(
        read_frames(log.read_bytes() if log.exists() else b""), last_valid=last_valid
    )
    if lost is not None:
        raise StoreCorrupt(f"frame {lost} of the write-ahead log hides a commit behind damage")


def read_frames(log: bytes) -> Iterator[Frame]:
    """Read the frames of the log's present generation; those of older ones carry other salts.

    Raises `StoreCorrupt` for a damaged head, for which SQLite would take the whole log for empty.
    The head is too short to be half written, but it may never have reached the disk at all.
    """
    if len(log) <= _HEADER.size or not any(log[: _HEADER.size]):
        return
    magic, page_size, salts, *checksum = _HEADER.unpack_from(log)
    if checksum != _header_checksum(log, byte_order=">" if magic & 1 else "<"):
        raise StoreCorrupt("the head of the write-ahead log fails its checksum")
    step = _FRAME.size + page_size
    for number, start in enumerate(range(_HEADER.size, len(log) - step + 1, step), start=1):
        _, size_after_commit, frame_salts = _FRAME.unpack_from(log, start)
        if frame_salts == salts:
            yield Frame(number, commits=size_after_commit > 0)


def find_lost_commit(frames: Iterable[Frame], *, last_valid: int) -> int | None:
    """Return the frame of a commit behind the last valid frame that was surely on the disk."""
    unread = [frame for frame in frames if frame.number > last_valid]
    for frame, _next in pairwise(unread):
        if frame.commits:
            return frame.number
    return None


def _header_checksum(log: bytes, *, byte_order: str) -> list[int]:
    first = second = 0
    for even, odd in struct.iter_unpack(f"{byte_order}II", log[:24]):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return [first, second]
