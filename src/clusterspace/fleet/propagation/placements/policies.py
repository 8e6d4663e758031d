"""What a placement's policy asks for, as values."""

from dataclasses import dataclass
from typing import Final

from clusterspace.apis.fleet_placements import placement_type_of
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.selectors import EVERYTHING, LabelSelector, label_selector_of

_AFFINITY: Final = ("affinity", "clusterAffinity")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_ANYWAY: Final = "ScheduleAnyway"


@dataclass(frozen=True, slots=True)
class Preference:
    """Clusters that are liked, or with a negative weight disliked."""

    weight: int
    labels: LabelSelector


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
    required: tuple[LabelSelector, ...] = (EVERYTHING,)
    """One of these must match."""
    preferred: tuple[Preference, ...] = ()
    spreads: tuple[TopologySpread, ...] = ()
    tolerations: tuple[Object, ...] = ()


def read_pick_policy(policy: Object | None) -> PickPolicy:
    """Read the policy of a placement; none at all picks every cluster."""
    held: Object = policy or {}
    affinity: Object = find_at(held, *_AFFINITY) or {}
    terms: list[Object] = find_at(affinity, _REQUIRED, "clusterSelectorTerms") or []
    return PickPolicy(
        type=placement_type_of(policy),
        names=tuple(held.get("clusterNames") or ()),
        number=int(held.get("numberOfClusters") or 0),
        required=tuple(_labels_of(each) for each in terms) or (EVERYTHING,),
        preferred=tuple(
            Preference(int(each.get("weight") or 0), _labels_of(each.get("preference") or {}))
            for each in affinity.get(_PREFERRED) or ()
        ),
        spreads=tuple(_read_spread(each) for each in held.get("topologySpreadConstraints") or ()),
        tolerations=tuple(held.get("tolerations") or ()),
    )


def _labels_of(term: Object) -> LabelSelector:
    selector = term.get("labelSelector")
    return EVERYTHING if selector is None else label_selector_of(selector)


def _read_spread(constraint: Object) -> TopologySpread:
    return TopologySpread(
        key=str(constraint.get("topologyKey") or ""),
        max_skew=int(constraint.get("maxSkew") or 1),
        is_required=constraint.get("whenUnsatisfiable") != _ANYWAY,
    )
