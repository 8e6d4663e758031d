"""One look at a member into what an InternalMemberCluster tells: room, properties, health."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from clusterspace.apis.member_clusters import CLUSTER_ID, HEALTHY, NODE_COUNT
from clusterspace.fleet.membership.health import Health
from clusterspace.fleet.membership.summaries import pod_requests, total
from clusterspace.kube.conditions import FALSE, TRUE, Condition
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.quantities import ZERO, Quantity, parse_quantity
from clusterspace.kube.timestamps import format_time

_COUNTED: Final[tuple[str, ...]] = ("cpu", "memory")
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


def resource_usage(nodes: Sequence[Object], pods: Iterable[Object], now: float) -> Object:
    """Return what nodes have, what of it pods may use, and what bound pods leave of that."""
    capacity, allocatable = _offered(nodes, "capacity"), _offered(nodes, "allocatable")
    used = total(pod_requests(each) for each in pods if _is_running(each))
    free = {name: max(allocatable[name] - used.get(name, ZERO), ZERO) for name in _COUNTED}
    return {
        "capacity": _texts(capacity),
        "allocatable": _texts(allocatable),
        "available": _texts(free),
        "observationTime": format_time(now),
    }


def properties(nodes: Sequence[Object], cluster_id: str, now: float) -> Object:
    """Return what a cluster tells of itself, each with when it was seen."""
    told = {NODE_COUNT: str(len(nodes)), CLUSTER_ID: cluster_id}
    seen = format_time(now)
    return {
        name: {"value": value, "observationTime": seen} for name, value in told.items() if value
    }


def healthy_condition(health: Health, generation: int) -> Condition:
    """Return whether the member is well, with KubeFleet's reasons."""
    if health.is_ready:
        message = "the cluster says that it is ready"
        return Condition(HEALTHY, TRUE, "InternalMemberClusterHealthy", message, generation)
    message = health.why or "the cluster is not ready"
    return Condition(HEALTHY, FALSE, "InternalMemberClusterUnhealthy", message, generation)


def _is_running(pod: Object) -> bool:
    is_bound = bool(find_at(pod, "spec", "nodeName"))
    return is_bound and find_at(pod, "status", "phase") not in _FINISHED


def _offered(nodes: Iterable[Object], field: str) -> dict[str, Quantity]:
    summed: dict[str, Quantity] = dict.fromkeys(_COUNTED, ZERO)
    for node in nodes:
        for name in _COUNTED:
            summed[name] += parse_quantity(str(find_at(node, "status", field, name) or "0"))
    return summed


def _texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}
