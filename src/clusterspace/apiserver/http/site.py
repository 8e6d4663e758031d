"""What the connections of one server share, and what it tells those who count."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, Protocol

from clusterspace.apiserver.http.arrivals import Arrivals
from clusterspace.apiserver.http.limits import Limits
from clusterspace.apiserver.http.messages import Response, refusal
from clusterspace.apiserver.http.requests import Handler, Request
from clusterspace.errors import ApiError, InternalError
from clusterspace.telemetry import metrics


class Observer:
    """What a server tells whoever counts; override what you need."""

    def connection_opened(self) -> None:
        """Count a connection that is ready for its first request."""

    def connection_closed(self) -> None:
        """Count the end of a connection that had been opened."""

    def connection_rejected(self) -> None:
        """Count a connection over the limit of its address or the server, closed as it came."""

    def newcomer_evicted(self) -> None:
        """Count a connection that was cut for others who waited to show who they are."""

    def handshake_failed(self) -> None:
        """Count a TLS handshake that failed or took too long."""

    def request_refused(self, code: int) -> None:
        """Count a message that broke HTTP or a limit: it was answered without a handler."""

    def connection_stalled(self) -> None:
        """Count a peer that did not take its bytes and was cut."""


class CountedConnections(Observer):
    """Counts connections in the metrics of the process."""

    def connection_opened(self) -> None:
        """Count one more."""
        metrics.connections_changed(1)

    def connection_closed(self) -> None:
        """Count one less."""
        metrics.connections_changed(-1)

    def connection_rejected(self) -> None:
        """Count it as over a limit."""
        metrics.connection_refused("limit")

    def newcomer_evicted(self) -> None:
        """Count it as cut for others."""
        metrics.connection_refused("unauthenticated")

    def handshake_failed(self) -> None:
        """Count it as one that said nothing, or nothing that could be understood."""
        metrics.connection_refused("handshake")

    def connection_stalled(self) -> None:
        """Count it as one that did not read."""
        metrics.connection_refused("stalled")


FailureAnswer = Callable[[Request, Exception], Response]


def answer_failure(_request: Request, error: Exception) -> Response:
    """Answer for a handler that raised: an ApiError as it is, anything else as a plain 500."""
    if isinstance(error, ApiError):
        return refusal(error)
    return refusal(InternalError("the server could not handle the request; its log says why"))


class Tenant(Protocol):
    """A connection, as its server sees it."""

    @property
    def is_long_running(self) -> bool:
        """Whether it carries a stream or has been hijacked."""
        ...

    def sweep(self, now: float) -> None:
        """Act on what is overdue."""
        ...

    def start_draining(self) -> None:
        """Leave now if idle; otherwise the answer in progress is the last one."""
        ...

    def cancel(self) -> None:
        """End the handler and cut the connection."""
        ...


@dataclass(slots=True)
class Site:
    """What the connections of one server share."""

    handler: Handler
    arrivals: Arrivals[Any]
    """Who may connect. Its guests are connections, from their first packet to their last."""
    limits: Limits = field(default_factory=Limits)
    observer: Observer = field(default_factory=Observer)
    answer_failure: FailureAnswer = answer_failure
    arriving: set[Tenant] = field(default_factory=set[Tenant])
    """Accepted, but not yet through their handshake."""
    connections: set[Tenant] = field(default_factory=set[Tenant])
    lingering_newcomers: int = 0
    """How many strangers are being read out after a refusal."""
    unattended: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    """Handlers that go on although their client has gone."""
    is_draining: bool = False
    date_line: bytes = b""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever something that a drain waits for may have happened."""

    def refresh_date(self) -> None:
        """Bring the Date header up to the second."""
        self.date_line = f"Date: {formatdate(usegmt=True)}\r\n".encode()

    def adopt(self, task: asyncio.Task[None]) -> None:
        """Keep a handler alive whose connection has gone."""
        self.unattended.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self.unattended.discard(task)
        self.changed.set()
