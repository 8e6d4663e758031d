"""Which of the clusters that may be used are used: scored, then spread over groups.

Those in use come before others, then those with more room.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Final, TypeAlias

from clusterspace.fleet.propagation.scheduler.affinities import AffinityGroup
from clusterspace.fleet.propagation.scheduler.candidates import Candidate, most_replicas
from clusterspace.fleet.propagation.scheduler.demands import Demand, Spread


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
    options = [
        Option(
            each,
            tier=group.find_tier(each.traits, may_overflow=demand.has_replicas) or 0,
            placed=demand.placed.get(each.name, 0),
            is_used=each.name in demand.placed,
            free=most_replicas(each.room, demand.each_needs) if demand.has_replicas else 0,
        )
        for each in fit
    ]
    return tuple(sorted(options, key=lambda o: (o.tier, not o.is_used, -o.holds, o.name)))


Options: TypeAlias = tuple[Option, ...]

_ANY_CLUSTERS: Final = Spread("cluster", 0, 0)
_MOST_TRIES: Final = 2000
"""Combinations of groups looked at: the best come first, and nobody waits for the last of many."""


@dataclass(frozen=True, slots=True)
class CannotSpread:
    """Why the clusters that fit are not enough for the spread that is asked for."""

    message: str


def select(options: Options, spreads: Sequence[Spread], needed: int) -> Options | CannotSpread:
    """Choose clusters, the best first, so that every spread is met.

    `needed` replicas are to find room on those chosen, if that can be; 0 when room is no matter.
    """
    clusters = next((each for each in spreads if each.field == "cluster"), _ANY_CLUSTERS)
    others = [each for each in spreads if each.field != "cluster"]
    if len(others) > 1:
        fields = " and ".join(each.field for each in others)
        return CannotSpread(f"the placement spreads over {fields}, and only one of them can be met")
    if len(options) < clusters.fewest:
        return _too_few(clusters, len(options))
    if others:
        return select_over_groups(options, others[0], clusters, needed)
    # As many of the best as possible, larger ones only as far as need be.
    count = clusters.most or len(options)
    chosen = options[:count]
    for kept in range(len(chosen), -1, -1):
        rest = sorted(options[kept:], key=lambda option: -option.holds)
        chosen = (*options[:kept], *rest[: count - kept])
        if _hold(chosen) >= needed:
            break
    return chosen


def select_over_groups(
    options: Options, groups: Spread, clusters: Spread, needed: int
) -> Options | CannotSpread:
    """Choose clusters of so many groups, as many clusters as asked for, with room if possible."""
    ranked = _ranked_groups(options, groups.field)
    most = min(each for each in (len(ranked), groups.most, clusters.most) if each)
    if most < groups.fewest:
        return _too_few(groups, most)
    # For each combination of groups, those of the best groups first: the best clusters of each,
    # then the largest of each.
    count = clusters.most or len(options)
    choices: list[Options] = []
    for combination in islice(combinations(ranked, most), _MOST_TRIES):
        choices.append(_over_each(combination, count))
        larger = [tuple(sorted(each, key=lambda o: -o.holds)) for each in combination]
        choices.append(_over_each(larger, count))
    enough = [each for each in choices if len(each) >= clusters.fewest]
    if not enough:
        return CannotSpread(
            f"no {most} groups by {groups.field} have {clusters.fewest} clusters that fit"
        )
    return next((each for each in enough if _hold(each) >= needed), max(enough, key=_hold))


def _over_each(groups: Sequence[Options], count: int) -> Options:
    """Choose one cluster of every group, then the best of all others, so many in all."""
    first = tuple(group[0] for group in groups)
    rest = [option for group in groups for option in group[1:]]
    ordered = sorted(rest, key=lambda option: (option.tier, not option.is_used, -option.holds))
    return (*first, *ordered[: count - len(first)])


def _ranked_groups(options: Options, field: str) -> list[Options]:
    """Return the clusters by group: groups in use first, then those with more room."""
    groups: dict[str, Options] = {}
    for option in options:
        name = ",".join(sorted(option.candidate.traits.values_of(field)))
        groups[name] = (*groups.get(name, ()), option)

    def order(name: str) -> tuple[int, int, int, int, str]:
        group = groups[name]
        used = sum(option.is_used for option in group)
        return (min(each.tier for each in group), -used, -_hold(group), -len(group), name)

    return [groups[name] for name in sorted(groups, key=order)]


def _hold(options: Iterable[Option]) -> int:
    return sum(option.holds for option in options)


def _too_few(spread: Spread, there_are: int) -> CannotSpread:
    return CannotSpread(
        f"the placement spreads over {spread.fewest} or more by {spread.field}, "
        f"and only {there_are} fit"
    )
