"""An HTTP connection upgraded: which protocol was granted, the 101 that says so, and its bytes."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Hijacked
from clusterspace.errors import BadRequest

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
