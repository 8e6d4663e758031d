"""A decision as it is written on a binding: clusters and placement first, then the status."""

from typing import Final, cast

from clusterspace.apis import stamps
from clusterspace.apis.bindings import clusters_of, placement_of
from clusterspace.fleet.propagation.scheduler.decisions import Decision
from clusterspace.fleet.propagation.scheduler.division import Counts
from clusterspace.fleet.propagation.scheduler.placements import applied_text
from clusterspace.kube.conditions import FALSE, TRUE, Condition, set_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    metadata_of,
    with_metadata,
    with_value,
    without_value,
)
from clusterspace.kube.timestamps import format_time

SCHEDULED: Final = "Scheduled"


def with_targets(binding: Object, decision: Decision) -> Object:
    """Return the binding with where its object is to be, and by which placement."""
    chosen = _with_clusters(binding, decision.targets)
    if not decision.is_applied:
        return chosen
    applied = applied_text(placement_of(binding) or {})
    noted = {**annotations_of(binding), stamps.APPLIED_PLACEMENT: applied}
    return with_metadata(chosen, annotations=noted)


def with_outcome(binding: Object, decision: Decision, now: float) -> Object:
    """Return the binding with how the decision about it ended.

    Only success is noted as seen and timed: until then somebody still waits for it. The time
    moves when something else does, so that looking again at a settled binding writes nothing.
    """
    held = cast("Object", binding.get("status") or {})
    condition = Condition(
        SCHEDULED,
        TRUE if decision.is_success else FALSE,
        decision.reason.value,
        decision.message,
    )
    told = set_condition(held.get("conditions"), condition, now)
    status = {**held, "conditions": told.conditions}
    if decision.is_success:
        status["schedulerObservedGeneration"] = metadata_of(binding).get("generation")
        if decision.group_name:
            status["schedulerObservingAffinityName"] = decision.group_name
        if status != held or decision.is_repeat:
            status["lastScheduledTime"] = format_time(now)
    return {**binding, "status": status}


def result_text(targets: Counts) -> str:
    """Return the clusters, with the replicas of each, as events tell it."""
    listed = (f"{name}:{targets[name]}" if targets[name] else name for name in sorted(targets))
    return f"{{{', '.join(listed)}}}"


def _with_clusters(binding: Object, targets: Counts) -> Object:
    if {each.name: each.replicas for each in clusters_of(binding)} == dict(targets):
        return binding  # in whatever order they are: the same clusters are no change
    if not targets:
        return without_value(binding, "spec", "clusters")
    listed = [
        {"name": name, "replicas": targets[name]} if targets[name] else {"name": name}
        for name in sorted(targets)
    ]
    return with_value(binding, listed, "spec", "clusters")
