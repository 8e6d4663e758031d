"""One pod on every node that takes it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clusterspace.kube.objects import Object, find_at, metadata_of, name_of, with_value
from clusterspace.sim.plans import Plan, with_status
from clusterspace.sim.pods import (
    is_available,
    is_ending,
    is_finished,
    is_ready,
    next_availability,
)
from clusterspace.sim.scheduling import required_node_terms, takes_pod
from clusterspace.sim.workloads.plans import (
    POD_HASH,
    History,
    amount,
    new_pod,
    plan_history,
    revision_of,
)

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

    @property
    def surge(self) -> int:
        """How many nodes may have an old and a new pod at the same time in an update."""
        strategy: Object = find_at(self.workload, "spec", "updateStrategy") or {}
        if (strategy.get("type") or "RollingUpdate") != "RollingUpdate":
            return 0
        given = find_at(strategy, "rollingUpdate", "maxSurge") or 0
        return amount(given, len(self.nodes), round_up=True)

    def live_on(self, node: str) -> list[Object]:
        return [pod for pod in self.pods.get(node, ()) if not is_ending(pod)]

    def is_available(self, pod: Object) -> bool:
        return is_available(pod, self.min_ready, self.now)

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
    template: Object = find_at(workload, "spec", "template")
    sample = {"spec": _tolerant(template["spec"])}
    eligible = tuple(sorted(name_of(node) for node in nodes if takes_pod(node, sample)))
    by_node: defaultdict[str, list[Object]] = defaultdict(list)
    for pod in pods:
        by_node[node_of(pod)].append(pod)
    history = plan_history(workload, revisions, pods)
    daemons = _Daemons(workload, eligible, by_node, history, now)
    status = with_status(workload, _status(daemons))
    if not history.is_settled:
        return Plan(create=history.create, update=history.update, status=status)
    unwanted: list[Object] = []
    for node in by_node:
        # None where none should be, one where one is enough, and none that has ended.
        live = daemons.live_on(node)
        unwanted += [pod for pod in live if is_finished(pod)]
        running = [pod for pod in live if not is_finished(pod)]
        if node not in eligible:
            unwanted += running
        elif daemons.surge:
            unwanted += _replaced(daemons, running)
        else:
            unwanted += running[1:]
    missing = [node for node in eligible if not by_node.get(node)]
    return Plan(
        create=tuple(_new_daemon(daemons, node) for node in (*missing, *_surging(daemons))),
        delete=(*unwanted, *(() if daemons.surge else _outdated(daemons)), *history.delete),
        status=status,
        again_after=next_availability(pods, daemons.min_ready, now),
    )


def _tolerant(spec: Object) -> Object:
    given: list[Object] = spec.get("tolerations") or []
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
    return {**spec, "tolerations": [*given, *(each for each in added if each not in given)]}


def node_of(pod: Object) -> str:
    """Return the node a daemon's pod is on, or is meant for while it waits to be bound."""
    bound = find_at(pod, "spec", "nodeName")
    if bound:
        return str(bound)
    for term in required_node_terms(pod):
        for field in term.get("matchFields") or ():
            return str((field.get("values") or [""])[0])
    return ""


def _new_daemon(daemons: _Daemons, node: str) -> Object:
    """Return a pod that only this node takes."""
    workload = daemons.workload
    labels = {
        POD_HASH: name_of(daemons.history.current).removeprefix(f"{name_of(workload)}-"),
        "pod-template-generation": str(metadata_of(workload).get("generation") or 1),
    }
    pod = new_pod(workload, find_at(workload, "spec", "template"), labels=labels)
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    path = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    spec = with_value(_tolerant(pod["spec"]), {"nodeSelectorTerms": [term]}, *path)
    return {**pod, "spec": spec}


def _replaced(daemons: _Daemons, running: list[Object]) -> list[Object]:
    """Return the pods of a node that are too many: old ones once a new one can be relied on."""
    new = [pod for pod in running if daemons.is_updated(pod)]
    old = [pod for pod in running if not daemons.is_updated(pod)]
    if new and (daemons.is_available(new[0]) or not any(map(daemons.is_available, old))):
        return [*new[1:], *old]
    return [*new[1:], *old[1:]]


def _surging(daemons: _Daemons) -> list[str]:
    """Return the nodes that get a new pod beside their old one now: as many as may have two."""
    waiting: list[str] = []
    surging = 0
    for node in daemons.nodes:
        live = daemons.live_on(node)
        if not live or all(daemons.is_updated(pod) for pod in live):
            continue
        if any(daemons.is_updated(pod) for pod in live):
            surging += 1
        else:
            waiting.append(node)
    # An old pod that is down is no reason to wait.
    waiting.sort(key=lambda node: any(map(daemons.is_available, daemons.live_on(node))))
    return waiting[: max(0, daemons.surge - surging)]


def _outdated(daemons: _Daemons) -> tuple[Object, ...]:
    """Return pods of an old revision that may be replaced now: as many as may be missing."""
    strategy: Object = find_at(daemons.workload, "spec", "updateStrategy") or {}
    if (strategy.get("type") or "RollingUpdate") != "RollingUpdate":
        return ()
    given = find_at(strategy, "rollingUpdate", "maxUnavailable")
    most = amount(1 if given is None else given, len(daemons.nodes), round_up=True) or 1
    old: list[Object] = []
    missing = 0
    for node in daemons.nodes:
        live = daemons.live_on(node)
        if live and not daemons.is_updated(live[0]):
            old.append(live[0])
        elif not live or not daemons.is_available(live[0]):
            missing += 1
    down = [pod for pod in old if not daemons.is_available(pod)]
    up = [pod for pod in old if daemons.is_available(pod)]
    # One that is down already can be replaced without anybody missing it.
    return (*down, *up[: max(0, most - missing - len(down))])


def _status(daemons: _Daemons) -> Object:
    # Of two pods on a node the new one counts, unless only the old one can be relied on.
    present = [
        max(live, key=lambda pod: (daemons.is_available(pod), daemons.is_updated(pod)))
        for node in daemons.nodes
        if (live := daemons.live_on(node))
    ]
    strays = [node for node in daemons.pods if node not in daemons.nodes and daemons.live_on(node)]
    available = sum(daemons.is_available(pod) for pod in present)
    return {
        "currentNumberScheduled": len(present),
        "desiredNumberScheduled": len(daemons.nodes),
        "numberMisscheduled": len(strays),
        "numberReady": sum(is_ready(pod) for pod in present),
        "numberAvailable": available,
        "numberUnavailable": len(daemons.nodes) - available,
        "updatedNumberScheduled": sum(daemons.is_updated(pod) for pod in present),
        "observedGeneration": metadata_of(daemons.workload).get("generation"),
    }
