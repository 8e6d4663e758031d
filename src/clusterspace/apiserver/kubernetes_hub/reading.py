"""The hub's state for rules that run beside a kube-apiserver: everything is read from its API.

Rules look at what is stored and at what its author may do. Here a read is a request, consistent as
a quorum read is, and a right is a SubjectAccessReview, so that rights count which no role gives:
those of other authorizers of the API server.
"""

from collections.abc import Callable
from random import SystemRandom
from typing import Final, NoReturn
from uuid import uuid4

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver import forms
from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.catalog import Catalog, Served
from clusterspace.apiserver.custom_resources import served_resources
from clusterspace.apiserver.feeds import Feeds
from clusterspace.apiserver.http.guards import Decision
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.state import HubState, Plugin
from clusterspace.apiserver.store.interface import (
    FIRST_REVISION,
    Guard,
    KeyValue,
    Page,
    Revision,
    Sink,
    Subscription,
    Watch,
)
from clusterspace.builtins.definitions import read_definition
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.webhooks import Webhooks
from clusterspace.controllers.informers import Informer
from clusterspace.errors import MalformedSchema
from clusterspace.kube.objects import Object, find_at, name_of, namespace_of, resource_version_of
from clusterspace.kube.resources import GroupVersionResource

_log = structlog.get_logger(__name__)

DEFINITIONS: Final = ResourcePath(
    GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
)
_REVIEWS: Final = ResourcePath(
    GroupVersionResource("authorization.k8s.io", "v1", "subjectaccessreviews")
)
_CORE: Final = "core"


class _Still:
    """A subscription that never delivers: whoever reads here reads anew each time."""

    revision = FIRST_REVISION

    def close(self) -> None:
        """Do nothing."""


class ApiStore:
    """What an API server has stored, read through its API and never written.

    It has the shape of a Store for the rules, which know no other, and only as much of it as they
    use: `get` and `range` of objects as they are now.
    """

    current_revision = FIRST_REVISION
    oldest_revision = FIRST_REVISION
    is_shared = True
    is_reachable = True
    refuses_writes = "what is stored here is an API server's"

    def __init__(self, hub: ClusterClient, catalog: Catalog) -> None:
        self._hub = hub
        self._catalog = catalog

    async def get(self, key: str, *, at: Revision | None = None) -> KeyValue | None:
        """Return one object as it is now, or None."""
        del at  # nobody here asks for the past
        served, namespace, name = self._read_key(key)
        resource = served.info.group_version_resource
        found = await self._hub.find(ResourcePath(resource, namespace, name))
        return None if found is None else _entry(key, found)

    async def range(
        self,
        prefix: str,
        *,
        start_after: str | None = None,
        limit: int | None = None,
        at: Revision | None = None,
    ) -> Page:
        """Return all objects of a collection."""
        del start_after, limit, at
        served, namespace, _ = self._read_key(prefix)
        place = ResourcePath(served.info.group_version_resource, namespace)
        listed = await self._hub.list_objects(place)
        items = [_entry(served.key(namespace_of(e), name_of(e)), e) for e in listed]
        return Page(tuple(items), FIRST_REVISION, 0)

    def subscribe(self, prefix: str, *, after: Revision, sink: Sink) -> Subscription:
        """Return a subscription that delivers nothing."""
        del prefix, after, sink
        return _Still()

    def _read_key(self, key: str) -> tuple[Served, str, str]:
        _, _, group, plural, *rest = key.split("/")
        served = self._catalog.get_storage("" if group == _CORE else group, plural)
        if served.info.namespaced and len(rest) > 1:
            return served, rest[0], rest[1]
        return served, "", rest[0]

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        expected: Revision | None = None,
        guard: Guard | None = None,
    ) -> KeyValue:
        """Refuse: rules write nothing."""
        self._refuse(key, value, expected, guard)

    async def delete(self, key: str, *, expected: Revision, guard: Guard | None = None) -> KeyValue:
        """Refuse: rules write nothing."""
        self._refuse(key, expected, guard)

    async def is_stale(self, key: str) -> bool:
        """Return False: how it is kept is the API server's business."""
        return not key

    async def count(self, prefix: str) -> int:
        """Return how many objects a collection has."""
        return len((await self.range(prefix)).items)

    def watch(self, prefix: str, *, after: Revision) -> Watch:
        """Refuse: rules look at the moment."""
        self._refuse(prefix, after)

    async def compact(self, revision: Revision) -> None:
        """Refuse: the past is the API server's."""
        self._refuse(revision)

    async def sync(self) -> Revision:
        """Return at once: every read here is consistent by itself."""
        return FIRST_REVISION

    async def close(self) -> None:
        """Do nothing: the connection is somebody else's."""

    def _refuse(self, *_: object) -> NoReturn:
        raise NotImplementedError(self.refuses_writes)


