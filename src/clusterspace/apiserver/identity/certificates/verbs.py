"""The doors of certificate requests: approval and status; and reading them with a token.

Approving writes conditions through `approval` and needs the right to `approve` on the signer;
signing writes the certificate through `status` and needs the right to `sign`. Neither door can
take back what was said, and neither can do the other's work.

A bootstrap token reads the requests it made, by name. Roles cannot say "its own", so Kubernetes'
role for bootstrappers covers all of them; and whose agents are about to join, under which names, is
nobody's business who was handed a token.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias, cast

from clusterspace.apiserver import forms
from clusterspace.apiserver.access.authorizer import name_asked_for
from clusterspace.apiserver.builtin_resources import BuiltinRules
from clusterspace.apiserver.http.bodies import media_type_of
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.middleware.authorize import Authorizer, refusal
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.identity.bootstrap_tokens import token_id_of
from clusterspace.apiserver.identity.reading import secret_value
from clusterspace.apiserver.options import WriteOptions, read_write_options
from clusterspace.apiserver.verbs.patch import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    patch_edit,
    require_patch_type,
)
from clusterspace.apiserver.verbs.read import get, list_objects
from clusterspace.apiserver.verbs.resource_request import (
    ResourceRequest,
    answer_changed,
    place,
    read_incoming,
    refuse,
    require_kind,
    require_name,
)
from clusterspace.apiserver.verbs.watch import watch
from clusterspace.apiserver.verbs.write import change
from clusterspace.apiserver.writing import Edit
from clusterspace.errors import Cause
from clusterspace.kube import causes, statuses
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, metadata_of, uid_of

_GROUP: Final = "certificates.k8s.io"
_SAID_BY_APPROVERS: Final = ("Approved", "Denied")
_KEPT: Final = ("Approved", "Denied", "Failed")

_Merge: TypeAlias = Callable[[ResourceRequest, Object, Object], Object]
"""The stored request and the wanted one to what this door makes of them."""

_ReadEdit: TypeAlias = Callable[[ResourceRequest], Awaitable[tuple[Edit, WriteOptions]]]


class CertificateRequestVerbs:
    """The verbs of certificate requests that differ from everybody else's."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def get(self, ask: ResourceRequest) -> Response:
        """Answer GET on a request; to a bootstrap token, what is not its own is not there."""
        if _is_bootstrap(ask) and not await _is_own(ask, ask.info.name):
            raise ask.not_found()
        return await get(ask)

    async def list(self, ask: ResourceRequest) -> Response:
        """Answer GET on the collection."""
        await _require_own(ask)
        return await list_objects(ask)

    async def watch(self, ask: ResourceRequest) -> None:
        """Answer a watch of the collection."""
        await _require_own(ask)
        await watch(ask)

    async def update_approval(self, ask: ResourceRequest) -> Response:
        """Answer PUT on `approval`."""
        return await self._write(ask, "approve", _read_update, merge_approval)

    async def patch_approval(self, ask: ResourceRequest) -> Response:
        """Answer PATCH on `approval`."""
        return await self._write(ask, "approve", _read_patch, merge_approval)

    async def update_status(self, ask: ResourceRequest) -> Response:
        """Answer PUT on `status`."""
        return await self._write(ask, "sign", _read_update, merge_status)

    async def patch_status(self, ask: ResourceRequest) -> Response:
        """Answer PATCH on `status`."""
        return await self._write(ask, "sign", _read_patch, merge_status)

    async def _write(
        self, ask: ResourceRequest, right: str, read: _ReadEdit, merge: _Merge
    ) -> Response:
        door = replace(ask, served=replace(ask.served, rules=_door_rules(ask)))
        edit, options = await read(door)
        judged = await self._require(ask, right)

        def merged(old: Object) -> Object:
            # Another request may have taken the name since, and its signer is another matter.
            if uid_of(old) != judged:
                raise statuses.conflict(ask.served.info.group_resource, ask.info.name)
            return merge(door, old, edit(old))

        return await answer_changed(ask, await change(door, merged, options))

    async def _require(self, ask: ResourceRequest, right: str) -> str:
        """Refuse whoever may not approve, or sign, for the signer of this request.

        Returns the UID of the request this was asked about, for the answer holds for no other.
        """
        entry = await ask.hub.store.get(ask.key)
        if entry is None:
            raise ask.not_found()
        held = forms.decode_stored(entry, ask.served.form)
        signer = str(find_at(held, "spec", "signerName") or "")
        domain = signer.partition("/")[0]
        for name in (signer, f"{domain}/*"):
            asked = _signer_request(right, name)
            if (await self._authorizer.decide(ask.context.user, asked)).allowed:
                return uid_of(held)
        quoted = statuses.quoted(signer)
        why = f"user not permitted to {right} requests with signerName {quoted}"
        raise statuses.forbidden(ask.served.info.group_resource, ask.info.name, why)


def _signer_request(right: str, signer: str) -> RequestInfo:
    return RequestInfo(
        method="",
        path="",
        verb=right,
        is_resource=True,
        group=_GROUP,
        version="*",
        resource="signers",
        name=signer,
    )


class _DoorRules(BuiltinRules):
    """The kind's rules for a write whose merge has decided what changes."""

    def prepare_update(self, new: Object, old: Object, subresource: str) -> Object:
        """Keep the request itself: these doors change what is said about it."""
        return {**new, "spec": old["spec"]}


def _door_rules(ask: ResourceRequest) -> BuiltinRules:
    return _DoorRules(ask.served.info.group_version_kind)


def _is_bootstrap(ask: ResourceRequest) -> bool:
    return bool(token_id_of(ask.context.user.name))


