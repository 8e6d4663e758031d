"""The audit log as a file: appended line by line, chained, turned over when it is full.

The event loop puts events in a queue, and a thread makes lines of them and writes them.
"""

import asyncio
import errno
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

import structlog

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.apiserver.access import audit_chain
from clusterspace.apiserver.access.audit_chain import Head, Key, Link

_log = structlog.get_logger(__name__)

_MODE: Final = 0o600
_BLOCK: Final = 64 * 1024
_DAY: Final = 24 * 3600.0
_HEAD_SECONDS: Final = 0.01
_HEAD_EVENTS: Final = 64
"""How far the head may be behind the lines: so long when nothing more comes, and so many when it
does. Writing it behind each would be a third of what auditing a write costs."""

MOST_UNWRITTEN: Final = 1000
"""Events that may wait for the disk; then requests that are audited wait before they begin."""


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

    One thread at a time: a server's log belongs to the thread of its `AuditWriter`.
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
        self._key = key
        self._torn = b""
        """What there is in the file behind the last whole line."""
        self._last_key = ""
        """The key that the last line names."""
        self._head_file = os.open(audit_chain.head_path(path), os.O_RDWR | os.O_CREAT, _MODE)
        self._open()
        self._head = self._go_on()
        if key is not None and not self._head.mac and not self._last_key:
            # The first key of this log: what came before is sealed as it was found.
            self.write_head()
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
                self._last_key = last.key if last is not None else ""
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
        """Append an event as a line; the head is left to `write_head`."""
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
        except (OSError, TypeError, ValueError) as error:
            # No room; or what cannot be encoded, which is a bug, and must not hide a line.
            head.lost += 1
            if head.lost == 1:
                _log.error("audit lines are lost until they can be written", reason=str(error))
            self.write_head()
            return
        if head.lost:
            _log.warning("audit lines are written again", lost=head.lost)
        head.sequence += 1
        head.hash, head.lost, self._torn = digest, 0, b""

    def _append(self, content: bytes) -> None:
        written = os.write(self._file, content)
        self._size += written
        if written < len(content):
            self._torn += content[:written]
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write_head(self) -> None:
        """Note where the log ends."""
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
        self.write_head()
        for file in files:
            file.unlink(missing_ok=True)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def close(self) -> None:
        """Write the head and let go of the files."""
        self.write_head()
        os.close(self._file)
        os.close(self._head_file)


# What the loop and the thread share: the loop puts events in the queue and counts `_queued`; the
# thread takes them out and counts `_written`. The thread counts before it looks whether anybody
# waits, and who waits looks at the count again when it has been noted down, so nobody is forgotten.
#
# Numbers and hashes are the thread's alone, so the order of the queue is that of the chain. A
# process that is killed loses what is in the queue: nobody was answered what these lines tell of,
# they have no number yet, and the chain ends before them, whole.
class AuditWriter:
    """Writes events to a log from a thread, so that a disk that hangs holds up no loop.

    Requests that are audited wait for it, and nobody else: for their own lines before they are
    answered, and before they begin while too many events are unwritten.
    """

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._events: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        """What is to be written; None ends the thread."""
        self._queued = self._written = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        """Who waits until so many events are written."""
        self._thread = threading.Thread(target=self._run, name="audit log", daemon=True)
        self._thread.start()

    def write(self, event: dict[str, Any]) -> None:
        """Have an event written; whoever hands it over changes it no more."""
        self._queued += 1
        self._events.put(event)

    async def room(self) -> None:
        """Wait until not too much is unwritten."""
        while self._queued - self._written >= MOST_UNWRITTEN:
            await self._until_written(self._queued - MOST_UNWRITTEN + 1)

    async def written(self) -> None:
        """Wait until the kernel has all lines of the events that were handed over so far."""
        await self._until_written(self._queued)

    async def _until_written(self, count: int) -> None:
        if self._written >= count:
            return
        woken: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((count, woken))
        if self._written >= count:
            return  # meanwhile; the next round of the thread passes over it
        await woken

    def close(self) -> None:
        """Write what there is to write and let go of the files."""
        self._events.put(None)
        self._thread.join()
        self._log.close()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for count, woken in waiting:
            if count > self._written:
                self._waiting.append((count, woken))
            elif not woken.done():
                woken.set_result(None)

    def _run(self) -> None:
        behind = 0
        while True:
            try:
                event = self._events.get(timeout=_HEAD_SECONDS if behind else None)
            except Empty:
                self._log.write_head()
                behind = 0
                continue
            if event is None:
                return
            try:
                self._log.write(event)
            except Exception:  # noqa: BLE001 - logged here: nobody awaits a thread
                # A bug, and the thread must live: without it nothing would be audited any more.
                _log.exception("an audit line could not be written")
            self._written += 1
            behind += 1
            # For all of a batch at once, and of a long one now and then.
            if self._waiting and (behind == _HEAD_EVENTS or self._events.empty()):
                self._loop.call_soon_threadsafe(self._wake)
            if behind == _HEAD_EVENTS:
                self._log.write_head()
                behind = 0


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
