"""Whether a member object does what it is there for; a kind nobody knows is taken for healthy."""

from typing import Any

from clusterspace.apis.interpreter import kinds
from clusterspace.apis.works import HEALTHY, UNHEALTHY
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, find_at, metadata_of


def health_of(live: Object) -> str:
    """Return Healthy or Unhealthy."""
    return HEALTHY if _is_healthy(live) else UNHEALTHY


def _is_healthy(live: Object) -> bool:
    status: Object = find_at(live, "status") or {}
    # The status must be about the spec there is now, and not about an earlier one.
    is_observed = status.get("observedGeneration") == metadata_of(live).get("generation")
    replicas: Any = find_at(live, "spec", "replicas")
    desired = replicas if isinstance(replicas, int) else 1

    def count(field: str) -> int:
        value: Any = status.get(field)
        return value if isinstance(value, int) else 0

    match kinds.kind_of(live):
        case kinds.DEPLOYMENT | kinds.STATEFUL_SET:
            updated = count("updatedReplicas")
            return is_observed and updated >= desired and count("availableReplicas") >= updated
        case kinds.REPLICA_SET:
            return is_observed and count("availableReplicas") >= desired
        case kinds.DAEMON_SET:
            updated = count("updatedNumberScheduled")
            are_updated = updated >= count("desiredNumberScheduled")
            return is_observed and are_updated and count("numberAvailable") >= updated
        case kinds.POD:
            phase, is_ready = status.get("phase"), is_true(status.get("conditions"), "Ready")
            return phase == "Succeeded" or (phase == "Running" and is_ready)
        case kinds.SERVICE if find_at(live, "spec", "type") != "LoadBalancer":
            return True
        case kinds.SERVICE | kinds.INGRESS:
            return bool(find_at(status, "loadBalancer", "ingress"))
        case kinds.CLAIM:
            return status.get("phase") == "Bound"
        case kinds.DISRUPTION_BUDGET:
            return count("currentHealthy") >= count("desiredHealthy")
        case _:
            return True
