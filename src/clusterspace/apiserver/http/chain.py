"""The chain of steps around whatever answers a request, in the order in which it meets them.

    handler_of        the URL is read, once, and the request has an id
    Measure           how many, how they ended, how long they took
    catch_errors      an exception becomes a Status body, here and nowhere else
    deadlines         a budget of time for short requests, none for watches
    Authenticate, Audit, Impersonate, Authorize     who asks, and whether they may: guards.py
    InFlightLimits    how many are worked on at once, of all and of one user
    Recheck           the guards' questions again while a long answer goes on, and when they change

The roots say which of them hub and gateway have, in this order.
"""

import asyncio
import base64
import copy
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

import msgspec
import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.aio.slices import Slices
from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Handler, Request, Response
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.responses import error_response
from clusterspace.apiserver.http.users import UNAUTHENTICATED, find_login
from clusterspace.errors import (
    ApiError,
    AuthorityDropped,
    BadGateway,
    BadRequest,
    ClusterError,
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
    Details,
    Forbidden,
    MalformedDuration,
    OutcomeUnknown,
    RequestEntityTooLarge,
    ServiceUnavailable,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreUnavailable,
    Unauthorized,
    Unstorable,
)
from clusterspace.kube import statuses
from clusterspace.kube.times import seconds_of
from clusterspace.telemetry import metrics
from clusterspace.telemetry.logs import accept_request_id, request_id_of
from clusterspace.telemetry.metrics import RequestLabels

_log = structlog.get_logger(__name__)


class Step(Protocol):
    """One link of the chain: does its one thing around the rest."""

    def __call__(self, context: RequestContext, rest: RequestHandler) -> Awaitable[Response | None]:
        """Answer the request, or have the rest of the chain answer it."""
        ...


def chain(steps: Sequence[Step], handler: RequestHandler) -> RequestHandler:
    """Put the steps around the handler; the first one listed meets a request first."""
    for step in reversed(steps):
        handler = partial(step, rest=handler)
    return handler


ReadInfo: TypeAlias = Callable[[Request], RequestInfo]
"""Reads what a request asks from its method and URL; an ApiError when it cannot be read."""


def handler_of(answer: RequestHandler, read_info: ReadInfo) -> Handler:
    """Return the handler that reads a request's URL once, gives it an id, and has it answered."""

    async def handle(request: Request) -> Response | None:
        request_id = accept_request_id(request.headers.get("audit-id"))
        try:
            info = read_info(request)
        except ApiError as error:
            unread = RequestInfo(method=request.method, path="", verb="")
            return error_response(RequestContext(request, unread, request_id), error)
        with request_id_of(request_id):
            return await answer(RequestContext(request, info, request_id))

    return handle


# -- how requests end: counted and timed, and an exception becomes a Status body -------------------


