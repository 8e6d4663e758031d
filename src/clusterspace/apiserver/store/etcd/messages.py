"""The messages of etcd's API that the store speaks, written and read by hand.

Fields that nobody here asks for are passed over: later versions of etcd may add some.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from clusterspace.errors import MalformedObject
from clusterspace.kube.protobuf.wire import UINT64, write_bytes_field, write_varint_field

RANGE: Final = "/etcdserverpb.KV/Range"
TXN: Final = "/etcdserverpb.KV/Txn"
COMPACT: Final = "/etcdserverpb.KV/Compact"
WATCH: Final = "/etcdserverpb.Watch/Watch"
STATUS: Final = "/etcdserverpb.Maintenance/Status"

COMPACTION_KEY: Final = b"compact_rev_key"
"""Where programs on one etcd agree how far they compact; kube-apiserver has the same."""

_VERSION, _MOD = 0, 2
_DELETE = 1


@dataclass(frozen=True, slots=True)
class Stored:
    """A key as etcd has it."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a watch; the value of a delete is empty."""

    is_delete: bool
    stored: Stored


@dataclass(frozen=True, slots=True)
class RangeAnswer:
    """Keys in order, and the revision of the whole store when they were read."""

    revision: int
    items: list[Stored]
    more: bool


@dataclass(frozen=True, slots=True)
class TxnAnswer:
    """Whether the comparison held and was acted on; else the key as it is, if it is there."""

    revision: int
    succeeded: bool
    current: Stored | None
    beside: tuple[Stored | None, ...] = ()
    """The other keys of a guarded one, in their order, where the comparison did not hold."""


@dataclass(frozen=True, slots=True)
class WatchAnswer:
    """Events, or word that all up to `revision` were sent, or the end of the watch."""

    revision: int
    changes: list[Change]
    created: bool
    canceled: bool
    compact_revision: int
    reason: str


@dataclass(frozen=True, slots=True)
class StatusAnswer:
    """What one member says of itself."""

    revision: int
    version: str
    size_bytes: int
    leader: int
    errors: tuple[str, ...]
    is_learner: bool
    cluster: int
    """The number of its cluster; kine, which has none, may call itself any version of etcd."""


# -- requests ----------------------------------------------------------------------------------


def range_request(
    key: bytes,
    end: bytes = b"",
    *,
    limit: int = 0,
    revision: int = 0,
    keys_only: bool = False,
    is_serializable: bool = False,
) -> bytes:
    """Ask for one key, or for those from `key` up to before `end`."""
    request = write_bytes_field(1, key)
    if end:
        request += write_bytes_field(2, end)
    if limit:
        request += write_varint_field(3, limit)
    if revision:
        request += write_varint_field(4, revision)
    if is_serializable:
        request += write_varint_field(7, 1)
    if keys_only:
        request += write_varint_field(8, 1)
    return request


def create_request(key: bytes, value: bytes) -> bytes:
    """Put the key if it is not there."""
    put = write_bytes_field(2, _put(key, value))
    return write_bytes_field(1, _is_at(key, 0)) + write_bytes_field(2, put)


def update_request(key: bytes, value: bytes, revision: int) -> bytes:
    """Put the key if it was last changed at the revision; else say how it is."""
    put = write_bytes_field(2, _put(key, value))
    return _swap(key, revision, put)


def delete_request(key: bytes, revision: int) -> bytes:
    """Delete the key if it was last changed at the revision; else say how it is."""
    return _swap(key, revision, write_bytes_field(3, write_bytes_field(1, key)))


def guarded(request: bytes, guard: bytes, revision: int) -> bytes:
    """Tie an update or a delete to another key, too; kine has no word for that."""
    read = write_bytes_field(1, range_request(guard))
    return request + write_bytes_field(1, _is_at(guard, revision)) + write_bytes_field(3, read)


def compaction_mark_request(revision: int, version: int) -> bytes:
    """Note how far is compacted next, if nobody has since the mark was at this version."""
    key = COMPACTION_KEY
    compare = write_varint_field(2, _VERSION) + write_bytes_field(3, key)
    compare += write_varint_field(4, version)
    put = write_bytes_field(2, _put(key, str(revision).encode()))
    read = write_bytes_field(1, range_request(key))
    return b"".join(
        (write_bytes_field(1, compare), write_bytes_field(2, put), write_bytes_field(3, read))
    )


def compact_request(revision: int) -> bytes:
    """Forget all that was superseded before the revision."""
    return write_varint_field(1, revision)


def watch_request(key: bytes, end: bytes, start: int) -> bytes:
    """Watch a range from a revision on."""
    create = write_bytes_field(1, key) + write_bytes_field(2, end) + write_varint_field(3, start)
    return write_bytes_field(1, create)


def progress_request() -> bytes:
    """Ask how far the watches of this stream have come."""
    return write_bytes_field(3, b"")


def _swap(key: bytes, revision: int, operation: bytes) -> bytes:
    read = write_bytes_field(1, range_request(key))
    return b"".join(
        (
            write_bytes_field(1, _is_at(key, revision)),
            write_bytes_field(2, operation),
            write_bytes_field(3, read),
        )
    )


def _is_at(key: bytes, revision: int) -> bytes:
    # Both numbers are written although one is 0: kine looks for the comparison, not for a default.
    compare = write_varint_field(2, _MOD) + write_bytes_field(3, key)
    return compare + write_varint_field(6, revision)


def _put(key: bytes, value: bytes) -> bytes:
    return write_bytes_field(1, key) + write_bytes_field(2, value)


# -- answers -----------------------------------------------------------------------------------


