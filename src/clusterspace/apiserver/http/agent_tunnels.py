"""The tunnels of agents: a Pull member cannot be dialled, so its agent dials us, and we call in.

    agent ──GET clusters/NAME/tunnel, Upgrade: websocket, for which server──> this server
          <──101, or 409 when this is another one, and that not one beside it──
          <──streams, opened from here, and from here alone──

Each stream carries HTTP/1.1 in the clear, within the TLS of the tunnel: a request as it would go to
a Push member, impersonation headers and all, but without a credential. The agent adds its own.

Who may open the tunnel of a cluster is for the caller to check before `accept`. Nothing an agent
sends is taken for a request: it can answer, and nothing else. Of two tunnels of one cluster the
newer one counts; the older one is told so and closed, with what it carried. An agent that was
restarted is there again at once, then, and one that hangs is not in its way.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias, TypeVar

import structlog

from clusterspace.aio.byte_streams import ByteStream, SocketStream
from clusterspace.aio.clocks import Clock
from clusterspace.aio.multiplexer import Multiplexer, MultiplexerLimits
from clusterspace.aio.websockets import GOING_AWAY, VERSION, accept_key
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Hijacked
from clusterspace.errors import (
    BadRequest,
    ClusterError,
    ClusterUnreachable,
    Conflict,
    CredentialsUnusable,
)

_log = structlog.get_logger(__name__)

PROTOCOL: Final = "v1.tunnel.clusterspace.io"
"""The WebSocket subprotocol. One that cannot be understood by those who speak this is a v2."""

SERVER_HEADER: Final = "Clusterspace-Server"
"""In the request of an agent: which of the servers that may be at one address it is for."""

REPLACED: Final = 4409
"""What a tunnel is closed with when a newer one took its place."""

LONGEST_BLIP_SECONDS: Final = 20.0
"""How long after the end of a tunnel its agent is taken to be on its way back."""

_READ_SIZE: Final = 64 * 1024
ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)


PassOn: TypeAlias = Callable[[str, str], socket.socket | None]
"""Has a server, by its identity, carry the tunnel of a cluster; returns our end of a pipe to it, or
None when it is not within reach."""


class _HijackedStream:
    """A connection that has left HTTP, as a ByteStream."""

    def __init__(self, connection: Hijacked) -> None:
        self._connection = connection

    async def read(self, most: int = _READ_SIZE) -> bytes:
        return await self._connection.reader.read(most)

    async def write(self, content: bytes) -> None:
        self._connection.write(content)
        await self._connection.drain()

    def end(self) -> None:
        self._connection.half_close()

    async def close(self) -> None:
        """Do nothing: the server closes when the handler ends, and sends what is left before."""


class AgentTunnels:
    """The tunnels that are open to this server, by cluster."""

    def __init__(
        self, identity: str, clock: Clock, limits: MultiplexerLimits | None = None
    ) -> None:
        self.identity = identity
        """What agents know this server by, however they were led to it."""
        self._clock = clock
        self._limits = limits
        self.pass_on: PassOn = lambda _server, _cluster: None
        """Set by whoever has several servers behind one address."""
        self._open: dict[str, Multiplexer] = {}
        self._ended: dict[str, tuple[float, str]] = {}
        """When and why the last tunnel of a cluster ended that has none now; or since when one is
        missed that has never been here."""

    async def accept(self, context: RequestContext, cluster: str) -> None:
        """Take a request for the tunnel of a cluster, and carry streams until it ends."""
        asked = context.header("upgrade").lower()
        if not context.request.is_upgrade or asked != "websocket":
            raise BadRequest("a tunnel begins with an upgrade to websocket")
        key = context.header("sec-websocket-key")
        if not key or context.header("sec-websocket-version") != VERSION:
            raise BadRequest(f"not a WebSocket handshake of version {VERSION}")
        offered = context.request.headers.get_all("sec-websocket-protocol")
        names = [name.strip() for line in offered for name in line.split(",")]
        if PROTOCOL not in names:
            said = ", ".join(names)[:100] or "nothing"
            raise BadRequest(f"the agent speaks {said!r}, and this server {PROTOCOL!r}")
        passed_on: socket.socket | None = None
        if context.header(SERVER_HEADER) != self.identity:
            # Several servers may have one address. Whoever is led to the wrong one must not push
            # the tunnel out that it has here already.
            passed_on = self.pass_on(context.header(SERVER_HEADER), cluster)
            if passed_on is None:
                raise Conflict("this is another server than the tunnel is for: try again")
        head = (
            "HTTP/1.1 101 Switching Protocols",
            "Connection: Upgrade",
            "Upgrade: websocket",
            f"Sec-WebSocket-Accept: {accept_key(key)}",
            f"Sec-WebSocket-Protocol: {PROTOCOL}",
            "",
            "",
        )
        connection = context.request.hijack()
        connection.write("\r\n".join(head).encode())
        context.initialized()
        carrier = _HijackedStream(connection)
        if passed_on is None:
            await self.carry(carrier, cluster)
        else:
            await _join(carrier, SocketStream(passed_on))
        # Only now: a peer that does not take what is left must not pass for one that is there.
        await connection.flush()

    async def carry(self, carrier: ByteStream, cluster: str) -> None:
        """Carry streams to a cluster over what its agent has opened, until it ends."""
        opened = Multiplexer(carrier, self._clock, is_client=False, limits=self._limits)
        # Replaced in one step: whoever opens a stream from here on opens it on the new one.
        former, self._open[cluster] = self._open.get(cluster), opened
        self._ended.pop(cluster, None)
        if former is not None:
            former.close(REPLACED, "a newer connection of this cluster's agent took its place")
        _log.info("tunnel opened", cluster=cluster, replaced=former is not None)
        why = "this server ended it"
        try:
            why = await opened.run()
        finally:
            if self._open.get(cluster) is opened:
                del self._open[cluster]
                self._ended[cluster] = (self._clock.monotonic(), why)
            _log.info("tunnel ended", cluster=cluster, reason=why)

    def end_all(self) -> None:
        """Close all tunnels: this server stops, and agents are to look for another."""
        for each in self._open.values():
            each.close(GOING_AWAY, "the server is stopping")

    def forget(self, cluster: str) -> None:
        """Close the tunnel of a cluster that may have none any more."""
        existing = self._open.get(cluster)
        if existing is not None:
            existing.close(GOING_AWAY, "the cluster has left, or its view is forbidden")
        self._ended.pop(cluster, None)

    def is_open(self, cluster: str) -> bool:
        """Whether the agent of a cluster is connected."""
        return cluster in self._open

    def problem_with(self, cluster: str) -> ClusterError | None:
        """Return why a cluster cannot be reached through its tunnel, if that is so.

        A tunnel that has just broken is about to come back, and one of a cluster that is new, or to
        a server that has just started, is on its way: clients are told to come again. Later it is
        taken for one that does not come.
        """
        if cluster in self._open:
            return None
        now = self._clock.monotonic()
        ended, why = self._ended.setdefault(cluster, (now, ""))
        if now - ended < LONGEST_BLIP_SECONDS:
            said = f"its agent's connection is interrupted: {why}" if why else NOT_YET
            return ClusterUnreachable(cluster, said, was_sent=False)
        return CredentialsUnusable(cluster, NOT_CONNECTED)

    def dialer(self, cluster: str) -> "TunnelDialer":
        """Return what opens streams to a cluster, over whichever tunnel it has by then."""
        return TunnelDialer(self, cluster)

    def open(
        self, cluster: str, make_protocol: Callable[[], ProtocolT]
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """Open a stream to a cluster; ClusterError when it has no tunnel, or too many streams."""
        tunnel = self._open.get(cluster)
        if tunnel is None:
            raise self.problem_with(cluster) or ClusterError(cluster, NOT_CONNECTED)
        try:
            return tunnel.open(make_protocol)
        except ConnectionError as error:
            raise ClusterUnreachable(cluster, str(error), was_sent=False) from error


async def _join(agent: ByteStream, server: ByteStream) -> None:
    """Pass bytes on between an agent and the server that its tunnel is for, until one ends."""

    async def pass_on(source: ByteStream, target: ByteStream) -> None:
        with suppress(OSError):
            while content := await source.read():
                await target.write(content)

    try:
        async with asyncio.TaskGroup() as group:
            ways = ((agent, server), (server, agent))
            tasks = [group.create_task(pass_on(*way), name="tunnel passed on") for way in ways]
            # Half a tunnel is none: each side waits for what the other says.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
    finally:
        await server.close()


class TunnelDialer:
    """Opens streams to one cluster."""

    def __init__(self, tunnels: AgentTunnels, cluster: str) -> None:
        self._tunnels = tunnels
        self._cluster = cluster

    def open(self, make_protocol: Callable[[], ProtocolT]) -> tuple[asyncio.Transport, ProtocolT]:
        """Open a stream."""
        return self._tunnels.open(self._cluster, make_protocol)


NOT_YET: Final = "its agent has not connected to this server yet"
NOT_CONNECTED: Final = (
    "its agent is not connected to this server: see whether it runs, is of a version that "
    "offers the view, allows it (--allow-view) and reaches this address"
)
