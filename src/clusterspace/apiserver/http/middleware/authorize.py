"""User, verb, resource to yes or no; and act-as headers, checked value by value and applied.

    Impersonate-User: jane            may the caller `impersonate` users/jane?
    Impersonate-Group: devs           … groups/devs? (may come several times)
    Impersonate-Uid: 4711             … uids/4711?
    Impersonate-Extra-Scopes: read    … userextras/scopes/read? (may come several times)

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
"""

from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import unquote_to_bytes

from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Headers, Response
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User
from clusterspace.errors import BadRequest, Forbidden
from clusterspace.kube import statuses
from clusterspace.kube.names import dns1123_label_problems, dns1123_subdomain_problems
from clusterspace.kube.resources import GroupResource

_FAMILY: Final = "impersonate"
_CONNECTION: Final = "connection"
_WATCHED: Final = (_FAMILY, _CONNECTION)
_USER: Final = "impersonate-user"
_GROUP: Final = "impersonate-group"
_UID: Final = "impersonate-uid"
_EXTRA: Final = "impersonate-extra-"
_ACCOUNT: Final = "system:serviceaccount:"
_AUTHENTICATION: Final = "authentication.k8s.io"


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


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user a request wants to act as, read from its Impersonate headers."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def checks(self) -> Iterator[RequestInfo]:
        """Yield what the caller must be allowed, one request per value."""
        account = read_account(self.user)
        if account is not None:
            yield _check("", "serviceaccounts", account[1], namespace=account[0])
        else:
            yield _check("", "users", self.user)
        for group in self.groups:
            yield _check("", "groups", group)
        for key, values in self.extra.items():
            for value in values:
                yield _check(_AUTHENTICATION, "userextras", value, subresource=key)
        if self.uid:
            yield _check(_AUTHENTICATION, "uids", self.uid)

    def become(self) -> User:
        """Return the user acted as, with the groups that come with being one."""
        groups, account = self.groups, read_account(self.user)
        if account is not None and not groups:
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[0]}")
        if self.user == ANONYMOUS.name:
            groups = groups if UNAUTHENTICATED in groups else (*groups, UNAUTHENTICATED)
        elif AUTHENTICATED not in groups and UNAUTHENTICATED not in groups:
            groups = (*groups, AUTHENTICATED)
        return User(self.user, groups, self.uid, self.extra)


def _check(
    group: str, resource: str, name: str, *, namespace: str = "", subresource: str = ""
) -> RequestInfo:
    return RequestInfo(
        method="",
        path="",
        verb="impersonate",
        is_resource=True,
        group=group,
        version="v1",
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


def read_account(user: str) -> tuple[str, str] | None:
    """Return namespace and name of the service account a user name stands for, or None."""
    namespace, _, name = user.removeprefix(_ACCOUNT).partition(":")
    if not user.startswith(_ACCOUNT) or ":" in name:
        return None
    if dns1123_label_problems(namespace) or dns1123_subdomain_problems(name):
        return None
    return namespace, name


def is_of_family(name: str) -> bool:
    """Whether a header could be taken for one of these, by us or by anybody behind us."""
    return name.startswith(_FAMILY)


def read_impersonation(headers: Headers) -> Impersonation | None:
    """Return the impersonation that the headers ask for, or None when they ask for none."""
    pairs = [pair for pair in headers if pair[0].startswith(_WATCHED)]
    if not pairs:
        return None  # almost every request
    if any(name == _CONNECTION and _FAMILY in value.lower() for name, value in pairs):
        # It would ask proxies to drop who is acted as, and to pass the rest on.
        raise BadRequest("impersonation headers cannot be connection options")
    pairs = [(name, value) for name, value in pairs if is_of_family(name)]
    if not pairs:
        return None
    for name, _ in pairs:
        if name not in (_USER, _GROUP, _UID) and not name.startswith(_EXTRA):
            raise BadRequest(f"the header {name!r} is not one that impersonation knows")
    user, uid = _only(headers, _USER), _only(headers, _UID)
    if not user:
        raise BadRequest("impersonation was requested without impersonating a user")
    extra: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        if name.startswith(_EXTRA):
            key = _read_extra_key(name.removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), value)
    return Impersonation(user, tuple(headers.get_all(_GROUP)), uid, extra)


def _only(headers: Headers, name: str) -> str:
    values = headers.get_all(name)
    if len(values) > 1:
        raise BadRequest(f"the header {name!r} must be given once")
    return values[0] if values else ""


def _read_extra_key(text: str) -> str:
    try:
        key = unquote_to_bytes(text).decode("utf-8").lower()
    except UnicodeDecodeError as error:
        raise BadRequest("the key of an Impersonate-Extra header is not UTF-8") from error
    if not key or not key.isprintable():
        raise BadRequest("the key of an Impersonate-Extra header is empty or does not print")
    return key


class Impersonate:
    """The step that makes a request somebody else's, if the caller may."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def __call__(self, context: RequestContext, rest: RequestHandler) -> Awaitable[Response | None]:
        """Check every value, become the user, forget the headers; then go on."""
        impersonation = read_impersonation(context.request.headers)
        return (
            rest(context) if impersonation is None else self._become(context, impersonation, rest)
        )

    async def _become(
        self, context: RequestContext, impersonation: Impersonation, rest: RequestHandler
    ) -> Response | None:
        request = context.request
        for info in impersonation.checks():
            decision = await self._authorizer.decide(context.user, info)
            if not decision.allowed:
                raise refusal(context.user, info, decision.reason)
        kept = [(name, value) for name, value in request.headers if not is_of_family(name)]
        request.headers = Headers(kept)
        context.user = impersonation.become()
        return await rest(context)
