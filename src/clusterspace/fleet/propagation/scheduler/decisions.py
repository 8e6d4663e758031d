"""Filter, score, select, divide: what a binding asks for to where it goes, or why not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from typing import Final

from clusterspace.apis.bindings import clusters_of
from clusterspace.apis.stamps import fnv1a_32
from clusterspace.errors import Malformed
from clusterspace.fleet.propagation.scheduler.affinities import AffinityGroup
from clusterspace.fleet.propagation.scheduler.candidates import Candidate
from clusterspace.fleet.propagation.scheduler.demands import Demand, read_demand
from clusterspace.fleet.propagation.scheduler.division import Counts, allot, grow, shrink
from clusterspace.fleet.propagation.scheduler.filters import Rejection, Verdict, judge
from clusterspace.fleet.propagation.scheduler.placements import Strategy
from clusterspace.fleet.propagation.scheduler.scores import Option, rank
from clusterspace.fleet.propagation.scheduler.spread import CannotSpread, Options, select
from clusterspace.kube.objects import Object


class Reason(Enum):
    """How a decision ended; the reason of the Scheduled condition."""

    SUCCESS = "Success"
    NO_CLUSTER_FIT = "NoClusterFit"
    UNSCHEDULABLE = "Unschedulable"
    SCHEDULER_ERROR = "SchedulerError"


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
        held = {each.name: each.replicas for each in clusters_of(binding)}
        return Decision(held, Reason.SCHEDULER_ERROR, error.message)
    return plan_schedule(demand, candidates)


def plan_schedule(demand: Demand, candidates: Mapping[str, Candidate]) -> Decision:
    """Decide where an object is to be.

    What is placed stays unless it must move. When no place is found it stays too, but for two
    cases: the cluster itself is gone or leaving, or the policy changed and means no cluster.
    """
    failures: list[Decision] = []
    for group in _groups_to_try(demand):
        decision = _plan_in_group(demand, candidates, group)
        if decision.is_success:
            return decision
        failures.append(decision)
    return replace(_summary(failures), targets=_kept(demand, candidates, failures))


def _groups_to_try(demand: Demand) -> Sequence[AffinityGroup]:
    """Return the groups from the one in use on: earlier ones failed before, and stay failed."""
    groups = demand.placement.groups
    in_use = (at for at, group in enumerate(groups) if group.name == demand.group_name)
    return groups[next(in_use, 0) :]


def _plan_in_group(
    demand: Demand, candidates: Mapping[str, Candidate], group: AffinityGroup
) -> Decision:
    verdict = judge(candidates, demand, group)
    failed = Decision({}, group_name=group.name, rejected=verdict.rejected)
    if not verdict.fit:
        return replace(failed, reason=Reason.NO_CLUSTER_FIT, message=_no_fit(verdict))
    if _may_stay(demand, verdict):
        return _success(failed, demand.placed, verdict)
    options = rank(verdict.fit, demand, group)
    chosen = _choose(options, demand)
    if isinstance(chosen, CannotSpread):
        return replace(failed, reason=Reason.SCHEDULER_ERROR, message=chosen.message)
    targets = _assign(chosen, demand)
    if targets is None:
        return replace(failed, reason=Reason.UNSCHEDULABLE, message=_too_small(chosen, demand))
    return replace(_success(failed, targets, verdict), is_repeat=demand.is_fresh)


def _may_stay(demand: Demand, verdict: Verdict) -> bool:
    """Tell whether shared-out replicas are right as they are: nothing asks for them to move."""
    return (
        demand.is_divided
        and demand.replicas > 0
        and not (demand.is_new or demand.is_changed or demand.is_fresh)
        and sum(demand.placed.values()) == demand.replicas
        and demand.placed.keys() <= {candidate.name for candidate in verdict.fit}
    )


def _choose(options: Options, demand: Demand) -> Options | CannotSpread:
    placement = demand.placement
    if not placement.spreads or placement.strategy is Strategy.STATIC:
        return options  # weights name every cluster's part; spreading would contradict them
    is_by_room = demand.has_replicas and placement.strategy.is_by_room
    return select(options, placement.spreads, demand.replicas if is_by_room else 0)


def _assign(chosen: Options, demand: Demand) -> Counts | None:
    """Return the replicas of each cluster chosen; None when there is not room enough."""
    if not demand.has_replicas:
        return dict.fromkeys((option.name for option in chosen), 0)
    if demand.placement.strategy is Strategy.DUPLICATED:
        return dict.fromkeys((option.name for option in chosen), demand.replicas)
    if demand.replicas == 0:
        # Scaled to nothing is not removed: the object stays where it is, with no replicas.
        used = [option.name for option in chosen if option.is_used]
        return dict.fromkeys(used or (option.name for option in chosen), 0)
    if demand.placement.strategy is Strategy.STATIC:
        return _used(_by_weight(chosen, demand))
    return _used(_by_room(chosen, demand))


def _by_weight(chosen: Options, demand: Demand) -> Counts:
    weights = {
        option.name: demand.placement.weight_of(option.candidate.traits) for option in chosen
    }
    if not any(weights.values()):
        weights = dict.fromkeys(weights, 1)
    # Half of all objects start from the end of the alphabet, or its beginning would fill up.
    is_odd = fnv1a_32(demand.template_uid) % 2 == 1
    return allot(demand.replicas, weights, last_name_first=is_odd)


def _by_room(chosen: Options, demand: Demand) -> Counts | None:
    on_few = demand.placement.strategy is Strategy.AGGREGATED
    tiers = [tuple(tier) for _, tier in groupby(_in_order(chosen), key=lambda each: each.tier)]
    if demand.is_fresh:
        room = [{each.name: each.holds for each in tier} for tier in tiers]
        return grow({}, demand.replicas, room, on_few=on_few)
    placed = {option.name: option.placed for option in chosen if option.placed}
    if sum(placed.values()) > demand.replicas:
        held = [{each.name: each.placed for each in _largest_first(tier)} for tier in tiers]
        return shrink(held, demand.replicas, on_few=on_few)
    free = [{each.name: each.free for each in tier} for tier in tiers]
    return grow(placed, demand.replicas, free, on_few=on_few)


def _in_order(chosen: Options) -> list[Option]:
    """Return clusters tier by tier: those in use first, then those with most room."""
    return sorted(chosen, key=lambda each: (each.tier, not each.is_used, -each.free, each.name))


def _largest_first(tier: Options) -> list[Option]:
    return sorted(tier, key=lambda option: (-option.placed, option.name))


def _used(counts: Counts | None) -> Counts | None:
    """Return the clusters that got something: no cluster has an object with nothing in it."""
    return None if counts is None else {name: count for name, count in counts.items() if count}


def _success(so_far: Decision, targets: Counts, verdict: Verdict) -> Decision:
    spare = [each.name for each in verdict.fit if each.name not in targets]
    left_out = tuple(Rejection(name, "would do, but was not needed") for name in spare)
    return replace(so_far, targets=targets, left_out=left_out)


def _kept(
    demand: Demand, candidates: Mapping[str, Candidate], failures: Sequence[Decision]
) -> Counts:
    """Return what stays placed although no place was found."""
    means_none = all(each.reason is Reason.NO_CLUSTER_FIT for each in failures)
    if demand.is_changed and means_none:
        return {}
    present = {name for name, each in candidates.items() if not each.is_leaving}
    return {name: count for name, count in demand.placed.items() if name in present}


def _summary(failures: Sequence[Decision]) -> Decision:
    """Return one failure for those of all groups; what waits for room outweighs what fits not."""
    worst = next((each for each in failures if not each.is_applied), failures[0])
    if len(failures) == 1:
        return worst
    messages = [f"affinity group {each.group_name}: {each.message}" for each in failures]
    return replace(worst, message=" ".join(messages))


def _no_fit(verdict: Verdict) -> str:
    if not verdict.rejected:
        return "0/0 clusters are available: no cluster has joined the fleet."
    reasons = sorted({each.reason for each in verdict.rejected})
    counted = (
        f"{sum(each.reason == reason for each in verdict.rejected)} cluster(s) {reason}"
        for reason in reasons
    )
    return f"0/{len(verdict.rejected)} clusters are available: {', '.join(counted)}."


def _too_small(chosen: Options, demand: Demand) -> str:
    room = sum(option.holds for option in chosen)
    names = ", ".join(sorted(option.name for option in chosen))
    return f"The clusters that fit ({names}) have room for {room} of {demand.replicas} replicas."
