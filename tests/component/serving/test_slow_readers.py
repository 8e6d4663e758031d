"""Clients that stop reading: cut where they would cost memory, waited for where they do not."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from tests.component.serving.wire import (
    Counter,
    Pki,
    RawClient,
    get,
    pass_time,
    quick,
    request,
    running,
    until_still,
)

from clusterspace.apiserver.http.messages import Handler, Request, Response
from clusterspace.fleet.page.several import answer_several
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.steps import until

BOTH_TRANSPORTS = pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
IMPATIENT = quick(write_stall_seconds=0.1)
UPGRADE = request("POST", "/exec", "Connection: Upgrade", "Upgrade: SPDY/3.1", "Content-Length: 0")
MOST_AHEAD = 16 * 1024 * 1024  # the kernel keeps up to ten megabytes of a connection
PIECE = b"x" * 65536
WHOLE = b"x" * MOST_AHEAD


class Flood:
    """Writes as much as goes, and counts it."""

    def __init__(self) -> None:
        self.written = 0

    async def hijack(self, asked: Request) -> None:
        tunnel = asked.hijack()
        while True:
            tunnel.write(PIECE)
            self.written += len(PIECE)
            await tunnel.drain()

    async def stream(self, asked: Request) -> None:
        stream = asked.start_stream(200, ())
        stream.be_patient()
        for _ in range(2 * MOST_AHEAD // len(PIECE)):
            stream.write(PIECE)
            self.written += len(PIECE)
            await stream.drain()

    async def stop(self) -> int:
        """Return how much was written when no more went."""
        await until(lambda: self.written)
        return await until_still(lambda: self.written)


async def pause(flood: Flood, client: RawClient, clock: ManualClock) -> None:
    """Read nothing for several times as long as anybody else would be waited for."""
    assert 0 < await flood.stop() < MOST_AHEAD
    await clock.advance(0.3)
    client.resume_reading()
    assert await client.reader.read(1000)


@BOTH_TRANSPORTS
async def test_a_tunnel_waits_for_a_client_that_stops_reading(pki: Pki, over_tls: bool) -> None:
    flood, counter, clock = Flood(), Counter(), ManualClock()
    tls = pki if over_tls else None
    async with running(
        flood.hijack, limits=IMPATIENT, observer=counter, pki=tls, clock=clock
    ) as run:
        client = await run.client()
        client.stop_reading()
        await client.send(UPGRADE)

        await pause(flood, client, clock)

        assert (counter.stalled, counter.closed) == (0, 0)
        client.vanish()


@BOTH_TRANSPORTS
async def test_a_patient_stream_waits_too(pki: Pki, over_tls: bool) -> None:
    flood, counter, clock = Flood(), Counter(), ManualClock()
    tls = pki if over_tls else None
    async with running(
        flood.stream, limits=IMPATIENT, observer=counter, pki=tls, clock=clock
    ) as run:
        client = await run.client()
        client.stop_reading()
        await client.send(get())

        await pause(flood, client, clock)

        assert (counter.stalled, counter.closed) == (0, 0)
        while flood.written < 2 * MOST_AHEAD:
            assert await client.reader.read(MOST_AHEAD)


SOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
WATCH, LOG = "/api/v1/pods?watch=1", "/api/v1/namespaces/shop/pods/web/log"
SEVERAL = request("POST", "/ui/several", body=json.dumps({"paths": ["/api"] * 64}).encode())


async def long_watch(asked: Request) -> None:
    """Write events, and go on; it ends for who reads nothing."""
    stream = asked.start_stream(200, (("Content-Type", "application/json"),))
    while stream.buffered < 16 * len(PIECE):
        stream.write(b'{"type":"ADDED"}\n' * 100)
        await asyncio.sleep(0)
    await stream.wait_closed()


async def ended_watch(asked: Request) -> None:
    stream = asked.start_stream(200, (("Content-Type", "application/json"),))
    while not stream.buffered:
        stream.write(b'{"type":"ADDED"}\n' * 100)
        await asyncio.sleep(0)


async def whole(_: Request) -> Response:
    return Response(200, (), WHOLE)


async def several(asked: Request) -> Response | None:
    return await answer_several(asked, whole)


@BOTH_TRANSPORTS
@pytest.mark.parametrize(
    ("handler", "asked"),
    [
        (long_watch, get(WATCH, *SOCKET)),
        (ended_watch, get(WATCH, *SOCKET)),
        (whole, get(LOG, *SOCKET)),
        (several, SEVERAL),
    ],
    ids=["watch", "watch that ended", "log that is whole", "several"],
)
async def test_who_reads_nothing_of_what_a_browser_asks_for_is_cut(
    pki: Pki, over_tls: bool, handler: Handler, asked: bytes
) -> None:
    counter, clock = Counter(), ManualClock()
    tls = pki if over_tls else None
    async with running(handler, limits=IMPATIENT, observer=counter, pki=tls, clock=clock) as run:
        client = await run.client()
        client.stop_reading()
        await client.send(asked)

        await pass_time(clock, lambda: counter.closed)

    assert counter.stalled == 1


class Counted(tuple[bytes, ...]):
    """Pieces of answers, which count how many of all of them were taken."""

    taken = 0

    def __iter__(self) -> Iterator[bytes]:
        for each in tuple.__iter__(self):
            Counted.taken += 1
            yield each


async def test_of_several_answers_that_nobody_reads_little_is_made_ready() -> None:
    async def in_pieces(_: Request) -> Response:
        return Response(200, (), Counted([PIECE] * 300))

    async def looking(asked: Request) -> Response | None:
        return await answer_several(asked, in_pieces)

    async with running(looking, limits=IMPATIENT, clock=ManualClock()) as run:
        client = await run.client()
        client.stop_reading()
        await client.send(SEVERAL)
        taken = await until_still(lambda: Counted.taken)
        client.vanish()

    assert taken < 64 * 300 / 10
