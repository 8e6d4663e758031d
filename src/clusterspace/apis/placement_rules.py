"""What the hub refuses in a placement, and in anything else that chooses clusters."""

from collections.abc import Iterator
from typing import Any, Final

from clusterspace.errors import Cause, MalformedSelector
from clusterspace.kube import causes
from clusterspace.kube.names import label_key_problems
from clusterspace.kube.objects import Object
from clusterspace.kube.selectors import label_selector_of

DIVIDED: Final = "Divided"
WEIGHTED: Final = "Weighted"
_AGGREGATED: Final = "Aggregated"

_CLUSTER_FIELDS: Final = ("provider", "region", "zone")
_FIELD_OPERATORS: Final = ("In", "NotIn")
_TOLERATION_OPERATORS: Final = ("", "Equal", "Exists")
_BY_CLUSTER: Final = "cluster"
_CHOOSING: Final = ("labelSelector", "fieldSelector", "clusterNames", "exclude")

_NEEDS_BY_CLUSTER: Final = "spreading by a field needs one constraint that spreads by cluster"


def placement_causes(placement: Object, field: str) -> Iterator[Cause]:
    """Yield every reason why a policy cannot place like this."""
    if "clusterAffinity" in placement and "clusterAffinities" in placement:
        yield causes.invalid(field, placement, "clusterAffinities excludes clusterAffinity")
    yield from affinity_causes(placement.get("clusterAffinity"), f"{field}.clusterAffinity")
    yield from _affinities_causes(placement, f"{field}.clusterAffinities")
    spread: list[Object] = placement.get("spreadConstraints") or []
    yield from _spread_causes(spread, f"{field}.spreadConstraints")
    for index, toleration in enumerate(placement.get("clusterTolerations") or ()):
        operator = str(toleration.get("operator") or "")
        if operator not in _TOLERATION_OPERATORS:
            place = f"{field}.clusterTolerations[{index}].operator"
            yield causes.not_supported(place, operator, _TOLERATION_OPERATORS)
    yield from _workload_affinity_causes(
        placement.get("workloadAffinity") or {}, f"{field}.workloadAffinity"
    )


def affinity_causes(affinity: Object | None, field: str) -> Iterator[Cause]:
    """Yield every reason why clusters cannot be chosen like this; nothing chooses all of them."""
    held = affinity or {}
    try:
        label_selector_of(held.get("labelSelector") or {})
    except MalformedSelector as error:
        yield causes.invalid(f"{field}.labelSelector", held["labelSelector"], error.message)
    selector: Object = held.get("fieldSelector") or {}
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        place = f"{field}.fieldSelector.matchExpressions[{index}]"
        yield from _one_of(expression, "key", _CLUSTER_FIELDS, place)
        yield from _one_of(expression, "operator", _FIELD_OPERATORS, place)


def _one_of(held: Object, key: str, allowed: tuple[str, ...], place: str) -> Iterator[Cause]:
    if held.get(key) not in allowed:
        yield causes.not_supported(f"{place}.{key}", held.get(key), allowed)


def _affinities_causes(placement: Object, field: str) -> Iterator[Cause]:
    may_overflow = _may_overflow(placement.get("replicaScheduling") or {})
    seen: set[str] = set()
    terms: list[Object] = placement.get("clusterAffinities") or []
    for index, term in enumerate(terms):
        place = f"{field}[{index}]"
        yield from _name_causes(term, seen, place)
        yield from affinity_causes(term, place)
        overflow: list[Object] = term.get("overflowAffinities") or []
        if overflow and not may_overflow:
            why = "needs replicas that are divided, aggregated or by dynamic weight"
            yield causes.invalid(f"{place}.overflowAffinities", overflow, why)
        yield from _overflow_causes(term, overflow, f"{place}.overflowAffinities")


def _overflow_causes(term: Object, overflow: list[Object], field: str) -> Iterator[Cause]:
    if overflow and not any(term.get(key) for key in _CHOOSING):
        yield causes.invalid(field, overflow, "needs an affinity of its own to overflow from")
    seen = {str(term.get("affinityName"))}
    for index, each in enumerate(overflow):
        yield from _name_causes(each, seen, f"{field}[{index}]")
        yield from affinity_causes(each, f"{field}[{index}]")


def _name_causes(term: Object, seen: set[str], place: str) -> Iterator[Cause]:
    """Yield what is wrong with the name of a term, and add it to those seen."""
    name, field = str(term.get("affinityName") or ""), f"{place}.affinityName"
    for why in label_key_problems(name):
        yield causes.invalid(field, name, why)
    if name in seen:
        yield causes.duplicate(field, name)
    seen.add(name)


def _may_overflow(scheduling: Object) -> bool:
    if scheduling.get("replicaSchedulingType") != DIVIDED:
        return False
    weights: Object = scheduling.get("weightPreference") or {}
    is_aggregated = scheduling.get("replicaDivisionPreference") == _AGGREGATED
    return is_aggregated or bool(weights.get("dynamicWeight"))


def _spread_causes(constraints: list[Object], field: str) -> Iterator[Cause]:
    spread_by: list[str] = []
    for index, constraint in enumerate(constraints):
        place = f"{field}[{index}]"
        by_field = str(constraint.get("spreadByField") or "")
        if by_field and constraint.get("spreadByLabel"):
            yield causes.invalid(place, constraint, "spreadByLabel excludes spreadByField")
        if by_field in spread_by:
            yield causes.duplicate(f"{place}.spreadByField", by_field)
        spread_by.extend([by_field] if by_field else [])
        yield from _groups_causes(constraint, place)
    if spread_by and _BY_CLUSTER not in spread_by:
        yield causes.invalid(field, constraints, _NEEDS_BY_CLUSTER)


def _groups_causes(constraint: Object, place: str) -> Iterator[Cause]:
    least, most = (int(constraint.get(key) or 0) for key in ("minGroups", "maxGroups"))
    for key, number in (("minGroups", least), ("maxGroups", most)):
        if number < 0:
            yield causes.invalid(f"{place}.{key}", number, "must not be negative")
    if 0 < most < least:
        yield causes.invalid(f"{place}.maxGroups", most, f"must not be less than minGroups {least}")


def _workload_affinity_causes(affinity: Object, field: str) -> Iterator[Cause]:
    keys: list[Any] = []
    for part in ("affinity", "antiAffinity"):
        if part in affinity:
            key = str(affinity[part].get("groupByLabelKey") or "")
            keys.append(key)
            for why in label_key_problems(key):
                yield causes.invalid(f"{field}.{part}.groupByLabelKey", key, why)
    if len(keys) != len(set(keys)):
        yield causes.invalid(field, affinity, "affinity and antiAffinity group by the same label")
