"""A request as handlers see it: what was asked, and the four things to do about it."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from clusterspace.apiserver.http.messages import HeaderPairs, Response
from clusterspace.apiserver.http.request_reader import IncomingBody, RequestHead, too_large
from clusterspace.apiserver.http.response_writer import Hijacked, Stream


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
