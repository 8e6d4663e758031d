"""Clients that stop reading: cut where they would cost memory, waited for where they do not."""

import pytest
from tests.component.serving.wire import (
    Counter,
    Pki,
    RawClient,
    get,
    quick,
    request,
    running,
    until_still,
)

from clusterspace.apiserver.http.messages import Request
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.steps import until

BOTH_TRANSPORTS = pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
IMPATIENT = quick(write_stall_seconds=0.1)
UPGRADE = request("POST", "/exec", "Connection: Upgrade", "Upgrade: SPDY/3.1", "Content-Length: 0")
MOST_AHEAD = 16 * 1024 * 1024  # the kernel keeps up to ten megabytes of a connection
PIECE = b"x" * 65536


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
