"""Filters: which clusters may be used for an object, and why each of the others is rejected.

A new filter is a function and a line in FILTERS. It applies to bindings with a placement of their
own; those of ClusterResourcePlacements are not scheduled (placements/picking.py).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from clusterspace.fleet.propagation.scheduler.affinities import AffinityGroup
from clusterspace.fleet.propagation.scheduler.candidates import Candidate
from clusterspace.fleet.propagation.scheduler.demands import Demand
from clusterspace.kube.objects import Object
from clusterspace.kube.taints import tolerates

_REPELLING: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a cluster is not used, in words that go on from "the cluster"."""

    cluster: str
    reason: str


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
        reasons = (each(candidate, demand, group) for each in FILTERS)
        reason = next((each for each in reasons if each is not None), None)
        if reason is None:
            fit.append(candidate)
        else:
            rejected.append(Rejection(candidate.name, reason))
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


FILTERS: Final[tuple[Filter, ...]] = (
    is_leaving,
    does_not_match_affinity,
    lacks_api,
    has_untolerated_taint,
    has_no_spread_group,
    is_evicting,
)
"""In the order in which they are asked; the cheap and the common ones first."""
