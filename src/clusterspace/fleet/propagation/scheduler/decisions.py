"""Filter, score, select, divide: what a binding asks for to where it goes, or why not.

The decision is written on the binding in two steps: clusters and placement, then the status.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from typing import Final, cast

from clusterspace.apis import stamps
from clusterspace.apis.bindings import clusters_of, placement_of
from clusterspace.apis.stamps import fnv1a_32
from clusterspace.errors import Malformed
from clusterspace.fleet.propagation.scheduler.affinities import AffinityGroup
from clusterspace.fleet.propagation.scheduler.candidates import Candidate
from clusterspace.fleet.propagation.scheduler.demands import (
    Demand,
    Strategy,
    applied_text,
    read_demand,
)
from clusterspace.fleet.propagation.scheduler.division import Counts, allot, grow, shrink
from clusterspace.fleet.propagation.scheduler.filters import Rejection, filter_clusters
from clusterspace.fleet.propagation.scheduler.selection import (
    CannotSpread,
    Options,
    rank,
    select,
)
from clusterspace.kube.conditions import FALSE, TRUE, Condition, set_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    metadata_of,
    with_metadata,
    with_value,
    without_value,
)
from clusterspace.kube.times import format_time


class Reason(Enum):
    """How a decision ended; the reason of the Scheduled condition."""

    SUCCESS = "Success"
    NO_CLUSTER_FIT = "NoClusterFit"
    UNSCHEDULABLE = "Unschedulable"
    SCHEDULER_ERROR = "SchedulerError"


SCHEDULED: Final = "Scheduled"
SUCCEEDED: Final = "Binding has been scheduled successfully."


@dataclass(frozen=True, slots=True)
class Decision:
    """Where an object is to be, how it came to that, and why not elsewhere."""

    targets: Counts
    """Clusters to replicas; 0 where replicas are not shared out."""
    reason: Reason = Reason.SUCCESS
    message: str = SUCCEEDED
    group_name: str = ""
    rejected: tuple[Rejection, ...] = ()
    left_out: tuple[Rejection, ...] = ()
    """Clusters that would do and were not needed."""
    is_repeat: bool = False
    """Whether it was asked for anew, and is worth a note even if nothing changed."""

    @property
    def is_success(self) -> bool:
        """Whether a place was found."""
        return self.reason is Reason.SUCCESS

    @property
    def is_applied(self) -> bool:
        """Whether the placement is spent: what became of it is decided until something changes."""
        return self.reason in (Reason.SUCCESS, Reason.NO_CLUSTER_FIT)


def plan_for(binding: Object, candidates: Mapping[str, Candidate]) -> Decision:
    """Decide about a binding; one that cannot be read stays as it is, and says why."""
    try:
        demand = read_demand(binding)
    except Malformed as error:
        placed = {each.name: each.replicas for each in clusters_of(binding)}
        return Decision(placed, Reason.SCHEDULER_ERROR, error.message)
    return plan_schedule(demand, candidates)


def plan_schedule(demand: Demand, candidates: Mapping[str, Candidate]) -> Decision:
    """Decide where an object is to be.

    What is placed stays unless it must move. When no place is found it stays too, but for two
    cases: the cluster itself is gone or leaving, or the policy changed and means no cluster.
    """
    groups = demand.placement.groups
    in_use = (at for at, group in enumerate(groups) if group.name == demand.group_name)
    failures: list[Decision] = []
    # From the group in use on: earlier ones failed before, and stay failed.
    for group in groups[next(in_use, 0) :]:
        decision = plan_in_group(demand, candidates, group)
        if decision.is_success:
            return decision
        failures.append(decision)

    # What waits for room outweighs what fits nowhere.
    failure = next((each for each in failures if not each.is_applied), failures[0])
    if len(failures) > 1:
        messages = [f"affinity group {each.group_name}: {each.message}" for each in failures]
        failure = replace(failure, message=" ".join(messages))
    fits_nowhere = all(each.reason is Reason.NO_CLUSTER_FIT for each in failures)
    if demand.is_changed and fits_nowhere:
        return replace(failure, targets={})
    present = {name for name, each in candidates.items() if not each.is_leaving}
    kept = {name: count for name, count in demand.placed.items() if name in present}
    return replace(failure, targets=kept)


def plan_in_group(
    demand: Demand, candidates: Mapping[str, Candidate], group: AffinityGroup
) -> Decision:
    """Decide where an object is to be among the clusters of one affinity group."""
    filtered = filter_clusters(candidates, demand, group)
    decision = Decision({}, group_name=group.name, rejected=filtered.rejected)
    if not filtered.fit:
        message = _no_fit(filtered.rejected)
        return replace(decision, reason=Reason.NO_CLUSTER_FIT, message=message)
    # Room comes and goes, and weights are not exact: sharing out again what is right would move
    # replicas, and so pods, each time anybody looks at the binding.
    targets: Counts | None = demand.placed
    is_asked_anew = demand.is_new or demand.is_changed or demand.is_fresh
    may_stay = (
        demand.is_divided
        and demand.replicas > 0
        and not is_asked_anew
        and sum(demand.placed.values()) == demand.replicas
        and demand.placed.keys() <= {candidate.name for candidate in filtered.fit}
    )
    if not may_stay:
        chosen, placement = rank(filtered.fit, demand, group), demand.placement
        # Weights name every cluster's part; spreading would contradict them.
        if placement.spreads and placement.strategy is not Strategy.STATIC:
            is_by_room = demand.has_replicas and placement.strategy.is_by_room
            spread = select(chosen, placement.spreads, demand.replicas if is_by_room else 0)
            if isinstance(spread, CannotSpread):
                return replace(decision, reason=Reason.SCHEDULER_ERROR, message=spread.message)
            chosen = spread
        targets = assign(chosen, demand)
        if targets is None:
            room = sum(option.holds for option in chosen)
            names = ", ".join(sorted(option.name for option in chosen))
            asked = f"{room} of {demand.replicas} replicas"
            message = f"The clusters that fit ({names}) have room for {asked}."
            return replace(decision, reason=Reason.UNSCHEDULABLE, message=message)
    spare = [each.name for each in filtered.fit if each.name not in targets]
    return replace(
        decision,
        targets=targets,
        left_out=tuple(Rejection(name, "would do, but was not needed") for name in spare),
        is_repeat=demand.is_fresh and not may_stay,
    )


def assign(chosen: Options, demand: Demand) -> Counts | None:
    """Return the replicas of each cluster chosen; None when there is not room enough."""
    names, strategy = [option.name for option in chosen], demand.placement.strategy
    if not demand.has_replicas:
        return dict.fromkeys(names, 0)
    if strategy is Strategy.DUPLICATED:
        return dict.fromkeys(names, demand.replicas)
    if demand.replicas == 0:
        # Scaled to nothing is not removed: the object stays where it is, with no replicas.
        used = [option.name for option in chosen if option.is_used]
        return dict.fromkeys(used or names, 0)
    if strategy is Strategy.STATIC:
        placement = demand.placement
        weights = {each.name: placement.weight_of(each.candidate.traits) for each in chosen}
        if not any(weights.values()):
            weights = dict.fromkeys(weights, 1)
        # Half of all objects start from the end of the alphabet, or its beginning would fill up.
        is_odd = fnv1a_32(demand.template_uid) % 2 == 1
        counts: Counts | None = allot(demand.replicas, weights, last_name_first=is_odd)
    else:
        counts = assign_by_room(chosen, demand)
    # No cluster has an object with nothing in it.
    return None if counts is None else {name: count for name, count in counts.items() if count}


def assign_by_room(chosen: Options, demand: Demand) -> Counts | None:
    """Return the replicas of each cluster by how much it can hold; None when it is not enough.

    What is placed moves only when somebody asked for a fresh start.
    """
    on_few = demand.placement.strategy is Strategy.AGGREGATED
    # Tier by tier: those in use first, then those with most room.
    order = sorted(chosen, key=lambda each: (each.tier, not each.is_used, -each.free, each.name))
    tiers = [tuple(tier) for _, tier in groupby(order, key=lambda each: each.tier)]
    if demand.is_fresh:
        room = [{each.name: each.holds for each in tier} for tier in tiers]
        return grow({}, demand.replicas, room, on_few=on_few)
    placed = {option.name: option.placed for option in chosen if option.placed}
    if sum(placed.values()) > demand.replicas:
        largest = [sorted(tier, key=lambda each: (-each.placed, each.name)) for tier in tiers]
        current = [{each.name: each.placed for each in tier} for tier in largest]
        return shrink(current, demand.replicas, on_few=on_few)
    free = [{each.name: each.free for each in tier} for tier in tiers]
    return grow(placed, demand.replicas, free, on_few=on_few)


def _no_fit(rejected: Sequence[Rejection]) -> str:
    """Return how many clusters were rejected for each reason, in Karmada's words."""
    if not rejected:
        return "0/0 clusters are available: no cluster has joined the fleet."
    counts = Counter(each.reason for each in rejected)
    counted = ", ".join(f"{counts[reason]} cluster(s) {reason}" for reason in sorted(counts))
    return f"0/{len(rejected)} clusters are available: {counted}."


