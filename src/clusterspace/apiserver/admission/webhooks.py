"""Webhooks: programs elsewhere that change or refuse what is written.

Mutating webhooks are called one after the other, in the order of the names of their configurations;
one with `reinvocationPolicy: IfNeeded` is called again, once, when something changed what it had
seen. Validating webhooks are called all at once. A webhook that cannot be reached, takes longer
than it may or answers nonsense is ignored or refuses the write, as its `failurePolicy` says.

Whoever may write a configuration says where writes are sent, Secrets among them: addresses are
judged when connecting, as those of conversion webhooks are, and no credentials of ours go along.
https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

import asyncio
import base64
import binascii
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, cast
from urllib.parse import urlsplit

import msgspec

from clusterspace.apiserver.access.authorizer import HubAuthorizer
from clusterspace.apiserver.admission.matching import (
    Followed,
    ResourceMatcher,
    concerns_no_webhook,
    named_refusal,
)
from clusterspace.apiserver.admission.policies import (
    Condition,
    ConditionsFailed,
    Effort,
    conditions_hold,
    read_conditions,
    values_of,
)
from clusterspace.apiserver.admission.reviewed import Reviewed, reviewed, with_changed
from clusterspace.apiserver.state import EVERY_OPERATION, Admission, HubState, Operation, Plugin
from clusterspace.client.webhooks import url_of
from clusterspace.errors import (
    ApiError,
    BadRequest,
    ClusterError,
    ClusterspaceError,
    ClusterTimeout,
    ClusterUnreachable,
    InapplicablePatch,
)
from clusterspace.kube import statuses
from clusterspace.kube.causes import quoted
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.json_patches import apply_json_patch, parse_json_patch
from clusterspace.kube.objects import Object, name_of

_GROUP: Final = "admission.k8s.io"
_VERSIONS: Final = ("v1", "v1beta1")
_SECONDS: Final = 10
"""As long as Kubernetes waits for a webhook that says nothing of it."""

_LEAST_CODE: Final = 400
_WITHOUT_EFFECTS: Final = ("None", "NoneOnDryRun")


@dataclass(frozen=True, slots=True)
class Webhook:
    """One entry of `webhooks`."""

    configuration: str
    name: str
    identity: str
    matcher: ResourceMatcher
    conditions: tuple[Condition, ...]
    client: Object
    versions: tuple[str, ...]
    seconds: int
    ignores_failure: bool
    side_effects: str
    is_reinvoked: bool
    effort: Effort = field(default_factory=Effort, compare=False)

    @classmethod
    def read(cls, configuration: str, index: int, raw: Object) -> "Webhook":
        """Read an entry."""
        return cls(
            configuration,
            str(raw.get("name")),
            f"{configuration}/{raw.get('name')}/{index}",
            ResourceMatcher.read(raw, "rules", is_open=False),
            read_conditions(raw.get("matchConditions"), has_params=False),
            cast("Object", raw.get("clientConfig") or {}),
            tuple(raw.get("admissionReviewVersions") or ()),
            int(raw.get("timeoutSeconds") or _SECONDS),
            raw.get("failurePolicy") == "Ignore",
            str(raw.get("sideEffects")),
            raw.get("reinvocationPolicy") == "IfNeeded",
        )


def read_webhooks(found: Sequence[Sequence[Object]]) -> tuple[Webhook, ...]:
    """Return the webhooks of all configurations, in the order in which they are called."""
    (configurations,) = found
    return tuple(
        Webhook.read(name_of(each), index, raw)
        for each in sorted(configurations, key=name_of)
        for index, raw in enumerate(cast("list[Object]", each.get("webhooks") or []))
    )


class _CallFailed(Exception):
    """A webhook gave no answer that can be used; its failure policy decides."""

    def __init__(self, webhook: Webhook, why: str) -> None:
        super().__init__(f"failed calling webhook {quoted(webhook.name)}: {why}")


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a webhook said."""

    allowed: bool
    result: Object
    patch: Any = None


