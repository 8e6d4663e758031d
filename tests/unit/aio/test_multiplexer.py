"""Many streams over one connection: in order, each at its own pace, and a peer that cheats."""

import asyncio
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from clusterspace.aio.clocks import SystemClock
from clusterspace.aio.multiplexer import (
    Multiplexer,
    MultiplexerLimits,
    StreamTransport,
    TransportStream,
)
from clusterspace.aio.websockets import FrameReader, Opcode, encode_frame

OPEN, DATA, CREDIT, END, CLOSE, RESET, PING, PONG = range(1, 9)
SOON = 60.0


@dataclass
class Wire:
    """One direction of a connection that holds so much."""

    most: int = 256 * 1024
    held: bytearray = field(default_factory=bytearray)
    has_ended: bool = False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def put(self, content: bytes) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.held) < self.most or self.has_ended)
            if self.has_ended:
                raise ConnectionResetError("cut")
            self.held += content
            self.changed.notify_all()

    async def take(self, most: int) -> bytes:
        async with self.changed:
            await self.changed.wait_for(lambda: self.held or self.has_ended)
            taken = bytes(self.held[:most])
            del self.held[: len(taken)]
            self.changed.notify_all()
            return taken

    async def end(self) -> None:
        async with self.changed:
            self.has_ended = True
            self.changed.notify_all()


@dataclass
class Carrier:
    incoming: Wire
    outgoing: Wire

    async def read(self, most: int = 65536) -> bytes:
        return await self.incoming.take(most)

    async def write(self, content: bytes) -> None:
        await self.outgoing.put(content)

    def end(self) -> None: ...

    async def close(self) -> None:
        await self.incoming.end()
        await self.outgoing.end()


@dataclass
class Pair:
    """Both ends; the second accepts, and has every stream that was opened."""

    opener: Multiplexer
    acceptor: Multiplexer
    accepted: list[TransportStream]
    wires: tuple[Wire, Wire]

    def open(self) -> TransportStream:
        return self.opener.open(TransportStream)[1]

    async def nth(self, count: int) -> TransportStream:
        async with asyncio.timeout(SOON):
            while len(self.accepted) < count:  # noqa: ASYNC110 - it takes turns of the loop
                await asyncio.sleep(0)
        return self.accepted[count - 1]


@asynccontextmanager
async def pair(limits: MultiplexerLimits | None = None) -> AsyncGenerator[Pair]:
    one, other = Wire(), Wire()
    accepted: list[TransportStream] = []

    def accept() -> TransportStream:
        accepted.append(TransportStream())
        return accepted[-1]

    clock = SystemClock()
    opener = Multiplexer(Carrier(one, other), clock, is_client=False, limits=limits)
    acceptor = Multiplexer(Carrier(other, one), clock, is_client=True, accept=accept, limits=limits)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.run()) for each in (opener, acceptor)]
        yield Pair(opener, acceptor, accepted, (one, other))
        opener.close()
        async with asyncio.timeout(SOON):
            await asyncio.wait(tasks)


async def read_all(stream: TransportStream) -> bytes:
    found = bytearray()
    async with asyncio.timeout(SOON):
        while piece := await stream.read():
            found += piece
    return bytes(found)


async def test_what_is_written_arrives_and_so_does_each_half_s_end():
    async with pair() as ends:
        near = ends.open()
        await near.write(b"question")
        near.end()
        far = await ends.nth(1)

        assert await read_all(far) == b"question"
        await far.write(b"answer")
        await far.close()
        assert await read_all(near) == b"answer"
        assert len(ends.opener) == 0
        assert len(ends.acceptor) == 0


async def test_a_long_answer_arrives_whole_before_the_end():
    content = bytes(range(256)) * 40_000
    async with pair() as ends:
        near = ends.open()
        await near.write(b"go")
        far = await ends.nth(1)

        async def answer() -> None:
            for at in range(0, len(content), 50_000):
                await far.write(content[at : at + 50_000])
            await far.close()

        async with asyncio.TaskGroup() as group:
            group.create_task(answer())
            assert await read_all(near) == content


