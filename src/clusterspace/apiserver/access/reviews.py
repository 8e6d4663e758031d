"""Clients ask what somebody may do; the answer is never kept.

SubjectAccessReview        may they?
LocalSubjectAccessReview   may they, in this namespace?
SelfSubjectAccessReview    may I?
SelfSubjectRulesReview     what may I, in a namespace?
SelfSubjectReview          who am I?
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from clusterspace.apiserver.access.authorizer import HubAuthorizer, resource_attributes
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.responses import value_response
from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.options import read_write_options
from clusterspace.apiserver.verbs.resource_request import ResourceRequest, place, read_incoming
from clusterspace.apiserver.writing import write_of
from clusterspace.errors import BadRequest, Cause
from clusterspace.kube import causes, statuses
from clusterspace.kube.managed_fields.managers import track_update
from clusterspace.kube.objects import Object, find_at, metadata_of
from clusterspace.kube.resources import GroupKind

AUTHORIZATION: Final = "authorization.k8s.io"
AUTHENTICATION: Final = "authentication.k8s.io"
_RESOURCE: Final = "spec.resourceAttributes"
_PATH: Final = "spec.nonResourceAttributes"

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

    async def review_subject(self, request: ResourceRequest) -> Response:
        """Say whether somebody may do something."""
        review = await _read_review(request)
        _refuse((*metadata_causes(review), *subject_causes(_spec(review))))
        return self._answer(request, review, user_of(_spec(review)))

    async def review_local_subject(self, request: ResourceRequest) -> Response:
        """Say whether somebody may do something in the namespace of the URL."""
        review = await _read_review(request)
        found = metadata_causes(review, may_have_namespace=True)
        _refuse((*found, *local_causes(review)))
        return self._answer(request, review, user_of(_spec(review)))

    async def review_self(self, request: ResourceRequest) -> Response:
        """Say whether the one who asks may do something."""
        review = await _read_review(request)
        _refuse((*metadata_causes(review), *attribute_causes(_spec(review))))
        return self._answer(request, review, request.context.user)

    def _answer(self, request: ResourceRequest, review: Object, user: User) -> Response:
        decision = self._authorizer.decide_now(user, attributes_of(_spec(review)))
        status: Object = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        answer = {"metadata": review["metadata"], "spec": _spec(review), "status": status}
        return _respond(request, {**_head(review), **answer})

    async def review_rules(self, request: ResourceRequest) -> Response:
        """List what the one who asks may do in a namespace."""
        review = await _read_review(request)
        namespace = _spec(review).get("namespace")
        if not namespace:
            raise BadRequest("no namespace on request")
        rules = self._authorizer.rules_of(request.context.user, namespace)
        status = {
            "resourceRules": [rule.as_object() for rule in rules if rule.resources],
            "nonResourceRules": [rule.as_object() for rule in rules if rule.paths],
            "incomplete": False,
        }
        return _respond(request, {**_head(review), "metadata": {}, "spec": {}, "status": status})


async def review_identity(request: ResourceRequest) -> Response:
    """Say who is asking, as the hub sees it."""
    review = await _read_review(request)
    metadata = {"creationTimestamp": request.hub.timestamp()}
    user_info = user_object(request.context.user)
    answer = {**_head(review), "metadata": metadata, "status": {"userInfo": user_info}}
    return _respond(request, answer)


# -- what is wrong with a review, in Kubernetes' words -----------------------------------------


def subject_causes(spec: Object) -> Iterator[Cause]:
    """Check a question about somebody else."""
    yield from attribute_causes(spec)
    if not spec.get("user") and not spec.get("groups"):
        yield causes.invalid("spec.user", "", "at least one of user or group must be specified")


def attribute_causes(spec: Object) -> Iterator[Cause]:
    """Check that the question is about a resource or a path, and not about both."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        why = "cannot be specified in combination with resourceAttributes"
        yield causes.invalid(_PATH, _shown(path), why)
    if resource is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield causes.invalid(_RESOURCE, None, why)
    for name in ("fieldSelector", "labelSelector"):
        selector = find_at(spec, "resourceAttributes", name)
        if selector is None:
            continue
        field = f"{_RESOURCE}.{name}"
        raw, requirements = selector.get("rawSelector"), selector.get("requirements")
        if raw and requirements:
            why = "may not specified at the same time as requirements"
            yield causes.invalid(f"{field}.rawSelector", raw, why)
        if not raw and not requirements:
            why = f"when {field} is specified, requirements or rawSelector is required"
            yield causes.required(f"{field}.requirements", why)


def local_causes(review: Object) -> Iterator[Cause]:
    """Check a question about one namespace: it is asked where it is about."""
    spec: Object = review.get("spec") or {}
    yield from subject_causes(spec)
    namespace = find_at(spec, "resourceAttributes", "namespace")
    path = spec.get("nonResourceAttributes")
    is_elsewhere = namespace != metadata_of(review).get("namespace")
    if spec.get("resourceAttributes") is not None and is_elsewhere:
        where = f"{_RESOURCE}.namespace"
        yield causes.invalid(where, namespace or "", "must match metadata.namespace")
    if path is not None:
        yield causes.invalid(_PATH, _shown(path), "disallowed on this kind of request")


def metadata_causes(review: Object, *, may_have_namespace: bool = False) -> Iterator[Cause]:
    """Check that nobody tries to give a question a name: it is not kept."""
    ignored = {"managedFields", "creationTimestamp"}
    if may_have_namespace:
        ignored.add("namespace")
    given = {key: value for key, value in metadata_of(review).items() if value}
    if given.keys() - ignored:
        yield causes.invalid("metadata", given, "must be empty")


def _shown(path_attributes: Any) -> Object:
    """Return the attributes of a path as Kubernetes quotes them, under its own field names."""
    return {
        "Path": path_attributes.get("path") or "",
        "Verb": path_attributes.get("verb") or "",
    }


# -- what a review is about, and its answer ----------------------------------------------------


def attributes_of(spec: Object) -> RequestInfo:
    """Return the request a question is about."""
    resource = spec.get("resourceAttributes")
    if resource is None:
        path: Object = spec.get("nonResourceAttributes") or {}
        return RequestInfo(method="", path=path.get("path") or "", verb=path.get("verb") or "")
    return resource_attributes(
        resource.get("verb") or "",
        resource.get("group") or "",
        resource.get("resource") or "",
        version=resource.get("version") or "",
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


async def _read_review(request: ResourceRequest) -> Object:
    query, agent = request.info.query, request.context.header("user-agent")
    options = read_write_options(query, kind="CreateOptions", user_agent=agent)
    incoming = place(request, await read_incoming(request, options.field_validation, is_kept=False))
    said = {key: value for key, value in incoming.items() if key != "status"}
    write = write_of(request.hub, request.served, manager=options.field_manager)
    return track_update(None, said, write)


def _spec(review: Object) -> Object:
    return review.get("spec") or {}


def _head(review: Object) -> Object:
    return {"kind": review["kind"], "apiVersion": review["apiVersion"]}


def _refuse(found: tuple[Cause, ...]) -> None:
    if found:
        # Kubernetes names no kind here; clients that show the message show it like this.
        raise statuses.invalid(GroupKind(AUTHORIZATION, ""), "", found)


def _respond(request: ResourceRequest, review: Object) -> Response:
    return value_response(request.context, 201, review, request.representation.media_type)
