"""Steps that say who asks and whether they may, and that write down who failed to log in.

    Authenticate    credentials to user; those refused are audited, and slowed down when they guess
    Impersonate     act-as headers, checked value by value and applied
    Authorize       user, verb, resource to yes or no

Who did what is written down by the step between the first two: audit_events.py.

A failed login is an event of the audit log; the credential itself is never logged. Whoever has none
could otherwise fill the disk with lines, and push older ones out of the log: an address gets one
event at once, and what follows within ten seconds is one more, with a count.

A guess is cheap to refuse on the hub, but the gateway asks the hub about each. So an address that
keeps failing has to wait, for new connections only: somebody who has logged in on theirs goes on,
even from behind the same NAT.
"""

import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from clusterspace.aio.clocks import Alarm, Clock
from clusterspace.apiserver.http.connections import group_of
from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Headers, Request, Response
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import (
    ANONYMOUS,
    Impersonation,
    User,
    is_of_family,
    read_impersonation,
)
from clusterspace.errors import Forbidden, Unauthorized
from clusterspace.kube import statuses
from clusterspace.kube.resources import GroupResource
from clusterspace.kube.times import format_micro_time
from clusterspace.telemetry import metrics

AuditSink: TypeAlias = Callable[[dict[str, Any]], None]
"""Takes one event; must not block for long and must not raise."""

AuditWait: TypeAlias = Callable[[], Awaitable[None]]
"""Waits while events are unwritten."""

DescribeFailure: TypeAlias = Callable[[RequestContext, str, str], dict[str, Any] | None]
"""Makes an event of a failed login, from the address it counts for and the kind of credential; None
when there is to be none."""

COUNT: Final = "audit.clusterspace.io/count"
"""The annotation that says how many failed logins an event stands for."""


# -- authentication --------------------------------------------------------------------------------

LOG_EVERY_SECONDS: Final = 10.0
MOST_ADDRESSES: Final = 100
"""Addresses with lines of their own; what fails from others is counted in one line for all. So
failed logins write at most twenty lines a second."""

MOST_FAILURES: Final = 100.0
FAILURES_A_SECOND: Final = 50.0
"""An office whose scripts all hold yesterday's token stays below; a guesser does not."""

_MOST_REMEMBERED: Final = 10_000
_OTHERS: Final = "others"
_BOOTSTRAP: Final = re.compile(r"[a-z0-9]{6}\.[a-z0-9]+")
_AUTHENTICATED: Final = "authenticated"
"""Where a connection remembers that somebody has logged in on it."""


@dataclass(slots=True)
class _Logged:
    """The last event about one address, and how many failures it does not count yet."""

    since: float
    event: dict[str, Any]
    uncounted: int = 0


class FailedLogins:
    """Counts failed logins by address (IPv6: by network)."""

    def __init__(self, clock: Clock, sink: AuditSink, describe: DescribeFailure) -> None:
        self._clock = clock
        self._sink = sink
        self._describe = describe
        self._logged: dict[str, _Logged] = {}
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """How many failures an address still has to wait off, and when that was so."""
        self._alarm = Alarm(clock, self._log_counts)
        self._is_alarm_set = False

    def require_patience(self, context: RequestContext) -> None:
        """Refuse to look at one more credential from an address that failed too often; 429."""
        request = context.request
        if not self._levels or "authorization" not in request.headers:
            return
        if self._level(group_of(request.peer_address)) < MOST_FAILURES:
            return
        if not request.connection_memory.get(_AUTHENTICATED):
            raise statuses.too_many_requests()

    def note(self, context: RequestContext) -> None:
        """Count a failure, and log it now or with others."""
        metrics.login_failed()
        group, now = group_of(context.request.peer_address), self._clock.monotonic()
        self._levels[group] = (self._level(group) + 1, now)
        self._levels.move_to_end(group)
        if len(self._levels) > _MOST_REMEMBERED:
            self._levels.popitem(last=False)
        if group not in self._logged and len(self._logged) >= MOST_ADDRESSES:
            group = _OTHERS
        logged = self._logged.get(group)
        if logged is not None:
            logged.uncounted += 1
            return
        address = _OTHERS if group == _OTHERS else context.request.peer_address
        event = self._describe(context, address, _kind_of_credential(context))
        if event is None:
            return  # the policy wants none of it
        self._logged[group] = _Logged(now, event)
        self._write(event, 1)
        if not self._is_alarm_set:
            self._is_alarm_set = True
            self._alarm.set(LOG_EVERY_SECONDS)

    def close(self) -> None:
        """Log what was counted since the last line: nobody else will when this process ends."""
        self._alarm.cancel()
        for logged in self._logged.values():
            if logged.uncounted:
                self._write(logged.event, logged.uncounted)
        self._logged.clear()

    def _level(self, group: str) -> float:
        level, at = self._levels.get(group, (0.0, 0.0))
        return max(0.0, level - (self._clock.monotonic() - at) * FAILURES_A_SECOND)

    def _log_counts(self) -> None:
        """Log what was held back, and forget addresses that have been quiet."""
        self._is_alarm_set = False
        now = self._clock.monotonic()
        for group, logged in tuple(self._logged.items()):
            if now - logged.since < LOG_EVERY_SECONDS:
                continue
            if logged.uncounted:
                self._write(logged.event, logged.uncounted)
                self._logged[group] = _Logged(now, logged.event)
            else:
                del self._logged[group]
        if self._logged:
            self._is_alarm_set = True
            self._alarm.set(LOG_EVERY_SECONDS)

    def _write(self, event: dict[str, Any], count: int) -> None:
        now = format_micro_time(self._clock.now())
        notes = {**event["annotations"], COUNT: str(count)}
        self._sink({**event, "stageTimestamp": now, "annotations": notes})


