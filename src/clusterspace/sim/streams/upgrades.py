"""An HTTP connection upgraded: which protocol was granted, the 101 that says so, and its bytes."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Hijacked
from clusterspace.errors import BadRequest, StreamBroken

V5: Final = "v5.channel.k8s.io"
V4: Final = "v4.channel.k8s.io"
UNNAMED: Final = ""
"""What a client speaks that names no protocol: channels, as before they had versions. Kubelets
grant that over WebSocket, and say nothing of a protocol either."""
PORT_FORWARD: Final = "portforward.k8s.io"
TUNNELLED: Final = f"SPDY/3.1+{PORT_FORWARD}"

_SPDY: Final = "SPDY/3.1"
_WEBSOCKET_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""The fixed text of the handshake (RFC 6455, section 1.3)."""

_READ_SIZE: Final = 64 * 1024


class BytePipe(Protocol):
    """A connection that carries bytes: a raw one, or one inside WebSocket messages."""

    async def read(self) -> bytes:
        """Return the bytes that have arrived, waiting for some; empty at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes, waiting for room; ConnectionError when the peer has gone."""
        ...


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A connection that has left HTTP for a protocol that was granted; a BytePipe."""

    is_websocket: bool
    """What carries the streams: WebSocket messages, or else SPDY frames."""
    protocol: str
    connection: Hijacked

    async def read(self) -> bytes:
        """Return the bytes that have arrived."""
        return await self.connection.reader.read(_READ_SIZE)

    async def write(self, data: bytes) -> None:
        """Send bytes."""
        self.connection.write(data)
        await self.connection.drain()


class PipeReader:
    """Exact amounts of bytes from a pipe."""

    def __init__(self, pipe: BytePipe) -> None:
        self._pipe = pipe
        self._buffer = bytearray()

    async def read_exactly(self, count: int) -> bytes | None:
        """Return so many bytes; None when the pipe ends before they are there."""
        while len(self._buffer) < count:
            arrived = await self._pipe.read()
            if not arrived:
                return None
            self._buffer += arrived
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken


def upgrade(context: RequestContext, *, websocket: Sequence[str], spdy: Sequence[str]) -> Upgrade:
    """Grant the first protocol the client names that is spoken here; BadRequest when none is."""
    if not context.request.is_upgrade:
        raise BadRequest("Upgrade request required")
    asked = context.header("upgrade").lower()
    if asked == "websocket":
        protocol = _choose(context, "sec-websocket-protocol", websocket)
        key = context.header("sec-websocket-key")
        if not key or context.header("sec-websocket-version") != "13":
            raise BadRequest("unable to upgrade: not a WebSocket handshake of version 13")
        granted = (
            "Upgrade: websocket",
            f"Sec-WebSocket-Accept: {accept_key(key)}",
            *((f"Sec-WebSocket-Protocol: {protocol}",) if protocol else ()),
        )
    elif asked == _SPDY.lower():
        protocol = _choose(context, "x-stream-protocol-version", spdy)
        granted = (f"Upgrade: {_SPDY}", f"X-Stream-Protocol-Version: {protocol}")
    else:
        raise BadRequest(
            f"unable to upgrade: {asked!r} is not spoken here, SPDY/3.1 and websocket are"
        )
    connection = context.request.hijack()
    head = ("HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", *granted, "", "")
    connection.write("\r\n".join(head).encode())
    return Upgrade(asked == "websocket", protocol, connection)


def _choose(context: RequestContext, header: str, spoken: Sequence[str]) -> str:
    lines = context.request.headers.get_all(header)
    named = [name.strip() for line in lines for name in line.split(",") if name.strip()]
    for name in named or (UNNAMED,):
        if name in spoken:
            return name
    raise BadRequest(
        f"unable to upgrade: none of the protocols {named} is spoken here, {list(spoken)} are"
    )


def accept_key(key: str) -> str:
    """Return the Sec-WebSocket-Accept of a client's key.

    >>> accept_key("dGhlIHNhbXBsZSBub25jZQ==")
    's3pPLMBiTxaQ9kYGzzhZRbK+xOo='
    """
    digest = hashlib.sha1((key + _WEBSOCKET_GUID).encode(), usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


# -- WebSockets: RFC 6455, the server's half ------------------------------------------------------

MESSAGE_LIMIT: Final = 4 * 1024 * 1024
_CONTROL_LIMIT: Final = 125

NORMAL: Final = 1000
TOO_BIG: Final = 1009


class Opcode(IntEnum):
    """The type of a frame."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, unmasked."""

    opcode: Opcode
    payload: bytes
    is_final: bool = True


