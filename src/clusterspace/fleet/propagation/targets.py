"""Where a binding's object is to be, and on which terms."""

from collections.abc import Mapping
from typing import Final

from clusterspace.apis.bindings import (
    TargetCluster,
    clusters_of,
    replicas_of,
    requirers_of,
    template_of,
)
from clusterspace.apis.stamps import fnv1a_32
from clusterspace.fleet.propagation.scheduler.division import allot
from clusterspace.kube.objects import Object, find_at

_PURGED_AT_ONCE: Final = frozenset({"Directly", "Immediately"})


def targets_of(binding: Object) -> tuple[TargetCluster, ...]:
    """Return the clusters that are to have the object.

    They are those it was scheduled to, and those where something that needs it was scheduled to.
    The latter say nothing about replicas: theirs are of what needs it.
    """
    scheduled = {each.name: each for each in clusters_of(binding)}
    required = {
        each.name: TargetCluster(each.name)
        for requirer in requirers_of(binding)
        for each in requirer.clusters
    }
    return tuple(
        {**scheduled, **{k: v for k, v in required.items() if k not in scheduled}}.values()
    )


def kept_clusters(binding: Object) -> frozenset[str]:
    """Return the clusters whose Works stay: the targets, and those the object leaves gracefully."""
    tasks: list[Object] = find_at(binding, "spec", "gracefulEvictionTasks") or []
    leaving = (
        str(each.get("fromCluster"))
        for each in tasks
        if each.get("purgeMode") not in _PURGED_AT_ONCE
    )
    return frozenset({*(target.name for target in targets_of(binding)), *leaving})


def find_share(binding: Object, target: TargetCluster) -> int | None:
    """Return how many replicas a cluster is to run; None when the template's count holds there.

    None at all is a share as well: a template that was just scaled up must not run in full
    everywhere until the scheduler has shared it out.
    """
    is_scheduled = any(each.name == target.name for each in clusters_of(binding))
    requirements = find_at(binding, "spec", "replicaRequirements")
    has_replicas = replicas_of(binding) > 0 or requirements is not None
    return target.replicas if is_scheduled and has_replicas else None


def is_suspended(binding: Object, cluster: str) -> bool:
    """Whether a cluster is not to be changed for now."""
    suspension: Object = find_at(binding, "spec", "suspension") or {}
    named = find_at(suspension, "dispatchingOnClusters", "clusterNames") or ()
    return suspension.get("dispatching") is True or cluster in named


def share_completions(completions: int, binding: Object) -> Mapping[str, int]:
    """Return how many completions of a Job each cluster owes; none when each owes them all."""
    scheduling = find_at(binding, "spec", "placement", "replicaScheduling")
    if find_at(scheduling, "replicaSchedulingType") != "Divided":
        return {}
    weights = {target.name: target.replicas for target in targets_of(binding)}
    is_odd = fnv1a_32(template_of(binding).uid) % 2 == 1
    return allot(completions, weights, last_name_first=is_odd)
