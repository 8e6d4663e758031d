"""Active, ready, available: what workloads count."""

from collections.abc import Iterable
from typing import Any, cast

from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, metadata_of
from clusterspace.kube.timestamps import parse_time

_FINISHED = ("Succeeded", "Failed")


def phase_of(pod: Object) -> str:
    """Return the pod's phase; a pod nobody has looked at is Pending."""
    return str(find_at(pod, "status", "phase") or "Pending")


def is_ending(kube_object: Object) -> bool:
    """Whether an object has been deleted and is only waiting to go."""
    return bool(metadata_of(kube_object).get("deletionTimestamp"))


def is_finished(pod: Object) -> bool:
    """Whether the pod's containers have ended for good."""
    return phase_of(pod) in _FINISHED


def is_active(pod: Object) -> bool:
    """Whether the pod counts as one of a workload's replicas."""
    return not is_ending(pod) and not is_finished(pod)


def ready_since(pod: Object) -> float | None:
    """Return when the pod became ready; None when it is not."""
    conditions: list[Any] | None = find_at(pod, "status", "conditions")
    ready = find_condition(conditions, "Ready")
    if ready is None or ready.get("status") != "True":
        return None
    return parse_time(str(ready["lastTransitionTime"]))


def is_ready(pod: Object) -> bool:
    """Whether the pod takes traffic."""
    return ready_since(pod) is not None and not is_ending(pod)


def is_available(pod: Object, min_ready_seconds: int, now: float) -> bool:
    """Whether the pod has been ready for long enough to be relied on."""
    since = ready_since(pod)
    return since is not None and not is_ending(pod) and now >= since + min_ready_seconds


def next_availability(pods: Iterable[Object], min_ready_seconds: int, now: float) -> float | None:
    """Return how long until the next ready pod becomes available; None when none will."""
    waits = [
        since + min_ready_seconds - now
        for since in map(ready_since, pods)
        if since is not None and since + min_ready_seconds > now
    ]
    return min(waits, default=None)


def resources_of(container: Object, which: str) -> dict[str, str]:
    """Return a container's requests or limits."""
    return cast("dict[str, str]", find_at(container, "resources", which) or {})


def containers_of(pod: Object) -> list[Object]:
    """Return the pod's containers."""
    return cast("list[Object]", find_at(pod, "spec", "containers") or [])
