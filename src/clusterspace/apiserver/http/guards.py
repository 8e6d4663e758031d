"""Steps that say who asks and whether they may, and write down who did what, and who failed to.

    Authenticate    credentials to user; those refused are logged, and slowed down when they guess
    Audit           one JSON line per write but renewed leases, and per read of what is secret
    Impersonate     act-as headers, checked value by value and applied
    Authorize       user, verb, resource to yes or no

A line of the audit log. A watch of Secrets may go on for an hour, so it has one when it begins, too
("stage":"Started"). At the gateway "cluster" says which cluster a call was for; without it, all
that its caller may reach. A name nobody asked for and a UID are what that cluster says:
"reportedBy" names it. Bodies, query strings, headers and messages are left out: that is where
secrets would be.

    {"time":"2026-11-15T06:19:00Z","requestId":"…","user":"jane","groups":["devs"],
     "as":"system:serviceaccount:ci:bot","asGroups":[…],"sourceIP":"127.0.0.1","verb":"create",
     "group":"apps","version":"v1","resource":"deployments","namespace":"shop","name":"web",
     "uid":"…","code":201}

A failed login. The credential itself is never logged. Whoever has none could otherwise fill the
disk with lines, and push older ones out of the log: an address gets one line at once, and what
follows within ten seconds is one more, with a count.

    {"time":"2026-11-15T06:19:00Z","requestId":"…","event":"LoginFailed","sourceIP":"192.0.2.7",
     "credential":"bootstrap-token","verb":"list","path":"/api/v1/secrets","count":1,"code":401}

A guess is cheap to refuse on the hub, but the gateway asks the hub about each. So an address that
keeps failing has to wait, for new connections only: somebody who has logged in on theirs goes on,
even from behind the same NAT.
"""

import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import msgspec

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
from clusterspace.errors import ApiError, Forbidden, Unauthorized
from clusterspace.kube import plain_text, statuses
from clusterspace.kube.resources import GroupResource
from clusterspace.kube.times import format_micro_time, format_time
from clusterspace.telemetry import metrics

AuditSink: TypeAlias = Callable[[dict[str, Any]], None]
"""Takes one event; must not block for long and must not raise."""

DescribeFailure: TypeAlias = Callable[[RequestContext, dict[str, Any]], dict[str, Any] | None]
"""Turns what is known of a failed login into an event; None when there is to be none."""


# -- authentication --------------------------------------------------------------------------------

LOG_EVERY_SECONDS: Final = 10.0
MOST_ADDRESSES: Final = 100
"""Addresses with lines of their own; what fails from others is counted in one line for all. So
failed logins write at most twenty lines a second."""

MOST_FAILURES: Final = 100.0
FAILURES_A_SECOND: Final = 50.0
"""An office whose scripts all hold yesterday's token stays below; a guesser does not."""

_MOST_REMEMBERED: Final = 10_000
_MOST_PATH: Final = 200
_OTHERS: Final = "others"
_BOOTSTRAP: Final = re.compile(r"[a-z0-9]{6}\.[a-z0-9]+")
_AUTHENTICATED: Final = "authenticated"
"""Where a connection remembers that somebody has logged in on it."""


@dataclass(slots=True)
class _Logged:
    """The last line about one address, and how many failures it does not count yet."""

    since: float
    line: dict[str, Any]
    uncounted: int = 0


class FailedLogins:
    """Counts failed logins by address (IPv6: by network)."""

    def __init__(
        self, clock: Clock, sink: AuditSink, describe: DescribeFailure | None = None
    ) -> None:
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
        line: dict[str, Any] | None = {
            "requestId": context.request_id,
            "event": "LoginFailed",
            "sourceIP": _OTHERS if group == _OTHERS else context.request.peer_address,
            "credential": _kind_of_credential(context),
            "verb": context.info.verb,
            "path": context.info.path[:_MOST_PATH],
        }
        if self._describe is not None:
            line = self._describe(context, line)
            if line is None:
                return  # the policy wants no event of it
        self._logged[group] = _Logged(now, line)
        self._write(line, 1)
        if not self._is_alarm_set:
            self._is_alarm_set = True
            self._alarm.set(LOG_EVERY_SECONDS)

    def close(self) -> None:
        """Log what was counted since the last line: nobody else will when this process ends."""
        self._alarm.cancel()
        for logged in self._logged.values():
            if logged.uncounted:
                self._write(logged.line, logged.uncounted)
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
                self._write(logged.line, logged.uncounted)
                self._logged[group] = _Logged(now, logged.line)
            else:
                del self._logged[group]
        if self._logged:
            self._is_alarm_set = True
            self._alarm.set(LOG_EVERY_SECONDS)

    def _write(self, line: dict[str, Any], count: int) -> None:
        if self._describe is not None:
            now = format_micro_time(self._clock.now())
            notes = {**line["annotations"], "audit.clusterspace.io/count": str(count)}
            self._sink({**line, "stageTimestamp": now, "annotations": notes})
            return
        now = format_time(self._clock.now())
        self._sink({"time": now, **line, "count": count, "code": 401})


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


# -- audit -----------------------------------------------------------------------------------------

_BUG: Final = 500
_INTERRUPTED: Final = 504
_STREAMED: Final = 200
_STARTED: Final = "Started"
_PROXIED: Final = frozenset({"nodes", "pods", "services"})
_LONGEST_NAME: Final = 253
_LONGEST_UID: Final = 64


