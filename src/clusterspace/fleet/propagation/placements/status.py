"""What a placement says of itself: what it selects, where it is, and what is wrong.

    Works ──> object: synced, applied, available ──> cluster: conditions ──> placement: conditions

    Scheduled ─> RolloutStarted ─> Overridden ─> WorkSynchronized ─> Applied ─> Available
                                                                  └> DiffReported, if nothing is
                                                                     applied, but only compared

After the first that does not hold, the rest is left out: it would be about something that has not
begun. That clusters are missing keeps nobody from hearing about those that are there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from clusterspace.apis import kinds
from clusterspace.apis.differences import (
    DIFF_REPORTED,
    DIFFS_FOUND,
    DRIFTS_FOUND,
    FOUND_DRIFTS,
    Differences,
    differences_found,
    differences_on,
)
from clusterspace.apis.fleet_placements import (
    APPLY_TYPE,
    MANIFEST_HASH,
    PICK_FIXED,
    REPORT_DIFF,
    TAKE_OVER,
    ResourceIdentifier,
    generation_of,
    scope_of,
)
from clusterspace.apis.works import ALREADY_EXISTS, APPLIED, CO_OWNED, UNHEALTHY, report_of
from clusterspace.fleet.propagation.placements.overrides import NO_OVERRIDES, ClusterOverrides
from clusterspace.fleet.propagation.placements.picking import Picking
from clusterspace.fleet.propagation.templates import Contents
from clusterspace.kube.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    find_condition,
    set_condition,
)
from clusterspace.kube.objects import Object, annotations_of, find_at, is_being_deleted
from clusterspace.kube.resources import GroupKind

SCHEDULED: Final = "Scheduled"
ROLLOUT_STARTED: Final = "RolloutStarted"
AVAILABLE: Final = "Available"
OVERRIDDEN: Final = "Overridden"
WORK_SYNCHRONIZED: Final = "WorkSynchronized"
NOT_TRACKABLE: Final = "NotAllWorkAreAvailabilityTrackable"
OVERRIDDEN_SUCCEEDED: Final = "OverriddenSucceeded"
NOT_SYNCED_YET: Final = "WorkNotSynchronizedYet"

STATUS_SYNCED: Final = "ClusterResourcePlacementStatusSynced"
"""Whether the status is also told in the namespace that is placed."""

MOST_FAILED: Final = 100
_MOST_NAMED: Final = 3

_REASONS: Final[Mapping[str, Mapping[str, str]]] = {
    ROLLOUT_STARTED: {
        TRUE: "RolloutStarted",
        FALSE: "RolloutNotStartedYet",
        UNKNOWN: "RolloutStartedUnknown",
    },
    OVERRIDDEN: {
        TRUE: "NoOverrideSpecified",
        FALSE: "OverriddenFailed",
        UNKNOWN: "OverriddenPending",
    },
    WORK_SYNCHRONIZED: {
        TRUE: "WorkSynchronized",
        FALSE: "WorkNotSynchronizedYet",
        UNKNOWN: "WorkSynchronizedUnknown",
    },
    APPLIED: {TRUE: "ApplySucceeded", FALSE: "ApplyFailed", UNKNOWN: "ApplyPending"},
    AVAILABLE: {
        TRUE: "ResourceAvailable",
        FALSE: "ResourceNotAvailableYet",
        UNKNOWN: "ResourceAvailableUnknown",
    },
    DIFF_REPORTED: {
        TRUE: "DiffReportingCompleted",
        FALSE: "DiffReportingIncompleteOrFailed",
        UNKNOWN: "DiffReportingPending",
    },
}
_APPLYING: Final = (ROLLOUT_STARTED, OVERRIDDEN, WORK_SYNCHRONIZED, APPLIED, AVAILABLE)
_REPORTING: Final = (ROLLOUT_STARTED, OVERRIDDEN, WORK_SYNCHRONIZED, DIFF_REPORTED)

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
    """The state of one object on one cluster."""

    identity: ResourceIdentifier
    is_synced: bool
    applied: str = UNKNOWN
    reason: str = ""
    message: str = ""
    availability: Availability = Availability.NOT_YET
    generation: int = 0
    differences: Differences | None = None
    """Of an object that is only compared, once it was; or of one that is not taken over."""
    drifts: Differences | None = None
    """Of an object that was applied, and that somebody on the member changed."""


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """The state of all objects on one cluster."""

    objects: tuple[ObjectReport, ...]
    sync_problem: str = ""
    override_problem: str = ""
    """Why an object cannot be overridden as it is to be there."""
    is_compared: bool = False
    """Whether nothing is applied, and the cluster only reports how it differs."""

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
    def is_reported(self) -> bool:
        """Whether the cluster has said of every object how it differs."""
        return self.is_synced and all(each.differences is not None for each in self.objects)

    @property
    def unavailable(self) -> tuple[ObjectReport, ...]:
        """The objects that are applied and do not do what they are there for yet."""
        return tuple(e for e in self.objects if e.availability is Availability.NOT_YET)

    @property
    def is_trackable(self) -> bool:
        """Whether every object can tell when it is available."""
        return all(e.availability is not Availability.UNTRACKABLE for e in self.objects)


def report_cluster(
    desired: Contents,
    works: Mapping[ResourceIdentifier, Object],
    obstacles: Mapping[ResourceIdentifier, str],
    problems: Mapping[ResourceIdentifier, str],
    override_problems: Mapping[ResourceIdentifier, str] | None = None,
    *,
    is_compared: bool = False,
) -> ClusterReport:
    """Sum up one cluster: what it is to have, its Works, and what stands in the way."""
    reports: list[ObjectReport] = []
    for identity, state in desired.items():
        if identity in obstacles:
            message = f"{identity} is left alone: {obstacles[identity]}"
            reports.append(ObjectReport(identity, True, FALSE, "FailedToTakeOver", message))
        else:
            report = report_object(identity, state, works.get(identity), is_compared=is_compared)
            reports.append(report)
    waiting = [each.identity for each in reports if not each.is_synced]

    def first_of(known: Mapping[ResourceIdentifier, str]) -> str:
        return next((known[each] for each in waiting if each in known), "")

    return ClusterReport(
        tuple(reports), first_of(problems), first_of(override_problems or {}), is_compared
    )


def report_object(
    identity: ResourceIdentifier,
    desired_state: str,
    work: Object | None,
    *,
    is_compared: bool = False,
) -> ObjectReport:
    """Report what became of one object; what a Work says of an earlier state is no answer."""
    if work is None or is_being_deleted(work):
        return ObjectReport(identity, is_synced=False)
    if annotations_of(work).get(MANIFEST_HASH) != desired_state:
        return ObjectReport(identity, is_synced=False)
    if is_compared != (annotations_of(work).get(APPLY_TYPE) == REPORT_DIFF):
        return ObjectReport(identity, is_synced=False)
    if is_compared:
        found, why_not = differences_on(work, generation_of(work))
        failed = FALSE if why_not else UNKNOWN
        reason = "FailedToReportDiff" if why_not else ""
        return ObjectReport(
            identity,
            True,
            failed,
            reason,
            why_not,
            Availability.AVAILABLE,
            generation_of(work),
            found,
        )
    applied = find_condition(find_at(work, "status", "conditions"), APPLIED) or {}
    if applied.get("observedGeneration") != generation_of(work):
        return ObjectReport(identity, is_synced=True)
    drifts = differences_found(work, generation_of(work), DRIFTS_FOUND)
    if applied.get("status") != TRUE:
        message, reason = str(applied.get("message") or ""), "ManifestApplyFailed"
        if drifts is not None:
            reason = FOUND_DRIFTS
        if ALREADY_EXISTS in message:
            # An object of somebody else is in the way: not like ours, or not to be had at all.
            is_had = TAKE_OVER in annotations_of(work) or CO_OWNED in message
            reason = "FailedToTakeOver" if is_had else "NotTakenOver"
        return ObjectReport(
            identity,
            True,
            FALSE,
            reason,
            message,
            generation=generation_of(work),
            differences=differences_found(work, generation_of(work), DIFFS_FOUND),
            drifts=drifts,
        )
    kind = GroupKind(identity.group, identity.kind)
    availability = Availability.AVAILABLE
    if kind not in _DATA and kind not in _TRACKED:
        availability = Availability.UNTRACKABLE
    elif kind in _TRACKED and report_of(work).health == UNHEALTHY:
        availability = Availability.NOT_YET
    return ObjectReport(identity, True, TRUE, "Applied", availability=availability, drifts=drifts)


def cluster_conditions(
    report: ClusterReport, generation: int, overrides: ClusterOverrides = NO_OVERRIDES
) -> tuple[Condition, ...]:
    """Return the conditions of a binding after its rollout began, up to the first not met."""
    if report.override_problem:
        problem = report.override_problem
        return (Condition(OVERRIDDEN, FALSE, "OverriddenFailed", problem, generation),)
    reason, message = "NoOverrideSpecified", "there are no overrides"
    if overrides.keys:
        reason, message = OVERRIDDEN_SUCCEEDED, f"by {', '.join(overrides.keys)}"
    overridden = Condition(OVERRIDDEN, TRUE, reason, message, generation)
    if not report.is_synced and report.sync_problem:
        problem = report.sync_problem
        synced = Condition(WORK_SYNCHRONIZED, FALSE, "SyncWorkFailed", problem, generation)
        return (overridden, synced)
    if not report.is_synced:
        waiting = _named([each for each in report.objects if not each.is_synced])
        message = f"still to be handed to the cluster: {waiting}"
        synced = Condition(WORK_SYNCHRONIZED, FALSE, NOT_SYNCED_YET, message, generation)
        return (overridden, synced)
    message = "every object is handed to the cluster"
    synced = Condition(WORK_SYNCHRONIZED, TRUE, "AllWorkSynced", message, generation)
    if report.is_compared:
        return (overridden, synced, _diff_reported(report, generation))

    if report.failed:
        # One reason may hide another: an object of another placement is told beside one that the
        # cluster refused.
        messages = "; ".join(each.message for each in report.failed[:_MOST_NAMED])
        more = len(report.failed) - _MOST_NAMED
        message = f"{messages} and {more} more" if more > 0 else messages
        applied = Condition(APPLIED, FALSE, "NotAllWorkHaveBeenApplied", message, generation)
        return (overridden, synced, applied)
    if not report.is_applied:
        waiting = _named([each for each in report.objects if each.applied != TRUE])
        message = f"not told of yet: {waiting}"
        applied = Condition(APPLIED, UNKNOWN, "ApplyInProgress", message, generation)
        return (overridden, synced, applied)
    message = "every object is on the cluster"
    applied = Condition(APPLIED, TRUE, "AllWorkHaveBeenApplied", message, generation)

    if report.unavailable:
        message = f"not available yet: {_named(report.unavailable)}"
        available = Condition(AVAILABLE, FALSE, "NotAllWorkAreAvailable", message, generation)
    elif not report.is_trackable:
        message = "every object is on the cluster; some cannot tell whether they are available"
        available = Condition(AVAILABLE, TRUE, NOT_TRACKABLE, message, generation)
    else:
        message = "every object is available"
        available = Condition(AVAILABLE, TRUE, "AllWorkAreAvailable", message, generation)
    return (overridden, synced, applied, available)


def _diff_reported(report: ClusterReport, generation: int) -> Condition:
    if report.failed:
        message = "; ".join(each.message for each in report.failed[:_MOST_NAMED])
        return Condition(DIFF_REPORTED, FALSE, "NotAllWorkHaveDiffReported", message, generation)
    if not report.is_reported:
        waiting = _named([each for each in report.objects if each.differences is None])
        message = f"not compared yet: {waiting}"
        return Condition(DIFF_REPORTED, UNKNOWN, "DiffReportInProgress", message, generation)
    different = [e for e in report.objects if e.differences is not None and e.differences.details]
    message = f"different: {_named(different)}" if different else "nothing is different"
    return Condition(DIFF_REPORTED, TRUE, "AllWorkHaveDiffReported", message, generation)


def diffed_placements(report: ClusterReport) -> list[Object]:
    """Return the objects that differ on a cluster, and how, as statuses list them."""
    return [
        {**each.identity.to_object(), **each.differences.to_status()}
        for each in report.objects
        if each.differences is not None and each.differences.details
    ][:MOST_FAILED]


def drifted_placements(report: ClusterReport) -> list[Object]:
    """Return the objects that somebody changed on a cluster, and how, as statuses list them."""
    return [
        {**each.identity.to_object(), **each.drifts.to_drift()}
        for each in report.objects
        if each.drifts is not None and each.drifts.details
    ][:MOST_FAILED]


def with_envelopes(
    entries: list[Object], envelopes: Mapping[ResourceIdentifier, ResourceIdentifier]
) -> list[Object]:
    """Return entries of a status that also say which envelope an object is in."""
    if not envelopes:
        return entries
    known = {tuple(sorted(key.to_object().items())): each for key, each in envelopes.items()}
    named = ("group", "version", "kind", "namespace", "name")
    marked: list[Object] = []
    for entry in entries:
        identity = tuple(sorted((key, entry[key]) for key in named if key in entry))
        envelope = known.get(identity)
        marked.append(entry if envelope is None else {**entry, "envelope": _envelope(envelope)})
    return marked


def _envelope(envelope: ResourceIdentifier) -> Object:
    about = {"name": envelope.name, "namespace": envelope.namespace, "type": envelope.kind}
    return {key: each for key, each in about.items() if each}


def failed_placements(report: ClusterReport, since: str) -> list[Object]:
    """Return the objects a cluster would not have, as statuses list them."""
    return [
        {
            **each.identity.to_object(),
            "condition": {
                "type": DIFF_REPORTED if report.is_compared else APPLIED,
                "status": FALSE,
                "reason": each.reason,
                "message": each.message,
                "observedGeneration": each.generation,
                "lastTransitionTime": since,
            },
        }
        for each in report.failed[:MOST_FAILED]
    ]


def _named(reports: Sequence[ObjectReport]) -> str:
    names = ", ".join(str(each.identity) for each in reports[:_MOST_NAMED])
    more = f" and {len(reports) - _MOST_NAMED} more" if len(reports) > _MOST_NAMED else ""
    return f"{names}{more}"


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The status of one cluster in a placement; its conditions are those of its binding."""

    cluster: str
    conditions: tuple[Condition, ...]
    resource_index: str = ""
    failed: Sequence[Object] = ()
    overrides: ClusterOverrides = NO_OVERRIDES
    diffed: Sequence[Object] = ()
    drifted: Sequence[Object] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything there is to report of a placement."""

    picking: Picking
    placement_type: str
    clusters: Sequence[ClusterView] = ()
    selected: Sequence[ResourceIdentifier] = ()
    resource_index: str = ""
    is_external: bool = False
    is_compared: bool = False


def placement_status(placement: Object, summary: Summary, now: float) -> Object:
    """Return the status of a placement."""
    before: Object = placement.get("status") or {}
    generation = generation_of(placement)
    kind = scope_of(placement).kind
    conditions = [_prefixed(each, kind) for each in placement_conditions(summary, generation)]
    status: Object = {
        "conditions": exactly(before.get("conditions"), conditions, now),
        "selectedResources": [each.to_object() for each in summary.selected],
        "observedResourceIndex": summary.resource_index,
        "placementStatuses": cluster_statuses(before, summary, generation, now),
    }
    return {key: value for key, value in status.items() if value}


def with_invalid_selectors(placement: Object, problems: Sequence[str], now: float) -> Object:
    """Return the status of a placement that cannot tell what it selects; the rest stays said."""
    before: Object = placement.get("status") or {}
    message = f"nothing new is placed: {'; '.join(problems)}"
    condition = Condition(
        SCHEDULED, FALSE, "InvalidResourceSelectors", message, generation_of(placement)
    )
    conditions = exactly(
        before.get("conditions"), [_prefixed(condition, scope_of(placement).kind)], now
    )
    return {**before, "conditions": conditions}


def with_condition(
    status: Object, condition: Condition, before: Sequence[Object] | None, now: float
) -> Object:
    """Return a status with one condition more; it keeps its time from `before` if it held."""
    return {**status, "conditions": [*status["conditions"], *exactly(before, [condition], now)]}


def exactly(
    before: Sequence[Object] | None, desired: Iterable[Condition], now: float
) -> list[Object]:
    """Return these conditions and no others; one that held before keeps its time."""
    made = [find_condition(set_condition(before, c, now).conditions, c.type) for c in desired]
    return [each for each in made if each is not None]


def scheduled_condition(picking: Picking, generation: int) -> Condition:
    """Return whether a placement has the clusters it asks for."""
    if picking.is_fulfilled:
        return Condition(SCHEDULED, TRUE, "SchedulingPolicyFulfilled", picking.message, generation)
    return Condition(SCHEDULED, FALSE, "SchedulingPolicyUnfulfilled", picking.message, generation)


def placement_conditions(summary: Summary, generation: int) -> Iterable[Condition]:
    """Yield the conditions of a placement, without its kind, up to the first that does not hold."""
    yield scheduled_condition(summary.picking, generation)
    if not summary.clusters:
        return
    if summary.is_external and not summary.resource_index:
        reason = "RolloutControlledByExternalController"
        message = "strategy.type is External: nothing is rolled out but by an update run"
        yield Condition(ROLLOUT_STARTED, UNKNOWN, reason, message, generation)
        return
    for kind in _REPORTING if summary.is_compared else _APPLYING:
        condition = over_all_clusters(kind, summary.clusters, generation)
        if kind == ROLLOUT_STARTED and condition.status != TRUE:
            # Clusters wait for others, and why those do not get on is said of them alone.
            stuck = [
                f"{view.cluster} is not {each.type}: {each.message}"
                for view in summary.clusters
                for each in view.conditions
                if each.type != ROLLOUT_STARTED and each.status == FALSE
            ]
            message = "; ".join((condition.message, *stuck[:_MOST_NAMED]))
            condition = replace(condition, message=message)
        yield condition
        if condition.status != TRUE:
            return


def over_all_clusters(kind: str, clusters: Sequence[ClusterView], generation: int) -> Condition:
    """Sum up one condition over all clusters: the worst of them counts."""
    found: dict[str, Condition | None] = {
        each.cluster: next((c for c in each.conditions if c.type == kind), None)
        for each in clusters
    }
    statuses = {name: c.status if c else UNKNOWN for name, c in found.items()}
    worst = next((s for s in (FALSE, UNKNOWN) if s in statuses.values()), TRUE)
    reason = _REASONS[kind][worst]
    if worst == TRUE:
        if any(each is not None and each.reason == OVERRIDDEN_SUCCEEDED for each in found.values()):
            reason = OVERRIDDEN_SUCCEEDED
        where = "on its cluster" if len(clusters) == 1 else f"on all {len(clusters)} clusters"
        return Condition(kind, TRUE, reason, where, generation)
    short = [name for name, status in statuses.items() if status == worst]
    details = [
        f"{name}: {condition.message if (condition := found[name]) else 'nothing is known yet'}"
        for name in short[:_MOST_NAMED]
    ]
    more = f" and {len(short) - _MOST_NAMED} more" if len(short) > _MOST_NAMED else ""
    return Condition(kind, worst, reason, "; ".join(details) + more, generation)


def cluster_statuses(before: Object, summary: Summary, generation: int, now: float) -> list[Object]:
    """Return an entry for each cluster picked, and one for each that is asked for and missing."""
    known: dict[str, Object] = {
        str(each.get("clusterName") or ""): each for each in before.get("placementStatuses") or ()
    }
    statuses: list[Object] = []
    for view in summary.clusters:
        message = f"{view.cluster} is picked"
        conditions = [Condition(SCHEDULED, TRUE, SCHEDULED, message, generation)]
        for each in view.conditions:
            conditions.append(replace(each, observed_generation=generation))
            if each.status != TRUE:
                break
        shown = (known.get(view.cluster) or {}).get("conditions")
        status: Object = {
            "clusterName": view.cluster,
            "observedResourceIndex": view.resource_index,
            "applicableClusterResourceOverrides": list(view.overrides.cluster_wide),
            "applicableResourceOverrides": view.overrides.resource_references,
            "conditions": exactly(shown, conditions, now),
            "failedPlacements": list(view.failed),
            "diffedPlacements": list(view.diffed),
            "driftedPlacements": list(view.drifted),
        }
        statuses.append({key: value for key, value in status.items() if value})

    picking = summary.picking
    refused = [each for each in picking.unpicked if not each.is_picked]
    for number in range(max(0, (picking.asked_for or 0) - len(picking.picked))):
        decision = refused[number] if number < len(refused) else None
        names_it = summary.placement_type == PICK_FIXED and decision is not None
        name = decision.cluster if names_it and decision else ""
        why = f"{decision.cluster}: {decision.reason}" if decision else "there are no others"
        failed = Condition(SCHEDULED, FALSE, "ScheduleFailed", why, generation)
        shown = (known.get(name) or {}).get("conditions")
        entry: Object = {"clusterName": name} if name else {}
        statuses.append({**entry, "conditions": exactly(shown, [failed], now)})
    return statuses


def _prefixed(condition: Condition, kind: str) -> Condition:
    """Return a condition as a placement of this kind has it: bindings have it without the kind."""
    return replace(condition, type=kind + condition.type)
