"""As many pods as asked for."""

from collections.abc import Sequence

from clusterspace.kube.objects import Object, find_at, labels_of, metadata_of
from clusterspace.sim.pods import (
    is_active,
    is_available,
    is_ending,
    is_ready,
    next_availability,
    phase_of,
    ready_since,
)
from clusterspace.sim.workloads.plans import MOST_AT_ONCE, Plan, new_pod, with_status


def plan_replica_set(replica_set: Object, pods: Sequence[Object], now: float) -> Plan:
    """Decide what a ReplicaSet does about the pods it has."""
    active = [pod for pod in pods if is_active(pod)]
    min_ready: int = find_at(replica_set, "spec", "minReadySeconds") or 0
    template: Object = find_at(replica_set, "spec", "template") or {}
    labels = labels_of(template).items()
    counted: Object = {
        "replicas": len(active),
        "fullyLabeledReplicas": sum(labels <= labels_of(pod).items() for pod in active),
        "readyReplicas": sum(is_ready(pod) for pod in active),
        "availableReplicas": sum(is_available(pod, min_ready, now) for pod in active),
        "terminatingReplicas": sum(is_ending(pod) for pod in pods),
        "observedGeneration": metadata_of(replica_set).get("generation"),
        "conditions": find_at(replica_set, "status", "conditions"),
    }
    status = with_status(replica_set, counted)
    if is_ending(replica_set):
        return Plan(status=status)
    again_after = next_availability(active, min_ready, now)
    desired: int = find_at(replica_set, "spec", "replicas") or 0
    missing = min(desired - len(active), MOST_AT_ONCE)
    if missing >= 0:
        create = tuple(new_pod(replica_set, template) for _ in range(missing))
        return Plan(create=create, status=status, again_after=again_after)
    # Sorting keeps the order of equals: of two that are alike the younger goes.
    youngest_first = sorted(
        active, key=lambda pod: str(metadata_of(pod).get("creationTimestamp")), reverse=True
    )
    surplus = sorted(youngest_first, key=_usefulness)[: len(active) - desired][:MOST_AT_ONCE]
    return Plan(delete=tuple(surplus), status=status, again_after=again_after)


def _usefulness(pod: Object) -> tuple[bool, bool, bool, float]:
    """Order pods by what is lost with them: those that do least for the workload first."""
    since = ready_since(pod)
    return (
        bool(find_at(pod, "spec", "nodeName")),
        phase_of(pod) == "Running",
        since is not None,
        0.0 if since is None else -since,
    )
