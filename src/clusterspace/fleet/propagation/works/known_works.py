"""The Works there are: those of the cache, and those just written that it has not seen yet.

A cache lags behind our own writes. Whoever plans by it alone makes a Work twice, or lets a binding
go while a Work of it is on its way into the cache.
"""

from collections.abc import Iterable
from typing import Final

from clusterspace.apis.works import binding_key_of, cluster_of
from clusterspace.client.places import Place, key_of
from clusterspace.client.raw_objects import version_in
from clusterspace.controllers.caches import IndexKeys
from clusterspace.controllers.informers import Informer, Update
from clusterspace.fleet.propagation.works.revisions import BY_PARENT, by_parent
from clusterspace.kube.objects import Object, name_of, namespace_of, resource_version_of

BY_BINDING: Final = "binding"


def by_binding(work: Object) -> Iterable[str]:
    """Index Works by the key of the binding they are from."""
    key = binding_key_of(work)
    return (key,) if key else ()


WORK_INDEXES: Final[dict[str, IndexKeys]] = {BY_BINDING: by_binding, BY_PARENT: by_parent}
"""What an informer of Works must have."""


class KnownWorks:
    """All Works of the hub, our own latest writes included."""

    def __init__(self, works: Informer) -> None:
        self._cache = works.cache
        self._unseen: dict[str, Object] = {}
        works.add_handler(self._see)

    def find(self, namespace: str, name: str) -> Object | None:
        """Return a Work, or None when none is known."""
        key = key_of(namespace, name)
        return self._unseen.get(key) or self._cache.find(key)

    def of_binding(self, binding_key: str) -> dict[str, Object]:
        """Return the Works of a binding by cluster, in the order of their clusters."""
        cached = {
            cluster_of(work): work for work in self._cache.objects_at(BY_BINDING, binding_key)
        }
        unseen = {
            cluster_of(work): work
            for work in self._unseen.values()
            if binding_key_of(work) == binding_key
        }
        return dict(sorted({**cached, **unseen}.items()))

    def note(self, work: Object) -> None:
        """Remember a Work as the hub has just told it, until the cache is as far."""
        key = _key_of(work)
        cached = self._cache.find_version(key)
        # The event may be faster than the answer to the write that caused it.
        if cached is None or int(cached.resource_version) < int(resource_version_of(work)):
            self._unseen[key] = work

    def forget(self, place: Place) -> None:
        """Drop what was noted of a Work that is gone."""
        self._unseen.pop(place.key, None)

    def _see(self, update: Update) -> None:
        noted = self._unseen.get(update.key)
        if noted is None:
            return
        if update.after is None or _is_as_new(update.after, noted):
            del self._unseen[update.key]


def _is_as_new(raw: bytes, noted: Object) -> bool:
    return int(version_in(raw).resource_version) >= int(resource_version_of(noted))


def _key_of(work: Object) -> str:
    return key_of(namespace_of(work), name_of(work))
