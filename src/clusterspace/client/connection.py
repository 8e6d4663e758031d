"""One pooled, limited, TLS-verified set of HTTP connections per cluster.

Whether a request is repeated is a pure decision, by what became of it:

                                  reads        writes
never sent                        again        again
an address that is not allowed    no           no
broke before the answer           again        no: it may have happened
429 with Retry-After              again        again: it was refused unread
5xx with Retry-After              again        no
anything else                     no           no

A connection may have a WriteGuard, which is asked before every write whether it may still be sent.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from random import Random
from typing import Any, Final, Protocol, TypeAlias, TypeVar
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from clusterspace import __version__
from clusterspace.aio import clocks
from clusterspace.aio.clocks import Clock
from clusterspace.client.endpoints import JudgingResolver, Resolve, SocketAddress, look_up, refuse
from clusterspace.client.requests import (
    FOREIGN,
    Answer,
    AnswerStream,
    ApiRequest,
    Headers,
    failure_of,
    transport_error,
)
from clusterspace.client.settings import (
    ConnectionSettings,
    Credential,
    Credentials,
    CredentialSource,
    TlsMaterial,
    client_context,
)
from clusterspace.errors import (
    AddressNotAllowed,
    ClusterError,
    ClusterTimeout,
    ClusterUnreachable,
    CredentialsUnusable,
)
from clusterspace.telemetry.logs import REQUEST_ID_HEADER, current_request_id

MOST_ATTEMPTS: Final = 5
LONGEST_WAIT: Final = 30.0
"""A server that asks for more patience than this gets its refusal passed on."""
_GOODBYE_LOOKS: Final = 100
_GOODBYE_PAUSE: Final = 0.005


def retry_wait(request: ApiRequest, outcome: Answer | ClusterError, backoff: float) -> float | None:
    """Return how many seconds to wait before asking again, or None to leave it at that."""
    if isinstance(outcome, ClusterError):
        is_harmless = isinstance(outcome, ClusterUnreachable) and (
            request.is_safe or not outcome.was_sent
        )
        return backoff if is_harmless and not isinstance(outcome, AddressNotAllowed) else None
    wait = outcome.retry_after
    if wait is None or wait > LONGEST_WAIT:
        return None
    if outcome.status == 429 or (request.is_safe and outcome.status >= 500):
        # Never sooner than asked, and not all at the same moment.
        return wait + min(backoff, 1.0)
    return None


class WriteGuard(Protocol):
    """Says whether we may still write: a leader's word, who may have been deposed meanwhile.

    Both may raise NotLeading, and then the write is not sent.
    """

    async def admit(self) -> Headers:
        """Return the headers that the next write carries; it may take a look somewhere first."""
        ...

    def check(self) -> None:
        """Look at the clock once more: no await comes between this and the first byte sent."""
        ...

    def answered(self, headers: Mapping[str, str]) -> None:
        """Take in the headers of the answer to a write."""
        ...


ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)


class Dialer(Protocol):
    """Opens what a connection is made of where no address is dialled: a stream of a tunnel."""

    def open(self, make_protocol: Callable[[], ProtocolT]) -> tuple[asyncio.Transport, ProtocolT]:
        """Open a stream at once; a ClusterUnreachable, nothing sent, when there can be none."""
        ...


class _StreamConnector(aiohttp.BaseConnector):
    """Makes the connections of a pool out of the streams of a dialer."""

    def __init__(self, dialer: Dialer, keepalive_seconds: float) -> None:
        super().__init__(keepalive_timeout=keepalive_seconds, limit=0)
        self._dialer = dialer

    async def _create_connection(
        self,
        req: Any,
        traces: Any,
        timeout: Any,  # noqa: ASYNC109 - as the library has it; nothing here waits
    ) -> ResponseHandler:
        del req, traces, timeout
        return self._dialer.open(self._factory)[1]


_USER_AGENT: Final = f"clusterspace/{__version__}"
_LARGE_BODY: Final = 1 << 20
_READ_BUFFER: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How much one cluster may cost us."""

    requests_at_once: int = 64
    streams_at_once: int = 512
    connect_seconds: float = 10.0
    keepalive_seconds: float = 60.0
    silent_peer_seconds: int = 60
    """A peer whose machine vanished is noticed after this time, however idle the connection."""