def read_range(data: bytes) -> RangeAnswer:
    """Read the answer to a range."""
    revision, more = 0, False
    items: list[Stored] = []
    for number, value in _fields(data):
        if number == 2:
            items.append(_read_stored(_bytes(value)))
        elif number == 1:
            revision = _read_revision(_bytes(value))
        elif number == 3:
            more = bool(value)
    return RangeAnswer(revision, items, more)


def read_txn(data: bytes) -> TxnAnswer:
    """Read the answer to one of the transactions above."""
    revision, succeeded = 0, False
    found: list[Stored | None] = []
    for number, value in _fields(data):
        if number == 1:
            revision = _read_revision(_bytes(value))
        elif number == 2:
            succeeded = bool(value)
        elif number == 3:
            for kind, answer in _fields(_bytes(value)):
                if kind == 1:
                    items = read_range(_bytes(answer)).items
                    found.append(items[0] if items else None)
                elif kind == 3 and not any(
                    _int(each) for at, each in _fields(_bytes(answer)) if at == 2
                ):
                    # kine says that the comparison held for a key it has never heard of.
                    succeeded = False
    current, *beside = found or [None]
    return TxnAnswer(revision, succeeded, current, tuple(beside))


def read_watch(data: bytes, known: int = 0) -> WatchAnswer:
    """Read one answer of a watch stream; without its changes if they are not after `known`.

    The answer's own revision is that of its last change, or a later one, and comes first.
    """
    revision = compact_revision = 0
    created = canceled = False
    reason = ""
    changes: list[Change] = []
    for number, value in _fields(data):
        if number == 11:
            if 0 < revision <= known:
                break
            changes.append(_read_change(_bytes(value)))
        elif number == 1:
            revision = _read_revision(_bytes(value))
        elif number == 3:
            created = bool(value)
        elif number == 4:
            canceled = bool(value)
        elif number == 5:
            compact_revision = _int(value)
        elif number == 6:
            reason = _bytes(value).decode(errors="replace")
    return WatchAnswer(revision, changes, created, canceled, compact_revision, reason)


def read_status(data: bytes) -> StatusAnswer:
    """Read what a member says of itself."""
    revision = size = leader = cluster = 0
    version, is_learner = "", False
    errors: list[str] = []
    for number, value in _fields(data):
        if number == 1:
            revision = _read_revision(_bytes(value))
            cluster = next((_int(each) for at, each in _fields(_bytes(value)) if at == 1), 0)
        elif number == 2:
            version = _bytes(value).decode(errors="replace")
        elif number == 3:
            size = _int(value)
        elif number == 4:
            leader = _int(value)
        elif number == 8:
            errors.append(_bytes(value).decode(errors="replace"))
        elif number == 10:
            is_learner = bool(value)
    return StatusAnswer(revision, version, size, leader, tuple(errors), is_learner, cluster)


_BEFORE_REVISION: Final = re.compile(
    rb"(?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?(?:\x10[\x80-\xff]{0,9}[\x00-\x7f])?\x18"
)
"""The cluster and the member in a header, each a number of ten bytes that nobody wants, up to the
tag of the revision."""


def _read_revision(header: bytes) -> int:
    # Every answer has a header, and to read these two numbers took longer than all the rest of it.
    before = _BEFORE_REVISION.match(header)
    if before is not None:
        header = header[before.end() - 1 :]
    for number, value in _fields(header):
        if number == 3:
            return _int(value)
    return 0


def _read_change(data: bytes) -> Change:
    is_delete = False
    stored = Stored(b"", b"", 0, 0, 0)
    for number, value in _fields(data):
        if number == 1:
            is_delete = value == _DELETE
        elif number == 2:
            stored = _read_stored(_bytes(value))
    return Change(is_delete, stored)


def _read_stored(data: bytes) -> Stored:
    key = value = b""
    create = mod = version = 0
    for number, found in _fields(data):
        if number == 1:
            key = _bytes(found)
        elif number == 2:
            create = _int(found)
        elif number == 3:
            mod = _int(found)
        elif number == 4:
            version = _int(found)
        elif number == 5:
            value = _bytes(found)
    return Stored(key, value, create, mod, version)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and content of every field.

    Not `kube.protobuf.wire.read_fields`: that one makes a value of every field, and here each
    event of a busy store has twelve.
    """
    position, size = 0, len(data)
    try:
        while position < size:
            tag = data[position]
            position += 1
            if tag >= 0x80:
                tag, position = _varint(data, position, tag & 0x7F)
            kind = tag & 7
            if kind in (0, 2):
                number = data[position]
                position += 1
                if number >= 0x80:
                    number, position = _varint(data, position, number & 0x7F)
                if kind == 0:
                    yield tag >> 3, number
                    continue
            elif kind == 1:
                number = 8
            elif kind == 5:
                number = 4
            else:
                raise MalformedObject(f"etcd sent a field of wire type {kind}", place="etcd")
            end = position + number
            if end > size:
                raise MalformedObject("etcd's answer is cut short", place="etcd")
            yield tag >> 3, data[position:end]
            position = end
    except IndexError:
        raise MalformedObject("etcd's answer is cut short", place="etcd") from None


def _varint(data: bytes, position: int, number: int) -> tuple[int, int]:
    """Go on reading a number of which the first seven bits are known."""
    shift = 7
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & UINT64, position
        shift += 7
        if shift > 63:
            raise MalformedObject("etcd sent a number longer than 64 bits", place="etcd")


def _int(value: int | bytes) -> int:
    if isinstance(value, int):
        return value
    raise MalformedObject("etcd sent bytes where a number belongs", place="etcd")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    raise MalformedObject("etcd sent a number where bytes belong", place="etcd")
