"""Exec, attach, port-forward: a byte stream over a connection of its own.

An upgraded connection carries credentials and no longer speaks HTTP, so it is never pooled. The
cluster either switches to the protocol we asked for or refuses; any other answer closes it.
"""

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from clusterspace.aio.byte_streams import ByteStream, SocketStream, TlsStream
from clusterspace.aio.multiplexer import TransportStream
from clusterspace.client.connection import Connection, base_headers, keep_alive
from clusterspace.client.endpoints import dial
from clusterspace.client.requests import (
    Answer,
    ApiRequest,
    Headers,
    api_error,
    failure_of,
    transport_error,
)
from clusterspace.client.settings import client_context
from clusterspace.errors import (
    ApiError,
    ClusterError,
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
)
from clusterspace.kube import plain_text

PROTOCOLS: Final = ("websocket", "SPDY/3.1")
_HEAD_BYTES: Final = 64 * 1024
_REFUSAL_BYTES: Final = 1024 * 1024
_SENTENCE_LENGTH: Final = 1024
_SILENT_PEER_SECONDS: Final = 60
_CONNECT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The first lines of an HTTP answer; header names are in lower case."""

    status: int
    headers: dict[str, str]


class Tunnel:
    """Bytes in both directions, after the cluster switched protocols."""

    def __init__(self, head: ResponseHead, stream: ByteStream) -> None:
        self.headers = head.headers
        self._stream = stream

    async def read(self, most: int = 64 * 1024) -> bytes:
        """Return the bytes that have arrived; none at the end of the stream.

        OSError when it did not end but was cut; all that arrived before has been returned then,
        even if nothing could be written any more.
        """
        return await self._stream.read(most)

    async def write(self, content: bytes) -> None:
        """Send bytes, waiting while the cluster cannot take them."""
        await self._stream.write(content)

    async def close(self) -> None:
        """Say goodbye and close; a cluster that does not listen is not waited for."""
        await self._stream.close()

    def end(self) -> None:
        """Say that nothing more will be sent, where the stream can say so."""
        self._stream.end()


class _Answers:
    """What a peer says before its stream begins: heads and short bodies, with a limit."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._arrived = b""

    async def read_until(self, end: bytes) -> bytes:
        """Return everything up to and with a mark; IncompleteReadError when it does not come."""
        while (found := self._arrived.find(end)) < 0:
            if len(self._arrived) > _HEAD_BYTES:
                raise asyncio.LimitOverrunError("no end in sight", len(self._arrived))
            await self._read_more(None)
        return self._take(found + len(end))

    async def read_exactly(self, count: int) -> bytes:
        """Return so many bytes; IncompleteReadError when fewer come."""
        while len(self._arrived) < count:
            await self._read_more(count)
        return self._take(count)

    # As a stream of its own: what came behind the head is the beginning of what follows.

    async def read(self, most: int = 64 * 1024) -> bytes:
        return self._take(most) if self._arrived else await self._stream.read(most)

    async def write(self, content: bytes) -> None:
        await self._stream.write(content)

    def end(self) -> None:
        self._stream.end()

    async def close(self) -> None:
        await self._stream.close()

    async def _read_more(self, expected: int | None) -> None:
        more = await self._stream.read()
        if not more:
            raise asyncio.IncompleteReadError(self._arrived, expected)
        self._arrived += more

    def _take(self, count: int) -> bytes:
        taken, self._arrived = self._arrived[:count], self._arrived[count:]
        return taken


@asynccontextmanager
async def open_tunnel(
    connection: Connection, request: ApiRequest, protocol: str
) -> AsyncGenerator[Tunnel]:
    """Ask the cluster to switch to a protocol; leaving the block closes the connection."""
    if protocol not in PROTOCOLS:
        raise ValueError(f"cannot upgrade to {protocol!r}")
    deadline = asyncio.timeout(request.seconds)
    try:
        async with deadline:
            tunnel = await _upgraded(connection, request, protocol)
    except asyncio.IncompleteReadError as error:
        why = "closed the connection instead of switching protocols"
        raise ClusterUnreachable(connection.cluster, why, was_sent=True) from error
    except (OSError, asyncio.LimitOverrunError) as error:
        if deadline.expired():
            why = f"did not switch to {protocol} within {request.seconds:g}s"
            raise ClusterTimeout(connection.cluster, why) from error
        raise transport_error(connection.cluster, error) from error
    try:
        yield tunnel
    finally:
        await tunnel.close()


def read_head(lines: bytes) -> ResponseHead:
    """Read the first lines of an HTTP answer; a ValueError when they are none."""
    first, *rest = lines.decode("latin-1").rstrip("\r\n").split("\r\n")
    version, _, status = first.partition(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"no HTTP answer: {first[:80]!r}")
    pairs = (line.partition(":") for line in rest)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return ResponseHead(int(status[:3]), headers)


def judge_upgrade(cluster: str, head: ResponseHead, protocol: str) -> None:
    """Raise unless the cluster refused properly or switched to what was asked for."""
    if 400 <= head.status < 600:
        return
    if head.status != 101:
        why = f"answered {head.status} to an upgrade; only 101 or a refusal will do"
        raise ClusterMisbehaved(cluster, why, code=head.status)
    chosen = head.headers.get("upgrade", "")
    if chosen.lower() != protocol.lower():
        named = plain_text.line(chosen, 64)
        raise ClusterMisbehaved(cluster, f"switched to {named!r}, not to {protocol}", code=101)


