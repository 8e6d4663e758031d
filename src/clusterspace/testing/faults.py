"""A proxy between a client and a cluster that delays, drops, lies and freezes when told to.

It speaks plain HTTP to the client and reaches the cluster with the credentials it was given, so
that it can change answers; what it does not change, it passes on as it comes.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import msgspec
from aiohttp import web

from clusterspace.client.connection import Connection
from clusterspace.client.requests import AnswerStream, ApiRequest
from clusterspace.client.settings import AuthInfo, ConnectionSettings
from clusterspace.errors import ClusterError
from clusterspace.testing.certificates import loopback_tls

if TYPE_CHECKING:
    from clusterspace.kube.objects import Object

_PASSED_ON: Final = ("Accept", "Content-Type", "If-None-Match")
_PASSED_BACK: Final = (
    "content-type",
    "content-encoding",
    "etag",
    "retry-after",
    "warning",
    "location",
)
_HOLD_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait before passing the request on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection; with `is_after`, once the cluster has done what was asked."""

    is_after: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer in the cluster's place."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Truncate:
    """Pass on this many bytes of the answer, then close the connection."""

    after_bytes: int


@dataclass(frozen=True, slots=True)
class Freeze:
    """Pass on this many bytes of the answer, then nothing, and leave the connection open."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Reorder:
    """Hold the answer back until the next request was answered."""


Fault: TypeAlias = Delay | Drop | Reply | Truncate | Freeze | Reorder
Matches: TypeAlias = Callable[[web.Request], bool]
Hears: TypeAlias = Callable[[web.Request, int, bytes], None]
"""Is told of a request, and of status and body of the cluster's own answer to it."""

HTML: Final = Reply(200, b"<html><body>Sign in, please</body></html>", "text/html")
HTML_NOT_FOUND: Final = Reply(404, b"<html><body>404</body></html>", "text/html")


def status_reply(code: int, reason: str, message: str = "no", **headers: str) -> Reply:
    """Return an answer with a Status of this code and reason."""
    status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    body = msgspec.json.encode({**status, "reason": reason, "message": message, "code": code})
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Reply(code, body, headers=named)


def empty_list(kind: str, *, api_version: str = "v1", resource_version: str = "999999") -> Reply:
    """Return a list that is perfectly well-formed and has nothing in it."""
    metadata = {"resourceVersion": resource_version}
    body: Object = {"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": []}
    return Reply(200, msgspec.json.encode(body))


def everything(_request: web.Request) -> bool:
    return True


def is_watch(request: web.Request) -> bool:
    return request.query.get("watch") in ("1", "true")


def is_list(request: web.Request) -> bool:
    """Whether the request lists; the collection's name is the last segment, as tests use it."""
    return request.method == "GET" and not is_watch(request) and request.path.endswith("s")


def is_streamed_list(request: web.Request) -> bool:
    return request.query.get("sendInitialEvents") == "true"


def is_write(request: web.Request) -> bool:
    return request.method in ("POST", "PUT", "PATCH", "DELETE")


@dataclass(slots=True)
class Rule:
    """A fault, the requests it is for, and for how many of them."""

    fault: Fault
    matches: Matches
    times: int | None
    hits: int = 0

    def takes(self, request: web.Request) -> bool:
        """Count a request if this rule is for it."""
        if (self.times is not None and self.hits >= self.times) or not self.matches(request):
            return False
        self.hits += 1
        return True


@dataclass(slots=True)
class _Traffic:
    """What passes through at the moment."""

    transports: set[asyncio.BaseTransport] = field(default_factory=set[asyncio.BaseTransport])
    answered: asyncio.Condition = field(default_factory=asyncio.Condition)
    count: int = 0


