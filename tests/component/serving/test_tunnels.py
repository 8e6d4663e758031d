"""A tunnel between a client and another server: bytes, ends and slowness pass; nothing is kept."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import TYPE_CHECKING, cast

import pytest
from tests.component.serving.wire import Pki, RawClient, Running, quick, request, running

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.http.chain import catch_errors
from clusterspace.apiserver.http.connections import Limits
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Request, Response
from clusterspace.apiserver.http.relays import Passage, relay, tunnel
from clusterspace.apiserver.http.request_info import read_request
from clusterspace.client.connection import Connection
from clusterspace.client.settings import ConnectionSettings
from clusterspace.testing.steps import until

if TYPE_CHECKING:
    from clusterspace.apiserver.http.protocol import Connection as ServedConnection

PODS = "/api/v1/namespaces/default/pods/web"
# Of a port only bytes pass. What passes of a command is read, for it must not just end.
FORWARD = request(
    "POST", f"{PODS}/portforward", "Connection: Upgrade", "Upgrade: SPDY/3.1", "Content-Length: 0"
)
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
BOTH_TRANSPORTS = pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
PIECE = b"x" * 65536
MOST_AHEAD = 32 * 1024 * 1024  # two connections, and the kernel keeps up to ten megabytes of each

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Far:
    """A server at the far end; says what it was asked and how its connections went."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self.asked: list[bytes] = []
        self.opened = self.closed = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        try:
            self.asked.append(await reader.readuntil(b"\r\n\r\n"))
            await self._talk(reader, writer)
        except ConnectionError:
            return
        finally:
            self.closed += 1
            writer.close()


@asynccontextmanager
async def passing_on(
    far: Far, pki: Pki | None = None, limits: Limits | None = None
) -> AsyncGenerator[Running]:
    """Run a server that passes everything on to the far end."""
    server = await asyncio.start_server(far.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = ConnectionSettings("west", f"http://127.0.0.1:{port}")
    connection = Connection(settings, clock=SystemClock(), random=Random(1))

    async def pass_on(context: RequestContext) -> Response | None:
        passage = Passage(connection, context.info.path, ())
        if context.request.is_upgrade:
            return await tunnel(context, passage, context.info)
        return await relay(context, passage)

    async def handle(asked: Request) -> Response | None:
        info = read_request(asked.method, asked.path, asked.query)
        return await catch_errors(RequestContext(asked, info, "r1"), pass_on)

    async with server, running(handle, pki=pki, limits=limits) as run:
        yield run
        await connection.close()


async def test_an_end_said_by_the_client_reaches_the_far_end_which_may_still_answer() -> None:
    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCHED)
        content = await reader.read(-1)
        writer.write(b"%d bytes" % len(content))
        await writer.drain()

    async with passing_on(Far(count)) as run:
        client = await run.client()
        await client.send(FORWARD + b"a line")
        assert (await client.head())[0] == 101
        client.writer.write_eof()

        assert await client.rest() == b"6 bytes"


async def test_the_last_words_of_the_far_end_arrive_before_its_end() -> None:
    async def say(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCHED + PIECE * 16)
        await writer.drain()

    async with passing_on(Far(say)) as run:
        client = await run.client()
        await client.send(FORWARD)

        _, _, said = (await client.rest()).partition(b"\r\n\r\n")
        assert said == PIECE * 16


async def test_a_client_that_does_not_read_stops_the_far_end_and_loses_nothing() -> None:
    total = 4 * MOST_AHEAD
    sent = 0

    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(SWITCHED)
        while sent < total:
            writer.write(PIECE)
            sent += len(PIECE)
            await writer.drain()

    async with passing_on(Far(flood)) as run:
        client = await run.client()
        client.stop_reading()
        await client.send(FORWARD)
        await _wait_until_still(lambda: sent)
        assert 0 < sent < MOST_AHEAD

        client.resume_reading()
        await client.head()
        received = 0
        while piece := await client.reader.read(1024 * 1024):
            received += len(piece)
        assert received == total


async def test_a_far_end_that_does_not_read_stops_the_client() -> None:
    goes_on = asyncio.Event()
    counted = 0

    async def sleep_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal counted
        writer.write(SWITCHED)
        await goes_on.wait()
        while counted < 2 * MOST_AHEAD:
            counted += len(await reader.read(1024 * 1024))

    sent = 0

    async with passing_on(Far(sleep_first)) as run:
        client = await run.client()
        await client.send(FORWARD)
        await client.head()

        async def send() -> None:
            nonlocal sent
            while sent < 2 * MOST_AHEAD:
                await client.send(PIECE)
                sent += len(PIECE)

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            await _wait_until_still(lambda: sent)
            assert 0 < sent < MOST_AHEAD
            goes_on.set()
        assert await client.rest() == b""
    assert counted == 2 * MOST_AHEAD


@BOTH_TRANSPORTS
async def test_the_last_words_of_a_client_arrive_and_then_the_far_end_is_left(
    pki: Pki, over_tls: bool
) -> None:
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCHED)
        heard.append(await reader.read(-1))

    far = Far(listen)
    async with passing_on(far, pki if over_tls else None) as run:
        client = await run.client()
        await client.send(FORWARD)
        await client.head()
        await client.send(PIECE)
        client.close()

        await until(lambda: heard)
    assert heard == [PIECE]


async def test_a_refused_upgrade_is_a_status_and_nobody_speaks_again_on_either_connection() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sentence = b'container not found ("web")'
        head = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(sentence) + sentence)
        assert await reader.read(-1) == b""

    far = Far(refuse)
    async with passing_on(far) as run:
        client = await run.client()
        await client.send(FORWARD)
        answer = await client.answer()
        await client.send(request("GET", "/version"))

        assert (answer.status, answer.headers["connection"]) == (404, "close")
        assert answer.status_message() == 'container not found ("web")'
        assert await client.rest() == b""
        await until(lambda: far.closed)
    assert len(far.asked) == 1


