"""The audit log as a file: appended line by line, turned over when it is full."""

import errno
import os
from pathlib import Path
from typing import Final

import structlog

_log = structlog.get_logger(__name__)

FULL_BYTES: Final = 100 * 1024 * 1024
KEPT_FILES: Final = 10
_MODE: Final = 0o600


class AuditLog:
    """Lines in a file that only its owner can read.

    Each line is one write to the kernel, so lines are whole and in order even when the process
    is killed. A disk that is full loses lines, and the log says so once, and once more how many
    when it has room again; it does not stop the hub.
    """

    def __init__(self, path: Path, *, full_bytes: int = FULL_BYTES, kept: int = KEPT_FILES) -> None:
        self._path = path
        self._full_bytes = full_bytes
        self._kept = kept
        self._lost = 0
        self._is_torn = False
        self._open()

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _MODE)
        self._size = os.fstat(self._file).st_size

    def write(self, line: bytes) -> None:
        """Append a line."""
        try:
            if self._size and self._size + len(line) > self._full_bytes:
                self._turn_over()
            # Behind half a line, which is all a disk had room for, a whole one begins anew.
            content = b"\n" + line if self._is_torn else line
            written = os.write(self._file, content)
            self._size += written
            self._is_torn = written < len(content)
            if self._is_torn:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._lost += 1
            if self._lost == 1:
                _log.error("audit lines are lost until they can be written", reason=str(error))
            return
        if self._lost:
            _log.warning("audit lines are written again", lost=self._lost)
            self._lost = 0

    def _turn_over(self) -> None:
        """Put the full file aside as `audit.log.1`, move older ones on, and begin anew."""
        # A turn that failed when it had put the file aside has nothing to move: moving the older
        # ones again with every line would lose them all. Only the opening is tried again.
        if self._path.exists():
            # From the oldest on, so that no rename covers a file that is still to be kept. A crash
            # in between leaves a number without a file, which the next turn passes over.
            for number in range(self._kept - 1, 0, -1):
                older = self._numbered(number)
                if older.exists():
                    older.replace(self._numbered(number + 1))
            self._path.replace(self._numbered(1))
        full = self._file
        self._open()
        os.close(full)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)
