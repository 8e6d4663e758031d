"""Score, select, divide, and the decision: what a binding asks for to where it goes, or why not.

    filters ──fit──> rank ──> select (spread over groups) ──> assign (replicas) ──> Decision

The decision is written on the binding in two steps: clusters and placement, then the status.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from heapq import heapify, heapreplace
from itertools import combinations, groupby, islice
from typing import Any, Final, TypeAlias, cast

import msgspec

from clusterspace.apis import stamps
from clusterspace.apis.stamps import fnv1a_32
from clusterspace.apis.works import clusters_of, placement_of, template_of
from clusterspace.errors import Malformed
from clusterspace.fleet.propagation.scheduler.demands import (
    AffinityGroup,
    Demand,
    Spread,
    Strategy,
    applied_text,
    found_no_node,
    read_demand,
)
from clusterspace.fleet.propagation.scheduler.filters import (
    Candidate,
    Rejection,
    available_replicas,
    filter_clusters,
)
from clusterspace.fleet.propagation.scheduler.peers import NO_PEERS, Peers
from clusterspace.kube.conditions import FALSE, TRUE, Condition, set_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    metadata_of,
    with_metadata,
    with_value,
    without_value,
)
from clusterspace.kube.times import format_time, parse_time

# -- which of the clusters that may be used are used: scored, then spread over groups ----------


@dataclass(frozen=True, slots=True)
class Option:
    """A cluster that may be used, and what speaks for it."""

    candidate: Candidate
    tier: int = 0
    """0 is the affinity group itself; the others take what it cannot hold."""
    placed: int = 0
    is_used: bool = False
    free: int = 0
    """How many replicas it could take besides those it has."""

    @property
    def name(self) -> str:
        """What the cluster is called."""
        return self.candidate.name

    @property
    def holds(self) -> int:
        """How many replicas it could have in all."""
        return self.placed + self.free


def rank(fit: Iterable[Candidate], demand: Demand, group: AffinityGroup) -> tuple[Option, ...]:
    """Return the clusters that may be used, the best first."""
    options = [
        Option(
            each,
            tier=group.find_tier(each.traits, may_overflow=demand.has_replicas) or 0,
            placed=demand.placed.get(each.name, 0),
            is_used=each.name in demand.placed,
            free=available_replicas(each.room, demand) if demand.is_sized else 0,
        )
        for each in fit
    ]
    return tuple(sorted(options, key=lambda o: (o.tier, not o.is_used, -o.holds, o.name)))


Options: TypeAlias = tuple[Option, ...]

_ANY_CLUSTERS: Final = Spread("cluster", 0, 0)
_MOST_TRIES: Final = 2000
"""Combinations of groups looked at: the best come first, and nobody waits for the last of many."""


@dataclass(frozen=True, slots=True)
class CannotSpread:
    """Why the clusters that fit are not enough for the spread that is asked for."""

    message: str


def select(options: Options, spreads: Sequence[Spread], needed: int) -> Options | CannotSpread:
    """Choose clusters, the best first, so that every spread is met.

    `needed` replicas are to find room on those chosen, if that can be; 0 when room is no matter.
    """
    clusters = next((each for each in spreads if each.field == "cluster"), _ANY_CLUSTERS)
    others = [each for each in spreads if each.field != "cluster"]
    if len(others) > 1:
        fields = " and ".join(each.field for each in others)
        return CannotSpread(f"the placement spreads over {fields}, and only one of them can be met")
    if len(options) < clusters.fewest:
        return _too_few(clusters, len(options))
    if others:
        return select_over_groups(options, others[0], clusters, needed)
    # As many of the best as possible, larger ones only as far as need be.
    count = clusters.most or len(options)
    chosen = options[:count]
    for kept in range(len(chosen), -1, -1):
        rest = sorted(options[kept:], key=lambda option: -option.holds)
        chosen = (*options[:kept], *rest[: count - kept])
        if _hold(chosen) >= needed:
            break
    return chosen


def select_over_groups(
    options: Options, groups: Spread, clusters: Spread, needed: int
) -> Options | CannotSpread:
    """Choose clusters of so many groups, as many clusters as asked for, with room if possible."""
    ranked = _ranked_groups(options, groups.field)
    # Fewer clusters than groups cannot be: then the groups count, as they do for Karmada, and each
    # has one cluster.
    most_clusters = clusters.most and max(clusters.most, groups.fewest)
    most = min(each for each in (len(ranked), groups.most, most_clusters) if each)
    if most < groups.fewest:
        return _too_few(groups, most)
    # For each combination of groups, those of the best groups first: the best clusters of each,
    # then the largest of each.
    count = most_clusters or len(options)
    choices: list[Options] = []
    for combination in islice(combinations(ranked, most), _MOST_TRIES):
        choices.append(_over_each(combination, count))
        larger = [tuple(sorted(each, key=lambda o: -o.holds)) for each in combination]
        choices.append(_over_each(larger, count))
    enough = [each for each in choices if len(each) >= clusters.fewest]
    if not enough:
        return CannotSpread(
            f"no {most} groups by {groups.field} have {clusters.fewest} clusters that fit"
        )
    return next((each for each in enough if _hold(each) >= needed), max(enough, key=_hold))


def _over_each(groups: Sequence[Options], count: int) -> Options:
    """Choose one cluster of every group, then the best of all others, so many in all."""
    first = tuple(group[0] for group in groups)
    rest = [option for group in groups for option in group[1:]]
    ordered = sorted(rest, key=lambda option: (option.tier, not option.is_used, -option.holds))
    return (*first, *ordered[: count - len(first)])


def _ranked_groups(options: Options, field: str) -> list[Options]:
    """Return the clusters by group: groups in use first, then those with more room."""
    groups: dict[str, Options] = {}
    for option in options:
        name = ",".join(sorted(option.candidate.traits.values_of(field)))
        groups[name] = (*groups.get(name, ()), option)

    def order(name: str) -> tuple[int, int, int, int, str]:
        group = groups[name]
        used = sum(option.is_used for option in group)
        return (min(each.tier for each in group), -used, -_hold(group), -len(group), name)

    return [groups[name] for name in sorted(groups, key=order)]


def _hold(options: Iterable[Option]) -> int:
    return sum(option.holds for option in options)


def _too_few(spread: Spread, there_are: int) -> CannotSpread:
    return CannotSpread(
        f"the placement spreads over {spread.fewest} or more by {spread.field}, "
        f"and only {there_are} fit"
    )


# -- how many replicas each cluster gets: the arithmetic, alone --------------------------------

# Shares are proportional by Webster's method: the next replica goes where weight / (2·given + 1) is
# largest. Unlike rounding it never takes from one cluster because there is more to share out, so
# scaling up only adds and scaling down only removes.

Counts: TypeAlias = Mapping[str, int]


def allot(replicas: int, weights: Counts, *, last_name_first: bool = False) -> dict[str, int]:
    """Share out replicas by weight; a cluster without weight gets none.

        allot(8, {"a": 100, "b": 80, "c": 30, "d": 20})  is  {"a": 3, "b": 3, "c": 1, "d": 1}

    Of clusters with equal claims the one with fewer replicas is first, then the one whose name
    is first, or last.
    """
    heavy = {name: weight for name, weight in weights.items() if weight > 0}
    given = {**dict.fromkeys(weights, 0), **_head_start(replicas, heavy)}
    ordered = sorted(heavy, reverse=last_name_first)
    claims = [
        (-Fraction(heavy[name], 2 * given[name] + 1), given[name], rank)
        for rank, name in enumerate(ordered)
    ]
    heapify(claims)
    for _ in range(replicas - sum(given.values()) if claims else 0):
        _, count, rank = claims[0]
        name = ordered[rank]
        given[name] = count + 1
        heapreplace(claims, (-Fraction(heavy[name], 2 * count + 3), count + 1, rank))
    return given


def fill(replicas: int, tiers: Sequence[Counts], *, on_few: bool) -> dict[str, int]:
    """Share out replicas over what clusters can hold, one tier after the other.

    The next tier gets what the one before cannot hold. With `on_few`, each tier uses the first
    clusters that hold its part, in the order given, and no more.
    """
    given: dict[str, int] = {}
    for tier in tiers:
        part = min(replicas - sum(given.values()), sum(tier.values()))
        weights: dict[str, int] = {}
        for name, holds in tier.items():
            if on_few and sum(weights.values()) >= part:
                break
            weights[name] = holds
        given |= allot(part, weights)
    return given


def grow(
    placed: Counts, replicas: int, free: Sequence[Counts], *, on_few: bool
) -> dict[str, int] | None:
    """Add what is missing where there is room, and move nothing; None when it does not fit."""
    missing = replicas - sum(placed.values())
    if missing > sum(sum(tier.values()) for tier in free):
        return None
    added = fill(missing, free, on_few=on_few)
    return {name: placed.get(name, 0) + added.get(name, 0) for name in {**placed, **added}}


def shrink(placed: Sequence[Counts], replicas: int, *, on_few: bool) -> dict[str, int]:
    """Take away what is too much, in proportion to what each has; nobody gets more."""
    return fill(replicas, placed, on_few=on_few)


def _head_start(replicas: int, weights: Counts) -> dict[str, int]:
    """Return the replicas each cluster gets in any case, so that a million take no million steps.

    Every replica whose claim is above some threshold is given before any below it. At the
    threshold chosen here at most `replicas` are given, and all but about two per cluster.
    """
    total, safe = sum(weights.values()), max(replicas - len(weights), 0)
    return {
        name: max(-((total - 2 * weight * safe) // (2 * total)), 0)
        for name, weight in weights.items()
    }


# -- the steps in their order ------------------------------------------------------------------


class Reason(Enum):
    """How a decision ended; the reason of the Scheduled condition."""

    SUCCESS = "Success"
    NO_CLUSTER_FIT = "NoClusterFit"
    UNSCHEDULABLE = "Unschedulable"
    SCHEDULER_ERROR = "SchedulerError"
    QUOTA_EXCEEDED = "QuotaExceeded"


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
    relocated: frozenset[str] = frozenset()
    """Clusters that replicas leave because they find no node there."""
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


def plan_for(
    binding: Object, candidates: Mapping[str, Candidate], peers: Peers = NO_PEERS
) -> Decision:
    """Decide about a binding; one that cannot be read stays as it is, and says why."""
    try:
        demand = replace(read_demand(binding), beside=peers.beside, apart=peers.apart)
    except Malformed as error:
        placed = {each.name: each.replicas for each in clusters_of(binding)}
        return Decision(placed, Reason.SCHEDULER_ERROR, error.message)
    return plan_schedule(demand, candidates)


def plan_schedule(demand: Demand, candidates: Mapping[str, Candidate]) -> Decision:
    """Decide where an object is to be.

    What is placed stays unless it must move. When no place is found it stays too, but for three
    cases: the cluster itself is gone or leaving, the policy changed and means no cluster, or the
    cluster was given a label or a field that every affinity of the policy speaks against.
    """
    groups = demand.placement.groups
    in_use = (at for at, group in enumerate(groups) if group.name == demand.group_name)
    # From the group in use on: an earlier one that is well again is no reason to move what runs.
    # Somebody who asks for a fresh start is one, and so is that nothing fits from here on.
    first = 0 if demand.is_fresh else next(in_use, 0)
    failures: list[Decision] = []
    for group in (*groups[first:], *groups[:first]):
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
    # A label that is gone is not one that says no: clusters join again without their labels.
    denied = {
        name
        for name in demand.placed.keys() & present
        if fits_nowhere and all(group.is_denied_by(candidates[name].traits) for group in groups)
    }
    kept = {name: count for name, count in demand.placed.items() if name in present - denied}
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
    if may_stay and demand.stuck and demand.placement.strategy.is_by_room:
        targets = relocate(rank(filtered.fit, demand, group), demand)
        left = (name for name in demand.stuck if targets.get(name, 0) < demand.placed[name])
        decision = replace(decision, relocated=frozenset(left))
    if not may_stay:
        chosen, placement = rank(filtered.fit, demand, group), demand.placement
        if demand.components and placement.strategy.is_by_room:
            # The parts of a workload stay together: a cluster takes all of them or none.
            able = tuple(each for each in chosen if each.is_used or each.free)
            if not able:
                return replace(decision, **_no_room(chosen, demand))
            chosen = able
        # Weights name every cluster's part; spreading would contradict them.
        if placement.spreads and placement.strategy is not Strategy.STATIC:
            is_by_room = demand.has_replicas and placement.strategy.is_by_room
            spread = select(chosen, placement.spreads, demand.replicas if is_by_room else 0)
            if isinstance(spread, CannotSpread):
                return replace(decision, reason=Reason.SCHEDULER_ERROR, message=spread.message)
            chosen = spread
        targets = assign(chosen, demand)
        if targets is None:
            return replace(decision, **_no_room(chosen, demand))
    spare = [each.name for each in filtered.fit if each.name not in targets]
    return replace(
        decision,
        targets=targets,
        left_out=tuple(Rejection(name, "would do, but was not needed") for name in spare),
        is_repeat=demand.is_fresh and not may_stay,
    )


def _no_room(chosen: Options, demand: Demand) -> dict[str, Any]:
    """Return the reason and the message of a decision that found too little room."""
    names = ", ".join(sorted(option.name for option in chosen))
    room = sum(option.holds for option in chosen)
    asked = f"room for {room} of {demand.replicas} replicas"
    if demand.components:
        asked = "no room for all its components together"
    message = f"The clusters that fit ({names}) have {asked}."
    for option in sorted(chosen, key=lambda option: option.name):
        if option.candidate.room.stale_since:
            since = option.candidate.room.stale_since
            message += f" {option.name} has not said anything new since {since}."
    spread = next((each for each in demand.placement.spreads if each.field == "cluster"), None)
    if spread is None:
        return {"reason": Reason.UNSCHEDULABLE, "message": message}
    # Karmada's words for clusters that are chosen by how many are asked for.
    count = min(spread.most or len(chosen), len(chosen))
    message = f"no enough resource when selecting {count} clusters: {message}"
    return {"reason": Reason.SCHEDULER_ERROR, "message": message}


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
        counts = None if counts is None else keep_spread(counts, chosen, demand)
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


def keep_spread(counts: Counts, chosen: Options, demand: Demand) -> Counts:
    """Have as many groups get a replica as the placement spreads over, of those to share out.

    Room alone may give all replicas of a small workload to one region. What is placed does not
    move for it: only replicas that are new, or that are to go, are given to another group.
    """
    spread = next((each for each in demand.placement.spreads if each.field != "cluster"), None)
    if spread is None:
        return counts
    group_of = {each.name: each.candidate.traits.values_of(spread.field) for each in chosen}
    given = {name: count for name, count in counts.items() if count}
    placed = {each.name: each.placed for each in chosen}
    is_shrinking = sum(placed.values()) > demand.replicas and not demand.is_fresh
    fixed = dict.fromkeys(placed, 0) if is_shrinking or demand.is_fresh else placed
    while True:
        used = Counter[frozenset[str]]()
        for name, count in given.items():
            used[group_of[name]] += count
        if len(used) >= min(spread.fewest, demand.replicas):
            return given
        donors = [
            name
            for name, count in given.items()
            if count > fixed.get(name, 0) and used[group_of[name]] > 1
        ]
        takers = [
            each
            for each in chosen
            if group_of[each.name] not in used and (each.placed if is_shrinking else each.holds)
        ]
        if not donors or not takers:
            return given
        donor = max(donors, key=lambda name: (used[group_of[name]], given[name], name))
        taker = min(takers, key=lambda each: (each.tier, not each.is_used, -each.holds, each.name))
        given = {**given, donor: given[donor] - 1, taker.name: 1}
        given = {name: count for name, count in given.items() if count}


def relocate(options: Options, demand: Demand) -> Counts:
    """Return the replicas of each cluster when those that find no node go where there is room.

    As many as find room, and no more: none is given up before there is a place for it. Where the
    placement spreads, they go to clusters in use, so that no spread is broken for them.
    """
    tried = demand.stuck.keys() | demand.found_no_node
    fit = [each for each in options if each.name not in tried]
    if demand.placement.spreads:
        fit = [each for each in fit if each.is_used]
    tiers = [
        {each.name: each.free for each in tier if each.free > 0}
        for _, tier in groupby(sorted(fit, key=lambda each: each.tier), key=lambda each: each.tier)
    ]
    movable = min(sum(demand.stuck.values()), sum(sum(tier.values()) for tier in tiers))
    left, counts = movable, dict(demand.placed)
    for name in sorted(demand.stuck):
        taken = min(demand.stuck[name], left)
        counts[name] -= taken
        left -= taken
    on_few = demand.placement.strategy is Strategy.AGGREGATED
    for name, count in fill(movable, tiers, on_few=on_few).items():
        counts[name] = counts.get(name, 0) + count
    return {name: count for name, count in counts.items() if count}


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
    if decision.relocated:
        version = template_of(binding).resource_version
        noted = {**found_no_node(binding), **dict.fromkeys(decision.relocated, version)}
        text = msgspec.json.encode(noted, order="sorted").decode()
        notes = {**annotations_of(chosen), stamps.FOUND_NO_NODE: text}
        chosen = with_metadata(chosen, annotations=notes)
    if not decision.is_applied:
        return chosen
    applied = applied_text(placement_of(binding) or {})
    noted = {**annotations_of(chosen), stamps.APPLIED_PLACEMENT: applied}
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
        else:
            status.pop("schedulerObservingAffinityName", None)
        if status != before or decision.is_repeat:
            # Never before the time it was asked for, which another machine's clock may have
            # told: an answer that looks older than its question would be given again and again.
            asked = find_at(binding, "spec", "rescheduleTriggeredAt")
            is_answer = decision.is_repeat and asked is not None
            status["lastScheduledTime"] = format_time(
                max(now, parse_time(str(asked))) if is_answer else now
            )
    return {**binding, "status": status}


def result_text(targets: Counts) -> str:
    """Return the clusters, with the replicas of each, as events tell it."""
    listed = (f"{name}:{targets[name]}" if targets[name] else name for name in sorted(targets))
    return f"{{{', '.join(listed)}}}"
