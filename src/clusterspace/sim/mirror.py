"""The objects of the simulated cluster as its controllers see them: by name, and by owner."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias, cast

from clusterspace.kube.objects import Object, metadata_of, name_of, namespace_of, uid_of
from clusterspace.sim.api import KINDS, Kind


class Key(NamedTuple):
    """Which object: what queues hold."""

    kind: str
    namespace: str
    name: str


Watcher: TypeAlias = Callable[[Object, bool], None]
"""Told of an object that changed, and whether it is gone."""


def key_of(kube_object: Object) -> Key:
    """Return the key of an object."""
    return Key(kube_object["kind"], namespace_of(kube_object), name_of(kube_object))


def controller_of(kube_object: Object) -> Object | None:
    """Return the owner reference of the controller, if there is one."""
    references = cast("list[Object]", metadata_of(kube_object).get("ownerReferences") or [])
    return next((each for each in references if each.get("controller")), None)


class Mirror:
    """A Listener that remembers. Objects are shared: nobody edits them."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[Key, Object]] = {kind: {} for kind in KINDS}
        self._owned: defaultdict[str, dict[Key, Object]] = defaultdict(dict)
        """Controller UID to what it controls."""
        self._watchers: list[Watcher] = []

    def watch(self, watcher: Watcher) -> None:
        """Call back on every change from now on."""
        self._watchers.append(watcher)

    def find(self, key: Key) -> Object | None:
        """Return an object, or None."""
        return self._objects[key.kind].get(key)

    def all(self, kind: Kind) -> Iterator[Object]:
        """Return every object of a kind, in no order that means anything."""
        return iter(tuple(self._objects[kind.name].values()))

    def count(self, kind: Kind) -> int:
        """Return how many objects of a kind there are."""
        return len(self._objects[kind.name])

    def owned_by(self, owner: Object, kind: Kind) -> tuple[Object, ...]:
        """Return what an object controls, of one kind."""
        held = self._owned.get(uid_of(owner), {})
        return tuple(each for key, each in held.items() if key.kind == kind.name)

    # -- as a Listener -------------------------------------------------------------------------

    def replace(self, kind: Kind, objects: Iterable[Object]) -> None:
        """Know exactly these objects of a kind."""
        present = {key_of(each): each for each in objects}
        for key, held in tuple(self._objects[kind.name].items()):
            if key not in present:
                self.removed(held)
        for each in present.values():
            self.changed(each)

    def changed(self, kube_object: Object) -> None:
        """Remember an object."""
        key = key_of(kube_object)
        self._disown(key)
        self._objects[key.kind][key] = kube_object
        owner = controller_of(kube_object)
        if owner is not None:
            self._owned[str(owner["uid"])][key] = kube_object
        self._tell(kube_object, is_gone=False)

    def removed(self, kube_object: Object) -> None:
        """Forget an object."""
        key = key_of(kube_object)
        self._disown(key)
        self._objects[key.kind].pop(key, None)
        self._tell(kube_object, is_gone=True)

    def _disown(self, key: Key) -> None:
        held = self._objects[key.kind].get(key)
        owner = None if held is None else controller_of(held)
        if owner is None:
            return
        siblings = self._owned[str(owner["uid"])]
        siblings.pop(key, None)
        if not siblings:
            del self._owned[str(owner["uid"])]

    def _tell(self, kube_object: Object, *, is_gone: bool) -> None:
        for watcher in self._watchers:
            watcher(kube_object, is_gone)
