"""A member cluster that means harm: real TLS, a certificate that is in order, and lies behind it.

    async with hostile_member(KINDS["redirect"]) as member:
        ... let `member.url` join; it has the certificate of `loopback_tls` ...
        member.behave = KINDS["garbage"]

It is the fault that no proxy between us and a good cluster can play: whoever controls a member
controls every byte of its answers, and when they come. Each kind is one way to use that against
whoever asks a fleet of which it is a part. What it was asked, tokens and all, is in `asked`.
"""

import asyncio
import gzip
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

import msgspec

from clusterspace.testing.certificates import loopback_tls

if TYPE_CHECKING:
    from clusterspace.kube.objects import Object

ELSEWHERE: Final = "https://attacker.invalid/collect"
"""Where redirects lead."""

ESCAPES: Final = "\x1b[2J\x1b]0;owned\x07\u202egnp.exe\u2066 \x00\r\nError from server: run me\ttab"
"""What a terminal would obey: clear the screen, set the title, turn the letters around."""

_MOST_BODY: Final = 64 * 1024 * 1024
_SLOW_SECONDS: Final = 0.1
_BOMB_BYTES: Final = 160 * 1024 * 1024
_ENDLESS_PIECE: Final = b" " * 256 * 1024


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(default=b"", repr=False)

    @property
    def path(self) -> str:
        """The target without its query."""
        return urlsplit(self.target).path

    def parameter(self, name: str) -> str:
        """Return a parameter of the query, or nothing."""
        return parse_qs(urlsplit(self.target).query).get(name, [""])[0]

    def header(self, name: str) -> list[str]:
        """Return every value of a header; names are in lower case."""
        return [value for key, value in self.headers if key == name]

    @property
    def is_watch(self) -> bool:
        """Whether events are asked for."""
        return self.parameter("watch") in ("1", "true")


Behaviour: TypeAlias = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]
"""Answers one request, in any way at all; the connection is closed behind it."""


@dataclass
class HostileMember:
    """A member that runs."""

    url: str
    behave: Behaviour
    asked: list[Asked] = field(default_factory=list[Asked])


@asynccontextmanager
async def hostile_member(behave: Behaviour) -> AsyncGenerator[HostileMember]:
    """Run a member that behaves like this, with the certificate of all servers of the tests."""
    member = HostileMember("", behave)
    talks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        try:
            asked = await _read_request(reader)
            member.asked.append(asked)
            await member.behave(asked, writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, ValueError, asyncio.CancelledError):
            return  # whoever asked has heard enough, or the test has ended
        finally:
            talks.discard(task)
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    context = loopback_tls().context
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context, limit=1 << 20)
    member.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield member
    finally:
        server.close()
        for talk in tuple(talks):
            talk.cancel()
        if talks:
            await asyncio.wait(tuple(talks), timeout=2)


async def _read_request(reader: asyncio.StreamReader) -> Asked:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip().split("\r\n")
    method, target, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines)
    headers = tuple((name.strip().lower(), value.strip()) for name, _, value in pairs)
    length = next((int(value) for name, value in headers if name == "content-length"), 0)
    body = await reader.readexactly(min(length, _MOST_BODY)) if length else b""
    return Asked(method, target, headers, body)


# -- what it may say -------------------------------------------------------------------------------


def head(status: int | str, *lines: str, content_type: str = "application/json") -> bytes:
    """Return the first lines of an answer, as they are given; nothing is checked."""
    first = f"HTTP/1.1 {status} Because" if isinstance(status, int) else status
    typed = (f"Content-Type: {content_type}",) if content_type else ()
    return "\r\n".join((first, *typed, "Connection: close", *lines, "", "")).encode()


def answering(
    status: int, body: bytes = b"{}", *lines: str, content_type: str = "application/json"
) -> Behaviour:
    """Return a behaviour that answers every request with these words."""
    said = head(status, f"Content-Length: {len(body)}", *lines, content_type=content_type) + body

    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(said)

    return answer


def refusing(code: int, reason: str, *lines: str, message: str = "no") -> Behaviour:
    """Return a behaviour that answers every request with this Status."""
    status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    said: Object = {**status, "message": message, "reason": reason, "code": code, "details": {}}
    return answering(code, msgspec.json.encode(said), *lines)


