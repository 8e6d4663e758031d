"""A request as policies and webhooks see it: the AdmissionRequest, and the objects it is about.

Both see the object in the version they are written for, which may be another than that of the
request, and the options of the request as the client gave them.
"""

from dataclasses import dataclass
from typing import Any, Final

from clusterspace.apiserver import forms
from clusterspace.apiserver.access.authorizer import HubAuthorizer, resource_attributes
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import AUTHENTICATED, User
from clusterspace.apiserver.options import DeleteOptions
from clusterspace.apiserver.state import Admission, HubState, Operation
from clusterspace.apiserver.store.interface import KeyValue, Revision
from clusterspace.apiserver.verbs.subresources import scale_of
from clusterspace.errors import BadRequest
from clusterspace.kube import statuses
from clusterspace.kube.cel.libraries.authorization import (
    Authorizer,
    Decision,
    Question,
    ResourceCheck,
)
from clusterspace.kube.objects import Object, find_at, metadata_of, with_value
from clusterspace.kube.resources import GroupVersionKind, ResourceInfo

_META: Final = "meta.k8s.io/v1"
_OPTIONS: Final = {
    Operation.CREATE: "CreateOptions",
    Operation.UPDATE: "UpdateOptions",
    Operation.DELETE: "DeleteOptions",
}
_UNBORN: Final = ("uid", "creationTimestamp")
"""Metadata that an object does not have yet when mutations are asked for."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A request in the version that somebody wants to see it in."""

    served: Served
    request: Object
    new: Object | None
    old: Object | None


async def reviewed(
    hub: HubState, admission: Admission, served: Served, *, is_unborn: bool = False
) -> Reviewed:
    """Return the request as one for this resource; `is_unborn` before the kind prepares it."""
    new: Object | None = admission.new
    if admission.operation is Operation.DELETE:
        new = None
    elif is_unborn and admission.is_create and not admission.subresource:
        kept = {k: v for k, v in metadata_of(admission.new).items() if k not in _UNBORN}
        new = {**admission.new, "metadata": kept}
    return Reviewed(
        served,
        request_of(admission, served),
        new and await _shown(new, admission, served),
        admission.old and await _shown(admission.old, admission, served),
    )


async def _shown(kube_object: Object, admission: Admission, served: Served) -> Object:
    if admission.subresource == "scale" and served.scale is not None:
        return scale_of(kube_object, served.scale)
    if admission.operation is Operation.CONNECT or served is admission.served:
        return kube_object
    return await in_version(kube_object, admission.served, served)


async def in_version(kube_object: Object, served: Served, other: Served) -> Object:
    """Return an object of one version in another in which the same objects are served."""
    kept, storage = await served.storable(kube_object)
    stored = KeyValue(
        other.key("", "converted"),
        forms.encode_stored(kept, storage.form),
        Revision(1),
        Revision(1),
    )
    (entry,) = await other.converted((stored,))
    converted = forms.decode_stored(entry, other.form)
    metadata = {k: v for k, v in metadata_of(converted).items() if k != "resourceVersion"}
    version = metadata_of(kube_object).get("resourceVersion")
    if version:
        metadata["resourceVersion"] = version
    return {**converted, "metadata": metadata}


