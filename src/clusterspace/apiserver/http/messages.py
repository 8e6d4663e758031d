"""What a handler sees and returns: Request, Response, Stream, Hijacked; and the bytes of answers.

A handler answers a request in one of three ways. It returns a `Response`; or it starts a `Stream`
of chunks, or hijacks the connection and owns it whole, does its work, and returns None. All of them
are views of one connection, which is an `Exchange`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from clusterspace.errors import ApiError, InternalError, RequestEntityTooLarge
from clusterspace.kube import statuses

HeaderPairs: TypeAlias = Sequence[tuple[str, str]]


class Headers:
    """Request headers in the order they came; names are lower case and may repeat."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: HeaderPairs) -> None:
        self.pairs = pairs

    def get(self, name: str) -> str | None:
        """Return the first value of a header, or None."""
        wanted = name.lower()
        for each, value in self.pairs:
            if each == wanted:
                return value
        return None

    def get_all(self, name: str) -> list[str]:
        """Return every value of a header, in order."""
        wanted = name.lower()
        return [value for each, value in self.pairs if each == wanted]

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


# -- answers ---------------------------------------------------------------------------------------

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
BODILESS_STATUSES = frozenset({204, 304})
"""Answers that end with their headers, whatever the headers say (RFC 9112, section 6.3)."""

_SWITCHING = 101
_JSON = (("Content-Type", "application/json"),)
_FRAMING_NAMES = frozenset({"connection", "content-length", "date", "transfer-encoding"})


@dataclass(frozen=True, slots=True)
class Response:
    """An ordinary answer; a body in several pieces goes out without being joined."""

    status: int
    headers: HeaderPairs = ()
    body: bytes | Sequence[bytes] = b""


def encode_head(status: int, headers: HeaderPairs, framing: bytes) -> bytes:
    r"""Return status line and headers; `framing` is the server's own lines.

    Values may hold text from elsewhere (a member's warning, say), so a line break in one is an
    error here and not a second header, or a second answer, at the client.

    >>> encode_head(200, [("Content-Type", "text/plain")], b"Content-Length: 2\r\n")
    b'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n'
    """
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    count = len(headers)
    if lines.count("\n") != count or lines.count("\r") != count or "\0" in lines:
        raise ValueError("a response header contains a line break or NUL")
    if not _FRAMING_NAMES.isdisjoint([name.lower() for name, _ in headers]):
        raise ValueError(f"the server itself sets {', '.join(sorted(_FRAMING_NAMES))}")
    if not 200 <= status <= 599:
        raise ValueError(f"{status} is not the status of an answer")
    status_line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
    return b"".join((status_line, lines.encode(), framing, b"\r\n"))


def encode_response(
    response: Response, own_lines: bytes, *, is_head: bool = False
) -> Sequence[bytes]:
    """Return the pieces of an answer; to HEAD, the headers that GET would have had."""
    if response.status in BODILESS_STATUSES:
        return (encode_head(response.status, response.headers, own_lines),)
    body = (response.body,) if isinstance(response.body, bytes) else response.body
    framing = b"%bContent-Length: %d\r\n" % (own_lines, sum(map(len, body)))
    head = encode_head(response.status, response.headers, framing)
    return (head,) if is_head else (head, *body)


def refusal(error: ApiError) -> Response:
    """Return an error as an answer with a v1 Status body."""
    return Response(error.code, _JSON, msgspec.json.encode(statuses.status_of(error)) + b"\n")


def answer_failure(error: Exception) -> Response:
    """Answer for a handler that raised: an ApiError as it is, anything else as a plain 500."""
    if isinstance(error, ApiError):
        return refusal(error)
    return refusal(InternalError("the server could not handle the request; its log says why"))


# -- answers without an end in sight ---------------------------------------------------------------

LAST_CHUNK = b"0\r\n\r\n"