def encode_frame(opcode: Opcode, payload: bytes) -> bytes:
    """Return a whole, unmasked frame, as servers send them."""
    size = len(payload)
    if size < 126:
        length = bytes((size,))
    elif size < 1 << 16:
        length = b"\x7e" + size.to_bytes(2)
    else:
        length = b"\x7f" + size.to_bytes(8)
    return bytes((0x80 | opcode,)) + length + payload


def unmask(payload: bytes, mask: bytes) -> bytes:
    """Take a client's mask off, all bytes at once."""
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload) ^ int.from_bytes(key)).to_bytes(size) if size else b""


async def read_frame(reader: PipeReader) -> Frame | None:
    """Read one frame of a client; None when the connection ends first."""
    head = await reader.read_exactly(2)
    if head is None:
        return None
    if head[0] & 0x70:
        raise StreamBroken("a reserved bit is set and no extension was agreed on")
    if not head[1] & 0x80:
        raise StreamBroken("a frame from a client must be masked")
    try:
        opcode = Opcode(head[0] & 0x0F)
    except ValueError as error:
        raise StreamBroken(f"opcode {head[0] & 0x0F} is not known") from error
    is_final, size = bool(head[0] & 0x80), head[1] & 0x7F
    if opcode >= Opcode.CLOSE and (size > _CONTROL_LIMIT or not is_final):
        raise StreamBroken("a control frame must be short and whole")
    if size >= 126:
        more = await reader.read_exactly(2 if size == 126 else 8)
        if more is None:
            return None
        size = int.from_bytes(more)
    if size > MESSAGE_LIMIT:
        raise StreamBroken(f"a frame of {size} bytes is over the limit", close_code=TOO_BIG)
    mask = await reader.read_exactly(4)
    payload = None if mask is None else await reader.read_exactly(size)
    if mask is None or payload is None:
        return None
    return Frame(opcode, unmask(payload, mask), is_final)


class WebSocket:
    """Messages both ways on one connection."""

    def __init__(self, pipe: BytePipe) -> None:
        self._pipe = pipe
        self._reader = PipeReader(pipe)
        self._is_closed = False

    async def receive(self) -> bytes | None:
        """Return the next message, its fragments joined; None when there will be no more."""
        pieces: list[bytes] = []
        try:
            while True:
                frame = await read_frame(self._reader)
                if frame is None or frame.opcode is Opcode.CLOSE:
                    await self.close(NORMAL)
                    return None
                if frame.opcode is Opcode.PING:
                    await self._pipe.write(encode_frame(Opcode.PONG, frame.payload))
                if frame.opcode in (Opcode.PING, Opcode.PONG):
                    continue  # these may come between the fragments of a message
                if (frame.opcode is Opcode.CONTINUATION) != bool(pieces):
                    raise StreamBroken(
                        "a fragment without a beginning, or a beginning inside a message"
                    )
                pieces.append(frame.payload)  # an empty first fragment still is one
                if sum(map(len, pieces)) > MESSAGE_LIMIT:
                    raise StreamBroken("a message is over the limit", close_code=TOO_BIG)
                if frame.is_final:
                    return b"".join(pieces)
        except StreamBroken as error:
            await self.close(error.close_code, str(error))
            raise

    async def send(self, message: bytes) -> None:
        """Send a binary message."""
        if not self._is_closed:
            await self._pipe.write(encode_frame(Opcode.BINARY, message))

    async def close(self, code: int, reason: str = "") -> None:
        """Send the close frame, once; a peer that has gone needs none."""
        if self._is_closed:
            return
        self._is_closed = True
        payload = code.to_bytes(2) + reason.encode()[: _CONTROL_LIMIT - 2]
        try:
            await self._pipe.write(encode_frame(Opcode.CLOSE, payload))
        except ConnectionError:
            return

    # -- as a BytePipe, for protocols that travel inside messages ------------------------------

    async def read(self) -> bytes:
        """Return the next message that is not empty; nothing means the end."""
        while True:
            message = await self.receive()
            if message is None:
                return b""
            if message:
                return message

    async def write(self, data: bytes) -> None:
        """Send bytes as one message."""
        await self.send(data)
