r"""Several GETs in one request: browsers allow six connections, and a fleet has more to say.

    POST /ui/several {"paths": [...]}  ──>  each path is asked of the whole server, by itself
    {"at": 0, "status": 200}           <──  lines of JSON, in the order in which there is something
    {"at": 0, "text": "first line\n"}
    {"at": 0, "end": true}

Every path goes through all steps that it would go through had the browser asked for it: rules for
browsers, login, audit, fairness, the rights of its user. So this adds no right and no way around
one; it shares a connection, and that is all.
"""

import asyncio
import codecs
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from clusterspace.aio.slices import SLICE_BYTES
from clusterspace.apiserver.http.messages import (
    Handler,
    HeaderPairs,
    Headers,
    Hijacked,
    IncomingBody,
    Request,
    RequestHead,
    Response,
    Stream,
    answer_failure,
)
from clusterspace.apiserver.http.protocol import batches
from clusterspace.errors import ApiError, BadRequest
from clusterspace.fleet.page.browsers import is_page_path
from clusterspace.kube import statuses

MOST: Final = 64
"""Paths of one request. Who has more asks again."""
_BODY_LIMIT: Final = 64 * 1024
_OWN_HEADERS: Final = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "expect", "host"}
    | {"transfer-encoding", "upgrade", "audit-id"}
)
_HEAD: Final = (
    ("Content-Type", "text/plain; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
)


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    paths: list[str]


async def answer_several(request: Request, handler: Handler) -> Response | None:
    """Have `handler` answer every path that is asked for, as the one who sent the request."""
    try:
        if request.method != "POST":
            raise statuses.method_not_allowed()
        paths = await _read_paths(request)
    except ApiError as error:
        return answer_failure(error)
    stream = request.start_stream(200, _HEAD)
    # A reader who leaves has this task cancelled, and so whatever was going on for ever in it.
    async with asyncio.TaskGroup() as group:
        for at, path in enumerate(paths):
            part = _Part(at, request, stream)
            part.task = group.create_task(_answer_one(part, path, handler), name=f"part {at}")
    return None


async def _read_paths(request: Request) -> Sequence[str]:
    try:
        asked = msgspec.json.decode(await request.read_body(_BODY_LIMIT), type=_Asked)
    except msgspec.DecodeError as error:
        raise BadRequest('send {"paths": ["/api/v1/...", ...]}') from error
    if not 0 < len(asked.paths) <= MOST:
        raise BadRequest(f"ask for 1 to {MOST} paths at once, not {len(asked.paths)}")
    for path in asked.paths:
        is_plain = path.isascii() and path.isprintable() and " " not in path
        if not is_plain or not path.startswith("/") or is_page_path(path.partition("?")[0]):
            raise BadRequest(f"{path[:100]!r} is no path of the API")
    return asked.paths


async def _answer_one(part: "_Part", path: str, handler: Handler) -> None:
    kept = [each for each in part.outer.headers if each[0] not in _OWN_HEADERS]
    host = part.outer.headers.get("host") or ""
    head = RequestHead(
        method="GET",
        target=path.encode(),
        version="1.1",
        headers=Headers([("host", host), ("accept", "*/*"), *kept]),
        content_length=0,
        expects_continue=False,
        is_upgrade=False,
        keeps_alive=False,
    )
    request = Request(head, IncomingBody(is_complete=True), _Inner(part))
    try:
        response = await handler(request)
        if response is not None:
            part.say(status=response.status)
            await part.send(response.body)
    finally:
        request.end_answer()
        part.say(end=True)


class _Part:
    """One path among several, and where its answer goes."""

    def __init__(self, at: int, outer: Request, stream: Stream) -> None:
        self.outer = outer
        self.stream = stream
        self.task: asyncio.Task[None] | None = None
        self._at = at
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def cancel(self) -> None:
        """End this one; the others go on."""
        if self.task is not None:
            self.task.cancel()

    def say(self, **what: object) -> None:
        """Send one line."""
        self.stream.write(msgspec.json.encode({"at": self._at, **what}) + b"\n")

    async def send(self, body: bytes | Sequence[bytes]) -> None:
        """Send an answer that is whole, as fast as it is read; the others send meanwhile."""
        pieces = (body,) if isinstance(body, bytes) else body
        for batch in batches(pieces, SLICE_BYTES):
            self.text(bytes(batch))
            await self.outer.next_slice()
            with suppress(ConnectionError):
                await self.stream.drain()
        self.text(b"", is_last=True)

    def text(self, content: bytes, *, is_last: bool = False) -> None:
        """Send a piece of the answer; it may end within a character."""
        if text := self._decoder.decode(content, is_last):
            self.say(text=text)


class _Inner:
    """An Exchange that is one of several on a connection."""

    def __init__(self, part: _Part) -> None:
        self._part = part
        self._outer = part.outer

    @property
    def peer_address(self) -> str:
        return self._outer.peer_address

    @property
    def peer_certificate(self) -> bytes | None:
        return self._outer.peer_certificate

    @property
    def memory(self) -> dict[str, Any]:
        return self._outer.connection_memory

    @property
    def is_connected(self) -> bool:
        return not self._outer.is_disconnected

    async def wait_disconnected(self) -> None:
        await self._outer.wait_disconnected()

    def trust(self) -> None:
        self._outer.trust_connection()

    def cancel(self) -> None:
        self._part.cancel()

    async def next_slice(self, owner: str) -> None:
        self._outer.owner = owner
        await self._outer.next_slice()

    def want_body(self) -> None:
        """Nothing is on its way: a GET has no body."""

    def start_stream(self, status: int, headers: HeaderPairs) -> Stream:
        self._part.say(status=status)
        return Stream(_Unframed(self._part), has_body=True)

    def hijack(self, *, is_patient: bool = True) -> Hijacked:
        raise BadRequest("what leaves HTTP needs a connection of its own")


class _Unframed:
    """A Wire that takes framed chunks, and hands on what is in them."""

    def __init__(self, part: _Part) -> None:
        self._part = part
        self._rest = b""

    @property
    def is_connected(self) -> bool:
        return self._part.stream.is_open

    @property
    def buffered(self) -> int:
        return self._part.stream.buffered

    def write(self, data: bytes) -> None:
        self._rest += data
        while True:
            length, separator, behind = self._rest.partition(b"\r\n")
            size = int(length, 16) if separator else 0
            if not separator or len(behind) < size + 2:
                return
            self._rest = behind[size + 2 :]
            self._part.text(behind[:size], is_last=size == 0)

    async def drain(self) -> None:
        await self._part.stream.drain()

    async def flush(self) -> None:
        await self._part.stream.drain()

    def be_patient(self) -> None:
        """Do nothing: a browser reads all the time, and what the parts share is cut if not."""

    def half_close(self) -> None:
        """There is no half of a part to close."""

    def abort(self) -> None:
        self._part.cancel()

    async def wait_disconnected(self) -> None:
        await self._part.stream.wait_closed()