class Wire(Protocol):
    """The outgoing half of a connection."""

    @property
    def is_connected(self) -> bool:
        """Whether the peer is still there, as far as we know."""
        ...

    @property
    def buffered(self) -> int:
        """Bytes written and not yet taken by the network."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes, or buffer them; nothing happens when the peer has gone."""
        ...

    async def drain(self) -> None:
        """Wait until the buffer has room; ConnectionResetError when the peer has gone."""
        ...

    async def flush(self) -> None:
        """Wait until everything written has been taken, or the peer has gone."""
        ...

    def be_patient(self) -> None:
        """Do not cut a peer that stops reading, for as long as it is there."""
        ...

    def half_close(self) -> None:
        """Send the end of our half, where the transport can."""
        ...

    def abort(self) -> None:
        """Cut the connection and drop what is buffered."""
        ...

    async def wait_disconnected(self) -> None:
        """Wait until the peer has gone."""
        ...


def frame_chunk(data: bytes) -> bytes:
    r"""Frame bytes as one chunk: once for an event, however many watchers it goes to.

    >>> frame_chunk(b"hello")
    b'5\r\nhello\r\n'
    """
    # An empty chunk would be the end of the stream.
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


class Stream:
    """A chunked answer in progress.

    Writing never waits: a writer with many streams looks at `buffered` and aborts the slow ones,
    a writer with one awaits `drain`.
    """

    __slots__ = ("_has_body", "_is_open", "_wire")

    def __init__(self, wire: Wire, *, has_body: bool) -> None:
        self._wire = wire
        self._has_body = has_body
        self._is_open = True

    @property
    def is_open(self) -> bool:
        """Whether a write can still reach the peer."""
        return self._is_open and self._wire.is_connected

    @property
    def buffered(self) -> int:
        """Bytes written and not yet taken by the network."""
        return self._wire.buffered

    def write(self, data: bytes) -> None:
        """Send bytes as one chunk."""
        self.write_framed(frame_chunk(data))

    def write_framed(self, framed: bytes) -> None:
        """Send what `frame_chunk` returned."""
        if self._is_open and self._has_body:
            self._wire.write(framed)

    async def drain(self) -> None:
        """Wait until the buffer has room; ConnectionResetError when the peer has gone."""
        await self._wire.drain()

    def be_patient(self) -> None:
        """Let the client stop reading for as long as it likes: for writers that await `drain`.

        Somebody may be looking at one page of a log for an hour.
        """
        self._wire.be_patient()

    def end(self) -> None:
        """Finish the answer; the connection may go on to its next request."""
        # Written before it counts as closed. Ended twice, the second last chunk would be read as
        # the beginning of the next answer: `write_framed` lets nothing through any more.
        self.write_framed(LAST_CHUNK)
        self._is_open = False

    async def cut(self) -> None:
        """Send what was written, then cut: the client has all there is, and sees that more was due.

        Cut before the last chunk, and without a goodbye.
        """
        self._is_open = False
        await self._wire.flush()
        self._wire.abort()

    def abort(self) -> None:
        """Cut the connection at once: the client sees an answer that is visibly incomplete."""
        self._is_open = False
        self._wire.abort()

    async def wait_closed(self) -> None:
        """Wait until the peer has gone."""
        await self._wire.wait_disconnected()


class Hijacked:
    """A connection that has left HTTP: the handler owns both directions until it returns.

    `reader` has whatever the client sent behind its request, and stops reading the socket when
    nobody takes it. A client that stops reading is waited for. The peer's half-close is the
    reader's end of file; over TLS there is no half-close, so it is the end of both directions.
    """

    __slots__ = ("reader", "wire")

    def __init__(self, wire: Wire, reader: asyncio.StreamReader) -> None:
        self.wire = wire
        self.reader = reader

    @property
    def is_connected(self) -> bool:
        """Whether the peer is still there, as far as we know."""
        return self.wire.is_connected

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.wire.write(data)

    async def drain(self) -> None:
        """Wait until the buffer has room; ConnectionResetError when the peer has gone."""
        await self.wire.drain()

    async def flush(self) -> None:
        """Wait until everything written has been taken, or the peer has gone."""
        await self.wire.flush()

    def half_close(self) -> None:
        """Tell the peer that no more will come; over TLS nothing happens until the handler ends."""
        self.wire.half_close()

    def abort(self) -> None:
        """Cut the connection."""
        self.wire.abort()


