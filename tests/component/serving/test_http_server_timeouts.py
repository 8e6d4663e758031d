"""Clients that are slow, silent or too many: each costs little, and not for long."""

import asyncio
import socket

import pytest
from tests.component.serving.wire import (
    Counter,
    Pki,
    chunked,
    echo,
    get,
    pass_time,
    quick,
    request,
    running,
)

from clusterspace.apiserver.http.messages import Request, Response
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.steps import until


async def test_a_client_that_never_asks_is_let_go_without_a_word() -> None:
    clock = ManualClock()
    async with running(echo, limits=quick(header_seconds=0.1), clock=clock) as run:
        client = await run.client()
        rest = asyncio.ensure_future(client.rest())
        await pass_time(clock, rest.done)
        assert await rest == b""


async def test_headers_that_trickle_in_are_cut_however_steadily_they_come() -> None:
    clock = ManualClock()
    async with running(echo, limits=quick(header_seconds=0.2), clock=clock) as run:
        client = await run.client()
        answering = asyncio.ensure_future(client.answer())
        for byte in get("/" + "slow" * 100):
            if answering.done():
                break
            await client.send(bytes([byte]))
            await clock.advance(0.01)
        answer = await answering

    assert (answer.status, answer.headers["connection"]) == (408, "close")
    assert answer.status_message() == "the request headers took too long to arrive"


async def test_the_time_for_headers_of_a_later_request_starts_with_its_first_byte() -> None:
    clock = ManualClock()
    limits = quick(header_seconds=0.15, idle_seconds=5)
    async with running(echo, limits=limits, clock=clock) as run:
        client = await run.client()
        first = await client.ask(get())
        await clock.advance(0.3)
        second = await client.ask(get())
        await client.send(b"GET /half")
        third = asyncio.ensure_future(client.answer())
        await pass_time(clock, third.done)

    assert [first.status, second.status, (await third).status] == [200, 200, 408]


async def test_a_body_that_trickles_in_is_cut() -> None:
    clock = ManualClock()
    limits = quick(body_window_seconds=0.1, body_window_bytes=100)
    async with running(echo, limits=limits, clock=clock) as run:
        client = await run.client()
        await client.send(request("POST", "/", "Content-Length: 100000"))
        answering = asyncio.ensure_future(client.answer())
        while not answering.done():
            await client.send(b"x")
            await clock.advance(0.01)
        answer = await answering

    assert (answer.status, answer.headers["connection"]) == (408, "close")


async def test_a_body_that_comes_slowly_but_steadily_is_read() -> None:
    clock, arriving = ManualClock(), list[Request]()

    async def noted_echo(asked: Request) -> Response:
        arriving.append(asked)
        return await echo(asked)

    def has_arrived(count: int) -> bool:
        return bool(arriving) and arriving[0]._body.arrived >= count

    limits = quick(body_window_seconds=0.1, body_window_bytes=100)
    async with running(noted_echo, limits=limits, clock=clock) as run:
        client = await run.client()
        await client.send(request("POST", "/", "Content-Length: 3000"))
        for number in range(1, 16):
            await client.send(b"x" * 200)
            await until(lambda number=number: has_arrived(number * 200))
            await clock.advance(0.09)
        answer = await client.answer()

    assert answer.status == 200


async def test_an_idle_connection_is_closed_after_its_time_and_not_before() -> None:
    clock = ManualClock()
    async with running(echo, limits=quick(idle_seconds=0.3), clock=clock) as run:
        client = await run.client()
        await client.ask(get())
        await clock.advance(0.2)
        again = await client.ask(get())
        rest = asyncio.ensure_future(client.rest())
        await pass_time(clock, rest.done)

    assert (again.status, await rest) == (200, b"")


async def test_a_request_in_progress_has_no_deadline_of_the_connection() -> None:
    clock, begun, may_end = ManualClock(), asyncio.Event(), asyncio.Event()

    async def slow(_asked: Request) -> Response:
        begun.set()
        await may_end.wait()
        return Response(200)

    limits = quick(idle_seconds=0.1, header_seconds=0.1, body_window_seconds=0.1)
    async with running(slow, limits=limits, clock=clock) as run:
        answering = asyncio.ensure_future(run.ask(request("POST", "/", body=b"x")))
        await begun.wait()
        await clock.advance(1)
        may_end.set()
        assert (await answering).status == 200


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
async def test_a_client_that_does_not_read_its_answer_is_cut(pki: Pki, over_tls: bool) -> None:
    clock, counter = ManualClock(), Counter()

    async def large(_asked: Request) -> Response:
        return Response(200, (), b"x" * 16 * 1024 * 1024)

    limits = quick(write_stall_seconds=0.2)
    tls = pki if over_tls else None
    async with running(large, limits=limits, observer=counter, pki=tls, clock=clock) as run:
        client = await run.client()
        client.stop_reading()
        await client.send(get())
        await pass_time(clock, lambda: counter.closed)

    assert counter.stalled == 1


