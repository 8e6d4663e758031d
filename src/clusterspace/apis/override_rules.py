"""What the hub refuses in OverridePolicies of both kinds."""

from collections.abc import Iterator
from typing import Any, Final

from clusterspace.apis.override_limits import (
    grants_rights,
    is_mark,
    pointer_problem,
    value_problem,
)
from clusterspace.apis.placement_rules import affinity_causes
from clusterspace.apis.policy_rules import selector_causes
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.json_pointers import read_pointer
from clusterspace.kube.names import (
    label_key_problems,
    label_value_problems,
    qualified_name_problems,
)
from clusterspace.kube.objects import Object

_REMOVE: Final = "remove"
_FIELD_FORMATS: Final = ("json", "yaml")


def override_causes(policy: Object) -> tuple[Cause, ...]:
    """Return every reason why an override policy cannot be as it is."""
    spec: Object = policy.get("spec") or {}
    rules: list[Object] = spec.get("overrideRules") or []
    selectors: list[Object] = spec.get("resourceSelectors") or []
    # A policy without selectors means every kind there is.
    may_mean_grants = not selectors or any(
        grants_rights(str(each.get("apiVersion"))) for each in selectors
    )
    return (
        *selector_causes(policy),
        *_old_form_causes(spec),
        *affinity_causes(spec.get("targetCluster"), "spec.targetCluster"),
        *_overriders_causes(spec.get("overriders") or {}, "spec.overriders", may_mean_grants),
        *(
            cause
            for index, rule in enumerate(rules)
            for cause in _rule_causes(rule, f"spec.overrideRules[{index}]", may_mean_grants)
        ),
    )


def _old_form_causes(spec: Object) -> Iterator[Cause]:
    """Yield what a policy has of the form from before there were rules, beside rules."""
    if not spec.get("overrideRules"):
        return
    for field in ("targetCluster", "overriders"):
        if spec.get(field):
            yield causes.invalid(f"spec.{field}", spec[field], "overrideRules excludes it")


def _rule_causes(rule: Object, field: str, may_mean_grants: bool) -> Iterator[Cause]:
    yield from affinity_causes(rule.get("targetCluster"), f"{field}.targetCluster")
    yield from _overriders_causes(
        rule.get("overriders") or {}, f"{field}.overriders", may_mean_grants
    )


def _overriders_causes(overriders: Object, field: str, may_mean_grants: bool) -> Iterator[Cause]:
    """Yield what is wrong with the overriders of one rule, and what they may not touch."""
    for place, each in _listed(overriders, "labelsOverrider", field):
        yield from _label_causes(each.get("value") or {}, f"{place}.value")
        yield from _mark_causes(each.get("value") or {}, f"{place}.value")
    for place, each in _listed(overriders, "annotationsOverrider", field):
        yield from _annotation_causes(each.get("value") or {}, f"{place}.value")
        yield from _mark_causes(each.get("value") or {}, f"{place}.value")
    for place, each in _listed(overriders, "imageOverrider", field):
        predicate: Object = each.get("predicate") or {}
        path = str(predicate.get("path") or "")
        if path:  # without one, every container is meant
            yield from _target_causes(path, f"{place}.predicate.path", may_mean_grants)
    for place, each in _listed(overriders, "plaintext", field):
        path = str(each.get("path") or "")
        yield from _target_causes(path, f"{place}.path", may_mean_grants)
        yield from _value_causes(path, each.get("value"), f"{place}.value")
    for place, each in _listed(overriders, "fieldOverrider", field):
        path = str(each.get("fieldPath") or "")
        yield from _target_causes(path, f"{place}.fieldPath", may_mean_grants)
        yield from _field_causes(each, place)


def _field_causes(overrider: Object, place: str) -> Iterator[Cause]:
    used = [each for each in _FIELD_FORMATS if overrider.get(each)]
    if len(used) != 1:
        yield causes.invalid(place, overrider, "needs either json or yaml, and not both")
    for each in used:
        for where, operation in _listed(overrider, each, place):
            yield from _operation_causes(operation, where)


def _operation_causes(operation: Object, place: str) -> Iterator[Cause]:
    yield from _pointer_causes(str(operation.get("subPath") or ""), f"{place}.subPath")
    is_removal, has_value = operation.get("operator") == _REMOVE, "value" in operation
    if is_removal and has_value:
        yield causes.forbidden(f"{place}.value", "nothing is put where something is removed")
    if not is_removal and not has_value:
        yield causes.required(f"{place}.value", f"{operation.get('operator')} needs a value")


def _target_causes(path: str, field: str, may_mean_grants: bool) -> Iterator[Cause]:
    """Yield why a pointer may not be what an override changes."""
    try:
        steps = read_pointer(path)
    except ValueError as error:
        yield causes.invalid(field, path, str(error))
        return
    problem = pointer_problem(steps, may_mean_grants=may_mean_grants)
    if problem:
        yield causes.invalid(field, path, problem)


def _value_causes(path: str, value: Any, field: str) -> Iterator[Cause]:
    try:
        problem = value_problem(read_pointer(path), value)
    except ValueError:
        return  # said of the path
    if problem:
        yield causes.forbidden(field, problem)


def _mark_causes(words: Object, field: str) -> Iterator[Cause]:
    for key in words:
        if is_mark(key):
            yield causes.forbidden(f"{field}[{key}]", "it is a mark of the control plane")


def _pointer_causes(path: str, field: str) -> Iterator[Cause]:
    try:
        read_pointer(path)
    except ValueError as error:
        yield causes.invalid(field, path, str(error))


def _label_causes(labels: Object, field: str) -> Iterator[Cause]:
    for key, value in labels.items():
        for why in (*label_key_problems(key), *label_value_problems(str(value))):
            yield causes.invalid(f"{field}[{key}]", value, why)


def _annotation_causes(annotations: Object, field: str) -> Iterator[Cause]:
    for key in annotations:
        for why in qualified_name_problems(key.lower()):
            yield causes.invalid(field, key, why)


def _listed(holder: Object, key: str, field: str) -> Iterator[tuple[str, Object]]:
    held: list[Object] = holder.get(key) or []
    return ((f"{field}.{key}[{index}]", each) for index, each in enumerate(held))
