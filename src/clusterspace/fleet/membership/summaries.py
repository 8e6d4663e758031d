"""Nodes and pods to how much room a cluster has, and how much of it is used.

All of it is arithmetic on values. Zero is left out, as Kubernetes leaves it out.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias, cast

from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, find_at, name_of
from clusterspace.kube.quantities import ZERO, Quantity, parse_quantity

Amounts: TypeAlias = Mapping[str, Quantity]

PODS: Final = "pods"
_ONE_POD: Final[Amounts] = {PODS: Quantity(10**9)}
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


def node_summary(nodes: Sequence[Object]) -> Object:
    """Return how many nodes there are, and how many are ready."""
    ready = sum(is_true(find_at(node, "status", "conditions"), "Ready") for node in nodes)
    counts = {"totalNum": len(nodes), "readyNum": ready}
    return {key: count for key, count in counts.items() if count}


def resource_summary(
    nodes: Sequence[Object], pods: Iterable[Object], models: Sequence[Object]
) -> Object:
    """Return `status.resourceSummary`: allocatable, allocated, allocating, nodes by free room."""
    allocatable = total(_amounts(find_at(node, "status", "allocatable")) for node in nodes)
    allocating: Amounts = {}
    allocated: dict[str, Amounts] = {}
    for pod in pods:
        if find_at(pod, "status", "phase") in _FINISHED:
            continue
        requested = total((pod_requests(pod), _ONE_POD))
        node = str(find_at(pod, "spec", "nodeName") or "")
        if node:
            allocated[node] = total((allocated.get(node, {}), requested))
        else:
            allocating = total((allocating, requested))
    summary: Object = {
        "allocatable": texts(allocatable),
        "allocating": texts(allocating),
        "allocated": texts(total(allocated.values())),
        "allocatableModelings": _count_by_room(nodes, allocated, models),
    }
    return {key: value for key, value in summary.items() if value}


def pod_requests(pod: Object) -> Amounts:
    """Return the requests of a pod: its containers together, or one init container if it has more.

    https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
    """
    running = total(_requests_of(each) for each in _containers(pod, "containers"))
    sidecars: Amounts = {}
    highest: Amounts = {}
    for each in _containers(pod, "initContainers"):
        if each.get("restartPolicy") == "Always":
            sidecars = total((sidecars, _requests_of(each)))
            highest = _larger(highest, sidecars)
        else:
            highest = _larger(highest, total((sidecars, _requests_of(each))))
    overhead = _amounts(find_at(pod, "spec", "overhead"))
    return total((_larger(total((running, sidecars)), highest), overhead))


def total(several: Iterable[Amounts]) -> Amounts:
    """Return the sum of amounts, resource by resource."""
    summed: dict[str, Quantity] = {}
    for amounts in several:
        for resource, amount in amounts.items():
            summed[resource] = summed.get(resource, ZERO) + amount
    return summed


def texts(amounts: Amounts) -> dict[str, str]:
    """Return amounts as they are written, without the zeros."""
    return {resource: str(amounts[resource]) for resource in sorted(amounts) if amounts[resource]}


def grade_of(free: Amounts, models: Sequence[Object]) -> int | None:
    """Return the largest size of node that this much room makes; None when there is none.

    A size counts when every resource it names reaches its lower end.
    """
    grades: list[int] = []
    for model in models:
        ranges = cast("list[Object]", model.get("ranges") or [])
        if all(
            free.get(str(each["name"]), ZERO) >= parse_quantity(str(each["min"])) for each in ranges
        ):
            grades.append(int(model["grade"]))
    return max(grades, default=None)


def _count_by_room(
    nodes: Iterable[Object], allocated: Mapping[str, Amounts], models: Sequence[Object]
) -> list[Object]:
    counts = {int(model["grade"]): 0 for model in models}
    for node in nodes:
        used = allocated.get(name_of(node), {})
        offered = _amounts(find_at(node, "status", "allocatable"))
        free = {name: amount - used.get(name, ZERO) for name, amount in offered.items()}
        # Room for pods is room at all; a node without it has none, whatever else is free.
        grade = grade_of(free, models) if free.get(PODS, ZERO) > ZERO else None
        if grade is not None:
            counts[grade] += 1
    return [{"grade": grade, "count": counts[grade]} for grade in sorted(counts)]


def _larger(left: Amounts, right: Amounts) -> Amounts:
    resources = {**left, **right}
    return {each: max(left.get(each, ZERO), right.get(each, ZERO)) for each in resources}


def _requests_of(container: Object) -> Amounts:
    return _amounts(find_at(container, "resources", "requests"))


def _containers(pod: Object, key: str) -> list[Object]:
    return cast("list[Object]", find_at(pod, "spec", key) or [])


def _amounts(resource_list: object) -> Amounts:
    if not isinstance(resource_list, dict):
        return {}
    given = cast("dict[str, object]", resource_list)
    return {resource: parse_quantity(str(amount)) for resource, amount in given.items()}
