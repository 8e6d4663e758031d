"""Watches and logs over a WebSocket, for clients in browsers: they cannot read a stream otherwise.

    GET .../pods?watch=1   Upgrade: websocket   ──> 101, then one message for each event
    GET .../pods/web/log   Upgrade: websocket   ──> 101, then the log in pieces

Whoever answers does not know of it. It is asked for a plain watch, and what it writes to its Stream
leaves as messages; a refusal before the first byte is an ordinary HTTP answer. What the client says
is read and dropped, except that a PING is answered and a CLOSE ends the stream.

Browsers cannot send an Authorization header with a WebSocket, so Kubernetes takes a token as one of
the protocols that are offered. It becomes the header here, before anybody asks who this is.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Supervisor, report
from clusterspace.aio.websockets import (
    NORMAL,
    VERSION,
    VIOLATION,
    Control,
    FrameReader,
    Opcode,
    accept_key,
    close_content,
    encode_frame,
)
from clusterspace.apiserver.http.messages import (
    Handler,
    HeaderPairs,
    Headers,
    Hijacked,
    Request,
    Response,
    Stream,
    Wire,
)
from clusterspace.apiserver.http.request_info import RequestInfo, read_request
from clusterspace.errors import ApiError, BadRequest, StreamBroken

PROTOCOLS: Final = "sec-websocket-protocol"
TOKEN_PROTOCOL: Final = "base64url.bearer.authorization.k8s.io."  # noqa: S105 - the word before it

_BINARY_LOG: Final = ("", "binary.k8s.io")
_BASE64_LOG: Final = "base64.binary.k8s.io"
_NOT_PLAIN: Final = frozenset(
    {
        "accept-encoding", "connection", "sec-websocket-extensions", "sec-websocket-key",
        "sec-websocket-version", "upgrade", PROTOCOLS,
    }
)  # fmt: skip
"""The headers of a request that whoever answers must not see: those of the handshake, and that the
client would take a compressed answer."""
_OK: Final = 200
_READ_BYTES: Final = 16 * 1024
_LENGTH_BYTES: Final = 4

Encode: TypeAlias = Callable[[bytearray], Iterator[bytes]]
"""Takes whole messages off the front of what was written, and yields them as frames."""


def streams_over_websockets(handler: Handler, clock: Clock) -> Handler:
    """Return a handler for upgrades that has watches and logs leave as messages."""

    async def handle(request: Request) -> Response | None:
        if (request.headers.get("upgrade") or "").lower() != "websocket":
            return await handler(request)
        offered = _take_token(request)
        try:
            info = read_request(request.method, request.path, request.query)
        except ApiError:
            return await handler(request)
        is_log = info.verb == "get" and info.resource == "pods" and info.subresource == "log"
        if info.verb != "watch" and not is_log:
            return await handler(request)
        protocol = _log_protocol(offered) if is_log else next(iter(offered), "")
        upgraded = _Upgraded(request, info, protocol)
        async with Supervisor(clock, report) as tasks:
            tasks.spawn("client of a WebSocket", upgraded.listen)
            response = await handler(upgraded)
            if response is not None and response.status == _OK:
                # A log that was there already is answered whole.
                body = response.body
                stream, response = upgraded.start_stream(_OK, response.headers), None
                stream.write(body if isinstance(body, bytes) else b"".join(body))
            await upgraded.finish()
        return response

    return handle


def _take_token(request: Request) -> list[str]:
    """Make a token among the protocols the Authorization header; return the other protocols."""
    offered = [
        name
        for line in request.headers.get_all(PROTOCOLS)
        for each in line.split(",")
        if (name := each.strip())
    ]
    tokens = [each for each in offered if each.startswith(TOKEN_PROTOCOL)]
    if not tokens:
        return offered
    others = [each for each in offered if not each.startswith(TOKEN_PROTOCOL)]
    pairs = [(name, value) for name, value in request.headers.pairs if name != PROTOCOLS]
    if others:
        pairs.append((PROTOCOLS, ", ".join(others)))
    if "authorization" not in request.headers:
        encoded = tokens[0].removeprefix(TOKEN_PROTOCOL)
        try:
            padded = encoded + "=" * (-len(encoded) % 4)
            token = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise BadRequest(
                f"the protocol {TOKEN_PROTOCOL}... has no token in base64url"
            ) from error
        if len(tokens) > 1 or not others or not token.isprintable():
            raise BadRequest("a token is sent as one protocol, beside another that is to be spoken")
        pairs.append(("authorization", f"Bearer {token}"))
    request.headers = Headers(pairs)
    return others


def _log_protocol(offered: list[str]) -> str:
    for each in offered or [""]:
        if each in (*_BINARY_LOG, _BASE64_LOG):
            return each
    raise BadRequest(f"unable to upgrade: logs are sent by {_BINARY_LOG[1]} or {_BASE64_LOG}")


class _Upgraded(Request):
    """A request that looks like a plain one, whose stream is sent as messages."""

    __slots__ = ("_connection", "_has_begun", "_key", "_protocol", "_stream", "_writes_log")

    def __init__(self, inner: Request, info: RequestInfo, protocol: str) -> None:
        for name in Request.__slots__:
            setattr(self, name, getattr(inner, name))
        self._key = inner.headers.get("sec-websocket-key") or ""
        if not self._key or inner.headers.get("sec-websocket-version") != VERSION:
            raise BadRequest("unable to upgrade: not a WebSocket handshake of version 13")
        self.is_upgrade = False
        self.headers = Headers([each for each in inner.headers.pairs if each[0] not in _NOT_PLAIN])
        self._protocol = protocol
        self._writes_log = info.verb != "watch"
        self._connection: Hijacked | None = None
        self._stream: Stream | None = None
        self._has_begun = asyncio.Event()

    def start_stream(self, status: int, headers: HeaderPairs) -> Stream:
        """Leave HTTP for messages; a stream that is a refusal stays an HTTP answer."""
        if status != _OK:
            return super().start_stream(status, headers)
        # Whoever watches has to read, as over a plain stream; a log says itself that it may wait.
        connection = self.hijack(is_patient=False)
        lines = [
            "HTTP/1.1 101 Switching Protocols",
            "Connection: Upgrade",
            "Upgrade: websocket",
            f"Sec-WebSocket-Accept: {accept_key(self._key)}",
        ]
        if self._protocol:
            lines.append(f"Sec-WebSocket-Protocol: {self._protocol}")
        connection.write("\r\n".join((*lines, "", "")).encode())
        content_type = next(
            (value for name, value in headers if name.lower() == "content-type"), ""
        )
        self._connection = connection
        self._stream = _MessageStream(connection.wire, self._encode_for(content_type))
        self._has_begun.set()
        return self._stream

    def _encode_for(self, content_type: str) -> Encode:
        if self._writes_log:
            return _base64_pieces if self._protocol == _BASE64_LOG else _pieces
        return _delimited if "protobuf" in content_type else _lines

    async def listen(self) -> None:
        """Hear what the client has to say once the stream has begun, until the client leaves."""
        await self._has_begun.wait()
        connection, code = self._connection, NORMAL
        if connection is None:
            return
        try:
            await _hear(connection)
        except (StreamBroken, ConnectionError):
            code = VIOLATION
        # Whoever writes the stream is told as if the client of a plain one had gone.
        if self._stream is not None and self._stream.is_open:
            connection.write(encode_frame(Opcode.CLOSE, close_content(code, ""), is_client=False))
            self.cut()

    async def finish(self) -> None:
        """Say that the stream has come to its end."""
        if self._connection is not None and self._stream is not None:
            self._stream.end()
            await self._connection.flush()


async def _hear(connection: Hijacked) -> None:
    """Answer PINGs until the client says goodbye, or is gone; whatever else it says is dropped."""
    frames = FrameReader(from_client=True, has_text=True)
    while arrived := await connection.reader.read(_READ_BYTES):
        for each in frames.feed(arrived):
            if isinstance(each, Control) and each.opcode is Opcode.PING:
                connection.write(encode_frame(Opcode.PONG, each.content, is_client=False))
                await connection.drain()
            elif isinstance(each, Control) and each.opcode is Opcode.CLOSE:
                return


class _MessageStream(Stream):
    """An answer in progress whose pieces leave as messages of a WebSocket."""

    __slots__ = ("_encode", "_unsent")

    def __init__(self, wire: Wire, encode: Encode) -> None:
        super().__init__(wire, has_body=True)
        self._encode = encode
        self._unsent = bytearray()

    def write(self, data: bytes) -> None:
        """Send the messages that are whole with these bytes."""
        self._unsent += data
        for frame in self._encode(self._unsent):
            if self._is_open:
                self._wire.write(frame)

    def write_framed(self, framed: bytes) -> None:
        """Send what is in chunks: they were framed for all watchers of a kind at once."""
        for data in chunks_in(framed):
            self.write(data)

    def end(self) -> None:
        """Say goodbye; the connection carries no other request."""
        if self._is_open:
            goodbye = encode_frame(Opcode.CLOSE, close_content(NORMAL, ""), is_client=False)
            self._wire.write(goodbye)
        self._is_open = False


def chunks_in(framed: bytes) -> Iterator[bytes]:
    """Yield the content of chunks as `frame_chunk` makes them, several in a row perhaps.

    >>> list(chunks_in(b"5\\r\\nhello\\r\\n1\\r\\n!\\r\\n"))
    [b'hello', b'!']
    """
    at = 0
    while at < len(framed):
        line_end = framed.index(b"\r\n", at)
        size = int(framed[at:line_end], 16)
        start = line_end + 2
        yield framed[start : start + size]
        at = start + size + 2


def _lines(unsent: bytearray) -> Iterator[bytes]:
    """Yield events in JSON: a text message for each, with the end of its line."""
    end = unsent.rfind(b"\n") + 1
    whole = bytes(unsent[:end])
    del unsent[:end]
    for line in whole.splitlines(keepends=True):
        yield encode_frame(Opcode.TEXT, line, is_client=False)


def _delimited(unsent: bytearray) -> Iterator[bytes]:
    """Yield events in protobuf, which come behind their lengths: a binary message for each."""
    while len(unsent) >= _LENGTH_BYTES:
        end = _LENGTH_BYTES + int.from_bytes(unsent[:_LENGTH_BYTES], "big")
        if len(unsent) < end:
            return
        yield encode_frame(Opcode.BINARY, bytes(unsent[_LENGTH_BYTES:end]), is_client=False)
        del unsent[:end]


def _pieces(unsent: bytearray) -> Iterator[bytes]:
    """Yield a log as it comes, in binary messages."""
    yield encode_frame(Opcode.BINARY, bytes(unsent), is_client=False)
    unsent.clear()


def _base64_pieces(unsent: bytearray) -> Iterator[bytes]:
    """Yield a log in base64, for clients that read text alone."""
    yield encode_frame(Opcode.TEXT, base64.b64encode(unsent), is_client=False)
    unsent.clear()
