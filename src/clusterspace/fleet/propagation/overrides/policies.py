"""Which policies and rules apply to an object in a cluster, and what they did."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from clusterspace.apis.policies import Precision, best_precision, selectors_of
from clusterspace.errors import MalformedSelector, OverrideFailed
from clusterspace.fleet.propagation.overrides.overriders import apply_overriders
from clusterspace.fleet.propagation.scheduler.affinities import Traits, read_affinity
from clusterspace.kube.objects import Object, name_of

_FIELD_ORDER: Final = {
    name: rank
    for rank, name in enumerate((
        "plaintext", "imageOverrider", "commandOverrider", "argsOverrider", "labelsOverrider",
        "annotationsOverrider", "fieldOverrider",
        "predicate", "component", "containerName", "fieldPath", "json", "yaml",
        "subPath", "path", "operator", "value",
    ))
}  # fmt: skip
"""The order in which Karmada prints the fields of an overrider."""


@dataclass(frozen=True, slots=True)
class OverridePolicies:
    """The policies there are: for every namespace, and for the namespace of the object."""

    cluster_wide: Sequence[Object] = ()
    namespaced: Sequence[Object] = ()


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """A rule that was applied, and the policy it is of."""

    policy: str
    overriders: Object


@dataclass(frozen=True, slots=True)
class Overridden:
    """A manifest as it is to be in one cluster, and the rules that made it so, in order."""

    manifest: Object
    cluster_wide: tuple[AppliedRule, ...] = ()
    namespaced: tuple[AppliedRule, ...] = ()


def override(manifest: Object, cluster: Traits, policies: OverridePolicies) -> Overridden:
    """Return what all policies make of a manifest for a cluster.

    Policies for every namespace come first, and the more exactly a policy names the object the
    later it comes: the last word is with whoever meant just this object.
    """
    wide = rules_for(manifest, cluster, policies.cluster_wide)
    own = rules_for(manifest, cluster, policies.namespaced)
    changed = manifest
    for rule in (*wide, *own):
        try:
            changed = apply_overriders(changed, rule.overriders)
        except OverrideFailed as error:
            raise OverrideFailed(f"override policy {rule.policy}: {error}") from error
    return Overridden(changed, wide, own)


def rules_for(
    manifest: Object, cluster: Traits, policies: Iterable[Object]
) -> tuple[AppliedRule, ...]:
    """Return the rules that apply to an object in a cluster, in the order they take effect."""
    matching = (
        (precision, name_of(policy), policy)
        for policy in policies
        if (precision := _precision(policy, manifest)) is not Precision.NOT_MEANT
    )
    in_order = sorted(matching, key=lambda each: each[:2])
    return tuple(
        AppliedRule(name, rule.get("overriders") or {})
        for _, name, policy in in_order
        for index, rule in enumerate(rules_of(policy))
        if _is_meant(rule, cluster, name, index)
    )


def rules_of(policy: Object) -> tuple[Object, ...]:
    """Return the rules of a policy; the fields older policies have instead are one rule."""
    spec: Object = policy.get("spec") or {}
    rules: list[Object] = spec.get("overrideRules") or []
    if rules or not spec.get("overriders"):
        return tuple(rules)
    return ({"targetCluster": spec.get("targetCluster"), "overriders": spec["overriders"]},)


def applied_text(rules: Iterable[AppliedRule]) -> str:
    """Return the note of what was applied, as Works carry it; empty when nothing was."""
    noted = [
        {"policyName": rule.policy, "overriders": _in_order(rule.overriders)} for rule in rules
    ]
    return msgspec.json.encode(noted).decode() if noted else ""


def _precision(policy: Object, manifest: Object) -> Precision:
    """Return how precisely a policy means the object; one without selectors means everything."""
    try:
        selectors = selectors_of(policy)
    except MalformedSelector as error:
        raise OverrideFailed(f"override policy {name_of(policy)}: {error}") from error
    return best_precision(selectors, manifest) if selectors else Precision.EVERYTHING


def _is_meant(rule: Object, cluster: Traits, policy: str, index: int) -> bool:
    place = f"spec.overrideRules[{index}].targetCluster"
    try:
        return read_affinity(rule.get("targetCluster"), place=place).matches(cluster)
    except MalformedSelector as error:
        raise OverrideFailed(f"override policy {policy}: {error}") from error


def _in_order(value: Any) -> Any:
    """Return overriders with their fields in Karmada's order; what users wrote in its own."""
    if isinstance(value, list):
        return [_in_order(each) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    held = cast("Object", value)
    ordered = sorted(held, key=lambda key: _FIELD_ORDER.get(key, len(_FIELD_ORDER)))
    return {key: held[key] if key == "value" else _in_order(held[key]) for key in ordered}
