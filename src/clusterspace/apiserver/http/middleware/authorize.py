"""User, verb, resource to yes or no."""

from dataclasses import dataclass
from typing import Protocol

from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import User
from clusterspace.errors import Forbidden
from clusterspace.kube import statuses
from clusterspace.kube.resources import GroupResource


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a user may, and why."""

    allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    """Decides. Anything it does not allow is refused."""

    async def decide(self, user: User, info: RequestInfo) -> Decision:
        """Return whether the user may do what the request asks for."""
        ...


class Authorize:
    """The step that refuses what its authorizer does not allow."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def __call__(self, context: RequestContext, rest: RequestHandler) -> Response | None:
        """Go on if allowed, else answer 403 with who may not do what, and where."""
        decision = await self._authorizer.decide(context.user, context.info)
        if not decision.allowed:
            raise refusal(context.user, context.info, decision.reason)
        return await rest(context)


def refusal(user: User, info: RequestInfo, reason: str = "") -> Forbidden:
    """Return the 403 that says who may not do what, and where, in Kubernetes' words."""
    who = f"User {statuses.quoted(user.name)} cannot {info.verb}"
    why = f": {reason}" if reason else ""
    if not info.is_resource:
        return statuses.forbidden_path(f"{who} path {statuses.quoted(info.path)}{why}")
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    where = "at the cluster scope"
    if info.namespace:
        where = f"in the namespace {statuses.quoted(info.namespace)}"
    what = f"resource {statuses.quoted(resource)} in API group {statuses.quoted(info.group)}"
    group_resource = GroupResource(info.group, info.resource)
    return statuses.forbidden(group_resource, info.name, f"{who} {what} {where}{why}")
