"""As many pods as asked for: ReplicaSets, and ReplicationControllers, which came before them."""

from collections.abc import Sequence

from clusterspace.errors import ApiError
from clusterspace.kube.conditions import Condition, is_true, remove_condition, set_condition
from clusterspace.kube.objects import Object, annotations_of, find_at, labels_of, metadata_of
from clusterspace.sim.plans import Plan, with_status
from clusterspace.sim.pods import (
    is_active,
    is_available,
    is_ending,
    is_ready,
    next_availability,
    phase_of,
    ready_since,
)
from clusterspace.sim.workloads.plans import MOST_AT_ONCE, new_pod

_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_REPLICA_FAILURE = "ReplicaFailure"


def plan_replica_set(replica_set: Object, pods: Sequence[Object], now: float) -> Plan:
    """Decide what a ReplicaSet or ReplicationController does about the pods it has."""
    active = [pod for pod in pods if is_active(pod)]
    min_ready: int = find_at(replica_set, "spec", "minReadySeconds") or 0
    template: Object = find_at(replica_set, "spec", "template") or {}
    labels = labels_of(template).items()
    present: list[Object] = find_at(replica_set, "status", "conditions") or []
    counted: Object = {
        "replicas": len(active),
        "fullyLabeledReplicas": sum(labels <= labels_of(pod).items() for pod in active),
        "readyReplicas": sum(is_ready(pod) for pod in active),
        "availableReplicas": sum(is_available(pod, min_ready, now) for pod in active),
        "observedGeneration": metadata_of(replica_set).get("generation"),
        "conditions": remove_condition(present, _REPLICA_FAILURE).conditions,
    }
    if replica_set["kind"] == "ReplicaSet":
        counted["terminatingReplicas"] = sum(is_ending(pod) for pod in pods)
    status = with_status(replica_set, counted)
    if is_ending(replica_set):
        return Plan(status=status)
    again_after = next_availability(active, min_ready, now)
    desired: int = find_at(replica_set, "spec", "replicas") or 0
    missing = min(desired - len(active), MOST_AT_ONCE)
    if missing < 0:
        # Sorting keeps the order of equals: of two that are alike the younger goes.
        youngest_first = sorted(
            active, key=lambda pod: str(metadata_of(pod).get("creationTimestamp")), reverse=True
        )
        surplus = sorted(youngest_first, key=_usefulness)[: len(active) - desired][:MOST_AT_ONCE]
        return Plan(delete=tuple(surplus), status=status, again_after=again_after)

    def refused(error: ApiError) -> Object | None:
        # Said once: the message names a pod that has another name each time it is tried, and a
        # status that changes would bring the workload back here without a pause.
        if is_true(present, _REPLICA_FAILURE):
            return None
        failure = Condition(_REPLICA_FAILURE, "True", "FailedCreate", error.message)
        conditions = set_condition(present, failure, now).conditions
        return with_status(replica_set, {**counted, "conditions": conditions})

    create = tuple(new_pod(replica_set, template) for _ in range(missing))
    return Plan(create=create, status=status, again_after=again_after, on_refusal=refused)


def _usefulness(pod: Object) -> tuple[bool, bool, bool, int, float]:
    """Order pods by what is lost with them: those that do least for the workload first."""
    since = ready_since(pod)
    cost = annotations_of(pod).get(_DELETION_COST, "0")
    return (
        bool(find_at(pod, "spec", "nodeName")),
        phase_of(pod) == "Running",
        since is not None,
        int(cost) if cost.removeprefix("-").isdecimal() else 0,
        0.0 if since is None else -since,
    )
