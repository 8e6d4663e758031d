"""The grants, kept current from the store: a write that has returned is already in force."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
import structlog

from clusterspace.apiserver import keys
from clusterspace.apiserver.access.grants import (
    GROUP,
    SERVICE_ACCOUNT,
    USER,
    Binding,
    Grants,
    Place,
    Subject,
)
from clusterspace.apiserver.access.rbac import read_rules
from clusterspace.apiserver.store.interface import Store, Subscription
from clusterspace.apiserver.store.revisions import Event, KeyValue
from clusterspace.errors import StoreClosed, StoreError
from clusterspace.kube.objects import Object, find_at

_log = structlog.get_logger(__name__)

RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_KINDS: Final = frozenset({USER, GROUP, SERVICE_ACCOUNT})

Put: TypeAlias = Callable[[Grants, Place, Object], None]
Remove: TypeAlias = Callable[[Grants, Place], None]


@dataclass(frozen=True, slots=True)
class _Source:
    """One of the four resources, and what its objects mean to the grants."""

    plural: str
    namespaced: bool
    put: Put
    remove: Remove

    @property
    def prefix(self) -> str:
        return keys.collection_key(RBAC_GROUP, self.plural)

    def place_of(self, key: str) -> Place:
        rest = key[len(self.prefix) :]
        namespace, _, name = rest.partition("/") if self.namespaced else ("", "", rest)
        return Place(namespace, name)


def _put_role(grants: Grants, place: Place, role: Object) -> None:
    grants.put_role(place, read_rules(role.get("rules")))


def _put_binding(grants: Grants, place: Place, binding: Object) -> None:
    grants.put_binding(read_binding(place, binding))


def read_binding(place: Place, binding: Object) -> Binding:
    """Read a RoleBinding or ClusterRoleBinding; subjects that mean nobody are left out."""
    listed: list[Object] = binding.get("subjects") or []
    subjects = (
        Subject(str(each.get("kind")), str(each.get("name")), str(each.get("namespace") or ""))
        for each in listed
    )
    known = tuple(subject for subject in subjects if subject.kind in _KINDS)
    return Binding(place, read_role_reference(place.namespace, binding), known)


def read_role_reference(namespace: str, binding: Object) -> Place:
    """Return the role a binding in this namespace refers to."""
    is_local = find_at(binding, "roleRef", "kind") == "Role"
    name = str(find_at(binding, "roleRef", "name") or "")
    return Place(namespace if is_local else "", name)


_SOURCES: Final = (
    _Source("roles", True, _put_role, Grants.remove_role),
    _Source("clusterroles", False, _put_role, Grants.remove_role),
    _Source("rolebindings", True, _put_binding, Grants.remove_binding),
    _Source("clusterrolebindings", False, _put_binding, Grants.remove_binding),
)


class _Follower:
    """Carries the events of one resource into the grants."""

    def __init__(
        self, source: _Source, grants: Grants, ended: Callable[[StoreError], None]
    ) -> None:
        self._source = source
        self._grants = grants
        self._ended = ended

    def receive(self, events: tuple[Event, ...]) -> None:
        """Take what changed."""
        for event in events:
            if event.is_delete:
                self._source.remove(self._grants, self._source.place_of(event.key))
            else:
                self.take(event.item)

    def take(self, entry: KeyValue) -> None:
        """Take one object; one that cannot be read grants nothing."""
        place = self._source.place_of(entry.key)
        try:
            kube_object: Object = msgspec.json.decode(entry.value)
            self._source.put(self._grants, place, kube_object)
        except (msgspec.DecodeError, AttributeError, TypeError) as error:
            self._source.remove(self._grants, place)
            _log.error("stored role cannot be read", key=entry.key, reason=str(error))

    def end(self, reason: StoreError) -> None:
        """Learn that nothing more will come."""
        self._ended(reason)


class Snapshot:
    """The grants as the store has them now."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._subscriptions: list[Subscription] = []
        self._is_broken = asyncio.Event()
        self.grants = Grants()

    async def load(self) -> None:
        """Read every role and binding, and follow them from there on."""
        self.close()
        grants = Grants()
        for source in _SOURCES:
            await self._follow(source, grants)
        self.grants = grants

    async def _follow(self, source: _Source, grants: Grants) -> None:
        follower = _Follower(source, grants, self._end)
        page = await self._store.range(source.prefix)
        for entry in page.items:
            follower.take(entry)
        subscription = self._store.subscribe(source.prefix, after=page.revision, sink=follower)
        self._subscriptions.append(subscription)

    def _end(self, reason: StoreError) -> None:
        if not isinstance(reason, StoreClosed):
            _log.warning("roles are read again", reason=str(reason))
            self._is_broken.set()

    async def run(self) -> None:
        """Load again whenever the store has cut us off; for as long as the hub lives."""
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
