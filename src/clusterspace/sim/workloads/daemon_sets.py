"""One pod on every node that takes it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clusterspace.kube.objects import Object, find_at, metadata_of, name_of, with_value
from clusterspace.sim.pod_states import (
    is_available,
    is_ending,
    is_finished,
    is_ready,
    next_availability,
)
from clusterspace.sim.scheduling import takes_pod
from clusterspace.sim.workloads.plans import Plan, with_status
from clusterspace.sim.workloads.revisions import POD_HASH, History, plan_history, revision_of
from clusterspace.sim.workloads.rollouts import amount
from clusterspace.sim.workloads.templates import new_pod

_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
"""Troubles of a node that do not keep its daemons away."""


@dataclass(frozen=True, slots=True)
class _Daemons:
    """A DaemonSet with its nodes and the pods it has for each."""

    workload: Object
    nodes: tuple[str, ...]
    """Those that should have a pod."""
    pods: Mapping[str, Sequence[Object]]
    """What is there, by node."""
    history: History
    now: float

    @property
    def min_ready(self) -> int:
        return find_at(self.workload, "spec", "minReadySeconds") or 0

    def is_updated(self, pod: Object) -> bool:
        return revision_of(pod, self.workload) == name_of(self.history.current)


def plan_daemon_set(
    workload: Object,
    pods: Sequence[Object],
    revisions: Sequence[Object],
    nodes: Sequence[Object],
    now: float,
) -> Plan:
    """Decide what a DaemonSet does about its pods, node by node."""
    if is_ending(workload):
        return Plan()
    in_use = frozenset(revision_of(pod, workload) for pod in pods)
    history = plan_history(workload, revisions, in_use)
    held = _Daemons(workload, _eligible(workload, nodes), _by_node(pods), history, now)
    status = with_status(workload, _status(held))
    if not history.is_settled:
        return Plan(create=history.create, update=history.update, status=status)
    return Plan(
        create=tuple(_new_pod(held, node) for node in held.nodes if not held.pods.get(node)),
        delete=(*_unwanted(held), *_outdated(held), *history.delete),
        status=status,
        again_after=next_availability(pods, held.min_ready, now),
    )


def _eligible(workload: Object, nodes: Sequence[Object]) -> tuple[str, ...]:
    template: Object = find_at(workload, "spec", "template")
    sample = {"spec": _tolerant(template["spec"])}
    return tuple(sorted(name_of(node) for node in nodes if takes_pod(node, sample)))


def _tolerant(spec: Object) -> Object:
    given: list[Object] = spec.get("tolerations") or []
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
    return {**spec, "tolerations": [*given, *(each for each in added if each not in given)]}


def _by_node(pods: Sequence[Object]) -> Mapping[str, Sequence[Object]]:
    found: defaultdict[str, list[Object]] = defaultdict(list)
    for pod in pods:
        found[node_of(pod)].append(pod)
    return found


def node_of(pod: Object) -> str:
    """Return the node a daemon's pod is on, or is meant for while it waits to be bound."""
    bound = find_at(pod, "spec", "nodeName")
    if bound:
        return str(bound)
    affinity = ("spec", "affinity", "nodeAffinity")
    required = find_at(pod, *affinity, "requiredDuringSchedulingIgnoredDuringExecution")
    terms: list[Object] = find_at(required, "nodeSelectorTerms") or []
    for term in terms:
        fields: list[Object] = term.get("matchFields") or []
        for field in fields:
            return str((field.get("values") or [""])[0])
    return ""


def _new_pod(held: _Daemons, node: str) -> Object:
    template: Object = find_at(held.workload, "spec", "template")
    digest = name_of(held.history.current).removeprefix(f"{name_of(held.workload)}-")
    labels = {POD_HASH: digest, "pod-template-generation": str(_generation(held.workload))}
    pod = new_pod(held.workload, template, labels=labels)
    spec = _tolerant(pod["spec"])
    term = {
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}],
    }
    path = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return {**pod, "spec": with_value(spec, {"nodeSelectorTerms": [term]}, *path)}


def _generation(workload: Object) -> int:
    return metadata_of(workload).get("generation") or 1


def _unwanted(held: _Daemons) -> tuple[Object, ...]:
    """Return pods where none should be, all but one where one is enough, and those that ended."""
    unwanted: list[Object] = []
    for node, pods in held.pods.items():
        live = [pod for pod in pods if not is_ending(pod)]
        kept = 1 if node in held.nodes else 0
        unwanted += live[kept:]
        unwanted += [pod for pod in live[:kept] if is_finished(pod)]
    return tuple(unwanted)


def _outdated(held: _Daemons) -> tuple[Object, ...]:
    """Return pods of an old revision that may be replaced now: as many as may be missing."""
    strategy: Object = find_at(held.workload, "spec", "updateStrategy") or {}
    if (strategy.get("type") or "RollingUpdate") != "RollingUpdate":
        return ()
    given = find_at(strategy, "rollingUpdate", "maxUnavailable")
    most = amount(1 if given is None else given, len(held.nodes), round_up=True) or 1
    old: list[Object] = []
    missing = 0
    for node in held.nodes:
        live = [pod for pod in held.pods.get(node, ()) if not is_ending(pod)]
        is_up = bool(live) and is_available(live[0], held.min_ready, held.now)
        if live and not held.is_updated(live[0]):
            old.append(live[0])
        elif not is_up:
            missing += 1
    down = [pod for pod in old if not is_available(pod, held.min_ready, held.now)]
    up = [pod for pod in old if is_available(pod, held.min_ready, held.now)]
    # One that is down already can be replaced without anybody missing it.
    return (*down, *up[: max(0, most - missing - len(down))])


def _status(held: _Daemons) -> Object:
    on_node = {node: _live(held, node) for node in held.nodes}
    there = [pod for pod in on_node.values() if pod is not None]
    available = sum(is_available(pod, held.min_ready, held.now) for pod in there)
    strays = sum(
        any(not is_ending(pod) for pod in pods)
        for node, pods in held.pods.items()
        if node not in held.nodes
    )
    return {
        "currentNumberScheduled": len(there),
        "desiredNumberScheduled": len(held.nodes),
        "numberMisscheduled": strays,
        "numberReady": sum(is_ready(pod) for pod in there),
        "numberAvailable": available,
        "numberUnavailable": len(held.nodes) - available,
        "updatedNumberScheduled": sum(held.is_updated(pod) for pod in there),
        "observedGeneration": metadata_of(held.workload).get("generation"),
    }


def _live(held: _Daemons, node: str) -> Object | None:
    return next((pod for pod in held.pods.get(node, ()) if not is_ending(pod)), None)
