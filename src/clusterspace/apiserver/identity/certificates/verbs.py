"""Verbs of certificate requests: `approval` and `status`, and reading them with a token.

Approving writes conditions through `approval` and needs the right to `approve` on the signer;
signing writes the certificate through `status` and needs the right to `sign`. Neither subresource
can take back what was said, and neither can do the other's work.

A bootstrap token reads the requests it made, by name. Roles cannot say "its own", so Kubernetes'
role for bootstrappers covers all of them; and whose agents are about to join, under which names, is
nobody's business who was handed a token.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias, cast

from clusterspace.apiserver import forms
from clusterspace.apiserver.access.authorizer import name_asked_for, resource_attributes
from clusterspace.apiserver.builtin_resources import BuiltinRules
from clusterspace.apiserver.http.bodies import media_type_of
from clusterspace.apiserver.http.guards import Authorizer, refusal
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.identity.bootstrap_tokens import token_id_of
from clusterspace.apiserver.identity.following import secret_value
from clusterspace.apiserver.options import WriteOptions, read_write_options
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
from clusterspace.apiserver.verbs.write import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    change,
    patch_edit,
    read_patch,
    require_patch_type,
)
from clusterspace.apiserver.writing import Edit
from clusterspace.errors import Cause
from clusterspace.kube import causes, statuses
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, metadata_of, uid_of

_GROUP: Final = "certificates.k8s.io"
_SAID_BY_APPROVERS: Final = ("Approved", "Denied")
_KEPT: Final = ("Approved", "Denied", "Failed")

_Merge: TypeAlias = Callable[[ResourceRequest, Object, Object], Object]
"""The stored request and the desired one to what the subresource makes of them."""

_ReadEdit: TypeAlias = Callable[[ResourceRequest], Awaitable[tuple[Edit, WriteOptions]]]


class CertificateRequestVerbs:
    """The verbs of certificate requests that differ from everybody else's."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def get(self, request: ResourceRequest) -> Response:
        """Answer GET on a request; to a bootstrap token, what is not its own is not there."""
        if _is_bootstrap(request) and not await _is_own(request, request.info.name):
            raise request.not_found()
        return await get(request)

    async def list(self, request: ResourceRequest) -> Response:
        """Answer GET on the collection."""
        await _require_own(request)
        return await list_objects(request)

    async def watch(self, request: ResourceRequest) -> None:
        """Answer a watch of the collection."""
        await _require_own(request)
        await watch(request)

    async def update_approval(self, request: ResourceRequest) -> Response:
        """Answer PUT on `approval`."""
        return await self._write(request, "approve", _read_update, merge_approval)

    async def patch_approval(self, request: ResourceRequest) -> Response:
        """Answer PATCH on `approval`."""
        return await self._write(request, "approve", _read_patch, merge_approval)

    async def update_status(self, request: ResourceRequest) -> Response:
        """Answer PUT on `status`."""
        return await self._write(request, "sign", _read_update, merge_status)

    async def patch_status(self, request: ResourceRequest) -> Response:
        """Answer PATCH on `status`."""
        return await self._write(request, "sign", _read_patch, merge_status)

    async def _write(
        self, request: ResourceRequest, right: str, read: _ReadEdit, merge: _Merge
    ) -> Response:
        rules = _ApprovalRules(request.served.info.group_version_kind)
        merging = replace(request, served=replace(request.served, rules=rules))
        edit, options = await read(merging)
        judged = await self._require(request, right)

        def merged(old: Object) -> Object:
            # Another request may have taken the name since, and its signer is another matter.
            if uid_of(old) != judged:
                raise statuses.conflict(request.served.info.group_resource, request.info.name)
            return merge(merging, old, edit(old))

        return await answer_changed(request, await change(merging, merged, options))

    async def _require(self, request: ResourceRequest, right: str) -> str:
        """Refuse whoever may not approve, or sign, for the signer of this request.

        Returns the UID of the request this was asked about, for the answer holds for no other.
        """
        entry = await request.hub.store.get(request.key)
        if entry is None:
            raise request.not_found()
        stored = forms.decode_stored(entry, request.served.form)
        signer = str(find_at(stored, "spec", "signerName") or "")
        domain = signer.partition("/")[0]
        for name in (signer, f"{domain}/*"):
            asked = resource_attributes(right, _GROUP, "signers", version="*", name=name)
            if (await self._authorizer.decide(request.context.user, asked)).allowed:
                return uid_of(stored)
        quoted = statuses.quoted(signer)
        why = f"user not permitted to {right} requests with signerName {quoted}"
        raise statuses.forbidden(request.served.info.group_resource, request.info.name, why)


class _ApprovalRules(BuiltinRules):
    """The kind's rules for a write whose merge has decided what changes."""

    def prepare_update(self, new: Object, old: Object, subresource: str) -> Object:
        """Keep the request itself: these subresources change what is said about it."""
        return {**new, "spec": old["spec"]}


def _is_bootstrap(request: ResourceRequest) -> bool:
    return bool(token_id_of(request.context.user.name))


async def _is_own(request: ResourceRequest, name: str) -> bool:
    """Whether the caller made the request of this name."""
    entry = await request.hub.store.get(request.served.key("", name))
    if entry is None:
        return False
    stored = forms.decode_stored(entry, request.served.form)
    return find_at(stored, "spec", "username") == request.context.user.name