async def test_a_stream_that_nobody_reads_stops_no_other_and_its_writer_waits():
    limits = MultiplexerLimits(window=16 * 1024, largest_window=16 * 1024)
    async with pair(limits) as ends:
        stuck, lively = ends.open(), ends.open()
        far_stuck, far_lively = await ends.nth(1), await ends.nth(2)

        async def write_for_ever() -> None:
            while True:
                await far_stuck.write(b"x" * 8192)

        async with asyncio.TaskGroup() as group:
            writing = group.create_task(write_for_ever())
            for number in range(200):
                await far_lively.write(b"%d" % number)
                async with asyncio.timeout(SOON):
                    assert await lively.read() == b"%d" % number
            assert not writing.done()
            writing.cancel()
        assert len(await stuck.read(1 << 20)) <= 192 * 1024
        # What waits at the far end is what a writer may have written before it must wait.
        held = sum(len(each.held) for each in ends.wires)
        assert held < 64 * 1024


async def test_windows_grow_for_who_reads_and_what_was_borrowed_is_given_back():
    limits = MultiplexerLimits(spare_bytes=200 * 1024)
    async with pair(limits) as ends:
        near = ends.open()
        far = await ends.nth(1)
        transport = next(iter(ends.opener._streams.values()))

        async def answer() -> None:
            for _ in range(100):
                await far.write(b"x" * 16_384)
            await far.close()

        async with asyncio.TaskGroup() as group:
            group.create_task(answer())
            assert len(await read_all(near)) == 100 * 16_384
        assert 0 < transport.borrowed <= 200 * 1024
        assert ends.opener._spare == 200 * 1024


async def test_the_end_of_the_connection_is_a_cut_for_every_stream_after_what_had_come():
    async with pair() as ends:
        near = ends.open()
        far = await ends.nth(1)
        await far.write(b"half a sen")
        async with asyncio.timeout(SOON):
            while not near._reader._buffer:  # pyright: ignore # noqa: ASYNC110 - as above
                await asyncio.sleep(0)
        for wire in ends.wires:
            await wire.end()

        assert await near.read() == b"half a sen"
        with pytest.raises(ConnectionResetError):
            await near.read()
        with pytest.raises(ConnectionResetError):
            await near.write(b"more")
        with pytest.raises(ConnectionError):
            ends.open()


async def test_one_stream_too_many_is_refused_and_the_others_go_on():
    async with pair(MultiplexerLimits(streams=2)) as ends:
        first, _ = ends.open(), ends.open()
        with pytest.raises(ConnectionRefusedError):
            ends.open()
        await first.write(b"still here")
        assert await (await ends.nth(1)).read() == b"still here"


