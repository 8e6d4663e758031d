import asyncio
from typing import Any

import pytest

from clusterspace.aio.event_loop import new_event_loop


class Closed(asyncio.Protocol):
    """Writes once more when its connection is gone, as uvloop's TLS does after a long stop."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport


async def write_to_a_closed_socket() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    protocol = Closed()
    await loop.create_connection(lambda: protocol, *server.sockets[0].getsockname())
    transport = protocol.transport
    assert transport is not None
    transport.abort()
    server.close()
    await server.wait_closed()
    while "closed=True" not in repr(transport):  # noqa: ASYNC110 - uvloop tells nobody else
        await asyncio.sleep(0.001)
    loop.call_soon(transport.write, b"goodbye")
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_a_goodbye_to_a_peer_that_is_gone_is_no_traceback_in_the_log():
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(write_to_a_closed_socket())


def test_any_other_bug_in_a_callback_is(caplog: pytest.LogCaptureFixture, logged_errors: list[str]):
    async def fail_later() -> None:
        asyncio.get_running_loop().call_soon(int, "no number")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(fail_later())

    assert "no number" in caplog.text