def _kind_of_credential(context: RequestContext) -> str:
    if context.request.peer_certificate is not None:
        return "certificate"
    scheme, _, token = context.header("authorization").strip().partition(" ")
    if scheme.lower() != "bearer":
        return "unknown-scheme"
    if token.count(".") == 2:
        return "service-account-token"
    return "bootstrap-token" if _BOOTSTRAP.fullmatch(token.strip()) else "token"


class Authenticator(Protocol):
    """Finds out who is asking."""

    async def authenticate(self, request: Request) -> User:
        """Return the user, anonymous without credentials; Unauthorized when they are wrong."""
        ...


class Authenticate:
    """The step that gives a request its user."""

    def __init__(self, authenticator: Authenticator, failures: FailedLogins | None = None) -> None:
        self._authenticator = authenticator
        self._failures = failures

    async def __call__(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        """Authenticate, then go on."""
        failures = self._failures
        if failures is not None:
            failures.require_patience(context)
        try:
            context.user = await self._authenticator.authenticate(context.request)
        except Unauthorized:
            if failures is not None:
                failures.note(context)
            raise
        context.request.owner = context.user.name
        if context.user is not ANONYMOUS:
            memory = context.request.connection_memory
            if _AUTHENTICATED not in memory:
                # The first login on this connection: from now on it is somebody's.
                memory[_AUTHENTICATED] = True
                context.request.trust_connection()
        return await rest(context)


# -- impersonation and authorization ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a user may, and why."""

    allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    """Decides. Anything it does not allow is refused."""

    async def decide(self, user: User, info: RequestInfo) -> Decision:
        """Return whether the user may do what the request asks for."""
        ...


class Authorize:
    """The step that refuses what its authorizer does not allow."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def __call__(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        """Go on if allowed, else answer 403 with who may not do what, and where."""
        decision = await self._authorizer.decide(context.user, context.info)
        context.authorization = "allow" if decision.allowed else "forbid"
        context.authorization_reason = decision.reason
        if not decision.allowed:
            raise refusal(context.user, context.info, decision.reason)
        return await rest(context)


def refusal(user: User, info: RequestInfo, reason: str = "") -> Forbidden:
    """Return the 403 that says who may not do what, and where, in Kubernetes' words."""
    who = f"User {statuses.quoted(user.name)} cannot {info.verb}"
    why = f": {reason}" if reason else ""
    if not info.is_resource:
        return statuses.forbidden_path(f"{who} path {statuses.quoted(info.path)}{why}")
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    where = "at the cluster scope"
    if info.namespace:
        where = f"in the namespace {statuses.quoted(info.namespace)}"
    what = f"resource {statuses.quoted(resource)} in API group {statuses.quoted(info.group)}"
    group_resource = GroupResource(info.group, info.resource)
    return statuses.forbidden(group_resource, info.name, f"{who} {what} {where}{why}")


class Impersonate:
    """The step that makes a request somebody else's, if the caller may."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def __call__(self, context: RequestContext, rest: RequestHandler) -> Awaitable[Response | None]:
        """Check every value, become the user, forget the headers; then go on."""
        impersonation = read_impersonation(context.request.headers)
        return (
            rest(context) if impersonation is None else self._become(context, impersonation, rest)
        )

    async def _become(
        self, context: RequestContext, impersonation: Impersonation, rest: RequestHandler
    ) -> Response | None:
        request = context.request
        for info in impersonation.checks():
            decision = await self._authorizer.decide(context.user, info)
            if not decision.allowed:
                raise refusal(context.user, info, decision.reason)
        kept = [(name, value) for name, value in request.headers if not is_of_family(name)]
        request.headers = Headers(kept)
        context.user = impersonation.become()
        return await rest(context)
