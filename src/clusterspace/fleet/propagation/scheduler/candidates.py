"""What the scheduler knows of each cluster: its traits, its taints, its APIs, and its room."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, cast

from clusterspace.apis.clusters import CLUSTERS, taints_of
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.errors import MalformedQuantity
from clusterspace.fleet.propagation.scheduler.affinities import Traits, traits_of
from clusterspace.kube.objects import Object, find_at, is_being_deleted
from clusterspace.kube.quantities import ZERO, Quantity, parse_quantity

Amounts: TypeAlias = Mapping[str, Quantity]

PODS: Final = "pods"


@dataclass(frozen=True, slots=True)
class NodeSize:
    """Nodes that have at least this much room each."""

    count: int
    at_least: Amounts


@dataclass(frozen=True, slots=True)
class Room:
    """What is free in a cluster: in all, and by sizes of nodes when it was counted that way."""

    free: Amounts
    nodes: tuple[NodeSize, ...] = ()


NO_ROOM: Final = Room({})


def room_of(cluster: Object) -> Room:
    """Return the room a Cluster reported; none when it reported nothing that can be read."""
    summary = cast("Object", find_at(cluster, "status", "resourceSummary") or {})
    try:
        allocatable, allocated, allocating = (
            read_amounts(summary.get(part)) for part in ("allocatable", "allocated", "allocating")
        )
        free = {
            resource: amount - allocated.get(resource, ZERO) - allocating.get(resource, ZERO)
            for resource, amount in allocatable.items()
        }
        return Room(free, _node_sizes(cluster, summary))
    except MalformedQuantity:
        # One cluster that reports nonsense gets nothing by room; the others are not its problem.
        return NO_ROOM


def read_amounts(amounts: object) -> Amounts:
    """Read a map of resources to quantities."""
    given = cast("dict[str, Any]", amounts or {})
    return {resource: parse_quantity(str(amount)) for resource, amount in given.items()}


def most_replicas(room: Room, each: Amounts) -> int:
    """Return how many replicas that ask for so much each there is room for."""
    asked = {resource: amount for resource, amount in each.items() if amount > ZERO}
    pods = max(room.free.get(PODS, ZERO).nanos // 10**9, 0)
    if not asked or not pods:
        return pods
    # A sum over the cluster counts crumbs on many nodes as one place; sizes of nodes do not.
    is_counted = room.nodes and all(asked.keys() <= size.at_least.keys() for size in room.nodes)
    if is_counted:
        return min(pods, sum(each.count * _times(each.at_least, asked) for each in room.nodes))
    return min(pods, _times(room.free, asked))


def _times(room: Amounts, asked: Amounts) -> int:
    """Return how many times an amount fits into another."""
    times = (room.get(resource, ZERO).nanos // each.nanos for resource, each in asked.items())
    return max(min(times), 0)


def _node_sizes(cluster: Object, summary: Object) -> tuple[NodeSize, ...]:
    counts = {
        int(each["grade"]): int(each["count"]) for each in summary.get("allocatableModelings") or ()
    }
    models = cast("list[Object]", find_at(cluster, "spec", "resourceModels") or [])
    return tuple(
        NodeSize(
            counts[int(model["grade"])],
            {str(each["name"]): parse_quantity(str(each["min"])) for each in model["ranges"]},
        )
        for model in models
        if int(model["grade"]) in counts
    )


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
    """Return the Cluster as the scheduler sees it."""
    enablements = cast("list[Object]", find_at(cluster, "status", "apiEnablements") or [])
    return Candidate(
        traits=traits_of(cluster),
        taints=taints_of(cluster),
        served=frozenset(
            (str(each["groupVersion"]), str(resource["kind"]))
            for each in enablements
            for resource in each.get("resources") or ()
        ),
        room=room_of(cluster),
        is_leaving=is_being_deleted(cluster),
    )


def has_new_traits(update: Update) -> bool:
    """Whether a cluster is new, or is selected by other traits than before."""
    before, after = update.decode_before(), update.decode_after()
    return after is not None and (before is None or traits_of(before) != traits_of(after))


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
        # The cache hands out the very bytes it stores, so the same bytes are the same state.
        before, self._read = self._read, {}
        for key in sorted(self._cache.keys()):
            raw, known = self._cache.find_raw(key), before.get(key)
            if known is None or known[0] is not raw:
                known = raw, candidate_of(self._cache.find(key) or {})
            self._read[key] = known
        return {candidate.name: candidate for _, candidate in self._read.values()}
