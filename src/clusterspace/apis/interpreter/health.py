"""Whether a member object does what it is there for; a kind nobody knows is taken for healthy."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from clusterspace.apis.interpreter import kinds
from clusterspace.apis.interpreter.kinds import kind_of
from clusterspace.apis.works import HEALTHY, UNHEALTHY
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, find_at, metadata_of
from clusterspace.kube.resources import GroupKind


def health_of(live: Object) -> str:
    """Return Healthy or Unhealthy."""
    is_healthy = _BY_KIND.get(kind_of(live))
    return HEALTHY if is_healthy is None or is_healthy(live) else UNHEALTHY


def _deployment(live: Object) -> bool:
    updated = _count(live, "updatedReplicas")
    return (
        _is_observed(live)
        and updated >= _wanted(live)
        and _count(live, "availableReplicas") >= updated
    )


def _replica_set(live: Object) -> bool:
    return _is_observed(live) and _count(live, "availableReplicas") >= _wanted(live)


def _daemon_set(live: Object) -> bool:
    updated = _count(live, "updatedNumberScheduled")
    return (
        _is_observed(live)
        and updated >= _count(live, "desiredNumberScheduled")
        and _count(live, "numberAvailable") >= updated
    )


def _pod(live: Object) -> bool:
    phase = find_at(live, "status", "phase")
    is_ready = is_true(find_at(live, "status", "conditions"), "Ready")
    return phase == "Succeeded" or (phase == "Running" and is_ready)


def _service(live: Object) -> bool:
    return find_at(live, "spec", "type") != "LoadBalancer" or _has_entrance(live)


def _has_entrance(live: Object) -> bool:
    return bool(find_at(live, "status", "loadBalancer", "ingress"))


def _claim(live: Object) -> bool:
    return find_at(live, "status", "phase") == "Bound"


def _disruption_budget(live: Object) -> bool:
    return _count(live, "currentHealthy") >= _count(live, "desiredHealthy")


def _is_observed(live: Object) -> bool:
    """Whether the status is about the spec there is now, and not about an earlier one."""
    return find_at(live, "status", "observedGeneration") == metadata_of(live).get("generation")


def _wanted(live: Object) -> int:
    replicas: Any = find_at(live, "spec", "replicas")
    return replicas if isinstance(replicas, int) else 1


def _count(live: Object, field: str) -> int:
    held: Any = find_at(live, "status", field)
    return held if isinstance(held, int) else 0


_BY_KIND: Final[Mapping[GroupKind, Callable[[Object], bool]]] = {
    kinds.DEPLOYMENT: _deployment,
    kinds.REPLICA_SET: _replica_set,
    kinds.STATEFUL_SET: _deployment,
    kinds.DAEMON_SET: _daemon_set,
    kinds.POD: _pod,
    kinds.SERVICE: _service,
    kinds.INGRESS: _has_entrance,
    kinds.CLAIM: _claim,
    kinds.DISRUPTION_BUDGET: _disruption_budget,
}
