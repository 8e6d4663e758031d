"""Bytes over sockets and TLS: what has arrived is read to its end, and a cut is no end."""

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from tests.component.streams.exec_member import close

from clusterspace.aio.byte_streams import SocketStream, TlsStream
from clusterspace.testing.certificates import loopback_tls

SIZE = 300_000
Act = Callable[[ssl.SSLSocket], None]


@asynccontextmanager
async def stream_to(act: Act) -> AsyncGenerator[TlsStream]:
    """Connect to a thread that does something with its end of a TLS connection, and closes it."""
    tls = loopback_tls()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        accepted, _ = listener.accept()
        with tls.context.wrap_socket(accepted, server_side=True) as connected:
            act(connected)

    server = threading.Thread(target=serve)
    server.start()
    connected = socket.create_connection(listener.getsockname())
    connected.setblocking(False)
    trust = ssl.create_default_context(cadata=tls.authority.decode())
    stream = TlsStream(SocketStream(connected), trust, "127.0.0.1")
    await stream.shake_hands()
    try:
        yield stream
    finally:
        await stream.close()
        await asyncio.to_thread(server.join, 10)
        listener.close()


async def read_all(stream: TlsStream) -> tuple[int, bool]:
    """Return how much came, and whether it ended in good order."""
    count = 0
    try:
        while content := await stream.read():
            count += len(content)
    except OSError:
        return count, False
    return count, True


def say_goodbye(connected: ssl.SSLSocket) -> None:
    connected.settimeout(0.1)
    with suppress(OSError):
        connected.unwrap()


async def test_an_orderly_end_is_an_end() -> None:
    def talk(connected: ssl.SSLSocket) -> None:
        connected.sendall(bytes(SIZE))
        say_goodbye(connected)

    async with stream_to(talk) as stream:
        assert await read_all(stream) == (SIZE, True)
        assert await stream.read() == b""


async def test_an_end_without_a_goodbye_is_a_cut_behind_all_that_came() -> None:
    async with stream_to(lambda connected: connected.sendall(bytes(SIZE))) as stream:
        assert await read_all(stream) == (SIZE, False)
        with pytest.raises(OSError, match="EOF"):
            await stream.read()


async def test_what_arrived_can_be_read_when_nothing_can_be_written_any_more() -> None:
    gone = threading.Event()

    def talk(connected: ssl.SSLSocket) -> None:
        connected.sendall(bytes(50_000) + b"exit 7")
        connected.recv(1)
        close(connected, "reset")
        gone.set()

    async with stream_to(talk) as stream:
        await stream.write(b"x" * 100_000)
        await asyncio.to_thread(gone.wait, 10)

        async def write_on() -> None:
            while True:
                await stream.write(b"x" * 100_000)

        with pytest.raises(OSError, match=r"reset|pipe"):
            await write_on()

        assert await read_all(stream) == (50_006, False)


async def test_both_directions_pass_at_the_same_time_and_hold_each_other_up_never() -> None:
    def echo(connected: ssl.SSLSocket) -> None:
        left = 20 * SIZE
        while left:
            piece = connected.recv(65536)
            left -= len(piece)
            connected.sendall(piece)
        say_goodbye(connected)

    async with stream_to(echo) as stream, asyncio.TaskGroup() as group:

        async def write() -> None:
            for _ in range(20):
                await stream.write(bytes(SIZE))

        group.create_task(write())
        assert await read_all(stream) == (20 * SIZE, True)


async def test_a_peer_that_is_not_trusted_is_not_spoken_to() -> None:
    tls = loopback_tls()
    listener = socket.create_server(("127.0.0.1", 0))
    refusals: list[ssl.SSLError] = []

    def serve() -> None:
        accepted, _ = listener.accept()
        try:
            tls.context.wrap_socket(accepted, server_side=True)
        except ssl.SSLError as error:
            refusals.append(error)
        accepted.close()

    server = threading.Thread(target=serve)
    server.start()
    connected = socket.create_connection(listener.getsockname())
    connected.setblocking(False)
    stream = TlsStream(SocketStream(connected), ssl.create_default_context(), "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError):
        await stream.shake_hands()
    await asyncio.to_thread(server.join, 10)
    await stream.close()
    listener.close()
    assert "unknown ca" in str(refusals[0]).lower()
