"""Agents, administrators, limits, roles: the one decision, for requests and for questions."""

from typing import Final

from clusterspace.apiserver.access.agents import scope_of
from clusterspace.apiserver.access.parts import lendable, limit_of
from clusterspace.apiserver.access.rbac import Rule
from clusterspace.apiserver.access.snapshot import Snapshot
from clusterspace.apiserver.http.middleware.authorize import Decision, refusal
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import MASTERS, User
from clusterspace.errors import MalformedSelector
from clusterspace.kube.names import path_segment_problems
from clusterspace.kube.selectors import parse_field_selector

ALLOWED: Final = Decision(allowed=True)
DENIED: Final = Decision(allowed=False)

_SELECTING: Final = frozenset({"list", "watch"})
"""Where a field selector counts as a name; it does not for deletecollection, as in Kubernetes."""


class HubAuthorizer:
    """Decides from memory. What nothing allows is refused."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    async def decide(self, user: User, info: RequestInfo) -> Decision:
        """Return whether the user may do what the request asks for."""
        return self.decide_now(user, info)

    def decide_now(self, user: User, info: RequestInfo) -> Decision:
        """Decide without a chance for anything to change in between."""
        name = name_asked_for(info)
        # Agents first: nothing that somebody adds to an agent, not even a group, widens its scope.
        scope = scope_of(user)
        if scope is not None:
            return ALLOWED if scope.allows(info, name) else DENIED
        if MASTERS in user.groups:
            return ALLOWED
        limit = limit_of(user, info, name)
        if limit:
            return Decision(allowed=False, reason=limit)
        grant = self._snapshot.grants.held_by(user, info.namespace).find(info, name)
        return DENIED if grant is None else grant.decision

    def require(self, user: User, info: RequestInfo) -> None:
        """Raise the 403 that a request for this would get, unless it is allowed."""
        decision = self.decide_now(user, info)
        if not decision.allowed:
            raise refusal(user, info, decision.reason)

    def rules_of(self, user: User, namespace: str) -> tuple[Rule, ...]:
        """Return every rule the user holds in a namespace, or at the cluster scope."""
        scope = scope_of(user)
        if scope is not None:
            return scope.rules(namespace)
        return self._snapshot.grants.held_by(user, namespace).rules

    def lendable_rules_of(self, user: User, namespace: str) -> tuple[Rule, ...]:
        """Return the rules among those that the user may grant to others there."""
        return lendable(user, self.rules_of(user, namespace), namespace)


def name_asked_for(info: RequestInfo) -> str:
    """Return the one object a request can be about, by its URL or by its field selector.

    `?fieldSelector=metadata.name=web` on a collection is about `web` alone, so a rule that names
    it allows the request. The handler reads the same parameter and shows nothing else.

    A watch reads no name from its URL (the old form `/watch/…/NAME` has one), so none counts.
    """
    if info.is_watch and info.path:
        return _selected_name(info)
    if info.name or info.verb not in _SELECTING or not info.is_resource:
        return info.name
    return _selected_name(info)


def _selected_name(info: RequestInfo) -> str:
    text = info.query.get("fieldSelector")
    if not text:
        return ""
    try:
        selected = parse_field_selector(text).requires_exact("metadata.name") or ""
    except MalformedSelector:
        return ""
    return "" if path_segment_problems(selected) else selected
