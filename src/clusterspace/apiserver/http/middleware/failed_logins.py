"""Credentials that were refused: told in the audit log, and slowed down when they become guesses.

    {"time":"2026-11-15T06:19:00Z","requestId":"…","event":"LoginFailed","sourceIP":"192.0.2.7",
     "credential":"bootstrap-token","verb":"list","path":"/api/v1/secrets","count":1,"code":401}

The credential itself is never told. Whoever has none could otherwise fill the disk with lines, and
push older ones out of the log: an address gets one line at once, and what follows within ten
seconds is one more, with a count.

A guess is cheap to refuse on the hub, but the gateway asks the hub about each. So an address that
keeps failing is told to wait, for new connections only: somebody who has logged in on theirs goes
on, even from behind the same NAT.
"""

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from clusterspace.aio.clocks import Alarm, Clock
from clusterspace.apiserver.http.arrivals import group_of
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.middleware.audit import AuditSink
from clusterspace.kube import statuses
from clusterspace.kube.timestamps import format_time
from clusterspace.telemetry import metrics

TOLD_EVERY_SECONDS: Final = 10.0
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
class _Told:
    """What has been told of one address, and what has not yet."""

    since: float
    line: dict[str, Any]
    untold: int = 0


class FailedLogins:
    """Counts failed logins by address (IPv6: by network)."""

    def __init__(self, clock: Clock, sink: AuditSink) -> None:
        self._clock = clock
        self._sink = sink
        self._told: dict[str, _Told] = {}
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """How many failures an address still has to wait off, and when that was so."""
        self._alarm = Alarm(clock, self._tell_counts)
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
        """Count a failure, and tell of it now or with others."""
        metrics.login_failed()
        group, now = group_of(context.request.peer_address), self._clock.monotonic()
        self._levels[group] = (self._level(group) + 1, now)
        self._levels.move_to_end(group)
        if len(self._levels) > _MOST_REMEMBERED:
            self._levels.popitem(last=False)
        if group not in self._told and len(self._told) >= MOST_ADDRESSES:
            group = _OTHERS
        told = self._told.get(group)
        if told is not None:
            told.untold += 1
            return
        line = _line_of(context)
        if group == _OTHERS:
            line["sourceIP"] = _OTHERS
        self._told[group] = _Told(now, line)
        self._write(line, 1)
        if not self._is_alarm_set:
            self._is_alarm_set = True
            self._alarm.set(TOLD_EVERY_SECONDS)

    def _level(self, group: str) -> float:
        level, at = self._levels.get(group, (0.0, 0.0))
        return max(0.0, level - (self._clock.monotonic() - at) * FAILURES_A_SECOND)

    def _tell_counts(self) -> None:
        """Tell what was held back, and forget addresses that have been quiet."""
        self._is_alarm_set = False
        now = self._clock.monotonic()
        for group, told in tuple(self._told.items()):
            if now - told.since < TOLD_EVERY_SECONDS:
                continue
            if told.untold:
                self._write(told.line, told.untold)
                self._told[group] = _Told(now, told.line)
            else:
                del self._told[group]
        if self._told:
            self._is_alarm_set = True
            self._alarm.set(TOLD_EVERY_SECONDS)

    def _write(self, line: dict[str, Any], count: int) -> None:
        stamped = {"time": format_time(self._clock.now()), **line, "count": count, "code": 401}
        self._sink(msgspec.json.encode(stamped) + b"\n")


def _line_of(context: RequestContext) -> dict[str, Any]:
    return {
        "requestId": context.request_id,
        "event": "LoginFailed",
        "sourceIP": context.request.peer_address,
        "credential": _kind_of_credential(context),
        "verb": context.info.verb,
        "path": context.info.path[:_MOST_PATH],
    }


def _kind_of_credential(context: RequestContext) -> str:
    if context.request.peer_certificate is not None:
        return "certificate"
    scheme, _, token = context.header("authorization").strip().partition(" ")
    if scheme.lower() != "bearer":
        return "unknown-scheme"
    if token.count(".") == 2:
        return "service-account-token"
    return "bootstrap-token" if _BOOTSTRAP.fullmatch(token.strip()) else "token"
