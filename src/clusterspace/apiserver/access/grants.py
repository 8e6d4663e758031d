"""Roles and bindings by who holds them: the index that decisions are read from.

    role     ("", "view") -> its rules; ("team-a", "reader") -> its rules
    subject  ("team-a", "Group", "devs") -> the bindings in team-a that name the group devs

What a user holds in a namespace is looked up once and remembered until any role changes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final, NamedTuple

from clusterspace.apiserver.access.rbac import Rule
from clusterspace.apiserver.http.middleware.authorize import Decision
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import User

USER: Final = "User"
GROUP: Final = "Group"
SERVICE_ACCOUNT: Final = "ServiceAccount"
_ACCOUNT_PREFIX: Final = "system:serviceaccount:"

_REMEMBERED: Final = 10_000
"""How many pairs of user and namespace are remembered before all are forgotten."""

_MOST_HELD: Final = 20_000
"""Rules that one user holds in one namespace, a hundred times what anybody needs: 8 ms a look."""


class Place(NamedTuple):
    """Where a role or binding is; cluster-wide ones have no namespace."""

    namespace: str
    name: str


class Subject(NamedTuple):
    """Who a binding is for; only service accounts have a namespace."""

    kind: str
    name: str
    namespace: str = ""

    @property
    def user_kind(self) -> str:
        """What a user must have to be meant: a name or a group."""
        return GROUP if self.kind == GROUP else USER

    @property
    def user_name(self) -> str:
        """The name or group a user must have."""
        if self.kind == SERVICE_ACCOUNT:
            return f"{_ACCOUNT_PREFIX}{self.namespace}:{self.name}"
        return self.name

    def __str__(self) -> str:
        shown = f"{self.name}/{self.namespace}" if self.kind == SERVICE_ACCOUNT else self.name
        return f'{self.kind} "{shown}"'


@dataclass(frozen=True, slots=True)
class Binding:
    """A RoleBinding or ClusterRoleBinding."""

    place: Place
    role: Place
    subjects: tuple[Subject, ...]

    def __str__(self) -> str:
        namespace, name = self.place
        if namespace:
            return f'RoleBinding "{name}/{namespace}" of {self._role_text}'
        return f'ClusterRoleBinding "{name}" of {self._role_text}'

    @property
    def _role_text(self) -> str:
        kind = "Role" if self.role.namespace else "ClusterRole"
        return f'{kind} "{self.role.name}"'


@dataclass(frozen=True)
class Grant:
    """One rule that somebody holds, and through which binding."""

    rule: Rule
    binding: Binding
    subject: Subject

    @cached_property
    def decision(self) -> Decision:
        """Yes, and why, in Kubernetes' words; made once, given often."""
        reason = f"RBAC: allowed by {self.binding} to {self.subject}"
        return Decision(allowed=True, reason=reason)


@dataclass(frozen=True)
class Holdings:
    """Everything one user holds in one namespace, or at the cluster scope."""

    grants: tuple[Grant, ...]

    @cached_property
    def _about_resources(self) -> tuple[Grant, ...]:
        return tuple(grant for grant in self.grants if grant.rule.resources)

    @cached_property
    def _about_paths(self) -> tuple[Grant, ...]:
        return tuple(grant for grant in self.grants if grant.rule.paths)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules alone."""
        return tuple(grant.rule for grant in self.grants)

    def find(self, info: RequestInfo, name: str) -> Grant | None:
        """Return a grant that allows the request, or None."""
        for grant in self._about_resources if info.is_resource else self._about_paths:
            if grant.rule.allows(info, name):
                return grant
        return None


class Grants:
    """Every role and binding there is. Changed between decisions only, so never seen half done."""

    def __init__(self) -> None:
        self._roles: dict[Place, tuple[Rule, ...]] = {}
        self._bindings: dict[Place, Binding] = {}
        self._by_subject: dict[tuple[str, str, str], dict[Place, Subject]] = {}
        self._held: dict[tuple[str, tuple[str, ...], str], Holdings] = {}

    def __len__(self) -> int:
        return len(self._bindings)

    def find_role(self, place: Place) -> tuple[Rule, ...] | None:
        """Return the rules of a role, or None when there is no such role."""
        return self._roles.get(place)

    def put_role(self, place: Place, rules: tuple[Rule, ...]) -> None:
        """Add a role, or replace it."""
        self._roles[place] = rules
        self._held.clear()

    def remove_role(self, place: Place) -> None:
        """Forget a role; its bindings grant nothing from now on."""
        self._roles.pop(place, None)
        self._held.clear()

    def put_binding(self, binding: Binding) -> None:
        """Add a binding, or replace it."""
        self.remove_binding(binding.place)
        self._bindings[binding.place] = binding
        for key, subject in _index_keys(binding):
            self._by_subject.setdefault(key, {}).setdefault(binding.place, subject)

    def remove_binding(self, place: Place) -> None:
        """Forget a binding."""
        self._held.clear()
        binding = self._bindings.pop(place, None)
        if binding is None:
            return
        for key, _ in _index_keys(binding):
            holders = self._by_subject.get(key, {})
            holders.pop(place, None)
            if not holders:
                self._by_subject.pop(key, None)

    def held_by(self, user: User, namespace: str) -> Holdings:
        """Return what a user holds in a namespace, cluster-wide grants first."""
        key = (user.name, user.groups, namespace)
        held = self._held.get(key)
        if held is None:
            if len(self._held) >= _REMEMBERED:
                self._held.clear()
            held = self._held[key] = Holdings(tuple(self._collect(user, namespace)))
        return held

    def _collect(self, user: User, namespace: str) -> Iterator[Grant]:
        """Yield what a user holds, up to a limit: each of their requests looks at all of it.

        What is beyond grants nothing. Cluster-wide grants come first, so whoever writes bindings
        in one namespace can crowd out nothing but what is granted in that namespace.
        """
        return islice(self._collect_all(user, namespace), _MOST_HELD)

    def _collect_all(self, user: User, namespace: str) -> Iterator[Grant]:
        for scope in ("", namespace) if namespace else ("",):
            for place, subject in sorted(self._bound(user, scope).items()):
                binding = self._bindings[place]
                for rule in self._roles.get(binding.role, ()):
                    yield Grant(rule, binding, subject)

    def _bound(self, user: User, scope: str) -> dict[Place, Subject]:
        bound: dict[Place, Subject] = {}
        for kind, name in ((USER, user.name), *((GROUP, group) for group in user.groups)):
            for place, subject in self._by_subject.get((scope, kind, name), {}).items():
                bound.setdefault(place, subject)
        return bound


def _index_keys(binding: Binding) -> Iterable[tuple[tuple[str, str, str], Subject]]:
    scope = binding.place.namespace
    return [((scope, each.user_kind, each.user_name), each) for each in binding.subjects]
