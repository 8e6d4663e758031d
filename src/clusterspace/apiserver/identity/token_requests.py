"""TokenRequest: a token of a service account, for an audience, for a while."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from clusterspace.apiserver.builtin_resources import BuiltinRules
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.responses import value_response
from clusterspace.apiserver.identity.bearer_tokens import API_AUDIENCE
from clusterspace.apiserver.identity.following import find_object
from clusterspace.apiserver.identity.service_account_tokens import (
    Reference,
    ServiceAccountTokens,
    TokenSpec,
)
from clusterspace.apiserver.options import read_write_options
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.verbs.resource_request import ResourceRequest
from clusterspace.errors import BadRequest, Cause
from clusterspace.kube import causes, statuses
from clusterspace.kube.managed_fields.managers import Write, track_update
from clusterspace.kube.objects import Object, find_at, metadata_of, name_of, uid_of
from clusterspace.kube.resources import GroupKind, GroupResource, GroupVersionKind
from clusterspace.kube.times import format_time

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

    async def __call__(self, request: ResourceRequest) -> Response:
        """Answer with the request, filled in, and the token in its status."""
        hub, namespace, now = request.hub, request.info.namespace, request.hub.timestamp()
        options = read_write_options(
            request.info.query,
            kind="CreateOptions",
            user_agent=request.context.header("user-agent"),
        )
        asked = await _read_request(request)
        account = await find_object(hub, "", "serviceaccounts", namespace, request.info.name)
        if account is None:
            raise request.not_found()
        name, found = name_of(asked), request_causes(asked)
        if found:
            raise statuses.invalid(KIND.group_kind, name, found)
        if name and name != name_of(account):
            why = "must match the service account name if specified"
            mismatch = causes.invalid("metadata.name", name, why)
            raise statuses.invalid(KIND.group_kind, name_of(account), (mismatch,))
        bound = await find_binding(hub, asked, account)
        write = Write(
            manager=options.field_manager,
            api_version=KIND.api_version,
            now=now,
            schema=_RULES.schema,
            subresource="token",
            blank=_RULES.blank,
        )
        own = {
            "name": name_of(account),
            "namespace": namespace,
            "uid": uid_of(account),
            "creationTimestamp": now,
        }
        named = {**asked, "metadata": {**metadata_of(asked), **own}}
        # Nothing is stored, so a dry run is no different; kube-apiserver answers it with a token.
        spec = cast("Object", asked["spec"])
        audiences = tuple(cast("list[str]", spec.get("audiences") or [API_AUDIENCE]))
        seconds = min(int(spec["expirationSeconds"]), MOST_SECONDS)
        reference = Reference(name_of(account), uid_of(account))
        token = self._tokens.issue(TokenSpec(namespace, reference, audiences, seconds, bound))
        granted = {
            **track_update(None, named, write),
            "spec": {**spec, "audiences": list(audiences), "expirationSeconds": seconds},
            "status": {
                "token": token,
                "expirationTimestamp": format_time(hub.clock.now() + seconds),
            },
        }
        return value_response(request.context, 201, granted, request.representation.media_type)


async def _read_request(request: ResourceRequest) -> Object:
    """Return the TokenRequest in the body, with the time it leaves to us; BadRequest otherwise."""
    body: Any = (await request.read_small_body(request.served.info.kind)).value
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
    if namespace and namespace != request.info.namespace:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    named = {**said, "kind": KIND.kind, "apiVersion": KIND.api_version}
    asked = _RULES.read(named).kube_object
    spec = cast("Object", asked["spec"])
    if spec.get("expirationSeconds") is None:
        spec = {**spec, "expirationSeconds": DEFAULT_SECONDS}
    return {**asked, "spec": spec}


def request_causes(request: Object) -> tuple[Cause, ...]:
    """Return every reason to refuse what a request asks for."""
    field, seconds = "spec.expirationSeconds", int(request["spec"]["expirationSeconds"])
    if seconds < LEAST_SECONDS:
        return (causes.invalid(field, seconds, "may not specify a duration less than 10 minutes"),)
    if seconds > 1 << 32:
        why = "may not specify a duration larger than 2^32 seconds"
        return (causes.invalid(field, seconds, why),)
    return ()


async def find_binding(hub: HubState, request: Object, account: Object) -> Bound:
    """Return the objects the token is bound to; refuse one that is not there or not bindable."""
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
    uid = reference.get("uid")
    if uid and uid != uid_of(found):
        why = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise statuses.conflict(GroupKind("", kind), name, why)
    bound = {kind.lower(): Reference(name, uid_of(found))}
    if kind == "Pod":
        if find_at(found, "spec", "serviceAccountName") != name_of(account):
            raise BadRequest(
                f'cannot bind token for serviceaccount "{name_of(account)}" '
                "to pod running with different serviceaccount name."
            )
        # The end of the node it runs on is the token's end too.
        node_name = find_at(found, "spec", "nodeName")
        node = await find_object(hub, "", "nodes", "", str(node_name)) if node_name else None
        if node is not None:
            bound["node"] = Reference(name_of(node), uid_of(node))
    return bound
