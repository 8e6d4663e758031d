"""Clients ask what somebody may do; the answer is never kept.

SubjectAccessReview        may they?
LocalSubjectAccessReview   may they, in this namespace?
SelfSubjectAccessReview    may I?
SelfSubjectRulesReview     what may I, in a namespace?
SelfSubjectReview          who am I?
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias

from clusterspace.apiserver.access.authorizer import HubAuthorizer
from clusterspace.apiserver.access.rbac import Rule
from clusterspace.apiserver.access.review_checks import (
    attribute_causes,
    local_causes,
    metadata_causes,
    subject_causes,
)
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.responses import value_response
from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.options import read_write_options
from clusterspace.apiserver.ownership import write_of
from clusterspace.apiserver.verbs.resource_request import ResourceRequest, place, read_incoming
from clusterspace.errors import BadRequest, Cause
from clusterspace.kube import statuses
from clusterspace.kube.managed_fields.update import track_update
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupKind

AUTHORIZATION: Final = "authorization.k8s.io"
AUTHENTICATION: Final = "authentication.k8s.io"

ReviewVerb: TypeAlias = Callable[[ResourceRequest], Awaitable[Response]]
VerbKey: TypeAlias = tuple[str, str]
"""`group/resource` and verb: how the route table finds a verb that is not everybody's."""


class Reviews:
    """Answers questions about access, from the same decisions that requests meet."""

    def __init__(self, authorizer: HubAuthorizer) -> None:
        self._authorizer = authorizer

    def verbs(self) -> Mapping[VerbKey, ReviewVerb]:
        """Return the verbs by what they answer."""
        return {
            (f"{AUTHORIZATION}/subjectaccessreviews", "create"): self.review_subject,
            (f"{AUTHORIZATION}/localsubjectaccessreviews", "create"): self.review_local_subject,
            (f"{AUTHORIZATION}/selfsubjectaccessreviews", "create"): self.review_self,
            (f"{AUTHORIZATION}/selfsubjectrulesreviews", "create"): self.review_rules,
            (f"{AUTHENTICATION}/selfsubjectreviews", "create"): review_identity,
        }

    async def review_subject(self, ask: ResourceRequest) -> Response:
        """Say whether somebody may do something."""
        review = await _read(ask)
        _refuse((*metadata_causes(review), *subject_causes(_spec(review))))
        return self._answer(ask, review, user_of(_spec(review)))

    async def review_local_subject(self, ask: ResourceRequest) -> Response:
        """Say whether somebody may do something in the namespace of the URL."""
        review = await _read(ask)
        found = metadata_causes(review, may_have_namespace=True)
        _refuse((*found, *local_causes(review)))
        return self._answer(ask, review, user_of(_spec(review)))

    async def review_self(self, ask: ResourceRequest) -> Response:
        """Say whether the one who asks may do something."""
        review = await _read(ask)
        _refuse((*metadata_causes(review), *attribute_causes(_spec(review))))
        return self._answer(ask, review, ask.context.user)

    def _answer(self, ask: ResourceRequest, review: Object, user: User) -> Response:
        decision = self._authorizer.decide_now(user, attributes_of(_spec(review)))
        status: Object = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        answer = {"metadata": review["metadata"], "spec": _spec(review), "status": status}
        return _respond(ask, {**_head(review), **answer})

    async def review_rules(self, ask: ResourceRequest) -> Response:
        """List what the one who asks may do in a namespace."""
        review = await _read(ask)
        namespace = _spec(review).get("namespace")
        if not namespace:
            raise BadRequest("no namespace on request")
        rules = self._authorizer.rules_of(ask.context.user, namespace)
        status = {
            "resourceRules": _rule_objects(rule for rule in rules if rule.resources),
            "nonResourceRules": _rule_objects(rule for rule in rules if rule.paths),
            "incomplete": False,
        }
        return _respond(ask, {**_head(review), "metadata": {}, "spec": {}, "status": status})


async def review_identity(ask: ResourceRequest) -> Response:
    """Say who is asking, as the hub sees it."""
    review = await _read(ask)
    metadata = {"creationTimestamp": ask.hub.timestamp()}
    user_info = user_object(ask.context.user)
    answer = {**_head(review), "metadata": metadata, "status": {"userInfo": user_info}}
    return _respond(ask, answer)


def attributes_of(spec: Object) -> RequestInfo:
    """Return the request a question is about."""
    resource = spec.get("resourceAttributes")
    if resource is None:
        path: Object = spec.get("nonResourceAttributes") or {}
        return RequestInfo(method="", path=path.get("path") or "", verb=path.get("verb") or "")
    return RequestInfo(
        method="",
        path="",
        verb=resource.get("verb") or "",
        is_resource=True,
        group=resource.get("group") or "",
        version=resource.get("version") or "",
        resource=resource.get("resource") or "",
        subresource=resource.get("subresource") or "",
        namespace=resource.get("namespace") or "",
        name=resource.get("name") or "",
    )


def user_of(spec: Object) -> User:
    """Return who a question is about."""
    extra: Mapping[str, list[str]] = spec.get("extra") or {}
    return User(
        spec.get("user") or "",
        tuple(spec.get("groups") or ()),
        spec.get("uid") or "",
        {key: tuple(values) for key, values in extra.items()},
    )


def user_object(user: User) -> Object:
    """Return a user as reviews write one."""
    shown = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    return {key: value for key, value in shown.items() if value}


async def _read(ask: ResourceRequest) -> Object:
    query, agent = ask.info.query, ask.context.header("user-agent")
    options = read_write_options(query, kind="CreateOptions", user_agent=agent)
    asked = await read_incoming(ask, options.field_validation, is_kept=False)
    incoming = place(ask, asked)
    said = {key: value for key, value in incoming.items() if key != "status"}
    write = write_of(ask.hub, ask.served, manager=options.field_manager)
    return track_update(None, said, write)


def _spec(review: Object) -> Object:
    return review.get("spec") or {}


def _head(review: Object) -> Object:
    return {"kind": review["kind"], "apiVersion": review["apiVersion"]}


def _rule_objects(rules: Iterable[Rule]) -> list[Object]:
    return [rule.as_object() for rule in rules]


def _refuse(found: tuple[Cause, ...]) -> None:
    if found:
        # Kubernetes names no kind here; clients that show the message show it like this.
        raise statuses.invalid(GroupKind(AUTHORIZATION, ""), "", found)


def _respond(ask: ResourceRequest, review: Object) -> Response:
    return value_response(ask.context, 201, review, ask.representation.media_type)