async def with_changed(
    admission: Admission, seen: Reviewed, changed: Object, *, is_strict: bool = False
) -> Object:
    """Return the object of a request as somebody changed what they saw of it.

    It is read and given its defaults like what a client sends; which object it is stays. Fields
    that the kind does not know are dropped, or refused when it `is_strict`.
    """
    own, scale = admission.served, seen.served.scale
    if admission.subresource == "scale" and scale is not None:
        replicas = find_at(changed, "spec", "replicas") or 0
        return with_value(admission.new, replicas, *scale.spec_replicas)
    if seen.served is not own:
        changed = await in_version(changed, seen.served, own)
    given, before = metadata_of(changed), metadata_of(admission.new)
    if given.get("namespace") != before.get("namespace"):
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    kept = {name: before[name] for name in _UNBORN if name in before}
    completed = {**changed, "metadata": {**given, **kept}}
    try:
        reading = await admission.run(lambda: own.rules.read(completed))
    except BadRequest as error:
        # Who changed it is to blame, not the client.
        why = f"json: {error.message.rpartition(': json: ')[2]}"
        raise statuses.internal(why) from error
    if is_strict and reading.unknown_fields:
        unknown = ", ".join(f'unknown field "{each}"' for each in reading.unknown_fields)
        raise statuses.internal(f"strict decoding error: {unknown}")
    return await admission.run(lambda: own.rules.default(reading.kube_object))


def request_of(admission: Admission, served: Served) -> Object:
    """Return the AdmissionRequest, without its UID and its objects."""
    own, subresource, user = admission.served.info, admission.subresource, admission.user
    below = served.info.find_subresource(subresource) if subresource else None
    given: Object = {
        "kind": _kind((served.info if below is None else below).group_version_kind),
        "resource": _resource(served.info),
        "subResource": subresource,
        "requestKind": _kind(admission.kind),
        "requestResource": _resource(own),
        "requestSubResource": subresource,
        "name": admission.name,
        "namespace": admission.namespace,
        "operation": admission.operation.value,
        "userInfo": _user(user),
    }
    shown = {key: value for key, value in given.items() if value}
    return {**shown, "dryRun": admission.dry_run, "options": options_of(admission)}


def _kind(kind: GroupVersionKind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource(info: ResourceInfo) -> Object:
    return {"group": info.group, "version": info.version, "resource": info.plural}


def _user(user: User) -> Object:
    given: Object = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    return {key: value for key, value in given.items() if value}


def options_of(admission: Admission) -> Object | None:
    """Return CreateOptions, UpdateOptions or DeleteOptions; None for a connection."""
    kind, options = _OPTIONS.get(admission.operation), admission.options
    if kind is None:
        return None
    shown: Object = {"kind": kind, "apiVersion": _META}
    if options is None:
        return shown
    if options.dry_run:
        shown["dryRun"] = ["All"]
    if not isinstance(options, DeleteOptions):
        return shown | dict(options.given)
    if options.propagation:
        shown["propagationPolicy"] = options.propagation
    if options.grace_seconds is not None:
        shown["gracePeriodSeconds"] = options.grace_seconds
    preconditions = {"uid": options.uid, "resourceVersion": options.resource_version}
    given: Any = {key: value for key, value in preconditions.items() if value}
    return shown | ({"preconditions": given} if given else {})


# -- what expressions may ask of the authorizer ----------------------------------------------------


def authorizer_of(authorizer: HubAuthorizer, user: User) -> Authorizer:
    """Return who answers what the author of a request may do."""

    def decide(question: Question, verb: str) -> Decision:
        subject = user
        if question.account is not None:
            namespace, name = question.account
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
            account = f"system:serviceaccount:{namespace}:{name}"
            subject = User(account, (*groups, AUTHENTICATED))
        if question.path:
            path = "/" + question.path.lstrip("/")
            info = RequestInfo(method="", path=path, verb=verb.lower())
        else:
            info = resource_attributes(
                verb,
                question.group,
                question.resource,
                version="*",
                subresource=question.subresource,
                namespace=question.namespace,
                name=question.name,
            )
        said = authorizer.decide_now(subject, info)
        return Decision(said.allowed, said.reason)

    return Authorizer(decide)


def resource_check_of(checker: Authorizer, admission: Admission) -> ResourceCheck:
    """Return the question about the resource of the request."""
    info = admission.served.info
    question = Question(
        group=info.group,
        resource=info.plural,
        subresource=admission.subresource,
        namespace=admission.namespace if info.namespaced else "",
        name=admission.name,
    )
    return ResourceCheck(checker.decide, question)
