"""Stream clients written by hand, and a server with one simulated pod to talk to."""

import asyncio
import base64
import struct
import zlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.listener import HttpServer
from clusterspace.apiserver.http.messages import Request, Response, refusal
from clusterspace.apiserver.http.request_info import read_request
from clusterspace.apiserver.http.spdy_frames import DICTIONARY
from clusterspace.errors import ApiError
from clusterspace.kube.objects import Object
from clusterspace.sim import pods
from clusterspace.sim.api import Mirror
from clusterspace.sim.containers import Containers, Programs
from clusterspace.sim.pod_subresources import PodSubresources

PATIENCE = 30.0
POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-0", "namespace": "default", "uid": "uid-of-web-0"},
    "spec": {
        "nodeName": "a",
        "containers": [{"name": "web", "image": "web:1", "ports": [{"containerPort": 80}]}],
    },
}


@asynccontextmanager
async def pod_server() -> AsyncGenerator[int]:
    """Serve the subresources of one running pod, without a hub around it; yield the port."""
    clock, mirror = SystemClock(), Mirror()
    ready = pods.made_ready(pods.started(POD, "10.0.0.2", "172.0.0.1", clock.now()), clock.now())
    mirror.changed(ready)
    containers = Containers(clock)
    programs = Programs(containers, clock)
    pod_subresources = PodSubresources(containers, programs, mirror, clock)
    subresources = {
        "log": pod_subresources.log,
        "exec": pod_subresources.execute,
        "attach": pod_subresources.attach,
        "portforward": pod_subresources.port_forward,
    }

    async def handle(request: Request) -> Response | None:
        context = RequestContext(
            request, read_request(request.method, request.path, request.query), ""
        )
        try:
            return await subresources[context.info.subresource](context, ready)
        except ApiError as error:
            return refusal(error)

    server = HttpServer(handle)
    await server.listen("127.0.0.1", 0)
    try:
        yield server.addresses[0][1]
    finally:
        await server.drain(1.0)


@dataclass
class Connection:
    """One upgraded connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    async def read_exactly(self, count: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(count), PATIENCE)

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


async def ask(port: int, method: str, path: str, *headers: str) -> tuple[int, Connection]:
    """Send a request head and read the head of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    target = f"/api/v1/namespaces/default/pods/web-0/{path}"
    lines = (f"{method} {target} HTTP/1.1", "Host: x", *headers, "", "")
    writer.write("\r\n".join(lines).encode())
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    first, *rest = head.decode().strip().split("\r\n")
    pairs = (line.split(": ", 1) for line in rest)
    found = {name.lower(): value for name, value in pairs}
    return int(first.split()[1]), Connection(reader, writer, found)


class WebSocketClient:
    """The client's half of RFC 6455."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    async def connect(cls, port: int, path: str, protocol: str) -> "WebSocketClient":
        key = base64.b64encode(b"0123456789abcdef").decode()
        status, connection = await ask(
            port,
            "GET",
            path,
            "Connection: Upgrade",
            "Upgrade: websocket",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            *((f"Sec-WebSocket-Protocol: {protocol}",) if protocol else ()),
        )
        assert status == 101
        assert connection.headers.get("sec-websocket-protocol", "") == protocol
        return cls(connection)

    async def send(self, message: bytes) -> None:
        size = len(message)
        length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2)
        self._connection.writer.write(b"\x82" + length + b"\0\0\0\0" + message)
        await self._connection.writer.drain()

    async def receive(self) -> bytes | None:
        """Return the next message; None for a close."""
        first, second = await self._connection.read_exactly(2)
        size = second
        if second >= 126:
            size = int.from_bytes(await self._connection.read_exactly(2 if second == 126 else 8))
        payload = await self._connection.read_exactly(size)
        return None if first & 0x0F == 8 else payload

    async def rest(self) -> dict[int, bytes]:
        """Return everything up to the close, by channel."""
        found: dict[int, bytes] = {}
        while (message := await self.receive()) is not None:
            found[message[0]] = found.get(message[0], b"") + message[1:]
        return found

    async def close(self) -> None:
        await self._connection.close()


class Bytes:
    """Bytes both ways, raw or inside WebSocket messages."""

    def __init__(self, carrier: Connection | WebSocketClient) -> None:
        self._carrier = carrier
        self._held = b""

    async def write(self, data: bytes) -> None:
        if isinstance(self._carrier, WebSocketClient):
            await self._carrier.send(data)
            return
        self._carrier.writer.write(data)
        await self._carrier.writer.drain()

    async def read_exactly(self, count: int) -> bytes:
        if isinstance(self._carrier, Connection):
            return await self._carrier.read_exactly(count)
        while len(self._held) < count:
            message = await self._carrier.receive()
            assert message is not None, "the tunnel was closed"
            self._held += message
        taken, self._held = self._held[:count], self._held[count:]
        return taken

    async def close(self) -> None:
        await self._carrier.close()


class SpdyClient:
    """The client's half of SPDY/3.1, as much of it as streams need."""

    def __init__(self, carrier: Connection | WebSocketClient) -> None:
        self._bytes = Bytes(carrier)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._next = 1
        self.received: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.replied: set[int] = set()
        self.pings: list[bytes] = []

    @classmethod
    async def connect(cls, port: int, path: str, protocol: str) -> "SpdyClient":
        status, connection = await ask(
            port,
            "POST",
            path,
            "Connection: Upgrade",
            "Upgrade: SPDY/3.1",
            f"X-Stream-Protocol-Version: {protocol}",
            "Content-Length: 0",
        )
        assert status == 101
        assert connection.headers["x-stream-protocol-version"] == protocol
        return cls(connection)

    async def open(self, **headers: str) -> int:
        """Open a stream and return its number."""
        number, self._next = self._next, self._next + 2
        text = struct.pack(">I", len(headers))
        for pair in headers.items():
            text += b"".join(struct.pack(">I", len(each)) + each.encode() for each in pair)
        block = self._deflate.compress(text) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        await self._control(1, struct.pack(">IIH", number, 0, 0) + block)
        return number

    async def send(self, stream: int, data: bytes, *, is_last: bool = False) -> None:
        flags = (1 << 24) if is_last else 0
        await self._bytes.write(struct.pack(">II", stream, flags | len(data)) + data)

    async def ping(self, number: int) -> None:
        await self._control(6, number.to_bytes(4))

    async def read(self) -> None:
        """Take one frame."""
        first, second = struct.unpack(">II", await self._bytes.read_exactly(8))
        flags, body = second >> 24, await self._bytes.read_exactly(second & 0xFFFFFF)
        if first & 0x80000000:
            kind = first & 0xFFFF
            if kind == 2:
                self.replied.add(int.from_bytes(body[:4]))
            elif kind == 6:
                self.pings.append(body)
            return
        self.received[first] = self.received.get(first, b"") + body
        if flags & 1:
            self.ended.add(first)

    async def read_until_ended(self, *streams: int) -> None:
        while not set(streams) <= self.ended:
            await self.read()

    async def close(self) -> None:
        await self._bytes.close()

    async def _control(self, kind: int, body: bytes) -> None:
        await self._bytes.write(struct.pack(">II", 0x80030000 | kind, len(body)) + body)
