"""Sockets, TLS, draining: new requests refused first, watches closed last.

    accepted ──> silent ──first byte──> handshake ──> a Connection in `site.connections`
                   └── said nothing in time: closed

A socket that has said nothing costs a socket, not a TLS state. Its turn comes from `Arrivals`,
which knows who may have one. From there on the connection looks after itself, and `_sweep` looks
once a second whether it is late.
"""

import asyncio
import asyncio.sslproto
import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from clusterspace.aio.clocks import Alarm, Clock, SystemClock
from clusterspace.apiserver.http.connections import Arrivals, Limits, Observer, Site
from clusterspace.apiserver.http.messages import Handler
from clusterspace.apiserver.http.protocol import UNTAKEN_MILLISECONDS, Connection

_log = structlog.get_logger(__name__)

_TLS12_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Forward secrecy and authenticated encryption only; TLS 1.3 has nothing else to begin with."""

_ASYNCIO_READ_BUFFER = 16 * 1024

_BACKLOG = 1024
_ACCEPTS_AT_ONCE = 64
"""After so many new connections the loop gets to serve the old ones."""
_ACCEPT_PAUSE_SECONDS = 1.0
"""How long to leave the socket alone when the process has no file descriptors left."""
_ORDINARY_SHARE = 0.75
"""The part of a drain's grace for ordinary requests; the rest is for streams to say goodbye."""
_CANCEL_SECONDS = 1.0
"""How long cancelled handlers may take to clean up."""
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_KEEPALIVE = (
    # A peer that lost its power sends no goodbye: probe after 30 s of silence, give up after 60 s.
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 30),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 10),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", UNTAKEN_MILLISECONDS),
    (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
)


class _Silent(NamedTuple):
    """An accepted socket of which nothing has been read, and until when that may be so."""

    socket: socket.socket
    deadline: float


