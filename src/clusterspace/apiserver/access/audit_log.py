"""The audit log as a file: appended line by line, chained, turned over when it is full."""

import asyncio
import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.apiserver.access import audit_chain
from clusterspace.apiserver.access.audit_chain import Head, Key, Link

_log = structlog.get_logger(__name__)

_MODE: Final = 0o600
_BLOCK: Final = 64 * 1024
_DAY: Final = 24 * 3600.0
_HEAD_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a log is turned over, and what is kept; 0 is without a limit, as in kube-apiserver."""

    full_bytes: int = 100 * 1024 * 1024
    kept: int = 10
    kept_days: int = 0


class AuditLog:
    """Events in a file that only its owner can read.

    Each line is one write to the kernel, so lines are whole and in order even when the process
    is killed. A disk that is full loses lines, and the server's log says so once, and once more how
    many when it has room again, and so does the next line; it does not stop the hub.

    The head is written after the line, within moments. A crash between the two leaves a head that
    is some lines behind, which is no gap: the last line says more than the head does. While the
    process lives the next line names the one before it, so nothing can be cut off in between.
    """

    def __init__(
        self,
        path: Path,
        rotation: Rotation | None = None,
        clock: Clock | None = None,
        key: Key | None = None,
    ) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._rotation = rotation or Rotation()
        self._head_timer: asyncio.TimerHandle | None = None
        self._key = key
        self._torn = b""
        """What there is in the file behind the last whole line."""
        self._head_file = os.open(audit_chain.head_path(path), os.O_RDWR | os.O_CREAT, _MODE)
        self._open()
        self._head = self._go_on()
        self._drop_aged()

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _MODE)
        self._size = os.fstat(self._file).st_size

    def _go_on(self) -> Head:
        """Find the place in the chain where an earlier process stopped, or was stopped."""
        last: Link | None = None
        files = audit_chain.files_of(self._path)
        for file in reversed(files):
            line, rest = _tail(file)
            # A crash right after a turn leaves an empty file; what is torn is then in the other.
            self._torn = rest + self._torn
            if line:
                last = audit_chain.read_link(line)
                break
        head = audit_chain.read_head(self._path)
        if head is None:
            head = Head(first=_first_sequence(files[0]) or 1)
        if last is not None and last.sequence > head.sequence:
            # The lines that found no room before it are told in it.
            head.sequence, head.hash, head.lost = last.sequence, last.hash, 0
        elif head.sequence and (last is None or last.hash != head.hash):
            # Numbers go on from the head, so what is gone stays visible for good.
            _log.error(
                "the audit log does not end as it was left; run clusterspace audit verify",
                file=str(self._path),
                expected=head.sequence,
                found=last.sequence if last is not None else 0,
            )
        if head.sequence:
            # Noted where whoever can change the log may not be able to.
            _log.info("audit log goes on", sequence=head.sequence, hash=head.hash)
        return head

    def write(self, event: dict[str, Any]) -> None:
        """Append an event as a line."""
        head, torn = self._head, self._torn
        # Behind half a line, which is all a disk had room for, a whole one begins anew.
        lead = b"\n" if torn and not torn.endswith(b"\n") else b""
        try:
            line, digest = audit_chain.chained(event, head, torn + lead, self._key)
            full = self._rotation.full_bytes
            # What is torn stays in one file with the line that explains it.
            if full and not torn and self._size and self._size + len(line) > full:
                self._turn_over()
            self._append(lead + line)
        except OSError as error:
            head.lost += 1
            if head.lost == 1:
                _log.error("audit lines are lost until they can be written", reason=str(error))
            self._write_head()
            return
        if head.lost:
            _log.warning("audit lines are written again", lost=head.lost)
        head.sequence += 1
        head.hash, head.lost, self._torn = digest, 0, b""
        if self._head_timer is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self._write_head()
            else:
                # One for all lines of a moment: a tenth of what auditing a write costs.
                self._head_timer = loop.call_later(_HEAD_SECONDS, self._write_head)

    def _append(self, content: bytes) -> None:
        written = os.write(self._file, content)
        self._size += written
        if written < len(content):
            self._torn += content[:written]
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _write_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        self._head.mac = self._key.hash_of(self._head.said()) if self._key is not None else ""
        try:
            os.pwrite(self._head_file, self._head.encoded(), 0)
        except OSError as error:
            # It stays behind, which hides nothing that the lines themselves show.
            _log.debug("the head of the audit log could not be written", reason=str(error))

    def _turn_over(self) -> None:
        """Put the full file aside as `audit.log.1`, move older ones on, and begin anew."""
        # A turn that failed when it had put the file aside has nothing to move: moving the older
        # ones again with every line would lose them all. Only the opening is tried again.
        if self._path.exists():
            older = audit_chain.files_of(self._path)[:-1]
            if self._rotation.kept and len(older) >= self._rotation.kept:
                self._drop(older[: len(older) - self._rotation.kept + 1])
            # From the oldest on, so that no rename covers a file that is still to be kept. A crash
            # in between leaves a number without a file, which the next turn passes over.
            for file in audit_chain.files_of(self._path)[:-1]:
                number = int(file.suffix[1:])
                file.replace(self._numbered(number + 1))
            self._path.replace(self._numbered(1))
        full = self._file
        self._open()
        os.close(full)
        self._drop_aged()
        _log.info("audit log turned over", sequence=self._head.sequence, hash=self._head.hash)

    def _drop_aged(self) -> None:
        """Drop files whose youngest line is older than what is to be kept."""
        if not self._rotation.kept_days:
            return
        oldest = self._clock.now() - self._rotation.kept_days * _DAY
        aged = [
            file
            for file in audit_chain.files_of(self._path)
            if file != self._path and file.stat().st_mtime < oldest
        ]
        if aged:
            self._drop(aged)

    def _drop(self, files: list[Path]) -> None:
        """Remove the oldest files, and say in the head with which line the log begins then."""
        kept = [file for file in audit_chain.files_of(self._path) if file not in files]
        # The head first. A crash in between leaves more than it promises; the other way round, the
        # missing lines would look as if somebody had removed them.
        self._head.first = _first_sequence(kept[0]) or self._head.sequence + 1
        self._write_head()
        for file in files:
            file.unlink(missing_ok=True)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def close(self) -> None:
        """Write the head and let go of the files."""
        if self._head_timer is not None:
            self._write_head()
        os.close(self._file)
        os.close(self._head_file)


def _tail(file: Path) -> tuple[bytes, bytes]:
    """Return the last whole line of a file, and what there is behind it."""
    with file.open("rb") as opened:
        at, read = opened.seek(0, os.SEEK_END), b""
        # Two line ends: the one of the last whole line, and the one before it.
        while at > 0 and read.count(b"\n") < 2:
            size = min(_BLOCK, at)
            at -= size
            opened.seek(at)
            read = opened.read(size) + read
    whole, end, rest = read.rpartition(b"\n")
    return whole.rpartition(b"\n")[2] + end, rest


def _first_sequence(file: Path) -> int:
    """Return the number of the first line of a file that has one; 0 when none has."""
    with file.open("rb") as lines:
        return next((link.sequence for line in lines if (link := audit_chain.read_link(line))), 0)
