"""Bytes to requests, one at a time and strictly: whatever could be read in two ways is refused.

httptools (llhttp) does the tokenising, and refuses most of what smugglers try. Around it stand
three rules of our own:

  - A head is collected whole before it is parsed, so its size is known and its request line can
    be checked as one piece (llhttp alone takes `GET /x\\nHost: a` for HTTP/0.9 with headers).
  - A message ends at an empty line or at its Content-Length, so the parser is fed up to there and
    no further. The bytes of the next request stay raw until this one is answered: nothing is
    queued, answers are in order, and a broken second request cannot disturb the first.
  - Framing headers must mean one thing to everybody: at most one of them, `chunked` alone, never
    on HTTP/1.0, never on an upgrade.
"""

import re
import sys
from typing import NamedTuple

import httptools

from clusterspace.apiserver.http.limits import KIB, Limits
from clusterspace.apiserver.http.messages import Headers
from clusterspace.errors import HttpViolation

_EMPTY_LINE = b"\r\n\r\n"
_REQUEST_LINE = re.compile(rb"([A-Z][A-Z-]*) ([!-~]+) HTTP/([0-9]\.[0-9])\r\n")
_REQUEST_LINE_EXTRA = 64
"""Room for method and version around the longest target."""
_HOST = re.compile(r"[A-Za-z0-9._~%:\[\]-]+")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_VERSIONS = frozenset({"1.0", "1.1"})

_CHUNK_OVERHEAD_FLOOR = 16 * KIB
_CHUNK_OVERHEAD_RATIO = 16
"""Chunk sizes, extensions and line ends may be this many times the body, so that a body of endless
extensions ends while a body of one-byte chunks passes."""


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


