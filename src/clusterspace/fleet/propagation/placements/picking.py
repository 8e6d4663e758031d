"""Which clusters a placement picks: all, so many, or those named; with a reason for each.

What is picked stays picked until its policy changes or its cluster goes: not when a cluster gets
a taint, loses a label or its health, and not when a better one joins.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from clusterspace.apis.cluster_properties import (
    Properties,
    PropertyRequirement,
    PropertySorter,
    properties_of,
    reported_properties,
    requirements_of,
    sorter_of,
)
from clusterspace.apis.clusters import (
    CLUSTERS,
    NOT_READY_TAINT,
    UNREACHABLE_TAINT,
    conditions_of,
    taints_of,
)
from clusterspace.apis.fleet_placements import (
    PICK_FIXED,
    PICK_N,
    SCHEDULED,
    UNSCHEDULED,
    placement_type_of,
)
from clusterspace.apis.member_clusters import MEMBER_CLUSTERS
from clusterspace.controllers.informers import HubCaches
from clusterspace.fleet.propagation.scheduler.filters import find_untolerated, taint_text
from clusterspace.kube.conditions import TRUE, find_condition
from clusterspace.kube.objects import Object, find_at, is_being_deleted, labels_of, name_of
from clusterspace.kube.quantities import Quantity
from clusterspace.kube.selectors import EVERYTHING, LabelSelector, label_selector_of
from clusterspace.kube.times import parse_time

MOST_UNPICKED: Final = 20
"""How many clusters are told why they were not picked; of a large fleet nobody reads them all."""

_ENOUGH: Final = "it would do, but was not needed"

UNHEALTHY_SECONDS: Final = 300.0
"""How long a cluster may be without health before nothing new is placed there."""

_BREACH: Final = 1000
"""What breaking a spread that is only wished for costs: more than any other can make good."""

_AFFINITY: Final = ("affinity", "clusterAffinity")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_ANYWAY: Final = "ScheduleAnyway"
_READY: Final = "Ready"
_HEALTH_TAINTS: Final = frozenset({NOT_READY_TAINT, UNREACHABLE_TAINT})


@dataclass(frozen=True, slots=True)
class Member:
    """A cluster that something could be placed on."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    taints: tuple[Object, ...] = ()
    is_leaving: bool = False
    has_reported: bool = True
    unready_since: float | None = None
    """Since when it has not been ready; None while it is."""
    properties: Properties = field(default_factory=dict[str, Quantity])

    def problem(self, now: float) -> str | None:
        """Return why nothing new can be placed there, or None."""
        if self.is_leaving:
            return "it is leaving the fleet"
        if not self.has_reported:
            return "it has not reported yet"
        if self.unready_since is not None and now - self.unready_since >= UNHEALTHY_SECONDS:
            minutes = int((now - self.unready_since) // 60)
            return f"it has not been ready for {minutes} minutes"
        return None

    def turns_unhealthy_after(self, now: float) -> float | None:
        """Return in how many seconds its silence begins to count; None when it does not."""
        if self.unready_since is None:
            return None
        left = self.unready_since + UNHEALTHY_SECONDS - now
        return left if left > 0 else None


def member_of(cluster: Object) -> Member:
    """Return the Cluster as picking sees it.

    The taints that a cluster gets for being unhealthy are left out: health has rules of its own.
    """
    ready = find_condition(conditions_of(cluster), _READY)
    since = (ready or {}).get("lastTransitionTime")
    is_ready = ready is not None and ready.get("status") == TRUE
    return Member(
        name=name_of(cluster),
        labels=labels_of(cluster),
        taints=tuple(t for t in taints_of(cluster) if t.get("key") not in _HEALTH_TAINTS),
        is_leaving=is_being_deleted(cluster),
        has_reported=ready is not None,
        unready_since=None if is_ready or not since else parse_time(str(since)),
        properties=properties_of(cluster),
    )


class KnownMembers:
    """The clusters there are; each state of one is read once, for a Cluster is long."""

    def __init__(self, caches: HubCaches) -> None:
        self._cache = caches.informer(CLUSTERS).cache
        self._member_clusters = caches.informer(MEMBER_CLUSTERS).cache
        self._read: dict[str, tuple[bytes | None, Member]] = {}
        self._reported: dict[str, tuple[bytes, Properties]] = {}

    def members(self) -> dict[str, Member]:
        """Return all clusters by name."""
        before, self._read = self._read, {}
        for key in sorted(self._cache.keys()):
            raw, known = self._cache.find_raw(key), before.get(key)
            if known is None or known[0] is not raw:
                known = raw, member_of(self._cache.find(key) or {})
            self._read[key] = known
        return {member.name: self._with_reported(member) for _, member in self._read.values()}

    def _with_reported(self, member: Member) -> Member:
        """Return a member with what its agent says of it, if it came by MemberCluster."""
        raw = self._member_clusters.find_raw(member.name)
        if raw is None:
            self._reported.pop(member.name, None)
            return member
        known = self._reported.get(member.name)
        if known is None or known[0] is not raw:
            known = raw, reported_properties(self._member_clusters.find(member.name) or {})
            self._reported[member.name] = known
        return replace(member, properties={**member.properties, **known[1]})


@dataclass(frozen=True, slots=True)
class Preference:
    """Clusters that are liked, or with a negative weight disliked; by a property more or less."""

    weight: int
    labels: LabelSelector
    sorter: PropertySorter | None = None

    def score(self, member: Member, fleet: Sequence[Properties]) -> int:
        """Return what it adds for a cluster; `fleet` has the properties of all."""
        if not self.labels.matches(member.labels):
            return 0
        if self.sorter is None:
            return self.weight
        return round(self.weight * self.sorter.share(member.properties, fleet))


@dataclass(frozen=True, slots=True)
class RequiredTerm:
    """Labels and properties that a cluster must have, all of them."""

    labels: LabelSelector = EVERYTHING
    properties: tuple[PropertyRequirement, ...] = ()

    def refusal(self, member: Member) -> str | None:
        """Return why a cluster is not meant; None when it is."""
        if not self.labels.matches(member.labels):
            return "its labels do not match"
        refusals = (each.refusal(member.properties) for each in self.properties)
        return next(filter(None, refusals), None)


@dataclass(frozen=True, slots=True)
class TopologySpread:
    """How unevenly clusters may be picked over the values of a label."""

    key: str
    max_skew: int = 1
    is_required: bool = True
    """Whether a cluster that would break it is not picked, or only comes last."""


@dataclass(frozen=True, slots=True)
class PickPolicy:
    """Which clusters a placement asks for."""

    type: str
    names: tuple[str, ...] = ()
    number: int = 0
    required: tuple[RequiredTerm, ...] = (RequiredTerm(),)
    """One of these must match."""
    preferred: tuple[Preference, ...] = ()
    spreads: tuple[TopologySpread, ...] = ()
    tolerations: tuple[Object, ...] = ()


def read_pick_policy(policy: Object | None) -> PickPolicy:
    """Read the policy of a placement; none at all picks every cluster."""
    spec: Object = policy or {}
    affinity: Object = find_at(spec, *_AFFINITY) or {}
    terms: list[Object] = find_at(affinity, _REQUIRED, "clusterSelectorTerms") or []
    return PickPolicy(
        type=placement_type_of(policy),
        names=tuple(spec.get("clusterNames") or ()),
        number=int(spec.get("numberOfClusters") or 0),
        required=tuple(RequiredTerm(_labels_of(e), requirements_of(e)) for e in terms)
        or (RequiredTerm(),),
        preferred=tuple(
            Preference(
                int(each.get("weight") or 0),
                _labels_of(each.get("preference") or {}),
                sorter_of(each.get("preference") or {}),
            )
            for each in affinity.get(_PREFERRED) or ()
        ),
        spreads=tuple(
            TopologySpread(
                key=str(each.get("topologyKey") or ""),
                max_skew=int(each.get("maxSkew") or 1),
                is_required=each.get("whenUnsatisfiable") != _ANYWAY,
            )
            for each in spec.get("topologySpreadConstraints") or ()
        ),
        tolerations=tuple(spec.get("tolerations") or ()),
    )


def goes_by_properties(policy: Object | None) -> bool:
    """Whether properties of clusters matter to a policy; labels in it need not be readable."""
    affinity: Object = find_at(policy or {}, *_AFFINITY) or {}
    terms: list[Object] = find_at(affinity, _REQUIRED, "clusterSelectorTerms") or []
    liked: list[Object] = affinity.get(_PREFERRED) or []
    is_sorted = any(sorter_of(each.get("preference") or {}) is not None for each in liked)
    return is_sorted or any(map(requirements_of, terms))


def _labels_of(term: Object) -> LabelSelector:
    selector = term.get("labelSelector")
    return EVERYTHING if selector is None else label_selector_of(selector)


@dataclass(frozen=True, slots=True)
class Balance:
    """The effect of picking one more cluster on a placement's spreads."""

    score: int = 0
    broken: TopologySpread | None = None
    """A spread that must hold and would not."""


def balance_with(
    member: Member,
    spreads: Collection[TopologySpread],
    members: Mapping[str, Member],
    picked: Collection[str],
) -> Balance:
    """Tell what picking a cluster besides those picked already does to every spread.

    A cluster without the label is nowhere, and changes nothing.
    """
    score = 0
    for spread in spreads:
        domain = member.labels.get(spread.key)
        if domain is None:
            continue
        # How many are picked at each value that any cluster has.
        domains = {n: m.labels[spread.key] for n, m in members.items() if spread.key in m.labels}
        counts = Counter(dict.fromkeys(domains.values(), 0))
        counts.update(domains[name] for name in picked if name in domains)
        before = _skew(counts)
        after = _skew(Counter({**counts, domain: counts[domain] + 1}))
        if after > spread.max_skew:
            if spread.is_required:
                return Balance(score, spread)
            score -= _BREACH
        score -= after - before
    return Balance(score)


def _skew(counts: Mapping[str, int]) -> int:
    return max(counts.values()) - min(counts.values())


@dataclass(frozen=True, slots=True, order=True)
class Score:
    """The score of a cluster; balance counts before preference."""

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
        """The decisions about all clusters, those picked first."""
        return (*(self.picked[name] for name in sorted(self.picked)), *self.unpicked)

    @property
    def message(self) -> str:
        """A summary for people."""
        count = len(self.picked)
        if self.asked_for is None:
            fit = "cluster that fits" if count == 1 else "clusters that fit"
            return f"picked {count} {fit} the policy"
        if self.is_fulfilled:
            asked = "the one cluster" if count == 1 else f"all {count} clusters"
            return f"picked {asked} that the policy asks for"
        reasons = "; ".join(f"{each.cluster}: {each.reason}" for each in self.unpicked[:5])
        why = f": {reasons}" if reasons else ": there are no others"
        clusters = "cluster" if self.asked_for == 1 else "clusters"
        return f"picked {count} of {self.asked_for} {clusters} that the policy asks for{why}"


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
        return pick_fixed(policy, fleet, placed)
    if policy.type == PICK_N:
        return pick_n(policy, fleet, placed)
    return pick_all(policy, fleet, placed)


def pick_all(policy: PickPolicy, fleet: Fleet, placed: CurrentPicks) -> Picking:
    """Pick every cluster that fits; those picked by this policy before stay."""
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


def pick_fixed(policy: PickPolicy, fleet: Fleet, placed: CurrentPicks) -> Picking:
    """Pick the clusters that the policy names, as far as they are there."""
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


def pick_n(policy: PickPolicy, fleet: Fleet, placed: CurrentPicks) -> Picking:
    """Pick so many clusters: those picked before, then the best, one by one if they spread."""
    current = {name: each for name, each in placed.items() if each.is_current}
    former = placed.keys() - current.keys()
    # Of too many those stay that are in use longest and best, and by name the last.
    kept = sorted(
        current,
        key=lambda name: (current[name].state != SCHEDULED, current[name].score, name),
        reverse=True,
    )
    picked = {
        name: ClusterDecision(name, True, "it was picked before", current[name].score)
        for name in kept[: policy.number]
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
    properties = [each.properties for each in fleet.members.values()]
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
        liked = sum(each.score(member, properties) for each in policy.preferred)
        score = Score(balance.score, liked)
        options.append(_Option(name, score, name in former))
    ranked = sorted(options, key=lambda each: (each.score, each.is_former, each.name), reverse=True)
    return _Judged(tuple(ranked), tuple(refused))


def _refusal(member: Member, policy: PickPolicy, now: float, *, is_placed: bool) -> str | None:
    """Return why a cluster may not be picked; taints never drive out what is there."""
    refusals = [each.refusal(member) for each in policy.required]
    if None not in refusals:
        by_property = [
            refusal
            for each, refusal in zip(policy.required, refusals, strict=True)
            if each.properties and each.labels.matches(member.labels)
        ]
        # The nearest miss says most: its labels would do.
        return next(filter(None, by_property), "its labels match none of the required terms")
    problem = member.problem(now)
    if problem is not None or is_placed:
        return problem
    taint = find_untolerated(member.taints, policy.tolerations)
    return None if taint is None else f"it has the untolerated taint {taint_text(taint)}"
