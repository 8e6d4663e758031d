"""Latency, drops, errors, empty lists, truncated answers, freezes and 410s, on request.

The faults stand between the socket and everything else, where a bad network would: they see every
request before it is authenticated, and every answer last. The simulation's own controllers do not
pass here, so a frozen member goes on living behind its frozen face.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final
from weakref import WeakSet

import msgspec
import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.messages import HeaderPairs, Response, refusal
from clusterspace.apiserver.http.request_info import RequestInfo, read_request
from clusterspace.apiserver.http.requests import Handler, Request
from clusterspace.apiserver.http.streams import Stream
from clusterspace.errors import (
    ApiError,
    BadRequest,
    DeadlineExceeded,
    Expired,
    InternalError,
    ServiceUnavailable,
    TooManyRequests,
)
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.sim.api import Kind
from clusterspace.sim.fault_rules import (
    CONFIG_MAP,
    NAMESPACE,
    Fault,
    Rule,
    is_exempt,
    read_rules,
)

_log = structlog.get_logger(__name__)

_ERRORS: Final[dict[int, type[ApiError]]] = {
    429: TooManyRequests,
    500: InternalError,
    503: ServiceUnavailable,
    504: DeadlineExceeded,
}
_JSON: Final = (("Content-Type", "application/json"),)
_LOOK_SECONDS: Final = 1.0
_MESSAGE: Final = "this fault was asked for"


class FrozenStream(Stream):
    """A stream that can fall silent: what is written meanwhile is held, and sent when it thaws."""

    __slots__ = ("__weakref__", "_held", "info", "is_frozen")

    def __init__(self, inner: Stream, info: RequestInfo, *, is_frozen: bool) -> None:
        super().__init__(inner._wire, has_body=inner._has_body)
        self.info = info
        self.is_frozen = is_frozen
        self._held: list[bytes] = []

    @property
    def buffered(self) -> int:
        """Bytes written and not yet taken, those held back among them."""
        return super().buffered + sum(map(len, self._held))

    def write_framed(self, framed: bytes) -> None:
        """Send, or hold."""
        if self.is_frozen:
            self._held.append(framed)
            return
        super().write_framed(framed)

    def thaw(self) -> None:
        """Send what was held, and hold no more."""
        self.is_frozen = False
        held, self._held = self._held, []
        for framed in held:
            super().write_framed(framed)


class WatchedRequest(Request):
    """A request whose stream the faults keep an eye on."""

    __slots__ = ("_info", "_on_stream")

    def __init__(
        self, inner: Request, info: RequestInfo, on_stream: Callable[[Stream, RequestInfo], Stream]
    ) -> None:
        self.method = inner.method
        self.target = inner.target
        self.path = inner.path
        self.query = inner.query
        self.version = inner.version
        self.headers = inner.headers
        self.is_upgrade = inner.is_upgrade
        self._expected_bytes = inner._expected_bytes
        self._body = inner._body
        self._exchange = inner._exchange
        self._info = info
        self._on_stream = on_stream

    def start_stream(self, status: int, headers: HeaderPairs) -> Stream:
        """Start a stream that can be frozen."""
        return self._on_stream(super().start_stream(status, headers), self._info)


class Faults:
    """The faults of one simulated member; a Listener for the ConfigMap that has their rules."""

    def __init__(self, clock: Clock, random: Random, expire: Callable[[Rule], None]) -> None:
        self._clock = clock
        self._random = random
        self._expire = expire
        """Ends the running watches a rule is about with 410."""
        self._rules: tuple[Rule, ...] = ()
        self._left: dict[int, int] = {}
        """Index of a rule to how often it may still hit."""
        self._streams: WeakSet[FrozenStream] = WeakSet()
        self._changed = asyncio.Event()

    def around(self, handler: Handler) -> Handler:
        """Return the handler with the faults around it."""

        async def handle(request: Request) -> Response | None:
            try:
                info = read_request(request.method, request.path, request.query)
            except ApiError:
                return await handler(request)
            return await self._handle(request, info, handler)

        return handle

    # -- as a Listener -------------------------------------------------------------------------

    def replace(self, kind: Kind, objects: Iterable[Object]) -> None:
        """Learn the rules there are."""
        self.set_rules(())
        for each in objects:
            self.changed(each)

    def changed(self, kube_object: Object) -> None:
        """Learn new rules."""
        if not _is_rules(kube_object):
            return
        try:
            self.set_rules(read_rules(kube_object.get("data")))
        except BadRequest as error:
            _log.warning("fault rules were not understood", reason=error.message)

    def removed(self, kube_object: Object) -> None:
        """Forget the rules."""
        if _is_rules(kube_object):
            self.set_rules(())

    def set_rules(self, rules: tuple[Rule, ...]) -> None:
        """Let exactly these rules stand, for running watches too."""
        self._rules = rules
        self._left = {
            index: rule.times for index, rule in enumerate(rules) if rule.times is not None
        }
        for stream in tuple(self._streams):
            if self._find(Fault.DROP, stream.info) is not None:
                stream.abort()
            elif self._find(Fault.FREEZE, stream.info) is not None:
                stream.is_frozen = True
            else:
                stream.thaw()
        for rule in rules:
            if rule.fault is Fault.EXPIRE:
                self._expire(rule)
        self._changed.set()
        self._changed = asyncio.Event()

    # -- what happens to a request -------------------------------------------------------------

    def _find(self, fault: Fault, info: RequestInfo) -> Rule | None:
        """Return the rule by which a fault hits a request now; it counts as a hit."""
        if is_exempt(info):
            return None
        for index, rule in enumerate(self._rules):
            if rule.fault is not fault or not rule.hits(info) or self._left.get(index) == 0:
                continue
            if rule.chance < 1.0 and self._random.random() >= rule.chance:
                continue
            if index in self._left:
                self._left[index] -= 1
            return rule
        return None

    async def _handle(
        self, request: Request, info: RequestInfo, handler: Handler
    ) -> Response | None:
        late = self._find(Fault.LATENCY, info)
        if late is not None:
            await self._clock.sleep(late.seconds)
        if self._find(Fault.DROP, info) is not None:
            # The server cuts a connection whose handler is cancelled, without a byte of an answer.
            raise asyncio.CancelledError
        failing = self._find(Fault.ERROR, info)
        if failing is not None:
            return refusal(_ERRORS[failing.code](_MESSAGE))
        if info.is_watch:
            return await self._handle_watch(request, info, handler)
        await self._wait_while_frozen(request, info)
        response = await handler(request)
        return None if response is None else self._spoil(request, info, response)

    async def _handle_watch(
        self, request: Request, info: RequestInfo, handler: Handler
    ) -> Response | None:
        if self._find(Fault.EXPIRE, info) is not None:
            stream = request.start_stream(200, _JSON)
            stream.write(_error_event(Expired(statuses.WATCH_TOO_OLD)))
            stream.end()
            return None
        return await handler(WatchedRequest(request, info, self._watch_stream))

    def _watch_stream(self, stream: Stream, info: RequestInfo) -> Stream:
        is_frozen = self._find(Fault.FREEZE, info) is not None
        watched = FrozenStream(stream, info, is_frozen=is_frozen)
        self._streams.add(watched)
        return watched

    async def _wait_while_frozen(self, request: Request, info: RequestInfo) -> None:
        while not request.is_disconnected and self._find(Fault.FREEZE, info) is not None:
            # Now and then it looks whether anybody is still waiting for the answer.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _LOOK_SECONDS)

    def _spoil(self, request: Request, info: RequestInfo, response: Response) -> Response | None:
        if info.verb == "list" and self._find(Fault.EMPTY, info) is not None:
            response = _emptied(response)
        if self._find(Fault.SHORTEN, info) is not None:
            body = _whole(response)
            response = Response(response.status, response.headers, body[: len(body) // 2])
        if self._find(Fault.TRUNCATE, info) is None:
            return response
        body = _whole(response)
        stream = request.start_stream(response.status, response.headers)
        stream.write(body[: len(body) // 2])
        stream.abort()
        return None


def _is_rules(kube_object: Object) -> bool:
    return (namespace_of(kube_object), name_of(kube_object)) == (NAMESPACE, CONFIG_MAP)


def _emptied(response: Response) -> Response:
    """Return a list without its items, or a Table without its rows; anything else as it is."""
    if response.status != 200 or ("Content-Type", "application/json") not in response.headers:
        return response
    body: dict[str, Any] = msgspec.json.decode(_whole(response))
    field = "rows" if body.get("kind") == "Table" else "items"
    return Response(response.status, response.headers, msgspec.json.encode({**body, field: []}))


def _error_event(error: ApiError) -> bytes:
    event = {"type": "ERROR", "object": statuses.status_of(error)}
    return msgspec.json.encode(event) + b"\n"


def _whole(response: Response) -> bytes:
    return response.body if isinstance(response.body, bytes) else b"".join(response.body)