class RequestParser:
    """Reads one connection's requests: a head, its body, then on to the next."""

    __slots__ = (
        "_body",
        "_body_bytes",
        "_chunk_bytes",
        "_chunk_tail",
        "_complete",
        "_held",
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
        self._held = bytearray()
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
    def held_bytes(self) -> int:
        """How many bytes have arrived and not been read."""
        return len(self._held)

    def receive(self, data: bytes) -> None:
        """Take bytes from the connection; reading them is a step of its own."""
        self._held += data

    def take_held(self) -> bytes:
        """Give up the bytes behind an upgrade request: they are not HTTP."""
        held = bytes(self._held)
        self._held.clear()
        return held

    def start_next(self) -> None:
        """Go on to the next request; the current one must be complete."""
        self._reset()

    def release(self) -> None:
        """Let go of the tokeniser, which holds on to us in turn; nothing may be read after this."""
        del self._http

    # Heads

    def read_head(self) -> RequestHead | None:
        """Return the next head once all of it has arrived."""
        held = self._held
        if held and not 65 <= held[0] <= 90:
            raise HttpViolation(400, "a request begins with its method in capital letters")
        end = held.find(_EMPTY_LINE, self._searched)
        if end < 0:
            self._searched = max(0, len(held) - 3)
            self._check_unfinished_head()
            return None
        end += 4
        raw = bytes(held[:end])
        del held[:end]
        return self._parse_head(raw)

    def _check_unfinished_head(self) -> None:
        size, limits = len(self._held), self._limits
        line_room = limits.target_bytes + _REQUEST_LINE_EXTRA
        if size <= min(line_room, limits.header_bytes):
            return
        line_end = self._held.find(b"\r\n", 0, line_room)
        if line_end < 0 and size > line_room:
            raise _target_too_long(limits)
        if line_end >= 0 and size - line_end > limits.header_bytes:
            raise _headers_too_large(limits)

    def _parse_head(self, raw: bytes) -> RequestHead:
        line = _REQUEST_LINE.match(raw)
        if line is None:
            raise _unreadable_line(raw, self._limits)
        method, target, version = line[1].decode(), line[2], line[3].decode()
        _check_line(method, target, version, self._limits)
        self._check_header_size(raw, line.end())
        is_upgrade = self._tokenise(raw)
        headers = Headers(_decoded(self._pairs))
        _check_headers(headers, version, is_upgrade=is_upgrade)
        length = _content_length(headers)
        self._check_agreement(length, is_upgrade=is_upgrade)
        self._length_left = length
        return RequestHead(
            method=method,
            target=target,
            version=version,
            headers=headers,
            content_length=length,
            expects_continue=version == "1.1" and "expect" in headers,
            is_upgrade=is_upgrade,
            keeps_alive=version == "1.1" and self._keeps_alive,
        )

    def _check_header_size(self, raw: bytes, line_end: int) -> None:
        if len(raw) - line_end > self._limits.header_bytes:
            raise _headers_too_large(self._limits)
        # Two line ends are not headers': the request line's and the empty line's.
        if raw.count(b"\r\n") - 2 > self._limits.header_count:
            raise HttpViolation(431, f"more than {self._limits.header_count} request headers")

    def _tokenise(self, piece: bytes) -> bool:
        """Feed the tokeniser; tell whether it saw an upgrade."""
        try:
            self._http.feed_data(piece)
        except httptools.HttpParserUpgrade:
            return True
        except httptools.HttpParserError as error:
            raise HttpViolation(400, f"malformed HTTP request: {error}") from error
        return False

    def _check_agreement(self, length: int | None, *, is_upgrade: bool) -> None:
        """Our reading of where the message ends must be the tokeniser's."""
        if self._complete != (length == 0 or is_upgrade):
            raise HttpViolation(400, "ambiguous request framing")

    # Bodies

    @property
    def has_unread_body(self) -> bool:
        """Whether `read_body` left something for its next call."""
        return bool(self._held) and not self._complete

    def read_body(self, *, at_most: int = sys.maxsize) -> list[bytes]:
        """Return the pieces of the current body that have arrived since the last call.

        Of a chunked body not more than `at_most` bytes are read, framing included.
        """
        room = at_most
        while self._held and not self._complete and room > 0:
            end = self._piece_end(room)
            piece = bytes(self._held[:end])
            del self._held[:end]
            self._tokenise(piece)
            self._check_body(len(piece))
            room -= end
        body, self._body = self._body, []
        return body

    def _piece_end(self, room: int) -> int:
        """How much of what is held may be fed without running into the next request."""
        if self._length_left is not None:
            return min(self._length_left, len(self._held))
        end = min(end_of_empty_line(self._chunk_tail, self._held), room)
        self._chunk_tail = (self._chunk_tail + self._held[max(0, end - 3) : end])[-3:]
        return end

    def _check_body(self, fed: int) -> None:
        if self._length_left is not None:
            self._length_left -= fed
            return
        self._chunk_bytes += fed
        if self._trailers:
            raise HttpViolation(400, "trailers are not accepted")
        overhead = self._chunk_bytes - self._body_bytes
        if overhead > _CHUNK_OVERHEAD_FLOOR + _CHUNK_OVERHEAD_RATIO * self._body_bytes:
            raise HttpViolation(400, "chunk framing outweighs the body")

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


def end_of_empty_line(tail: bytes, held: bytes | bytearray) -> int:
    r"""Return how much of `held` reaches to the end of its first empty line, or all of it.

    The empty line may have begun in `tail`, the up to three bytes fed before.

    >>> end_of_empty_line(b"0\r\n", b"\r\nGET /")
    2
    """
    across = (tail + held[:3]).find(_EMPTY_LINE)
    if across >= 0:
        return across + 4 - len(tail)
    within = held.find(_EMPTY_LINE)
    return within + 4 if within >= 0 else len(held)


def _check_line(method: str, target: bytes, version: str, limits: Limits) -> None:
    if version not in _VERSIONS:
        raise HttpViolation(505, f"HTTP/{version} is not spoken here, HTTP/1.1 is")
    if method not in _METHODS:
        raise HttpViolation(405, "the server does not allow this method on the requested resource")
    if len(target) > limits.target_bytes:
        raise _target_too_long(limits)
    if not target.startswith(b"/") or b"#" in target:
        raise HttpViolation(400, "the request target must be a path, without scheme or fragment")


def _check_headers(headers: Headers, version: str, *, is_upgrade: bool) -> None:
    hosts = headers.get_all("host")
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        raise HttpViolation(400, "a request has exactly one Host header")
    if hosts and not _HOST.fullmatch(hosts[0]):
        raise HttpViolation(400, "malformed Host header")
    if any(value.lower() != "identity" for value in headers.get_all("content-encoding")):
        raise HttpViolation(415, "encoded request bodies are not accepted")
    if any(value.lower() != "100-continue" for value in headers.get_all("expect")):
        raise HttpViolation(417, "the only expectation that can be met is 100-continue")
    _check_framing(headers, version, is_upgrade=is_upgrade)


def _check_framing(headers: Headers, version: str, *, is_upgrade: bool) -> None:
    encodings = headers.get_all("transfer-encoding")
    lengths = headers.get_all("content-length")
    if len(encodings) + len(lengths) > 1:
        raise HttpViolation(400, "conflicting Content-Length or Transfer-Encoding")
    if encodings and (version == "1.0" or encodings[0].lower() != "chunked"):
        raise HttpViolation(400, "the only transfer coding is chunked, and HTTP/1.0 has none")
    if is_upgrade and (version == "1.0" or encodings or (lengths and int(lengths[0]) != 0)):
        raise HttpViolation(400, "an upgrade request has no body and is HTTP/1.1")


def _content_length(headers: Headers) -> int | None:
    if "transfer-encoding" in headers:
        return None
    return int(headers.get("content-length") or 0)


def _decoded(pairs: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    try:
        return [(name.lower().decode(), value.strip(b" \t").decode()) for name, value in pairs]
    except UnicodeDecodeError as error:
        raise HttpViolation(400, "a request header is not UTF-8 text") from error


def _unreadable_line(raw: bytes, limits: Limits) -> HttpViolation:
    if raw.find(b"\r\n") > limits.target_bytes + _REQUEST_LINE_EXTRA:
        return _target_too_long(limits)
    return HttpViolation(400, "malformed request line")


def _target_too_long(limits: Limits) -> HttpViolation:
    return HttpViolation(414, f"the request target is longer than {limits.target_bytes} bytes")


def _headers_too_large(limits: Limits) -> HttpViolation:
    return HttpViolation(431, f"the request headers are larger than {limits.header_bytes} bytes")