class Pool:
    """Connections that were made with one set of certificates."""

    def __init__(
        self,
        settings: ConnectionSettings,
        credential: Credential,
        limits: ConnectionLimits,
        resolve: Resolve,
        guard: WriteGuard | None = None,
        dialer: Dialer | None = None,
    ) -> None:
        self.material: TlsMaterial = credential.material
        self.credential = credential
        self.users = 0
        self._settings = settings
        self._limits = limits
        self._sockets = WeakSet[socket.socket]()
        context = client_context(settings.trust, credential.material) if settings.is_tls else True
        connector: aiohttp.BaseConnector
        if dialer is not None:
            connector = _StreamConnector(dialer, limits.keepalive_seconds)
        else:
            connector = aiohttp.TCPConnector(
                limit=0,  # the semaphores are the bound, one for requests and one for streams
                ssl=context,
                keepalive_timeout=limits.keepalive_seconds,
                resolver=JudgingResolver(settings.address_rules, resolve),
                socket_factory=self._make_socket,
            )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=_READ_BUFFER,
            skip_auto_headers=("User-Agent", "Accept-Encoding", "Content-Type"),
            trace_configs=[] if guard is None else [_checked_when_connected(guard)],
        )
        # The library would repeat a PUT or DELETE by itself when a kept connection turns out to
        # be closed. It cannot know whether the first one was carried out; `retry_wait` decides.
        self._session._retry_connection = False  # pyright: ignore[reportPrivateUsage]

    @asynccontextmanager
    async def request(
        self, request: ApiRequest, url: URL
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Send the request and wait for the head of the answer."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._limits.connect_seconds, sock_read=request.quiet_seconds
        )
        given = {name.lower() for name, _ in request.headers}
        defaults = (
            ("User-Agent", _USER_AGENT),
            ("Accept-Encoding", "gzip" if self._settings.compresses else "identity"),
        )
        headers = [
            *(pair for pair in defaults if pair[0].lower() not in given),
            *base_headers(self._settings, self.credential),
            *request.headers,
        ]
        # The library sends a large body piece by piece only when it can read from it.
        is_large = request.body is not None and len(request.body) > _LARGE_BODY
        async with self._session.request(
            request.method,
            url,
            headers=headers,
            data=BytesIO(request.body or b"") if is_large else request.body,
            allow_redirects=False,
            proxy=self._settings.proxy_url or None,
            proxy_headers=self._settings.proxy_headers,
            server_hostname=self._settings.trust.server_name or None,
            timeout=timeout,
            trace_request_ctx=request.is_safe,
        ) as response:
            yield response

    async def close(self) -> None:
        """Close every connection, and see most of them closed."""
        await self._session.close()
        # The library waits for connections that it keeps. One that was left in the middle of an
        # answer, as a watch is, says goodbye by itself: a command whose loop ended with it would
        # leave its socket to the collector. Whoever does not answer a goodbye is not waited for.
        for _ in range(_GOODBYE_LOOKS):
            if all(each.fileno() == -1 for each in self._sockets):
                return
            await asyncio.sleep(_GOODBYE_PAUSE)

    def _make_socket(self, address: SocketAddress) -> socket.socket:
        family, kind, protocol, _, peer = address
        # Hosts written as addresses are looked up by nobody, so each is judged here once more:
        # this is what the socket will be connected to, of the cluster or of a proxy before it.
        refuse(self._settings.address_rules, str(peer[0]))
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        made.setblocking(False)
        keep_alive(made, self._limits.silent_peer_seconds)
        return made


def _checked_when_connected(guard: WriteGuard) -> aiohttp.TraceConfig:
    """Return the hook that asks the guard once more, when a write has its connection.

    Waiting for a connection, a name and a handshake takes time, in which a process may be frozen.
    From this hook on the library writes the whole request without waiting for anything.
    """

    async def check(_session: aiohttp.ClientSession, context: Any, _params: Any) -> None:
        is_safe: bool = context.trace_request_ctx
        if not is_safe:
            guard.check()

    config = aiohttp.TraceConfig()
    config.on_connection_reuseconn.append(check)
    config.on_connection_create_end.append(check)
    return config


