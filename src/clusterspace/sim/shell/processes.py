"""What a running command has: arguments, environment, files, its three streams, a terminal."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from posixpath import dirname, join, normpath
from typing import Final, Protocol, TypeAlias

from clusterspace.aio.clocks import Clock
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


_READ_LIMIT: Final = 256 * 1024 * 1024


class Input(Protocol):
    """Where a command reads from."""

    async def read(self) -> bytes:
        """Return some bytes, waiting for them; nothing means the end."""
        ...


Output: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Where a command writes to."""


class Buffer:
    """Bytes that are there already, as an Input; and a place to collect them, as an Output."""

    def __init__(self, content: bytes = b"") -> None:
        self._pieces = [content] if content else []

    async def read(self) -> bytes:
        """Return the content, once."""
        content, self._pieces = b"".join(self._pieces), []
        return content

    async def write(self, data: bytes) -> None:
        """Add to the content."""
        self._pieces.append(data)

    @property
    def content(self) -> bytes:
        """All that was written and not read."""
        return b"".join(self._pieces)


@dataclass(frozen=True, slots=True)
class Process:
    """One running command."""

    arguments: tuple[str, ...]
    """Its name, then what was given to it."""
    variables: Mapping[str, str]
    directory: str
    files: FileSystem
    clock: Clock
    stdin: Input
    stdout: Output
    stderr: Output

    @property
    def name(self) -> str:
        """What it was called as."""
        return self.arguments[0]

    @property
    def operands(self) -> tuple[str, ...]:
        """What was given to it, options left out."""
        return tuple(each for each in self.arguments[1:] if not each.startswith("-") or each == "-")

    def has_option(self, letter: str) -> bool:
        """Whether a one-letter option was given, alone or among others."""
        options = (each for each in self.arguments[1:] if each.startswith("-") and each[1:2] != "-")
        return any(letter in each for each in options)

    def path(self, text: str) -> str:
        """Return the absolute path that is meant from where the command runs."""
        return resolve(self.directory, text)

    async def print(self, text: str) -> None:
        """Write a line."""
        await self.stdout(f"{text}\n".encode())

    async def print_error(self, text: str) -> None:
        """Write a line about what is wrong."""
        await self.stderr(f"{self.name}: {text}\n".encode())

    async def read_all(self) -> bytes:
        """Read stdin to its end."""
        pieces: list[bytes] = []
        size = 0
        while piece := await self.stdin.read():
            size += len(piece)
            if size > _READ_LIMIT:
                break
            pieces.append(piece)
        return b"".join(pieces)


Command: TypeAlias = Callable[[Process], Awaitable[int]]
"""A command; returns its exit code."""


# -- what a terminal does with keys: shows them, edits the line, hands it over when it is done ---

_INTERRUPT: Final = 0x03
_END: Final = 0x04
_ENTER: Final = frozenset((0x0A, 0x0D))
_ERASE: Final = frozenset((0x08, 0x7F))


class LineEditor:
    """An Input of whole lines, made from keys; shows what is typed."""

    def __init__(self, keys: Input, screen: Output) -> None:
        self._keys = keys
        self._screen = screen
        self._typed = bytearray()
        self._lines: list[bytes] = []
        self._is_at_end = False

    async def read(self) -> bytes:
        """Return the next line; nothing when Ctrl-D was pressed on an empty one."""
        while not self._lines:
            if self._is_at_end:
                return b""
            pressed = await self._keys.read()
            if not pressed:
                self._is_at_end = True
                break
            for key in pressed:
                await self._press(key)
        return self._lines.pop(0) if self._lines else bytes(self._typed)

    async def _press(self, key: int) -> None:
        if key == _INTERRUPT:
            self._typed.clear()
        if key in _ENTER or key == _INTERRUPT:
            await self._screen(b"^C\n" if key == _INTERRUPT else b"\n")
            self._lines.append(bytes(self._typed) + b"\n")
            self._typed.clear()
        elif key in _ERASE:
            if self._typed:
                del self._typed[-1]
                await self._screen(b"\b \b")
        elif key == _END:
            self._is_at_end = not self._typed
        else:
            self._typed.append(key)
            await self._screen(bytes((key,)))


def for_screen(screen: Output) -> Output:
    """Return an Output that ends lines as terminals want them ended."""

    async def write(data: bytes) -> None:
        await screen(data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))

    return write
