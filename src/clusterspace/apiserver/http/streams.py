"""Answers without an end in sight: chunked streams, and connections handed over whole."""

import asyncio
from typing import Protocol

LAST_CHUNK = b"0\r\n\r\n"


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
        self.write_framed(LAST_CHUNK)
        self._is_open = False

    def abort(self) -> None:
        """Cut the connection: the client sees an answer that is visibly incomplete."""
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

    def half_close(self) -> None:
        """Tell the peer that no more will come; over TLS nothing happens until the handler ends."""
        self._wire.half_close()

    def abort(self) -> None:
        """Cut the connection."""
        self._wire.abort()
