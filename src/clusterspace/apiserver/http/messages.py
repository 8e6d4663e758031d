"""What goes over the wire around a body: headers, answers, refusals, and their bytes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeAlias

import msgspec

from clusterspace.errors import ApiError, InternalError
from clusterspace.kube import statuses

HeaderPairs: TypeAlias = Sequence[tuple[str, str]]

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
BODILESS_STATUSES = frozenset({204, 304})
"""Answers that end with their headers, whatever the headers say (RFC 9112, section 6.3)."""

_JSON = (("Content-Type", "application/json"),)
_FRAMING_NAMES = frozenset({"connection", "content-length", "date", "transfer-encoding"})


class Headers:
    """Request headers in the order they came; names are lower case and may repeat."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: HeaderPairs) -> None:
        self._pairs = pairs

    def get(self, name: str) -> str | None:
        """Return the first value of a header, or None."""
        wanted = name.lower()
        for each, value in self._pairs:
            if each == wanted:
                return value
        return None

    def get_all(self, name: str) -> list[str]:
        """Return every value of a header, in order."""
        wanted = name.lower()
        return [value for each, value in self._pairs if each == wanted]

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)


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
    return Response(error.code, _JSON, msgspec.json.encode(statuses.status_of(error)))


def answer_failure(error: Exception) -> Response:
    """Answer for a handler that raised: an ApiError as it is, anything else as a plain 500."""
    if isinstance(error, ApiError):
        return refusal(error)
    return refusal(InternalError("the server could not handle the request; its log says why"))
