"""Which clusters a placement picks: all, so many, or those named; with a reason for each.

What is picked stays picked until its policy changes or its cluster goes: not when a cluster gets
a taint, loses a label or its health, and not when a better one joins.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from clusterspace.apis.fleet_placements import PICK_FIXED, PICK_N, SCHEDULED, UNSCHEDULED
from clusterspace.fleet.propagation.placements.members import Member
from clusterspace.fleet.propagation.placements.policies import PickPolicy
from clusterspace.fleet.propagation.placements.spreading import balance_with
from clusterspace.fleet.propagation.scheduler.filters import find_untolerated, taint_text
from clusterspace.kube.objects import Object

MOST_UNPICKED: Final = 20
"""How many clusters are told why they were not picked; of a large fleet nobody reads them all."""

_ENOUGH: Final = "it would do, but was not needed"


@dataclass(frozen=True, slots=True, order=True)
class Score:
    """What speaks for a cluster; balance counts before liking."""

    topology: int = 0
    affinity: int = 0


@dataclass(frozen=True, slots=True)
class PickedCluster:
    """A cluster that was picked before, as its binding tells it."""

    cluster: str
    state: str
    is_current: bool
    """Whether it was picked by the policy as it is now."""
    score: Score = Score()


CurrentPicks: TypeAlias = Mapping[str, PickedCluster]
"""What is picked at present, by cluster."""


@dataclass(frozen=True, slots=True)
class ClusterDecision:
    """Whether a cluster is picked, and why or why not."""

    cluster: str
    is_picked: bool
    reason: str
    score: Score | None = None

    def to_object(self) -> Object:
        """Return the decision as snapshots and bindings hold it."""
        written: Object = {
            "clusterName": self.cluster,
            "selected": self.is_picked,
            "reason": self.reason,
        }
        if self.score is not None:
            written["clusterScore"] = {
                "affinityScore": self.score.affinity,
                "priorityScore": self.score.topology,
            }
        return written


@dataclass(frozen=True, slots=True)
class Picking:
    """Every cluster that is picked, and what is to be said about the others."""

    picked: Mapping[str, ClusterDecision]
    unpicked: tuple[ClusterDecision, ...] = ()
    asked_for: int | None = None
    """How many clusters there should be; None when as many as fit are right."""

    @property
    def is_fulfilled(self) -> bool:
        """Whether the placement got as many clusters as it asks for."""
        return self.asked_for is None or len(self.picked) >= self.asked_for

    @property
    def decisions(self) -> tuple[ClusterDecision, ...]:
        """What is told of all clusters: those picked first."""
        return (*(self.picked[name] for name in sorted(self.picked)), *self.unpicked)

    @property
    def message(self) -> str:
        """What a person wants to know of it."""
        count = len(self.picked)
        if self.asked_for is None:
            return f"{count} cluster(s) fit the policy and are picked"
        if self.is_fulfilled:
            return f"all {self.asked_for} cluster(s) that the policy asks for are picked"
        reasons = "; ".join(f"{each.cluster}: {each.reason}" for each in self.unpicked[:5])
        why = f": {reasons}" if reasons else ": there are no others"
        return f"{count} of {self.asked_for} cluster(s) that the policy asks for are picked{why}"


@dataclass(frozen=True, slots=True)
class Fleet:
    """All clusters there are, and the moment their health is judged at."""

    members: Mapping[str, Member]
    now: float = 0.0

    def present(self) -> dict[str, Member]:
        """Return the clusters that are here to stay."""
        return {name: each for name, each in self.members.items() if not each.is_leaving}


def pick(policy: PickPolicy, fleet: Fleet, current: Collection[PickedCluster]) -> Picking:
    """Decide which clusters a placement has."""
    staying = fleet.present()
    placed = {
        each.cluster: each
        for each in current
        if each.state != UNSCHEDULED and each.cluster in staying
    }
    if policy.type == PICK_FIXED:
        return _pick_fixed(policy, fleet, placed)
    if policy.type == PICK_N:
        return _pick_n(policy, fleet, placed)
    return _pick_all(policy, fleet, placed)


def _pick_all(policy: PickPolicy, fleet: Fleet, placed: CurrentPicks) -> Picking:
    picked: dict[str, ClusterDecision] = {}
    unpicked: list[ClusterDecision] = []
    for name, member in sorted(fleet.members.items()):
        known = placed.get(name)
        if known is not None and known.is_current:
            picked[name] = ClusterDecision(name, True, "it was picked before", known.score)
            continue
        refusal = _refusal(member, policy, fleet.now, is_placed=known is not None)
        if refusal is None:
            picked[name] = ClusterDecision(name, True, "it fits the policy", Score())
        else:
            unpicked.append(ClusterDecision(name, False, refusal))
    return Picking(picked, tuple(unpicked[:MOST_UNPICKED]))


def _pick_fixed(policy: PickPolicy, fleet: Fleet, placed: CurrentPicks) -> Picking:
    picked: dict[str, ClusterDecision] = {}
    unpicked: list[ClusterDecision] = []
    for name in policy.names:
        member = fleet.members.get(name)
        problem = "there is no such cluster" if member is None else member.problem(fleet.now)
        if problem is None or name in placed:
            picked[name] = ClusterDecision(name, True, "the policy names it")
        else:
            unpicked.append(ClusterDecision(name, False, problem))
    return Picking(picked, tuple(unpicked), asked_for=len(policy.names))


def _pick_n(policy: PickPolicy, fleet: Fleet, placed: CurrentPicks) -> Picking:
    current = {name: each for name, each in placed.items() if each.is_current}
    former = placed.keys() - current.keys()
    kept = _largest(current, policy.number)
    picked = {
        name: ClusterDecision(name, True, "it was picked before", current[name].score)
        for name in kept
    }
    judged = _judge(policy, fleet, picked, former)
    while len(picked) < policy.number and judged.options:
        missing = policy.number - len(picked)
        # Every cluster picked changes the balance for the next.
        batch = 1 if policy.spreads else missing
        for option in judged.options[:batch]:
            picked[option.name] = ClusterDecision(
                option.name, True, "it fits the policy best", option.score
            )
        judged = _judge(policy, fleet, picked, former)
    spare = [ClusterDecision(each.name, False, _ENOUGH, each.score) for each in judged.options]
    unpicked = (*spare, *judged.refused)
    return Picking(picked, unpicked[:MOST_UNPICKED], asked_for=policy.number)


@dataclass(frozen=True, slots=True)
class _Option:
    """A cluster that may be picked, and what speaks for it."""

    name: str
    score: Score
    is_former: bool
    """Whether the placement is there already, by an earlier policy: moving nothing is better."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """The clusters that may be picked, the best first, and those that may not."""

    options: tuple[_Option, ...] = ()
    refused: tuple[ClusterDecision, ...] = field(default_factory=tuple[ClusterDecision, ...])


def _judge(
    policy: PickPolicy, fleet: Fleet, picked: Collection[str], former: Collection[str]
) -> _Judged:
    options: list[_Option] = []
    refused: list[ClusterDecision] = []
    staying = fleet.present()
    for name, member in sorted(fleet.members.items()):
        if name in picked:
            continue
        refusal = _refusal(member, policy, fleet.now, is_placed=name in former)
        balance = balance_with(member, policy.spreads, staying, picked) if not refusal else None
        if balance is not None and balance.broken is not None:
            spread = balance.broken
            refusal = f"it would make the spread over {spread.key} more uneven than allowed"
        if refusal is not None or balance is None:
            refused.append(ClusterDecision(name, False, refusal or ""))
            continue
        score = Score(balance.score, _liking(member, policy))
        options.append(_Option(name, score, name in former))
    ranked = sorted(options, key=lambda each: (each.score, each.is_former, each.name), reverse=True)
    return _Judged(tuple(ranked), tuple(refused))


def _refusal(member: Member, policy: PickPolicy, now: float, *, is_placed: bool) -> str | None:
    """Return why a cluster may not be picked; taints never drive out what is there."""
    if not any(each.matches(member.labels) for each in policy.required):
        return "its labels match none of the required terms"
    problem = member.problem(now)
    if problem is not None or is_placed:
        return problem
    taint = find_untolerated(member.taints, policy.tolerations)
    return None if taint is None else f"it has the untolerated taint {taint_text(taint)}"


def _liking(member: Member, policy: PickPolicy) -> int:
    return sum(each.weight for each in policy.preferred if each.labels.matches(member.labels))


def _largest(current: CurrentPicks, number: int) -> list[str]:
    """Return the clusters that stay: those in use longest and best, and by name the last."""

    def order(name: str) -> tuple[bool, Score, str]:
        picked = current[name]
        return picked.state != SCHEDULED, picked.score, name

    return sorted(current, key=order, reverse=True)[:number]
