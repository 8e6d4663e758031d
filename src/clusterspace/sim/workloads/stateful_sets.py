"""Pods with names that stay, one after the other, and the claims they mount."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clusterspace.kube.objects import (
    Object,
    find_at,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
)
from clusterspace.sim.plans import Plan, with_status
from clusterspace.sim.pods import (
    is_available,
    is_ending,
    is_finished,
    is_ready,
    next_availability,
)
from clusterspace.sim.workloads.plans import (
    MOST_AT_ONCE,
    POD_HASH,
    History,
    new_pod,
    plan_history,
    revision_of,
    template_in,
)


@dataclass(frozen=True, slots=True)
class _Set:
    """A StatefulSet with its pods by ordinal, and the revisions they may be of."""

    workload: Object
    pods: Mapping[int, Object]
    history: History
    revisions: Sequence[Object]
    now: float

    @property
    def ordinals(self) -> range:
        start = find_at(self.workload, "spec", "ordinals", "start") or 0
        return range(start, start + (find_at(self.workload, "spec", "replicas") or 0))

    @property
    def is_ordered(self) -> bool:
        return find_at(self.workload, "spec", "podManagementPolicy") != "Parallel"

    @property
    def partition(self) -> int:
        return find_at(self.workload, "spec", "updateStrategy", "rollingUpdate", "partition") or 0

    @property
    def min_ready(self) -> int:
        return find_at(self.workload, "spec", "minReadySeconds") or 0

    @property
    def update_revision(self) -> str:
        return name_of(self.history.current)

    @property
    def current_revision(self) -> str:
        reported = str(find_at(self.workload, "status", "currentRevision") or "")
        known = {name_of(each) for each in self.revisions}
        return reported if reported in known else self.update_revision

    def is_up(self, ordinal: int) -> bool:
        """Whether a pod is there and can be relied on."""
        pod = self.pods.get(ordinal)
        return pod is not None and is_available(pod, self.min_ready, self.now)


def ordinal_of(pod: Object, workload: Object) -> int | None:
    """Return the number in a pod's name; None when the name is not one of this StatefulSet's."""
    prefix = f"{name_of(workload)}-"
    number = name_of(pod).removeprefix(prefix)
    if not name_of(pod).startswith(prefix) or not number.isascii() or not number.isdigit():
        return None
    return int(number)


def plan_stateful_set(
    workload: Object, pods: Sequence[Object], revisions: Sequence[Object], now: float
) -> Plan:
    """Decide what a StatefulSet does about its pods and its history."""
    if is_ending(workload):
        return Plan()
    by_ordinal: dict[int, Object] = {}
    for pod in pods:
        ordinal = ordinal_of(pod, workload)
        if ordinal is not None:
            by_ordinal[ordinal] = pod
    history = plan_history(workload, revisions, pods)
    stateful = _Set(workload, by_ordinal, history, revisions, now)
    status = with_status(workload, _status(stateful))
    if not history.is_settled:
        return Plan(create=history.create, update=history.update, status=status)
    create = _missing(stateful)
    # One thing at a time: a pod that ended is removed before its name is free for a new one, and
    # nothing is taken away or replaced while something is still to come.
    delete = tuple(pod for pod in by_ordinal.values() if is_finished(pod) and not is_ending(pod))
    if not delete and not create:
        delete = _surplus(stateful) or _outdated(stateful)
    return Plan(
        create=create,
        delete=(*delete, *history.delete),
        status=status,
        again_after=next_availability(by_ordinal.values(), stateful.min_ready, now),
    )


# -- pods --------------------------------------------------------------------------------------


def _missing(stateful: _Set) -> tuple[Object, ...]:
    """Return the objects of the pods to create now: in order, only behind those that are up."""
    desired: list[Object] = []
    for ordinal in stateful.ordinals:
        if ordinal not in stateful.pods:
            desired += _new_objects(stateful, ordinal)
        elif stateful.is_ordered and not stateful.is_up(ordinal):
            break
        if len(desired) > MOST_AT_ONCE or (stateful.is_ordered and desired):
            break
    return tuple(desired)


def _new_objects(stateful: _Set, ordinal: int) -> list[Object]:
    """Return a pod and the claims it mounts; claims outlive their pod and are found again."""
    workload = stateful.workload
    is_updated = ordinal >= stateful.ordinals.start + stateful.partition
    revision = stateful.update_revision if is_updated else stateful.current_revision
    stored = next((each for each in stateful.revisions if name_of(each) == revision), None)
    name = f"{name_of(workload)}-{ordinal}"
    labels = {
        POD_HASH: revision,
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(ordinal),
    }
    template = template_in(stored or stateful.history.current)
    pod = new_pod(workload, template, name=name, labels=labels)

    match: Object = find_at(workload, "spec", "selector", "matchLabels") or {}
    claims: dict[str, Object] = {}
    for claim_template in find_at(workload, "spec", "volumeClaimTemplates") or ():
        volume = name_of(claim_template)
        claims[volume] = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                **metadata_of(claim_template),
                "name": f"{volume}-{name}",
                "namespace": namespace_of(workload),
                "labels": {**labels_of(claim_template), **match},
            },
            "spec": claim_template["spec"],
        }

    claimed: list[Object] = [
        {"name": volume, "persistentVolumeClaim": {"claimName": name_of(claim)}}
        for volume, claim in claims.items()
    ]
    volumes: list[Object] = find_at(pod, "spec", "volumes") or []
    given = [each for each in volumes if each["name"] not in claims]
    spec: Object = {**pod["spec"], "hostname": name, "volumes": [*claimed, *given]}
    if not spec["volumes"]:
        del spec["volumes"]
    service = find_at(workload, "spec", "serviceName")
    if service:
        spec["subdomain"] = service
    return [*claims.values(), {**pod, "spec": spec}]


def _surplus(stateful: _Set) -> tuple[Object, ...]:
    """Return the pods beyond the wanted ones that may go now, the highest first."""
    beyond = sorted((each for each in stateful.pods if each not in stateful.ordinals), reverse=True)
    leaving = [stateful.pods[each] for each in beyond]
    if not stateful.is_ordered:
        return tuple(pod for pod in leaving if not is_ending(pod))
    return () if not leaving or is_ending(leaving[0]) else (leaving[0],)


def _outdated(stateful: _Set) -> tuple[Object, ...]:
    """Return the next pod to be replaced: the highest of an old revision, when the rest are up."""
    kind = find_at(stateful.workload, "spec", "updateStrategy", "type") or "RollingUpdate"
    if kind != "RollingUpdate":
        return ()
    for ordinal in reversed(stateful.ordinals[stateful.partition :]):
        pod = stateful.pods.get(ordinal)
        if pod is None or is_ending(pod):
            return ()
        if revision_of(pod, stateful.workload) != stateful.update_revision:
            return (pod,)
        if not stateful.is_up(ordinal):
            return ()
    return ()


# -- status ------------------------------------------------------------------------------------


def _status(stateful: _Set) -> Object:
    workload = stateful.workload
    pods = [pod for pod in stateful.pods.values() if not is_ending(pod)]
    updated = [pod for pod in pods if revision_of(pod, workload) == stateful.update_revision]
    current = [pod for pod in pods if revision_of(pod, workload) == stateful.current_revision]
    ready = sum(is_ready(pod) for pod in pods)
    is_done = len(updated) == len(pods) == len(stateful.ordinals) and ready == len(pods)
    return {
        "replicas": len(pods),
        "readyReplicas": ready,
        "availableReplicas": sum(
            is_available(pod, stateful.min_ready, stateful.now) for pod in pods
        ),
        "updatedReplicas": len(updated),
        "currentReplicas": len(updated if is_done else current),
        "updateRevision": stateful.update_revision,
        "currentRevision": stateful.update_revision if is_done else stateful.current_revision,
        "observedGeneration": metadata_of(workload).get("generation"),
        "collisionCount": find_at(workload, "status", "collisionCount") or 0,
    }