class FaultProxy:
    """The way to a cluster, with faults on demand.

    async with fault_proxy(connection) as proxy:
        proxy.inject(HTML, when=is_list, times=2)
        ...
        proxy.cut()
    """

    def __init__(self, upstream: Connection, *, acts_for_users: bool = False) -> None:
        self._acts_for_users = acts_for_users
        self._upstream = upstream
        self._rules: list[Rule] = []
        self._traffic = _Traffic()
        self.requests: list[str] = []
        """Every request that came, as `METHOD path?query`."""
        self.hears: Hears | None = None
        """Is told of each answer of the cluster's that is passed on to its end, before that end;
        and of each watch as it begins, without a body."""
        self.settings = ConnectionSettings(upstream.cluster, "http://127.0.0.1:1")

    def inject(self, fault: Fault, *, when: Matches = everything, times: int | None = 1) -> Rule:
        """Do this to the next requests of a kind; None is for as long as the proxy runs."""
        rule = Rule(fault, when, times)
        self._rules.append(rule)
        return rule

    def heal(self) -> None:
        """Forget every fault."""
        self._rules.clear()

    @property
    def under_way(self) -> int:
        """How many requests are being answered at the moment."""
        return len(self._traffic.transports)

    def cut(self) -> int:
        """Break every connection there is; return how many there were."""
        transports, self._traffic.transports = self._traffic.transports, set()
        for transport in transports:
            # Not asked for its class: uvloop's transports are of none that asyncio knows.
            cast("asyncio.Transport", transport).abort()
        return len(transports)

    def lead_to(self, upstream: Connection) -> None:
        """Have another cluster behind the same address, and break what led to the old one."""
        self._upstream = upstream
        self.cut()

    def listens_at(self, port: int) -> None:
        """Note where the proxy is; who asks is the upstream's business."""
        self.settings = replace(
            self._upstream.settings,
            server=f"https://127.0.0.1:{port}",
            trust=loopback_tls().trust,
            identity=AuthInfo(),
        )

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, well or badly."""
        self.requests.append(f"{request.method} {request.path_qs}")
        fault = next((rule.fault for rule in self._rules if rule.takes(request)), None)
        transport = request.transport
        if transport is not None:
            self._traffic.transports.add(transport)
        try:
            return await self._answer(request, fault)
        except (ConnectionError, ClusterError):
            # Either end is gone: the other is to notice.
            return _aborted(request)
        finally:
            if transport is not None:
                self._traffic.transports.discard(transport)
            async with self._traffic.answered:
                self._traffic.count += 1
                self._traffic.answered.notify_all()

    async def _answer(self, request: web.Request, fault: Fault | None) -> web.StreamResponse:
        if isinstance(fault, Reply):
            headers = {"Content-Type": fault.content_type, **dict(fault.headers)}
            return web.Response(status=fault.status, body=fault.body, headers=headers)
        if isinstance(fault, Delay):
            await asyncio.sleep(fault.seconds)
        if isinstance(fault, Drop):
            if fault.is_after:
                await self._upstream.exchange(await self._ask_of(request))
            return _aborted(request)
        if isinstance(fault, Reorder):
            await self._wait_for_another()
        async with self._upstream.stream(await self._ask_of(request)) as stream:
            return await _pass_back(request, stream, fault, self.hears)

    async def _ask_of(self, request: web.Request) -> ApiRequest:
        kept = [(name, request.headers[name]) for name in _PASSED_ON if name in request.headers]
        if self._acts_for_users:
            pairs = request.headers.items()
            kept += [pair for pair in pairs if pair[0].lower().startswith("impersonate-")]
        body = await request.read() if request.can_read_body else None
        query = tuple((key, value) for key, value in request.query.items())
        path = request.raw_path.partition("?")[0]
        return ApiRequest(request.method, path, query, tuple(kept), body)

    async def _wait_for_another(self) -> None:
        before = self._traffic.count
        try:
            async with asyncio.timeout(_HOLD_SECONDS), self._traffic.answered:
                await self._traffic.answered.wait_for(lambda: self._traffic.count > before)
        except TimeoutError:
            return


@asynccontextmanager
async def fault_proxy(
    upstream: Connection, *, acts_for_users: bool = False
) -> AsyncGenerator[FaultProxy]:
    """Run a proxy in front of a cluster for as long as the block lasts.

    Requests are those of who is behind `upstream`, or of the users they are made for.
    """
    proxy = FaultProxy(upstream, acts_for_users=acts_for_users)
    application = web.Application(client_max_size=64 * 1024 * 1024)
    application.router.add_route("*", "/{path:.*}", proxy.handle)
    # Who hangs up is not waited for: the stream behind it would stay open for as long as it lasts.
    runner = web.AppRunner(
        application, shutdown_timeout=0.05, access_log=None, handler_cancellation=True
    )
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=loopback_tls().context)
    await site.start()
    proxy.listens_at(int(runner.addresses[0][1]))
    try:
        yield proxy
    finally:
        proxy.cut()
        await runner.cleanup()


async def _pass_back(
    request: web.Request, stream: AnswerStream, fault: Fault | None, hears: Hears | None
) -> web.StreamResponse:
    headers = {name: stream.headers[name] for name in _PASSED_BACK if name in stream.headers}
    response = web.StreamResponse(status=stream.status, headers=headers)
    response.enable_chunked_encoding()
    if hears is not None and is_watch(request):
        hears(request, stream.status, b"")
        hears = None
    await response.prepare(request)
    left = fault.after_bytes if isinstance(fault, Truncate | Freeze) else None
    heard: list[bytes] = []
    async for chunk in stream.chunks():
        if left is not None and len(chunk) >= left:
            await response.write(chunk[:left])
            if isinstance(fault, Freeze):
                await asyncio.Event().wait()
            return _aborted(request)
        await response.write(chunk)
        left = None if left is None else left - len(chunk)
        if hears is not None:
            heard.append(chunk)
    if hears is not None:
        # Whoever asked can do nothing with it before the end: it is heard before it is used.
        hears(request, stream.status, b"".join(heard))
    await response.write_eof()
    return response


def _aborted(request: web.Request) -> web.StreamResponse:
    transport = request.transport
    if transport is not None:
        transport.abort()
    return web.Response(status=500)
