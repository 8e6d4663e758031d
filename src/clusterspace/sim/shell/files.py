"""The files of one container, with a limit on their size. They exist only here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from posixpath import dirname, join, normpath
from typing import Final

from clusterspace.errors import CommandRefused

DEFAULT_LIMIT: Final = 256 * 1024 * 1024
_FILE_MODE: Final = 0o644
NOWHERE: Final = "/dev/null"


@dataclass(frozen=True, slots=True)
class File:
    """A file, or a directory, which has no content."""

    content: bytes
    mode: int
    modified: float
    is_directory: bool = False


class FileSystem:
    """Files and directories by absolute path; parents of what is there are always there."""

    def __init__(
        self, contents: Mapping[str, bytes], now: float, limit: int = DEFAULT_LIMIT
    ) -> None:
        self._limit = limit
        self._entries: dict[str, File] = {"/": File(b"", 0o755, now, is_directory=True)}
        self._size = 0
        for path in ("/tmp", "/root", "/dev"):  # noqa: S108 - a directory in memory
            self.make_directory(path, now)
        for path, content in contents.items():
            self.write(path, content, now)

    @property
    def size(self) -> int:
        """How many bytes there are in all files."""
        return self._size

    def find(self, path: str) -> File | None:
        """Return the file or directory at an absolute path, or None."""
        return self._entries.get(path)

    def is_directory(self, path: str) -> bool:
        """Whether a path is a directory."""
        existing = self.find(path)
        return existing is not None and existing.is_directory

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        if path == NOWHERE:
            return b""
        existing = self.find(path)
        if existing is None:
            raise CommandRefused(f"{path}: No such file or directory")
        if existing.is_directory:
            raise CommandRefused(f"{path}: Is a directory")
        return existing.content

    def write(
        self,
        path: str,
        content: bytes,
        now: float,
        *,
        mode: int = _FILE_MODE,
        appends: bool = False,
    ) -> None:
        """Make a file, or replace or extend the one that is there."""
        if path == NOWHERE:
            return
        existing = self.find(path)
        if existing is not None and existing.is_directory:
            raise CommandRefused(f"{path}: Is a directory")
        before = b"" if existing is None else existing.content
        whole = before + content if appends else content
        if self._size - len(before) + len(whole) > self._limit:
            raise CommandRefused(f"{path}: No space left on device")
        self.make_directory(dirname(path), now)
        self._entries[path] = File(whole, mode if existing is None else existing.mode, now)
        self._size += len(whole) - len(before)

    def make_directory(self, path: str, now: float) -> None:
        """Make a directory and those above it; one that is there already is fine."""
        existing = self.find(path)
        if existing is not None:
            if not existing.is_directory:
                raise CommandRefused(f"{path}: Not a directory")
            return
        self.make_directory(dirname(path), now)
        self._entries[path] = File(b"", 0o755, now, is_directory=True)

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it."""
        if path == "/" or self.find(path) is None:
            raise CommandRefused(f"{path}: No such file or directory")
        for each in (path, *self.below(path)):
            self._size -= len(self._entries.pop(each).content)

    def below(self, path: str) -> list[str]:
        """Return every path inside a directory, at any depth, in order."""
        prefix = path.rstrip("/") + "/"
        return sorted(each for each in self._entries if each.startswith(prefix) and each != "/")

    def names_in(self, path: str) -> Iterator[str]:
        """Return the names directly inside a directory, in order."""
        prefix = path.rstrip("/") + "/"
        for each in self.below(path):
            name = each[len(prefix) :]
            if "/" not in name:
                yield name


def resolve(directory: str, path: str) -> str:
    """Return the absolute path that is meant from inside a directory.

    >>> resolve("/var/log", "../tmp/./x")
    '/var/tmp/x'
    """
    # normpath keeps two leading slashes, which mean nothing here.
    return "/" + normpath(join(directory, path)).lstrip("/")
