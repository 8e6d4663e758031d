"""How many of the clusters that may: spread over clusters, regions, zones, providers, labels."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Final, TypeAlias

from clusterspace.fleet.propagation.scheduler.placements import Spread
from clusterspace.fleet.propagation.scheduler.scores import Option

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
        return _over_groups(options, others[0], clusters, needed)
    return _with_room(options, clusters.most or len(options), needed)


def _with_room(options: Options, count: int, needed: int) -> Options:
    """Choose so many: as many of the best as possible, larger ones only as far as need be."""
    chosen = options[:count]
    for kept in range(len(chosen), -1, -1):
        rest = sorted(options[kept:], key=lambda option: -option.holds)
        chosen = (*options[:kept], *rest[: count - kept])
        if _hold(chosen) >= needed:
            break
    return chosen


def _over_groups(
    options: Options, groups: Spread, clusters: Spread, needed: int
) -> Options | CannotSpread:
    ranked = _ranked_groups(options, groups.field)
    most = min(each for each in (len(ranked), groups.most, clusters.most) if each)
    if most < groups.fewest:
        return _too_few(groups, most)
    choices = _choices(ranked, most, clusters.most or len(options))
    enough = [each for each in choices if len(each) >= clusters.fewest]
    if not enough:
        return CannotSpread(
            f"no {most} groups by {groups.field} have {clusters.fewest} clusters that fit"
        )
    return next((each for each in enough if _hold(each) >= needed), max(enough, key=_hold))


def _choices(ranked: Sequence[Options], groups: int, clusters: int) -> Iterator[Options]:
    """Yield choices of clusters over so many groups, those of the best groups first."""
    for combination in islice(combinations(ranked, groups), _MOST_TRIES):
        yield _over_each(combination, clusters)
        larger = [_by_room(group) for group in combination]
        yield _over_each(larger, clusters)


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
        held = groups[name]
        used = sum(option.is_used for option in held)
        return (min(each.tier for each in held), -used, -_hold(held), -len(held), name)

    return [groups[name] for name in sorted(groups, key=order)]


def _by_room(options: Options) -> Options:
    return tuple(sorted(options, key=lambda option: -option.holds))


def _hold(options: Iterable[Option]) -> int:
    return sum(option.holds for option in options)


def _too_few(spread: Spread, there_are: int) -> CannotSpread:
    return CannotSpread(
        f"the placement spreads over {spread.fewest} or more by {spread.field}, "
        f"and only {there_are} fit"
    )
