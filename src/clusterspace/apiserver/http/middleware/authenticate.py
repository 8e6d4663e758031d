"""Credentials to user. Those refused are audited, and slowed down when they become guesses.

    {"time":"2026-11-15T06:19:00Z","requestId":"…","event":"LoginFailed","sourceIP":"192.0.2.7",
     "credential":"bootstrap-token","verb":"list","path":"/api/v1/secrets","count":1,"code":401}

The credential itself is never logged. Whoever has none could otherwise fill the disk with lines,
and push older ones out of the log: an address gets one line at once, and what follows within ten
seconds is one more, with a count.

A guess is cheap to refuse on the hub, but the gateway asks the hub about each. So an address that
keeps failing has to wait, for new connections only: somebody who has logged in on theirs goes on,
even from behind the same NAT.
"""

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from clusterspace.aio.clocks import Alarm, Clock
from clusterspace.apiserver.http.connections import group_of
from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.middleware.audit import AuditSink
from clusterspace.apiserver.http.requests import Request
from clusterspace.apiserver.http.users import ANONYMOUS, User
from clusterspace.errors import Unauthorized
from clusterspace.kube import statuses
from clusterspace.kube.times import format_time
from clusterspace.telemetry import metrics

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


@dataclass(slots=True)
class _Logged:
    """The last line about one address, and how many failures it does not count yet."""

    since: float
    line: dict[str, Any]
    uncounted: int = 0


class FailedLogins:
    """Counts failed logins by address (IPv6: by network)."""

    def __init__(self, clock: Clock, sink: AuditSink) -> None:
        self._clock = clock
        self._sink = sink
        self._logged: dict[str, _Logged] = {}
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """How many failures an address still has to wait off, and when that was so."""
        self._alarm = Alarm(clock, self._log_counts)
        self._is_alarm_set = False

    def note_success(self, context: RequestContext) -> None:
        """Remember that somebody has logged in on this connection."""
        context.request.connection_memory[_AUTHENTICATED] = True

    def require_patience(self, context: RequestContext) -> None:
        """Refuse to look at one more credential from an address that failed too often; 429."""
        request = context.request
        if "authorization" not in request.headers or not self._levels:
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
        line = {
            "requestId": context.request_id,
            "event": "LoginFailed",
            "sourceIP": _OTHERS if group == _OTHERS else context.request.peer_address,
            "credential": _kind_of_credential(context),
            "verb": context.info.verb,
            "path": context.info.path[:_MOST_PATH],
        }
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
        stamped = {"time": format_time(self._clock.now()), **line, "count": count, "code": 401}
        self._sink(msgspec.json.encode(stamped) + b"\n")


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
            context.request.trust_connection()
            if failures is not None:
                failures.note_success(context)
        return await rest(context)
