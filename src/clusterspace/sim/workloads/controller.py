"""Which workloads a change concerns, and what each of them has to decide upon."""

from collections.abc import Iterable, Iterator
from typing import Final

from clusterspace.errors import MalformedSelector
from clusterspace.kube.objects import (
    Object,
    find_at,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
    with_value,
)
from clusterspace.kube.selectors import NOTHING, LabelSelector, label_selector_of
from clusterspace.sim.api import (
    CONTROLLER_REVISION,
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    NODE,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
    Change,
    Key,
    Kind,
    Mirror,
    controller_of,
    key_of,
)
from clusterspace.sim.plans import Claimed, Plan, claim
from clusterspace.sim.pods import is_finished
from clusterspace.sim.workloads.daemon_sets import plan_daemon_set
from clusterspace.sim.workloads.deployments import plan_deployment, plan_replica_set
from clusterspace.sim.workloads.job_failures import is_failed
from clusterspace.sim.workloads.jobs import (
    TRACKING,
    Backoff,
    has_tracking,
    plan_job,
    without_tracking,
)
from clusterspace.sim.workloads.stateful_sets import ordinal_of, plan_stateful_set

_OWNERS: Final[dict[str, tuple[Kind, ...]]] = {
    POD.name: (REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET, DAEMON_SET, JOB),
    REPLICA_SET.name: (DEPLOYMENT,),
    CONTROLLER_REVISION.name: (STATEFUL_SET, DAEMON_SET),
}
"""What workloads own, to the workloads that may."""

_WORKLOADS: Final = frozenset(kind.name for kinds in _OWNERS.values() for kind in kinds)


def selector_of(workload: Object) -> LabelSelector:
    """Return which labels make something a workload's own; one that cannot be read is nobody's."""
    selector: Object | None = find_at(workload, "spec", "selector")
    if workload["kind"] == REPLICATION_CONTROLLER.name and selector is not None:
        selector = {"matchLabels": selector}
    try:
        return label_selector_of(selector)
    except MalformedSelector:
        return NOTHING


