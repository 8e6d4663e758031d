"""The incoming half of a connection: bytes to requests, one at a time and strictly.

Whatever could be read in two ways is refused. httptools (llhttp) does the tokenising, and refuses
most of what smugglers try. Around it stand three rules of our own:

  - A head is collected whole before it is parsed, so its size is known and its request line can
    be checked as one piece (llhttp alone takes `GET /x\\nHost: a` for HTTP/0.9 with headers).
  - A message ends at an empty line or at its Content-Length, so the parser is fed up to there and
    no further. The bytes of the next request stay raw until this one is answered: nothing is
    queued, answers are in order, and a broken second request cannot disturb the first.
  - Framing headers must mean one thing to everybody: at most one of them, `chunked` alone, never
    on HTTP/1.0, never on an upgrade.
"""

import asyncio
import re
import sys
from collections.abc import Sequence
from typing import Protocol, cast

import httptools

from clusterspace.apiserver.http.connections import KIB, Limits
from clusterspace.apiserver.http.messages import Headers, IncomingBody, RequestHead
from clusterspace.errors import HttpViolation

_EMPTY_LINE = b"\r\n\r\n"
_REQUEST_LINE = re.compile(rb"([A-Z][A-Z-]*) ([!-~]+) HTTP/([0-9]\.[0-9])\r\n")
_REQUEST_LINE_EXTRA = 64
"""Room for method and version around the longest target."""
_HOST = re.compile(r"[A-Za-z0-9._~%:\[\]-]+")
_FRAMING = frozenset({"content-encoding", "content-length", "expect", "host", "transfer-encoding"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_VERSIONS = frozenset({"1.0", "1.1"})

_CHUNK_OVERHEAD_FLOOR = 16 * KIB
_CHUNK_OVERHEAD_RATIO = 16
"""Chunk sizes, extensions and line ends may be this many times the body, so that a body of endless
extensions ends while a body of one-byte chunks passes."""

_CHUNKED_AT_ONCE = 4 * KIB
"""Bytes of a chunked body, with its framing, that are read before others get a turn. Chunks of one
byte cost a thousand times as much as one of the same length: these are up to 10 ms."""

_TLS_AHEAD = 16 * KIB
"""What TLS may hold of a connection that is not read: one record."""


class RequestParser:
    """Reads one connection's requests: a head, its body, then on to the next."""

    __slots__ = (
        "_body",
        "_body_bytes",
        "_buffer",
        "_chunk_bytes",
        "_chunk_tail",
        "_complete",
        "_http",
        "_in_head",
        "_keeps_alive",
        "_length_left",
        "_limits",
        "_pairs",
        "_searched",
        "_trailers",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._http = httptools.HttpRequestParser(self)
        self._buffer = bytearray()
        self._reset()

    def _reset(self) -> None:
        self._searched = 0
        self._in_head = True
        self._keeps_alive = False
        self._complete = False
        self._trailers = False
        self._pairs: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._length_left: int | None = None
        self._chunk_bytes = 0
        self._chunk_tail = b""

    @property
    def is_complete(self) -> bool:
        """Whether the current request has arrived in full."""
        return self._complete

    @property
    def unread_bytes(self) -> int:
        """How many bytes have arrived and not been read."""
        return len(self._buffer)

    def receive(self, data: bytes) -> None:
        """Take bytes from the connection; reading them is a step of its own."""
        self._buffer += data

    def take_unread(self) -> bytes:
        """Give up the bytes behind an upgrade request: they are not HTTP."""
        unread = bytes(self._buffer)
        self._buffer.clear()
        return unread

    def start_next(self) -> None:
        """Go on to the next request; the current one must be complete."""
        self._reset()

    def release(self) -> None:
        """Let go of the tokeniser, which holds on to us in turn; nothing may be read after this."""
        del self._http

    # Heads

    def read_head(self) -> RequestHead | None:
        """Return the next head once all of it has arrived."""
        buffer = self._buffer
        if buffer and not 65 <= buffer[0] <= 90:
            raise HttpViolation(400, "a request begins with its method in capital letters")
        end = buffer.find(_EMPTY_LINE, self._searched)
        if end < 0:
            self._searched = max(0, len(buffer) - 3)
            # Refused while it grows, or a head without an end would be collected without an end.
            size, limits = len(buffer), self._limits
            line_room = limits.target_bytes + _REQUEST_LINE_EXTRA
            if size > min(line_room, limits.header_bytes):
                line_end = buffer.find(b"\r\n", 0, line_room)
                if line_end < 0 and size > line_room:
                    raise _target_too_long(limits)
                if line_end >= 0 and size - line_end > limits.header_bytes:
                    raise _headers_too_large(limits)
            return None
        end += 4
        raw = bytes(buffer[:end])
        del buffer[:end]
        return self._parse_head(raw)

    def _parse_head(self, raw: bytes) -> RequestHead:
        limits = self._limits
        line = _REQUEST_LINE.match(raw)
        if line is None:
            if raw.find(b"\r\n") > limits.target_bytes + _REQUEST_LINE_EXTRA:
                raise _target_too_long(limits)
            raise HttpViolation(400, "malformed request line")
        method, target, version = line[1].decode(), line[2], line[3].decode()
        _check_line(method, target, version, limits)
        if len(raw) - line.end() > limits.header_bytes:
            raise _headers_too_large(limits)
        # Two line ends are not headers': the request line's and the empty line's.
        if raw.count(b"\r\n") - 2 > limits.header_count:
            raise HttpViolation(431, f"more than {limits.header_count} request headers")
        is_upgrade = self._tokenise(raw)
        try:
            pairs = [
                (name.lower().decode(), value.strip(b" \t").decode()) for name, value in self._pairs
            ]
        except UnicodeDecodeError as error:
            raise HttpViolation(400, "a request header is not UTF-8 text") from error
        framing = _check_framing(pairs, version, is_upgrade=is_upgrade)
        is_chunked = "transfer-encoding" in framing
        length = None if is_chunked else int(framing.get("content-length", "0") or 0)
        if self._complete != (length == 0 or is_upgrade):
            # Our reading of where the message ends must be the tokeniser's.
            raise HttpViolation(400, "ambiguous request framing")
        self._length_left = length
        return RequestHead(
            method=method,
            target=target,
            version=version,
            headers=Headers(pairs),
            content_length=length,
            expects_continue=version == "1.1" and "expect" in framing,
            is_upgrade=is_upgrade,
            keeps_alive=version == "1.1" and self._keeps_alive,
        )

    def _tokenise(self, piece: bytes) -> bool:
        """Feed the tokeniser; return whether it saw an upgrade."""
        try:
            self._http.feed_data(piece)
        except httptools.HttpParserUpgrade:
            return True
        except httptools.HttpParserError as error:
            raise HttpViolation(400, f"malformed HTTP request: {error}") from error
        return False

    # Bodies

    @property
    def has_unread_body(self) -> bool:
        """Whether `read_body` left something for its next call."""
        return bool(self._buffer) and not self._complete

    def read_body(self, *, at_most: int = sys.maxsize) -> list[bytes]:
        """Return the pieces of the current body that have arrived since the last call.

        Of a chunked body not more than `at_most` bytes are read, framing included.
        """
        room = at_most
        while self._buffer and not self._complete and room > 0:
            # Fed up to where the message may end, never into the next request.
            if self._length_left is not None:
                end = min(self._length_left, len(self._buffer))
                self._length_left -= end
            else:
                end = min(end_of_empty_line(self._chunk_tail, self._buffer), room)
                self._chunk_tail = (self._chunk_tail + self._buffer[max(0, end - 3) : end])[-3:]
                self._chunk_bytes += end
            piece = bytes(self._buffer[:end])
            del self._buffer[:end]
            self._tokenise(piece)
            if self._trailers:
                raise HttpViolation(400, "trailers are not accepted")
            overhead = self._chunk_bytes - self._body_bytes
            if overhead > _CHUNK_OVERHEAD_FLOOR + _CHUNK_OVERHEAD_RATIO * self._body_bytes:
                raise HttpViolation(400, "chunk framing outweighs the body")
            room -= end
        body, self._body = self._body, []
        return body

    # What the tokeniser calls

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, or notice a trailer."""
        if self._in_head:
            self._pairs.append((name, value))
        else:
            self._trailers = True

    def on_headers_complete(self) -> None:
        """Ask what is forgotten with the end of the message."""
        self._in_head = False
        self._keeps_alive = self._http.should_keep_alive()

    def on_body(self, piece: bytes) -> None:
        """Keep a piece of the body."""
        self._body.append(piece)
        self._body_bytes += len(piece)

    def on_message_complete(self) -> None:
        """Notice the end of the request."""
        self._complete = True


def end_of_empty_line(tail: bytes, buffer: bytes | bytearray) -> int:
    r"""Return how much of `buffer` reaches to the end of its first empty line, or all of it.

    The empty line may have begun in `tail`, the up to three bytes fed before.

    >>> end_of_empty_line(b"0\r\n", b"\r\nGET /")
    2
    """
    across = (tail + buffer[:3]).find(_EMPTY_LINE)
    if across >= 0:
        return across + 4 - len(tail)
    within = buffer.find(_EMPTY_LINE)
    return within + 4 if within >= 0 else len(buffer)


def _check_line(method: str, target: bytes, version: str, limits: Limits) -> None:
    if version not in _VERSIONS:
        raise HttpViolation(505, f"HTTP/{version} is not spoken here, HTTP/1.1 is")
    if method not in _METHODS:
        raise HttpViolation(405, "the server does not allow this method on the requested resource")
    if len(target) > limits.target_bytes:
        raise _target_too_long(limits)
    if not target.startswith(b"/") or b"#" in target:
        raise HttpViolation(400, "the request target must be a path, without scheme or fragment")


def _check_framing(
    pairs: Sequence[tuple[str, str]], version: str, *, is_upgrade: bool
) -> dict[str, str]:
    """Return the headers that say where a message is for and where it ends, in one meaning each.

    Raises HttpViolation for whatever could be read in two ways.
    """
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        if name in _FRAMING:
            found.setdefault(name, []).append(value)
    hosts = found.get("host", [])
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        raise HttpViolation(400, "a request has exactly one Host header")
    if hosts and not _HOST.fullmatch(hosts[0]):
        raise HttpViolation(400, "malformed Host header")
    if any(value.lower() != "identity" for value in found.get("content-encoding", ())):
        raise HttpViolation(415, "encoded request bodies are not accepted")
    if any(value.lower() != "100-continue" for value in found.get("expect", ())):
        raise HttpViolation(417, "the only expectation that can be met is 100-continue")
    encodings, lengths = found.get("transfer-encoding", []), found.get("content-length", [])
    if len(encodings) + len(lengths) > 1:
        raise HttpViolation(400, "conflicting Content-Length or Transfer-Encoding")
    if encodings and (version == "1.0" or encodings[0].lower() != "chunked"):
        raise HttpViolation(400, "the only transfer coding is chunked, and HTTP/1.0 has none")
    if is_upgrade and (version == "1.0" or encodings or (lengths and int(lengths[0]) != 0)):
        raise HttpViolation(400, "an upgrade request has no body and is HTTP/1.1")
    return {name: values[0] for name, values in found.items()}


def _target_too_long(limits: Limits) -> HttpViolation:
    return HttpViolation(414, f"the request target is longer than {limits.target_bytes} bytes")


def _headers_too_large(limits: Limits) -> HttpViolation:
    return HttpViolation(431, f"the request headers are larger than {limits.header_bytes} bytes")


class _TlsTransport(Protocol):
    def set_read_buffer_limits(self, high: int) -> None: ...


# How much is taken in is a matter of who waits for it (`RequestReader.regulate`): a handler that
# reads the body gets it at the speed of the network, one that does not leaves it in the kernel, and
# a client that has not shown who it is has nothing read ahead at all.
class RequestReader:
    """Reads the current request, and leaves to the kernel what nobody is waiting for.

    All of it happens in callbacks of the event loop, so none of it waits. A body that arrives in a
    million chunks is read a few kilobytes at a time, with everybody else's turns in between; that
    is the one place where a step is left half done, and `_is_behind` says so.
    """

    __slots__ = (
        "_ending",
        "_is_behind",
        "_is_paused",
        "_limits",
        "_parser",
        "_seen",
        "_transport",
        "body",
        "is_trusted",
    )

    def __init__(self, transport: asyncio.Transport, limits: Limits) -> None:
        self._transport = transport
        if transport.get_extra_info("sslcontext") is not None:
            # TLS reads on while we do not, up to 512 KiB of somebody who may be nobody.
            cast("_TlsTransport", transport).set_read_buffer_limits(high=_TLS_AHEAD)
        self._limits = limits
        self._parser = RequestParser(limits)
        self._is_paused = False
        self._seen = 0
        self._is_behind = False
        """Whether the rest of what arrived is read in the next turn of the loop."""
        self._ending: HttpViolation | None = None
        self.body = IncomingBody(is_complete=True)
        self.is_trusted = False
        """Whether the client has shown who it is: bodies of strangers stay in the kernel."""

    @property
    def is_paused(self) -> bool:
        """Whether the socket is left alone."""
        return self._is_paused

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived that belong to no request yet."""
        return self._parser.unread_bytes > 0

    def receive(self, data: bytes) -> None:
        """Take bytes from the connection."""
        self._parser.receive(data)

    def read_head(self, arrived: bytes = b"") -> RequestHead | None:
        """Return the next request once its head has arrived; what there is of its body is read."""
        self._parser.receive(arrived)
        head = self._parser.read_head()
        if head is not None:
            self.body = IncomingBody(is_complete=self._parser.is_complete)
            self.read_body()
        return head

    def read_body(self) -> None:
        """Pass on what has arrived of the body; a malformed one fails where it is awaited."""
        if self.body.is_expected and not self._is_behind:
            self._read_on(self.body)
        else:
            self.regulate()

    def _read_on(self, body: IncomingBody) -> None:
        """Read what may be read at once; what is left has its turn after everybody else's."""
        self._is_behind = False
        if body is not self.body or not body.is_expected:
            return  # answered meanwhile: nobody waits for the rest
        try:
            pieces = self._parser.read_body(at_most=_CHUNKED_AT_ONCE)
        except HttpViolation as violation:
            body.fail(violation)
            return
        body.add(pieces, is_complete=self._parser.is_complete)
        if self._parser.has_unread_body:
            # Between now and then the request may be answered, or the connection lost: `_read_on`
            # looks whether its body is still the current one, `release` fails who waits for it.
            self._is_behind = True
            asyncio.get_running_loop().call_soon(self._read_on, body)
        elif self._ending is not None and body.is_expected:
            body.fail(self._ending)
        self.regulate()

    def end_body(self, reason: HttpViolation) -> None:
        """Say that nothing more will arrive; what has arrived and is not read yet still counts."""
        # A client may send its last byte and close at once. If the rest of what arrived waits for
        # its turn (`_read_on`), the body may yet turn out to be complete.
        if self._is_behind:
            self._ending = reason
        else:
            self.body.fail(reason)

    def body_is_slow(self) -> bool:
        """Whether too little of the body has arrived since this was last asked."""
        arrived, self._seen = self.body.arrived - self._seen, self.body.arrived
        return arrived < self._limits.body_window_bytes

    def start_next(self) -> None:
        """Go on to the next request; the current one must be complete."""
        self._parser.start_next()
        self._seen = 0
        self.regulate()

    def take_unread(self) -> bytes:
        """Give up the bytes behind an upgrade request: they are not HTTP."""
        unread = self._parser.take_unread()
        self.set_paused(False)
        return unread

    def release(self) -> None:
        """Let go of the parser: nothing comes any more."""
        if self._is_behind:
            # The parser goes with the connection, and with it whoever waits for the body.
            self.body.fail(HttpViolation(400, "the client left before its body was read"))
        self._parser.release()

    def regulate(self) -> None:
        """Stop reading the socket while we hold enough, and go on when we do not."""
        # Called after every step that changes one of the three: what is buffered, how much of the
        # body has arrived, who wants it. A step that forgets to call it leaves a client waiting for
        # ever (paused, and nobody resumes) or a stranger's bytes in our memory.
        #
        #     POST, 3 MiB, authenticated      64 KiB are taken in, then the socket rests
        #     the handler calls read_body     body.is_wanted: the socket is read again
        #     POST, 3 MiB, a stranger's       nothing is taken in until the chain has let it pass
        #     GET, GET, GET in one packet     the second and third stay raw; over 64 KiB, paused
        limits, body = self._limits, self.body
        ahead = limits.body_ahead_bytes if self.is_trusted else -1
        holds_enough = self._parser.unread_bytes > limits.pipeline_bytes or (
            body.is_expected and not body.is_wanted and body.arrived > ahead
        )
        self.set_paused(holds_enough)

    def set_paused(self, is_paused: bool) -> None:
        """Stop reading the socket, or go on."""
        if is_paused == self._is_paused or self._transport.is_closing():
            return
        self._is_paused = is_paused
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
