"""SPDY/3.1 streams on one connection, the server's half: clients open streams, we answer on them.

There is no flow control per stream: Kubernetes' own client and server have none. What holds a fast
client back is the connection itself, which is not read while a stream's buffer is full.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

from clusterspace.errors import StreamBroken
from clusterspace.sim.streams.byte_pipes import BytePipe, PipeReader
from clusterspace.sim.streams.spdy_frames import (
    FIN,
    Control,
    Data,
    HeaderReader,
    HeaderWriter,
    Kind,
    encode_control,
    encode_data,
    read_frame,
    read_id,
)

_HELD_PIECES: Final = 16
"""How many pieces a stream holds before the connection waits for somebody to take them."""

_MOST_STREAMS: Final = 1024
_PIECE: Final = 32 * 1024
_REFUSED_STREAM: Final = 3


class SpdyStream:
    """One stream: bytes both ways, and the headers it was opened with."""

    def __init__(self, session: "SpdySession", number: int, headers: Mapping[str, str]) -> None:
        self._session = session
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue(_HELD_PIECES)
        self._is_at_end = False
        self._is_ended = False
        self._is_reset = False
        self.number = number
        self.headers = headers

    async def read(self) -> bytes:
        """Return what has arrived, waiting for some; nothing means the end."""
        if self._is_at_end:
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

    def reset(self) -> None:
        """Drop what is held: the client wants no more of this stream, or has gone."""
        self._is_reset = True
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

    async def run(self) -> None:
        """Read frames until the client has gone."""
        try:
            while True:
                frame = await read_frame(self._reader)
                if frame is None:
                    return
                if isinstance(frame, Data):
                    await self._take_data(frame)
                elif not await self._take_control(frame):
                    return
        finally:
            for stream in self._streams.values():
                stream.reset()
            self._opened.put_nowait(None)

    async def accept(self) -> SpdyStream | None:
        """Return the next stream the client opens; None when it will open no more."""
        return await self._opened.get()

    async def send(self, frame: bytes) -> None:
        """Send a frame."""
        await self._pipe.write(frame)

    def forget(self, stream: SpdyStream) -> None:
        """Let go of a stream nobody reads any more."""
        self._streams.pop(stream.number, None)
        stream.reset()

    async def _take_data(self, frame: Data) -> None:
        stream = self._streams.get(frame.stream)
        if stream is not None:
            await stream.feed(frame.payload, is_last=frame.is_last)

    async def _take_control(self, frame: Control) -> bool:
        """Act on a control frame; say whether the session goes on."""
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
            case Kind.GOAWAY:
                return False
            case _:
                pass  # settings and window updates change nothing here
        return True

    async def _open(self, frame: Control) -> None:
        number = read_id(frame.body)
        if len(frame.body) < 10:
            raise StreamBroken("a SYN_STREAM frame is too short")
        headers = self._read_headers.read(frame.body[10:])
        if len(self._streams) >= _MOST_STREAMS or number in self._streams:
            body = number.to_bytes(4) + _REFUSED_STREAM.to_bytes(4)
            await self.send(encode_control(Kind.RST_STREAM, body))
            return
        reply = number.to_bytes(4) + self._write_headers.write({})
        await self.send(encode_control(Kind.SYN_REPLY, reply))
        if headers.get("streamtype") in self._ignored:
            return
        stream = SpdyStream(self, number, headers)
        self._streams[number] = stream
        self._opened.put_nowait(stream)
        if frame.flags & FIN:
            await stream.feed(b"", is_last=True)
