"""Pods with names that stay, one after the other."""

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
from clusterspace.sim.pod_states import (
    is_available,
    is_ending,
    is_finished,
    is_ready,
    next_availability,
)
from clusterspace.sim.workloads.plans import MOST_AT_ONCE, Plan, with_status
from clusterspace.sim.workloads.revisions import (
    POD_HASH,
    History,
    plan_history,
    revision_of,
    template_in,
)
from clusterspace.sim.workloads.templates import new_pod


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
        held = str(find_at(self.workload, "status", "currentRevision") or "")
        known = {name_of(each) for each in self.revisions}
        return held if held in known else self.update_revision

    def is_up(self, ordinal: int) -> bool:
        """Whether a pod is there and can be relied on."""
        pod = self.pods.get(ordinal)
        return pod is not None and is_available(pod, self.min_ready, self.now)


def plan_stateful_set(
    workload: Object, pods: Sequence[Object], revisions: Sequence[Object], now: float
) -> Plan:
    """Decide what a StatefulSet does about its pods and its history."""
    if is_ending(workload):
        return Plan()
    in_use = frozenset(revision_of(pod, workload) for pod in pods)
    history = plan_history(workload, revisions, in_use)
    held = _Set(workload, _by_ordinal(workload, pods), history, revisions, now)
    status = with_status(workload, _status(held))
    if not history.is_settled:
        return Plan(create=history.create, update=history.update, status=status)
    create = _missing(held)
    delete = _finished(held) or (() if create else _surplus(held) or _outdated(held))
    return Plan(
        create=create,
        delete=(*delete, *history.delete),
        status=status,
        again_after=next_availability(held.pods.values(), held.min_ready, now),
    )


def _by_ordinal(workload: Object, pods: Sequence[Object]) -> dict[int, Object]:
    prefix = f"{name_of(workload)}-"
    found: dict[int, Object] = {}
    for pod in pods:
        ordinal = name_of(pod).removeprefix(prefix)
        if ordinal.isascii() and ordinal.isdigit():
            found[int(ordinal)] = pod
    return found


# -- pods --------------------------------------------------------------------------------------


def _missing(held: _Set) -> tuple[Object, ...]:
    """Return the objects of the pods to create now: in order, only behind those that are up."""
    wanted: list[Object] = []
    for ordinal in held.ordinals:
        if ordinal not in held.pods:
            wanted += _new_objects(held, ordinal)
        elif held.is_ordered and not held.is_up(ordinal):
            break
        if len(wanted) > MOST_AT_ONCE or (held.is_ordered and wanted):
            break
    return tuple(wanted)


def _new_objects(held: _Set, ordinal: int) -> list[Object]:
    """Return a pod and the claims it mounts; claims outlive their pod and are found again."""
    is_updated = ordinal >= held.ordinals.start + held.partition
    revision = held.update_revision if is_updated else held.current_revision
    kept = next((each for each in held.revisions if name_of(each) == revision), None)
    template = template_in(kept or held.history.current)
    name = f"{name_of(held.workload)}-{ordinal}"
    labels = {
        POD_HASH: revision,
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(ordinal),
    }
    pod = new_pod(held.workload, template, name=name, labels=labels)
    claims = _claims(held.workload, name)
    return [*claims.values(), _with_identity(pod, held.workload, claims)]


def _claims(workload: Object, pod_name: str) -> dict[str, Object]:
    """Return the claims of one pod by the volume they are mounted as."""
    templates: list[Object] = find_at(workload, "spec", "volumeClaimTemplates") or []
    match: Object = find_at(workload, "spec", "selector", "matchLabels") or {}
    found: dict[str, Object] = {}
    for template in templates:
        volume = name_of(template)
        metadata: Object = {
            **metadata_of(template),
            "name": f"{volume}-{pod_name}",
            "namespace": namespace_of(workload),
            "labels": {**labels_of(template), **match},
        }
        claim: Object = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
        found[volume] = {**claim, "spec": template["spec"]}
    return found


def _with_identity(pod: Object, workload: Object, claims: Mapping[str, Object]) -> Object:
    own: list[Object] = [
        {"name": volume, "persistentVolumeClaim": {"claimName": name_of(claim)}}
        for volume, claim in claims.items()
    ]
    volumes: list[Object] = find_at(pod, "spec", "volumes") or []
    given = [each for each in volumes if each["name"] not in claims]
    spec: Object = {**pod["spec"], "hostname": name_of(pod), "volumes": [*own, *given]}
    if not spec["volumes"]:
        del spec["volumes"]
    service = find_at(workload, "spec", "serviceName")
    if service:
        spec["subdomain"] = service
    return {**pod, "spec": spec}


def _finished(held: _Set) -> tuple[Object, ...]:
    return tuple(pod for pod in held.pods.values() if is_finished(pod) and not is_ending(pod))


def _surplus(held: _Set) -> tuple[Object, ...]:
    """Return the pods beyond the wanted ones that may go now, the highest first."""
    beyond = sorted((each for each in held.pods if each not in held.ordinals), reverse=True)
    leaving = [held.pods[each] for each in beyond]
    if not held.is_ordered:
        return tuple(pod for pod in leaving if not is_ending(pod))
    return () if not leaving or is_ending(leaving[0]) else (leaving[0],)


def _outdated(held: _Set) -> tuple[Object, ...]:
    """Return the next pod to be replaced: the highest of an old revision, when the rest are up."""
    kind = find_at(held.workload, "spec", "updateStrategy", "type") or "RollingUpdate"
    if kind != "RollingUpdate":
        return ()
    for ordinal in reversed(held.ordinals[held.partition :]):
        pod = held.pods.get(ordinal)
        if pod is None or is_ending(pod):
            return ()
        if revision_of(pod, held.workload) != held.update_revision:
            return (pod,)
        if not held.is_up(ordinal):
            return ()
    return ()


# -- status ------------------------------------------------------------------------------------


def _status(held: _Set) -> Object:
    pods = [pod for pod in held.pods.values() if not is_ending(pod)]
    updated = [pod for pod in pods if revision_of(pod, held.workload) == held.update_revision]
    current = [pod for pod in pods if revision_of(pod, held.workload) == held.current_revision]
    ready = sum(is_ready(pod) for pod in pods)
    is_done = len(updated) == len(pods) == len(held.ordinals) and ready == len(pods)
    return {
        "replicas": len(pods),
        "readyReplicas": ready,
        "availableReplicas": sum(is_available(pod, held.min_ready, held.now) for pod in pods),
        "updatedReplicas": len(updated),
        "currentReplicas": len(updated if is_done else current),
        "updateRevision": held.update_revision,
        "currentRevision": held.update_revision if is_done else held.current_revision,
        "observedGeneration": metadata_of(held.workload).get("generation"),
        "collisionCount": find_at(held.workload, "status", "collisionCount") or 0,
    }
