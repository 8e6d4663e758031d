"""A client that sends exactly the bytes it is told to, and a server to send them to."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.connections import Limits, Observer
from clusterspace.apiserver.http.listener import HttpServer, server_context
from clusterspace.apiserver.http.messages import Handler, Request, Response
from clusterspace.testing.clocks import ManualClock

PATIENCE = 30.0
"""No test waits longer than this for anything."""


class LoggedErrors:
    """The error lines of one test; those it expects are taken out by name."""

    def __init__(self, entries: Sequence[MutableMapping[str, Any]]) -> None:
        self._entries = entries
        self._expected: list[str] = []

    def expect(self, event: str) -> MutableMapping[str, Any]:
        """Return the one line with this event, and count it as expected."""
        (entry,) = [each for each in self._entries if each["event"] == event]
        self._expected.append(event)
        return entry

    def unexpected(self) -> list[MutableMapping[str, Any]]:
        return [
            each
            for each in self._entries
            if each["log_level"] in ("warning", "error", "critical")
            and each["event"] not in self._expected
        ]


@dataclass(frozen=True)
class Pki:
    """Files of a test authority, and the certificate of its one user."""

    directory: Path
    alice: bytes

    def server_context(self) -> ssl.SSLContext:
        return server_context(
            self.directory / "server.crt",
            self.directory / "server.key",
            client_authorities=[self.directory / "ca.crt"],
        )

    def client_context(self, user: str = "") -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.directory / "ca.crt"))
        if user:
            context.load_cert_chain(self.directory / f"{user}.crt", self.directory / f"{user}.key")
        return context


@dataclass(frozen=True)
class Answer:
    """One answer, read by its own framing."""

    status: int
    headers: dict[str, str]
    body: bytes

    def status_message(self) -> str:
        """The message of a v1 Status body, which must agree with the status line."""
        status = msgspec.json.decode(self.body)
        assert (status["kind"], status["apiVersion"]) == ("Status", "v1")
        assert status["code"] == self.status
        return status["message"]


class Counter(Observer):
    """Counts everything a server tells."""

    def __init__(self) -> None:
        self.opened = self.closed = self.rejected = self.evicted = 0
        self.handshakes_failed = self.stalled = 0
        self.refused: list[int] = []

    def connection_opened(self) -> None:
        self.opened += 1

    def connection_closed(self) -> None:
        self.closed += 1

    def connection_rejected(self) -> None:
        self.rejected += 1

    def newcomer_evicted(self) -> None:
        self.evicted += 1

    def handshake_failed(self) -> None:
        self.handshakes_failed += 1

    def request_refused(self, code: int) -> None:
        self.refused.append(code)

    def connection_stalled(self) -> None:
        self.stalled += 1


class RawClient:
    """One connection, seen as bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(PATIENCE):
            raw = await self.reader.readuntil(b"\r\n\r\n")
        line, *lines = raw.decode().removesuffix("\r\n\r\n").split("\r\n")
        pairs = (each.split(": ", 1) for each in lines)
        return int(line.split(" ")[1]), {name.lower(): value for name, value in pairs}

    async def answer(self, *, to_head: bool = False) -> Answer:
        status, headers = await self.head()
        async with asyncio.timeout(PATIENCE):
            if headers.get("transfer-encoding") == "chunked":
                return Answer(status, headers, b"".join([each async for each in self.chunks()]))
            length = 0 if to_head else int(headers.get("content-length", "0"))
            return Answer(status, headers, await self.reader.readexactly(length))

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self.chunk():
            yield chunk

    async def chunk(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def ask(self, raw: bytes) -> Answer:
        await self.send(raw)
        return await self.answer()

    async def rest(self) -> bytes:
        """Everything up to the end of the connection, however it ends."""
        collected = b""
        async with asyncio.timeout(PATIENCE):
            try:
                while piece := await self.reader.read(65536):
                    collected += piece
            except ConnectionResetError:
                return collected
        return collected

    def stop_reading(self) -> None:
        """Leave what comes in the kernel's buffers, and then on the server's side."""
        cast("asyncio.Transport", self.writer.transport).pause_reading()

    def resume_reading(self) -> None:
        cast("asyncio.Transport", self.writer.transport).resume_reading()

    def close(self) -> None:
        self.writer.close()

    def vanish(self) -> None:
        """Go with a reset, as a process does that is killed with bytes unread."""
        plain = self.writer.get_extra_info("socket")
        if plain is not None and plain.fileno() >= 0:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class Running:
    """A server on a loopback port, and the clients a test opened to it."""

    def __init__(self, server: HttpServer, client_tls: ssl.SSLContext | None) -> None:
        self.server = server
        self.host, self.port = server.addresses[0]
        self._client_tls = client_tls
        self._clients: list[RawClient] = []

    async def client(self, tls: ssl.SSLContext | None = None, *, address: str = "") -> RawClient:
        reader, writer = await asyncio.open_connection(
            self.host,
            self.port,
            ssl=tls or self._client_tls,
            local_addr=(address, 0) if address else None,
        )
        client = RawClient(reader, writer)
        self._clients.append(client)
        return client

    async def ask(self, raw: bytes) -> Answer:
        return await (await self.client()).ask(raw)

    def close_clients(self) -> None:
        for each in self._clients:
            each.vanish()


@asynccontextmanager
async def running(
    handler: Handler,
    *,
    limits: Limits | None = None,
    observer: Observer | None = None,
    pki: Pki | None = None,
    tls: ssl.SSLContext | None = None,
    client_tls: ssl.SSLContext | None = None,
    clock: Clock | None = None,
) -> AsyncGenerator[Running]:
    """Serve one handler until the block ends; with TLS when there is a PKI or a context."""
    server = HttpServer(
        handler,
        tls=pki.server_context() if pki else tls,
        limits=limits or quick(),
        observer=observer,
        clock=clock,
    )
    await server.listen("127.0.0.1", 0)
    run = Running(server, pki.client_context() if pki else client_tls)
    try:
        yield run
    finally:
        await server.drain(0)
        run.close_clients()
        await asyncio.sleep(0)
    assert server.connection_count == 0


async def pass_time(clock: ManualClock, is_so: Callable[[], object], step: float = 0.05) -> None:
    """Turn a server's clock bit by bit until something is so; sockets have their turns between."""
    async with asyncio.timeout(PATIENCE):
        while not is_so():
            await clock.advance(step)


async def turns() -> None:
    """Let the loop turn so often that whatever is on its way within this process has arrived."""
    for _ in range(200):
        await asyncio.sleep(0)


async def until_still(count: Callable[[], int]) -> int:
    """Return a count that no longer changes, however often the loop turns."""
    while True:
        before = count()
        await turns()
        if before == count():
            return before


def quick(**changes: Any) -> Limits:
    """Limits whose deadlines are looked at often."""
    return replace(Limits(sweep_seconds=0.02, linger_seconds=0.2), **changes)


def get(path: str = "/", *extra: str) -> bytes:
    return request("GET", path, *extra)


def request(method: str, path: str, *extra: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: hub", *extra]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(path: str, *pieces: bytes) -> bytes:
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return request("POST", path, "Transfer-Encoding: chunked") + framed + b"0\r\n\r\n"


async def echo(asked: Request) -> Response:
    """Answer with what arrived."""
    body = await asked.read_body(limit=3 * 1024 * 1024)
    seen = {"method": asked.method, "target": asked.target.decode(), "bytes": len(body)}
    return Response(200, [("Content-Type", "application/json")], msgspec.json.encode(seen))
