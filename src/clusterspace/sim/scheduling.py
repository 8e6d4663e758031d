"""Which node takes a pod: selectors, taints and room, and then the one with the most room left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusterspace.errors import MalformedSelector
from clusterspace.kube.objects import Object, find_at, labels_of, name_of
from clusterspace.kube.quantities import parse_quantity
from clusterspace.kube.selectors import Operator, require
from clusterspace.kube.taints import tolerates
from clusterspace.sim.pod_states import containers_of, resources_of

_HARD: Final = ("NoSchedule", "NoExecute")
_OPERATORS: Final = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
    "Gt": Operator.GREATER_THAN,
    "Lt": Operator.LESS_THAN,
}


@dataclass(frozen=True, slots=True)
class Room:
    """An amount of what a node has: thousandths of a processor, bytes, pods."""

    cpu: int = 0
    memory: int = 0
    pods: int = 0

    def __add__(self, other: "Room") -> "Room":
        return Room(self.cpu + other.cpu, self.memory + other.memory, self.pods + other.pods)

    def __sub__(self, other: "Room") -> "Room":
        return Room(self.cpu - other.cpu, self.memory - other.memory, self.pods - other.pods)


@dataclass(frozen=True, slots=True)
class Choice:
    """A node, or why there is none."""

    node: str
    reason: str = ""


def request_of(pod: Object) -> Room:
    """Return what a pod asks for."""
    asked = [resources_of(container, "requests") for container in containers_of(pod)]
    return Room(
        cpu=sum(parse_quantity(str(each.get("cpu", "0"))).milli for each in asked),
        memory=sum(parse_quantity(str(each.get("memory", "0"))).whole for each in asked),
        pods=1,
    )


def capacity_of(node: Object) -> Room:
    """Return what a node can give."""
    given: Mapping[str, Any] = find_at(node, "status", "allocatable") or {}
    return Room(
        cpu=parse_quantity(str(given.get("cpu", "0"))).milli,
        memory=parse_quantity(str(given.get("memory", "0"))).whole,
        pods=parse_quantity(str(given.get("pods", "0"))).whole,
    )


def choose_node(pod: Object, nodes: Sequence[Object], used: Mapping[str, Room]) -> Choice:
    """Pick the node with the most room left among those that take the pod."""
    free = {name_of(node): capacity_of(node) - used.get(name_of(node), Room()) for node in nodes}
    wanted = request_of(pod)
    reasons = {name_of(node): _refusal(node, pod, free[name_of(node)], wanted) for node in nodes}
    fitting = [name for name, reason in reasons.items() if not reason]
    if not fitting:
        return Choice("", _summary(reasons))
    return Choice(min(fitting, key=lambda name: (-free[name].pods, -free[name].cpu, name)))


def _refusal(node: Object, pod: Object, free: Room, wanted: Room) -> str:
    if not _is_selected(node, pod):
        return "node(s) didn't match Pod's node affinity/selector"
    taint = _untolerated(node, pod)
    if taint is not None:
        if taint.get("key") == "node.kubernetes.io/unschedulable":
            return "node(s) were unschedulable"
        return f"node(s) had untolerated taint {{{taint.get('key')}: {taint.get('value') or ''}}}"
    if wanted.pods > free.pods:
        return "Too many pods"
    if wanted.cpu > free.cpu:
        return "Insufficient cpu"
    return "Insufficient memory" if wanted.memory > free.memory else ""


def _summary(reasons: Mapping[str, str]) -> str:
    counts: dict[str, int] = {}
    for reason in reasons.values():
        counts[reason] = counts.get(reason, 0) + 1
    listed = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    return f"0/{len(reasons)} nodes are available: {listed or 'there are none'}."


def takes_pod(node: Object, pod: Object) -> bool:
    """Whether a node would take the pod, if it had the room."""
    return _is_selected(node, pod) and _untolerated(node, pod) is None


# -- selectors ---------------------------------------------------------------------------------


def _is_selected(node: Object, pod: Object) -> bool:
    wanted: Mapping[str, str] = find_at(pod, "spec", "nodeSelector") or {}
    if not wanted.items() <= labels_of(node).items():
        return False
    affinity = ("spec", "affinity", "nodeAffinity")
    required = find_at(pod, *affinity, "requiredDuringSchedulingIgnoredDuringExecution")
    terms: list[Object] = find_at(required, "nodeSelectorTerms") or []
    return not terms or any(_matches(node, term) for term in terms)


def _matches(node: Object, term: Object) -> bool:
    expressions: list[Object] = term.get("matchExpressions") or []
    fields: list[Object] = term.get("matchFields") or []
    own = {"metadata.name": name_of(node)}
    held = (*((each, labels_of(node)) for each in expressions), *((each, own) for each in fields))
    return bool(held) and all(_holds(expression, values) for expression, values in held)


def _holds(expression: Object, values: Mapping[str, str]) -> bool:
    """Whether one expression holds; one that makes no sense selects nothing."""
    operator = _OPERATORS.get(str(expression.get("operator")))
    if operator is None:
        return False
    try:
        requirement = require(str(expression["key"]), operator, expression.get("values") or ())
    except MalformedSelector:
        return False
    return requirement.matches(values)


# -- taints ------------------------------------------------------------------------------------


def _untolerated(node: Object, pod: Object) -> Object | None:
    """Return the first taint that keeps the pod away."""
    taints: list[Object] = [*(find_at(node, "spec", "taints") or [])]
    if find_at(node, "spec", "unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    tolerations: list[Object] = find_at(pod, "spec", "tolerations") or []
    for taint in taints:
        if taint.get("effect") in _HARD and not any(tolerates(t, taint) for t in tolerations):
            return taint
    return None