class _Webhooks(Plugin):
    """What both kinds of webhooks have in common: which are called, and how."""

    handles: ClassVar[frozenset[Operation]] = EVERY_OPERATION
    resource: ClassVar[str]

    def __init__(self, authorizer: HubAuthorizer) -> None:
        self._authorizer = authorizer
        self._webhooks = Followed[tuple[Webhook, ...]]((self.resource,), read_webhooks)

    async def _matched(
        self, hub: HubState, webhook: Webhook, admission: Admission, *, is_unborn: bool
    ) -> Reviewed | None:
        """Return the request as a webhook wants to see it; None when it is not called."""
        served = await webhook.matcher.match(hub, admission)
        if served is None:
            return None
        seen = await reviewed(hub, admission, served, is_unborn=is_unborn)
        if webhook.conditions:
            values = values_of(self._authorizer, admission, seen)
            try:
                effort = webhook.effort
                if not await effort.run(
                    admission, lambda: conditions_hold(webhook.conditions, values, effort)
                ):
                    return None
                effort.finish()
            except ConditionsFailed as failed:
                if webhook.ignores_failure:
                    return None
                raise named_refusal(admission, str(failed)) from failed
        return seen

    async def _call(
        self, hub: HubState, webhook: Webhook, admission: Admission, seen: Reviewed
    ) -> _Answer:
        """Return what a webhook says of a request; _CallFailed when that cannot be used."""
        if admission.dry_run and webhook.side_effects not in _WITHOUT_EFFECTS:
            raise BadRequest(f"admission webhook {quoted(webhook.name)} does not support dry run")
        version = next((each for each in webhook.versions if each in _VERSIONS), _VERSIONS[0])
        uid = str(uuid.uuid4())
        review: Object = {
            "kind": "AdmissionReview",
            "apiVersion": f"{_GROUP}/{version}",
            "request": {"uid": uid, **seen.request, "object": seen.new, "oldObject": seen.old},
        }
        url = url_of(webhook.client)
        url += f"{'&' if '?' in url else '?'}timeout={webhook.seconds}s"
        config = {**webhook.client, "url": url} if webhook.client.get("url") else webhook.client
        if not webhook.client.get("url"):
            service = cast("Object", webhook.client.get("service") or {})
            path = f"{service.get('path') or '/'}?timeout={webhook.seconds}s"
            config = {**webhook.client, "service": {**service, "path": path}}
        try:
            answer = await hub.webhooks.call(
                f"admission webhook {webhook.name}",
                config,
                review,
                seconds=webhook.seconds,
                is_repeated=False,
            )
        except (ClusterspaceError, *UNREADABLE) as error:
            why = f"failed to call webhook: {_called_problem(url, error)}"
            raise _CallFailed(webhook, why) from error
        _require_known(webhook, answer)
        try:
            said = _read_answer(
                answer, uid, version, is_mutating=isinstance(self, MutatingWebhooks)
            )
        except _UndecodablePatch as error:
            raise _CallFailed(webhook, str(error)) from error
        except _Unusable as error:
            raise _CallFailed(webhook, f"received invalid webhook response: {error}") from error
        for key, value in cast("Object", said.get("auditAnnotations") or {}).items():
            admission.annotate(f"{webhook.name}/{key}", str(value))
        for warning in cast("list[Any]", said.get("warnings") or []):
            admission.warn(str(warning))
        return _Answer(
            bool(said.get("allowed")), cast("Object", said.get("status") or {}), said.get("patch")
        )


