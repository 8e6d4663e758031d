"""The incoming half of a connection: requests one at a time, and no more than is wanted."""

import asyncio
from typing import Protocol, cast

from clusterspace.errors import HttpViolation
from clusterspace.serving.limits import Limits
from clusterspace.serving.parsing import RequestHead, RequestParser
from clusterspace.serving.requests import IncomingBody

_TLS_AHEAD = 16 * 1024
"""What TLS may hold of a connection that is not read: one record."""


class _TlsTransport(Protocol):
    def set_read_buffer_limits(self, high: int) -> None: ...


class Inlet:
    """Reads the current request, and leaves to the kernel what nobody is waiting for."""

    __slots__ = ("_is_paused", "_limits", "_parser", "_seen", "_transport", "body", "is_trusted")

    def __init__(self, transport: asyncio.Transport, limits: Limits) -> None:
        self._transport = transport
        if transport.get_extra_info("sslcontext") is not None:
            # TLS reads on while we do not, up to 512 KiB of somebody who may be nobody.
            cast("_TlsTransport", transport).set_read_buffer_limits(high=_TLS_AHEAD)
        self._limits = limits
        self._parser = RequestParser(limits)
        self._is_paused = False
        self._seen = 0
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
        if self.body.is_expected:
            try:
                pieces = self._parser.read_body()
            except HttpViolation as violation:
                self.body.fail(violation)
                return
            self.body.add(pieces, is_complete=self._parser.is_complete)
        self.regulate()

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
