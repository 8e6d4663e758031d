"""What a binding asks of the scheduler, and where it stands, as values.

Affinities say which clusters are meant: by name, label, provider, region or zone; groups of them
are tried in order. A binding notes by which placement it was scheduled, in Karmada's form:
comparing the two tells whether its policy asks for something else now.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias, cast

import msgspec

from clusterspace.apis import stamps
from clusterspace.apis.affinities import EVERY_CLUSTER, ClusterAffinity, Traits, read_affinity
from clusterspace.apis.estimates import Claim, read_claim
from clusterspace.apis.works import (
    UNSCHEDULABLE,
    clusters_of,
    placement_of,
    replicas_of,
    template_of,
)
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
)
from clusterspace.kube.quantities import Quantity, parse_quantity
from clusterspace.kube.times import parse_time


@dataclass(frozen=True, slots=True)
class AffinityGroup:
    """Clusters that will do, and those that take what the first cannot hold."""

    name: str = ""
    tiers: tuple[ClusterAffinity, ...] = (EVERY_CLUSTER,)

    def find_tier(self, traits: Traits, *, may_overflow: bool) -> int | None:
        """Return the first tier that selects the cluster, or None; 0 is the group itself."""
        tiers = self.tiers if may_overflow else self.tiers[:1]
        return next((tier for tier, each in enumerate(tiers) if each.matches(traits)), None)

    def is_denied_by(self, traits: Traits) -> bool:
        """Whether the cluster says of itself what no tier wants."""
        return all(each.is_denied_by(traits) for each in self.tiers)


def read_groups(placement: Mapping[str, Any], *, place: str) -> tuple[AffinityGroup, ...]:
    """Read the groups of a placement, in the order in which they are to be tried."""
    terms = cast("list[Object]", placement.get("clusterAffinities") or [])
    if not terms:
        only = read_affinity(placement.get("clusterAffinity"), place=f"{place}.clusterAffinity")
        return (AffinityGroup(tiers=(only,)),)
    groups: list[AffinityGroup] = []
    for index, term in enumerate(terms):
        at = f"{place}.clusterAffinities[{index}]"
        overflow = cast("list[Object]", term.get("overflowAffinities") or [])
        further = (
            read_affinity(each, place=f"{at}.overflowAffinities[{number}]")
            for number, each in enumerate(overflow)
        )
        tiers = (read_affinity(term, place=at), *further)
        groups.append(AffinityGroup(str(term.get("affinityName") or ""), tiers))
    return tuple(groups)


# -- what a policy says about placing, and what a binding asks for -----------------------------


SCHEDULER: Final = "default-scheduler"
_CLAIMS: Final = (stamps.POLICY_ID, stamps.CLUSTER_POLICY_ID, stamps.BINDING_MANAGED_BY)
_PLACE: Final = "spec.placement"
_WEIGHTS: Final = f"{_PLACE}.replicaScheduling.weightPreference.staticWeightList"

_FIELD_ORDER: Final = {
    name: rank
    for rank, name in enumerate((
        "affinityName", "affinity", "antiAffinity", "groupByLabelKey",
        "clusterAffinity", "clusterAffinities", "clusterTolerations", "spreadConstraints",
        "replicaScheduling", "workloadAffinity",
        "labelSelector", "fieldSelector", "clusterNames", "exclude", "overflowAffinities",
        "matchLabels", "matchExpressions",
        "key", "operator", "value", "values", "effect", "tolerationSeconds",
        "spreadByField", "spreadByLabel", "maxGroups", "minGroups",
        "replicaSchedulingType", "replicaDivisionPreference", "weightPreference",
        "staticWeightList", "dynamicWeight", "targetCluster", "weight",
    ))
}  # fmt: skip
"""The order in which Karmada prints the fields; the same fields in another order are a change."""


class Strategy(Enum):
    """How replicas are shared out."""

    DUPLICATED = "every cluster has all"
    STATIC = "by weights the policy names"
    DYNAMIC = "by how much room there is"
    AGGREGATED = "on as few clusters as can hold them"

    @property
    def is_by_room(self) -> bool:
        """Whether it matters how much a cluster can hold."""
        return self in (Strategy.DYNAMIC, Strategy.AGGREGATED)


@dataclass(frozen=True, slots=True)
class Spread:
    """Over how many groups of clusters to spread; `most` of 0 is as many as there are."""

    field: str
    """`cluster`, `region`, `zone`, `provider`, or `label:KEY`."""
    fewest: int
    most: int


@dataclass(frozen=True, slots=True)
class Weight:
    """How much the clusters of an affinity count."""

    clusters: ClusterAffinity
    weight: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where something may go, and how it is shared out."""

    groups: tuple[AffinityGroup, ...]
    tolerations: tuple[Object, ...] = ()
    spreads: tuple[Spread, ...] = ()
    strategy: Strategy = Strategy.DUPLICATED
    weights: tuple[Weight, ...] = ()

    def weight_of(self, traits: Traits) -> int:
        """Return the largest weight the policy names for a cluster; 0 when it names none."""
        return max(
            (each.weight for each in self.weights if each.clusters.matches(traits)), default=0
        )


