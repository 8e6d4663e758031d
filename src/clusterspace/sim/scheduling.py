"""Which node takes a pod: selectors, taints and room, and then the one with the most room left."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from clusterspace.kube.objects import Object, find_at, labels_of, name_of
from clusterspace.kube.quantities import parse_quantity
from clusterspace.kube.selectors import node_expression_holds, tolerates
from clusterspace.sim.api import Change, Key, Mirror, key_of
from clusterspace.sim.pods import containers_of, is_finished, resources_of

_OWN_FIELDS: Final = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})
_HARD: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Room:
    """An amount of what a node has: thousandths of a processor, bytes, pods, and anything else."""

    cpu: int = 0
    memory: int = 0
    pods: int = 0
    others: Mapping[str, int] = field(default_factory=dict[str, int])

    def __add__(self, other: "Room") -> "Room":
        return self._with(other, 1)

    def __sub__(self, other: "Room") -> "Room":
        return self._with(other, -1)

    def _with(self, other: "Room", sign: int) -> "Room":
        others = self.others
        if other.others:
            names = others.keys() | other.others.keys()
            others = {
                name: others.get(name, 0) + sign * other.others.get(name, 0) for name in names
            }
        return Room(
            self.cpu + sign * other.cpu,
            self.memory + sign * other.memory,
            self.pods + sign * other.pods,
            others,
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """A node, or why there is none."""

    node: str
    reason: str = ""


def request_of(pod: Object) -> Room:
    """Return the sum of what a pod's containers request."""
    total = Counter[str]()
    for container in containers_of(pod):
        for name, text in resources_of(container, "requests").items():
            quantity = parse_quantity(str(text))
            total[name] += quantity.milli if name == "cpu" else quantity.whole
    others = {name: size for name, size in total.items() if name not in _OWN_FIELDS}
    return Room(total["cpu"], total["memory"], 1, others)


def capacity_of(node: Object) -> Room:
    """Return the room a node has for pods: its allocatable."""
    given: Mapping[str, Any] = find_at(node, "status", "allocatable") or {}
    return Room(
        cpu=parse_quantity(str(given.get("cpu", "0"))).milli,
        memory=parse_quantity(str(given.get("memory", "0"))).whole,
        pods=parse_quantity(str(given.get("pods", "0"))).whole,
        others={
            name: parse_quantity(str(text)).whole
            for name, text in given.items()
            if name not in _OWN_FIELDS
        },
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
    if requested.memory > free.memory:
        return "Insufficient memory"
    short = (name for name, size in requested.others.items() if size > free.others.get(name, 0))
    return next((f"Insufficient {name}" for name in sorted(short)), "")


def takes_pod(node: Object, pod: Object) -> bool:
    """Whether a node would take the pod, if it had the room."""
    return _is_selected(node, pod) and _untolerated(node, pod) is None


# -- preemption ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Preemption:
    """A node that would take a pod if these left it."""

    node: str
    victims: tuple[Object, ...]


def priority_of(pod: Object) -> int:
    """Return how important a pod is."""
    return int(find_at(pod, "spec", "priority") or 0)


def choose_victims(
    pod: Object,
    nodes: Sequence[Object],
    pods_on: Callable[[str], Collection[Object]],
    is_protected: Callable[[Object], bool],
) -> Preemption | None:
    """Find the node on which the least is lost when less important pods make room; None if none.

    Pods that a disruption budget protects are spared where that is possible, then the more
    important ones.
    """
    if find_at(pod, "spec", "preemptionPolicy") == "Never":
        return None
    requested, priority = request_of(pod), priority_of(pod)
    found: list[tuple[tuple[Any, ...], Preemption]] = []
    for node in nodes:
        if not takes_pod(node, pod):
            continue
        present = pods_on(name_of(node))
        lower = [each for each in present if priority_of(each) < priority]
        free = capacity_of(node)
        for each in present:
            if priority_of(each) >= priority:
                free -= request_of(each)
        if not lower or _refusal(node, pod, free, requested):
            continue
        victims: list[Object] = []
        for each in sorted(lower, key=lambda one: (not is_protected(one), -priority_of(one))):
            left = free - request_of(each)
            if _refusal(node, pod, left, requested):
                victims.append(each)
            else:
                free = left  # it can stay
        lost = [priority_of(each) for each in victims]
        cost = (
            sum(map(is_protected, victims)),
            max(lost, default=0),
            sum(lost),
            len(lost),
            name_of(node),
        )
        found.append((cost, Preemption(name_of(node), tuple(victims))))
    return min(found, key=lambda each: each[0], default=((), None))[1]


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
        if requirements and all(
            node_expression_holds(each, values) for each, values in requirements
        ):
            return True
    return not terms


def required_node_terms(pod: Object) -> list[Object]:
    """Return the node selector terms of which a pod's node must match one; none: any will do."""
    affinity = ("spec", "affinity", "nodeAffinity")
    required = find_at(pod, *affinity, "requiredDuringSchedulingIgnoredDuringExecution")
    return find_at(required, "nodeSelectorTerms") or []


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