class MutatingWebhooks(_Webhooks):
    """Calls the webhooks of MutatingWebhookConfigurations."""

    name: ClassVar[str] = "MutatingAdmissionWebhook"
    resource: ClassVar[str] = "mutatingwebhookconfigurations"

    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        """Return the object as the webhooks want it."""
        webhooks = self._webhooks.current
        if webhooks is None:
            webhooks = await self._webhooks.read(hub)
        if not webhooks or concerns_no_webhook(admission):
            return admission.new
        again = admission.reinvocation
        memory = again.memory.setdefault(MutatingWebhooks, _Reinvoked())
        if again.is_again and memory.last is not None and memory.last != admission.new:
            memory.require_all()
        for index, webhook in enumerate(webhooks):
            seen = await self._matched(hub, webhook, admission, is_unborn=True)
            # One that was not called the first time is not called for the first time now.
            if seen is None or (again.is_again and webhook.identity not in memory.due):
                continue
            place = f"round_{int(again.is_again)}_index_{index}"
            changed = False
            try:
                answer = await self._call(hub, webhook, admission, seen)
                if not answer.allowed:
                    raise _rejection(webhook, answer.result)
                patched = await _patched(webhook, answer, admission, seen)
            except _CallFailed as failed:
                if not webhook.ignores_failure:
                    raise statuses.internal(str(failed)) from failed
                key = f"failed-open.mutation.webhook.admission.k8s.io/{place}"
                admission.annotate(key, webhook.name)
                patched = admission.new
            if patched is not admission.new and patched != admission.new:
                admission, changed = admission.about(patched), True
                memory.require_all()
                again.is_wanted = True
            noted = {
                "configuration": webhook.configuration,
                "webhook": webhook.name,
                "mutated": changed,
            }
            key = f"mutation.webhook.admission.k8s.io/{place}"
            admission.annotate(key, msgspec.json.encode(noted).decode())
            if webhook.is_reinvoked:
                memory.called.add(webhook.identity)
        memory.last = admission.new
        return admission.new


@dataclass(slots=True)
class _Reinvoked:
    """Which webhooks are called again, and what the last of them left."""

    called: set[str] = field(default_factory=set[str])
    due: set[str] = field(default_factory=set[str])
    last: Object | None = None

    def require_all(self) -> None:
        """Have all called again that want to be and have not seen the object as it is now."""
        self.due |= self.called
        self.called = set()


class ValidatingWebhooks(_Webhooks):
    """Calls the webhooks of ValidatingWebhookConfigurations."""

    name: ClassVar[str] = "ValidatingAdmissionWebhook"
    resource: ClassVar[str] = "validatingwebhookconfigurations"

    async def validate(self, hub: HubState, admission: Admission) -> None:
        """Have every webhook asked; the first refusal, in their order, is the answer."""
        webhooks = self._webhooks.current
        if webhooks is None:
            webhooks = await self._webhooks.read(hub)
        if not webhooks or concerns_no_webhook(admission):
            return
        matched: list[tuple[Webhook, Reviewed]] = []
        for webhook in webhooks:
            seen = await self._matched(hub, webhook, admission, is_unborn=False)
            if seen is not None:
                matched.append((webhook, seen))
        if not matched:
            return

        async def ask(webhook: Webhook, seen: Reviewed, index: int) -> ApiError | None:
            try:
                answer = await self._call(hub, webhook, admission, seen)
            except _CallFailed as failed:
                if not webhook.ignores_failure:
                    return statuses.internal(str(failed))
                key = f"failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}"
                admission.annotate(key, webhook.name)
                return None
            except ApiError as refused:
                return refused
            return None if answer.allowed else _rejection(webhook, answer.result)

        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(ask(webhook, seen, index), name=f"webhook {webhook.name}")
                for index, (webhook, seen) in enumerate(matched)
            ]
        for task in tasks:
            refused = task.result()
            if refused is not None:
                raise refused


class _Unusable(Exception):
    """An answer of a webhook that cannot be taken."""


class _UndecodablePatch(Exception):
    """A patch of a webhook that is none."""


def _require_known(webhook: Webhook, answer: Any) -> None:
    """Refuse a review in a version that does not exist, as Kubernetes' decoder does."""
    review = cast("Object", answer) if isinstance(answer, dict) else {}
    version, kind = str(review.get("apiVersion") or ""), str(review.get("kind") or "")
    if version and version not in [f"{_GROUP}/{each}" for each in _VERSIONS]:
        raise _CallFailed(
            webhook,
            f"failed to call webhook: no kind {quoted(kind)} is registered for version "
            f'{quoted(version)} in scheme "k8s.io/apiserver/pkg/util/webhook/client.go:71"',
        )


