"""Exec, attach, port-forward and logs of a simulated pod, over sockets, to clients by hand."""

import json
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from tests.component.sim_clients import SpdyClient, WebSocketClient, ask, pod_server

from clusterspace.testing.steps import until_equal

SUCCESS = {"metadata": {}, "status": "Success"}
V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
PORT_FORWARD = "portforward.k8s.io"


@pytest_asyncio.fixture
async def port() -> AsyncGenerator[int]:
    async with pod_server() as found:
        yield found


def exec_path(*command: str, stdin: bool = False) -> str:
    words = "".join(f"&command={word}" for word in command)
    return f"exec?stdout=true&stderr=true&stdin={str(stdin).lower()}{words}"


@pytest.mark.parametrize("protocol", [V5, V4])
async def test_a_command_over_websocket_answers_on_its_channels(port: int, protocol: str) -> None:
    client = await WebSocketClient.connect(
        port, exec_path("sh", "-c", "echo%20hi;cat%20/nope"), protocol
    )

    said = await client.rest()

    assert said[1] == b"hi\n"
    assert said[2] == b"cat: /nope: No such file or directory\n"
    status = json.loads(said[3])
    assert status["reason"] == "NonZeroExitCode"
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "1"}]
    await client.close()


async def test_a_command_without_a_protocol_ends_in_silence_or_with_a_sentence(port: int) -> None:
    well = await WebSocketClient.connect(port, exec_path("echo", "hi"), "")
    badly = await WebSocketClient.connect(port, exec_path("cat", "/nope"), "")

    assert await well.rest() == {1: b"hi\n"}
    assert b"exit status 1" in (await badly.rest())[3]
    for client in (well, badly):
        await client.close()


async def test_v5_can_say_that_stdin_is_at_its_end(port: int) -> None:
    client = await WebSocketClient.connect(port, exec_path("cat", stdin=True), V5)

    await client.send(b"\x00one ")
    await client.send(b"\x00two")
    await client.send(b"\xff\x00")
    said = await client.rest()

    assert said[1] == b"one two"
    assert json.loads(said[3]) == SUCCESS
    await client.close()


async def test_a_command_over_spdy_answers_on_its_streams(port: int) -> None:
    client = await SpdyClient.connect(port, exec_path("cat", stdin=True), V4)
    error, stdin, stdout, stderr = [
        await client.open(streamtype=kind) for kind in ("error", "stdin", "stdout", "stderr")
    ]

    await client.ping(7)
    await client.send(stdin, b"hello")
    await client.send(stdin, b"", is_last=True)
    await client.read_until_ended(error, stdout, stderr)

    assert client.replied == {error, stdin, stdout, stderr}
    assert client.received[stdout] == b"hello"
    assert json.loads(client.received[error]) == SUCCESS
    assert client.pings == [(7).to_bytes(4)]
    await client.close()


async def test_a_window_may_be_resized_as_often_as_somebody_likes(port: int) -> None:
    client = await SpdyClient.connect(port, f"{exec_path('cat', stdin=True)}&tty=true", V4)
    error, stdin, stdout, resize = [
        await client.open(streamtype=kind) for kind in ("error", "stdin", "stdout", "resize")
    ]
    for width in range(100):
        await client.send(resize, json.dumps({"Width": width, "Height": 24}).encode())
    await client.send(stdin, b"hello\r\x04")
    await client.read_until_ended(error, stdout)

    assert client.received[stdout] == b"hello\r\nhello\r\n"
    await client.close()


async def test_a_megabyte_comes_back_whole(port: int) -> None:
    payload = bytes(range(256)) * 4096
    client = await SpdyClient.connect(port, exec_path("cat", stdin=True), V4)
    error, stdin, stdout, _ = [
        await client.open(streamtype=kind) for kind in ("error", "stdin", "stdout", "stderr")
    ]
    received = 0
    for start in range(0, len(payload), 16384):
        piece = payload[start : start + 16384]
        await client.send(stdin, piece)
        received += len(piece)
        while len(client.received.get(stdout, b"")) < received:
            await client.read()
    await client.send(stdin, b"", is_last=True)
    await client.read_until_ended(error, stdout)

    assert client.received[stdout] == payload
    await client.close()


