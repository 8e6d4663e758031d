"""Which clusters should: those in use before others, then those with more room."""

from collections.abc import Iterable
from dataclasses import dataclass

from clusterspace.fleet.propagation.scheduler.affinities import AffinityGroup
from clusterspace.fleet.propagation.scheduler.candidates import Candidate
from clusterspace.fleet.propagation.scheduler.demands import Demand
from clusterspace.fleet.propagation.scheduler.estimates import most_replicas


@dataclass(frozen=True, slots=True)
class Option:
    """A cluster that may be used, and what speaks for it."""

    candidate: Candidate
    tier: int = 0
    """0 is the affinity group itself; the others take what it cannot hold."""
    placed: int = 0
    is_used: bool = False
    free: int = 0
    """How many replicas it could take besides those it has."""

    @property
    def name(self) -> str:
        """What the cluster is called."""
        return self.candidate.name

    @property
    def holds(self) -> int:
        """How many replicas it could have in all."""
        return self.placed + self.free


def rank(fit: Iterable[Candidate], demand: Demand, group: AffinityGroup) -> tuple[Option, ...]:
    """Return the clusters that may be used, the best first."""
    options = (_option(candidate, demand, group) for candidate in fit)
    return tuple(sorted(options, key=_order))


def _option(candidate: Candidate, demand: Demand, group: AffinityGroup) -> Option:
    tier = group.find_tier(candidate.traits, may_overflow=demand.has_replicas)
    return Option(
        candidate,
        tier=tier or 0,
        placed=demand.placed.get(candidate.name, 0),
        is_used=candidate.name in demand.placed,
        free=most_replicas(candidate.room, demand.each_needs) if demand.has_replicas else 0,
    )


def _order(option: Option) -> tuple[int, bool, int, str]:
    return (option.tier, not option.is_used, -option.holds, option.name)