# -- requests --------------------------------------------------------------------------------------


class RequestHead(NamedTuple):
    """The request line and headers of one request."""

    method: str
    target: bytes
    version: str
    headers: Headers
    content_length: int | None
    """None when chunked; 0 when there is no body."""
    expects_continue: bool
    is_upgrade: bool
    keeps_alive: bool


class IncomingBody:
    """A request body as it arrives; held back at the socket until somebody wants it.

    One reader, woken once: when the body is complete, has failed, or is larger than the reader
    takes. Whatever comes after that is counted and not kept.
    """

    __slots__ = (
        "_failure",
        "_limit",
        "_pieces",
        "_waiter",
        "arrived",
        "is_complete",
        "is_expected",
        "is_wanted",
    )

    def __init__(self, *, is_complete: bool) -> None:
        self.is_complete = is_complete
        self.is_expected = not is_complete
        """Whether more may still come: it is not complete, and has not failed."""
        self.is_wanted = False
        """Whether a handler has asked for the body."""
        self.arrived = 0
        """How many bytes have arrived."""
        self._pieces: list[bytes] = []
        self._limit: int | None = None
        self._failure: ApiError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def add(self, pieces: list[bytes], *, is_complete: bool) -> None:
        """Take what arrived."""
        self.arrived += sum(map(len, pieces))
        self.is_complete = is_complete
        self.is_expected = not is_complete and self._failure is None
        if self._limit is not None and self.arrived > self._limit:
            self._pieces.clear()
            self._wake()
            return
        # As few as possible: a million pieces of a byte would take long to put together at the end.
        self._pieces += pieces if len(pieces) < 2 else (b"".join(pieces),)
        if is_complete:
            self._wake()

    def fail(self, error: ApiError) -> None:
        """Say that the rest will not come."""
        self._failure = error
        self.is_expected = False
        self._wake()

    def want(self, limit: int) -> None:
        """Say that somebody is waiting for it, and how much of it they would take."""
        self._limit = limit
        self.is_wanted = True

    async def read(self) -> bytes:
        """Return the whole body once it is there; at most what is wanted is ever kept."""
        limit = self._limit or 0
        if self.is_expected and self.arrived <= limit:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self.arrived > limit:
            raise too_large(limit)
        if self._failure is not None:
            raise self._failure
        self._pieces = [b"".join(self._pieces)]
        return self._pieces[0]

    @property
    def whole(self) -> bytes:
        """The body, once it was read; else nothing."""
        was_read = self.is_wanted and self.is_complete and len(self._pieces) == 1
        return self._pieces[0] if was_read else b""

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def too_large(limit: int) -> RequestEntityTooLarge:
    """Return the refusal of a body over its limit, in kube-apiserver's words."""
    return RequestEntityTooLarge(f"Request entity too large: limit is {limit}")


class Exchange(Protocol):
    """The connection, as far as its current request may use it."""

    @property
    def peer_address(self) -> str:
        """The client's address, without its port."""
        ...

    @property
    def peer_certificate(self) -> bytes | None:
        """The client's verified certificate in DER, if it presented one."""
        ...

    @property
    def memory(self) -> dict[str, Any]:
        """What handlers remember about this connection."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether the peer is still there, as far as we know."""
        ...

    async def wait_disconnected(self) -> None:
        """Wait until the peer has gone."""
        ...

    def trust(self) -> None:
        """Take the peer for somebody we know."""
        ...

    def cancel(self) -> None:
        """End the handler and cut the connection."""
        ...

    async def next_slice(self, owner: str) -> None:
        """Wait for the next slice of the loop's time that is for this owner."""
        ...

    def want_body(self) -> None:
        """Let the body come: a handler is waiting for it."""
        ...

    def start_stream(self, status: int, headers: HeaderPairs) -> Stream:
        """Send the headers of a chunked answer."""
        ...

    def hijack(self, *, is_patient: bool = True) -> Hijacked:
        """Leave HTTP."""
        ...


