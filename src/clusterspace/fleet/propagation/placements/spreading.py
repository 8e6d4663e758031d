"""How one more cluster changes the balance over the values of a label; the arithmetic, alone."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from clusterspace.fleet.propagation.placements.members import Member
from clusterspace.fleet.propagation.placements.policies import TopologySpread

_BREACH: Final = 1000
"""What breaking a spread that is only wished for costs: more than any other can make good."""


@dataclass(frozen=True, slots=True)
class Balance:
    """What picking one more cluster means for a placement's spreads."""

    score: int = 0
    broken: TopologySpread | None = None
    """A spread that must hold and would not."""


def balance_with(
    member: Member,
    spreads: Collection[TopologySpread],
    members: Mapping[str, Member],
    picked: Collection[str],
) -> Balance:
    """Tell what picking a cluster besides those picked already does to every spread.

    A cluster without the label is nowhere, and changes nothing.
    """
    score = 0
    for spread in spreads:
        domain = member.labels.get(spread.key)
        if domain is None:
            continue
        counts = _counts(spread.key, members, picked)
        before = _skew(counts)
        after = _skew(Counter({**counts, domain: counts[domain] + 1}))
        if after > spread.max_skew:
            if spread.is_required:
                return Balance(score, spread)
            score -= _BREACH
        score -= after - before
    return Balance(score)


def _counts(key: str, members: Mapping[str, Member], picked: Collection[str]) -> Counter[str]:
    """Count the clusters picked at each value that any cluster has."""
    counts = Counter({member.labels[key]: 0 for member in members.values() if key in member.labels})
    counts.update(
        members[name].labels[key]
        for name in picked
        if name in members and key in members[name].labels
    )
    return counts


def _skew(counts: Mapping[str, int]) -> int:
    return max(counts.values()) - min(counts.values())
