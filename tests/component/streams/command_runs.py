"""Commands run through the hub and the fleet by clients of our own, which count every byte."""

import asyncio
import base64
import hashlib
import json
import ssl
import struct
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from tests.component.gateway.fleet_site import ROOT, Site, fleet_site, member_at
from tests.component.streams.exec_member import digest, exec_member, pieces

from clusterspace.apiserver.http.spdy_frames import DICTIONARY

MEMBER = "nasty"
POD = "/api/v1/namespaces/default/pods/web"
PATHS = {
    "fleet": f"/clusterspaces/{MEMBER}{POD}",
    "hub": f"/apis/cluster.karmada.io/v1alpha1/clusters/{MEMBER}/proxy{POD}",
}
PROTOCOLS = ("websocket", "spdy")
PATIENCE = 300.0


@dataclass(frozen=True)
class Run:
    """A command: which way, what, and how its member closes."""

    way: str
    protocol: str
    verb: str
    size: int
    number: int
    close: str
    is_slow: bool = False
    """Whether the client is slower than the member."""


@dataclass
class Outcome:
    """What a client knows in the end. No status and no error is success, to kubectl over SPDY."""

    count: int = 0
    digest: str = ""
    said: bytes = b""
    status: bytes = b""
    is_closed: bool = False
    """Whether a WebSocket was closed in good order."""

    def exit_code(self, protocol: str) -> int | None:
        """Return the code kubectl would exit with; None when it would report an error."""
        if not self.status:
            return 0 if protocol == "spdy" or self.is_closed else None
        try:
            status: dict[str, Any] = json.loads(self.status)
        except ValueError:
            return None
        if status["status"] == "Success":
            return 0
        if status.get("reason") != "NonZeroExitCode":
            return None
        return int(status["details"]["causes"][0]["message"])


@asynccontextmanager
async def nasty_fleet(directory: Path) -> AsyncGenerator[Site]:
    """Run a hub and a fleet API server with one member that closes as it is told."""
    with exec_member() as port:
        async with (
            fleet_site(directory, members=("east",)) as site,
            member_at(site, MEMBER, f"https://127.0.0.1:{port}"),
        ):
            yield site


def problem_with(run: Run, outcome: Outcome) -> str:
    """Return what is wrong with how a run went; empty if nothing is."""
    code = outcome.exit_code(run.protocol)
    if run.verb == "break":
        if code is not None:
            return f"{run}: a broken stream is reported as exit code {code}"
        lost = run.number - outcome.count
        return f"{run}: {lost} bytes that arrived are lost" if lost and run.close != "reset" else ""
    if code != run.number:
        return f"{run}: exit code {code}, {outcome.count} bytes, status {outcome.status!r}"
    if run.verb == "hear":
        expected = f"{run.size} {digest(run.size)}".encode()
        return "" if outcome.said == expected else f"{run}: the member heard {outcome.said!r}"
    if (outcome.count, outcome.digest) != (run.size, digest(run.size)):
        return f"{run}: {outcome.count} bytes of {run.size}, or others"
    return ""


async def carry_out(site: Site, run: Run) -> Outcome:
    """Run a command to its end."""
    client = await begin(site, run)
    try:
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            if run.verb == "hear":
                group.create_task(client.send(run.size))
            await client.receive(is_slow=run.is_slow)
    finally:
        client.writer.transport.abort()
    return client.outcome


