"""The incoming half of a connection: requests one at a time, and no more than is wanted."""

import asyncio
from typing import Protocol, cast

from clusterspace.apiserver.http.limits import KIB, Limits
from clusterspace.apiserver.http.parsing import RequestHead, RequestParser
from clusterspace.apiserver.http.requests import IncomingBody
from clusterspace.errors import HttpViolation

_CHUNKED_AT_ONCE = 4 * KIB
"""Bytes of a chunked body, with its framing, that are read before others get a turn. Chunks of one
byte cost a thousand times as much as one of the same length: these are up to 10 ms."""

_TLS_AHEAD = 16 * KIB
"""What TLS may hold of a connection that is not read: one record."""


class _TlsTransport(Protocol):
    def set_read_buffer_limits(self, high: int) -> None: ...


class Inlet:
    """Reads the current request, and leaves to the kernel what nobody is waiting for."""

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
        return self._parser.held_bytes > 0

    def receive(self, data: bytes) -> None:
        """Take bytes from the connection."""
        self._parser.receive(data)

    def read_head(self) -> RequestHead | None:
        """Return the next request once its head has arrived; what there is of its body is read."""
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
            self._is_behind = True
            asyncio.get_running_loop().call_soon(self._read_on, body)
        elif self._ending is not None and body.is_expected:
            body.fail(self._ending)
        self.regulate()

    def end_body(self, reason: HttpViolation) -> None:
        """Say that nothing more will arrive; what has arrived and is not read yet still counts."""
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
        unread = self._parser.take_held()
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
        limits, body = self._limits, self.body
        ahead = limits.body_ahead_bytes if self.is_trusted else -1
        holds_enough = self._parser.held_bytes > limits.pipeline_bytes or (
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
