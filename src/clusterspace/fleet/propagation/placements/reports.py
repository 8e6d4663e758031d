"""What became of a placement on one cluster, by what the engine's Works tell.

Works ──> object: synced, applied, available ──> cluster: conditions, failed objects
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from clusterspace.apis.fleet_placements import (
    MANIFEST_HASH,
    TAKE_OVER,
    Identity,
    generation_of,
)
from clusterspace.apis.interpreter import kinds
from clusterspace.apis.works import ALREADY_EXISTS, APPLIED, UNHEALTHY, report_of
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.fleet.propagation.works.revisions import Contents
from clusterspace.kube.conditions import FALSE, TRUE, UNKNOWN, Condition, find_condition
from clusterspace.kube.objects import Object, annotations_of, find_at
from clusterspace.kube.resources import GroupKind

AVAILABLE: Final = "Available"
OVERRIDDEN: Final = "Overridden"
WORK_SYNCHRONIZED: Final = "WorkSynchronized"
NOT_TRACKABLE: Final = "NotAllWorkAreAvailabilityTrackable"
NOT_SYNCED_YET: Final = "WorkNotSynchronizedYet"

MOST_FAILED: Final = 100
_MOST_NAMED: Final = 3

_TRACKED: Final = frozenset(
    {
        kinds.DEPLOYMENT,
        kinds.STATEFUL_SET,
        kinds.DAEMON_SET,
        kinds.SERVICE,
        kinds.DISRUPTION_BUDGET,
        GroupKind("apiextensions.k8s.io", "CustomResourceDefinition"),
    }
)
"""Kinds whose health says when they are there for their users."""

_DATA: Final = frozenset(
    GroupKind(group, kind)
    for group, names in {
        "": (
            "Namespace", "Secret", "ConfigMap", "ServiceAccount", "LimitRange", "ResourceQuota",
        ),
        "rbac.authorization.k8s.io": ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"),
        "networking.k8s.io": ("NetworkPolicy", "IngressClass"),
        "storage.k8s.io": ("CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass"),
        "apps": ("ControllerRevision",),
        "scheduling.k8s.io": ("PriorityClass",),
    }.items()
    for kind in names
)  # fmt: skip
"""Kinds that are there for their users as soon as they exist."""


class Availability(Enum):
    """Whether an object that is applied does what it is there for."""

    AVAILABLE = "available"
    UNTRACKABLE = "nobody can tell"
    NOT_YET = "not yet"


@dataclass(frozen=True, slots=True)
class ObjectReport:
    """What became of one object on one cluster."""

    identity: Identity
    is_synced: bool
    applied: str = UNKNOWN
    reason: str = ""
    message: str = ""
    availability: Availability = Availability.NOT_YET
    generation: int = 0


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """What became of everything on one cluster."""

    objects: tuple[ObjectReport, ...]
    sync_problem: str = ""

    @property
    def is_synced(self) -> bool:
        """Whether the cluster was told all that it is to have."""
        return all(each.is_synced for each in self.objects)

    @property
    def failed(self) -> tuple[ObjectReport, ...]:
        """The objects the cluster would not have."""
        return tuple(each for each in self.objects if each.applied == FALSE)

    @property
    def is_applied(self) -> bool:
        """Whether the cluster has everything."""
        return self.is_synced and all(each.applied == TRUE for each in self.objects)

    @property
    def unavailable(self) -> tuple[ObjectReport, ...]:
        """The objects that are applied and do not do what they are there for yet."""
        return tuple(e for e in self.objects if e.availability is Availability.NOT_YET)

    @property
    def is_trackable(self) -> bool:
        """Whether every object can tell when it is available."""
        return all(e.availability is not Availability.UNTRACKABLE for e in self.objects)


def report_cluster(
    wanted: Contents,
    works: Mapping[Identity, Object],
    obstacles: Mapping[Identity, str],
    problems: Mapping[Identity, str],
) -> ClusterReport:
    """Sum up one cluster: what it is to have, its Works, and what stands in the way."""
    reports = [
        _of_obstacle(identity, obstacles[identity])
        if identity in obstacles
        else report_object(identity, state, works.get(identity))
        for identity, state in wanted.items()
    ]
    trouble = [problems[e.identity] for e in reports if not e.is_synced and e.identity in problems]
    return ClusterReport(tuple(reports), trouble[0] if trouble else "")


def report_object(identity: Identity, wanted_state: str, work: Object | None) -> ObjectReport:
    """Tell what became of one object; what a Work says of an earlier state is no answer."""
    if work is None or is_being_deleted(work):
        return ObjectReport(identity, is_synced=False)
    if annotations_of(work).get(MANIFEST_HASH) != wanted_state:
        return ObjectReport(identity, is_synced=False)
    applied = find_condition(find_at(work, "status", "conditions"), APPLIED) or {}
    if applied.get("observedGeneration") != generation_of(work):
        return ObjectReport(identity, is_synced=True)
    if applied.get("status") != TRUE:
        message = str(applied.get("message") or "")
        reason = _take_over_reason(work) if ALREADY_EXISTS in message else "ManifestApplyFailed"
        return ObjectReport(identity, True, FALSE, reason, message, generation=generation_of(work))
    return ObjectReport(identity, True, TRUE, "Applied", availability=_availability(identity, work))


def cluster_conditions(report: ClusterReport, generation: int) -> tuple[Condition, ...]:
    """Return the conditions of a binding after its rollout began, up to the first not met."""
    told = [
        Condition(OVERRIDDEN, TRUE, "NoOverrideSpecified", "there are no overrides", generation),
        _synchronized(report, generation),
    ]
    if report.is_synced:
        told.append(_applied(report, generation))
    if report.is_applied:
        told.append(_available(report, generation))
    return tuple(told)


def failed_placements(report: ClusterReport, since: str) -> list[Object]:
    """Return the objects a cluster would not have, as statuses list them."""
    return [
        {
            **each.identity.to_object(),
            "condition": {
                "type": APPLIED,
                "status": FALSE,
                "reason": each.reason,
                "message": each.message,
                "observedGeneration": each.generation,
                "lastTransitionTime": since,
            },
        }
        for each in report.failed[:MOST_FAILED]
    ]


def _of_obstacle(identity: Identity, why: str) -> ObjectReport:
    return ObjectReport(
        identity, True, FALSE, "FailedToTakeOver", f"{identity} is left alone: {why}"
    )


def _take_over_reason(work: Object) -> str:
    """Return why an object of somebody else is in the way: not to be had, or not like ours."""
    is_had_if_same = TAKE_OVER in annotations_of(work)
    return "FailedToTakeOver" if is_had_if_same else "NotTakenOver"


def _availability(identity: Identity, work: Object) -> Availability:
    kind = GroupKind(identity.group, identity.kind)
    if kind in _DATA:
        return Availability.AVAILABLE
    if kind not in _TRACKED:
        return Availability.UNTRACKABLE
    return Availability.NOT_YET if report_of(work).health == UNHEALTHY else Availability.AVAILABLE


def _synchronized(report: ClusterReport, generation: int) -> Condition:
    if report.is_synced:
        message = "every object is handed to the cluster"
        return Condition(WORK_SYNCHRONIZED, TRUE, "AllWorkSynced", message, generation)
    if report.sync_problem:
        problem = report.sync_problem
        return Condition(WORK_SYNCHRONIZED, FALSE, "SyncWorkFailed", problem, generation)
    waiting = _named([each for each in report.objects if not each.is_synced])
    message = f"still to be handed to the cluster: {waiting}"
    return Condition(WORK_SYNCHRONIZED, FALSE, NOT_SYNCED_YET, message, generation)


def _applied(report: ClusterReport, generation: int) -> Condition:
    if report.failed:
        first = report.failed[0]
        message = f"{_named(report.failed)}: {first.message}"
        return Condition(APPLIED, FALSE, "NotAllWorkHaveBeenApplied", message, generation)
    if report.is_applied:
        message = "every object is on the cluster"
        return Condition(APPLIED, TRUE, "AllWorkHaveBeenApplied", message, generation)
    waiting = _named([each for each in report.objects if each.applied != TRUE])
    return Condition(APPLIED, UNKNOWN, "ApplyInProgress", f"not told of yet: {waiting}", generation)


def _available(report: ClusterReport, generation: int) -> Condition:
    if report.unavailable:
        message = f"not available yet: {_named(report.unavailable)}"
        return Condition(AVAILABLE, FALSE, "NotAllWorkAreAvailable", message, generation)
    if not report.is_trackable:
        message = "every object is on the cluster; some cannot tell whether they are available"
        return Condition(AVAILABLE, TRUE, NOT_TRACKABLE, message, generation)
    message = "every object is available"
    return Condition(AVAILABLE, TRUE, "AllWorkAreAvailable", message, generation)


def _named(reports: Sequence[ObjectReport]) -> str:
    names = ", ".join(str(each.identity) for each in reports[:_MOST_NAMED])
    more = f" and {len(reports) - _MOST_NAMED} more" if len(reports) > _MOST_NAMED else ""
    return f"{names}{more}"
