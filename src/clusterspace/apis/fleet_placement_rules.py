"""What the hub adds to ClusterResourcePlacements, and what it refuses.

What a placement asks for and this fleet cannot do is refused, not passed over: a placement that
says it only reports differences must not apply them.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from clusterspace.apis.fleet_placements import (
    IF_NO_DIFF,
    LONGEST_NAME,
    PICK_ALL,
    PICK_FIXED,
    PICK_N,
    apply_strategy_of,
    placement_type_of,
    take_over_of,
)
from clusterspace.errors import Cause, MalformedSelector
from clusterspace.kube import causes
from clusterspace.kube.names import (
    dns1123_subdomain_problems,
    label_value_problems,
    qualified_name_problems,
)
from clusterspace.kube.objects import Object, find_at, name_of
from clusterspace.kube.selectors import label_selector_of

_POLICY: Final = "spec.policy"
_SELECTORS: Final = "spec.resourceSelectors"
_STRATEGY: Final = "spec.strategy.applyStrategy"
_AFFINITY: Final = f"{_POLICY}.affinity.clusterAffinity"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_EQUAL: Final = "Equal"

_ROLLING: Final = {"maxUnavailable": "25%", "maxSurge": "25%", "unavailablePeriodSeconds": 60}
_APPLYING: Final = {
    "type": "ClientSideApply",
    "comparisonOption": "PartialComparison",
    "whenToApply": "Always",
    "whenToTakeOver": "Always",
}


def completed_placement(placement: Object) -> Object:
    """Return a placement with what its author left out."""
    spec: Object = placement.get("spec") or {}
    strategy: Object = spec.get("strategy") or {}
    is_external = strategy.get("type") == "External"
    applying: Object = strategy.get("applyStrategy") or {}
    rolling: Object = strategy.get("rollingUpdate") or {}
    completed: Object = {
        "type": "RollingUpdate",
        **strategy,
        "applyStrategy": {**_APPLYING, **applying},
    }
    if not is_external:
        completed["rollingUpdate"] = {**_ROLLING, **rolling}
    policy = spec.get("policy") or {"placementType": PICK_ALL}
    history = {"revisionHistoryLimit": 10, "statusReportingScope": "ClusterScopeOnly"}
    return {**placement, "spec": {**history, **spec, "policy": policy, "strategy": completed}}


def placement_causes(placement: Object, old: Object | None) -> tuple[Cause, ...]:
    """Return every reason why a placement cannot be as it is."""
    policy: Object = find_at(placement, "spec", "policy") or {}
    former: Object | None = None if old is None else find_at(old, "spec", "policy") or {}
    return (
        *_name_causes(name_of(placement)),
        *_selector_causes(find_at(placement, "spec", "resourceSelectors") or []),
        *_type_causes(policy, former),
        *_affinity_causes(policy),
        *_spread_causes(policy.get("topologySpreadConstraints") or []),
        *_toleration_causes(policy, former),
        *_apply_causes(apply_strategy_of(placement)),
        *_scope_causes(find_at(placement, "spec", "statusReportingScope")),
    )


def _name_causes(name: str) -> Iterator[Cause]:
    if len(name) > LONGEST_NAME:
        yield causes.too_long("metadata.name", LONGEST_NAME)


def _selector_causes(selectors: Iterable[Object]) -> Iterator[Cause]:
    for index, each in enumerate(selectors):
        field = f"{_SELECTORS}[{index}]"
        if each.get("name") and each.get("labelSelector") is not None:
            why = "names an object, so labels cannot select it as well"
            yield causes.invalid(f"{field}.labelSelector", each["labelSelector"], why)
        yield from _labels_causes(each, field)


def _labels_causes(holder: Object, field: str) -> Iterator[Cause]:
    selector = holder.get("labelSelector")
    if selector is None:
        return
    try:
        label_selector_of(selector)
    except MalformedSelector as error:
        yield causes.invalid(f"{field}.labelSelector", selector, error.message)


def _type_causes(policy: Object, former: Object | None) -> Iterator[Cause]:
    kind = placement_type_of(policy)
    if former is not None and placement_type_of(former) != kind:
        yield causes.invalid(f"{_POLICY}.placementType", kind, "field is immutable")
    if kind == PICK_FIXED:
        yield from _names_causes(policy.get("clusterNames") or [])
    if kind == PICK_N and policy.get("numberOfClusters") is None:
        yield causes.required(f"{_POLICY}.numberOfClusters", f"{PICK_N} needs a number")


def _names_causes(names: list[str]) -> Iterator[Cause]:
    field = f"{_POLICY}.clusterNames"
    if not names:
        yield causes.required(field, f"{PICK_FIXED} needs the names of clusters")
    for index, name in enumerate(names):
        where = f"{field}[{index}]"
        yield from (causes.invalid(where, name, why) for why in dns1123_subdomain_problems(name))
        if len(name) > LONGEST_NAME:
            yield causes.too_long(where, LONGEST_NAME)
        if name in names[:index]:
            yield causes.duplicate(where, name)


def _affinity_causes(policy: Object) -> Iterator[Cause]:
    affinity: Object = find_at(policy, "affinity", "clusterAffinity") or {}
    terms: list[Object] = find_at(affinity, _REQUIRED, "clusterSelectorTerms") or []
    for index, term in enumerate(terms):
        yield from _term_causes(term, f"{_AFFINITY}.{_REQUIRED}.clusterSelectorTerms[{index}]")
    liked: list[Object] = affinity.get(_PREFERRED) or []
    if liked and placement_type_of(policy) == PICK_ALL:
        why = f"{PICK_ALL} picks every cluster that fits, so none can be preferred"
        yield causes.forbidden(f"{_AFFINITY}.{_PREFERRED}", why)
    for index, each in enumerate(liked):
        term: Object = each.get("preference") or {}
        yield from _term_causes(term, f"{_AFFINITY}.{_PREFERRED}[{index}].preference")


def _term_causes(term: Object, field: str) -> Iterator[Cause]:
    yield from _labels_causes(term, field)
    for part in ("propertySelector", "propertySorter"):
        if term.get(part) is not None:
            why = "clusters are picked by labels; picking them by properties is not supported"
            yield causes.forbidden(f"{field}.{part}", why)


def _spread_causes(constraints: Iterable[Object]) -> Iterator[Cause]:
    for index, each in enumerate(constraints):
        key = str(each.get("topologyKey") or "")
        field = f"{_POLICY}.topologySpreadConstraints[{index}].topologyKey"
        yield from (causes.invalid(field, key, why) for why in qualified_name_problems(key))


def _toleration_causes(policy: Object, former: Object | None) -> Iterator[Cause]:
    tolerations: list[Object] = policy.get("tolerations") or []
    field = f"{_POLICY}.tolerations"
    seen: list[Object] = []
    for index, each in enumerate(map(_completed_toleration, tolerations)):
        where = f"{field}[{index}]"
        yield from _one_toleration_causes(each, where)
        if each in seen:
            yield causes.duplicate(where, _toleration_text(each))
        seen.append(each)
    kept: list[Object] = (former or {}).get("tolerations") or []
    for each in map(_completed_toleration, kept):
        if each not in seen:
            why = f"{_toleration_text(each)} was there before: tolerations can only be added"
            yield causes.forbidden(field, why)


def _one_toleration_causes(toleration: Object, where: str) -> Iterator[Cause]:
    key, value = str(toleration.get("key") or ""), str(toleration.get("value") or "")
    is_equal = toleration["operator"] == _EQUAL
    if key:
        problems = qualified_name_problems(key)
        yield from (causes.invalid(f"{where}.key", key, why) for why in problems)
    elif is_equal:
        yield causes.required(f"{where}.key", "only Exists can do without a key")
    if value and not is_equal:
        yield causes.invalid(f"{where}.value", value, "must be empty for the operator Exists")
    yield from (causes.invalid(f"{where}.value", value, w) for w in label_value_problems(value))


def _completed_toleration(toleration: Object) -> Object:
    held = {key: value for key, value in toleration.items() if value}
    return {"operator": _EQUAL, **held}


def _toleration_text(toleration: Object) -> str:
    parts = [str(toleration.get(each) or "") for each in ("key", "operator", "value", "effect")]
    return " ".join(part for part in parts if part)


def _scope_causes(scope: str | None) -> Iterator[Cause]:
    if scope == "NamespaceAccessible":
        why = "the status is told on the placement alone"
        yield causes.invalid("spec.statusReportingScope", scope, why)


def _apply_causes(strategy: Object) -> Iterator[Cause]:
    """Yield what a placement asks of the members that this fleet cannot do."""
    for field, value, why in _cannot(strategy):
        yield causes.invalid(f"{_STRATEGY}.{field}", value, why)


def _cannot(strategy: Object) -> Iterator[tuple[str, Any, str]]:
    kind = strategy.get("type")
    forces = find_at(strategy, "serverSideApplyConfig", "force")
    if kind == "ReportDiff":
        yield "type", kind, "reporting differences without applying is not supported"
    if kind == "ServerSideApply" and not forces:
        why = "is only supported with serverSideApplyConfig.force, which is what members get"
        yield "type", kind, why
    if strategy.get("whenToApply") == "IfNotDrifted":
        why = "drift is repaired here, not waited for"
        yield "whenToApply", "IfNotDrifted", why
    is_full = strategy.get("comparisonOption") == "FullComparison"
    if is_full and take_over_of(strategy) == IF_NO_DIFF:
        why = f"{IF_NO_DIFF} compares what the manifest says, and not what others added"
        yield "comparisonOption", "FullComparison", why
