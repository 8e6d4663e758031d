"""How many replicas each cluster gets: the arithmetic, alone.

Shares are proportional by Webster's method: the next replica goes where weight / (2·given + 1) is
largest. Unlike rounding it never takes from one cluster because there is more to share out, so
scaling up only adds and scaling down only removes.

    allot(8, {"a": 100, "b": 80, "c": 30, "d": 20})  is  {"a": 3, "b": 3, "c": 1, "d": 1}
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from heapq import heapify, heapreplace
from typing import TypeAlias

Counts: TypeAlias = Mapping[str, int]


def allot(replicas: int, weights: Counts, *, last_name_first: bool = False) -> dict[str, int]:
    """Share out replicas by weight; a cluster without weight gets none.

    Of clusters with equal claims the one with fewer replicas is first, then the one whose name
    is first, or last.
    """
    heavy = {name: weight for name, weight in weights.items() if weight > 0}
    given = {**dict.fromkeys(weights, 0), **_head_start(replicas, heavy)}
    ordered = sorted(heavy, reverse=last_name_first)
    claims = [
        (-Fraction(heavy[name], 2 * given[name] + 1), given[name], rank)
        for rank, name in enumerate(ordered)
    ]
    heapify(claims)
    for _ in range(replicas - sum(given.values()) if claims else 0):
        _, count, rank = claims[0]
        name = ordered[rank]
        given[name] = count + 1
        heapreplace(claims, (-Fraction(heavy[name], 2 * count + 3), count + 1, rank))
    return given


def fill(replicas: int, tiers: Sequence[Counts], *, on_few: bool) -> dict[str, int]:
    """Share out replicas over what clusters can hold, one tier after the other.

    The next tier gets what the one before cannot hold. With `on_few`, each tier uses the first
    clusters that hold its part, in the order given, and no more.
    """
    given: dict[str, int] = {}
    for tier in tiers:
        part = min(replicas - sum(given.values()), sum(tier.values()))
        weights: dict[str, int] = {}
        for name, holds in tier.items():
            if on_few and sum(weights.values()) >= part:
                break
            weights[name] = holds
        given |= allot(part, weights)
    return given


def grow(
    placed: Counts, replicas: int, free: Sequence[Counts], *, on_few: bool
) -> dict[str, int] | None:
    """Add what is missing where there is room, and move nothing; None when it does not fit."""
    missing = replicas - sum(placed.values())
    if missing > sum(sum(tier.values()) for tier in free):
        return None
    added = fill(missing, free, on_few=on_few)
    return {name: placed.get(name, 0) + added.get(name, 0) for name in {**placed, **added}}


def shrink(placed: Sequence[Counts], replicas: int, *, on_few: bool) -> dict[str, int]:
    """Take away what is too much, in proportion to what each has; nobody gets more."""
    return fill(replicas, placed, on_few=on_few)


def _head_start(replicas: int, weights: Counts) -> dict[str, int]:
    """Return the replicas each cluster gets in any case, so that a million take no million steps.

    Every replica whose claim is above some threshold is given before any below it. At the
    threshold chosen here at most `replicas` are given, and all but about two per cluster.
    """
    total, safe = sum(weights.values()), max(replicas - len(weights), 0)
    return {
        name: max(-((total - 2 * weight * safe) // (2 * total)), 0)
        for name, weight in weights.items()
    }
