"""Watches and tunnels: answers that last, and connections that stop being HTTP."""

import asyncio

import pytest
from tests.component.serving.wire import (
    LoggedErrors,
    Pki,
    RawClient,
    echo,
    get,
    quick,
    request,
    running,
    turns,
    until_still,
)

from clusterspace.apiserver.http.messages import Request, Response, Stream, frame_chunk
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.steps import until

BOTH_TRANSPORTS = pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
UPGRADE = request("POST", "/exec", "Connection: Upgrade", "Upgrade: SPDY/3.1", "Content-Length: 0")
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"


class Watches:
    """A handler that keeps its streams open for the test to write to."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.cancelled = 0
        self.end = asyncio.Event()

    async def __call__(self, asked: Request) -> None:
        self.streams.append(asked.start_stream(200, [("Content-Type", "application/json")]))
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def test_the_headers_of_a_stream_arrive_before_its_first_event() -> None:
    watches = Watches()
    async with running(watches) as run:
        client = await run.client()
        await client.send(get("/watch"))
        status, headers = await client.head()

    assert (status, headers["transfer-encoding"]) == (200, "chunked")
    assert "content-length" not in headers


async def test_an_ended_stream_leaves_the_connection_usable() -> None:
    async def count(asked: Request) -> None:
        stream = asked.start_stream(200, ())
        for number in range(3):
            stream.write(str(number).encode())
            stream.write(b"")
            await stream.drain()
        stream.end()
        stream.write(b"too late")

    async with running(count) as run:
        client = await run.client()
        answers = [await client.ask(get()) for _ in range(3)]

    assert [each.body for each in answers] == [b"012"] * 3


async def test_a_stream_ends_with_its_handler() -> None:
    async def brief(asked: Request) -> None:
        asked.start_stream(200, ()).write(b"brief")

    async with running(brief) as run:
        client = await run.client()
        assert (await client.ask(get())).body == b"brief"
        assert (await client.ask(get())).body == b"brief"


@BOTH_TRANSPORTS
async def test_an_event_framed_once_reaches_every_watcher(pki: Pki, over_tls: bool) -> None:
    watches = Watches()
    events = [b'{"type":"ADDED","n":%d}\n' % number for number in range(100)]
    async with running(watches, pki=pki if over_tls else None) as run:
        clients = [await run.client() for _ in range(10)]
        for client in clients:
            await client.send(get("/watch"))
            await client.head()
        for framed in map(frame_chunk, events):
            for stream in watches.streams:
                stream.write_framed(framed)
        watches.end.set()
        received = [[chunk async for chunk in client.chunks()] for client in clients]

    assert received == [events] * 10


@BOTH_TRANSPORTS
async def test_a_watcher_that_does_not_read_can_be_seen_and_evicted(
    pki: Pki, over_tls: bool
) -> None:
    watches = Watches()
    framed = frame_chunk(b"x" * 4096)
    async with running(watches, pki=pki if over_tls else None) as run:
        slow, fast = await run.client(), await run.client()
        for client in (slow, fast):
            await client.send(get("/watch"))
            await client.head()
        slow.stop_reading()
        slow_stream, fast_stream = watches.streams
        written = 0
        while slow_stream.buffered < 1024 * 1024:
            assert written < 64 * 1024 * 1024
            for _ in range(16):
                slow_stream.write_framed(framed)
                fast_stream.write_framed(framed)
                written += 4096
            for _ in range(16):
                assert await fast.chunk() == b"x" * 4096
        slow_stream.abort()
        await until(lambda: watches.cancelled == 1)
        fast_stream.write(b"still here")
        last = await fast.chunk()
        open_after = (slow_stream.is_open, fast_stream.is_open)
        slow_stream.write_framed(framed)

    assert last == b"still here"
    assert open_after == (False, True)


@BOTH_TRANSPORTS
@pytest.mark.parametrize("farewell", ["close", "vanish"])
async def test_a_watch_is_cancelled_when_its_client_goes(
    pki: Pki, over_tls: bool, farewell: str
) -> None:
    watches = Watches()
    async with running(watches, pki=pki if over_tls else None) as run:
        client = await run.client()
        await client.send(get("/watch"))
        await client.head()
        getattr(client, farewell)()
        await until(lambda: watches.cancelled == 1)
        (stream,) = watches.streams
        await stream.wait_closed()

    assert not stream.is_open


async def test_a_write_in_progress_survives_its_client() -> None:
    began, finished = asyncio.Event(), asyncio.Event()
    noticed: list[bool] = []

    async def write(asked: Request) -> Response:
        began.set()
        await asked.wait_disconnected()
        noticed.append(asked.is_disconnected)
        await turns()
        finished.set()
        return Response(201)

    async with running(write) as run:
        client = await run.client()
        await client.send(request("POST", "/", body=b"{}"))
        await began.wait()
        client.vanish()
        await asyncio.wait_for(finished.wait(), 5)

    assert noticed == [True]


async def test_waiting_for_room_ends_when_the_peer_goes() -> None:
    outcome: list[BaseException] = []

    written = 0

    async def flood(asked: Request) -> None:
        nonlocal written
        stream = asked.start_stream(200, ())
        try:
            while True:
                stream.write(b"x" * 65536)
                written += 65536
                await stream.drain()
        except (ConnectionResetError, asyncio.CancelledError) as error:
            outcome.append(error)
            raise

    async with running(flood) as run:
        client = await run.client()
        client.stop_reading()
        await client.send(get())
        await until(lambda: written)
        await until_still(lambda: written)
        client.vanish()
        await until(lambda: outcome)


async def test_a_handler_that_fails_in_the_middle_leaves_a_visibly_broken_stream(
    logged_errors: LoggedErrors,
) -> None:
    is_seen = asyncio.Event()

    async def break_off(asked: Request) -> None:
        asked.start_stream(200, ()).write(b"one")
        await is_seen.wait()
        await turns()
        raise RuntimeError("no more")

    async with running(break_off) as run:
        client = await run.client()
        await client.send(get())
        await client.head()
        is_seen.set()
        received = await client.rest()

    logged_errors.expect("handler failed")
    assert received == frame_chunk(b"one")


async def test_an_answer_after_a_stream_began_is_not_sent() -> None:
    is_seen = asyncio.Event()

    async def both(asked: Request) -> Response:
        asked.start_stream(200, ()).write(b"one")
        await is_seen.wait()
        await turns()
        return Response(500, (), b"an error that came too late")

    async with running(both) as run:
        client = await run.client()
        await client.send(get())
        await client.head()
        is_seen.set()
        assert await client.rest() == frame_chunk(b"one")


async def test_head_of_a_stream_has_no_chunks() -> None:
    async def brief(asked: Request) -> None:
        asked.start_stream(200, ()).write(b"text")

    async with running(brief) as run:
        client = await run.client()
        await client.send(request("HEAD", "/") + get())
        head = await client.head()
        answer = await client.answer()

    assert (head[0], answer.body) == (200, b"text")


async def test_a_stream_is_refused_to_a_client_that_cannot_read_chunks() -> None:
    async def brief(asked: Request) -> None:
        asked.start_stream(200, ())

    async with running(brief) as run:
        answer = await run.ask(b"GET /watch HTTP/1.0\r\n\r\n")

    assert answer.status_message() == "a stream needs HTTP/1.1"


async def echo_tunnel(asked: Request) -> None:
    tunnel = asked.hijack()
    tunnel.write(SWITCHED)
    while data := await tunnel.reader.read(65536):
        tunnel.write(data)
        await tunnel.drain()
    tunnel.half_close()


@BOTH_TRANSPORTS
async def test_a_hijacked_connection_carries_bytes_both_ways(pki: Pki, over_tls: bool) -> None:
    early = b"GET /not-http HTTP/1.1\r\n\r\n\x00\xff"
    large = bytes(range(256)) * 8192
    async with running(echo_tunnel, pki=pki if over_tls else None) as run:
        client = await run.client()
        await client.send(UPGRADE + early)
        assert await client.reader.readexactly(len(SWITCHED)) == SWITCHED
        first = await client.reader.readexactly(len(early))
        async with asyncio.TaskGroup() as group:
            group.create_task(client.send(large))
            second = group.create_task(client.reader.readexactly(len(large)))

    assert (first, second.result() == large) == (early, True)


async def test_a_tunnel_can_be_closed_one_half_at_a_time() -> None:
    async with running(echo_tunnel) as run:
        client = await run.client()
        await client.send(UPGRADE + b"last words")
        client.writer.write_eof()
        received = await client.rest()

    assert received == SWITCHED + b"last words"


@BOTH_TRANSPORTS
async def test_what_a_client_sent_before_leaving_is_still_delivered(
    pki: Pki, over_tls: bool
) -> None:
    delivered: list[bytes] = []
    has_left = asyncio.Event()

    async def collect(asked: Request) -> None:
        tunnel = asked.hijack()
        tunnel.write(SWITCHED)
        await has_left.wait()
        await turns()
        delivered.append(await tunnel.reader.read(-1))

    async with running(collect, pki=pki if over_tls else None) as run:
        client = await run.client()
        await client.send(UPGRADE)
        await client.reader.readexactly(len(SWITCHED))
        await client.send(b"file contents")
        client.close()
        has_left.set()
        await until(lambda: delivered)

    assert delivered == [b"file contents"]


async def test_a_tunnel_nobody_reads_pushes_back() -> None:
    release = asyncio.Event()

    async def stuck(asked: Request) -> None:
        tunnel = asked.hijack()
        tunnel.write(SWITCHED)
        await release.wait()

    async with running(stuck) as run:
        client = await run.client()
        await client.send(UPGRADE)
        client.writer.write(b"x" * 32 * 1024 * 1024)
        unsent = await until_still(client.writer.transport.get_write_buffer_size)
        release.set()

    assert unsent > 16 * 1024 * 1024


async def test_a_tunnel_has_no_deadlines() -> None:
    limits = quick(header_seconds=0.05, idle_seconds=0.05, body_window_seconds=0.05)
    clock = ManualClock()
    async with running(echo_tunnel, limits=limits, clock=clock) as run:
        client = await run.client()
        await client.send(UPGRADE)
        await client.reader.readexactly(len(SWITCHED))
        await clock.advance(0.3)
        await client.send(b"awake")
        assert await client.reader.readexactly(5) == b"awake"


async def test_a_refused_upgrade_ends_the_connection_and_nothing_behind_it_is_read() -> None:
    paths: list[str] = []

    async def refuse(asked: Request) -> Response:
        paths.append(asked.path)
        return Response(403)

    async with running(refuse) as run:
        client = await run.client()
        answer = await client.ask(UPGRADE + get("/smuggled"))
        rest = await client.rest()

    assert (answer.status, answer.headers["connection"], rest) == (403, "close", b"")
    assert paths == ["/exec"]


async def test_only_an_upgrade_can_be_hijacked(logged_errors: LoggedErrors) -> None:
    async def steal(asked: Request) -> None:
        asked.hijack()

    async with running(steal) as run:
        answer = await run.ask(get())

    logged_errors.expect("handler failed")
    assert answer.status == 500


async def test_an_upgrade_nobody_takes_up_is_an_ordinary_request() -> None:
    async with running(echo) as run:
        client: RawClient = await run.client()
        answer = await client.ask(get("/", "Connection: Upgrade", "Upgrade: h2c"))

    assert (answer.status, answer.headers["connection"]) == (200, "close")