def read_placement(placement: Mapping[str, Any]) -> Placement:
    """Read the placement of a policy or binding; Malformed names what cannot be read."""
    scheduling = cast("Object | None", placement.get("replicaScheduling"))
    preference = cast("Object", (scheduling or {}).get("weightPreference") or {})
    return Placement(
        groups=read_groups(placement, place=_PLACE),
        tolerations=tuple(placement.get("clusterTolerations") or ()),
        spreads=tuple(
            Spread(
                f"label:{each['spreadByLabel']}"
                if each.get("spreadByLabel")
                else str(each.get("spreadByField") or "cluster"),
                fewest=int(each.get("minGroups") or 0),
                most=int(each.get("maxGroups") or 0),
            )
            for each in placement.get("spreadConstraints") or ()
        ),
        strategy=_read_strategy(scheduling, preference),
        weights=tuple(
            Weight(
                read_affinity(
                    each.get("targetCluster"), place=f"{_WEIGHTS}[{index}].targetCluster"
                ),
                int(each["weight"]),
            )
            for index, each in enumerate(preference.get("staticWeightList") or ())
        ),
    )


def applied_text(placement: Mapping[str, Any]) -> str:
    """Return the text that notes by which placement a binding was scheduled."""
    return msgspec.json.encode(_in_order(placement)).decode()


def read_applied(text: str | None) -> Object | None:
    """Read the note of what was applied; None when there is none that can be read."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        # Somebody wrote over it: what was applied is not known, which is not "something else".
        return None


def is_another(placement: Mapping[str, Any], applied: Mapping[str, Any], group_name: str) -> bool:
    """Tell whether a placement asks for something else than the one that was applied.

    Of several groups only the one in use counts: editing another is no reason to move anything.
    """
    return _asked(placement, group_name) != _asked(applied, group_name)


def _asked(placement: Mapping[str, Any], group_name: str) -> Object:
    asked = {key: value for key, value in placement.items() if key != "workloadAffinity"}
    if not group_name or not asked.get("clusterAffinities"):
        return asked
    terms = cast("list[Object]", asked["clusterAffinities"])
    in_use = [each for each in terms if each.get("affinityName") == group_name]
    return {**asked, "clusterAffinities": in_use}


def _read_strategy(scheduling: Object | None, preference: Object) -> Strategy:
    if scheduling is None or scheduling.get("replicaSchedulingType") == "Duplicated":
        return Strategy.DUPLICATED
    if scheduling.get("replicaDivisionPreference") == "Aggregated":
        return Strategy.AGGREGATED
    return Strategy.DYNAMIC if preference.get("dynamicWeight") else Strategy.STATIC


def _in_order(value: Any, *, is_labels: bool = False) -> Any:
    """Return the value with its fields in Karmada's order; labels are in that of the alphabet."""
    if isinstance(value, list):
        return [_in_order(each) for each in cast("list[Any]", value)]
    if not isinstance(value, Mapping):
        return value
    fields = cast("Mapping[str, Any]", value)
    ranks = {} if is_labels else _FIELD_ORDER
    ordered = sorted(fields, key=lambda key: (ranks.get(key, len(ranks)), key))
    return {key: _in_order(fields[key], is_labels=key == "matchLabels") for key in ordered}


Amounts: TypeAlias = Mapping[str, Quantity]


def read_amounts(amounts: object) -> Amounts:
    """Read a map of resources to quantities."""
    given = cast("dict[str, Any]", amounts or {})
    return {resource: parse_quantity(str(amount)) for resource, amount in given.items()}


@dataclass(frozen=True, slots=True)
class Demand:
    """One object to be placed."""

    api_version: str
    kind: str
    template_uid: str
    placement: Placement
    replicas: int = 0
    has_replicas: bool = False
    """Whether replicas are to be shared out; of other objects each cluster gets the whole."""
    each_needs: Amounts = field(default_factory=dict[str, Quantity])
    claim: Claim = field(default_factory=Claim)
    """What each replica asks of a node, and of quotas."""
    components: tuple[tuple[Claim, int], ...] = ()
    """Its parts with how many replicas each has, of what has several: they stay together."""
    placed: Mapping[str, int] = field(default_factory=dict[str, int])
    """Where it is now, with how many replicas."""
    evicted: frozenset[str] = frozenset()
    beside: frozenset[str] | None = None
    """The clusters with the workloads that it is to be together with; None when it may choose."""
    apart: frozenset[str] = frozenset()
    """The clusters with workloads that it is to be apart from."""
    stuck: Mapping[str, int] = field(default_factory=dict[str, int])
    """Replicas that have long found no node, of clusters that have as many as they are to have."""
    found_no_node: frozenset[str] = frozenset()
    """Clusters that replicas left for want of a node, since the template was last changed."""
    group_name: str = ""
    """The affinity group in use."""
    is_new: bool = False
    """Whether no placement is known to have been applied yet."""
    is_changed: bool = False
    """Whether the policy asks for something else than what was applied."""
    is_fresh: bool = False
    """Whether somebody asked for replicas to be shared out anew."""

    @property
    def is_sized(self) -> bool:
        """Whether it matters how much room a cluster has for it."""
        return self.has_replicas or bool(self.components)

    @property
    def is_divided(self) -> bool:
        """Whether clusters share the replicas."""
        return self.has_replicas and self.placement.strategy is not Strategy.DUPLICATED


