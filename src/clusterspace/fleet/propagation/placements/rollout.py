"""A placement's bindings, one for each cluster: picked, rolled out, let go.

(none) ──picked──> Scheduled ──rolled out──> Bound ──no longer picked──> Unscheduled ──> (gone)
                                               ^────── picked again ─────────┘
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import ceil
from typing import Any, Final

from clusterspace.apis.fleet_placements import (
    API_VERSION,
    BINDING,
    BOUND,
    PARENT,
    PREVIOUS_STATE,
    SCHEDULED,
    UNSCHEDULED,
    owner_reference,
)
from clusterspace.fleet.propagation.placements.picking import PickedCluster, Picking, Score
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    name_of,
    uid_of,
    with_metadata,
    with_value,
)

_PLACEMENT_PART: Final = 26
_CLUSTER_PART: Final = 27
_SUFFIX: Final = 8


@dataclass(frozen=True, slots=True)
class BindingChange:
    """A binding as it is to be; `before` is None for one that is not there yet."""

    cluster: str
    after: Object
    before: Object | None = None


def binding_name(placement: Object, cluster: str) -> str:
    """Return the name of a placement's binding to a cluster.

    The end of it looks random and is not: whoever makes the binding twice finds the first.
    """
    seed = f"{uid_of(placement)}/{cluster}".encode()
    suffix = sha256(seed).hexdigest()[:_SUFFIX]
    name = f"{name_of(placement)[:_PLACEMENT_PART]}-{cluster[:_CLUSTER_PART]}-{suffix}"
    return name.replace(".", "-")


def cluster_of(binding: Object) -> str:
    """Return which cluster a binding is to."""
    return str(find_at(binding, "spec", "targetCluster") or "")


def state_of(binding: Object) -> str:
    """Return how far a binding is."""
    return str(find_at(binding, "spec", "state") or "")


def snapshot_of(binding: Object) -> str:
    """Return which resource snapshot a cluster is to have; empty before it is rolled out."""
    return str(find_at(binding, "spec", "resourceSnapshotName") or "")


def was_bound(binding: Object) -> bool:
    """Whether a binding has brought anything to its cluster."""
    state = state_of(binding)
    previous = annotations_of(binding).get(PREVIOUS_STATE)
    return state == BOUND or (state == UNSCHEDULED and previous == BOUND)


def picked_by(binding: Object, policy_snapshot: str) -> PickedCluster:
    """Return the picked cluster that a binding stands for, as picking sees it."""
    score: Object = find_at(binding, "spec", "clusterDecision", "clusterScore") or {}
    return PickedCluster(
        cluster=cluster_of(binding),
        state=state_of(binding),
        is_current=find_at(binding, "spec", "schedulingPolicySnapshotName") == policy_snapshot,
        score=Score(int(score.get("priorityScore") or 0), int(score.get("affinityScore") or 0)),
    )


def plan_bindings(
    placement: Object,
    picking: Picking,
    policy_snapshot: str,
    existing: Mapping[str, Object],
) -> tuple[BindingChange, ...]:
    """Return the bindings to write so that they say what was picked; `existing` is by cluster."""
    changes: list[BindingChange] = []
    strategy: Object = find_at(placement, "spec", "strategy", "applyStrategy") or {}
    for cluster, decision in sorted(picking.picked.items()):
        before = existing.get(cluster)
        picked = {
            "schedulingPolicySnapshotName": policy_snapshot,
            "clusterDecision": decision.to_object(),
        }
        if before is None:
            after = {
                "apiVersion": API_VERSION,
                "kind": BINDING,
                "metadata": {
                    "name": binding_name(placement, cluster),
                    "labels": {PARENT: name_of(placement)},
                    "ownerReferences": [owner_reference(placement)],
                },
                "spec": {
                    "state": SCHEDULED,
                    "resourceSnapshotName": "",
                    "targetCluster": cluster,
                    **picked,
                    "applyStrategy": strategy,
                },
            }
        else:
            after = picked_again(before, picked, strategy)
        changes.append(BindingChange(cluster, after, before))
    for cluster, before in sorted(existing.items()):
        if cluster in picking.picked or state_of(before) == UNSCHEDULED:
            continue
        # No longer picked; it stays until the rollout gets to it.
        annotations = {**annotations_of(before), PREVIOUS_STATE: state_of(before)}
        left = with_value(before, UNSCHEDULED, "spec", "state")
        changes.append(BindingChange(cluster, with_metadata(left, annotations=annotations), before))
    return tuple(each for each in changes if each.after != each.before)


def rolled_out(binding: Object, snapshot_name: str) -> Object:
    """Return a binding by which its cluster is to have this resource snapshot."""
    spec: Object = binding.get("spec") or {}
    return {**binding, "spec": {**spec, "state": BOUND, "resourceSnapshotName": snapshot_name}}


def picked_again(binding: Object, picked: Mapping[str, Any], strategy: Object) -> Object:
    """Return a binding that is picked: by the newest policy, in the state it was in."""
    spec: Object = binding.get("spec") or {}
    is_current = spec.get("schedulingPolicySnapshotName") == picked["schedulingPolicySnapshotName"]
    if state_of(binding) == UNSCHEDULED:
        was = annotations_of(binding).get(PREVIOUS_STATE) or SCHEDULED
        notes = {k: v for k, v in annotations_of(binding).items() if k != PREVIOUS_STATE}
        binding = with_metadata(binding, annotations=notes or None)
        spec = {**spec, "state": was}
    elif is_current:
        picked = {}
    return {**binding, "spec": {**spec, **picked, "applyStrategy": strategy}}


# -- which clusters get the newest state now ---------------------------------------------------

# Within what the strategy allows at once:
#
#     ready clusters that may be touched = ready - (desired - maxUnavailable)
#     clusters that may be added = (desired + maxSurge) - those that are or may become ready
#
# One that has failed already is no loss, and waits for nobody.


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
