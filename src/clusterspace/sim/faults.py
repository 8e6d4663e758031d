"""Faults on request: latency, drops, errors, empty lists, truncated answers, freezes and 410s.

    - fault: latency        # answer late, by `seconds`
      seconds: 2
      verbs: [list, watch]
      resources: [pods, deployments.apps]
    - fault: error          # answer with `code`: 429, 500, 503 or 504
      code: 503
      chance: 0.3
    - fault: drop           # cut the connection; running watches too
      times: 5
    - fault: empty          # answer lists without their items
    - fault: truncate       # cut the connection in the middle of the answer
    - fault: shorten        # answer with half a body that claims to be whole
    - fault: freeze         # answer nothing while the rule stands; running watches fall silent
    - fault: expire         # answer watches with 410; running ones end with it

A rule without `verbs`, `resources` or `namespaces` hits every one of them.

The faults stand between the socket and everything else, where a bad network would: they see every
request before it is authenticated, and every answer last. The simulation's own controllers do not
pass here, so a frozen member goes on living behind its frozen face.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast
from weakref import WeakSet

import msgspec
import structlog

from clusterspace.apiserver.http.messages import (
    Handler,
    HeaderPairs,
    Request,
    Response,
    Stream,
    refusal,
)
from clusterspace.apiserver.http.request_info import RequestInfo, read_request
from clusterspace.apiserver.state import Admission, HubState, Plugin
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

_log = structlog.get_logger(__name__)

NAMESPACE: Final = "kube-system"
CONFIG_MAP: Final = "clusterspace-sim-faults"
DATA_KEY: Final = "rules"


class Fault(Enum):
    """The faults that can be asked for."""

    LATENCY = "latency"
    DROP = "drop"
    ERROR = "error"
    EMPTY = "empty"
    TRUNCATE = "truncate"
    SHORTEN = "shorten"
    FREEZE = "freeze"
    EXPIRE = "expire"


@dataclass(frozen=True, slots=True)
class FaultRule:
    """One fault, and the requests it hits."""

    fault: Fault
    verbs: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    chance: float = 1.0
    times: int | None = None
    """How often it hits before it is used up."""
    seconds: float = 1.0
    code: int = 503

    def hits(self, info: RequestInfo) -> bool:
        """Whether the rule is about a request."""
        if self.verbs and info.verb not in self.verbs:
            return False
        if self.namespaces and info.namespace not in self.namespaces:
            return False
        named = {info.resource, f"{info.resource}.{info.group}" if info.group else info.resource}
        return not self.resources or bool(self.resources & named)


def is_exempt(info: RequestInfo) -> bool:
    """Whether a request is about the rules themselves: those must always get through."""
    return (
        info.resource == "configmaps"
        and info.namespace == NAMESPACE
        and (info.name == CONFIG_MAP or info.is_write)
    )


def is_rules(kube_object: Object) -> bool:
    """Whether a ConfigMap is the one that has the rules."""
    return (namespace_of(kube_object), name_of(kube_object)) == (NAMESPACE, CONFIG_MAP)


# -- reading ---------------------------------------------------------------------------------------

_ERRORS: Final[dict[int, type[ApiError]]] = {
    429: TooManyRequests,
    500: InternalError,
    503: ServiceUnavailable,
    504: DeadlineExceeded,
}
_FIELDS: Final = frozenset(
    {"fault", "verbs", "resources", "namespaces", "chance", "times", "seconds", "code"}
)


def read_rules(data: Mapping[str, Any] | None) -> tuple[FaultRule, ...]:
    """Read the rules from a ConfigMap's data; BadRequest that names the field when they are off."""
    text = str((data or {}).get(DATA_KEY) or "")
    try:
        listed: Any = msgspec.yaml.decode(text.encode()) if text.strip() else []
    except msgspec.DecodeError as error:
        raise _wrong("", f"is not YAML: {error}") from error
    if not isinstance(listed, list):
        raise _wrong("", "must be a list of faults")
    rules = cast("list[Any]", listed)
    return tuple(_read_rule(each, f"[{index}]") for index, each in enumerate(rules))