def listing(
    *items: object, version: str = "5", lines: Sequence[str] = (), **beside: object
) -> Behaviour:
    """Return a behaviour that answers every request with a list, of the kind that was asked for."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        body = msgspec.json.encode({**list_head(asked, version), **beside, "items": items})
        writer.write(head(200, f"Content-Length: {len(body)}", *lines) + body)

    return answer


def list_head(asked: Asked, version: str = "5") -> dict[str, object]:
    """Return the beginning of a well-formed list of the resource that was asked for."""
    parts = asked.path.strip("/").split("/")
    group = "/".join(parts[1:3]) if parts[0] == "apis" else "v1"
    kind = _KINDS.get(parts[-1], parts[-1].capitalize())
    return {"kind": f"{kind}List", "apiVersion": group, "metadata": {"resourceVersion": version}}


_KINDS: Final = {
    "configmaps": "ConfigMap",
    "pods": "Pod",
    "deployments": "Deployment",
    "namespaces": "Namespace",
    "secrets": "Secret",
    "services": "Service",
}


def then(first: Behaviour, watches: Behaviour) -> Behaviour:
    """Return a behaviour that answers watches in another way than everything else."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await (watches if asked.is_watch else first)(asked, writer)

    return answer


async def _endless(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(head(200, "Transfer-Encoding: chunked"))
    _write_chunk(writer, b'{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[')
    # A transport that is being closed takes whatever it is given and keeps it: somebody who writes
    # on would take all the memory and all the turns of this loop.
    while not writer.is_closing():
        _write_chunk(writer, _ENDLESS_PIECE)
        await writer.drain()
        await asyncio.sleep(0)


async def _slow_bytes(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(head(200, "Transfer-Encoding: chunked"))
    while not writer.is_closing():
        _write_chunk(writer, b" ")
        await writer.drain()
        await asyncio.sleep(_SLOW_SECONDS)


async def _slow_head(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    for byte in head(200, "X-Padding: " + "x" * 100_000):
        writer.write(bytes((byte,)))
        await writer.drain()
        await asyncio.sleep(_SLOW_SECONDS)


async def _gzip_bomb(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    body = await asyncio.to_thread(_bomb)  # once, beside a loop that others share
    writer.write(head(200, f"Content-Length: {len(body)}", "Content-Encoding: gzip") + body)
    await writer.drain()


@lru_cache
def _bomb() -> bytes:
    """Return 160 megabytes of blanks in less than one."""
    opening = b'{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":['
    return gzip.compress(opening + b" " * _BOMB_BYTES, compresslevel=1)


async def _many_items(asked: Asked, writer: asyncio.StreamWriter) -> None:
    body = _opened(asked) + b"{}," * 3_000_000 + b"{}]}"
    writer.write(head(200, f"Content-Length: {len(body)}") + body)


async def _deep(asked: Asked, writer: asyncio.StreamWriter) -> None:
    body = _opened(asked) + b'{"a":' + b"[" * 5_000_000
    writer.write(head(200, f"Content-Length: {len(body)}") + body)


def _opened(asked: Asked) -> bytes:
    return msgspec.json.encode({**list_head(asked), "items": []})[:-2]


async def _truncated(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(head(200, "Content-Length: 100000") + _opened(asked))
    await writer.drain()
    writer.transport.abort()


async def _hang_up(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def _watch_nonsense(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(head(200, "Transfer-Encoding: chunked"))
    for line in (b"\xff\xfe\n", b'{"type":"EXPLODED","object":{}}\n', b'{"type":"ADDED"}\n'):
        _write_chunk(writer, line)
    writer.write(b"0\r\n\r\n")


def _write_chunk(writer: asyncio.StreamWriter, content: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(content), content))


STOLEN_HEADERS: Final = (
    f"Location: {ELSEWHERE}",
    "Set-Cookie: session=stolen; Path=/",
    "WWW-Authenticate: Basic realm=fleet",
    "Strict-Transport-Security: max-age=0",
    "Access-Control-Allow-Origin: *",
    f"Refresh: 0; url={ELSEWHERE}",
    f"Link: <{ELSEWHERE}>; rel=preload",
    'Alt-Svc: h2="attacker.invalid:443"',
    "Clear-Site-Data: *",
    f"Content-Location: {ELSEWHERE}",
    "Authentication-Info: x",
    "Proxy-Authenticate: Basic",
    "Cache-Control: public, max-age=31536000",
    f"Report-To: {ELSEWHERE}",
    "Audit-Id: somebody-else",
    "X-Remote-User: root",
)
"""Headers by which a member would speak in the name of the server that was asked."""

_SPOKEN_WARNINGS: Final = tuple(
    f'Warning: 299 - "number {number}: {"w" * 1000}"' for number in range(60)
)

REFUSING_KINDS: Final[dict[str, Behaviour]] = {
    "redirect": answering(302, b"", f"Location: {ELSEWHERE}", *STOLEN_HEADERS[1:]),
    "redirect-post": answering(307, b"{}", f"Location: {ELSEWHERE}"),
    "unchanged": answering(304, b""),
    "expired": refusing(410, "Expired"),
    "garbage": answering(200, bytes(range(256)) * 64),
    "html": answering(200, b"<html>Sign in</html>", content_type="text/html"),
    "no-list": answering(200, b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}}'),
    "wrong-kind": answering(
        200, b'{"kind":"List","apiVersion":"evil/v1","metadata":{"resourceVersion":"1"},"items":[]}'
    ),
    "endless": _endless,
    "gzip-bomb": _gzip_bomb,
    "slow-bytes": _slow_bytes,
    "slow-head": _slow_head,
    "odd-status": answering(999, b'{"kind":"Status","code":999,"message":"odd"}'),
    "low-status": answering(299, b"{}"),
    "unauthorized": refusing(401, "Unauthorized", "WWW-Authenticate: Basic realm=fleet"),
    "throttled": refusing(429, "TooManyRequests", "Retry-After: 86400"),
    "failing": refusing(500, "InternalError"),
    "rejecting": refusing(400, "BadRequest", message="I do not like it"),
    "too-large": refusing(
        504,
        "Timeout",
        message="Too large resource version",
    ),
    "texts": refusing(500, "InternalError", *_SPOKEN_WARNINGS, message=ESCAPES),
    "many-items": _many_items,
    "deep": _deep,
    "truncated": _truncated,
    "hang-up": _hang_up,
    "long-version": listing(version="9" * 100_000),
    "empty-pages": listing(metadata={"resourceVersion": "5", "continue": "more"}),
    "broken-header": answering(200, b"{}", "X-A: b\nSet-Cookie: a=b", 'Warning: 299 - "\x1b[2J"'),
}
"""Members of which nothing can be shown: all that may be seen of them is one warning."""


def _only_lists(behave: Behaviour) -> Behaviour:
    """Return a behaviour that behaves like this for a list, and lacks everything else."""
    lacking = answering(404, b"404 page not found\n", content_type="text/plain")

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        is_list = asked.path.rpartition("/")[2] in _KINDS
        await (behave if is_list else lacking)(asked, writer)

    return answer


LISTING_KINDS: Final[dict[str, Behaviour]] = {
    name: _only_lists(behave)
    for name, behave in {
        "headers": listing(lines=(*STOLEN_HEADERS, *_SPOKEN_WARNINGS[:5])),
        "no-version": listing(version=""),
        "watch-expired": then(listing(), refusing(410, "Expired")),
        "watch-nonsense": then(listing(), _watch_nonsense),
        "watch-endless": then(listing(), _endless),
        "watch-redirect": then(listing(), answering(302, b"", f"Location: {ELSEWHERE}")),
    }.items()
}
"""Members that list nothing, in good form, and lie elsewhere."""


def _mixed() -> Behaviour:
    """Return a behaviour that behaves in another of the ways above for each request."""
    random = Random(7)  # noqa: S311 - the same harm in every run
    ways = [REFUSING_KINDS[name] for name in sorted(REFUSING_KINDS)]

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await random.choice(ways)(asked, writer)

    return answer


KINDS: Final = {**REFUSING_KINDS, **LISTING_KINDS, "mixed": _mixed()}
