"""Clusters as candidates, and filters: which may be used for an object, and why not the others.

A new filter is a function and a line in FILTERS. It applies to bindings with a placement of their
own; those of ClusterResourcePlacements are not scheduled (placements/picking.py).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, cast

from clusterspace.apis.affinities import Traits, traits_of
from clusterspace.apis.clusters import CLUSTERS, conditions_of, taints_of
from clusterspace.apis.estimates import Estimate, read_estimate
from clusterspace.apis.member_clusters import has_kubefleet_agent
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.errors import MalformedQuantity
from clusterspace.fleet.propagation.scheduler.demands import (
    AffinityGroup,
    Amounts,
    Demand,
    read_amounts,
)
from clusterspace.kube.conditions import TRUE, find_condition
from clusterspace.kube.objects import Object, find_at, is_being_deleted
from clusterspace.kube.quantities import ZERO, Quantity, parse_quantity
from clusterspace.kube.selectors import tolerates

PODS: Final = "pods"


@dataclass(frozen=True, slots=True)
class NodeSize:
    """Nodes that have at least this much room each."""

    count: int
    at_least: Amounts


@dataclass(frozen=True, slots=True)
class Room:
    """What is free in a cluster: in all, by sizes of nodes, and node by node where that is told."""

    free: Amounts
    nodes: tuple[NodeSize, ...] = ()
    estimate: "KnownEstimate | None" = None
    stale_since: str = ""
    """Since when nothing was heard: it counts, and what was placed since does not show in it."""


class KnownEstimate:
    """What a cluster estimates that it can take; read when somebody asks for the first time."""

    # There are many reports and most are followed by another one before anybody asks.

    def __init__(self, written: Object) -> None:
        self.written = written
        self._read: Estimate | None = None
        self._is_read = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownEstimate) and other.written == self.written

    __hash__ = None  # pyright: ignore[reportAssignmentType] - it is compared, and no key

    def read(self) -> Estimate | None:
        """Return it as a value; None when it says nothing of nodes, or makes no sense."""
        if not self._is_read:
            has_nodes = "nodes" in self.written
            self._read, self._is_read = read_estimate(self.written) if has_nodes else None, True
        return self._read


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
        written = find_at(cluster, "status", "estimate")
        return Room(
            free,
            _node_sizes(cluster, summary),
            KnownEstimate(cast("Object", written)) if isinstance(written, dict) else None,
            str(find_at(written, "staleSince") or _since_not_ready(cluster)),
        )
    except MalformedQuantity:
        # One cluster that reports nonsense gets nothing by room; the others are not its problem.
        return NO_ROOM


def _since_not_ready(cluster: Object) -> str:
    ready = find_condition(conditions_of(cluster), "Ready")
    if ready is None or ready.get("status") == TRUE:
        return ""
    return str(ready.get("lastTransitionTime") or "its last report")


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


def available_replicas(room: Room, demand: Demand) -> int:
    """Return how many more replicas of a workload a cluster can take.

    Where the policy divides by that it is counted node by node and by the quotas of the cluster, if
    it has told these; elsewhere by the sum of all nodes. Of a workload with several components, one
    whole set or none.
    """
    estimate = room.estimate if demand.placement.strategy.is_by_room else None
    known = None if estimate is None else estimate.read()
    if not demand.components:
        return most_replicas(room, demand.each_needs) if known is None else known.fits(demand.claim)
    if known is not None:
        return int(known.holds_set(demand.components))
    needs: dict[str, Quantity] = {}
    for claim, replicas in demand.components:
        for name, each in {PODS: Quantity(10**9), **claim.each}.items():
            needs[name] = needs.get(name, ZERO) + each * replicas
    return int(all(room.free.get(name, ZERO) >= each for name, each in needs.items()))


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
    lists_apis: bool = True
    """Whether its agent says what it serves: KubeFleet's does not."""
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
        lists_apis=not has_kubefleet_agent(cluster),
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


# -- filters -----------------------------------------------------------------------------------


_REPELLING: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a cluster is not used, in words that go on from "the cluster"."""

    cluster: str
    reason: str
    filter: str = field(default="", compare=False)
    """What found that out, by the name that Karmada's plugins have."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """Which clusters may be used, and why the others may not."""

    fit: tuple[Candidate, ...]
    rejected: tuple[Rejection, ...]


