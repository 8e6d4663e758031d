import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.component.fake_clusters import connected
from tests.component.serving.certificates import Authority

from clusterspace.client import upgrades
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.settings import AuthInfo, ConnectionSettings, Pem, Trust
from clusterspace.client.upgrades import open_tunnel
from clusterspace.errors import (
    BadRequest,
    ClusterError,
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
    Forbidden,
)
from clusterspace.testing.builders import PODS

EXEC = ApiRequest(
    "POST",
    ResourcePath(PODS, "default", "web").with_subresource("exec").path,
    (("command", "ls"),),
    seconds=5,
)
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    talks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return  # whoever asked has heard enough, or the test has ended
        finally:
            talks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield int(server.sockets[0].getsockname()[1])
        left = tuple(talks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left)


class Cluster:
    """Answers upgrades with fixed bytes, then echoes; remembers what it was asked."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.heads: list[bytes] = []
        self.after: list[bytes] = []

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self._answer)
        while content := await reader.read(1000):
            self.after.append(content)
            writer.write(content)


def refusal(code: int, reason: str) -> bytes:
    status = {
        "kind": "Status",
        "status": "Failure",
        "reason": reason,
        "message": "no",
        "code": code,
    }
    body = msgspec.json.encode(status)
    head = f"HTTP/1.1 {code} No\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def settings_for(port: int) -> ConnectionSettings:
    identity = AuthInfo(token="secret")
    return ConnectionSettings("west", f"http://127.0.0.1:{port}/p", identity=identity)


async def test_bytes_pass_both_ways_once_the_cluster_switched():
    cluster = Cluster(SWITCHED)
    async with (
        listening(cluster.talk) as port,
        connected(settings_for(port)) as connection,
        open_tunnel(connection, EXEC, "SPDY/3.1") as tunnel,
    ):
        await tunnel.write(b"\x80\x03\x00\x01 anything")

        assert await tunnel.read() == b"\x80\x03\x00\x01 anything"
        assert tunnel.headers["upgrade"] == "SPDY/3.1"
    head = cluster.heads[0].decode()
    assert head.startswith("POST /p/api/v1/namespaces/default/pods/web/exec?command=ls HTTP/1.1")
    assert "Authorization: Bearer secret" in head


async def test_a_refusal_is_the_cluster_s_own():
    async with (
        listening(Cluster(refusal(403, "Forbidden")).talk) as port,
        connected(settings_for(port)) as connection,
    ):
        with pytest.raises(Forbidden) as caught:
            async with open_tunnel(connection, EXEC, "websocket"):
                pass
    assert caught.value.cluster == "west"


@pytest.mark.parametrize(
    "framed",
    [
        b"Content-Length: 9\r\n\r\nno such c",
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nno \r\n6;x=y\r\nsuch c\r\n0\r\n\r\n",
    ],
    ids=["whole", "in chunks"],
)
async def test_a_refusal_in_plain_words_is_passed_on_in_these_words(framed: bytes):
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    async with (
        listening(Cluster(head + framed).talk) as port,
        connected(settings_for(port)) as connection,
    ):
        with pytest.raises(BadRequest) as caught:
            async with open_tunnel(connection, EXEC, "SPDY/3.1"):
                pass
    assert (caught.value.message, caught.value.code) == ("no such c", 400)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://evil.example/\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    ],
)
async def test_any_other_answer_closes_the_connection_without_another_word(answer: bytes):
    cluster = Cluster(answer)
    async with listening(cluster.talk) as port, connected(settings_for(port)) as connection:
        with pytest.raises(ClusterMisbehaved):
            async with open_tunnel(connection, EXEC, "SPDY/3.1"):
                pass
        await asyncio.sleep(0.02)

    assert len(cluster.heads) == 1
    assert cluster.after == []


async def test_a_cluster_that_hangs_up_or_stays_silent_is_told_apart():
    async def hang_up(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    async def stay_silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(100_000)
        await reader.read(100_000)

    async with listening(hang_up) as port, connected(settings_for(port)) as connection:
        with pytest.raises(ClusterUnreachable):
            async with open_tunnel(connection, EXEC, "SPDY/3.1"):
                pass
    async with listening(stay_silent) as port, connected(settings_for(port)) as connection:
        brief = ApiRequest("POST", "/exec", seconds=0.1)
        with pytest.raises(ClusterTimeout):
            async with open_tunnel(connection, brief, "SPDY/3.1"):
                pass


async def test_only_protocols_of_kubernetes_are_asked_for():
    async with connected(settings_for(1)) as connection:
        with pytest.raises(ValueError, match="h2c"):
            async with open_tunnel(connection, EXEC, "h2c"):
                pass


async def test_a_tunnel_goes_through_the_proxy_with_tls_inside(tmp_path: Path):
    Authority(tmp_path).issue("server", host="127.0.0.1")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    targets: list[bytes] = []
    heads: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        target = head.split()[1]
        targets.append(target)
        heads.append(head)
        host, _, port = target.decode().partition(":")
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(pump(reader, inner_writer))
                group.create_task(pump(inner_reader, writer))
        finally:
            inner_writer.close()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(65536):
            writer.write(content)
        writer.close()

    cluster = Cluster(SWITCHED)
    async with listening(cluster.talk, tls) as port, listening(proxy) as proxy_port:
        settings = ConnectionSettings(
            "west",
            f"https://127.0.0.1:{port}",
            Trust(Pem(file=tmp_path / "ca.crt")),
            proxy_url=f"http://127.0.0.1:{proxy_port}",
            proxy_headers=(("X-Team", "blue"), ("X-Team", "green")),
        )
        async with (
            connected(settings) as connection,
            open_tunnel(connection, EXEC, "SPDY/3.1") as tunnel,
        ):
            await tunnel.write(b"hello")
            assert await tunnel.read() == b"hello"
            with pytest.raises(ClusterError):  # what is behind it speaks no HTTP of the API
                await connection.ask(ApiRequest("GET", "/version", seconds=5))

    assert targets == [f"127.0.0.1:{port}".encode()] * 2
    assert all(b"X-Team: blue\r\nX-Team: green\r\n" in head for head in heads)


@pytest.mark.slow
async def test_a_cluster_that_stops_reading_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    """A program may look at its input an hour after it was typed; the kernel must not give up."""
    monkeypatch.setattr(upgrades, "_SILENT_PEER_SECONDS", 2)
    goes_on = asyncio.Event()
    total = 32 * 1024 * 1024

    async def sleep_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCHED)
        await goes_on.wait()
        await reader.readexactly(total)
        writer.write(b"all of it")

    async with (
        listening(sleep_first) as port,
        connected(settings_for(port)) as connection,
        open_tunnel(connection, EXEC, "SPDY/3.1") as tunnel,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(tunnel.write(bytes(total)))
        await asyncio.sleep(6)
        goes_on.set()

        assert await tunnel.read() == b"all of it"
