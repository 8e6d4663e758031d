"""The outgoing half of a connection: writes, backpressure, the peer that does not read.

An ordinary answer goes out by `ResponseWriter.send`. Answers without an end in sight are `Stream`s
of chunks, or `Hijacked` connections that their handler owns whole; both see the connection as a
`Wire`.
"""

import asyncio
import math
import socket
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

UNTAKEN_MILLISECONDS: Final = 60_000
"""How long the kernel keeps trying to get rid of bytes; a peer that takes none counts as gone."""

_BATCH_BYTES = 128 * 1024
"""How much is given to the transport at once. TLS encrypts all it gets before it looks whether the
peer keeps up, so a large answer in one write would be held twice, and hidden from `buffered`."""

_FLUSH_SECONDS: Final = (0.001, 0.05)
"""Between two looks whether a buffer is empty, at first and at most."""

LAST_CHUNK = b"0\r\n\r\n"


# Nothing here waits for a peer unless it says so (`drain`, `send`). The transport buffers without
# bound, so whoever writes without waiting looks at `buffered`: a watch ends its stream when too
# much is unread. Who neither waits nor looks is cut by `is_stalled`, when not one byte has left a
# full buffer for `stall_seconds`. A peer that is allowed to stop reading (`be_patient`: a pager
# with an hour of log on the screen) is not cut, and its writer must wait.
class ResponseWriter:
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
            # `_writable` is there exactly while the transport says its buffer is full. It is a new
            # event each time: one that was set before would let everybody through at once.
            if self._writable is not None:
                await self._writable.wait()
            self.write(batch)

    async def drain(self) -> None:
        """Wait until the buffer has room; ConnectionResetError when the peer has gone."""
        if self._writable is not None:
            await self._writable.wait()
        if self._is_lost:
            raise ConnectionResetError("the peer has gone")

    async def flush(self) -> None:
        """Wait until the kernel has taken everything; return as well when the peer has gone.

        Whoever closes TLS gives the peer a few seconds to say goodbye, after which what is left in
        our buffers is dropped: nothing may be left in them.
        """
        loop = asyncio.get_running_loop()
        wait = _FLUSH_SECONDS[0]
        while self.buffered:
            # No loop tells when the last byte has left, only when there is room for more.
            if self._stalls_at == math.inf and not self._is_patient:
                self.expect_progress(loop.time())
            await asyncio.sleep(wait)
            wait = min(wait * 2, _FLUSH_SECONDS[1])

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
        # The kernel has a limit of its own for bytes that nobody acknowledges. A peer that is
        # there but does not read acknowledges with a closed window, which counts against the
        # same limit; so being patient means to lift that one too. One that has gone without a
        # word is then found by the kernel's retries, which take a quarter of an hour.
        self._is_patient = is_patient
        connected = self._transport.get_extra_info("socket")
        if connected is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            limit = 0 if is_patient else UNTAKEN_MILLISECONDS
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit)

    def resume(self) -> None:
        """Take the transport's word that there is room again."""
        self._stalls_at = math.inf
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    def lose(self) -> None:
        """Take the transport's word that the connection has gone."""
        # Lost first: whoever waits in `drain` is woken by `resume` and must see why.
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
        # Bytes that left, not bytes that are left: a writer that fills the buffer as fast as the
        # peer empties it keeps it full, and that peer is fine.
        if self._written - self.buffered > self._flushed:
            self.expect_progress(now)
            return False
        return True


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


class Wire(Protocol):
    """The outgoing half of a connection."""

    @property
    def is_connected(self) -> bool:
        """Whether the peer is still there, as far as we know."""
        ...

    @property
    def buffered(self) -> int:
        """Bytes written and not yet taken by the network."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes, or buffer them; nothing happens when the peer has gone."""
        ...

    async def drain(self) -> None:
        """Wait until the buffer has room; ConnectionResetError when the peer has gone."""
        ...

    async def flush(self) -> None:
        """Wait until everything written has been taken, or the peer has gone."""
        ...

    def be_patient(self) -> None:
        """Do not cut a peer that stops reading, for as long as it is there."""
        ...

    def half_close(self) -> None:
        """Send the end of our half, where the transport can."""
        ...

    def abort(self) -> None:
        """Cut the connection and drop what is buffered."""
        ...

    async def wait_disconnected(self) -> None:
        """Wait until the peer has gone."""
        ...


