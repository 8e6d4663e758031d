"""The audit step: by a policy, events of audit.k8s.io/v1, one for each stage of a request.

    RequestReceived     before anything is done
    ResponseStarted     a watch, a log or a shell begins to answer
    ResponseComplete    the answer is known
    Panic               a bug ended the request

What is ours is in annotations: `audit.clusterspace.io/cluster` is the one that a call at the
gateway was for, and `reported-by` says that name, UID or message are that cluster's words. The
query of a URL is written with its values from level Request on; below, values of options that
Kubernetes does not know are left out, as are messages about credentials that were refused: that is
where secrets would be.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any, Final, cast
from urllib.parse import quote_plus

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.audit_policy import (
    API_VERSION,
    CARRIERS,
    LEVEL_NAMES,
    Decision,
    Level,
    Policy,
)
from clusterspace.apiserver.http.bodies import media_type_of, read_body
from clusterspace.apiserver.http.chain import cluster_refusal, is_long_running
from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.guards import AuditSink, AuditWait, DescribeFailure
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import CONNECTS, JSON
from clusterspace.apiserver.http.users import User
from clusterspace.errors import ApiError, BadRequest, ClusterError, UnsupportedMediaType
from clusterspace.kube import plain_text, statuses
from clusterspace.kube.times import format_micro_time

PREFIX: Final = "audit.clusterspace.io/"
_LONGEST_AGENT: Final = 1024
_LONGEST_NAME: Final = 253
_LONGEST_UID: Final = 64
_LONGEST_MESSAGE: Final = 1024
_LARGEST_BODY: Final = 256 * 1024
"""Larger bodies are left out, and the event says so: a list of everything is no record."""

_INTERRUPTED: Final = 504
_PLAIN_OPTIONS: Final = frozenset(
    {
        "allowWatchBookmarks",
        "continue",
        "dryRun",
        "fieldManager",
        "fieldSelector",
        "fieldValidation",
        "follow",
        "force",
        "gracePeriodSeconds",
        "labelSelector",
        "limit",
        "orphanDependents",
        "propagationPolicy",
        "resourceVersion",
        "resourceVersionMatch",
        "sendInitialEvents",
        "tailLines",
        "timeout",
        "timeoutSeconds",
        "watch",
    }
)


async def at_once() -> None:
    """Wait for nothing: where events need not be in a file."""


class Audit:
    """The step that writes the events of a request."""

    def __init__(
        self,
        clock: Clock,
        sink: AuditSink,
        policy: Policy,
        *,
        room: AuditWait = at_once,
        written: AuditWait = at_once,
        answers_of_members: bool = False,
    ) -> None:
        self._clock = clock
        self._answers_of_members = answers_of_members
        """Whether answers are what members say, also where no one of them is named."""
        self._sink = sink
        self._room = room
        self._written = written
        self._policy = policy

    def __call__(self, context: RequestContext, rest: RequestHandler) -> Awaitable[Response | None]:
        """Have the request answered, and write its events; most have none."""
        decision = self._policy.decide(context.user, context.info)
        if decision.level is Level.NONE:
            return rest(context)
        return self._audit(context, rest, decision)

    async def _audit(
        self, context: RequestContext, rest: RequestHandler, decision: Decision
    ) -> Response | None:
        await self._room()
        caller, received, is_long = context.user, self._clock.now(), is_long_running(context)
        started: list[int] = []

        def start(code: int) -> None:
            if not started:
                status: dict[str, Any] = {"metadata": {}, "code": code}
                self._write(context, caller, decision, "ResponseStarted", received, status, None)
            started.append(code)

        if "RequestReceived" not in decision.omit_stages:
            self._write(context, caller, decision, "RequestReceived", received, None, None)
        if is_long:
            context.request.on_answer = start
        # What was answered has its line, also if the process is killed the moment after. Most of a
        # long answer has been sent before.
        wait_for_line = at_once if is_long else self._written
        stage, response = "ResponseComplete", None
        answer: Response | None = None
        """What the client gets, if that is not what is returned from here."""
        status: dict[str, Any] = {"metadata": {}, "code": _INTERRUPTED}
        try:
            response = await rest(context)
            if response is None:
                status["code"] = started[0] if started else 200
            else:
                status = _status_in(context, response)
        except (ApiError, ClusterError) as error:
            refused = error if isinstance(error, ApiError) else cluster_refusal(error)
            status = _shown_status(context, statuses.status_of(refused), refused.code)
            has_body = decision.level >= Level.REQUEST_RESPONSE
            if has_body and not _quotes_credentials(context, refused.code):
                body = msgspec.json.encode(statuses.status_of(refused))
                answer = Response(refused.code, (), body)
            raise
        except asyncio.CancelledError:
            wait_for_line = at_once
            if started:
                status["code"] = started[0]  # whoever listened has hung up: the answer stands
            raise
        except Exception as bug:
            if not (isinstance(bug, ConnectionError) and context.request.is_disconnected):
                stage = "Panic"
            # Its class only: what else an exception says may be anything.
            why = f"APIServer panic'd: {type(bug).__name__}"
            status = {
                "metadata": {},
                "status": "Failure",
                "message": why,
                "reason": "InternalError",
                "code": 500,
            }
            raise
        finally:
            if is_long and not started and stage != "Panic":
                start(status["code"])
            self._write(context, caller, decision, stage, received, status, response or answer)
            await wait_for_line()
        return response

    def _write(
        self,
        context: RequestContext,
        caller: User,
        decision: Decision,
        stage: str,
        received: float,
        status: Mapping[str, Any] | None,
        response: Response | None,
    ) -> None:
        went_well = status is None or status["code"] < 400
        if stage not in decision.omit_stages and not (decision.refusals_only and went_well):
            now = self._clock.now()
            event = event_of(context, caller, decision, stage, received, now, status, response)
            if self._answers_of_members and "responseObject" in event:
                event["responseObject"] = plain_text.lines_of_json(event["responseObject"])
            self._sink(event)


def event_of(  # noqa: C901, PLR0912, PLR0913 - all there is to say of one stage of a request
    context: RequestContext,
    caller: User | None,
    decision: Decision,
    stage: str,
    received: float,
    now: float,
    status: Mapping[str, Any] | None,
    response: Response | None,
) -> dict[str, Any]:
    """Return the event of one stage; `caller` is who it was before impersonation."""
    info, request = context.info, context.request
    notes = (
        {key: value for key, value in context.annotations.items() if not key.startswith(PREFIX)}
        if context.annotations
        else {}
    )
    if context.authorization and stage != "RequestReceived":
        notes["authorization.k8s.io/decision"] = context.authorization
        notes["authorization.k8s.io/reason"] = context.authorization_reason
    if context.cluster:
        notes[f"{PREFIX}cluster"] = context.cluster
    event: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": API_VERSION,
        "level": LEVEL_NAMES[decision.level],
        "auditID": context.request_id,
        "stage": stage,
        "requestURI": _uri_of(context, decision.level),
        "verb": info.verb,
        "user": _user_of(caller) if caller is not None else {},
    }
    if caller is not None and context.user is not caller:
        event["impersonatedUser"] = _user_of(context.user)
    event["sourceIPs"] = [request.peer_address]
    if agent := context.header("user-agent"):
        cut = f"{agent[:_LONGEST_AGENT]}...TRUNCATED" if len(agent) > _LONGEST_AGENT else agent
        event["userAgent"] = cut
    if info.is_resource:
        found = object_in(response if info.is_write and info.subresource != "proxy" else None)
        asked_name = info.name or context.new_name
        if not asked_name and not context.cluster and status is not None:
            # Of what could not be created only the refusal says the name.
            asked_name = str(status.get("details", {}).get("name", ""))
        reference = {"resource": info.resource}
        if info.namespace:
            reference["namespace"] = info.namespace
        if name := asked_name or found.name:
            reference["name"] = plain_text.line(name, _LONGEST_NAME)
        if found.uid:
            reference["uid"] = plain_text.line(found.uid, _LONGEST_UID)
        if info.group:
            reference["apiGroup"] = info.group
        reference["apiVersion"] = info.version
        if info.subresource:
            reference["subresource"] = info.subresource
        event["objectRef"] = reference
        is_reported = found.uid or (found.name and not asked_name) or (status or {}).get("message")
        if context.cluster and is_reported:
            notes[f"{PREFIX}reported-by"] = context.cluster
    if status is not None:
        event["responseStatus"] = status
    has_bodies = decision.level >= Level.REQUEST and stage == "ResponseComplete"
    if has_bodies and info.subresource not in CONNECTS:
        _add_bodies(event, notes, context, decision, response)
    event["requestReceivedTimestamp"] = format_micro_time(received)
    event["stageTimestamp"] = format_micro_time(now)
    if notes:
        event["annotations"] = notes
    return event


def _user_of(user: User) -> dict[str, Any]:
    described: dict[str, Any] = {"username": user.name}
    if user.uid:
        described["uid"] = user.uid
    if user.groups:
        described["groups"] = user.groups
    if user.extra:
        described["extra"] = dict(user.extra)
    return described


def _uri_of(context: RequestContext, level: Level) -> str:
    request, query = context.request, context.info.query
    if level >= Level.REQUEST or not query.pairs:
        return request.target.decode("ascii", "replace")
    shown = "&".join(
        f"{quote_plus(key)}={quote_plus(value) if key in _PLAIN_OPTIONS else '...'}"
        for key, value in query.pairs
    )
    return f"{request.path}?{shown}"


def _is_about_credentials(context: RequestContext) -> bool:
    info = context.info
    is_carrier = info.resource in CARRIERS.get(info.group, ())
    return is_carrier or info.resource in ("secrets", "tokenreviews") or info.subresource == "token"


def _quotes_credentials(context: RequestContext, code: int) -> bool:
    """Whether a refusal may repeat a credential that was sent."""
    return code in (400, 422) and _is_about_credentials(context)


def _status_in(context: RequestContext, response: Response) -> dict[str, Any]:
    is_deletion = context.info.verb == "delete" and not context.cluster
    if response.status < 400 and not is_deletion:
        return {"metadata": {}, "code": response.status}
    body = _decoded(response)
    if response.status < 400 and body.get("kind") != "Status":
        return {"metadata": {}, "code": response.status}
    return _shown_status(context, body if body.get("kind") == "Status" else {}, response.status)


def _shown_status(context: RequestContext, body: Mapping[str, Any], code: int) -> dict[str, Any]:
    """Return a Status for the record; what quotes a credential that was refused is left out."""
    shown: dict[str, Any] = {"metadata": {}, "status": "Failure" if code >= 400 else "Success"}
    quotes = _quotes_credentials(context, code)
    if not quotes:
        shown["message"] = plain_text.line(str(body.get("message") or ""), _LONGEST_MESSAGE)
    shown["reason"] = plain_text.line(str(body.get("reason") or ""), _LONGEST_UID)
    details = body.get("details")
    if isinstance(details, dict) and not context.cluster:
        known = cast("dict[str, Any]", details)
        fields = ("name", "group", "kind", "uid", *(() if quotes else ("causes",)))
        shown["details"] = {each: known[each] for each in fields if each in known}
    shown["code"] = code
    return {key: value for key, value in shown.items() if value or key == "metadata"}


def _decoded(response: Response) -> dict[str, Any]:
    headers = {name.lower(): value for name, value in response.headers}
    raw = response.body if isinstance(response.body, bytes) else b"".join(response.body)
    if len(raw) > _LARGEST_BODY:
        return {}
    try:
        found = read_body(raw, headers.get("content-type", JSON)).value
    except (BadRequest, UnsupportedMediaType, msgspec.DecodeError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _add_bodies(
    event: dict[str, Any],
    notes: dict[str, str],
    context: RequestContext,
    decision: Decision,
    response: Response | None,
) -> None:
    """Add what was sent and answered, as far as the level asks for it and it can be read."""
    if raw := context.request.received_body:
        media_type = media_type_of(context.header("content-type"))
        # A patch is JSON or YAML under a name of its own.
        is_patch = media_type.endswith("+json") or media_type == JSON
        read_as = JSON if is_patch else media_type.replace("apply-patch+yaml", "yaml")
        if len(raw) > _LARGEST_BODY:
            notes[f"{PREFIX}request-object-omitted"] = f"{len(raw)} bytes"
        else:
            try:
                value = read_body(raw, read_as).value
                if isinstance(value, dict | list):
                    event["requestObject"] = _without(value, decision)
            except (BadRequest, UnsupportedMediaType, msgspec.DecodeError):
                notes[f"{PREFIX}request-object-omitted"] = "it cannot be read"
    if decision.level >= Level.REQUEST_RESPONSE and response is not None:
        size = sum(map(len, [response.body] if isinstance(response.body, bytes) else response.body))
        if size > _LARGEST_BODY:
            notes[f"{PREFIX}response-object-omitted"] = f"{size} bytes"
        elif found := _decoded(response):
            event["responseObject"] = _without(found, decision)


def _without(value: Any, decision: Decision) -> Any:
    """Return an object without the owners of its fields, if they are to be left out."""
    if not decision.omit_managed_fields or not isinstance(value, dict):
        return value
    kept = dict(cast("dict[str, Any]", value))
    metadata = kept.get("metadata")
    if isinstance(metadata, dict):
        fields = cast("dict[str, Any]", metadata)
        kept["metadata"] = {key: each for key, each in fields.items() if key != "managedFields"}
    if isinstance(kept.get("items"), list):
        kept["items"] = [_without(each, decision) for each in kept["items"]]
    if isinstance(kept.get("rows"), list):
        kept["rows"] = [
            {**cast("dict[str, Any]", row), "object": _without(row.get("object"), decision)}
            for row in cast("list[Any]", kept["rows"])
            if isinstance(row, dict)
        ]
    return kept


def failed_login_events(policy: Policy, clock: Clock) -> DescribeFailure:
    """Return what makes events of failed logins, as far as the policy wants them."""

    def describe(context: RequestContext, address: str, credential: str) -> dict[str, Any] | None:
        decision = policy.decide(None, context.info)
        stage = "ResponseStarted"  # as kube-apiserver: nothing was begun that could be completed
        if decision.level is Level.NONE or stage in decision.omit_stages:
            return None
        status = _shown_status(context, statuses.status_of(statuses.unauthorized()), 401)
        now = clock.now()
        shown = replace(decision, level=min(decision.level, Level.METADATA))
        event = event_of(context, None, shown, stage, now, now, status, None)
        event["sourceIPs"] = [address]
        event["requestURI"] = event["requestURI"][:_LONGEST_MESSAGE]  # a stranger's words
        event["annotations"] = {**event.get("annotations", {}), f"{PREFIX}credential": credential}
        return event

    return describe


# -- which object an answer shows ------------------------------------------------------------------


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