def _read_rule(given: Any, path: str) -> FaultRule:
    if not isinstance(given, dict):
        raise _wrong(path, "must be an object")
    fields = cast("dict[str, Any]", given)
    unknown = sorted(set(fields) - _FIELDS)
    if unknown:
        raise _wrong(f"{path}.{unknown[0]}", f"is not one of {', '.join(sorted(_FIELDS))}")
    known = [each.value for each in Fault]
    if fields.get("fault") not in known:
        raise _wrong(f"{path}.fault", f"must be one of {', '.join(known)}")
    times = fields.get("times")
    code = fields.get("code", 503)
    if code not in _ERRORS:
        raise _wrong(f"{path}.code", f"must be one of {', '.join(map(str, _ERRORS))}")
    return FaultRule(
        fault=Fault(fields["fault"]),
        verbs=_texts(fields, "verbs", path),
        resources=_texts(fields, "resources", path),
        namespaces=_texts(fields, "namespaces", path),
        chance=_number(fields.get("chance", 1.0), f"{path}.chance", most=1.0),
        times=None if times is None else int(_number(times, f"{path}.times")),
        seconds=_number(fields.get("seconds", 1.0), f"{path}.seconds"),
        code=int(code),
    )


def _texts(fields: Mapping[str, Any], name: str, path: str) -> frozenset[str]:
    given: Any = fields.get(name) or []
    if not isinstance(given, list):
        raise _wrong(f"{path}.{name}", "must be a list of texts")
    return frozenset(str(each) for each in cast("Iterable[Any]", given))


def _number(given: Any, path: str, *, most: float = math.inf) -> float:
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 <= given <= most:
        limit = "" if most == math.inf else f" and at most {most:g}"
        raise _wrong(path, f"must be a number of at least 0{limit}")
    return given


def _wrong(path: str, why: str) -> BadRequest:
    return BadRequest(f"data.{DATA_KEY}{path} {why}")


# -- letting them happen ---------------------------------------------------------------------------

_JSON: Final = (("Content-Type", "application/json"),)
_LOOK_SECONDS: Final = 1.0
_MESSAGE: Final = "this fault was asked for"


class FrozenStream(Stream):
    """A stream that can fall silent: what is written meanwhile is kept, and sent when it thaws."""

    __slots__ = ("__weakref__", "_inner", "_kept", "info", "is_frozen")

    def __init__(self, inner: Stream, info: RequestInfo, *, is_frozen: bool) -> None:
        super().__init__(inner._wire, has_body=inner._has_body)
        self._inner = inner
        self.info = info
        self.is_frozen = is_frozen
        self._kept: list[bytes] = []

    @property
    def buffered(self) -> int:
        """Bytes written and not yet taken, those kept back among them.

        The feed that writes here evicts a reader whose buffer is over its limit, so a frozen watch
        is cut off after a while, as one behind a dead network is.
        """
        return super().buffered + sum(map(len, self._kept))

    def write_framed(self, framed: bytes) -> None:
        """Send, or keep."""
        if self.is_frozen:
            self._kept.append(framed)
            return
        super().write_framed(framed)

    def end(self) -> None:
        """Finish the answer; one that is silent is cut, for nobody hears its end.

        The server ends the stream it knows, which is the inner one, when the handler has returned:
        ended here, it has no second last chunk to send.
        """
        if self.is_frozen:
            self.abort()
            return
        self._is_open = False
        self._inner.end()

    def thaw(self) -> None:
        """Send what was kept, and keep no more."""
        self.is_frozen = False
        kept, self._kept = self._kept, []
        for framed in kept:
            super().write_framed(framed)


class WatchedRequest(Request):
    """A request whose answer is a stream that can be frozen."""

    __slots__ = ("_info", "_on_stream")

    def __init__(
        self, inner: Request, info: RequestInfo, on_stream: Callable[[Stream, RequestInfo], Stream]
    ) -> None:
        for name in Request.__slots__:
            setattr(self, name, getattr(inner, name))
        self._info = info
        self._on_stream = on_stream

    def start_stream(self, status: int, headers: HeaderPairs) -> Stream:
        """Start the stream, and hand it to the faults."""
        return self._on_stream(super().start_stream(status, headers), self._info)


