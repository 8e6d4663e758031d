"""Who did what to which object: one JSON line per write, and per read of what is secret.

    {"time":"2026-11-15T06:19:00Z","requestId":"…","user":"jane","groups":["devs"],
     "as":"system:serviceaccount:ci:bot","asGroups":[…],"sourceIP":"127.0.0.1","verb":"create",
     "group":"apps","version":"v1","resource":"deployments","namespace":"shop","name":"web",
     "uid":"…","code":201}

A watch of Secrets may go on for an hour, so it has a line when it begins, too ("stage":"Started").
At the gateway "cluster" says which cluster a call was for; without it, all that its caller may
reach. A name nobody asked for and a UID are what that cluster says: "reportedBy" names it.

Bodies, query strings, headers and messages are left out: that is where secrets would be.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import User
from clusterspace.errors import ApiError
from clusterspace.kube import plain_text
from clusterspace.kube.times import format_time

_BUG: Final = 500
_INTERRUPTED: Final = 504
_STREAMED: Final = 200
_STARTED: Final = "Started"
_PROXIED: Final = frozenset({"nodes", "pods", "services"})
_LONGEST_NAME: Final = 253
_LONGEST_UID: Final = 64

AuditSink: TypeAlias = Callable[[bytes], None]
"""Takes one line, its line end included; must not block for long and must not raise."""


class _Metadata(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Details(msgspec.Struct):
    uid: str = ""


class _Answer(msgspec.Struct):
    """As much of an answer as tells which object it is about."""

    metadata: _Metadata | None = None
    details: _Details | None = None


_answers: Final = msgspec.json.Decoder(_Answer)


AUDITED_READS: Final = frozenset({"secrets"})
"""Resources whose reads are audited, as `RESOURCE` or `RESOURCE.GROUP`."""


class Audit:
    """The step that writes a line for every write, whatever becomes of it, and for some reads."""

    def __init__(
        self, clock: Clock, sink: AuditSink, reads: frozenset[str] = AUDITED_READS
    ) -> None:
        self._clock = clock
        self._sink = sink
        self._reads = reads

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
            return any(each.partition(".")[0] in info.rest for each in self._reads)
        name = f"{info.resource}.{info.group}" if info.group else info.resource
        return name in self._reads

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
            self._sink(audit_line(context, caller, code, shown, format_time(self._clock.now())))
        return response


def audit_line(
    context: RequestContext, caller: User, code: int, response: Response | None, now: str
) -> bytes:
    """Return the line of a request; `caller` is who it was before impersonation.

    Without a code, it is one that has only begun.
    """
    info = context.info
    # What answers through a proxy is not the object in the URL, and tells what it likes.
    found = _Metadata() if info.subresource == "proxy" else _object_in(response)
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
        "code": code,
    }
    shown = {key: value for key, value in line.items() if value}
    return msgspec.json.encode(shown) + b"\n"


def _object_in(response: Response | None) -> _Metadata:
    """Return name and UID of the object an answer shows; nothing when it shows none."""
    if response is None:
        return _Metadata()
    body = response.body if isinstance(response.body, bytes) else b"".join(response.body)
    try:
        answer = _answers.decode(body)
    except msgspec.DecodeError:
        return _Metadata()  # not JSON, or a list: there is no one object to name
    found = answer.metadata or _Metadata()
    deleted = answer.details.uid if answer.details is not None else ""
    return _Metadata(found.name, found.uid or deleted)