async def test_a_protocol_that_fails_loses_its_stream_and_nobody_else_s(
    logged_errors: list[str],
):
    class Failing(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            raise RuntimeError("a bug")

    async with pair() as ends:
        ends.opener.open(Failing)
        good = ends.open()
        await (await ends.nth(1)).write(b"x")
        await (await ends.nth(2)).write(b"y")
        assert await good.read() == b"y"
        assert len(ends.opener) == 1


# -- a peer that cheats ----------------------------------------------------------------------------


def frame(kind: int, stream: int, content: bytes = b"") -> bytes:
    return struct.pack(">BII", kind, stream, len(content)) + content


@asynccontextmanager
async def alone(
    limits: MultiplexerLimits | None = None,
) -> AsyncGenerator[tuple[Multiplexer, Wire, Wire, asyncio.Task[str]]]:
    """Run an opener whose peer is the test."""
    incoming, outgoing = Wire(), Wire()
    carrier = Carrier(incoming, outgoing)
    opener = Multiplexer(carrier, SystemClock(), is_client=False, limits=limits)
    task = asyncio.create_task(opener.run())
    try:
        yield opener, incoming, outgoing, task
    finally:
        task.cancel()
        await asyncio.wait([task])


def packed(*frames: bytes) -> bytes:
    return encode_frame(Opcode.BINARY, b"".join(frames), is_client=True)


CHEATS = {
    "more than was granted": frame(DATA, 1, b"x" * 40_000) + frame(DATA, 1, b"x" * 40_000),
    "a giant frame": struct.pack(">BII", DATA, 1, 1 << 30),
    "a stream of its own": frame(OPEN, 2),
    "a stream that never was": frame(DATA, 7, b"x"),
    "stream 0": frame(DATA, 0, b"x"),
    "credit without end": frame(CREDIT, 1, b"\xff\xff\xff\xff") * 2,
    "half a credit": frame(CREDIT, 1, b"\xff"),
    "no such kind": frame(99, 1),
    "data behind the end": frame(END, 1) + frame(DATA, 1, b"x"),
    "two ends": frame(END, 1) * 2,
    "pings without end": frame(PING, 0) * 2000,
    "pongs that nobody asked for": frame(PONG, 0) * 2000,
    "credits of nothing": frame(CREDIT, 1, b"\0\0\0\0") * 2000,
    "data that is none": frame(DATA, 1) * 2000,
}


@pytest.mark.parametrize("cheat", CHEATS)
async def test_a_peer_that_cheats_is_cut_off(cheat: str):
    async with alone() as (opener, incoming, outgoing, task):
        stream = opener.open(TransportStream)[1]
        transport = stream._transport
        assert isinstance(transport, StreamTransport)
        transport.pause_reading()

        await incoming.put(packed(CHEATS[cheat]))

        async with asyncio.timeout(SOON):
            assert "broke the protocol" in await task
        with pytest.raises(ConnectionResetError):
            await stream.write(b"x")
        said = list(FrameReader(from_client=False).feed(bytes(outgoing.held)))
        assert any(not isinstance(each, bytes) and each.opcode is Opcode.CLOSE for each in said)


async def test_many_pings_are_answered_as_far_as_they_are_read():
    async with alone() as (opener, incoming, outgoing, _):
        outgoing.most = 0  # nobody reads
        for _ in range(200):
            await incoming.put(packed(frame(PING, 0, b"x" * 100)))
        async with asyncio.timeout(SOON):
            while incoming.held:  # noqa: ASYNC110 - it takes turns of the loop
                await asyncio.sleep(0)

        assert opener._pong in (None, b"x" * 100)
        assert sum(map(len, opener._control)) < 1000


@pytest.mark.parametrize("opcode", [Opcode.PING, Opcode.PONG, Opcode.BINARY])
async def test_a_peer_that_says_nothing_in_many_frames_is_cut_off(opcode: Opcode):
    async with alone() as (_, incoming, _, task):
        await incoming.put(encode_frame(opcode, b"", is_client=True) * 2000)

        async with asyncio.timeout(SOON):
            assert "more is said than there is to say" in await task


async def test_data_for_a_stream_that_has_ended_is_bounded_by_its_window():
    async with alone() as (opener, incoming, _, task):
        await opener.open(TransportStream)[1].close()
        late = packed(*(frame(DATA, 1, b"x" * 16_384) for _ in range(4)))
        await incoming.put(late)  # was on its way
        other = opener.open(TransportStream)[1]
        await incoming.put(packed(frame(DATA, 2, b"in time")))
        assert await other.read() == b"in time"

        await incoming.put(late)

        async with asyncio.timeout(SOON):
            assert "more is said than there is to say" in await task


async def test_who_asks_and_is_answered_may_do_so_for_ever():
    """Each stream, and what is sent on it, gives the peer reason for a few words more."""
    async with pair() as ends:
        for number in range(1, 600):
            asking = ends.open()
            await asking.write(b"x" * 100)
            asking.end()
            answering = await ends.nth(number)
            assert await read_all(answering) == b"x" * 100
            await answering.write(b"y")
            await answering.close()
            assert await read_all(asking) == b"y"


async def test_a_peer_that_does_not_take_the_goodbye_is_left_all_the_same():
    async with alone() as (opener, _, outgoing, task):
        outgoing.most = 0
        opener.open(TransportStream)

        opener.close(1001, "the server is stopping")

        async with asyncio.timeout(SOON):
            assert "closed here" in await task


async def test_a_peer_that_says_nothing_is_gone_after_a_while():
    limits = MultiplexerLimits(ping_seconds=0.02, silent_seconds=0.1)
    async with alone(limits) as (_, _, outgoing, task), asyncio.timeout(SOON):
        assert "nothing was heard" in await task
        assert outgoing.held  # it was asked


async def test_a_peer_that_takes_nothing_is_gone_after_a_while():
    limits = MultiplexerLimits(ping_seconds=0.02, silent_seconds=0.1)
    async with alone(limits) as (opener, incoming, outgoing, task), asyncio.timeout(SOON):
        outgoing.most = 0
        opener.open(TransportStream)
        while not task.done():
            await incoming.put(packed(frame(PING, 0)))
            await asyncio.sleep(0.01)
        assert "took nothing" in await task


async def test_frames_for_streams_that_have_ended_are_dropped():
    async with alone() as (opener, incoming, _, task):
        stream = opener.open(TransportStream)[1]
        await stream.close()
        await incoming.put(packed(frame(DATA, 1, b"late"), frame(CREDIT, 1, b"\0\0\0\1")))
        other = opener.open(TransportStream)[1]
        await incoming.put(packed(frame(DATA, 2, b"in time")))

        assert await other.read() == b"in time"
        assert not task.done()
