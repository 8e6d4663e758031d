"""What the hub is told of a member object's status: for known kinds what can be summed up later."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from clusterspace.apis import stamps
from clusterspace.apis.interpreter import kinds
from clusterspace.apis.interpreter.kinds import kind_of
from clusterspace.kube.objects import Object, annotations_of, find_at, metadata_of
from clusterspace.kube.resources import GroupKind


def reflect_status(live: Object) -> Object | None:
    """Return the status to tell of an object; None when there is nothing to tell."""
    reflect = _BY_KIND.get(kind_of(live), _whole)
    return reflect(live)


def _whole(live: Object) -> Object | None:
    status = live.get("status")
    return status or None


def _of_workload(*fields: str) -> Callable[[Object], Object | None]:
    """Reflect counters, and the generations that tell whether they are of the latest template."""

    def reflect(live: Object) -> Object | None:
        return _chosen(live, fields) | _generations(live)

    return reflect


def _of_fields(*fields: str) -> Callable[[Object], Object | None]:
    def reflect(live: Object) -> Object | None:
        return _chosen(live, fields) or None

    return reflect


def _service(live: Object) -> Object | None:
    if find_at(live, "spec", "type") != "LoadBalancer":
        return None
    return _chosen(live, ("loadBalancer",)) or None


def _chosen(live: Object, fields: tuple[str, ...]) -> Object:
    status: Mapping[str, Any] = live.get("status") or {}
    return {field: status[field] for field in fields if field in status}


def _generations(live: Object) -> Object:
    told: Object = {}
    generation = metadata_of(live).get("generation")
    if generation:
        told["generation"] = generation
    of_template = annotations_of(live).get(stamps.TEMPLATE_GENERATION, "")
    if of_template.isdecimal():
        told["resourceTemplateGeneration"] = int(of_template)
    return told


_BY_KIND: Final[Mapping[GroupKind, Callable[[Object], Object | None]]] = {
    kinds.DEPLOYMENT: _of_workload(
        "replicas",
        "readyReplicas",
        "updatedReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "observedGeneration",
    ),
    kinds.REPLICA_SET: _of_workload(
        "replicas", "readyReplicas", "availableReplicas", "observedGeneration"
    ),
    kinds.STATEFUL_SET: _of_workload(
        "availableReplicas",
        "currentReplicas",
        "readyReplicas",
        "replicas",
        "updatedReplicas",
        "observedGeneration",
    ),
    kinds.DAEMON_SET: _of_workload(
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "observedGeneration",
    ),
    kinds.JOB: _of_fields(
        "active", "succeeded", "failed", "conditions", "startTime", "completionTime"
    ),
    kinds.SERVICE: _service,
    kinds.DISRUPTION_BUDGET: _of_fields(
        "currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods", "disruptedPods"
    ),
    kinds.AUTOSCALER: _of_fields("currentReplicas", "desiredReplicas"),
}
