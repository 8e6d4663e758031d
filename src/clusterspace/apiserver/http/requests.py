"""A request as handlers see it: what was asked, and the four things to do about it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from clusterspace.apiserver.http.messages import HeaderPairs, Response
from clusterspace.apiserver.http.parsing import RequestHead
from clusterspace.apiserver.http.streams import Hijacked, Stream
from clusterspace.errors import ApiError, RequestEntityTooLarge


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

    def want_body(self) -> None:
        """Let the body come: a handler is waiting for it."""
        ...

    def start_stream(self, status: int, headers: HeaderPairs) -> Stream:
        """Send the headers of a chunked answer."""
        ...

    def hijack(self) -> Hijacked:
        """Leave HTTP."""
        ...


class IncomingBody:
    """A request body as it arrives; held back at the socket until somebody wants it."""

    __slots__ = ("_arrived", "_failure", "_limit", "_pieces", "_waiter", "is_complete")

    def __init__(self, *, is_complete: bool) -> None:
        self.is_complete = is_complete
        self._pieces: list[bytes] = []
        self._arrived = 0
        self._limit: int | None = None
        self._failure: ApiError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def arrived(self) -> int:
        """How many bytes have arrived."""
        return self._arrived

    @property
    def is_expected(self) -> bool:
        """Whether more may still come."""
        return not self.is_complete and self._failure is None

    @property
    def is_wanted(self) -> bool:
        """Whether a handler has asked for the body."""
        return self._limit is not None

    def add(self, pieces: list[bytes], *, is_complete: bool) -> None:
        """Take what arrived."""
        self._arrived += sum(map(len, pieces))
        self.is_complete = is_complete
        if self._limit is not None and self._arrived > self._limit:
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
        self._wake()

    def want(self, limit: int) -> None:
        """Say that somebody is waiting for it, and how much of it they would take."""
        self._limit = limit

    async def read(self) -> bytes:
        """Return the whole body once it is there; at most what is wanted is ever kept."""
        limit = self._limit or 0
        if self.is_expected and self._arrived <= limit:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._arrived > limit:
            raise too_large(limit)
        if self._failure is not None:
            raise self._failure
        self._pieces = [b"".join(self._pieces)]
        return self._pieces[0]

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


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
        "is_upgrade",
        "method",
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
        return self._exchange.start_stream(status, headers)

    def hijack(self) -> Hijacked:
        """Take the connection out of HTTP; the handler writes its own 101 and all that follows."""
        return self._exchange.hijack()


Handler: TypeAlias = Callable[[Request], Awaitable[Response | None]]
"""Answers requests; None means that it has streamed or hijacked."""


def too_large(limit: int) -> RequestEntityTooLarge:
    """Say that a body is over its limit, in kube-apiserver's words."""
    return RequestEntityTooLarge(f"Request entity too large: limit is {limit}")
