"""What the connections of one server share, and what it reports to those who count."""

import asyncio
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, Protocol

from clusterspace.apiserver.http.arrivals import Arrivals
from clusterspace.apiserver.http.limits import Limits
from clusterspace.apiserver.http.requests import Handler
from clusterspace.telemetry import metrics
from clusterspace.telemetry.metrics import RequestLabels


class Observer:
    """Hears of what happens to connections; override what you need."""

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

    def request_refused(self, code: int) -> None:
        """Count it among the requests, of which it was none."""
        metrics.request_finished(RequestLabels(""), code, 0.0)

    def connection_stalled(self) -> None:
        """Count it as one that did not read."""
        metrics.connection_refused("stalled")


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

        def forget(ended: asyncio.Task[None]) -> None:
            self.unattended.discard(ended)
            self.changed.set()

        self.unattended.add(task)
        task.add_done_callback(forget)