def with_targets(binding: Object, decision: Decision) -> Object:
    """Return the binding with where its object is to be, and by which placement."""
    targets, chosen = decision.targets, binding
    # In whatever order they are: the same clusters are no change.
    if {each.name: each.replicas for each in clusters_of(binding)} != dict(targets):
        listed = [
            {"name": name, "replicas": targets[name]} if targets[name] else {"name": name}
            for name in sorted(targets)
        ]
        chosen = (
            with_value(binding, listed, "spec", "clusters")
            if listed
            else without_value(binding, "spec", "clusters")
        )
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
    before = cast("Object", binding.get("status") or {})
    condition = Condition(
        SCHEDULED,
        TRUE if decision.is_success else FALSE,
        decision.reason.value,
        decision.message,
    )
    changed = set_condition(before.get("conditions"), condition, now)
    status = {**before, "conditions": changed.conditions}
    if decision.is_success:
        status["schedulerObservedGeneration"] = metadata_of(binding).get("generation")
        if decision.group_name:
            status["schedulerObservingAffinityName"] = decision.group_name
        if status != before or decision.is_repeat:
            status["lastScheduledTime"] = format_time(now)
    return {**binding, "status": status}


def result_text(targets: Counts) -> str:
    """Return the clusters, with the replicas of each, as events tell it."""
    listed = (f"{name}:{targets[name]}" if targets[name] else name for name in sorted(targets))
    return f"{{{', '.join(listed)}}}"