class HttpServer:
    """Accepts connections for one handler until it is drained."""

    def __init__(
        self,
        handler: Handler,
        *,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
        observer: Observer | None = None,
        clock: Clock | None = None,
    ) -> None:
        limits, clock = limits or Limits(), clock or SystemClock()
        self._arrivals = Arrivals[Connection](limits, self._start, self._evict)
        self._site = Site(handler, self._arrivals, limits, observer or Observer(), clock)
        self._tls = tls
        self._listening: list[socket.socket] = []
        self._silent: dict[Connection, _Silent] = {}
        """Accepted, and nothing of theirs read; the oldest first."""
        self._handshakes: dict[Connection, asyncio.Task[None]] = {}
        self._sweeper = Alarm(clock, self._sweep)
        self._is_swept = False

    def use_tls(self, tls: ssl.SSLContext) -> None:
        """Shake hands with another context from now on; open connections keep theirs.

        What was agreed with the old one is no use with the new one: sessions are not resumed.
        """
        self._tls = tls

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of every listening socket."""
        return [listening.getsockname()[:2] for listening in self._listening]

    @property
    def connection_count(self) -> int:
        """Connections that are open, and those that are still shaking hands."""
        return len(self._site.connections) + len(self._site.arriving)

    async def listen(self, host: str, port: int) -> None:
        """Accept connections on every address of a host; port 0 lets the system choose."""
        loop = asyncio.get_running_loop()
        if self._tls is not None and isinstance(loop, asyncio.BaseEventLoop):
            shrink_asyncio_buffers()
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                self._listening.append(bind(family, address))
        except OSError:
            self._stop_accepting()
            raise
        for listening in self._listening:
            self._listen_to(loop, listening)
        self._start_sweeping()

    def adopt(self, accepted: socket.socket, address: str) -> None:
        """Serve a connection that another process has accepted; `address` is where it is from."""
        self._start_sweeping()
        self._admit(asyncio.get_running_loop(), accepted, address)

    def new_connection(self) -> Connection:
        """Return what serves a connection that comes in another way than by being accepted.

        How many there may be is for whoever makes them to say.
        """
        self._start_sweeping()
        return Connection(self._site, asyncio.get_running_loop())

    def _start_sweeping(self) -> None:
        if not self._is_swept:
            self._is_swept = True
            self._sweep()

    # Accepting

    def _accept(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                # The socket stays readable, so the loop would call again at once, and for ever.
                retry = _ACCEPT_PAUSE_SECONDS
                _log.error("cannot accept connections", reason=str(error), retry=retry)
                loop.remove_reader(listening)
                loop.call_later(retry, self._listen_to, loop, listening)
                return
            self._admit(loop, accepted, str(peer[0]) if peer else "")

    def _listen_to(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        if listening in self._listening:  # a drain may have closed it meanwhile
            loop.add_reader(listening, self._accept, loop, listening)

    def _admit(
        self, loop: asyncio.AbstractEventLoop, accepted: socket.socket, address: str
    ) -> None:
        connection = Connection(self._site, loop)
        if not self._arrivals.admit(connection, address):
            # An answer would cost a handshake, which is what a flood is after.
            self._site.observer.connection_rejected()
            accepted.close()
            return
        accepted.setblocking(False)
        for level, name, value in _KEEPALIVE:
            option = getattr(socket, name, None)
            if option is not None:
                accepted.setsockopt(level, option, value)
        # TLS state is made with the first byte: who connects and says nothing costs a socket.
        self._site.arriving.add(connection)
        limits = self._site.limits
        seconds = limits.header_seconds if self._tls is None else limits.handshake_seconds
        self._silent[connection] = _Silent(accepted, self._site.clock.monotonic() + seconds)
        loop.add_reader(accepted, self._hear, loop, connection)

    def _hear(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        """Have a connection started that has begun to speak, or forget one that has gone."""
        accepted = self._silent[connection].socket
        try:
            has_spoken = bool(accepted.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return
        except OSError:
            has_spoken = False
        loop.remove_reader(accepted)
        if has_spoken:
            self._arrivals.wait(connection, self._site.clock.monotonic())
        else:
            self._forget_silent(loop, connection)

    def _forget_silent(self, loop: asyncio.AbstractEventLoop, connection: Connection) -> None:
        accepted = self._silent.pop(connection).socket
        loop.remove_reader(accepted)
        accepted.close()
        self._site.arriving.discard(connection)
        self._arrivals.leave(connection, self._site.clock.monotonic())
        self._site.observer.handshake_failed()

    def _start(self, connection: Connection) -> None:
        """Begin the handshake of a connection whose turn it is."""
        loop = asyncio.get_running_loop()
        accepted = self._silent.pop(connection).socket
        shaking = self._shake_hands(loop, connection, accepted)
        task = loop.create_task(shaking, name="http handshake")
        self._handshakes[connection] = task
        task.add_done_callback(lambda _: self._handshakes.pop(connection, None))

    def _evict(self, connection: Connection) -> None:
        """Cut a newcomer that outstayed its room while others wait."""
        self._site.observer.newcomer_evicted()
        # Asked in this order: the task of a handshake outlives it by a turn of the loop.
        if connection.is_connected:
            connection.cancel()
        elif connection in self._handshakes:
            self._handshakes[connection].cancel()

    async def _shake_hands(
        self, loop: asyncio.AbstractEventLoop, connection: Connection, accepted: socket.socket
    ) -> None:
        """Give a connection its socket; for TLS, once the handshake is done."""
        limits = self._site.limits
        times = {
            "ssl_handshake_timeout": limits.handshake_seconds,
            "ssl_shutdown_timeout": limits.tls_shutdown_seconds,
        }
        try:
            await loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls,
                **(times if self._tls is not None else {}),
            )
        except OSError:
            # Port scanners, impatient clients and unknown authorities: counted, not logged.
            self._site.observer.handshake_failed()
        finally:
            self._site.arriving.discard(connection)
            if not connection.is_connected:
                accepted.close()
                self._arrivals.leave(connection, self._site.clock.monotonic())

    # Looking after connections

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeper.set(self._site.limits.sweep_seconds)
        self._site.refresh_date()
        now = self._site.clock.monotonic()
        while self._silent:
            connection, silent = next(iter(self._silent.items()))
            if now < silent.deadline:
                break
            self._forget_silent(loop, connection)
        self._arrivals.give_room(now)
        for connection in tuple(self._site.connections):
            connection.sweep(now)

    # Ending

    async def send_away(self, seconds: float) -> None:
        """Serve on for a while, and have every client come back on another connection.

        HTTP/1 cannot say that a request will not be read: a connection that is closed while its
        client sends one leaves that client with an error, or with a doubt. With an answer that says
        `Connection: close` there is neither. What `drain` closes then is idle for so long already.
        """
        if seconds > 0:
            self._site.is_leaving = True
            await self._site.clock.sleep(seconds)

    async def drain(
        self, grace_seconds: float, *, end_streams: Callable[[], Any] | None = None
    ) -> None:
        """Stop: no new connections, then ordinary requests finish, then streams end.

        `end_streams` is called between the two, so that watches can say goodbye to their clients.
        Whatever is left after the grace is cancelled and cut.
        """
        self._stop_accepting()
        loop = asyncio.get_running_loop()
        for connection in tuple(self._silent):
            self._forget_silent(loop, connection)
        self._site.is_draining = True
        for connection in tuple(self._site.connections):
            connection.start_draining()
        site, ordinary_seconds = self._site, grace_seconds * _ORDINARY_SHARE

        def only_streams_are_left() -> bool:
            return not site.unattended and all(each.is_long_running for each in site.connections)

        def nothing_is_left() -> bool:
            return not site.connections and not site.unattended

        await self._wait_until(only_streams_are_left, ordinary_seconds)
        if end_streams is not None:
            end_streams()
        await self._wait_until(nothing_is_left, grace_seconds - ordinary_seconds)
        for connection in tuple(site.connections):
            connection.cancel()
        for task in (*site.unattended, *self._handshakes.values()):
            task.cancel()
        await self._wait_until(nothing_is_left, _CANCEL_SECONDS)
        self._sweeper.cancel()
        self._is_swept = False

    def _stop_accepting(self) -> None:
        loop = asyncio.get_running_loop()
        listening, self._listening = self._listening, []
        for each in listening:
            loop.remove_reader(each)
            each.close()

    async def _wait_until(self, condition: Callable[[], bool], seconds: float) -> None:
        changed = self._site.changed
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    # Cleared after the look and before the wait, without an await in between: a
                    # change cannot fall into the gap.
                    changed.clear()
                    await changed.wait()


def bind(family: int, address: Any) -> socket.socket:
    """Return a socket that listens at an address."""
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # The same port for IPv4 has a socket of its own.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


# -- TLS -------------------------------------------------------------------------------------------


def server_context(
    certificate: Path,
    key: Path,
    *,
    client_authorities: Sequence[Path] = (),
    minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
) -> ssl.SSLContext:
    """Return a context for a server.

    A client may present a certificate. One that is not signed by `client_authorities` fails the
    handshake: it would otherwise look as if none had been presented.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = minimum_version
    context.set_ciphers(_TLS12_CIPHERS)
    # HTTP/2 would bring nothing for exec and port-forward, and a second protocol to defend.
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    # One ticket to resume by, of the two it would send: each holds the client's certificate.
    context.num_tickets = 1
    context.load_cert_chain(certificate, key)
    if client_authorities:
        context.verify_mode = ssl.CERT_OPTIONAL
        for authority in client_authorities:
            context.load_verify_locations(authority)
    return context


def reload_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Use a new certificate from the next handshake on; open connections keep theirs.

    A pair that does not fit raises ssl.SSLError and changes nothing. It is tried elsewhere first:
    a live context would be left with the new certificate and the old key.
    """
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    context.load_cert_chain(certificate, key)


def shrink_asyncio_buffers() -> None:
    """Let asyncio's own TLS use 16 KiB a connection instead of 256 KiB; uvloop has no need of it.

    One TLS record is at most 16 KiB, so nothing is lost but the memory.
    """
    asyncio.sslproto.SSLProtocol.max_size = _ASYNCIO_READ_BUFFER
