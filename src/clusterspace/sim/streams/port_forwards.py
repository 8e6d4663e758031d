"""One port-forward from its upgrade to its end."""

import asyncio
from typing import Final, Protocol

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.request_info import Query
from clusterspace.errors import BadRequest, StreamBroken
from clusterspace.sim.streams.byte_pipes import RawPipe
from clusterspace.sim.streams.handshakes import (
    PORT_FORWARD,
    TUNNELLED,
    V4,
    Transport,
    upgrade,
)
from clusterspace.sim.streams.spdy import SpdySession, SpdyStream
from clusterspace.sim.streams.websockets import NORMAL, WebSocket

_HELD_PIECES: Final = 16
_MOST_PORTS: Final = 65535


class Tunnel(Protocol):
    """One connection to a port of a pod."""

    async def read(self) -> bytes:
        """Return what has arrived, waiting for some; nothing means the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes back."""
        ...


class Application(Protocol):
    """What listens on the ports of a pod."""

    def refusal(self, port: int) -> str:
        """Return why nothing can be reached at a port; empty when something listens."""
        ...

    async def serve(self, port: int, tunnel: Tunnel) -> None:
        """Answer one connection until one of the two ends it."""
        ...


async def serve_port_forward(context: RequestContext, application: Application) -> None:
    """Upgrade the connection and answer what comes through it until the client has gone."""
    granted = upgrade(context, websocket=(TUNNELLED, V4), spdy=(PORT_FORWARD,))
    pipe = RawPipe(granted.connection)
    try:
        if granted.transport is Transport.SPDY:
            await _serve_streams(SpdySession(pipe), application)
        elif granted.protocol == TUNNELLED:
            await _serve_streams(SpdySession(WebSocket(pipe)), application)
        else:
            ports = read_ports(context.info.query)
            await _serve_channels(WebSocket(pipe), ports, application)
    except* (StreamBroken, ConnectionError):
        granted.connection.abort()


def read_ports(query: Query) -> list[int]:
    """Read the ports a WebSocket client wants, in the order of their channels."""
    texts = [each for value in query.get_all("ports") for each in value.split(",")]
    ports = [int(each) for each in texts if each.isascii() and each.isdigit()]
    if not ports or len(ports) != len(texts) or not all(0 < each <= _MOST_PORTS for each in ports):
        raise BadRequest(f"ports must be numbers from 1 to {_MOST_PORTS}, not {','.join(texts)!r}")
    return ports


# -- SPDY: a pair of streams per connection ----------------------------------------------------


async def _serve_streams(session: SpdySession, application: Application) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(session.run(), name="port-forward frames")
        waiting: dict[str, SpdyStream] = {}
        while (stream := await session.accept()) is not None:
            request = stream.headers.get("requestid", "")
            if stream.headers.get("streamtype") == "error":
                waiting[request] = stream
                continue
            errors = waiting.pop(request, None)
            group.create_task(
                _serve_pair(session, stream, errors, application), name="forwarded connection"
            )


async def _serve_pair(
    session: SpdySession, data: SpdyStream, errors: SpdyStream | None, application: Application
) -> None:
    text = data.headers.get("port", "")
    port = int(text) if text.isascii() and text.isdigit() else 0
    refusal = application.refusal(port)
    try:
        if refusal and errors is not None:
            await errors.write(refusal.encode())
        elif not refusal:
            await application.serve(port, data)
        for stream in (data, errors):
            if stream is not None:
                await stream.end()
    finally:
        for stream in (data, errors):
            if stream is not None:
                session.forget(stream)


# -- WebSocket channels: two per port ----------------------------------------------------------


class _ChannelTunnel:
    """The data channel of one port; the first message on it names the port."""

    def __init__(self, socket: WebSocket, channel: int) -> None:
        self._socket = socket
        self._channel = channel
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue(_HELD_PIECES)

    async def feed(self, data: bytes) -> None:
        await self._arrived.put(data)

    async def read(self) -> bytes:
        return await self._arrived.get()

    async def write(self, data: bytes) -> None:
        await self._socket.send(bytes((self._channel,)) + data)


async def _serve_channels(socket: WebSocket, ports: list[int], application: Application) -> None:
    tunnels = [_ChannelTunnel(socket, 2 * index) for index in range(len(ports))]
    for index, port in enumerate(ports):
        name = port.to_bytes(2, "little")
        await socket.send(bytes((2 * index,)) + name)
        await socket.send(bytes((2 * index + 1,)) + name)
    async with asyncio.TaskGroup() as group:
        for index, port in enumerate(ports):
            serving = _serve_channel(socket, 2 * index + 1, port, tunnels[index], application)
            group.create_task(serving, name=f"forwarded port {port}")
        while (message := await socket.receive()) is not None:
            if message[1:] and message[0] % 2 == 0 and message[0] // 2 < len(tunnels):
                await tunnels[message[0] // 2].feed(message[1:])
        for tunnel in tunnels:
            await tunnel.feed(b"")
    await socket.close(NORMAL)


async def _serve_channel(
    socket: WebSocket, errors: int, port: int, tunnel: _ChannelTunnel, application: Application
) -> None:
    refusal = application.refusal(port)
    if refusal:
        await socket.send(bytes((errors,)) + refusal.encode())
    else:
        await application.serve(port, tunnel)