def _read_answer(answer: Any, uid: str, version: str, *, is_mutating: bool) -> Object:
    """Return the response in an AdmissionReview, its patch decoded."""
    review = cast("Object", answer) if isinstance(answer, dict) else {}
    response = review.get("response")
    if not isinstance(response, dict):
        raise _Unusable("webhook response was absent")
    said = cast("Object", response)
    patch, patch_type = said.get("patch"), said.get("patchType")
    if version == "v1":
        if said.get("uid") != uid:
            given = quoted(str(said.get("uid") or ""))
            raise _Unusable(f"expected response.uid={quoted(uid)}, got {given}")
        kind = f"{review.get('apiVersion') or ''}, Kind={review.get('kind') or ''}"
        wanted = f"{_GROUP}/v1, Kind=AdmissionReview"
        if kind != wanted:
            raise _Unusable(f"expected webhook response of {wanted}, got {kind}")
        if not is_mutating and (patch or patch_type is not None):
            name = "patch" if patch else "patchType"
            raise _Unusable(f"validating webhook may not return response.{name}")
        if patch and patch_type is None:
            raise _Unusable("webhook returned response.patch but not response.patchType")
        if not patch and patch_type is not None:
            raise _Unusable("webhook returned response.patchType but not response.patch")
        if patch_type == "":
            raise _Unusable('webhook returned invalid response.patchType of ""')
    elif patch:
        patch_type = "JSONPatch"
    status = said.get("status")
    shown: Object = {**said, "status": status if isinstance(status, dict) else {}, "patch": None}
    if not patch or not is_mutating:
        return shown
    if patch_type != "JSONPatch":
        raise _Unusable(f"unsupported patch type {quoted(str(patch_type))}")
    try:
        return {**shown, "patch": msgspec.json.decode(base64.b64decode(str(patch), validate=True))}
    except (binascii.Error, ValueError, *UNREADABLE) as error:
        why = "unexpected end of JSON input" if "truncated" in str(error) else str(error)
        raise _UndecodablePatch(f"received undecodable patch in webhook response: {why}") from error


async def _patched(
    webhook: Webhook, answer: _Answer, admission: Admission, seen: Reviewed
) -> Object:
    """Return the object as a webhook has patched it."""
    if not answer.patch:
        return admission.new
    if seen.new is None:
        raise statuses.internal(
            f"admission webhook {quoted(webhook.name)} attempted to modify the object, "
            "which is not supported for this operation"
        )
    before = seen.new

    def apply() -> Object:
        return apply_json_patch(before, parse_json_patch(answer.patch))

    try:
        patched = await admission.run(apply)
    except InapplicablePatch as error:
        raise statuses.internal(error.words) from error
    except ApiError as error:
        raise statuses.internal(error.message) from error
    return await with_changed(admission, seen, patched)


def _rejection(webhook: Webhook, result: Object) -> ApiError:
    """Return the refusal of a webhook, in its own words."""
    denied = f"admission webhook {quoted(webhook.name)} denied the request"
    code = result.get("code")
    message, reason = str(result.get("message") or ""), str(result.get("reason") or "")
    why = message or reason
    status = {
        **result,
        "code": code if isinstance(code, int) and code >= _LEAST_CODE else _LEAST_CODE,
        "message": f"{denied}: {why}" if why else f"{denied} without explanation",
    }
    return statuses.error_from(status, _LEAST_CODE)


def _called_problem(url: str, error: Exception) -> str:
    """Return why a call failed, in the words of Kubernetes where the cause is the same."""
    posted = f'Post "{url}"'
    match error:
        case ClusterTimeout():
            return f"{posted}: context deadline exceeded"
        case ClusterUnreachable(why="refused the connection"):
            address = urlsplit(url)
            place = f"{address.hostname}:{address.port or 443}"
            return f"{posted}: dial tcp {place}: connect: connection refused"
        case ClusterUnreachable():
            return f"{posted}: {error.why}"
        case ClusterError():
            return error.why
        case ApiError():
            return error.message
        case _:
            return str(error)