async def test_a_cluster_that_does_not_know_us_is_not_the_client_s_fault() -> None:
    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = b'{"kind":"Status","status":"Failure","reason":"Unauthorized","code":401}'
        writer.write(b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()

    async with passing_on(Far(refuse)) as run:
        answer = await run.ask(FORWARD)

    assert answer.status == 503
    assert "does not accept the credentials" in answer.status_message()


async def test_a_log_passes_line_by_line_as_it_is_written() -> None:
    said: asyncio.Queue[bytes] = asyncio.Queue()

    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while line := await said.get():
            writer.write(b"%x\r\n%b\r\n" % (len(line), line))
        writer.write(b"0\r\n\r\n")

    async with passing_on(Far(speak)) as run:
        client = await run.client()
        await client.send(request("GET", f"{PODS}/log?follow=true"))
        await client.head()
        for number in range(3):
            said.put_nowait(b"%d\n" % number)
            assert await client.chunk() == b"%d\n" % number
        said.put_nowait(b"")
        assert await client.chunk() == b""


async def test_who_leaves_before_a_log_has_begun_leaves_nothing_behind() -> None:
    async def say_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    far = Far(say_nothing)
    async with passing_on(far) as run:
        client = await run.client()
        await client.send(request("GET", f"{PODS}/log?follow=true"))
        await until(lambda: far.asked)
        client.vanish()

        await until(lambda: far.closed)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


@pytest.mark.parametrize("framing", ["chunked", "counted"])
async def test_an_answer_that_breaks_off_is_passed_on_to_its_last_byte_and_then_cut(
    framing: str,
) -> None:
    half = PIECE * 8

    async def break_off(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if framing == "chunked":
            writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            writer.write(b"%x\r\n%b\r\n" % (len(half), half))
        else:
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n%b" % (2 * len(half), half))
        await writer.drain()

    async with passing_on(Far(break_off)) as run:
        client = await run.client()
        client.stop_reading()
        await client.send(request("GET", f"{PODS}/log"))
        await asyncio.sleep(0.1)  # the far end has long gone when the client begins to read
        client.resume_reading()
        _, headers = await client.head()
        said = await client.rest()

    assert headers["transfer-encoding"] == "chunked"
    assert said.count(b"x") >= len(half)
    assert not said.endswith(b"0\r\n\r\n")


async def test_a_watch_that_ends_in_the_middle_of_an_event_is_cut() -> None:
    event = b'{"type":"ADDED","object":{"kind":"Pod"}}\n'

    async def say(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = event + event[:20]
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(said), said))
        await writer.drain()

    async with passing_on(Far(say)) as run:
        client = await run.client()
        await client.send(request("GET", "/api/v1/pods?watch=true"))
        await client.head()
        said = await client.rest()

    assert event in said
    assert said.count(b"ADDED") == 1
    assert not said.endswith(b"0\r\n\r\n")


async def test_an_answer_that_would_end_with_the_connection_is_no_answer() -> None:
    async def say(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\nall there is, or is it")
        await writer.drain()

    async with passing_on(Far(say)) as run:
        answer = await run.ask(request("GET", f"{PODS}/log"))

    assert answer.status == 503
    assert "without saying where its answer ends" in answer.status_message()


async def test_a_slow_client_gets_the_end_of_a_stream_however_long_it_takes(pki: Pki) -> None:
    if isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop):
        pytest.skip("asyncio's TLS does not tell what its socket still holds")

    async def say(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCHED + PIECE * 8 + b"the end")
        await writer.drain()

    far = Far(say)
    async with passing_on(far, pki, quick(tls_shutdown_seconds=0.1)) as run:
        # Buffers so small that the kernel cannot take over what the client does not read.
        run.server._listening[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        small.setblocking(False)
        await asyncio.get_running_loop().sock_connect(small, run.server.addresses[0])
        client = RawClient(
            *await asyncio.open_connection(
                sock=small, ssl=pki.client_context(), server_hostname="127.0.0.1"
            )
        )
        run._clients.append(client)
        client.stop_reading()
        await client.send(FORWARD)
        await until(lambda: far.closed)
        await asyncio.sleep(0.5)  # five times as long as TLS waits for a goodbye
        client.resume_reading()

        await client.head()
        said = await client.rest()
    assert len(said) == len(PIECE) * 8 + len(b"the end")
    assert said.endswith(b"the end")


async def test_a_client_that_leaves_is_noticed_even_if_nobody_reads_what_it_sent(pki: Pki) -> None:
    left = asyncio.Event()

    async def never_read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCHED)
        await left.wait()
        assert await reader.read(1)

    far = Far(never_read)
    async with passing_on(far, pki) as run:
        client = await run.client()
        await client.send(FORWARD)
        await client.head()
        sent = 0

        async def send() -> None:
            nonlocal sent
            with suppress(ConnectionError):
                while True:
                    await client.send(PIECE)
                    sent += len(PIECE)

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            await _wait_until_still(lambda: sent)
            (connection,) = cast("set[ServedConnection]", run.server._site.connections)
            assert connection.is_connected
            client.vanish()

            await until(lambda: not connection.is_connected)
            left.set()
        await until(lambda: far.closed)


async def _wait_until_still(count: Callable[[], int]) -> None:
    """Wait until something has begun, and then has not changed for a while."""
    await until(count)
    before = -1
    while before != count():
        before = count()
        await asyncio.sleep(0.2)
