"""Stopping: nothing that was accepted is lost, and nothing keeps the process from ending."""

import asyncio

import pytest
from tests.component.serving.wire import get, running, turns

from clusterspace.apiserver.http.messages import Request, Response
from clusterspace.testing.steps import until


class Mixed:
    """Ordinary requests that wait to be released, watches that wait to be ended, and a ledger."""

    def __init__(self) -> None:
        self.ledger: list[str] = []
        self.release = asyncio.Event()
        self.end = asyncio.Event()
        self.running = 0

    async def __call__(self, asked: Request) -> Response | None:
        self.running += 1
        if asked.path == "/watch":
            return await self._watch(asked)
        await self.release.wait()
        self.ledger.append("answered")
        return Response(200, (), b"done")

    async def _watch(self, asked: Request) -> None:
        stream = asked.start_stream(200, ())
        await self.end.wait()
        stream.write(b"goodbye")
        self.ledger.append("watch ended")

    def end_streams(self) -> None:
        self.ledger.append("streams told")
        self.end.set()


async def test_idle_connections_go_first_then_requests_then_streams() -> None:
    mixed = Mixed()
    async with running(mixed) as run:
        idle, ordinary, watch = [await run.client() for _ in range(3)]
        await watch.send(get("/watch"))
        await watch.head()
        await ordinary.send(get("/slow"))
        await until(lambda: mixed.running == 2)
        draining = asyncio.ensure_future(run.server.drain(10, end_streams=mixed.end_streams))
        assert await idle.rest() == b""
        with pytest.raises(ConnectionRefusedError):
            await run.client()
        assert mixed.ledger == []
        mixed.release.set()
        answer = await ordinary.answer()
        goodbye = [chunk async for chunk in watch.chunks()]
        await draining
        ends = (await ordinary.rest(), await watch.rest())

    assert (answer.body, answer.headers["connection"]) == (b"done", "close")
    assert mixed.ledger == ["answered", "streams told", "watch ended"]
    assert (goodbye, ends) == ([b"goodbye"], (b"", b""))


async def test_whoever_is_sent_away_gets_an_answer_first() -> None:
    mixed = Mixed()
    mixed.release.set()
    async with running(mixed) as run:
        kept, watch = await run.client(), await run.client()
        await watch.send(get("/watch"))
        await watch.head()
        before = await kept.ask(get())
        leaving = asyncio.ensure_future(run.server.send_away(3600))
        await turns()
        # On a connection from before, and on one that a load balancer has sent here all the same.
        last = await kept.ask(get())
        late = await (await run.client()).ask(get())
        ends = await kept.rest()
        assert (mixed.ledger.count("watch ended"), leaving.done()) == (0, False)
        leaving.cancel()
        mixed.end.set()

    assert "connection" not in before.headers
    assert [each.headers["connection"] for each in (last, late)] == ["close", "close"]
    assert (last.body, late.body, ends) == (b"done", b"done", b"")


async def test_a_pipelined_request_behind_the_last_answer_is_not_begun() -> None:
    mixed = Mixed()
    async with running(mixed) as run:
        client = await run.client()
        await client.send(get("/slow") + get("/slow"))
        await until(lambda: mixed.running == 1)
        draining = asyncio.ensure_future(run.server.drain(10))
        await asyncio.sleep(0)
        mixed.release.set()
        answer = await client.answer()
        await draining

    assert answer.headers["connection"] == "close"
    assert mixed.running == 1


async def test_what_does_not_end_in_time_is_cut() -> None:
    mixed = Mixed()
    cancelled: list[str] = []

    async def stubborn(asked: Request) -> Response | None:
        try:
            return await mixed(asked)
        except asyncio.CancelledError:
            cancelled.append(asked.path)
            raise

    async with running(stubborn) as run:
        watch, ordinary = await run.client(), await run.client()
        await watch.send(get("/watch"))
        await ordinary.send(get("/slow"))
        await until(lambda: mixed.running == 2)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await run.server.drain(0.2)
        took = loop.time() - began

    assert sorted(cancelled) == ["/slow", "/watch"]
    assert took < 30.0  # both would go on for ever


async def test_a_write_whose_client_left_is_waited_for() -> None:
    mixed = Mixed()
    async with running(mixed) as run:
        client = await run.client()
        await client.send(get("/slow"))
        await until(lambda: mixed.running == 1)
        client.vanish()
        await until(lambda: run.server.connection_count == 0)
        draining = asyncio.ensure_future(run.server.drain(10))
        await turns()
        assert not draining.done()
        mixed.release.set()
        await draining

    assert mixed.ledger == ["answered"]


async def test_an_idle_server_drains_at_once() -> None:
    async with running(Mixed()) as run:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await run.server.drain(30)
        assert loop.time() - began < 0.5


async def test_a_large_answer_is_flushed_before_the_server_is_gone() -> None:
    size = 8 * 1024 * 1024

    async def large(_asked: Request) -> Response:
        return Response(200, (), b"x" * size)

    async with running(large) as run:
        client = await run.client()
        await client.send(get())
        status, _ = await client.head()
        draining = asyncio.ensure_future(run.server.drain(10))
        received = await client.rest()
        await draining

    assert (status, len(received)) == (200, size)
