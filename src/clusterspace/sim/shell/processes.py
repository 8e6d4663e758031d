"""What a running command has: arguments, environment, files, its three streams."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from clusterspace.aio.clocks import Clock
from clusterspace.sim.shell.files import FileSystem, resolve

_MOST_READ: Final = 256 * 1024 * 1024


class Input(Protocol):
    """Where a command reads from."""

    async def read(self) -> bytes:
        """Return some bytes, waiting for them; nothing means the end."""
        ...


Output: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Where a command writes to."""


class Held:
    """Bytes that are there already, as an Input; and a place to collect them, as an Output."""

    def __init__(self, content: bytes = b"") -> None:
        self._pieces = [content] if content else []

    async def read(self) -> bytes:
        """Return what is held, once."""
        content, self._pieces = b"".join(self._pieces), []
        return content

    async def write(self, data: bytes) -> None:
        """Hold more."""
        self._pieces.append(data)

    @property
    def content(self) -> bytes:
        """All that is held."""
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

    async def say(self, text: str) -> None:
        """Write a line."""
        await self.stdout(f"{text}\n".encode())

    async def complain(self, text: str) -> None:
        """Write a line about what is wrong."""
        await self.stderr(f"{self.name}: {text}\n".encode())

    async def read_all(self) -> bytes:
        """Read stdin to its end."""
        pieces: list[bytes] = []
        size = 0
        while piece := await self.stdin.read():
            size += len(piece)
            if size > _MOST_READ:
                break
            pieces.append(piece)
        return b"".join(pieces)


Program: TypeAlias = Callable[[Process], Awaitable[int]]
"""A command; returns its exit code."""