def frame_chunk(data: bytes) -> bytes:
    r"""Frame bytes as one chunk: once for an event, however many watchers it goes to.

    >>> frame_chunk(b"hello")
    b'5\r\nhello\r\n'
    """
    # An empty chunk would be the end of the stream.
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


class Stream:
    """A chunked answer in progress.

    Writing never waits: a writer with many streams looks at `buffered` and aborts the slow ones,
    a writer with one awaits `drain`.
    """

    __slots__ = ("_has_body", "_is_open", "_wire")

    def __init__(self, wire: Wire, *, has_body: bool) -> None:
        self._wire = wire
        self._has_body = has_body
        self._is_open = True

    @property
    def is_open(self) -> bool:
        """Whether a write can still reach the peer."""
        return self._is_open and self._wire.is_connected

    @property
    def buffered(self) -> int:
        """Bytes written and not yet taken by the network."""
        return self._wire.buffered

    def write(self, data: bytes) -> None:
        """Send bytes as one chunk."""
        self.write_framed(frame_chunk(data))

    def write_framed(self, framed: bytes) -> None:
        """Send what `frame_chunk` returned."""
        if self._is_open and self._has_body:
            self._wire.write(framed)

    async def drain(self) -> None:
        """Wait until the buffer has room; ConnectionResetError when the peer has gone."""
        await self._wire.drain()

    def be_patient(self) -> None:
        """Let the client stop reading for as long as it likes: for writers that await `drain`.

        Somebody may be looking at one page of a log for an hour.
        """
        self._wire.be_patient()

    def end(self) -> None:
        """Finish the answer; the connection may go on to its next request."""
        # Written before it counts as closed. Ended twice, the second last chunk would be read as
        # the beginning of the next answer: `write_framed` lets nothing through any more.
        self.write_framed(LAST_CHUNK)
        self._is_open = False

    async def cut(self) -> None:
        """Send what was written, then cut: the client has all there is, and sees that more was due.

        Cut before the last chunk, and without a goodbye.
        """
        self._is_open = False
        await self._wire.flush()
        self._wire.abort()

    def abort(self) -> None:
        """Cut the connection at once: the client sees an answer that is visibly incomplete."""
        self._is_open = False
        self._wire.abort()

    async def wait_closed(self) -> None:
        """Wait until the peer has gone."""
        await self._wire.wait_disconnected()


class Hijacked:
    """A connection that has left HTTP: the handler owns both directions until it returns.

    `reader` has whatever the client sent behind its request, and stops reading the socket when
    nobody takes it. A client that stops reading is waited for. The peer's half-close is the
    reader's end of file; over TLS there is no half-close, so it is the end of both directions.
    """

    __slots__ = ("_wire", "reader")

    def __init__(self, wire: Wire, reader: asyncio.StreamReader) -> None:
        self._wire = wire
        self.reader = reader

    @property
    def is_connected(self) -> bool:
        """Whether the peer is still there, as far as we know."""
        return self._wire.is_connected

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._wire.write(data)

    async def drain(self) -> None:
        """Wait until the buffer has room; ConnectionResetError when the peer has gone."""
        await self._wire.drain()

    async def flush(self) -> None:
        """Wait until everything written has been taken, or the peer has gone."""
        await self._wire.flush()

    def half_close(self) -> None:
        """Tell the peer that no more will come; over TLS nothing happens until the handler ends."""
        self._wire.half_close()

    def abort(self) -> None:
        """Cut the connection."""
        self._wire.abort()
