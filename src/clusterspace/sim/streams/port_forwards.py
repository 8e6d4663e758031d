"""One port-forward from its upgrade to its end, and what listens on the ports of a pod."""

import asyncio
from typing import Final

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.request_info import Query
from clusterspace.errors import BadRequest, StreamBroken
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.sim.pods import containers_of
from clusterspace.sim.streams.spdy import SpdySession, SpdyStream
from clusterspace.sim.streams.upgrades import (
    NORMAL,
    PORT_FORWARD,
    TUNNELLED,
    UNNAMED,
    V4,
    BytePipe,
    WebSocket,
    upgrade,
)

_BUFFERED_PIECES: Final = 16
_MAX_PORT: Final = 65535
_METHODS: Final = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ", b"OPTIONS ")
_HEAD_LIMIT: Final = 64 * 1024


class PodListeners:
    """The listeners of one pod: on the ports it declares, or on any when it declares none."""

    def __init__(self, pod: Object) -> None:
        self._pod = pod
        self._ports = frozenset(
            int(port["containerPort"])
            for container in containers_of(pod)
            for port in container.get("ports") or ()
        )

    def refusal(self, port: int) -> str:
        """Return why nothing can be reached at a port."""
        if not self._ports or port in self._ports:
            return ""
        return (
            f"an error occurred forwarding {port} -> {port}: pod {name_of(self._pod)} "
            f"listens on {sorted(self._ports)} only: connection refused"
        )

    async def serve(self, port: int, tunnel: BytePipe) -> None:
        """Answer one connection until one of the two ends it: HTTP with a page, the rest echoed."""
        data = await tunnel.read()
        if not data.startswith(_METHODS):
            while data:
                await tunnel.write(data)
                data = await tunnel.read()
            return
        while data:
            data = await self._answer_http(port, data, tunnel)

    async def _answer_http(self, port: int, data: bytes, tunnel: BytePipe) -> bytes:
        """Answer one request; return what has arrived of the next, nothing at the end."""
        while b"\r\n\r\n" not in data:
            more = await tunnel.read()
            if not more or len(data) > _HEAD_LIMIT:
                return b""
            data += more
        head, _, rest = data.partition(b"\r\n\r\n")
        request_line, *header_lines = head.split(b"\r\n")
        left = -len(rest)
        for line in header_lines:
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length" and value.strip().isdigit():
                left += int(value)
                break
        while left > 0:
            more = await tunnel.read()
            if not more:
                return b""
            rest, left = more, left - len(more)

        method, _, target = request_line.decode("latin-1").partition(" ")
        path = target.partition(" ")[0]
        pod = f"{namespace_of(self._pod)}/{name_of(self._pod)}"
        page = f"{pod}:{port} {method} {path}\n".encode()
        lines = (
            "HTTP/1.1 200 OK",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(page)}",
            "",
            "",
        )
        answer = "\r\n".join(lines).encode()
        await tunnel.write(answer if method == "HEAD" else answer + page)
        if b"connection: close" in head.lower():
            return b""
        following = rest[len(rest) + left :] if left < 0 else b""
        return following or await tunnel.read()


async def serve_port_forward(context: RequestContext, pod: Object) -> None:
    """Upgrade the connection and answer what comes through it until the client has gone."""
    listeners = PodListeners(pod)
    granted = upgrade(context, websocket=(TUNNELLED, V4, UNNAMED), spdy=(PORT_FORWARD,))
    try:
        if not granted.is_websocket:
            await _serve_streams(SpdySession(granted), listeners)
        elif granted.protocol == TUNNELLED:
            await _serve_streams(SpdySession(WebSocket(granted)), listeners)
        else:
            ports = read_ports(context.info.query)
            await _serve_channels(WebSocket(granted), ports, listeners)
    except* (StreamBroken, ConnectionError):
        granted.connection.abort()


