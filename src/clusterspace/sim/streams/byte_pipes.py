"""Bytes both ways: a raw connection, or one inside WebSocket messages."""

from typing import Final, Protocol

from clusterspace.apiserver.http.streams import Hijacked

_READ_SIZE: Final = 64 * 1024


class BytePipe(Protocol):
    """A connection that carries bytes."""

    async def read(self) -> bytes:
        """Return what has arrived, waiting for some; nothing means the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes, waiting for room; ConnectionError when the peer has gone."""
        ...


class RawPipe:
    """A connection that has left HTTP."""

    def __init__(self, connection: Hijacked) -> None:
        self._connection = connection

    async def read(self) -> bytes:
        """Return what has arrived."""
        return await self._connection.reader.read(_READ_SIZE)

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        self._connection.write(data)
        await self._connection.drain()


class PipeReader:
    """Exact amounts of bytes from a pipe."""

    def __init__(self, pipe: BytePipe) -> None:
        self._pipe = pipe
        self._held = bytearray()

    async def read_exactly(self, count: int) -> bytes | None:
        """Return so many bytes; None when the pipe ends before they are there."""
        while len(self._held) < count:
            arrived = await self._pipe.read()
            if not arrived:
                return None
            self._held += arrived
        taken = bytes(self._held[:count])
        del self._held[:count]
        return taken
