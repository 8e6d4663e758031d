"""Workloads of which two copies must never run: how they are marked, stopped and promised for.

    template ──annotation: true──> Work and copy: leased         a lease stops the copy
    StatefulSet, purgeMode Directly ──> Work: acknowledged       its stop is waited for

A leased copy is stopped by the agent of its cluster, or by a watchdog where that is a Push cluster,
when it has not heard from the hub for as long as it has promised on its Lease. So a copy costs
something: a hub that is away for longer than that stops it. Nobody has this unless the template
asks for it.
"""

from typing import Final, cast

from clusterspace.apis.kinds import CRON_JOB, JOB, STATEFUL_SET, kind_of, pod_spec_of
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    with_metadata,
    with_value,
    without_value,
)

EXCLUSIVE: Final = "clusterspace.io/exclusive"
"""Annotation of templates (`true`, `false`) and of Works; label of copies that a lease stops."""

LEASED: Final = "leased"
ACKNOWLEDGED: Final = "acknowledged"

STOPS_AFTER: Final = "clusterspace.io/stops-exclusive-after"
"""Annotation of a cluster's Lease: seconds, and the renewal with which they were promised."""

HEARD: Final = "clusterspace.io/heard-by"
"""Annotation of a watchdog's Lease: the UID of the Cluster whose hub has seen which renewal."""

WATCHES_FOR: Final = "clusterspace.io/watches-for"
"""Annotation of a watchdog's Lease: the UID of the Cluster whose hub it listens to."""

STOPPED: Final = "clusterspace.io/stopped-from"
"""Annotation of a copy that a lease has stopped: what it ran before."""

_AT_ONCE: Final = frozenset({"Directly", "Immediately"})
_POD_SECONDS: Final = 30
"""How long a pod has to stop when its template does not say."""


def exclusiveness_of(template: Object, failover: Object | None) -> str:
    """Return how exclusive a workload is: LEASED, ACKNOWLEDGED, or not at all, which is empty."""
    marked = annotations_of(template).get(EXCLUSIVE)
    if marked == "true":
        return LEASED
    if marked == "false":
        return ""
    kinds = ("cluster", "application")
    modes = {find_at(failover or {}, kind, "purgeMode") for kind in kinds}
    is_first = kind_of(template) == STATEFUL_SET or not modes.isdisjoint(_AT_ONCE)
    return ACKNOWLEDGED if is_first else ""


def exclusiveness_of_work(work: Object) -> str:
    """Return how exclusive the copy of a Work is."""
    return annotations_of(work).get(EXCLUSIVE, "")


def promise_text(seconds: float, renew_time: str) -> str:
    """Return what an agent notes on its Lease with every renewal.

    An agent of before, which knows no promises, renews the time alone: then the two differ, and
    what another agent promised is not taken for its word.
    """
    return f"{seconds:g} {renew_time}"


def promised_seconds(lease: Object) -> float | None:
    """Return after how long without the hub an agent stops its copies; None when it does not."""
    seconds, _, renewed = annotations_of(lease).get(STOPS_AFTER, "").partition(" ")
    if not renewed or renewed != find_at(lease, "spec", "renewTime"):
        return None
    try:
        promised = float(seconds)
    except ValueError:
        return None
    return promised if promised > 0 else None


def can_be_stopped(copy: Object) -> bool:
    """Whether it is known how a copy of this kind is stopped without deleting it."""
    return kind_of(copy) in (JOB, CRON_JOB) or find_at(copy, "spec", "replicas") is not None


def stop_seconds(copy: Object) -> float:
    """Return how long its pods may take to stop when they are told to."""
    seconds = (pod_spec_of(copy) or {}).get("terminationGracePeriodSeconds")
    return float(_POD_SECONDS if seconds is None else seconds)


def stopped(copy: Object) -> Object:
    """Return a copy that runs nothing any more, with a note of what it ran."""
    if STOPPED in annotations_of(copy):
        # Somebody has started it again meanwhile; what it ran at first is what counts.
        noted = copy
    else:
        is_paused = find_at(copy, "spec", "suspend") is True
        before = "suspended" if is_paused else str(find_at(copy, "spec", "replicas") or 0)
        noted = with_metadata(copy, annotations={**annotations_of(copy), STOPPED: before})
    if kind_of(copy) in (JOB, CRON_JOB):
        return with_value(noted, True, "spec", "suspend")
    return with_value(noted, 0, "spec", "replicas")


def restarted(copy: Object) -> Object:
    """Return a copy that runs what it ran before it was stopped."""
    annotations = dict(annotations_of(copy))
    before = annotations.pop(STOPPED, None)
    if before is None:
        return copy
    bare = with_metadata(copy, annotations=annotations or None)
    if kind_of(copy) in (JOB, CRON_JOB):
        return bare if before == "suspended" else without_value(bare, "spec", "suspend")
    return with_value(bare, int(before) if before.isdecimal() else 0, "spec", "replicas")


def failover_of(binding: Object) -> Object | None:
    """Return what the policy of a binding says about leaving clusters."""
    return cast("Object | None", find_at(binding, "spec", "failover"))
