"""Roles and bindings by who holds them: the index that decisions are read from.

    role     ("", "view") -> its rules; ("team-a", "reader") -> its rules
    subject  ("team-a", "Group", "devs") -> the bindings in team-a that name the group devs

What a user is granted in a namespace is looked up once and remembered until any role changes. The
`RoleCache` keeps the index current from the store: a write that has returned is already in force.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final, NamedTuple

import msgspec
import structlog

from clusterspace.apiserver import forms
from clusterspace.apiserver.access.rbac import RBAC_GROUP, Rule, read_rules
from clusterspace.apiserver.http.guards import Decision
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.store.interface import Event, KeyValue, Store, Subscription
from clusterspace.errors import StoreClosed, StoreError
from clusterspace.kube.objects import Object, find_at

_log = structlog.get_logger(__name__)

USER: Final = "User"
GROUP: Final = "Group"
SERVICE_ACCOUNT: Final = "ServiceAccount"
_SUBJECT_KINDS: Final = frozenset({USER, GROUP, SERVICE_ACCOUNT})
_ACCOUNT_PREFIX: Final = "system:serviceaccount:"

_REMEMBERED: Final = 10_000
"""How many pairs of user and namespace are remembered before all are forgotten."""

_MOST_GRANTS: Final = 20_000
"""Rules that one user holds in one namespace, a hundred times what anybody needs: 8 ms a look."""


class NamespacedName(NamedTuple):
    """Which role or binding; cluster-wide ones have no namespace."""

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

    key: NamespacedName
    role: NamespacedName
    subjects: tuple[Subject, ...]

    def __str__(self) -> str:
        namespace, name = self.key
        role = f'{"Role" if self.role.namespace else "ClusterRole"} "{self.role.name}"'
        if namespace:
            return f'RoleBinding "{name}/{namespace}" of {role}'
        return f'ClusterRoleBinding "{name}" of {role}'


def read_binding(key: NamespacedName, binding: Object) -> Binding:
    """Read a RoleBinding or ClusterRoleBinding; subjects that mean nobody are left out."""
    listed: list[Object] = binding.get("subjects") or []
    subjects = (
        Subject(str(each.get("kind")), str(each.get("name")), str(each.get("namespace") or ""))
        for each in listed
    )
    known = tuple(subject for subject in subjects if subject.kind in _SUBJECT_KINDS)
    return Binding(key, read_role_reference(key.namespace, binding), known)


def read_role_reference(namespace: str, binding: Object) -> NamespacedName:
    """Return the role a binding in this namespace refers to."""
    is_local = find_at(binding, "roleRef", "kind") == "Role"
    name = str(find_at(binding, "roleRef", "name") or "")
    return NamespacedName(namespace if is_local else "", name)


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
class UserGrants:
    """Everything one user is granted in one namespace, or at the cluster scope."""

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
    """Every role and binding there is.

    Nothing here awaits, and decisions do not either: a change happens between two decisions, so
    none sees a binding that is half in the index. Every change forgets what was remembered of
    users; to find whom it concerns would cost more than to look again.
    """

    def __init__(self) -> None:
        self._roles: dict[NamespacedName, tuple[Rule, ...]] = {}
        self._bindings: dict[NamespacedName, Binding] = {}
        self._by_subject: dict[tuple[str, str, str], dict[NamespacedName, Subject]] = {}
        self._by_user: dict[tuple[str, tuple[str, ...], str], UserGrants] = {}

    def __len__(self) -> int:
        return len(self._bindings)

    def find_role(self, key: NamespacedName) -> tuple[Rule, ...] | None:
        """Return the rules of a role, or None when there is no such role."""
        return self._roles.get(key)

    def put_role(self, key: NamespacedName, rules: tuple[Rule, ...]) -> None:
        """Add a role, or replace it."""
        self._roles[key] = rules
        self._by_user.clear()

    def remove_role(self, key: NamespacedName) -> None:
        """Forget a role; its bindings grant nothing from now on."""
        self._roles.pop(key, None)
        self._by_user.clear()

    def put_binding(self, binding: Binding) -> None:
        """Add a binding, or replace it."""
        self.remove_binding(binding.key)
        self._bindings[binding.key] = binding
        for index_key, subject in _index_keys(binding):
            self._by_subject.setdefault(index_key, {}).setdefault(binding.key, subject)

    def remove_binding(self, key: NamespacedName) -> None:
        """Forget a binding."""
        self._by_user.clear()
        binding = self._bindings.pop(key, None)
        if binding is None:
            return
        for index_key, _ in _index_keys(binding):
            bound = self._by_subject.get(index_key, {})
            bound.pop(key, None)
            if not bound:
                self._by_subject.pop(index_key, None)

    def of_user(self, user: User, namespace: str) -> UserGrants:
        """Return the grants of a user in a namespace, cluster-wide ones first.

        There is a limit, for each request looks at all of it, and what is beyond grants nothing.
        Cluster-wide grants come first, so whoever writes bindings in one namespace can crowd out
        nothing but what is granted in that namespace.
        """
        key = (user.name, user.groups, namespace)
        known = self._by_user.get(key)
        if known is None:
            if len(self._by_user) >= _REMEMBERED:
                self._by_user.clear()
            grants = tuple(islice(self._collect(user, namespace), _MOST_GRANTS))
            known = self._by_user[key] = UserGrants(grants)
        return known

    def _collect(self, user: User, namespace: str) -> Iterator[Grant]:
        for scope in ("", namespace) if namespace else ("",):
            bound: dict[NamespacedName, Subject] = {}
            for kind, name in ((USER, user.name), *((GROUP, group) for group in user.groups)):
                for key, subject in self._by_subject.get((scope, kind, name), {}).items():
                    bound.setdefault(key, subject)
            for key, subject in sorted(bound.items()):
                binding = self._bindings[key]
                for rule in self._roles.get(binding.role, ()):
                    yield Grant(rule, binding, subject)


def _index_keys(binding: Binding) -> Iterable[tuple[tuple[str, str, str], Subject]]:
    scope = binding.key.namespace
    return [((scope, each.user_kind, each.user_name), each) for each in binding.subjects]


class _Follower:
    """A sink that carries what happens to one of the four resources into the grants."""

    def __init__(self, plural: str, grants: Grants, end: Callable[[StoreError], None]) -> None:
        self.prefix: Final = forms.collection_key(RBAC_GROUP, plural)
        self._end = end
        self._grants = grants
        self._has_roles = plural in ("roles", "clusterroles")
        self._is_namespaced = plural in ("roles", "rolebindings")

    def receive(self, events: tuple[Event, ...]) -> None:
        """Take what changed."""
        for event in events:
            if event.is_delete:
                self._remove(self._name_of(event.key))
            else:
                self.take(event.item)

    def end(self, reason: StoreError) -> None:
        """Learn that nothing more will come."""
        self._end(reason)

    def take(self, entry: KeyValue) -> None:
        """Take one object; one that cannot be read grants nothing."""
        name = self._name_of(entry.key)
        try:
            kube_object: Object = msgspec.json.decode(entry.value)
            if self._has_roles:
                self._grants.put_role(name, read_rules(kube_object.get("rules")))
            else:
                self._grants.put_binding(read_binding(name, kube_object))
        except (msgspec.DecodeError, AttributeError, TypeError) as error:
            # What was there before under this name is not in force any more either.
            self._remove(name)
            _log.error("stored role cannot be read", key=entry.key, reason=str(error))

    def _remove(self, name: NamespacedName) -> None:
        if self._has_roles:
            self._grants.remove_role(name)
        else:
            self._grants.remove_binding(name)

    def _name_of(self, key: str) -> NamespacedName:
        rest = key[len(self.prefix) :]
        namespace, _, name = rest.partition("/") if self._is_namespaced else ("", "", rest)
        return NamespacedName(namespace, name)


class RoleCache:
    """The grants as the store has them now. Call `load()` before the first request."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._subscriptions: list[Subscription] = []
        self._is_broken = asyncio.Event()
        self.grants = Grants()

    async def load(self) -> None:
        """Read every role and binding, and follow them from there on.

        What is read goes into an index of its own, and that takes the place of the old one when
        all four resources are in it: a decision in between goes by the old one as it was, and
        none sees bindings whose roles are still to be read. Nothing is lost between a read and
        its subscription, which begins after the revision that was read.
        """
        self.close()
        grants = Grants()
        for plural in ("roles", "clusterroles", "rolebindings", "clusterrolebindings"):
            follower = _Follower(plural, grants, self._end)
            page = await self._store.range(follower.prefix)
            for entry in page.items:
                follower.take(entry)
            subscription = self._store.subscribe(
                follower.prefix, after=page.revision, sink=follower
            )
            self._subscriptions.append(subscription)
        self.grants = grants

    def _end(self, reason: StoreError) -> None:
        # Called by the store, in the middle of its own work: the reading is for `run` to do.
        if not isinstance(reason, StoreClosed):
            _log.warning("roles are read again", reason=str(reason))
            self._is_broken.set()

    async def run(self) -> None:
        """Load again whenever the store has cut us off; for as long as the hub lives.

        Until that is done a right that was taken away still counts, so there is no pause before
        it, and the flag is taken down first: to be cut off during the load is not missed.
        """
        while True:
            await self._is_broken.wait()
            self._is_broken.clear()
            try:
                await self.load()
            except StoreError:
                self._is_broken.set()  # whoever runs us again tries again
                raise

    def close(self) -> None:
        """Stop following."""
        for subscription in self._subscriptions:
            subscription.close()
        self._subscriptions.clear()