def read_ports(query: Query) -> list[int]:
    """Read the ports a WebSocket client wants, in the order of their channels."""
    texts = [each for value in query.get_all("ports") for each in value.split(",")]
    ports = [int(each) for each in texts if each.isascii() and each.isdigit()]
    if not ports or len(ports) != len(texts) or not all(0 < each <= _MAX_PORT for each in ports):
        raise BadRequest(f"ports must be numbers from 1 to {_MAX_PORT}, not {','.join(texts)!r}")
    return ports


# -- SPDY: a pair of streams per connection ----------------------------------------------------


async def _serve_streams(session: SpdySession, listeners: PodListeners) -> None:
    async def serve_pair(data: SpdyStream, errors: SpdyStream | None) -> None:
        pair = [data] if errors is None else [data, errors]
        text = data.headers.get("port", "")
        port = int(text) if text.isascii() and text.isdigit() else 0
        refusal = listeners.refusal(port)
        try:
            if not refusal:
                await listeners.serve(port, data)
            elif errors is not None:
                await errors.write(refusal.encode())
            for stream in pair:
                await stream.end()
        finally:
            for stream in pair:
                session.forget(stream)

    async with asyncio.TaskGroup() as group:
        group.create_task(session.run(), name="port-forward frames")
        # Clients open the error stream of a connection first, and its data stream with the same
        # request id after it: the second of the two is when the connection begins.
        waiting: dict[str, SpdyStream] = {}
        while (stream := await session.accept()) is not None:
            request_id = stream.headers.get("requestid", "")
            if stream.headers.get("streamtype") == "error":
                waiting[request_id] = stream
                continue
            errors = waiting.pop(request_id, None)
            group.create_task(serve_pair(stream, errors), name="forwarded connection")


# -- WebSocket channels: two per port ----------------------------------------------------------


class _ChannelTunnel:
    """The data channel of one port; the first message on it names the port."""

    def __init__(self, socket: WebSocket, channel: int) -> None:
        self._socket = socket
        self._channel = channel
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue(_BUFFERED_PIECES)
        self._is_closed = False

    async def feed(self, data: bytes) -> None:
        # Waits while the buffer is full, and with it all ports of the connection: what holds a
        # fast client back is the socket, which is not read meanwhile.
        if not self._is_closed:
            await self._arrived.put(data)

    def close(self) -> None:
        # Nobody reads any more. A feed that waits for room gets it here; without that the other
        # ports would wait for ever behind one that was refused or has ended.
        self._is_closed = True
        while not self._arrived.empty():
            self._arrived.get_nowait()

    async def read(self) -> bytes:
        return await self._arrived.get()

    async def write(self, data: bytes) -> None:
        await self._socket.send(bytes((self._channel,)) + data)


async def _serve_channels(socket: WebSocket, ports: list[int], listeners: PodListeners) -> None:
    tunnels = [_ChannelTunnel(socket, 2 * index) for index in range(len(ports))]

    async def serve_channel(index: int, port: int) -> None:
        try:
            refusal = listeners.refusal(port)
            if refusal:
                await socket.send(bytes((2 * index + 1,)) + refusal.encode())
            else:
                await listeners.serve(port, tunnels[index])
        finally:
            tunnels[index].close()

    for index, port in enumerate(ports):
        name = port.to_bytes(2, "little")
        await socket.send(bytes((2 * index,)) + name)
        await socket.send(bytes((2 * index + 1,)) + name)
    async with asyncio.TaskGroup() as group:
        for index, port in enumerate(ports):
            group.create_task(serve_channel(index, port), name=f"forwarded port {port}")
        while (message := await socket.receive()) is not None:
            if message[1:] and message[0] % 2 == 0 and message[0] // 2 < len(tunnels):
                await tunnels[message[0] // 2].feed(message[1:])
        for tunnel in tunnels:
            await tunnel.feed(b"")
    await socket.close(NORMAL)
