"""Which node takes a pod: selectors, taints and room, and then the one with the most room left."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusterspace.errors import MalformedSelector
from clusterspace.kube.objects import Object, find_at, labels_of, name_of
from clusterspace.kube.quantities import parse_quantity
from clusterspace.kube.selectors import Operator, require
from clusterspace.kube.taints import tolerates
from clusterspace.sim.api import Change, Key, Mirror, key_of
from clusterspace.sim.pods import containers_of, is_finished, resources_of

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
    """Return the sum of what a pod's containers request."""
    asked = [resources_of(container, "requests") for container in containers_of(pod)]
    return Room(
        cpu=sum(parse_quantity(str(each.get("cpu", "0"))).milli for each in asked),
        memory=sum(parse_quantity(str(each.get("memory", "0"))).whole for each in asked),
        pods=1,
    )


def capacity_of(node: Object) -> Room:
    """Return the room a node has for pods: its allocatable."""
    given: Mapping[str, Any] = find_at(node, "status", "allocatable") or {}
    return Room(
        cpu=parse_quantity(str(given.get("cpu", "0"))).milli,
        memory=parse_quantity(str(given.get("memory", "0"))).whole,
        pods=parse_quantity(str(given.get("pods", "0"))).whole,
    )


def choose_node(pod: Object, nodes: Sequence[Object], used: Mapping[str, Room]) -> Choice:
    """Pick the node with the most room left among those that take the pod."""
    free = {name_of(node): capacity_of(node) - used.get(name_of(node), Room()) for node in nodes}
    requested = request_of(pod)
    reasons = {name_of(node): _refusal(node, pod, free[name_of(node)], requested) for node in nodes}
    fitting = [name for name, reason in reasons.items() if not reason]
    if fitting:
        return Choice(min(fitting, key=lambda name: (-free[name].pods, -free[name].cpu, name)))
    counts = sorted(Counter(reasons.values()).items())
    listed = ", ".join(f"{count} {reason}" for reason, count in counts) or "there are none"
    return Choice("", f"0/{len(nodes)} nodes are available: {listed}.")


def _refusal(node: Object, pod: Object, free: Room, requested: Room) -> str:
    if not _is_selected(node, pod):
        return "node(s) didn't match Pod's node affinity/selector"
    taint = _untolerated(node, pod)
    if taint is not None:
        if taint.get("key") == "node.kubernetes.io/unschedulable":
            return "node(s) were unschedulable"
        return f"node(s) had untolerated taint {{{taint.get('key')}: {taint.get('value') or ''}}}"
    if requested.pods > free.pods:
        return "Too many pods"
    if requested.cpu > free.cpu:
        return "Insufficient cpu"
    return "Insufficient memory" if requested.memory > free.memory else ""


def takes_pod(node: Object, pod: Object) -> bool:
    """Whether a node would take the pod, if it had the room."""
    return _is_selected(node, pod) and _untolerated(node, pod) is None


# -- selectors ---------------------------------------------------------------------------------


def _is_selected(node: Object, pod: Object) -> bool:
    selector: Mapping[str, str] = find_at(pod, "spec", "nodeSelector") or {}
    if not selector.items() <= labels_of(node).items():
        return False
    terms = required_node_terms(pod)
    fields = {"metadata.name": name_of(node)}
    for term in terms:
        # A term without any requirement selects nothing.
        requirements = [
            *((each, labels_of(node)) for each in term.get("matchExpressions") or ()),
            *((each, fields) for each in term.get("matchFields") or ()),
        ]
        if requirements and all(_holds(each, values) for each, values in requirements):
            return True
    return not terms


def required_node_terms(pod: Object) -> list[Object]:
    """Return the node selector terms of which a pod's node must match one; none: any will do."""
    affinity = ("spec", "affinity", "nodeAffinity")
    required = find_at(pod, *affinity, "requiredDuringSchedulingIgnoredDuringExecution")
    return find_at(required, "nodeSelectorTerms") or []


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


# -- room --------------------------------------------------------------------------------------


class PodsByNode:
    """Which pods are on which node, and what they take up.

    It watches the mirror and counts as it goes, so that choosing a node looks at no other pod.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._on_node: defaultdict[str, dict[Key, Object]] = defaultdict(dict)
        self._node_of: dict[Key, str] = {}
        self._used: defaultdict[str, Room] = defaultdict(Room)
        mirror.watch(self._see)

    @property
    def used(self) -> Mapping[str, Room]:
        """What the pods of each node take up."""
        return self._used

    def on_node(self, node: str) -> Collection[Object]:
        """Return the pods of a node that have not ended."""
        return self._on_node.get(node, {}).values()

    def _see(self, change: Change) -> None:
        if change.kind != "Pod":
            return
        key, pod = key_of(change.latest), change.after
        before = self._node_of.pop(key, None)
        if before is not None:
            self._used[before] -= request_of(self._on_node[before].pop(key))
        node = find_at(pod, "spec", "nodeName")
        if node and pod is not None and not is_finished(pod):
            self._node_of[key] = node
            self._on_node[node][key] = pod
            self._used[node] += request_of(pod)
