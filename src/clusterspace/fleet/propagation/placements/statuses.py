"""What a placement says of itself: what it selects, where it is, and what is wrong.

    Scheduled ─> RolloutStarted ─> Overridden ─> WorkSynchronized ─> Applied ─> Available

After the first that does not hold, the rest is not told: it would be about something that has not
begun. That clusters are missing keeps nobody from hearing about those that are there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from clusterspace.apis.fleet_placements import PICK_FIXED, Identity, generation_of
from clusterspace.apis.works import APPLIED
from clusterspace.fleet.propagation.placements.picking import Picking
from clusterspace.fleet.propagation.placements.reports import (
    AVAILABLE,
    OVERRIDDEN,
    WORK_SYNCHRONIZED,
)
from clusterspace.kube.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    find_condition,
    set_condition,
)
from clusterspace.kube.objects import Object

SCHEDULED: Final = "Scheduled"
ROLLOUT_STARTED: Final = "RolloutStarted"
PREFIX: Final = "ClusterResourcePlacement"

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
}
_CHAIN: Final = tuple(_REASONS)
_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What is told of one cluster; its conditions are those of its binding."""

    cluster: str
    conditions: tuple[Condition, ...]
    resource_index: str = ""
    failed: Sequence[Object] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything there is to be told of a placement."""

    picking: Picking
    placement_type: str
    clusters: Sequence[ClusterView] = ()
    selected: Sequence[Identity] = ()
    resource_index: str = ""
    is_external: bool = False


def summed_up(placement: Object, summary: Summary, now: float) -> Object:
    """Return the status of a placement."""
    before: Object = placement.get("status") or {}
    generation = generation_of(placement)
    conditions = exactly(before.get("conditions"), _conditions(summary, generation), now)
    status: Object = {
        "conditions": conditions,
        "selectedResources": [each.to_object() for each in summary.selected],
        "observedResourceIndex": summary.resource_index,
        "placementStatuses": _placement_statuses(before, summary, generation, now),
    }
    return {key: value for key, value in status.items() if value}


def with_invalid_selectors(placement: Object, problems: Sequence[str], now: float) -> Object:
    """Return the status of a placement that cannot tell what it selects; the rest stays said."""
    before: Object = placement.get("status") or {}
    message = f"nothing new is placed: {'; '.join(problems)}"
    told = Condition(
        SCHEDULED, FALSE, "InvalidResourceSelectors", message, generation_of(placement)
    )
    return {**before, "conditions": exactly(before.get("conditions"), [_prefixed(told)], now)}


def exactly(
    before: Sequence[Object] | None, wanted: Iterable[Condition], now: float
) -> list[Object]:
    """Return these conditions and no others; one that held before keeps its time."""
    made = [find_condition(set_condition(before, c, now).conditions, c.type) for c in wanted]
    return [each for each in made if each is not None]


def scheduled_condition(picking: Picking, generation: int) -> Condition:
    """Return whether a placement has the clusters it asks for."""
    if picking.is_fulfilled:
        return Condition(SCHEDULED, TRUE, "SchedulingPolicyFulfilled", picking.message, generation)
    return Condition(SCHEDULED, FALSE, "SchedulingPolicyUnfulfilled", picking.message, generation)


def _conditions(summary: Summary, generation: int) -> Iterable[Condition]:
    picked = scheduled_condition(summary.picking, generation)
    yield _prefixed(picked)
    if not summary.clusters:
        return
    if summary.is_external:
        reason, message = "RolloutControlledByExternalController", "somebody else rolls it out"
        yield _prefixed(Condition(ROLLOUT_STARTED, UNKNOWN, reason, message, generation))
        return
    for kind in _CHAIN:
        condition = _over_all(kind, summary.clusters, generation)
        yield _prefixed(condition)
        if condition.status != TRUE:
            return


def _over_all(kind: str, clusters: Sequence[ClusterView], generation: int) -> Condition:
    """Sum up one condition over all clusters: the worst of them counts."""
    told = {each.cluster: _find(each.conditions, kind) for each in clusters}
    statuses = {name: c.status if c else UNKNOWN for name, c in told.items()}
    worst = next((s for s in (FALSE, UNKNOWN) if s in statuses.values()), TRUE)
    reason = _REASONS[kind][worst]
    if worst == TRUE:
        return Condition(kind, TRUE, reason, f"on all {len(clusters)} cluster(s)", generation)
    short = [name for name, status in statuses.items() if status == worst]
    details = [
        f"{name}: {told_of.message if (told_of := told[name]) else 'nothing is known yet'}"
        for name in short[:_MOST_NAMED]
    ]
    more = f" and {len(short) - _MOST_NAMED} more" if len(short) > _MOST_NAMED else ""
    return Condition(kind, worst, reason, "; ".join(details) + more, generation)


def _placement_statuses(
    before: Object, summary: Summary, generation: int, now: float
) -> list[Object]:
    known: dict[str, Object] = {
        str(each.get("clusterName") or ""): each for each in before.get("placementStatuses") or ()
    }
    told = [
        _of_cluster(each, known.get(each.cluster), generation, now) for each in summary.clusters
    ]
    return [*told, *_unfilled(summary, known, generation, now)]


def _of_cluster(view: ClusterView, known: Object | None, generation: int, now: float) -> Object:
    message = f"{view.cluster} is picked"
    scheduled = Condition(SCHEDULED, TRUE, SCHEDULED, message, generation)
    wanted = [scheduled, *(_at(each, generation) for each in _up_to_first_failure(view.conditions))]
    status: Object = {
        "clusterName": view.cluster,
        "observedResourceIndex": view.resource_index,
        "conditions": exactly((known or {}).get("conditions"), wanted, now),
        "failedPlacements": list(view.failed),
    }
    return {key: value for key, value in status.items() if value}


def _unfilled(
    summary: Summary, known: Mapping[str, Object], generation: int, now: float
) -> Iterable[Object]:
    """Yield an entry for each cluster that is asked for and was not found."""
    picking = summary.picking
    missing = (picking.asked_for or 0) - len(picking.picked)
    refused = [each for each in picking.unpicked if not each.is_picked]
    for number in range(max(0, missing)):
        decision = refused[number] if number < len(refused) else None
        names_it = summary.placement_type == PICK_FIXED and decision is not None
        name = decision.cluster if names_it and decision else ""
        why = f"{decision.cluster}: {decision.reason}" if decision else "there are no others"
        wanted = Condition(SCHEDULED, FALSE, "ScheduleFailed", why, generation)
        conditions = exactly((known.get(name) or {}).get("conditions"), [wanted], now)
        yield {**({"clusterName": name} if name else {}), "conditions": conditions}


def _up_to_first_failure(conditions: Iterable[Condition]) -> Iterable[Condition]:
    for each in conditions:
        yield each
        if each.status != TRUE:
            return


def _at(condition: Condition, generation: int) -> Condition:
    return replace(condition, observed_generation=generation)


def _prefixed(condition: Condition) -> Condition:
    return replace(condition, type=PREFIX + condition.type)


def _find(conditions: Iterable[Condition], kind: str) -> Condition | None:
    return next((each for each in conditions if each.type == kind), None)
