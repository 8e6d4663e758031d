"""Manifests as they were selected: what placements write down, and Works are made of.

A policy's Works hold the template as it is. A placement brings its clusters from one state of an
object to the next one after another, so its Works hold the state that each cluster is to have,
and that state is in a snapshot.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from clusterspace.apis.fleet_placements import (
    RESOURCE_INDEX,
    Identity,
    identity_of,
    index_of,
    manifest_hash,
    parent_of,
)
from clusterspace.client.raw_objects import decode_object
from clusterspace.controllers.caches import IndexKeys
from clusterspace.controllers.informers import Informer
from clusterspace.kube.objects import Object

BY_PARENT: Final = "placement"

Contents: TypeAlias = Mapping[Identity, str]
"""Objects, each with the hash of its state."""


def by_parent(kube_object: Object) -> Iterable[str]:
    """Index objects by the placement they come of."""
    parent = parent_of(kube_object)
    return (parent,) if parent else ()


SNAPSHOT_INDEXES: Final[dict[str, IndexKeys]] = {BY_PARENT: by_parent}
"""What an informer of resource snapshots must have."""


class _Spec(msgspec.Struct):
    selectedResources: list[msgspec.Raw] = []  # noqa: N815 - the name on the wire


class _Snapshot(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decoder: Final = msgspec.json.Decoder(_Snapshot)


@dataclass(frozen=True, slots=True)
class _Page:
    """One snapshot that was read: its number, and its manifests undecoded."""

    raw: bytes
    index: int
    manifests: Mapping[tuple[Identity, str], bytes]


class Revisions:
    """The resource snapshots of an informer; each is read once, for they never change."""

    def __init__(self, snapshots: Informer) -> None:
        self._cache = snapshots.cache
        self._pages: dict[str, _Page] = {}

    def find(self, parent: str, identity: Identity, wanted_hash: str) -> Object | None:
        """Return an object in a certain state, or None when no snapshot is known that has it."""
        for page in self._pages_of(parent):
            raw = page.manifests.get((identity, wanted_hash))
            if raw is not None:
                return decode_object(raw)
        return None

    def contents(self, parent: str) -> dict[int, Contents]:
        """Return what every snapshot of a placement holds, by number."""
        found: dict[int, Contents] = {}
        for page in self._pages_of(parent):
            found[page.index] = {**found.get(page.index, {}), **dict(page.manifests.keys())}
        return found

    def _pages_of(self, parent: str) -> list[_Page]:
        keys = self._cache.keys_at(BY_PARENT, parent)
        for gone in [key for key in self._pages if key not in self._cache]:
            del self._pages[gone]
        return [self._page(key) for key in sorted(keys)]

    def _page(self, key: str) -> _Page:
        raw, held = self._cache.find_raw(key) or b"{}", self._pages.get(key)
        if held is None or held.raw is not raw:
            held = _read(raw)
            self._pages[key] = held
        return held


def _read(raw: bytes) -> _Page:
    manifests: dict[tuple[Identity, str], bytes] = {}
    for each in _decoder.decode(raw).spec.selectedResources:
        manifest = decode_object(bytes(each))
        manifests[identity_of(manifest), manifest_hash(manifest)] = bytes(each)
    return _Page(raw, index_of(decode_object(raw), RESOURCE_INDEX), manifests)
