"""How much room a cluster has: arithmetic on its nodes, pods and quotas, as Cluster.status has it.

    nodes, pods ──> nodeSummary, resourceSummary    all in all, as Karmada has it
    and quotas  ──> estimate                        node by node, for what fits where

Zero is left out, as Kubernetes leaves it out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, cast

from clusterspace.apis.estimates import (
    MOST_QUOTAS,
    PODS,
    Amounts,
    Claim,
    NodeGroup,
    NodeRoom,
    bounded,
    estimate_nodes,
    texts,
    write_estimate,
    write_quota,
)
from clusterspace.kube.conditions import TRUE, find_condition, is_true
from clusterspace.kube.objects import Object, find_at, labels_of, name_of
from clusterspace.kube.quantities import ZERO, Quantity, parse_quantity

_MOST_PENDING: Final = 50
"""Kinds of pods without a node that are put on nodes in thought."""

_ONE_POD: Final[Amounts] = {PODS: Quantity(10**9)}
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


def node_summary(nodes: Sequence[Object]) -> Object:
    """Return how many nodes there are, and how many are ready."""
    ready = sum(is_true(find_at(node, "status", "conditions"), "Ready") for node in nodes)
    counts = {"totalNum": len(nodes), "readyNum": ready}
    return {key: count for key, count in counts.items() if count}


@dataclass(frozen=True, slots=True)
class Usage:
    """What the pods of a cluster take: by node, and what has no node yet."""

    by_node: Mapping[str, Amounts]
    pending: Mapping[str, tuple[Claim, int]]
    """Pods that ask for the same, by what they ask for, and how many of them there are."""


def usage_of(pods: Iterable[Object]) -> Usage:
    """Add up what pods take that have not ended."""
    by_node: dict[str, Amounts] = {}
    pending: dict[str, tuple[Claim, int]] = {}
    for pod in pods:
        if find_at(pod, "status", "phase") in _FINISHED:
            continue
        node = str(find_at(pod, "spec", "nodeName") or "")
        if node:
            by_node[node] = total((by_node.get(node, {}), pod_requests(pod), _ONE_POD))
            continue
        spec: Object = pod.get("spec") or {}
        affinity = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
        claim = Claim(
            each=pod_requests(pod),
            node_selector=spec.get("nodeSelector") or {},
            node_terms=tuple(find_at(spec, *affinity, "nodeSelectorTerms") or ()),
            tolerations=tuple(spec.get("tolerations") or ()),
        )
        key = repr(claim)
        pending[key] = claim, pending[key][1] + 1 if key in pending else 1
    return Usage(by_node, pending)


def resource_summary(nodes: Sequence[Object], usage: Usage, models: Sequence[Object]) -> Object:
    """Return `status.resourceSummary`: allocatable, allocated, allocating, nodes by free room."""
    allocating = total(
        {name: amount * count for name, amount in total((claim.each, _ONE_POD)).items()}
        for claim, count in usage.pending.values()
    )
    summary: Object = {
        "allocatable": texts(
            total(_amounts(find_at(node, "status", "allocatable")) for node in nodes)
        ),
        "allocating": texts(allocating),
        "allocated": texts(total(usage.by_node.values())),
        "allocatableModelings": _count_by_room(nodes, usage.by_node, models),
    }
    return {key: value for key, value in summary.items() if value}


def estimate_of(
    nodes: Sequence[Object], usage: Usage, quotas: Sequence[Object] | None, before: Object
) -> Object:
    """Return `status.estimate`: what can still be taken, node by node and by quotas.

    Quotas of None could not be read: what was known of them stays. Nothing is told of nodes that
    are too different for a few groups, or of a cluster that shows none: then the summary counts.
    """
    groups: list[NodeGroup] = []
    for node in nodes:
        used = usage.by_node.get(name_of(node), {})
        offered = _amounts(find_at(node, "status", "allocatable"))
        free = {name: max(amount - used.get(name, ZERO), ZERO) for name, amount in offered.items()}
        free = {name: amount for name, amount in free.items() if amount}
        taints = [
            {name: text for name, text in taint.items() if name in ("key", "value", "effect")}
            for taint in cast("list[Object]", find_at(node, "spec", "taints") or [])
            if taint.get("effect") in ("NoSchedule", "NoExecute")
        ]
        # Members taint such nodes themselves, a little later.
        ready = find_condition(find_at(node, "status", "conditions"), "Ready")
        for is_so, key in (
            (find_at(node, "spec", "unschedulable"), "node.kubernetes.io/unschedulable"),
            (ready and ready.get("status") != TRUE, "node.kubernetes.io/not-ready"),
        ):
            if is_so and all(taint.get("key") != key for taint in taints):
                taints.append({"key": key, "effect": "NoSchedule"})
        rooms = (NodeRoom(1, free),) if free.get(PODS) else ()
        labels = {key: str(value) for key, value in labels_of(node).items()}
        groups.append(NodeGroup(labels, tuple(taints), rooms))
    written: Object = {}
    present = estimate_nodes(groups) if groups else None
    if present is not None:
        # What waits for a node will take one, unless it fits nowhere. In a cluster that is full
        # there may be thousands of different ones, and then there is no room to be wrong about.
        for claim, count in islice(usage.pending.values(), _MOST_PENDING):
            present = bounded(present.without(claim, count))
        written = write_estimate(present)
    if quotas is None:
        known: list[Object] = before.get("quotas") or []
    else:
        found = (write_quota(each) for each in quotas)
        known = sorted((e for e in found if e), key=lambda e: (e["namespace"], e["name"]))
    if known:
        written["quotas"] = known[:MOST_QUOTAS]
    return written


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