class Request:
    """One request.

    A handler answers it in one of three ways: it returns a `Response`; or it calls `start_stream`
    or `hijack`, does its work, and returns None.
    """

    __slots__ = (
        "_after_answer",
        "_body",
        "_exchange",
        "_expected_bytes",
        "headers",
        "is_answering",
        "is_upgrade",
        "method",
        "on_answer",
        "owner",
        "path",
        "query",
        "target",
        "version",
    )

    def __init__(self, head: RequestHead, body: IncomingBody, exchange: Exchange) -> None:
        self.method = head.method
        self.target = head.target
        # Neither part is decoded: whoever does it, does it exactly once.
        self.path, _, self.query = head.target.decode("ascii").partition("?")
        self.version = head.version
        self.headers = head.headers
        self.is_upgrade = head.is_upgrade
        self.is_answering = False
        """Whether a stream has begun, or HTTP was left: then no other answer can be given."""
        self.on_answer: Callable[[int], None] | None = None
        """Told the status when a stream begins, or HTTP is left."""
        self.owner = ""
        """Whose it is, once that is known: long work for one owner is done in turns with that for
        others."""
        self._expected_bytes = head.content_length or 0
        self._body = body
        self._exchange = exchange
        self._after_answer: list[Callable[[], None]] = []

    @property
    def peer_address(self) -> str:
        """The client's address, without its port."""
        return self._exchange.peer_address

    @property
    def peer_certificate(self) -> bytes | None:
        """The client's verified certificate in DER, if it presented one."""
        return self._exchange.peer_certificate

    @property
    def connection_memory(self) -> dict[str, Any]:
        """A dictionary that lives as long as the connection, such as for the parsed identity."""
        return self._exchange.memory

    @property
    def is_disconnected(self) -> bool:
        """Whether the client has gone; an answer would reach nobody."""
        return not self._exchange.is_connected

    async def wait_disconnected(self) -> None:
        """Wait until the client has gone."""
        await self._exchange.wait_disconnected()

    async def next_slice(self) -> None:
        """Let everybody else have a turn before long work for this request goes on."""
        await self._exchange.next_slice(self.owner)

    def trust_connection(self) -> None:
        """Say that the client has shown who it is: its connection is kept when strangers flood."""
        self._exchange.trust()

    def cut(self) -> None:
        """Cancel whoever answers this and cut the connection: the client sees that it broke."""
        self._exchange.cancel()

    async def read_body(self, limit: int) -> bytes:
        """Return the body, or raise RequestEntityTooLarge when it is over `limit` bytes.

        A declared length over the limit is refused before the client is told to send it.
        """
        if self._expected_bytes > limit:
            raise too_large(limit)
        self._body.want(limit)
        if self._body.is_expected:
            self._exchange.want_body()
        return await self._body.read()

    @property
    def received_body(self) -> bytes:
        """The body, if somebody has read all of it; else nothing."""
        return self._body.whole

    def after_answer(self, act: Callable[[], None]) -> None:
        """Have something done once the answer has left for the client, or the client has gone.

        A handler has long returned its Response while a slow client still takes it: what the body
        costs is free only then. `act` must not raise.
        """
        self._after_answer.append(act)

    def end_answer(self) -> None:
        """Do what was to be done after the answer; for the connection to call."""
        while self._after_answer:
            self._after_answer.pop()()

    def start_stream(self, status: int, headers: HeaderPairs) -> Stream:
        """Send the headers of a chunked answer at once and return the rest of it to write."""
        self.is_answering = True
        if self.on_answer is not None:
            self.on_answer(status)
        return self._exchange.start_stream(status, headers)

    def hijack(self, *, is_patient: bool = True) -> Hijacked:
        """Take the connection out of HTTP; the handler writes its own 101 and all that follows.

        Whoever writes to a patient one waits for its peer; from others the peer has to read.
        """
        self.is_answering = True
        if self.on_answer is not None:
            self.on_answer(_SWITCHING)
        return self._exchange.hijack(is_patient=is_patient)


Handler: TypeAlias = Callable[[Request], Awaitable[Response | None]]
"""Answers requests; None means that it has streamed or hijacked."""