def _entry(key: str, kube_object: Object) -> KeyValue:
    version = resource_version_of(kube_object)
    revision = Revision(int(version) if version.isdecimal() else FIRST_REVISION)
    return KeyValue(key, forms.encode(kube_object), revision, revision)


class ReviewedRights:
    """Decides by asking the API server."""

    def __init__(self, hub: ClusterClient) -> None:
        self._hub = hub

    async def decide(self, user: User, info: RequestInfo) -> Decision:
        """Return whether the API server would let the user do this."""
        attributes = {
            "verb": info.verb,
            "group": info.group,
            "version": info.version,
            "resource": info.resource,
            "subresource": info.subresource,
            "namespace": info.namespace,
            "name": info.name,
        }
        spec: Object = {
            "user": user.name,
            "groups": list(user.groups),
            "uid": user.uid,
            "extra": {key: list(values) for key, values in user.extra.items()},
            "resourceAttributes": {key: value for key, value in attributes.items() if value},
        }
        review = {
            "apiVersion": _REVIEWS.resource.api_version,
            "kind": "SubjectAccessReview",
            "spec": {key: value for key, value in spec.items() if value},
        }
        answered = await self._hub.create(_REVIEWS, review)
        return Decision(allowed=find_at(answered, "status", "allowed") is True)


class ServedKinds:
    """The catalog of an API server: built-in kinds, and those that it has definitions of."""

    def __init__(self, hub: ClusterClient, webhooks: Webhooks) -> None:
        self.catalog = Catalog(builtin_resources(()))
        self._webhooks = webhooks
        self._informer = Informer(hub, DEFINITIONS)
        self._made: dict[str, tuple[str, tuple[Served, ...]]] = {}
        self._is_due = False

    async def run(self) -> None:
        """Follow the definitions until cancelled."""
        self._informer.add_handler(lambda _: self._mark())
        await self._informer.run()

    async def wait_synced(self) -> None:
        """Wait until every definition is known."""
        await self._informer.wait_synced()

    @property
    def is_stale(self) -> bool:
        """Whether the API server has not been heard of for so long that something is wrong."""
        return self._informer.is_stale

    def _mark(self) -> None:
        self._is_due = True

    def current(self) -> Catalog:
        """Return the catalog, brought up to date if a definition has changed since."""
        if self._is_due:
            self._is_due = False
            made: dict[str, tuple[str, tuple[Served, ...]]] = {}
            for crd_object in self._informer.cache.objects():
                name, version = name_of(crd_object), resource_version_of(crd_object)
                known = self._made.get(name)
                made[name] = (
                    known
                    if known is not None and known[0] == version
                    else (version, self._resources(crd_object))
                )
            self._made = made
            self.catalog.replace_custom(each for _, kept in made.values() for each in kept)
        return self.catalog

    def _resources(self, crd_object: Object) -> tuple[Served, ...]:
        try:
            return served_resources(read_definition(crd_object), self._webhooks)
        except MalformedSchema as error:
            # Served there, so somebody reads it otherwise than we do: it is nothing of ours.
            _log.warning("definition not read", definition=name_of(crd_object), reason=str(error))
            return ()


def build_state(
    hub: ClusterClient,
    kinds: ServedKinds,
    clock: Clock,
    webhooks: Webhooks,
    plugins: Callable[[ApiStore], tuple[Plugin, ...]],
) -> HubState:
    """Build what rules work on."""
    store = ApiStore(hub, kinds.catalog)
    return HubState(
        store=store,
        catalog=kinds.catalog,
        feeds=Feeds(store, clock),
        clock=clock,
        random=SystemRandom(),
        new_uid=lambda: str(uuid4()),
        webhooks=webhooks,
        plugins=plugins(store),
    )