@pytest.mark.parametrize("is_tunnelled", [False, True], ids=["spdy", "spdy-in-websocket"])
async def test_forwarded_connections_each_have_a_pair_of_streams(
    port: int, is_tunnelled: bool
) -> None:
    if is_tunnelled:
        tunnel = await WebSocketClient.connect(port, "portforward", f"SPDY/3.1+{PORT_FORWARD}")
        client = SpdyClient(tunnel)
    else:
        client = await SpdyClient.connect(port, "portforward", PORT_FORWARD)
    streams: list[tuple[int, int]] = []
    for request in ("0", "1"):
        errors = await client.open(streamtype="error", port="80", requestid=request)
        data = await client.open(streamtype="data", port="80", requestid=request)
        streams.append((errors, data))
    (first_errors, first), (second_errors, second) = streams

    await client.send(second, b"GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    await client.send(first, b"echo me")
    await client.send(first, b"", is_last=True)
    await client.read_until_ended(first, first_errors, second, second_errors)

    assert client.received[first] == b"echo me"
    assert client.received[second].startswith(b"HTTP/1.1 200 OK\r\n")
    assert client.received[second].endswith(b"default/web-0:80 GET /hello\n")
    assert client.received.get(first_errors, b"") == b""
    await client.close()


async def test_a_port_nobody_listens_on_is_refused_on_the_error_stream(port: int) -> None:
    client = await SpdyClient.connect(port, "portforward", PORT_FORWARD)
    errors = await client.open(streamtype="error", port="81", requestid="0")
    data = await client.open(streamtype="data", port="81", requestid="0")

    await client.read_until_ended(errors, data)

    assert b"connection refused" in client.received[errors]
    await client.close()


@pytest.mark.parametrize("protocol", [V4, ""], ids=["v4", "unnamed"])
async def test_ports_can_be_forwarded_on_websocket_channels(port: int, protocol: str) -> None:
    """kr8s names no protocol, and hung: kubelets take that for channels."""
    client = await WebSocketClient.connect(port, "portforward?ports=80", protocol)

    assert await client.receive() == b"\x00" + (80).to_bytes(2, "little")
    assert await client.receive() == b"\x01" + (80).to_bytes(2, "little")
    await client.send(b"\x00hello")
    assert await client.receive() == b"\x00hello"
    await client.close()


async def test_a_port_nobody_reads_from_does_not_stop_the_others(port: int) -> None:
    client = await WebSocketClient.connect(port, "portforward?ports=81,80", V4)
    for _ in range(4):
        await client.receive()
    refusal = await client.receive()
    assert refusal is not None
    assert refusal.startswith(b"\x01")

    for _ in range(100):
        await client.send(b"\x00to nobody")
    await client.send(b"\x02hello")

    assert await client.receive() == b"\x02hello"
    await client.close()


async def test_attach_shows_the_log_as_it_grows(port: int) -> None:
    client = await WebSocketClient.connect(port, "attach?stdout=true", V5)

    first, second = await client.receive(), await client.receive()

    assert first is not None
    assert second is not None
    assert int(second[1:7]) == int(first[1:7]) + 1
    await client.close()


async def test_a_followed_log_goes_on(port: int) -> None:
    status, connection = await ask(port, "GET", "log?follow=true")
    sizes: list[int] = []
    for _ in range(2):
        size = int(await connection.reader.readline(), 16)
        line = await connection.read_exactly(size + 2)
        sizes.append(int(line[:6]))

    assert status == 200
    assert sizes[1] == sizes[0] + 1
    await connection.close()


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ((), "Upgrade request required"),
        (("Connection: Upgrade", "Upgrade: h2c"), "unable to upgrade"),
        (
            (
                "Connection: Upgrade",
                "Upgrade: websocket",
                "Sec-WebSocket-Key: eA==",
                "Sec-WebSocket-Version: 13",
                "Sec-WebSocket-Protocol: v9.channel.k8s.io",
            ),
            "none of the protocols",
        ),
    ],
    ids=["no-upgrade", "unknown-upgrade", "unknown-protocol"],
)
async def test_an_upgrade_that_cannot_be_granted_is_a_bad_request(
    port: int, headers: tuple[str, ...], message: str
) -> None:
    status, connection = await ask(port, "GET", exec_path("ls"), *headers)
    body = await connection.read_exactly(int(connection.headers["content-length"]))

    assert status == 400
    assert message in json.loads(body)["message"]
    await connection.close()


@pytest.mark.parametrize("protocol", ["websocket", "spdy"])
async def test_what_was_typed_before_a_client_left_is_the_program_s_to_its_end(
    port: int, protocol: str
) -> None:
    piece = b"0123456789abcdef" * 2000
    path = exec_path("sh", "-c", "cat%20%3E/tmp/typed", stdin=True)
    if protocol == "websocket":
        client = await WebSocketClient.connect(port, path, V5)
        for _ in range(40):
            await client.send(b"\x00" + piece)
    else:
        client = await SpdyClient.connect(port, path, V4)
        streams = {
            kind: await client.open(streamtype=kind)
            for kind in ("error", "stdin", "stdout", "stderr")
        }
        while len(client.replied) < len(streams):  # who closes with input unread resets
            await client.read()
        for _ in range(40):
            await client.send(streams["stdin"], piece)
    await client.close()

    async def typed() -> int:
        looking = await WebSocketClient.connect(port, exec_path("cat", "/tmp/typed"), V5)
        said = await looking.rest()
        await looking.close()
        return len(said.get(1, b""))

    await until_equal(typed, 40 * len(piece))


async def test_a_command_that_the_server_cuts_is_not_a_success() -> None:
    async with pod_server() as port:
        client = await SpdyClient.connect(port, exec_path("cat", stdin=True), V4)
        error, *_ = [
            await client.open(streamtype=kind) for kind in ("error", "stdin", "stdout", "stderr")
        ]
        while error not in client.replied:
            await client.read()
    # The server has stopped.
    await client.read_until_ended(error)

    assert json.loads(client.received[error])["status"] == "Failure"
    await client.close()