async def begin(site: Site, run: Run) -> "CommandClient":
    """Begin a command and open its streams."""
    is_hub = run.way == "hub"
    url = site.hub.settings.server if is_hub else site.url
    place = urlsplit(url)
    pki = site.directory / ("hub" if is_hub else site.data_name) / "pki" / "ca.crt"
    trust = ssl.create_default_context(cafile=str(pki))
    words = (run.verb, str(run.size), str(run.number), run.close)
    query = "&".join(f"command={quote(word)}" for word in words)
    target = f"{PATHS[run.way]}/exec?stdin=true&stdout=true&{query}"
    reader, writer = await asyncio.open_connection(place.hostname, place.port, ssl=trust)
    client = (WebSocketRun if run.protocol == "websocket" else SpdyRun)(reader, writer)
    lines = (
        f"{client.METHOD} {target} HTTP/1.1",
        f"Host: {place.netloc}",
        f"Authorization: Bearer {ROOT}",
        "Connection: Upgrade",
        *client.HEADERS,
        "",
        "",
    )
    writer.write("\r\n".join(lines).encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101"), head + await reader.read(1000)
    client.open()
    return client


class CommandClient:
    """The client's half of a command."""

    METHOD = ""
    HEADERS: tuple[str, ...] = ()

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.outcome = Outcome()
        self._found = hashlib.sha256()

    def open(self) -> None:
        raise NotImplementedError

    async def send(self, size: int) -> None:
        raise NotImplementedError

    async def take_frame(self) -> bool:
        raise NotImplementedError

    async def receive(self, *, is_slow: bool) -> None:
        """Read to the end; a slow client lets others work after every few frames."""
        with suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            count = 0
            while await self.take_frame():
                count += 1
                if is_slow and count % 8 == 0:
                    await asyncio.sleep(0.002)
        self.outcome.digest = self._found.hexdigest()

    def take_stdout(self, piece: bytes) -> None:
        self.outcome.count += len(piece)
        self._found.update(piece)
        if len(self.outcome.said) < 1000:
            self.outcome.said += piece[:1000]


class WebSocketRun(CommandClient):
    METHOD = "GET"
    HEADERS = (
        "Upgrade: websocket",
        f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Protocol: v5.channel.k8s.io",
    )

    def open(self) -> None:
        """Channels are not announced."""

    async def send(self, size: int) -> None:
        for piece in (*pieces(size), None):
            payload = b"\xff\x00" if piece is None else b"\x00" + piece
            length = len(payload)
            head = bytes((0x80 | length,)) if length < 126 else b"\xfe" + length.to_bytes(2)
            self.writer.write(b"\x82" + head + bytes(4) + payload)
            await self.writer.drain()

    async def take_frame(self) -> bool:
        first, size = await self.reader.readexactly(2)
        if size >= 126:
            size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8))
        payload = await self.reader.readexactly(size)
        if first & 0x0F == 8:
            self.outcome.is_closed = True
            return False
        if payload[:1] == b"\x01":
            self.take_stdout(payload[1:])
        elif payload[:1] == b"\x03":
            self.outcome.status += payload[1:]
        return True


class SpdyRun(CommandClient):
    METHOD = "POST"
    HEADERS = (
        "Upgrade: SPDY/3.1",
        "X-Stream-Protocol-Version: v4.channel.k8s.io",
        "Content-Length: 0",
    )
    STREAMS: ClassVar = {"error": 1, "stdin": 3, "stdout": 5}

    def open(self) -> None:
        deflate = zlib.compressobj(zdict=DICTIONARY)
        for name, number in self.STREAMS.items():
            words = (b"streamtype", name.encode())
            text = struct.pack(">I", 1) + b"".join(struct.pack(">I", len(x)) + x for x in words)
            block = deflate.compress(text) + deflate.flush(zlib.Z_SYNC_FLUSH)
            body = struct.pack(">IIH", number, 0, 0) + block
            self.writer.write(struct.pack(">II", 0x80030001, len(body)) + body)

    async def send(self, size: int) -> None:
        for piece in (*pieces(size), b""):
            flags = 0 if piece else 1 << 24
            self.writer.write(struct.pack(">II", self.STREAMS["stdin"], flags | len(piece)) + piece)
            await self.writer.drain()

    async def take_frame(self) -> bool:
        first, second = struct.unpack(">II", await self.reader.readexactly(8))
        body = await self.reader.readexactly(second & 0xFFFFFF)
        if first == self.STREAMS["stdout"]:
            self.take_stdout(body)
        elif first == self.STREAMS["error"]:
            self.outcome.status += body
        # kubectl reads until the error stream has ended, and everything else with it.
        is_end = first == self.STREAMS["error"] and second >> 24 & 1
        return not is_end