class ShownObject(msgspec.Struct):
    """Which object an answer shows, as far as it says so."""

    name: str = ""
    uid: str = ""


class _Details(msgspec.Struct):
    uid: str = ""


class _Answer(msgspec.Struct):
    """As much of an answer as tells which object it is about."""

    metadata: ShownObject | None = None
    details: _Details | None = None


_answers: Final = msgspec.json.Decoder(_Answer)


@dataclass(frozen=True, slots=True)
class AuditPolicy:
    """What goes to the audit log besides writes, and which of those do not."""

    reads: frozenset[str] = frozenset({"secrets"})
    """Resources whose reads are audited, as `RESOURCE` or `RESOURCE.GROUP`."""
    renewals: bool = False
    """Whether leases that somebody renewed are audited: of an idle fleet that is all there is."""

    def leaves_out(self, info: RequestInfo, code: int) -> bool:
        """Whether a request that ended like this has no line; refusals always have one."""
        is_lease = info.resource == "leases" and info.group == "coordination.k8s.io"
        is_renewal = is_lease and info.verb in ("update", "patch") and code == 200
        return is_renewal and not self.renewals


class Audit:
    """The step that writes a line for every write, whatever becomes of it, and for some reads."""

    def __init__(self, clock: Clock, sink: AuditSink, policy: AuditPolicy | None = None) -> None:
        self._clock = clock
        self._sink = sink
        self._policy = policy or AuditPolicy()

    def __call__(self, context: RequestContext, rest: RequestHandler) -> Awaitable[Response | None]:
        """Let the write happen, then log it; most reads pass without a step of their own.

        An upgrade counts as one whatever its method: a shell is opened with GET.
        """
        info = context.info
        is_audited = info.is_write or context.request.is_upgrade or self._is_audited_read(info)
        return self._audit(context, rest) if is_audited else rest(context)

    def _is_audited_read(self, info: RequestInfo) -> bool:
        """Whether a read is audited; through a proxy too, as far as its path says so.

        What runs behind a pod, a service or a node may do anything when it gets a GET.
        """
        if info.subresource == "proxy" and info.resource in _PROXIED and not info.group:
            return True
        if info.subresource == "proxy":
            return any(each.partition(".")[0] in info.rest for each in self._policy.reads)
        name = f"{info.resource}.{info.group}" if info.group else info.resource
        return name in self._policy.reads

    async def _audit(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        caller, code = context.user, _INTERRUPTED
        response: Response | None = None
        if context.info.is_watch:
            started = audit_line(context, caller, 0, None, format_time(self._clock.now()))
            self._sink(started)
        try:
            response = await rest(context)
            code = _STREAMED if response is None else response.status
        except ApiError as refused:
            code = refused.code
            raise
        except Exception:
            code = _BUG
            raise
        finally:
            # What was read needs no look at the answer: its name is in the URL, or it is a list.
            shown = response if context.info.is_write else None
            if not self._policy.leaves_out(context.info, code):
                self._sink(audit_line(context, caller, code, shown, format_time(self._clock.now())))
        return response


def audit_line(
    context: RequestContext, caller: User, code: int, response: Response | None, now: str
) -> dict[str, Any]:
    """Return the line of a request; `caller` is who it was before impersonation.

    Without a code, it is one that has only begun.
    """
    info = context.info
    # What answers through a proxy is not the object in the URL, and tells what it likes.
    found = ShownObject() if info.subresource == "proxy" else object_in(response)
    asked_name = info.name or context.new_name
    # The words of a cluster are marked as such: a name that was asked for is the caller's.
    is_reported = bool(found.uid or (found.name and not asked_name))
    line: dict[str, Any] = {
        "time": now,
        "stage": "" if code else _STARTED,
        "requestId": context.request_id,
        "user": caller.name,
        "groups": caller.groups,
        "as": "" if context.user is caller else context.user.name,
        "asGroups": () if context.user is caller else context.user.groups,
        "sourceIP": context.request.peer_address,
        "verb": info.verb,
        "group": info.group,
        "version": info.version,
        "resource": info.resource,
        "subresource": info.subresource,
        "namespace": info.namespace,
        "cluster": context.cluster,
        "name": plain_text.line(asked_name or found.name, _LONGEST_NAME),
        "path": info.path if not info.is_resource or info.subresource == "proxy" else "",
        "uid": plain_text.line(found.uid, _LONGEST_UID),
        "reportedBy": context.cluster if is_reported else "",
        "dryRun": bool(info.query.get("dryRun")),
        "annotations": context.annotations,
        "code": code,
    }
    return {key: value for key, value in line.items() if value}


def object_in(response: Response | None) -> ShownObject:
    """Return name and UID of the object an answer shows; nothing when it shows none."""
    if response is None:
        return ShownObject()
    body = response.body if isinstance(response.body, bytes) else b"".join(response.body)
    try:
        answer = _answers.decode(body)
    except msgspec.DecodeError:
        return ShownObject()  # not JSON, or a list: there is no one object to name
    found = answer.metadata or ShownObject()
    deleted = answer.details.uid if answer.details is not None else ""
    return ShownObject(found.name, found.uid or deleted)
