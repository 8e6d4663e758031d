"""SPDY/3.1, the server's half: clients open streams, we answer on them.

There is no flow control per stream: Kubernetes' own client and server have none. What holds a fast
client back is the connection itself, which is not read while a stream's buffer is full.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

from clusterspace.apiserver.http.spdy_frames import (
    CONTROL_BIT,
    FIN,
    FRAME_LIMIT,
    HEAD,
    VERSION,
    Control,
    Data,
    HeaderReader,
    HeaderWriter,
    Kind,
    encode_control,
    encode_data,
    read_id,
)
from clusterspace.errors import StreamBroken
from clusterspace.sim.streams.upgrades import BytePipe, PipeReader


async def read_frame(reader: PipeReader) -> Control | Data | None:
    """Read one frame; None when the connection ends first."""
    head = await reader.read_exactly(HEAD.size)
    if head is None:
        return None
    first, second = HEAD.unpack(head)
    flags, size = second >> 24, second & 0xFFFFFF
    if size > FRAME_LIMIT:
        raise StreamBroken(f"a frame of {size} bytes is over the limit")
    payload = await reader.read_exactly(size)
    if payload is None:
        return None
    if not first & CONTROL_BIT:
        return Data(first, flags, payload)
    if (first >> 16) & 0x7FFF != VERSION:
        raise StreamBroken(f"version {(first >> 16) & 0x7FFF} of SPDY is not spoken here, 3 is")
    return Control(first & 0xFFFF, flags, payload)


# -- streams -----------------------------------------------------------------------------------

_BUFFERED_PIECES: Final = 16
"""How many pieces a stream buffers before the connection waits for somebody to take them."""

_MAX_STREAMS: Final = 1024
_PIECE: Final = 32 * 1024
_REFUSED_STREAM: Final = 3


class SpdyStream:
    """One stream: bytes both ways, and the headers it was opened with."""

    def __init__(self, session: "SpdySession", number: int, headers: Mapping[str, str]) -> None:
        self._session = session
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue(_BUFFERED_PIECES)
        self._is_at_end = False
        self._is_ended = False
        self._is_reset = False
        self._is_fed = False
        """Whether no more will come; what has come can still be read."""
        self.number = number
        self.headers = headers

    async def read(self) -> bytes:
        """Return the bytes that have arrived, waiting for some; empty at the end."""
        if self._is_at_end or (self._is_fed and self._arrived.empty()):
            return b""
        piece = await self._arrived.get()
        self._is_at_end = not piece
        return piece

    async def write(self, data: bytes) -> None:
        """Send bytes, in pieces that leave room for other streams."""
        for start in range(0, len(data), _PIECE):
            if self._is_ended or self._is_reset:
                return
            piece = data[start : start + _PIECE]
            await self._session.send(encode_data(self.number, piece))

    async def end(self) -> None:
        """Send no more."""
        if not self._is_ended and not self._is_reset:
            self._is_ended = True
            await self._session.send(encode_data(self.number, b"", is_last=True))

    async def feed(self, piece: bytes, *, is_last: bool) -> None:
        """Take what the client sent, waiting for room."""
        if self._is_reset:
            return
        if piece:
            await self._arrived.put(piece)
        if is_last:
            await self._arrived.put(b"")

    def end_input(self) -> None:
        """Say that no more will come: the client has gone, and what it sent before still counts."""
        self._is_fed = True
        with contextlib.suppress(asyncio.QueueFull):  # then nobody waits for it either
            self._arrived.put_nowait(b"")

    def reset(self) -> None:
        """Drop what is buffered: the client wants no more of this stream, or nobody reads it."""
        self._is_reset = True
        # A `feed` that waits for room gets it here. Otherwise the session, and with it every other
        # stream of the connection, would wait for a stream that nobody reads.
        while not self._arrived.empty():
            self._arrived.get_nowait()
        with contextlib.suppress(asyncio.QueueFull):
            self._arrived.put_nowait(b"")


class SpdySession:
    """The streams of one connection. `run` must be running for anything to arrive."""

    def __init__(self, pipe: BytePipe, *, ignored: frozenset[str] = frozenset()) -> None:
        self._pipe = pipe
        self._ignored = ignored
        """Types of streams that are granted, and what comes on them thrown away."""
        self._reader = PipeReader(pipe)
        self._read_headers = HeaderReader()
        self._write_headers = HeaderWriter()
        self._streams: dict[int, SpdyStream] = {}
        self._opened: asyncio.Queue[SpdyStream | None] = asyncio.Queue()
        """Never more than `_MAX_STREAMS`: others are refused, not waited for."""

    async def run(self) -> None:
        """Read frames until the client has gone."""
        try:
            while True:
                frame = await read_frame(self._reader)
                if frame is None:
                    return
                if isinstance(frame, Control):
                    if frame.kind == Kind.GOAWAY:
                        return
                    await self._take_control(frame)
                elif (stream := self._streams.get(frame.stream)) is not None:
                    # Waits while the stream's buffer is full, and with it the whole connection.
                    await stream.feed(frame.payload, is_last=frame.is_last)
        finally:
            for stream in self._streams.values():
                stream.end_input()
            self._opened.put_nowait(None)

    async def accept(self) -> SpdyStream | None:
        """Return the next stream the client opens; None when it will open no more."""
        return await self._opened.get()

    async def send(self, frame: bytes) -> None:
        """Send a frame, whole: several streams write at the same time."""
        await self._pipe.write(frame)

    def forget(self, stream: SpdyStream) -> None:
        """Let go of a stream nobody reads any more."""
        self._streams.pop(stream.number, None)
        stream.reset()

    async def _take_control(self, frame: Control) -> None:
        match frame.kind:
            case Kind.SYN_STREAM:
                await self._open(frame)
            case Kind.HEADERS:
                # Nobody sends any, but a block that is not read would spoil the next one.
                self._read_headers.read(frame.body[4:])
            case Kind.RST_STREAM:
                stream = self._streams.pop(read_id(frame.body), None)
                if stream is not None:
                    stream.reset()
            case Kind.PING:
                await self.send(encode_control(Kind.PING, frame.body))
            case _:
                pass  # settings and window updates change nothing here

    async def _open(self, frame: Control) -> None:
        number = read_id(frame.body)
        if len(frame.body) < 10:
            raise StreamBroken("a SYN_STREAM frame is too short")
        headers = self._read_headers.read(frame.body[10:])
        # Those not accepted yet count by themselves: a client may open and reset without end.
        open_streams = max(len(self._streams), self._opened.qsize())
        if open_streams >= _MAX_STREAMS or number in self._streams:
            body = number.to_bytes(4) + _REFUSED_STREAM.to_bytes(4)
            await self.send(encode_control(Kind.RST_STREAM, body))
            return
        # Header blocks share one compressor, so they must leave in the order in which they are
        # written. Only the task of `run` writes any.
        reply = number.to_bytes(4) + self._write_headers.write({})
        await self.send(encode_control(Kind.SYN_REPLY, reply))
        if headers.get("streamtype") in self._ignored:
            return
        # Known before anybody is let know of it: the data frames that follow are for it already.
        stream = SpdyStream(self, number, headers)
        self._streams[number] = stream
        self._opened.put_nowait(stream)
        if frame.flags & FIN:
            await stream.feed(b"", is_last=True)
