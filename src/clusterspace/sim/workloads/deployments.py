"""One ReplicaSet per template, and the moves between them."""

from collections.abc import Mapping, Sequence

from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    namespace_of,
    with_metadata,
    with_value,
)
from clusterspace.sim.pod_states import is_ending
from clusterspace.sim.workloads.deployment_parts import (
    Rollout,
    replica_set_annotations,
    tell_apart,
    with_revision,
)
from clusterspace.sim.workloads.deployment_status import deployment_status, until_deadline
from clusterspace.sim.workloads.plans import Plan, with_status
from clusterspace.sim.workloads.rollouts import Replicas, plan_step
from clusterspace.sim.workloads.templates import (
    HASH_LABEL,
    owner_reference,
    template_hash,
    with_template_label,
)


def plan_deployment(
    deployment: Object, replica_sets: Sequence[Object], pods: Mapping[str, int], now: float
) -> Plan:
    """Decide what a Deployment does about its ReplicaSets.

    `pods` says how many pods of each, by name, are still there, those that are ending among them.
    """
    rollout = tell_apart(deployment, replica_sets)
    if is_ending(deployment):
        return Plan()
    if rollout.is_paused:
        update, create = _resized(rollout, _paused_sizes(rollout)), ()
    elif rollout.new is None:
        update, create = (), (_new_replica_set(rollout),)
    else:
        update, create = _resized(rollout, _sizes(rollout, rollout.new, pods)), ()
    return Plan(
        create=create,
        update=update,
        delete=() if update or create else _forgotten(rollout),
        status=_said(rollout, now),
        again_after=until_deadline(rollout, now),
    )


def _said(rollout: Rollout, now: float) -> Object | None:
    """Return the status, and the revision with it: that door counts no generation."""
    noted = with_revision(rollout)
    told = with_status(noted, deployment_status(rollout, now))
    return noted if told is None and noted is not rollout.deployment else told


def _new_replica_set(rollout: Rollout) -> Object:
    deployment = rollout.deployment
    template: Object = find_at(deployment, "spec", "template")
    salt: int = find_at(deployment, "status", "collisionCount") or 0
    digest = template_hash(template, salt)
    labelled = with_template_label(template, HASH_LABEL, digest)
    match: Object = {**(find_at(deployment, "spec", "selector") or {})}
    match["matchLabels"] = {**(match.get("matchLabels") or {}), HASH_LABEL: digest}
    held = sum(find_at(each, "spec", "replicas") or 0 for each in rollout.old)
    room = max(0, rollout.wanted + rollout.limits.surge - held)
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{name_of(deployment)}-{digest}",
            "namespace": namespace_of(deployment),
            "labels": {**labels_of(template), HASH_LABEL: digest},
            "annotations": replica_set_annotations(rollout, {}),
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": {
            "replicas": 0 if rollout.recreates and held else min(room, rollout.wanted),
            "minReadySeconds": find_at(deployment, "spec", "minReadySeconds") or 0,
            "selector": match,
            "template": labelled,
        },
    }


# -- sizes -------------------------------------------------------------------------------------


def _sizes(rollout: Rollout, new: Object, pods: Mapping[str, int]) -> dict[str, int]:
    """Return how many replicas each ReplicaSet should be asked for, by name."""
    if rollout.recreates:
        # Every old pod must be gone, those that are still ending too.
        left = sum(pods.get(name_of(each), 0) for each in rollout.old)
        sizes = {name_of(each): 0 for each in rollout.old}
        return {**sizes, name_of(new): 0 if left else rollout.wanted}
    step = plan_step(
        rollout.wanted, rollout.limits, _replicas(new), [_replicas(each) for each in rollout.old]
    )
    sizes = {name_of(each): size for each, size in zip(rollout.old, step.old, strict=True)}
    return {**sizes, name_of(new): step.new}


def _paused_sizes(rollout: Rollout) -> dict[str, int]:
    """Return the sizes of a paused Deployment: it rolls nothing out, but follows its count."""
    running = [each for each in rollout.everything if find_at(each, "spec", "replicas")]
    if len(running) > 1 or not rollout.everything:
        return {}
    return {name_of((running or rollout.everything)[-1]): rollout.wanted}


def _replicas(replica_set: Object) -> Replicas:
    return Replicas(
        wanted=find_at(replica_set, "spec", "replicas") or 0,
        available=find_at(replica_set, "status", "availableReplicas") or 0,
    )


def _resized(rollout: Rollout, sizes: Mapping[str, int]) -> tuple[Object, ...]:
    """Return the ReplicaSets that are not as they should be."""
    min_ready = find_at(rollout.deployment, "spec", "minReadySeconds") or 0
    changed: list[Object] = []
    for held in rollout.everything:
        wanted = with_value(held, sizes.get(name_of(held), _size(held)), "spec", "replicas")
        if held is rollout.new and not rollout.is_paused:
            wanted = with_metadata(
                wanted, annotations=replica_set_annotations(rollout, annotations_of(held))
            )
            if (find_at(held, "spec", "minReadySeconds") or 0) != min_ready:
                wanted = with_value(wanted, min_ready, "spec", "minReadySeconds")
        if wanted != held:
            changed.append(wanted)
    return tuple(changed)


def _size(replica_set: Object) -> int:
    return find_at(replica_set, "spec", "replicas") or 0


def _forgotten(rollout: Rollout) -> tuple[Object, ...]:
    """Return the ReplicaSets beyond the history that is kept."""
    limit = find_at(rollout.deployment, "spec", "revisionHistoryLimit")
    empty = [
        each for each in rollout.old if not _size(each) and not find_at(each, "status", "replicas")
    ]
    surplus = len(empty) - (10 if limit is None else int(limit))
    return tuple(empty[: max(surplus, 0)])
