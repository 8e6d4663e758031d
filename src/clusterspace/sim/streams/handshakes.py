"""Which protocol was asked for, and the 101 that grants it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.streams import Hijacked
from clusterspace.errors import BadRequest
from clusterspace.sim.streams.websockets import accept_key

V5: Final = "v5.channel.k8s.io"
V4: Final = "v4.channel.k8s.io"
PORT_FORWARD: Final = "portforward.k8s.io"
TUNNELLED: Final = f"SPDY/3.1+{PORT_FORWARD}"

COMMAND_PROTOCOLS: Final = (V5, V4)
_SPDY: Final = "SPDY/3.1"


class Transport(Enum):
    """What carries the streams."""

    WEBSOCKET = "websocket"
    SPDY = "spdy"


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A granted upgrade."""

    transport: Transport
    protocol: str
    connection: Hijacked


def upgrade(context: RequestContext, *, websocket: Sequence[str], spdy: Sequence[str]) -> Upgrade:
    """Grant the first protocol the client names that is spoken here; BadRequest when none is."""
    if not context.request.is_upgrade:
        raise BadRequest("Upgrade request required")
    wanted = context.header("upgrade").lower()
    if wanted == "websocket":
        protocol = _choose(_named(context, "sec-websocket-protocol"), websocket)
        return Upgrade(Transport.WEBSOCKET, protocol, _grant_websocket(context, protocol))
    if wanted == _SPDY.lower():
        protocol = _choose(_named(context, "x-stream-protocol-version"), spdy)
        return Upgrade(Transport.SPDY, protocol, _grant_spdy(context, protocol))
    raise BadRequest(
        f"unable to upgrade: {wanted!r} is not spoken here, SPDY/3.1 and websocket are"
    )


def _named(context: RequestContext, header: str) -> list[str]:
    lines = context.request.headers.get_all(header)
    return [name.strip() for line in lines for name in line.split(",") if name.strip()]


def _choose(named: Sequence[str], spoken: Sequence[str]) -> str:
    for name in named:
        if name in spoken:
            return name
    raise BadRequest(
        f"unable to upgrade: none of the protocols {list(named)} is spoken here, {list(spoken)} are"
    )


def _grant_websocket(context: RequestContext, protocol: str) -> Hijacked:
    key = context.header("sec-websocket-key")
    if not key or context.header("sec-websocket-version") != "13":
        raise BadRequest("unable to upgrade: not a WebSocket handshake of version 13")
    lines = (
        "Upgrade: websocket",
        f"Sec-WebSocket-Accept: {accept_key(key)}",
        f"Sec-WebSocket-Protocol: {protocol}",
    )
    return _switch(context, lines)


def _grant_spdy(context: RequestContext, protocol: str) -> Hijacked:
    return _switch(context, (f"Upgrade: {_SPDY}", f"X-Stream-Protocol-Version: {protocol}"))


def _switch(context: RequestContext, lines: Sequence[str]) -> Hijacked:
    connection = context.request.hijack()
    head = ("HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", *lines, "", "")
    connection.write("\r\n".join(head).encode())
    return connection
