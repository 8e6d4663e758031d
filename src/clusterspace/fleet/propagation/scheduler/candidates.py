"""What the scheduler knows of each cluster; read anew only when the Cluster changed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from clusterspace.apis.clusters import CLUSTERS, taints_of
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.controllers.hub_caches import HubCaches
from clusterspace.fleet.propagation.scheduler.affinities import Traits, traits_of
from clusterspace.fleet.propagation.scheduler.estimates import NO_ROOM, Room, room_of
from clusterspace.kube.objects import Object, find_at


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cluster that something could be placed on."""

    traits: Traits
    taints: tuple[Object, ...] = ()
    served: frozenset[tuple[str, str]] = frozenset()
    """The group-versions and kinds it serves."""
    room: Room = NO_ROOM
    is_leaving: bool = False

    @property
    def name(self) -> str:
        """What the cluster is called."""
        return self.traits.name

    def differs_only_in_room(self, other: "Candidate") -> bool:
        """Whether another state of the cluster means the same to all but those who wait."""
        return replace(self, room=other.room) == other


def candidate_of(cluster: Object) -> Candidate:
    """Return what there is to know of a Cluster."""
    return Candidate(
        traits=traits_of(cluster),
        taints=taints_of(cluster),
        served=_served_by(cluster),
        room=room_of(cluster),
        is_leaving=is_being_deleted(cluster),
    )


class KnownClusters:
    """The clusters there are, as candidates; made by `caches.shared`.

    A Cluster lists every API it serves and takes a while to read, there are many bindings, and
    Clusters seldom change: each state of one is read once.
    """

    def __init__(self, caches: HubCaches) -> None:
        self._cache = caches.informer(CLUSTERS).cache
        self._read: dict[str, tuple[bytes | None, Candidate]] = {}

    def candidates(self) -> Mapping[str, Candidate]:
        """Return all clusters by name."""
        self._read = {key: self._candidate(key) for key in sorted(self._cache.keys())}
        return {candidate.name: candidate for _, candidate in self._read.values()}

    def _candidate(self, key: str) -> tuple[bytes | None, Candidate]:
        raw, known = self._cache.find_raw(key), self._read.get(key)
        if known is not None and known[0] is raw:
            return known
        return raw, candidate_of(self._cache.find(key) or {})


def _served_by(cluster: Object) -> frozenset[tuple[str, str]]:
    enablements = cast("list[Object]", find_at(cluster, "status", "apiEnablements") or [])
    return frozenset(
        (str(each["groupVersion"]), str(resource["kind"]))
        for each in enablements
        for resource in each.get("resources") or ()
    )