class Measure:
    """The outermost step: it sees every answer, refusals included."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def __call__(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        """Count and time the request."""
        started = self._clock.monotonic()
        response = await rest(context)
        labels = context.labels or RequestLabels(context.info.verb)
        code = 200 if response is None else response.status
        metrics.request_finished(labels, code, self._clock.monotonic() - started)
        return response


async def catch_errors(context: RequestContext, rest: RequestHandler) -> Response | None:
    """Answer refusals as they are; log a bug once, with its traceback, and answer 500."""
    try:
        return await rest(context)
    except ApiError as error:
        return error_response(context, error)
    except StoreError as error:
        refused = statuses.internal(str(error))
        if isinstance(error, StoreClosed):
            refused = statuses.unavailable("the server is shutting down")
        elif isinstance(error, StoreFull):
            refused = statuses.internal(f"the store is out of disk space: {error}")
        elif isinstance(error, StoreUnavailable):
            refused = statuses.unavailable(str(error), retry_after_seconds=1)
        elif isinstance(error, OutcomeUnknown):
            refused = statuses.timed_out(str(error))
        elif isinstance(error, Unstorable):
            refused = RequestEntityTooLarge(f"Request entity is too large: {error}")
        return error_response(context, refused)
    except ClusterError as error:
        return error_response(context, cluster_refusal(error))
    except ConnectionError:
        if not context.request.is_disconnected:
            raise
        return None  # the client has gone: there is nobody to answer
    except Exception:  # noqa: BLE001 - the edge: a bug in one request must not end the others
        _log.exception(
            "request failed",
            request_id=context.request_id,
            method=context.info.method,
            path=context.info.path,
        )
        return error_response(context, statuses.internal(f"request {context.request_id} failed"))


def cluster_refusal(error: ClusterError) -> ApiError:
    """Return the refusal for a cluster that cannot be asked: never 404, which means "deleted".

    Clients repeat what is refused with a time to come back, writes too; so only what certainly
    had no effect gets one.
    """
    if isinstance(error, ClusterMisbehaved) and error.is_unfit:
        return BadGateway(str(error))
    if isinstance(error, ClusterTimeout):
        return statuses.timed_out(str(error))
    was_sent = not isinstance(error, ClusterUnreachable) or error.was_sent
    return ServiceUnavailable(str(error), Details(retry_after_seconds=0 if was_sent else 1))


# -- how long a request may take, and how many are worked on at once -------------------------------

REQUEST_SECONDS: Final = 60.0
"""As kube-apiserver; clients give up at about the same time."""

LONG_RUNNING: Final = frozenset({"attach", "exec", "log", "portforward", "proxy", "tunnel"})

_USERS_SHARE: Final = 2
"""One user has at most half of the places. A request keeps its place while its body is on the way,
which may take as long as its deadline: whoever sends slowly must not keep all others out."""

_STRANGERS_SHARE: Final = 8
"""All who are not authenticated have an eighth of them together: they can make up any name."""


def is_long_running(context: RequestContext) -> bool:
    """Whether a request may stay open for as long as both sides like."""
    return context.info.is_watch or context.info.subresource in LONG_RUNNING


async def deadlines(context: RequestContext, rest: RequestHandler) -> Response | None:
    """Give up on a short request when its time is over."""
    if is_long_running(context):
        return await rest(context)
    seconds, asked = REQUEST_SECONDS, context.info.query.first.get("timeout")
    if asked:
        try:
            seconds = seconds_of(asked)
        except MalformedDuration as error:
            why = f"invalid timeout specified in the request URL - {error.message}"
            raise BadRequest(why) from error
        seconds = min(seconds, REQUEST_SECONDS) if seconds > 0 else REQUEST_SECONDS
    try:
        async with asyncio.timeout(seconds):
            return await rest(context)
    except TimeoutError as error:
        raise statuses.timed_out("request did not complete within the allotted timeout") from error


class InFlightLimits:
    """Counts short requests in flight; reads and writes apart, so that neither starves.

    The user who counts is the one acted as: what the gateway passes on to the hub for a hundred
    people is a hundred shares, and what it asks in its own name is one more.
    """

    def __init__(self, *, reads: int = 400, writes: int = 200) -> None:
        self._limits = {False: reads, True: writes}
        self._in_flight: Counter[bool] = Counter()
        self._by_user: Counter[tuple[bool, str]] = Counter()

    async def __call__(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        """Work on the request if there is room, else answer 429 with a time to come back."""
        if is_long_running(context):
            return await rest(context)
        is_write, user = context.info.is_write, context.user
        is_stranger = UNAUTHENTICATED in user.groups
        limit, key = self._limits[is_write], (is_write, "" if is_stranger else user.name)
        share = max(1, limit // (_STRANGERS_SHARE if is_stranger else _USERS_SHARE))
        if self._in_flight[is_write] >= limit or self._by_user[key] >= share:
            raise statuses.too_many_requests()
        self._in_flight[is_write] += 1
        self._by_user[key] += 1
        try:
            return await rest(context)
        finally:
            self._in_flight[is_write] -= 1
            self._by_user[key] -= 1
            if not self._by_user[key]:
                del self._by_user[key]  # there is no end of names, and few at a time


# -- long answers, for as long as their caller may have them ---------------------------------------
#
# A short request is over before anybody can take a right away. A watch lives for an hour, so the
# questions that let it in are asked again, from its credentials on: a token that expired, an
# account that was deleted, a certificate that was revoked and a binding that was removed all end
# what they had opened.
#
#     something changed that rights are made of    all of them, or all that came with tokens
#     a credential ends                            what it had opened
#     nothing, for a while                         each once in RECHECK_SECONDS, spread over it
#
# Changes that come together are one round, and rounds have a pause between them: whoever writes
# roles all day has each watch asked about every few seconds, as if nobody told us of changes.
#
# Only a clear no ends anything. Who cannot be asked for now (the gateway asks the hub) changes
# nothing, or every stream of a fleet would break with one restart of its hub. The end of a
# credential is known without asking.

RECHECK_SECONDS: Final = 30.0
"""Between two looks at a request when nothing has changed that we would hear of."""

UNHEARD_SECONDS: Final = 2.5
"""The same for who hears of no changes. With what is remembered for seconds, and the time it takes
to ask, a right that was taken away ends what it had opened within ten seconds."""

_TICK_SECONDS: Final = 0.5
_PAUSE_SECONDS: Final = 3.0
"""Between two rounds. On the hub an open request takes about 10 µs, 5,000 of them 50 ms: less than
a fiftieth of one processor when rights change all day, and a 300th when they do not. A right that
was taken away ends what it had opened after four seconds at most."""

_AT_ONCE: Final = 16
"""How many requests are asked about at a time: one that waits for the hub does not hold up others.
"""


class _OpenRequest:
    """When a request is asked about next, and when its credential ends."""

    __slots__ = ("due", "ends", "has_token")

    def __init__(self, context: RequestContext, due: float) -> None:
        self.due = due
        header = context.received.get("authorization") or ""
        login = find_login(context.request)
        # A session in a cookie stands for a token, or may: it is asked about when tokens are.
        self.has_token = login is None and bool(header or context.received.get("cookie"))
        self.ends = login.ends if login is not None else _token_end(header)


def _token_end(header: str) -> float:
    """Return when a bearer token ends, as it says itself; never, when it does not say.

    Whoever let the token in has verified it, so that its own word counts now.
    """
    parts = header.rpartition(" ")[2].split(".")
    if len(parts) != 3:
        return math.inf
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=="), type=_Expiry)
    except (ValueError, msgspec.DecodeError):
        return math.inf
    return math.inf if claims.exp is None else claims.exp


class _Expiry(msgspec.Struct):
    exp: float | None = None


class Recheck:
    """The step that knows every long-running request, and asks about it again when there is reason.

    It is the last one before the app: what it knows has been let in by the same `guards`.
    """

    def __init__(
        self, guards: Sequence[Step], clock: Clock, *, every_seconds: float = RECHECK_SECONDS
    ) -> None:

        async def admitted(_context: RequestContext) -> None:
            """Answer nothing: that it was reached is what counts."""

        self._admit = chain(guards, admitted)
        self._clock = clock
        self._every_seconds = every_seconds
        self._open: dict[RequestContext, _OpenRequest] = {}
        self._is_changed = False
        self._are_tokens_changed = False
        self._not_before = 0.0
        self._slices = Slices()

    async def __call__(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        """Keep the request in sight for as long as its answer takes."""
        if not (is_long_running(context) or context.request.is_upgrade):
            return await rest(context)
        self._open[context] = _OpenRequest(context, self._next_look(context))
        try:
            return await rest(context)
        finally:
            del self._open[context]

    @property
    def open_count(self) -> int:
        """How many requests are kept in sight."""
        return len(self._open)

    def changed(self, *, tokens_only: bool = False) -> None:
        """Have every request asked about soon, or every one that came with a token."""
        if tokens_only:
            self._are_tokens_changed = True
        else:
            self._is_changed = True

    def look_every(self, seconds: float) -> None:
        """Look that often when nothing changes; sooner than before takes effect at once."""
        self._every_seconds = seconds
        latest = self._clock.monotonic() + seconds
        for each in self._open.values():
            each.due = min(each.due, latest)

    async def run(self) -> None:
        """Ask about open requests when there is reason to, until cancelled."""
        while True:
            await self._clock.sleep(_TICK_SECONDS)
            now, wall = self._clock.monotonic(), self._clock.now()
            is_round = now >= self._not_before
            takes_all = is_round and self._is_changed
            takes_tokens = is_round and self._are_tokens_changed
            if takes_all or takes_tokens:
                # Taken down before anything is asked: what changes from here on is another round.
                self._is_changed = self._is_changed and not takes_all
                self._are_tokens_changed = False
                self._not_before = now + _PAUSE_SECONDS
            await self.look(
                [
                    context
                    for context, each in self._open.items()
                    if takes_all
                    or (takes_tokens and each.has_token)
                    or now >= each.due
                    or wall >= each.ends
                ]
            )

    async def look(self, chosen: Sequence[RequestContext] | None = None) -> None:
        """Ask about requests once, about all unless told; end those that are no longer allowed."""
        contexts = tuple(self._open) if chosen is None else chosen
        # One iterator for all tasks: each takes the next request when it is done with its last.
        requests = iter(contexts)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(_AT_ONCE, len(contexts))):
                group.create_task(self._look_at(requests), name="recheck open requests")

    async def _look_at(self, requests: Iterator[RequestContext]) -> None:
        for context in requests:
            # Questions that are answered from memory never wait. One of them in a turn of the loop,
            # however many are asked at once: else whoever comes waits for so many.
            await self._slices.next(context.user.name)
            each = self._open.get(context)
            if each is None:
                continue  # it has ended by itself
            each.due = self._next_look(context)
            # The same request, as if it came now: with the headers the chain has taken away since.
            request = copy.copy(context.request)
            request.headers = context.received
            again = RequestContext(request, context.info, context.request_id)
            refusal: ApiError | None = None
            try:
                await self._admit(again)
                if again.user != context.user:
                    refusal = statuses.unauthorized()  # the credential is somebody else's now
                else:
                    for require in context.guards:
                        await require()
            except (Unauthorized, Forbidden) as refused:
                refusal = refused
            except (ApiError, ClusterError, StoreError) as error:
                _log.debug("rights could not be asked for", reason=str(error))
                each.due = self._clock.monotonic() + UNHEARD_SECONDS
                if self._clock.now() >= each.ends:
                    refusal = statuses.unauthorized()
            # It may have ended by itself while we asked.
            if refusal is not None and context in self._open:
                _log.info("long answer ended", user=context.user.name, reason=refusal.message)
                # Whose authority was dropped has, or gets, a certificate of the new one: to them
                # it is the end that every watch has, after which clients go on where they were.
                context.end(None if isinstance(refusal, AuthorityDropped) else refusal)
                each.ends = math.inf  # and it is over in a moment: it is not ended every tick
            elif self._clock.now() >= each.ends:
                each.ends = self._clock.now() + UNHEARD_SECONDS  # its issuer sees its end later

    def _next_look(self, context: RequestContext) -> float:
        # Between half of the time and all of it: those that were looked at together part.
        share = 0.5 + (id(context) >> 4) % 64 / 128
        return self._clock.monotonic() + self._every_seconds * share