async def _is_own(ask: ResourceRequest, name: str) -> bool:
    """Whether the caller made the request of this name."""
    entry = await ask.hub.store.get(ask.served.key("", name))
    if entry is None:
        return False
    request = forms.decode_stored(entry, ask.served.form)
    return find_at(request, "spec", "username") == ask.context.user.name


async def _require_own(ask: ResourceRequest) -> None:
    """Refuse a bootstrap token any collection but that of one request it made."""
    if not _is_bootstrap(ask):
        return
    name = name_asked_for(ask.info)
    if not name or not await _is_own(ask, name):
        why = "a bootstrap token reads the requests it made, by name"
        raise refusal(ask.context.user, ask.info, why)


async def _read_update(ask: ResourceRequest) -> tuple[Edit, WriteOptions]:
    query, agent = ask.info.query, ask.context.header("user-agent")
    options = read_write_options(query, kind="UpdateOptions", user_agent=agent)
    incoming = place(ask, await read_incoming(ask, options.field_validation))
    require_name(ask, incoming)
    return lambda _old: incoming, options


async def _read_patch(ask: ResourceRequest) -> tuple[Edit, WriteOptions]:
    media_type = media_type_of(ask.context.header("content-type"))
    require_patch_type(media_type, ask)
    if media_type == APPLY_PATCH:
        raise statuses.unsupported_media_type((JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH))
    query, agent = ask.info.query, ask.context.header("user-agent")
    options = read_write_options(query, kind="PatchOptions", user_agent=agent)
    raw = await ask.read_raw_body()
    edit = await ask.context.run(lambda: patch_edit(raw, media_type, ask))

    def normalized(old: Object) -> Object:
        checked = require_kind(edit(old), ask.served)
        require_name(ask, checked)
        return ask.served.rules.read(checked).kube_object

    return normalized, options


def merge_approval(ask: ResourceRequest, old: Object, wanted: Object) -> Object:
    """Take over what approvers say, and nothing else."""
    said = [each for each in _conditions(wanted) if each.get("type") in _SAID_BY_APPROVERS]
    refuse(ask, old, (*_condition_causes(old, wanted), *_contradiction(said)))
    others = [each for each in _conditions(old) if each.get("type") not in _SAID_BY_APPROVERS]
    return _with_status(old, wanted, [*others, *_timed(said, ask.hub.timestamp())], {})


def merge_status(ask: ResourceRequest, old: Object, wanted: Object) -> Object:
    """Take over what signers say: the certificate, or that there will be none."""
    certificate, held = _certificate(wanted), _certificate(old)
    found = (*_certificate_causes(certificate, held), *_condition_causes(old, wanted))
    refuse(ask, old, (*found, *_added(old, wanted)))
    said = [each for each in _conditions(wanted) if each.get("type") not in _SAID_BY_APPROVERS]
    kept = [each for each in _conditions(old) if each.get("type") in _SAID_BY_APPROVERS]
    issued = {"certificate": certificate} if certificate else {}
    return _with_status(old, wanted, [*kept, *_timed(said, ask.hub.timestamp())], issued)


def _with_status(old: Object, wanted: Object, conditions: list[Object], issued: Object) -> Object:
    status = {**cast("Object", old.get("status") or {}), **issued}
    if conditions:
        status["conditions"] = conditions
    version = metadata_of(wanted).get("resourceVersion")
    metadata = {**metadata_of(old), "resourceVersion": version}
    return {**old, "metadata": metadata, "status": status}


def _conditions(request: Object) -> list[Object]:
    return cast("list[Object]", find_at(request, "status", "conditions") or [])


def _certificate(request: Object) -> str:
    return str(find_at(request, "status", "certificate") or "")


def _timed(conditions: list[Object], now: str) -> list[Object]:
    times = {"lastUpdateTime": now, "lastTransitionTime": now}
    return [
        {**each, **{key: time for key, time in times.items() if not each.get(key)}}
        for each in conditions
    ]


def _condition_causes(old: Object, wanted: Object) -> Iterator[Cause]:
    """Refuse a verdict that is taken back, or that is neither yes nor absent."""
    for kind in _KEPT:
        if _says(old, kind) and not _says(wanted, kind):
            why = f'updates may not remove a condition of type "{kind}"'
            yield causes.forbidden("status.conditions", why)
    for index, condition in enumerate(_conditions(wanted)):
        status = condition.get("status")
        if condition.get("type") in _KEPT and status != "True":
            yield causes.not_supported(f"status.conditions[{index}].status", status, ("True",))


def _added(old: Object, wanted: Object) -> Iterator[Cause]:
    """Refuse a verdict of approvers that comes through the signers' door."""
    for kind in _SAID_BY_APPROVERS:
        if _says(wanted, kind) and not _says(old, kind):
            why = f'updates may not add a condition of type "{kind}"'
            yield causes.forbidden("status.conditions", why)


def _says(request: Object, kind: str) -> bool:
    return find_condition(_conditions(request), kind) is not None


def _contradiction(said: list[Object]) -> tuple[Cause, ...]:
    if not all(find_condition(said, kind) for kind in _SAID_BY_APPROVERS):
        return ()
    why = "Approved and Denied conditions are mutually exclusive"
    return (causes.invalid("status.conditions", "Denied", why),)


def _certificate_causes(certificate: str, held: str) -> tuple[Cause, ...]:
    place_of, found = "status.certificate", list[Cause]()
    pem = secret_value({"data": {"certificate": certificate}}, "certificate")
    if certificate and b"-----BEGIN CERTIFICATE-----" not in pem:
        why = "must contain at least one CERTIFICATE PEM block"
        found.append(causes.invalid(place_of, "<certificate data>", why))
    if held and certificate != held:
        why = "updates may not modify existing certificate content"
        found.append(causes.forbidden(place_of, why))
    return tuple(found)
