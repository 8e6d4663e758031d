"""A placement's bindings, one for each cluster: picked, rolled out, let go.

(none) ──picked──> Scheduled ──rolled out──> Bound ──no longer picked──> Unscheduled ──> (gone)
                                               ^────── picked again ─────────┘
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
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
