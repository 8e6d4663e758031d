"""What a policy says about placing, as values; and the note of what was placed by which."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

import msgspec

from clusterspace.fleet.propagation.scheduler.affinities import (
    AffinityGroup,
    ClusterAffinity,
    Traits,
    read_affinity,
    read_groups,
)
from clusterspace.kube.objects import Object

_PLACE: Final = "spec.placement"

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
        spreads=tuple(_read_spread(each) for each in placement.get("spreadConstraints") or ()),
        strategy=_read_strategy(scheduling, preference),
        weights=tuple(
            _read_weight(each, index)
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
    held = {key: value for key, value in placement.items() if key != "workloadAffinity"}
    if not group_name or not held.get("clusterAffinities"):
        return held
    terms = cast("list[Object]", held["clusterAffinities"])
    in_use = [each for each in terms if each.get("affinityName") == group_name]
    return {**held, "clusterAffinities": in_use}


def _read_strategy(scheduling: Object | None, preference: Object) -> Strategy:
    if scheduling is None or scheduling.get("replicaSchedulingType") == "Duplicated":
        return Strategy.DUPLICATED
    if scheduling.get("replicaDivisionPreference") == "Aggregated":
        return Strategy.AGGREGATED
    return Strategy.DYNAMIC if preference.get("dynamicWeight") else Strategy.STATIC


def _read_spread(constraint: Object) -> Spread:
    label = constraint.get("spreadByLabel")
    field = f"label:{label}" if label else str(constraint.get("spreadByField") or "cluster")
    return Spread(
        field, int(constraint.get("minGroups") or 0), int(constraint.get("maxGroups") or 0)
    )


def _read_weight(held: Object, index: int) -> Weight:
    place = f"{_PLACE}.replicaScheduling.weightPreference.staticWeightList[{index}].targetCluster"
    return Weight(read_affinity(held.get("targetCluster"), place=place), int(held["weight"]))


def _in_order(value: Any, *, is_labels: bool = False) -> Any:
    """Return the value with its fields in Karmada's order; labels are in that of the alphabet."""
    if isinstance(value, list):
        return [_in_order(each) for each in cast("list[Any]", value)]
    if not isinstance(value, Mapping):
        return value
    held = cast("Mapping[str, Any]", value)
    ranks = {} if is_labels else _FIELD_ORDER
    ordered = sorted(held, key=lambda key: (ranks.get(key, len(ranks)), key))
    return {key: _in_order(held[key], is_labels=key == "matchLabels") for key in ordered}
