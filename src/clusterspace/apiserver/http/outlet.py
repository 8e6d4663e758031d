"""The outgoing half of a connection: writes, backpressure, and the peer that does not read."""

import asyncio
import math
import socket
from collections.abc import Iterator, Sequence
from typing import Final

UNTAKEN_MILLISECONDS: Final = 60_000
"""How long the kernel keeps trying to get rid of bytes; a peer that takes none counts as gone."""

_BATCH_BYTES = 128 * 1024
"""How much is given to the transport at once. TLS encrypts all it gets before it looks whether the
peer keeps up, so a large answer in one write would be held twice, and hidden from `buffered`."""


class Outlet:
    """Counts what goes into a transport, so that a peer which takes nothing can be noticed."""

    __slots__ = (
        "_flushed",
        "_is_lost",
        "_is_patient",
        "_stall_seconds",
        "_stalls_at",
        "_transport",
        "_writable",
        "_written",
    )

    def __init__(self, transport: asyncio.Transport, stall_seconds: float) -> None:
        self._transport = transport
        self._stall_seconds = stall_seconds
        self._stalls_at = math.inf
        self._written = 0
        self._flushed = 0
        self._is_lost = False
        self._is_patient = False
        self._writable: asyncio.Event | None = None

    @property
    def buffered(self) -> int:
        """Bytes written and not yet taken by the network."""
        return 0 if self._is_lost else self._transport.get_write_buffer_size()

    def write(self, data: bytes | memoryview) -> None:
        """Send bytes, or buffer them; nothing happens when the peer has gone."""
        if not self._transport.is_closing():
            self._written += len(data)
            self._transport.write(data)

    async def send(self, pieces: Sequence[bytes]) -> None:
        """Send pieces in order, as fast as the peer takes them; stop when it has gone."""
        for batch in batches(pieces, _BATCH_BYTES):
            if self._writable is not None:
                await self._writable.wait()
            self.write(batch)

    async def drain(self) -> None:
        """Wait until the buffer has room; ConnectionResetError when the peer has gone."""
        if self._writable is not None:
            await self._writable.wait()
        if self._is_lost:
            raise ConnectionResetError("the peer has gone")

    def pause(self, now: float) -> None:
        """Take the transport's word that its buffer is full."""
        if self._writable is None:
            self._writable = asyncio.Event()
        if not self._is_patient:
            self.expect_progress(now)

    def set_patience(self, *, is_patient: bool) -> None:
        """Wait, or no longer wait, for a peer that has stopped reading but is still there."""
        if is_patient is self._is_patient:
            return
        self._is_patient = is_patient
        connected = self._transport.get_extra_info("socket")
        if connected is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            limit = 0 if is_patient else UNTAKEN_MILLISECONDS
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit)

    def resume(self) -> None:
        """Take the transport's word that there is room again."""
        self._stalls_at = math.inf
        self._wake()

    def lose(self) -> None:
        """Take the transport's word that the connection has gone."""
        self._is_lost = True
        self.resume()

    def expect_progress(self, now: float) -> None:
        """From now on bytes must leave the buffer, or the peer counts as stalled."""
        self._flushed = self._written - self.buffered
        self._stalls_at = now + self._stall_seconds

    def is_stalled(self, now: float) -> bool:
        """Whether nothing has left the buffer for too long; asking again later is expected."""
        if now < self._stalls_at:
            return False
        if self._written - self.buffered > self._flushed:
            self.expect_progress(now)
            return False
        return True

    def _wake(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None


def batches(pieces: Sequence[bytes], size: int) -> Iterator[bytes | memoryview]:
    """Join small pieces and cut large ones, so that each batch has about `size` bytes.

    >>> [bytes(each) for each in batches([b"ab", b"c", b"defghij"], 4)]
    [b'abc', b'defg', b'hij']
    """
    waiting: list[bytes] = []
    waiting_bytes = 0
    for piece in pieces:
        if waiting_bytes and waiting_bytes + len(piece) > size:
            yield b"".join(waiting)
            waiting, waiting_bytes = [], 0
        if len(piece) > size:
            whole = memoryview(piece)
            yield from (whole[start : start + size] for start in range(0, len(piece), size))
        else:
            waiting.append(piece)
            waiting_bytes += len(piece)
    if waiting_bytes:
        yield b"".join(waiting)