async def test_the_end_of_an_answer_nobody_takes_does_not_keep_the_connection() -> None:
    clock, counter = ManualClock(), Counter()
    left_over: list[int] = []

    async def fill_the_kernel(asked: Request) -> None:
        stream = asked.start_stream(200, ())
        while not stream.buffered:
            stream.write(b"x" * 4096)
            await asyncio.sleep(0)
        left_over.append(stream.buffered)

    limits = quick(write_stall_seconds=0.2)
    async with running(fill_the_kernel, limits=limits, observer=counter, clock=clock) as run:
        client = await run.client()
        client.stop_reading()
        await client.send(get("/", "Connection: close"))
        await pass_time(clock, lambda: counter.closed)

    assert counter.stalled == 1
    assert 0 < left_over[0] < 8192


async def test_a_slow_reader_that_makes_progress_is_not_cut() -> None:
    clock, size = ManualClock(), 16 * 1024 * 1024

    async def large(_asked: Request) -> Response:
        return Response(200, (), b"x" * size)

    async with running(large, limits=quick(write_stall_seconds=0.2), clock=clock) as run:
        client = await run.client()
        await client.send(get())
        _, headers = await client.head()
        read = 0
        while read < size:
            read += len(await client.reader.read(1024 * 1024))
            await clock.advance(0.02)

    assert int(headers["content-length"]) == read


async def test_a_client_that_pipelines_and_never_reads_does_not_fill_our_memory() -> None:
    clock, counter, handled = ManualClock(), Counter(), 0

    async def large(_asked: Request) -> Response:
        nonlocal handled
        handled += 1
        return Response(200, (), b"x" * 1024 * 1024)

    limits = quick(write_stall_seconds=1)
    async with running(large, limits=limits, observer=counter, clock=clock) as run:
        client = await run.client()
        client.stop_reading()
        client.writer.write(get() * 1000)
        # To its end: it is cut because it takes nothing, and until then little was made for it.
        await pass_time(clock, lambda: counter.closed)

    assert handled < 20


async def test_a_half_sent_request_is_never_handled() -> None:
    handled: list[str] = []

    async def note(asked: Request) -> Response:
        await asked.read_body(limit=100)
        handled.append(asked.path)
        return Response(200)

    whole = request("POST", "/", body=b"0123456789")
    async with running(note) as run:
        for length in range(1, len(whole)):
            client = await run.client()
            await client.send(whole[:length])
            client.writer.write_eof()
            answer = await client.answer()
            assert (answer.status, await client.rest()) == (400, b"")

    assert handled == []


async def test_a_connection_over_the_limit_is_closed_and_the_others_are_served() -> None:
    counter = Counter()
    async with running(echo, limits=quick(connections=3), observer=counter) as run:
        clients = [await run.client() for _ in range(3)]
        await until(lambda: run.server.connection_count == 3)
        extra = await run.client()
        assert await extra.rest() == b""
        answers = [await each.ask(get()) for each in clients]
        clients[0].close()
        await until(lambda: counter.closed == 1)
        newcomer = await run.ask(get())

    assert [each.status for each in answers] == [200, 200, 200]
    assert (counter.rejected, newcomer.status) == (1, 200)


async def test_three_hundred_idle_connections_do_not_stand_in_the_way() -> None:
    async with running(echo) as run:
        for _ in range(300):
            await run.client()
        await until(lambda: run.server.connection_count == 300)
        answer = await run.ask(get())

    assert answer.status == 200


async def test_a_handshake_that_does_not_come_is_given_up(pki: Pki) -> None:
    clock, counter = ManualClock(), Counter()
    limits = quick(handshake_seconds=0.2)
    async with running(echo, limits=limits, observer=counter, pki=pki, clock=clock) as run:
        with socket.create_connection((run.host, run.port)):
            await pass_time(clock, lambda: counter.handshakes_failed == 1)
        assert run.server.connection_count == 0
        assert (await run.ask(get())).status == 200


async def test_refusals_and_connections_are_counted() -> None:
    counter = Counter()
    async with running(echo, observer=counter) as run:
        await run.ask(b"BREW / HTTP/1.1\r\n\r\n")
        await run.ask(get("/" + "x" * 70_000))
        await run.ask(get("/", "X: " + "x" * 70_000))
        await run.ask(get("/", *[f"X: {number}" for number in range(600)]))
        await run.ask(chunked("/", b"fine"))

    assert counter.refused == [405, 414, 431, 431]
    assert counter.opened == counter.closed == 5
