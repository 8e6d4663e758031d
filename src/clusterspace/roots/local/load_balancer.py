"""One address before several servers of one kind, for `up --ha`.

    client ──> 127.0.0.1:5443 ──> hub-2, because it is ready

Bytes are passed on as they are: TLS is between client and server, so certificates of clients count
and nothing is read here. A kubeconfig names one server, and stock clients know no second one; what
stands before real replicas is a load balancer that does the same.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Supervisor, report

_log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 3.0
"""How long a server may take for the first byte of an answer, to a client or to us."""
_SILENT_LOOKS: Final = 2
"""Looks in a row without any answer, after which a server's connections are cut: it is frozen."""
_HOLD_SECONDS: Final = 10.0
"""How long a client waits for some server to come back, where none is there."""
_CHUNK: Final = 64 * 1024
_FIRST_BYTES: Final = 16 * 1024
"""What is kept of a client to be said again to another server; a ClientHello has 2 KiB at most."""


_Stream: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Answer(Enum):
    """How a server answered when it was asked whether it is ready."""

    READY = "ready"
    NOT_READY = "not ready"
    SILENT = "silent"


@dataclass(slots=True)
class _Server:
    name: str
    port: int
    is_ready: bool = False
    silent_looks: int = 0
    relays: set["asyncio.Task[None]"] = field(default_factory=set["asyncio.Task[None]"])


class LoadBalancer:
    """Passes connections on to servers that are ready, for as long as `run` does.

    `on_change` is called when the first server has become ready, and when none is any more.
    """

    def __init__(
        self,
        port: int,
        servers: Mapping[str, int],
        clock: Clock,
        on_change: Callable[[], None] = lambda: None,
        *,
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        self._port = port
        self._clock = clock
        self._on_change = on_change
        self._patience = patience
        self._servers = [_Server(name, port) for name, port in servers.items()]
        self._turn = 0
        self._changed = asyncio.Event()

    @property
    def ready(self) -> tuple[str, ...]:
        """The servers that clients are passed on to."""
        return tuple(each.name for each in self._servers if each.is_ready)

    async def wait_ready(self) -> None:
        """Wait until some server is ready."""
        while not self.ready:
            await self._changed.wait()

    async def run(self) -> None:
        """Listen, and look at the servers, until cancelled."""
        clients: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self._serve(reader, writer)
            except (OSError, TimeoutError):
                pass
            finally:
                writer.transport.abort()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(serve(reader, writer))  # noqa: TID251 - ended below
            clients.add(task)
            task.add_done_callback(clients.discard)

        # Before the servers are there: whoever knocks meanwhile waits for the first of them.
        listening = await asyncio.start_server(accept, "127.0.0.1", self._port, limit=_CHUNK)
        try:
            async with Supervisor(self._clock, report) as tasks:
                for each in self._servers:
                    tasks.keep(each.name, lambda each=each: self._look_after(each))
                await asyncio.Event().wait()
        finally:
            listening.close()
            for task in tuple(clients):
                task.cancel()
            if clients:
                await asyncio.wait(tuple(clients))

    async def _look_after(self, server: _Server) -> None:
        while True:
            answer = await ask_ready(server.port, self._patience)
            server.silent_looks = server.silent_looks + 1 if answer is Answer.SILENT else 0
            self._note(server, is_ready=answer is Answer.READY)
            if server.silent_looks >= _SILENT_LOOKS and self.ready and server.relays:
                # A frozen process keeps its connections, and clients would wait for minutes. With
                # no other server to go to they may as well: all of us may just be slow.
                _log.warning("a server does not answer, its clients are sent to another",
                             server=server.name)  # fmt: skip
                for relay in tuple(server.relays):
                    relay.cancel()
            await self._clock.sleep(_LOOK_SECONDS)

    def _note(self, server: _Server, *, is_ready: bool) -> None:
        if server.is_ready == is_ready:
            return
        before = bool(self.ready)
        server.is_ready = is_ready
        self._changed.set()
        self._changed = asyncio.Event()
        if bool(self.ready) != before:
            self._on_change()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Find a server that answers what the client says first, then pass on everything."""
        first = await reader.read(_FIRST_BYTES)
        if not first:
            return
        async with asyncio.timeout(_HOLD_SECONDS):
            while True:
                for server in self._in_turn():
                    opened = await self._open(server, first)
                    if opened is not None:
                        break
                else:
                    changed = self._changed
                    with suppress(TimeoutError):
                        await asyncio.wait_for(changed.wait(), _LOOK_SECONDS)
                    continue
                break
        answer, server_reader, server_writer = opened
        relay = asyncio.create_task(  # noqa: TID251 - awaited right here
            _relay((reader, writer), (server_reader, server_writer), answer)
        )
        server.relays.add(relay)
        try:
            await asyncio.wait([relay])
        finally:
            server.relays.discard(relay)
            relay.cancel()
            server_writer.transport.abort()

    def _in_turn(self) -> Iterator[_Server]:
        """Yield the servers that are ready, each time beginning with another one."""
        self._turn += 1
        ready = [each for each in self._servers if each.is_ready]
        start = self._turn % len(ready) if ready else 0
        yield from (*ready[start:], *ready[:start])

    async def _open(
        self, server: _Server, first: bytes
    ) -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Say to a server what the client said first; return the beginning of its answer.

        Of a TLS handshake nothing has happened before that, so it can be said again to another
        server when this one has died, hangs up because it is ending, or is frozen.
        """
        opened: _Stream | None = None
        answer = b""
        try:
            async with asyncio.timeout(self._patience):
                opened = await asyncio.open_connection("127.0.0.1", server.port, limit=_CHUNK)
                opened[1].write(first)
                answer = await opened[0].read(_CHUNK)
        except (OSError, TimeoutError):
            pass
        finally:
            if opened is not None and not answer:
                opened[1].transport.abort()
        if opened is None or not answer:
            self._note(server, is_ready=False)  # until the next look
            return None
        return answer, *opened


async def _relay(client: _Stream, server: _Stream, answer: bytes) -> None:
    """Pass bytes on in both directions until the server has said everything."""
    client[1].write(answer)
    upstream = asyncio.create_task(_copy(client[0], server[1]))  # noqa: TID251 - ended below
    try:
        await _copy(server[0], client[1])
    finally:
        # A server that has ended its half answers nothing any more: so has the connection.
        upstream.cancel()
        await asyncio.wait([upstream])
    with suppress(OSError):
        client[1].close()
        await client[1].wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def ask_ready(port: int, patience: float = _PATIENCE_SECONDS) -> Answer:
    """Ask a server of this machine whether it is ready."""
    # Nothing is said to it that is secret, and clients look at its certificate themselves.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            status = await reader.readline()
    except TimeoutError:
        return Answer.SILENT
    except OSError:
        return Answer.NOT_READY
    finally:
        if writer is not None:
            writer.transport.abort()
    return Answer.READY if b" 200 " in status else Answer.NOT_READY