class WorkloadController:
    """Deployments, ReplicaSets, ReplicationControllers, StatefulSets, DaemonSets and Jobs."""

    name = "workloads"
    batch_seconds = 0.0

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._backoffs: dict[str, Backoff] = {}
        """The UID of a Job to how its last pods ended, which outlives the pods."""

    def requests(self, change: Change) -> Iterable[Key]:
        """Return the workloads that own what changed, or might."""
        self._note_end(change)
        if change.kind in _WORKLOADS and change.after is not None:
            yield key_of(change.after)
        if change.kind == NODE.name:
            yield from map(key_of, self._mirror.all(DAEMON_SET))
        for version in change.versions:
            owner = self._owner_of(version)
            if owner is None:
                continue
            yield owner
            if change.after is None:
                # A Deployment that recreates waits for the pods of its ReplicaSets to be gone.
                known = self._mirror.find(owner)
                above = None if known is None else self._owner_of(known)
                if above is not None:
                    yield above
        if change.after is not None and controller_of(change.after) is None:
            yield from self._adopters_of(change.after)

    def _note_end(self, change: Change) -> None:
        """Remember how a pod of a Job ended, once."""
        if change.kind == JOB.name and change.after is None:
            self._backoffs.pop(uid_of(change.latest), None)
        if change.kind != POD.name or change.after is None:
            return
        owner = self._owner_of(change.after)
        job = self._mirror.find(owner) if owner is not None and owner.kind == JOB.name else None
        if job is None or find_at(job, "spec", "suspend"):
            return  # pods that a suspended Job stops have not failed
        was, is_now = (
            pod is not None and (is_finished(pod) or is_failed(pod, job)) for pod in change
        )
        if is_now and not was:
            known = self._backoffs.get(uid_of(job), Backoff())
            self._backoffs[uid_of(job)] = known.after(change.after, job)

    def _owner_of(self, kube_object: Object) -> Key | None:
        reference = controller_of(kube_object)
        if reference is None or reference["kind"] not in _WORKLOADS:
            return None
        return Key(str(reference["kind"]), namespace_of(kube_object), str(reference["name"]))

    def _adopters_of(self, orphan: Object) -> Iterator[Key]:
        labels = labels_of(orphan)
        for kind in _OWNERS.get(str(orphan["kind"]), ()):
            for workload in self._mirror.in_namespace(kind, namespace_of(orphan)):
                # Most are ruled out by a look at one label; only the rest are worth reading.
                selector: Object = find_at(workload, "spec", "selector") or {}
                exact: Object = selector.get("matchLabels") or {}
                if exact.items() <= labels.items() and selector_of(workload).matches(labels):
                    yield key_of(workload)

    def plan(self, key: Key, now: float) -> Plan:
        """Decide for one workload; ownership is settled first, and decided upon when it is."""
        workload = self._mirror.find(key)
        if workload is None:
            return Plan()
        selector = selector_of(workload)
        match key.kind:
            case "Deployment":
                return self._plan_deployment(workload, selector, now)
            case "StatefulSet":
                pods = claim(
                    self._mirror,
                    workload,
                    POD,
                    selector,
                    may_adopt=lambda pod: ordinal_of(pod, workload) is not None,
                )
            case "Job":
                pods = claim(self._mirror, workload, POD, selector, finalizer=TRACKING)
            case _:
                pods = claim(self._mirror, workload, POD, selector)
        revisions = Claimed(())
        if key.kind in (STATEFUL_SET.name, DAEMON_SET.name):
            revisions = claim(self._mirror, workload, CONTROLLER_REVISION, selector)
        if update := (*pods.update, *revisions.update):
            return Plan(update=update)
        match key.kind:
            case "StatefulSet":
                return plan_stateful_set(workload, pods.owned, revisions.owned, now)
            case "DaemonSet":
                nodes = tuple(self._mirror.all(NODE))
                return plan_daemon_set(workload, pods.owned, revisions.owned, nodes, now)
            case "Job":
                backoff = self._backoffs.get(uid_of(workload), Backoff())
                return plan_job(workload, pods.owned, backoff, now)
            case _:
                return plan_replica_set(workload, pods.owned, now)

    def _plan_deployment(self, deployment: Object, selector: LabelSelector, now: float) -> Plan:
        mirror = self._mirror
        replica_sets = claim(mirror, deployment, REPLICA_SET, selector)
        if replica_sets.update:
            return Plan(update=replica_sets.update)
        there = {name_of(each): len(mirror.owned_by(each, POD)) for each in replica_sets.owned}
        plan = plan_deployment(deployment, replica_sets.owned, there, now)
        for new in plan.create:
            taken = mirror.find(key_of(new))
            owner = None if taken is None else controller_of(taken)
            if taken is not None and (owner is None or owner["uid"] != uid_of(deployment)):
                # Somebody else's ReplicaSet has the name: the next one is made from another hash.
                count: int = find_at(deployment, "status", "collisionCount") or 0
                return Plan(status=with_value(deployment, count + 1, "status", "collisionCount"))
        return plan


class OrphanedJobPods:
    """Lets pods go whose Job is gone: nobody else will count their end."""

    name = "pods of gone jobs"
    batch_seconds = 0.0

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def requests(self, change: Change) -> Iterable[Key]:
        """Return pods with the finalizer of a Job that is not there."""
        if change.kind == JOB.name and change.after is None:
            yield from map(key_of, self._mirror.owned_by(change.latest, POD))
        if change.kind == POD.name and change.after is not None and self._is_stray(change.after):
            yield key_of(change.after)

    def _is_stray(self, pod: Object) -> bool:
        owner = controller_of(pod)
        if not has_tracking(pod) or (owner is not None and owner["kind"] != JOB.name):
            return False
        if owner is None:
            return True
        job = self._mirror.find(Key(JOB.name, namespace_of(pod), str(owner["name"])))
        return job is None or uid_of(job) != owner["uid"]

    def plan(self, key: Key, now: float) -> Plan:
        """Take the finalizer off, as long as the Job has not come back."""
        del now
        pod = self._mirror.find(key)
        if pod is None or not self._is_stray(pod):
            return Plan()
        return Plan(update=(without_tracking(pod),))
