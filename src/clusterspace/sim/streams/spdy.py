"""SPDY/3.1 as Kubernetes clients speak it, the server's half: they open streams, we answer on them.

    control  1 | version 15 | type 16 | flags 8 | length 24 | …
    data     0 | stream 31            | flags 8 | length 24 | …

https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/

There is no flow control per stream: Kubernetes' own client and server have none. What holds a fast
client back is the connection itself, which is not read while a stream's buffer is full.
"""

import asyncio
import contextlib
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from clusterspace.errors import StreamBroken
from clusterspace.sim.streams.upgrades import BytePipe, PipeReader

VERSION: Final = 3
FIN: Final = 0x01
FRAME_LIMIT: Final = 1 << 20
_HEADER_LIMIT: Final = 64 * 1024
_CONTROL_BIT: Final = 0x80000000
_ID_MASK: Final = 0x7FFFFFFF
_HEAD: Final = struct.Struct(">II")

_NAMES: Final = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language "
    "accept-ranges age allow authorization cache-control connection content-base "
    "content-encoding content-language content-length content-location content-md5 "
    "content-range content-type date etag expect expires from host if-match if-modified-since "
    "if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer "
    "transfer-encoding upgrade user-agent vary via warning www-authenticate method get status"
)
_WORDS: Final = (
    *re.findall("[^ ]+", _NAMES),
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
)
_TAIL: Final = (
    "origin100101201202205206300302303304305306307402405406407408409410411412413414415416417502"
    "504505203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 "
    "Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service "
    "UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, "
    "Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml"
    "+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset="
    "iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = (
    b"".join(struct.pack(">I", len(word)) + word.encode() for word in _WORDS)
    + struct.pack(">I", len("origin"))
    + _TAIL.encode()
)
"""What both sides' compressors start with (section 2.6.10.1): no header is sent without it."""


class Kind(IntEnum):
    """The type of a control frame."""

    SYN_STREAM = 1
    SYN_REPLY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    HEADERS = 8
    WINDOW_UPDATE = 9


@dataclass(frozen=True, slots=True)
class Control:
    """A control frame, its body not read yet."""

    kind: int
    flags: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes of one stream."""

    stream: int
    flags: int
    payload: bytes

    @property
    def is_last(self) -> bool:
        """Whether the stream's sender sends no more."""
        return bool(self.flags & FIN)


async def read_frame(reader: PipeReader) -> Control | Data | None:
    """Read one frame; None when the connection ends first."""
    head = await reader.read_exactly(_HEAD.size)
    if head is None:
        return None
    first, second = _HEAD.unpack(head)
    flags, size = second >> 24, second & 0xFFFFFF
    if size > FRAME_LIMIT:
        raise StreamBroken(f"a frame of {size} bytes is over the limit")
    payload = await reader.read_exactly(size)
    if payload is None:
        return None
    if not first & _CONTROL_BIT:
        return Data(first, flags, payload)
    if (first >> 16) & 0x7FFF != VERSION:
        raise StreamBroken(f"version {(first >> 16) & 0x7FFF} of SPDY is not spoken here, 3 is")
    return Control(first & 0xFFFF, flags, payload)


def encode_control(kind: Kind, body: bytes, flags: int = 0) -> bytes:
    """Return a control frame."""
    first = _CONTROL_BIT | VERSION << 16 | kind
    return _HEAD.pack(first, flags << 24 | len(body)) + body


def encode_data(stream: int, payload: bytes, *, is_last: bool = False) -> bytes:
    """Return a data frame."""
    flags = FIN if is_last else 0
    return _HEAD.pack(stream, flags << 24 | len(payload)) + payload


def read_id(body: bytes) -> int:
    """Return the stream or ping number a control frame begins with."""
    if len(body) < 4:
        raise StreamBroken("a control frame is too short")
    return int.from_bytes(body[:4]) & _ID_MASK


class HeaderReader:
    """Reads header blocks; every one must pass through here, for they share one compressor."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)

    def read(self, block: bytes) -> dict[str, str]:
        """Return the headers of a block, names in lower case."""
        try:
            text = self._inflate.decompress(block, _HEADER_LIMIT)
        except zlib.error as error:
            raise StreamBroken(f"a header block cannot be read: {error}") from error
        if self._inflate.unconsumed_tail:
            raise StreamBroken("a header block is over the limit")
        # A count, then name and value in turn, each with its length before it.
        offset = 4
        words: list[str] = []
        try:
            for _ in range(2 * struct.unpack_from(">I", text, 0)[0]):
                (size,) = struct.unpack_from(">I", text, offset)
                words.append(text[offset + 4 : offset + 4 + size].decode())
                offset += 4 + size
        except (struct.error, UnicodeDecodeError) as error:
            raise StreamBroken("a header block is cut short or is not text") from error
        return {name.lower(): value for name, value in zip(words[::2], words[1::2], strict=True)}


class HeaderWriter:
    """Writes header blocks, in the order in which they are sent."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def write(self, headers: Mapping[str, str]) -> bytes:
        """Return the block of these headers."""
        text = [struct.pack(">I", len(headers))]
        for pair in headers.items():
            text += [struct.pack(">I", len(each.encode())) + each.encode() for each in pair]
        return self._deflate.compress(b"".join(text)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


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
        self.number = number
        self.headers = headers

    async def read(self) -> bytes:
        """Return the bytes that have arrived, waiting for some; empty at the end."""
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
        """Drop what is buffered: the client wants no more of this stream, or has gone."""
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
                stream.reset()
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