def is_to_schedule(binding: Object) -> bool:
    """Tell whether a binding is for this scheduler: claimed, with a placement, not held back."""
    spec = cast("Object", binding.get("spec") or {})
    return (
        not is_being_deleted(binding)
        and placement_of(binding) is not None
        and any(claim in labels_of(binding) for claim in _CLAIMS)
        and (spec.get("schedulerName") or SCHEDULER) == SCHEDULER
        and not find_at(spec, "suspension", "scheduling")
    )


def stuck_replicas(binding: Object) -> dict[str, int]:
    """Return the replicas that clusters say find no node there.

    Only of clusters whose report is about as many replicas as they have now: an older one tells of
    replicas that may be elsewhere already. Of a StatefulSet none: it is never in two places.
    """
    if template_of(binding).kind not in _MOVABLE:
        return {}
    placed = {each.name: each.replicas for each in clusters_of(binding)}
    reports = cast("list[Object]", find_at(binding, "status", "aggregatedStatus") or [])
    stuck: dict[str, int] = {}
    for each in reports:
        name, count = str(each.get("clusterName")), find_at(each, "status", UNSCHEDULABLE)
        is_current = find_at(each, "status", "replicas") == placed.get(name)
        if isinstance(count, int) and count > 0 and is_current:
            stuck[name] = min(count, placed[name])
    return stuck


def found_no_node(binding: Object) -> dict[str, str]:
    """Return the clusters that replicas left because they found no node, as long as it counts.

    What fits nowhere would otherwise go round and round. A changed template may fit again.
    """
    text = annotations_of(binding).get(stamps.FOUND_NO_NODE)
    noted = read_applied(text) or {}
    version = template_of(binding).resource_version
    return {name: version for name, seen in noted.items() if seen == version}


_MOVABLE: Final = frozenset({"Deployment", "ReplicaSet"})


def components_of(binding: Object) -> tuple[tuple[Claim, int], ...]:
    """Return the parts of a workload that has several, with how many replicas each has."""
    listed = cast("list[Object]", find_at(binding, "spec", "components") or [])
    namespace = template_of(binding).namespace
    if len(listed) < 2:
        return ()
    return tuple(
        (read_claim(each.get("replicaRequirements"), namespace), int(each.get("replicas") or 0))
        for each in listed
    )


def read_demand(binding: Object) -> Demand:
    """Read a binding; Malformed names what cannot be read."""
    spec, status = (cast("Object", binding.get(part) or {}) for part in ("spec", "status"))
    template = template_of(binding)
    placement = placement_of(binding) or {}
    requirements = cast("Object | None", spec.get("replicaRequirements"))
    replicas = replicas_of(binding)
    group_name = str(status.get("schedulerObservingAffinityName") or "")
    applied = read_applied(annotations_of(binding).get(stamps.APPLIED_PLACEMENT))
    asked, last = spec.get("rescheduleTriggeredAt"), status.get("lastScheduledTime")
    return Demand(
        api_version=template.api_version,
        kind=template.kind,
        template_uid=template.uid,
        placement=read_placement(placement),
        replicas=replicas,
        has_replicas=(replicas > 0 or requirements is not None)
        and len(spec.get("components") or ()) <= 1,
        each_needs=read_amounts((requirements or {}).get("resourceRequest")),
        claim=read_claim(requirements, template.namespace),
        components=components_of(binding),
        placed={each.name: each.replicas for each in clusters_of(binding)},
        evicted=frozenset(
            str(task["fromCluster"]) for task in spec.get("gracefulEvictionTasks") or ()
        ),
        stuck=stuck_replicas(binding),
        found_no_node=frozenset(found_no_node(binding)),
        group_name=group_name,
        is_new=applied is None,
        is_changed=applied is not None and is_another(placement, applied, group_name),
        is_fresh=bool(asked and last) and parse_time(str(asked)) > parse_time(str(last)),
    )