class Faults:
    """The faults of one simulated member; a Listener for the ConfigMap that has their rules."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub
        self._rules: tuple[FaultRule, ...] = ()
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
        if not is_rules(kube_object):
            return
        try:
            self.set_rules(read_rules(kube_object.get("data")))
        except BadRequest as error:
            _log.warning("fault rules were not understood", reason=error.message)

    def removed(self, kube_object: Object) -> None:
        """Forget the rules."""
        if is_rules(kube_object):
            self.set_rules(())

    def set_rules(self, rules: tuple[FaultRule, ...]) -> None:
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
            if rule.fault is not Fault.EXPIRE:
                continue
            for served in self._hub.catalog.all():
                named = {served.info.plural, str(served.info.group_resource)}
                if not rule.resources or rule.resources & named:
                    expired = Expired(statuses.WATCH_TOO_OLD)
                    self._hub.feeds.end_all(expired, prefix=served.prefix())
        self._changed.set()
        self._changed = asyncio.Event()

    # -- what happens to a request -------------------------------------------------------------

    def _find(self, fault: Fault, info: RequestInfo) -> FaultRule | None:
        """Return the rule by which a fault hits a request now; it counts as a hit."""
        if is_exempt(info):
            return None
        for index, rule in enumerate(self._rules):
            if rule.fault is not fault or not rule.hits(info) or self._left.get(index) == 0:
                continue
            if rule.chance < 1.0 and self._hub.random.random() >= rule.chance:
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
            await self._hub.clock.sleep(late.seconds)
        if self._find(Fault.DROP, info) is not None:
            # The server cuts a connection whose handler is cancelled, without a byte of an answer.
            raise asyncio.CancelledError
        failing = self._find(Fault.ERROR, info)
        if failing is not None:
            return refusal(_ERRORS[failing.code](_MESSAGE))
        if info.is_watch:
            if self._find(Fault.EXPIRE, info) is None:
                return await handler(WatchedRequest(request, info, self._watch_stream))
            status = statuses.status_of(Expired(statuses.WATCH_TOO_OLD))
            stream = request.start_stream(200, _JSON)
            stream.write(msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n")
            stream.end()
            return None
        while not request.is_disconnected and self._find(Fault.FREEZE, info) is not None:
            # Now and then it looks whether anybody is still waiting for the answer.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _LOOK_SECONDS)
        response = await handler(request)
        return None if response is None else self._spoil(request, info, response)

    def _watch_stream(self, stream: Stream, info: RequestInfo) -> Stream:
        # No await from finding the rule to adding the stream: rules that change are applied to the
        # streams known then, so one between the two would stay as the old rules left it.
        is_frozen = self._find(Fault.FREEZE, info) is not None
        watched = FrozenStream(stream, info, is_frozen=is_frozen)
        self._streams.add(watched)
        return watched

    def _spoil(self, request: Request, info: RequestInfo, response: Response) -> Response | None:
        """Return an answer as the rules leave it; None when it was cut in the middle."""
        is_json = response.status == 200 and _JSON[0] in response.headers
        if info.verb == "list" and self._find(Fault.EMPTY, info) is not None and is_json:
            content: dict[str, Any] = msgspec.json.decode(_whole_body(response))
            field = "rows" if content.get("kind") == "Table" else "items"
            emptied = msgspec.json.encode({**content, field: []})
            response = Response(response.status, response.headers, emptied)
        if self._find(Fault.SHORTEN, info) is not None:
            body = _whole_body(response)
            response = Response(response.status, response.headers, body[: len(body) // 2])
        if self._find(Fault.TRUNCATE, info) is None:
            return response
        body = _whole_body(response)
        stream = request.start_stream(response.status, response.headers)
        stream.write(body[: len(body) // 2])
        stream.abort()
        return None


def _whole_body(response: Response) -> bytes:
    return response.body if isinstance(response.body, bytes) else b"".join(response.body)


# -- refusing rules nobody could follow ------------------------------------------------------------


class FaultRulesReader(Plugin):
    """The admission plug-in that reads the rules in the one ConfigMap that has them."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Refuse rules that make no sense; let everything else pass."""
        del hub
        if admission.is_of("", "ConfigMap") and is_rules(admission.new):
            read_rules(admission.new.get("data"))
        return admission.new
