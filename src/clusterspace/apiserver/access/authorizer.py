"""May this user do that? The one decision, for requests and for reviews.

Agents, administrators, limits, roles: asked in this order, and the first that knows decides.
"""

from dataclasses import dataclass
from typing import Final

from clusterspace.apiserver.access.agents import ScopeOf, scope_of
from clusterspace.apiserver.access.components import lendable, limit_of
from clusterspace.apiserver.access.grants import RoleCache
from clusterspace.apiserver.access.rbac import Rule
from clusterspace.apiserver.http.guards import Decision, refusal
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import MASTERS, User
from clusterspace.apiserver.store.interface import Store
from clusterspace.errors import MalformedSelector
from clusterspace.kube.names import path_segment_problems
from clusterspace.kube.selectors import parse_field_selector

ALLOWED: Final = Decision(allowed=True)
DENIED: Final = Decision(allowed=False)

_SELECTING: Final = frozenset({"list", "watch"})
"""Where a field selector counts as a name; it does not for deletecollection, as in Kubernetes."""


class HubAuthorizer:
    """Decides from memory. What nothing allows is refused."""

    def __init__(self, role_cache: RoleCache, scope_of: ScopeOf = scope_of) -> None:
        self._role_cache = role_cache
        self.scope_of = scope_of
        """Who is an agent, and what it reaches."""

    async def decide(self, user: User, info: RequestInfo) -> Decision:
        """Return whether the user may do what the request asks for."""
        return self.decide_now(user, info)

    def decide_now(self, user: User, info: RequestInfo) -> Decision:
        """Decide, without awaiting: no grant can change between this and the caller's next step."""
        name = name_asked_for(info)
        # Agents first: nothing that somebody adds to an agent, not even a group, widens its scope.
        scope = self.scope_of(user)
        if scope is not None:
            return ALLOWED if scope.allows(info, name) else DENIED
        if MASTERS in user.groups:
            return ALLOWED
        # Limits before roles: whatever roles anybody adds, a component stays within its own.
        limit = limit_of(user, info, name)
        if limit:
            return Decision(allowed=False, reason=limit)
        grant = self._role_cache.grants.of_user(user, info.namespace).find(info, name)
        return DENIED if grant is None else grant.decision

    # A decision goes by the role cache, which has every write that has returned (while the store
    # delivers; see RoleCache.run). Whoever decides and then awaits goes by rights that may have
    # ended since: that is a moment for a write, and open streams are decided about again.

    def require(self, user: User, info: RequestInfo) -> None:
        """Raise the 403 that a request for this would get, unless it is allowed."""
        decision = self.decide_now(user, info)
        if not decision.allowed:
            raise refusal(user, info, decision.reason)

    def rules_of(self, user: User, namespace: str) -> tuple[Rule, ...]:
        """Return every rule the user holds in a namespace, or at the cluster scope."""
        scope = self.scope_of(user)
        if scope is not None:
            return scope.rules(namespace)
        return self._role_cache.grants.of_user(user, namespace).rules

    def lendable_rules_of(self, user: User, namespace: str) -> tuple[Rule, ...]:
        """Return the rules among those that the user may grant to others there."""
        scope = self.scope_of(user)
        if scope is not None:
            return scope.lendable(namespace)
        return lendable(user, self.rules_of(user, namespace), namespace)


@dataclass(frozen=True, slots=True)
class Access:
    """The authorizer of a hub and its cache of roles; load that before any request."""

    role_cache: RoleCache
    authorizer: HubAuthorizer


def build_access(store: Store, scope_of: ScopeOf = scope_of) -> Access:
    """Build it for the hub that lives on this store."""
    role_cache = RoleCache(store)
    return Access(role_cache, HubAuthorizer(role_cache, scope_of))


def resource_attributes(
    verb: str,
    group: str,
    resource: str,
    *,
    version: str = "",
    subresource: str = "",
    namespace: str = "",
    name: str = "",
) -> RequestInfo:
    """Return the request somebody would make for this: what to ask about a right without a URL."""
    return RequestInfo(
        method="",
        path="",
        verb=verb,
        is_resource=True,
        group=group,
        version=version,
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


def name_asked_for(info: RequestInfo) -> str:
    """Return the one object a request can be about, by its URL or by its field selector.

    `?fieldSelector=metadata.name=web` on a collection is about `web` alone, so a rule that names
    it allows the request. The handler reads the same parameter and shows nothing else.

    A watch reads no name from its URL (the old form `/watch/…/NAME` has one), so none counts.
    """
    is_collection = info.is_resource and not info.name and info.verb in _SELECTING
    if not is_collection and not (info.is_watch and info.path):
        return info.name
    text = info.query.get("fieldSelector")
    if not text:
        return ""
    try:
        selected = parse_field_selector(text).requires_exact("metadata.name") or ""
    except MalformedSelector:
        return ""
    return "" if path_segment_problems(selected) else selected