Filter: TypeAlias = Callable[[Candidate, Demand, AffinityGroup], str | None]
"""Returns why a cluster may not be used, or None."""


def filter_clusters(
    candidates: Mapping[str, Candidate], demand: Demand, group: AffinityGroup
) -> Filtered:
    """Run every filter on every cluster; the first reason found is the one given."""
    fit: list[Candidate] = []
    rejected: list[Rejection] = []
    for candidate in candidates.values():
        for each in FILTERS:
            if (reason := each(candidate, demand, group)) is not None:
                name = _NAMES.get(each, each.__name__)
                rejected.append(Rejection(candidate.name, reason, name))
                break
        else:
            fit.append(candidate)
    return Filtered(tuple(fit), tuple(rejected))


def find_untolerated(taints: Iterable[Object], tolerations: Iterable[Object]) -> Object | None:
    """Return the first taint that keeps new work away and that nothing tolerates."""
    tolerated = tuple(tolerations)
    for taint in taints:
        if taint.get("effect") not in _REPELLING:
            continue
        if not any(tolerates(toleration, taint) for toleration in tolerated):
            return taint
    return None


def is_leaving(candidate: Candidate, _demand: Demand, _group: AffinityGroup) -> str | None:
    """Reject clusters that are leaving."""
    return "is leaving the fleet" if candidate.is_leaving else None


def does_not_match_affinity(
    candidate: Candidate, demand: Demand, group: AffinityGroup
) -> str | None:
    """Reject clusters outside of the affinity group and its overflow."""
    tier = group.find_tier(candidate.traits, may_overflow=demand.has_replicas)
    return "did not match the placement cluster affinity constraint" if tier is None else None


def lacks_api(candidate: Candidate, demand: Demand, _group: AffinityGroup) -> str | None:
    """Reject clusters that do not serve the kind of the object."""
    # What runs there proves that the API was there; a report that lacks it removes nothing.
    if candidate.name in demand.placed or (demand.api_version, demand.kind) in candidate.served:
        return None
    if not candidate.lists_apis:
        return None  # an object that it does not know is refused there, and told of
    return f"did not serve {demand.kind} of {demand.api_version}"


def has_untolerated_taint(
    candidate: Candidate, demand: Demand, _group: AffinityGroup
) -> str | None:
    """Reject clusters with a taint that the placement does not tolerate."""
    # Taints keep new things away and let old things stay.
    if candidate.name in demand.placed:
        return None
    taint = find_untolerated(candidate.taints, demand.placement.tolerations)
    return None if taint is None else f"had the untolerated taint {taint_text(taint)}"


def taint_text(taint: Object) -> str:
    """Return a taint as people write it: `key=value:Effect`."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def has_no_spread_group(candidate: Candidate, demand: Demand, _group: AffinityGroup) -> str | None:
    """Reject clusters without a value of the field that the placement spreads over."""
    for spread in demand.placement.spreads:
        if not candidate.traits.values_of(spread.field):
            return f"did not have the {spread.field} that the placement spreads over"
    return None


def is_evicting(candidate: Candidate, demand: Demand, _group: AffinityGroup) -> str | None:
    """Reject clusters that the object was just evicted from."""
    return "was just left by this object" if candidate.name in demand.evicted else None


def is_away_from_its_group(
    candidate: Candidate, demand: Demand, _group: AffinityGroup
) -> str | None:
    """Reject clusters without the workloads it belongs to, or with those it is to be apart from."""
    # As taints do: it decides about new places, and moves nothing.
    if candidate.name in demand.placed:
        return None
    if demand.beside is not None and candidate.name not in demand.beside:
        return "did not have the workloads of the same affinity group"
    if candidate.name in demand.apart:
        return "already had a workload of the same anti-affinity group"
    return None


FILTERS: Final[tuple[Filter, ...]] = (
    is_leaving,
    does_not_match_affinity,
    lacks_api,
    has_untolerated_taint,
    has_no_spread_group,
    is_evicting,
    is_away_from_its_group,
)
"""In the order in which they are asked; the cheap and the common ones first."""

_NAMES: Final[Mapping[Filter, str]] = {
    is_leaving: "ClusterLeaving",
    does_not_match_affinity: "ClusterAffinity",
    lacks_api: "APIEnablement",
    has_untolerated_taint: "TaintToleration",
    has_no_spread_group: "SpreadConstraint",
    is_evicting: "ClusterEviction",
}
