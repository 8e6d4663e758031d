"""TokenRequest: a token of a service account, for an audience, for a while."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from clusterspace.apiserver.builtin_resources import BuiltinRules
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.responses import value_response
from clusterspace.apiserver.identity.logins import API_AUDIENCE
from clusterspace.apiserver.identity.reading import find_object
from clusterspace.apiserver.identity.service_account_tokens import (
    Grant,
    Reference,
    ServiceAccountTokens,
)
from clusterspace.apiserver.options import read_write_options
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.verbs.resource_request import ResourceRequest
from clusterspace.errors import BadRequest, Cause
from clusterspace.kube import causes, statuses
from clusterspace.kube.managed_fields.update import Write, track_update
from clusterspace.kube.objects import Object, find_at, metadata_of, name_of, uid_of
from clusterspace.kube.resources import GroupKind, GroupResource, GroupVersionKind
from clusterspace.kube.timestamps import format_time

KIND: Final = GroupVersionKind("authentication.k8s.io", "v1", "TokenRequest")

DEFAULT_SECONDS: Final = 3600
LEAST_SECONDS: Final = 600
MOST_SECONDS: Final = 365 * 24 * 3600
"""What is asked for beyond this is shortened to it, as a kube-apiserver with a maximum does."""

_RULES: Final = BuiltinRules(KIND)
_BINDABLE: Final = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}

Bound: TypeAlias = Mapping[str, Reference]
"""`pod`, `secret` or `node` to the object a token is bound to."""


class TokenRequestVerb:
    """POST on `serviceaccounts/NAME/token`."""

    def __init__(self, tokens: ServiceAccountTokens) -> None:
        self._tokens = tokens

    async def __call__(self, ask: ResourceRequest) -> Response:
        """Answer with the request, filled in, and the token in its status."""
        options = read_write_options(
            ask.info.query, kind="CreateOptions", user_agent=ask.context.header("user-agent")
        )
        request = _default(await _read_request(ask))
        account = await find_object(
            ask.hub, "", "serviceaccounts", ask.info.namespace, ask.info.name
        )
        if account is None:
            raise ask.not_found()
        _refuse(request, account)
        bound = await find_binding(ask.hub, request, account)
        owned = _with_identity(ask, request, account, options.field_manager)
        # Nothing is stored, so a dry run is no different; kube-apiserver answers it with a token.
        granted = self._granted(ask, owned, account, bound)
        return value_response(ask.context, 201, granted, ask.representation.media_type)

    def _granted(
        self, ask: ResourceRequest, request: Object, account: Object, bound: Bound
    ) -> Object:
        spec = cast("Object", request["spec"])
        audiences = tuple(cast("list[str]", spec.get("audiences") or [API_AUDIENCE]))
        seconds = min(int(spec["expirationSeconds"]), MOST_SECONDS)
        reference = Reference(name_of(account), uid_of(account))
        grant = Grant(ask.info.namespace, reference, audiences, seconds, bound)
        token = self._tokens.issue(grant)
        expires = format_time(ask.hub.clock.now() + seconds)
        return {
            **request,
            "spec": {**spec, "audiences": list(audiences), "expirationSeconds": seconds},
            "status": {"token": token, "expirationTimestamp": expires},
        }


async def _read_request(ask: ResourceRequest) -> Object:
    body: Any = (await ask.read_small_body(ask.served.info.kind)).value
    if not isinstance(body, dict):
        raise BadRequest("the object provided is unrecognized (must be of type TokenRequest)")
    said = cast("Object", body)
    kind, version = said.get("kind") or KIND.kind, said.get("apiVersion") or KIND.api_version
    if (kind, version) != (KIND.kind, KIND.api_version):
        short = str(version).rpartition("/")[2]
        raise BadRequest(
            f'{kind} in version "{short}" cannot be handled as a TokenRequest: '
            f"converting ({short}.{kind}) to (authentication.TokenRequest): unknown conversion"
        )
    namespace = find_at(said, "metadata", "namespace")
    if namespace and namespace != ask.info.namespace:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return _RULES.read({**said, "kind": KIND.kind, "apiVersion": KIND.api_version}).kube_object


def _default(request: Object) -> Object:
    spec = cast("Object", request["spec"])
    given = spec.get("expirationSeconds")
    seconds = DEFAULT_SECONDS if given is None else given
    return {**request, "spec": {**spec, "expirationSeconds": seconds}}


def request_causes(request: Object) -> tuple[Cause, ...]:
    """Return every reason to refuse what a request asks for."""
    place, seconds = "spec.expirationSeconds", int(request["spec"]["expirationSeconds"])
    if seconds < LEAST_SECONDS:
        return (causes.invalid(place, seconds, "may not specify a duration less than 10 minutes"),)
    if seconds > 1 << 32:
        why = "may not specify a duration larger than 2^32 seconds"
        return (causes.invalid(place, seconds, why),)
    return ()


def _refuse(request: Object, account: Object) -> None:
    found = request_causes(request)
    if found:
        raise statuses.invalid(KIND.group_kind, name_of(request), found)
    name = name_of(request)
    if name and name != name_of(account):
        why = "must match the service account name if specified"
        mismatch = causes.invalid("metadata.name", name, why)
        raise statuses.invalid(KIND.group_kind, name_of(account), (mismatch,))


async def find_binding(hub: HubState, request: Object, account: Object) -> Bound:
    """Return what the token is to be bound to; refuse what is not there or not bindable."""
    reference = cast("Object | None", find_at(request, "spec", "boundObjectRef"))
    if reference is None:
        return {}
    kind, name = str(reference.get("kind") or ""), str(reference.get("name") or "")
    plural = _BINDABLE.get(kind)
    if plural is None:
        group, _, version = str(reference.get("apiVersion") or "").rpartition("/")
        raise BadRequest(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    namespace = str(metadata_of(account)["namespace"])
    found = await find_object(hub, "", plural, namespace, name)
    if found is None:
        raise statuses.not_found(GroupResource("", plural), name)
    wanted = reference.get("uid")
    if wanted and wanted != uid_of(found):
        why = (
            f"the UID in the bound object reference ({wanted}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise statuses.conflict(GroupKind("", kind), name, why)
    bound = {kind.lower(): Reference(name, uid_of(found))}
    return bound | await _node_of(hub, found, account) if kind == "Pod" else bound


async def _node_of(hub: HubState, pod: Object, account: Object) -> dict[str, Reference]:
    """Return the node a pod is on; refuse the pod of another service account."""
    if find_at(pod, "spec", "serviceAccountName") != name_of(account):
        raise BadRequest(
            f'cannot bind token for serviceaccount "{name_of(account)}" '
            "to pod running with different serviceaccount name."
        )
    name = find_at(pod, "spec", "nodeName")
    node = await find_object(hub, "", "nodes", "", str(name)) if name else None
    return {} if node is None else {"node": Reference(name_of(node), uid_of(node))}


def _with_identity(ask: ResourceRequest, request: Object, account: Object, manager: str) -> Object:
    write = Write(
        manager=manager,
        api_version=KIND.api_version,
        now=ask.hub.timestamp(),
        schema=_RULES.schema,
        subresource="token",
        blank=_RULES.blank,
    )
    identity = {
        "name": name_of(account),
        "namespace": ask.info.namespace,
        "uid": uid_of(account),
        "creationTimestamp": ask.hub.timestamp(),
    }
    named = {**request, "metadata": {**metadata_of(request), **identity}}
    return track_update(None, named, write)
