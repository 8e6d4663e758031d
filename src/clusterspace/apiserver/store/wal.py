"""Finding commits that a damaged write-ahead log hides.

After a crash SQLite reads its write-ahead log up to the first frame that fails its checksum and
takes the rest for a commit that was cut short. That is right for the last transaction in the log,
whose fsync may never have happened, and wrong for any before it: a later transaction is only begun
when the one before is on the disk. So a whole transaction in the unread rest that is followed by
one more frame was acknowledged, and a store that opened without it would have lost a promise.

    frames   1  2  3*  4  5*  6  7*      * commits; 4 fails its checksum, SQLite stops after 3
                       └──┘   │          4-5 was committed, because 6 was begun

File format: https://sqlite.org/fileformat2.html#walformat.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from clusterspace.errors import StoreCorrupt

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
