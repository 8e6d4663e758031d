"""Which clusters get the newest state now: within what a placement's strategy allows at once.

    ready clusters that may be touched  = ready - (desired - maxUnavailable)
    clusters that may be added          = (desired + maxSurge) - those that are or may become ready

One that has failed already is no loss, and waits for nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from clusterspace.apis.fleet_placements import BOUND, SCHEDULED, UNSCHEDULED
from clusterspace.kube.objects import Object, find_at

_DEFAULT_SHARE: Final = "25%"
_DEFAULT_PERIOD: Final = 60


@dataclass(frozen=True, slots=True)
class ClusterProgress:
    """How far one cluster is."""

    cluster: str
    state: str
    is_latest: bool = False
    """Whether it is to have the newest state already."""
    is_ready: bool = False
    has_failed: bool = False
    is_gone: bool = False
    """Whether its cluster left, or is leaving: nothing there has to be spared."""
    was_bound: bool = True


@dataclass(frozen=True, slots=True)
class Pace:
    """How much may be changed at once."""

    desired: int
    """How many clusters the placement is to have."""
    max_unavailable: int
    max_surge: int


@dataclass(frozen=True, slots=True)
class Steps:
    """The clusters to advance or remove now; those that are blocked wait for others."""

    forward: tuple[str, ...] = ()
    """Get the newest state: for the first time, or in the place of an older one."""
    removed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()


def read_pace(placement: Object, desired: int) -> Pace:
    """Read the strategy of a placement; parts of the clusters are rounded up."""
    rolling: Object = find_at(placement, "spec", "strategy", "rollingUpdate") or {}
    return Pace(
        desired,
        max_unavailable=_share(rolling.get("maxUnavailable"), desired),
        max_surge=_share(rolling.get("maxSurge"), desired),
    )


def read_period(placement: Object) -> float:
    """Return how long after its change an object counts as ready that cannot say so itself."""
    period = find_at(
        placement, "spec", "strategy", "rollingUpdate", "unavailablePeriodSeconds"
    )  # fmt: skip
    return float(_DEFAULT_PERIOD if period is None else period)


def plan_rollout(clusters: Sequence[ClusterProgress], pace: Pace) -> Steps:
    """Decide which clusters are changed now, and which have to wait."""
    removed: list[str] = []
    rest: list[ClusterProgress] = []
    for each in clusters:
        is_idle = not each.was_bound or each.has_failed or each.is_gone
        if each.state == UNSCHEDULED and is_idle:
            removed.append(each.cluster)
        else:
            rest.append(each)

    # Clusters that work are touched only as far as enough others work. Four clusters, all ready
    # and all behind, with 25% each way: 4 - (4 - 1) may be touched, so one goes forward and three
    # are blocked. While that one is not ready yet, 3 - (4 - 1) may be touched: none. One that has
    # failed is not ready either, and goes forward besides: a fix must not wait for what it mends.
    ready = sum(each.is_ready for each in rest)
    may_touch = ready - (pace.desired - pace.max_unavailable)
    leaving = [each for each in rest if each.state == UNSCHEDULED]
    behind = [each for each in rest if each.state == BOUND and not each.is_latest]
    forward = [each.cluster for each in behind if each.has_failed]
    blocked: list[str] = []
    for each in (*leaving, *(each for each in behind if not each.has_failed)):
        if may_touch <= 0:
            blocked.append(each.cluster)
            continue
        may_touch -= 1
        (removed if each.state == UNSCHEDULED else forward).append(each.cluster)

    waiting = [each.cluster for each in rest if each.state == SCHEDULED]
    hopeful = sum(each.was_bound and not each.has_failed for each in rest)
    may_add = max(0, pace.desired + pace.max_surge - hopeful)
    added, late = waiting[:may_add], waiting[may_add:]
    return Steps((*forward, *added), tuple(removed), (*blocked, *late))


def _share(value: object, desired: int) -> int:
    text = str(_DEFAULT_SHARE if value is None else value)
    if text.endswith("%"):
        return ceil(desired * int(text.removesuffix("%")) / 100)
    return int(text)