async def _upgraded(connection: Connection, request: ApiRequest, protocol: str) -> Tunnel:
    settings = connection.settings
    parts = urlsplit(settings.server)
    headers: Headers = (
        ("Host", parts.netloc.rpartition("@")[2]),
        ("Connection", "Upgrade"),
        ("Upgrade", protocol),
        *base_headers(settings, await connection.credentials.get()),
        *request.headers,
    )
    if any("\r" in text or "\n" in text for pair in headers for text in pair):
        raise ValueError("a header must not hold a line break")
    lines = [f"{request.method} {parts.path}{request.target} HTTP/1.1"]
    lines.extend(f"{name}: {value}" for name, value in headers)
    stream = await _dial(connection)
    try:
        # As every other request of ours says names; in another encoding they would be somebody
        # else's.
        await stream.write("\r\n".join([*lines, "", ""]).encode())
        answers = _Answers(stream)
        head = await _read_head(connection.cluster, answers)
        judge_upgrade(connection.cluster, head, protocol)
        if head.status != 101:
            raise await _refusal(connection.cluster, head, answers)
    except BaseException:
        # After a failed upgrade nobody may say another word on it.
        await stream.close()
        raise
    return Tunnel(head, answers)


async def _refusal(cluster: str, head: ResponseHead, answers: _Answers) -> ApiError | ClusterError:
    """Return the refusal: a Status, or a sentence, which is all that kubelets have to say."""
    body = b""
    length = head.headers.get("content-length", "")
    if length.isdecimal():
        body = await answers.read_exactly(min(int(length), _REFUSAL_BYTES))
    elif head.headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _read_chunks(answers)
    if body and head.headers.get("content-type", "").startswith("text/plain"):
        sentence = plain_text.line(body.decode(errors="replace").strip(), _SENTENCE_LENGTH)
        return api_error(cluster, {"message": sentence}, head.status)
    failure = failure_of(cluster, Answer(head.status, head.headers, body))
    return failure or ClusterMisbehaved(cluster, "refused without a word", code=head.status)


async def _read_chunks(answers: _Answers) -> bytes:
    body = b""
    while len(body) < _REFUSAL_BYTES:
        line = (await answers.read_until(b"\r\n")).partition(b";")[0].strip()
        try:
            size = int(line, 16)
        except ValueError:
            return body
        if size <= 0:
            return body
        body += (await answers.read_exactly(min(size, _REFUSAL_BYTES) + 2))[:-2]
    return body


async def _read_head(cluster: str, answers: _Answers) -> ResponseHead:
    lines = await answers.read_until(b"\r\n\r\n")
    try:
        return read_head(lines)
    except ValueError as error:
        raise ClusterMisbehaved(cluster, str(error)) from error


async def _dial(connection: Connection) -> ByteStream:
    """Connect to the cluster, through its proxy if it has one, and encrypt if it does."""
    settings = connection.settings
    if connection.dialer is not None:
        return connection.dialer.open(TransportStream)[1]
    material = (await connection.credentials.get()).material
    context = client_context(settings.trust, material) if settings.is_tls else None
    host, port = _address_of(settings.server)
    name = settings.trust.server_name or host
    if not settings.proxy_url:
        return await _connect(connection, host, port, context, name)
    proxy = urlsplit(settings.proxy_url)
    proxy_tls = ssl.create_default_context() if proxy.scheme == "https" else None
    proxy_host, proxy_port = _address_of(settings.proxy_url)
    stream = await _connect(connection, proxy_host, proxy_port, proxy_tls, proxy_host)
    try:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        lines += [f"{name}: {value}" for name, value in settings.proxy_headers]
        if proxy.username is not None:
            pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(pair).decode()}")
        await stream.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        answers = _Answers(stream)
        head = await _read_head(settings.cluster, answers)
        if head.status != 200:
            why = f"the proxy on the way answered {head.status}"
            raise ClusterUnreachable(settings.cluster, why, was_sent=False)
        return await _encrypt(answers, context, name)
    except BaseException:
        await stream.close()
        raise


async def _connect(
    connection: Connection, host: str, port: int, context: ssl.SSLContext | None, name: str
) -> ByteStream:
    """Connect to what the host was looked up to, and judged to be; the name is TLS's alone."""
    rules = connection.settings.address_rules
    connected = await dial(rules, connection.resolve, host, port, _CONNECT_SECONDS)
    try:
        # What is typed into a program that does not read it waits for as long as the program likes.
        keep_alive(connected, _SILENT_PEER_SECONDS, may_stop_reading=True)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return await _encrypt(SocketStream(connected), context, name)
    except BaseException:
        connected.close()
        raise


async def _encrypt(stream: ByteStream, context: ssl.SSLContext | None, name: str) -> ByteStream:
    if context is None:
        return stream
    encrypted = TlsStream(stream, context, name)
    await encrypted.shake_hands()
    return encrypted


def _address_of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