async def _require_own(request: ResourceRequest) -> None:
    """Refuse a bootstrap token any collection but that of one request it made."""
    if not _is_bootstrap(request):
        return
    name = name_asked_for(request.info)
    if not name or not await _is_own(request, name):
        why = "a bootstrap token reads the requests it made, by name"
        raise refusal(request.context.user, request.info, why)


async def _read_update(request: ResourceRequest) -> tuple[Edit, WriteOptions]:
    query, agent = request.info.query, request.context.header("user-agent")
    options = read_write_options(query, kind="UpdateOptions", user_agent=agent)
    incoming = place(request, await read_incoming(request, options.field_validation))
    require_name(request, incoming)
    return lambda _old: incoming, options


async def _read_patch(request: ResourceRequest) -> tuple[Edit, WriteOptions]:
    media_type = media_type_of(request.context.header("content-type"))
    require_patch_type(media_type, request)
    if media_type == APPLY_PATCH:
        raise statuses.unsupported_media_type((JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH))
    query, agent = request.info.query, request.context.header("user-agent")
    options = read_write_options(query, kind="PatchOptions", user_agent=agent)
    raw = await request.read_raw_body()
    edit = await request.context.run(lambda: patch_edit(read_patch(raw).value, media_type, request))

    def normalized(old: Object) -> Object:
        checked = require_kind(edit(old), request.served)
        require_name(request, checked)
        return request.served.rules.read(checked).kube_object

    return normalized, options


def merge_approval(request: ResourceRequest, old: Object, desired: Object) -> Object:
    """Take over conditions and metadata, and nothing else."""
    found = [*_condition_causes(old, desired)]
    if all(_says(desired, kind) for kind in _SAID_BY_APPROVERS):
        why = "Approved and Denied conditions are mutually exclusive"
        found.append(causes.invalid("status.conditions", "Denied", why))
    refuse(request, old, tuple(found))
    conditions = _timed(_conditions(desired), _conditions(old), request.hub.timestamp())
    return _with_status(old, desired, conditions, {})


def merge_status(request: ResourceRequest, old: Object, desired: Object) -> Object:
    """Take over what signers say (the certificate, or that there will be none) and metadata.

    What approvers said stays as it is, where the signer has it in its list of conditions.
    """
    certificate, issued = (
        str(find_at(each, "status", "certificate") or "") for each in (desired, old)
    )
    field, found = "status.certificate", list[Cause]()
    pem = secret_value({"data": {"certificate": certificate}}, "certificate")
    if certificate and b"-----BEGIN CERTIFICATE-----" not in pem:
        why = "must contain at least one CERTIFICATE PEM block"
        found.append(causes.invalid(field, "<certificate data>", why))
    if issued and certificate != issued:
        why = "updates may not modify existing certificate content"
        found.append(causes.forbidden(field, why))
    found += _condition_causes(old, desired)
    for kind in _SAID_BY_APPROVERS:
        if _says(desired, kind) and not _says(old, kind):
            why = f'updates may not add a condition of type "{kind}"'
            found.append(causes.forbidden("status.conditions", why))
    refuse(request, old, tuple(found))
    approvals = {each.get("type"): each for each in _conditions(old) if _is_approval(each)}
    said = [approvals.get(each.get("type"), each) for each in _conditions(desired)]
    added = {"certificate": certificate} if certificate else {}
    conditions = _timed(said, _conditions(old), request.hub.timestamp())
    return _with_status(old, desired, conditions, added)


def _with_status(old: Object, desired: Object, conditions: list[Object], added: Object) -> Object:
    status = {**cast("Object", old.get("status") or {}), **added}
    if conditions:
        status["conditions"] = conditions
    metadata = metadata_of(desired)
    # A client that left the owners out did not mean to forget them.
    if "managedFields" not in metadata and "managedFields" in metadata_of(old):
        metadata = {**metadata, "managedFields": metadata_of(old)["managedFields"]}
    return {**old, "metadata": metadata, "status": status}


def _conditions(request: Object) -> list[Object]:
    return cast("list[Object]", find_at(request, "status", "conditions") or [])


def _is_approval(condition: Object) -> bool:
    return condition.get("type") in _SAID_BY_APPROVERS


def _timed(conditions: list[Object], existing: list[Object], now: str) -> list[Object]:
    """Fill in times that were left out; a condition that says what it said before keeps its own."""
    since = {
        (each.get("type"), each.get("status")): each.get("lastTransitionTime") for each in existing
    }
    timed: list[Object] = []
    for each in conditions:
        transition = since.get((each.get("type"), each.get("status"))) or now
        times = {"lastUpdateTime": now, "lastTransitionTime": transition}
        timed.append({**each, **{key: time for key, time in times.items() if not each.get(key)}})
    return timed


def _condition_causes(old: Object, desired: Object) -> Iterator[Cause]:
    """Refuse a decision that is taken back, or that is neither yes nor absent."""
    for kind in _KEPT:
        if _says(old, kind) and not _says(desired, kind):
            why = f'updates may not remove a condition of type "{kind}"'
            yield causes.forbidden("status.conditions", why)
    for index, condition in enumerate(_conditions(desired)):
        status = condition.get("status")
        if condition.get("type") in _KEPT and status != "True":
            yield causes.not_supported(f"status.conditions[{index}].status", status, ("True",))


def _says(request: Object, kind: str) -> bool:
    return find_condition(_conditions(request), kind) is not None
