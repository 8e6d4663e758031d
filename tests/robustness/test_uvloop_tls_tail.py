"""uvloop's TLS drops what it has read when the peer closes while its user does not read.

`read_after_the_close` needs nothing of ours and can be shown to uvloop's authors as it is. With
their loop it is expected to fail; on the day it does not, `aio.event_loop` is no longer needed.
"""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
import uvloop

from clusterspace.aio.event_loop import new_event_loop
from clusterspace.testing.certificates import loopback_tls

SIZE = 100_000


class Counter(asyncio.Protocol):
    def __init__(self) -> None:
        self.received, self.lost = 0, asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.received += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


async def read_after_the_close(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext) -> int:
    """Return how many of SIZE bytes arrive; all were sent, and then an orderly goodbye."""
    listener = socket.create_server(("127.0.0.1", 0))

    def send_and_close() -> None:
        connected = server_tls.wrap_socket(listener.accept()[0], server_side=True)
        connected.recv(1)
        connected.sendall(b"x" * SIZE)
        connected.settimeout(0.1)
        with suppress(OSError):  # our close_notify is sent; nobody answers it who does not read
            connected.unwrap()
        connected.close()

    server = threading.Thread(target=send_and_close)
    server.start()
    transport, protocol = await asyncio.get_running_loop().create_connection(
        Counter, *listener.getsockname(), ssl=client_tls
    )
    transport.write(b"?")
    transport.pause_reading()
    await asyncio.to_thread(server.join)
    await asyncio.sleep(0.1)  # in which uvloop sees the end, and closes
    transport.resume_reading()
    await asyncio.wait_for(protocol.lost.wait(), 10)
    listener.close()
    return protocol.received


def run_on(loop: Callable[[], asyncio.AbstractEventLoop]) -> int:
    tls = loopback_tls()
    trust = ssl.create_default_context(cadata=tls.authority.decode())
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(read_after_the_close(tls.context, trust))


@pytest.mark.xfail(reason="uvloop 0.23 and all before it; their pull request 661", strict=True)
def test_uvloop_delivers_what_was_sent_before_the_close() -> None:
    assert run_on(uvloop.new_event_loop) == SIZE


@pytest.mark.parametrize("loop", [new_event_loop, asyncio.new_event_loop], ids=["ours", "asyncio"])
def test_what_was_sent_before_the_close_is_delivered(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    assert run_on(loop) == SIZE