def base_headers(settings: ConnectionSettings, credential: Credential) -> list[tuple[str, str]]:
    """Return the headers that say who asks, as whom, and for which request."""
    headers = [*settings.identity.impersonation.headers()]
    if credential.authorization:
        headers.append(("Authorization", credential.authorization))
    if request_id := current_request_id():
        headers.append((REQUEST_ID_HEADER, request_id))
    return headers


def keep_alive(connected: socket.socket, seconds: int, *, may_stop_reading: bool = False) -> None:
    """Have the operating system notice within this time that the peer's machine is gone.

    A peer that stops reading is taken for gone too, unless it may.
    """
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(seconds // 2, 1))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(seconds // 6, 1))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    if hasattr(socket, "TCP_USER_TIMEOUT") and not may_stop_reading:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, seconds * 1000)


_UNCHANGED: Final = 304


class Connection:
    """Everything one cluster is asked goes through here.

    Short requests and streams have a bound of their own each, so that many watches do not keep
    a get waiting. Every request has a deadline; reads are repeated where `retries` allows it.
    """

    def __init__(  # noqa: PLR0913 - how one cluster is reached, and each of it may differ
        self,
        settings: ConnectionSettings,
        *,
        clock: Clock,
        random: Random,
        credentials: CredentialSource | None = None,
        limits: ConnectionLimits | None = None,
        resolve: Resolve = look_up,
        guard: WriteGuard | None = None,
        dialer: Dialer | None = None,
    ) -> None:
        if dialer is not None and settings.is_tls:
            raise ValueError("the end of a tunnel is spoken to in plain HTTP: the tunnel is TLS")
        self.settings = settings
        self.dialer = dialer
        """Opens streams to the cluster, where nobody can dial its address."""
        self._guard = guard
        self.resolve = resolve
        self.credentials = credentials or Credentials(settings, clock)
        self.clock = clock
        self.random = random
        self._limits = limits or ConnectionLimits()
        self._requests = asyncio.Semaphore(self._limits.requests_at_once)
        self._streams = asyncio.Semaphore(self._limits.streams_at_once)
        self._pool: Pool | None = None
        self._is_closed = False

    @property
    def cluster(self) -> str:
        """What we call the cluster."""
        return self.settings.cluster

    async def ask(self, request: ApiRequest) -> Answer:
        """Return the answer, whole and successful; anything else is raised."""
        answer = await self.exchange(request)
        failure = failure_of(self.cluster, answer)
        if failure is not None and answer.status != _UNCHANGED:
            raise failure
        return answer

    async def exchange(self, request: ApiRequest) -> Answer:
        """Return the answer, whole, whatever its status: for those who pass it on."""
        delays = clocks.jittered(0.1, 5.0, self.random)
        deadline = asyncio.timeout(request.seconds)
        try:
            # One deadline for all attempts and the waits between them: who gave us 30 s has no use
            # for an answer after 90.
            async with deadline:
                for attempt in range(1, MOST_ATTEMPTS + 1):
                    outcome = await self._exchange_once(request)
                    is_unknown = isinstance(outcome, Answer) and outcome.status == 401
                    if is_unknown and self.credentials.refused():
                        # A refusal for lack of credentials had no effect, so even a write may be
                        # repeated; with what the file or plug-in says now.
                        outcome = await self._exchange_once(request)
                    is_last = attempt == MOST_ATTEMPTS or not request.is_repeated
                    wait = None if is_last else retry_wait(request, outcome, next(delays))
                    if wait is not None:
                        await self.clock.sleep(wait)
                    elif isinstance(outcome, ClusterError):
                        raise outcome
                    else:
                        return outcome
        except TimeoutError as error:
            # Others time out as well, and sooner: a name that is looked up, a plug-in.
            if not deadline.expired():
                raise transport_error(self.cluster, error) from error
            raise ClusterTimeout(self.cluster, _late(request)) from error
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncGenerator[AnswerStream]:
        """Open an answer to be read bit by bit, whatever its status; leaving the block ends it.

        Opening is not repeated: whoever reads a stream knows where to go on.
        """
        deadline = asyncio.timeout(request.seconds)
        async with AsyncExitStack() as stack:
            # Only what is raised while opening is the cluster's fault: the block's own errors,
            # after the yield, are none of our business.
            try:
                async with deadline:
                    await stack.enter_async_context(self._streams)
                    pool = await stack.enter_async_context(self._users_pool())
                    opening = pool.request(request, self._target(request))
                    response = await stack.enter_async_context(opening)
            except FOREIGN as error:
                # What the library gives up on is no connection in time, long before the deadline.
                if deadline.expired():
                    raise ClusterTimeout(self.cluster, _late(request)) from error
                raise transport_error(self.cluster, error) from error
            yield AnswerStream(self.cluster, response)

    async def open(self, stack: AsyncExitStack, request: ApiRequest) -> AnswerStream:
        """Open an answer as `stream` does, once more if need be; leaving the stack ends it."""
        try:
            return await stack.enter_async_context(self.stream(request))
        except ClusterUnreachable as error:
            # A kept connection that the other end closed meanwhile says nothing about the cluster.
            if not (error.was_sent and request.is_safe):
                raise
        return await stack.enter_async_context(self.stream(request))

    async def close(self) -> None:
        """Close every connection; what is under way fails."""
        self._is_closed = True
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def _exchange_once(self, request: ApiRequest) -> Answer | ClusterError:
        async with self._requests, self._users_pool() as pool:
            guard = None if request.is_safe else self._guard
            try:
                if guard is not None:
                    # For every attempt anew: the one before may have been long ago.
                    headers = (*request.headers, *await guard.admit())
                    request = replace(request, headers=headers)
                async with pool.request(request, self._target(request)) as response:
                    answer = await AnswerStream(self.cluster, response).read(
                        request.most_bytes, request.hold
                    )
                if guard is not None:
                    guard.answered(answer.headers)
                return answer
            except ClusterError as error:
                return error
            except FOREIGN as error:
                return transport_error(self.cluster, error)

    def _target(self, request: ApiRequest) -> URL:
        # Encoded once, by us: a second encoding would change names that hold a percent sign.
        return URL(self.settings.server + request.target, encoded=True)

    @asynccontextmanager
    async def _users_pool(self) -> AsyncGenerator[Pool]:
        """Lend the current pool; one that was replaced meanwhile is closed by its last user."""
        if self._is_closed:
            raise ClusterUnreachable(self.cluster, "the connection was closed", was_sent=False)
        credential = await self.credentials.get()
        # From here to `users += 1` nothing awaits: nobody can replace or close the pool between
        # its being chosen and its being counted as used.
        former = pool = self._pool
        if pool is None or pool.material != credential.material:
            try:
                pool = self._pool = Pool(
                    self.settings,
                    credential,
                    self._limits,
                    self.resolve,
                    self._guard,
                    self.dialer,
                )
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                why = f"the certificates cannot be used: {error}"
                raise CredentialsUnusable(self.cluster, why) from error
        pool.credential = credential
        pool.users += 1
        try:
            # The replaced pool goes with its last user: requests under way keep the certificates
            # they began with. If nobody uses it, it goes now.
            if former is not None and former is not pool and former.users == 0:
                await former.close()
            yield pool
        finally:
            pool.users -= 1
            if pool is not self._pool and pool.users == 0:
                await pool.close()


def _late(request: ApiRequest) -> str:
    return f"gave no answer within {request.seconds:g}s"


Open: TypeAlias = Callable[[ConnectionSettings], Connection]
"""Opens a connection; the process that runs us decides how."""


class Connections:
    """The connections to many clusters, by name."""

    def __init__(self, open_connection: Open) -> None:
        self._open = open_connection
        self._by_cluster: dict[str, Connection] = {}

    async def get(self, settings: ConnectionSettings) -> Connection:
        """Return the connection these settings stand for; what it replaces is closed."""
        existing = self._by_cluster.get(settings.cluster)
        if existing is not None and existing.settings == settings:
            return existing
        # Entered before anything is awaited: two that ask at once get the same one. What uses the
        # replaced one fails as if the cluster had broken off, and its reads are asked again.
        opened = self._by_cluster[settings.cluster] = self._open(settings)
        if existing is not None:
            await existing.close()
        return opened

    async def forget(self, cluster_name: str) -> None:
        """Close the connection to a cluster, if there is one."""
        existing = self._by_cluster.pop(cluster_name, None)
        if existing is not None:
            await existing.close()

    async def close(self) -> None:
        """Close all connections."""
        for name in list(self._by_cluster):
            await self.forget(name)
