"""ClusterResourceOverride and ResourceOverride: which objects, on which clusters, changed how.

Names, labels and variables are KubeFleet's, letter for letter. Their limits are those of every
override, which `overrides.py` has: it stays the same object, with the same marks and grants. Only
a role that is named by somebody who may `escalate` it may be made to grant something else.

    ClusterResourceOverride   objects without a namespace, by name; a Namespace with all in it
    ResourceOverride          objects of its own namespace, by name; applied after the other kind

Both are written down in numbered snapshots, and a cluster is to have certain snapshots of them, so
that a change of an override is rolled out like a change of the objects.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from clusterspace.apis.fleet_placements import GROUP, LONGEST_NAME, ResourceIdentifier
from clusterspace.apis.overrides import (
    RBAC_GROUP,
    ROLE_KINDS,
    RULES,
    grants_rights,
    pointer_problem,
    require_same_object,
    value_problem,
)
from clusterspace.errors import (
    Cause,
    InapplicablePatch,
    Malformed,
    MalformedSelector,
    OverrideFailed,
)
from clusterspace.kube import causes
from clusterspace.kube.json_patches import apply_json_patch, parse_json_patch, read_pointer
from clusterspace.kube.objects import Object, find_at, name_of, namespace_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.selectors import label_selector_of

CLUSTER_KIND: Final = "ClusterResourceOverride"
NAMESPACED_KIND: Final = "ResourceOverride"

CLUSTER_OVERRIDES: Final = GroupVersionResource(GROUP, "v1beta1", "clusterresourceoverrides")
RESOURCE_OVERRIDES: Final = GroupVersionResource(GROUP, "v1beta1", "resourceoverrides")
CLUSTER_SNAPSHOTS: Final = GroupVersionResource(
    GROUP, "v1beta1", "clusterresourceoverridesnapshots"
)
RESOURCE_SNAPSHOTS: Final = GroupVersionResource(GROUP, "v1beta1", "resourceoverridesnapshots")

OVERRIDE_PARENT: Final = "kubernetes-fleet.io/parent-resource-override"
OVERRIDE_INDEX: Final = "kubernetes-fleet.io/override-index"

MOST_OVERRIDES: Final = 100
"""How many of each kind there may be, as upstream."""

DELETE: Final = "Delete"
_NAMESPACED: Final = "Namespaced"
NAMESPACE: Final = ("", "v1", "Namespace")
"""Group, version and kind of what a cluster-wide override selects with all that is in it."""

_CLUSTER_NAME: Final = "${MEMBER-CLUSTER-NAME}"
_LABEL_PREFIX: Final = "${MEMBER-CLUSTER-LABEL-KEY-"
_LABEL: Final = re.compile(re.escape(_LABEL_PREFIX) + r"([^}]*)\}")
_RULES: Final = "spec.policy.overrideRules"


# -- what an override means, by the `spec` of one or the `overrideSpec` of its snapshot ----------


def selected_by(spec: Object) -> tuple[tuple[str, str, str, str], ...]:
    """Return the objects an override names: group, version, kind and name."""
    selectors: list[Object] = (
        spec.get("clusterResourceSelectors") or spec.get("resourceSelectors") or []
    )
    words = ("group", "version", "kind", "name")
    named = (tuple(str(each.get(word) or "") for word in words) for each in selectors)
    return tuple(cast("tuple[str, str, str, str]", each) for each in named)


def means(spec: Object, namespace: str, identity: ResourceIdentifier) -> bool:
    """Whether an override of this namespace, or of none, is about an object."""
    named = (identity.group, identity.version, identity.kind, identity.name)
    if namespace:
        return identity.namespace == namespace and named in selected_by(spec)
    if identity.namespace:
        named = (*NAMESPACE, identity.namespace)
    return named in selected_by(spec)


def placement_named_by(spec: Object, namespace: str) -> str | None:
    """Return the key of the one placement an override of this namespace is for; None if for all."""
    reference: Object | None = spec.get("placement")
    if reference is None:
        return None
    name = str(reference.get("name"))
    return f"{namespace}/{name}" if reference.get("scope") == _NAMESPACED else name


def is_for_placement(spec: Object, namespace: str, placement: str) -> bool:
    """Whether an override of this namespace, or of none, is for the placement with this key."""
    return placement_named_by(spec, namespace) in (None, placement)


def rules_for(spec: Object, labels: Mapping[str, str]) -> tuple[Object, ...]:
    """Return the rules that hold on a cluster with these labels, in their order."""
    rules: list[Object] = find_at(spec, "policy", "overrideRules") or []
    return tuple(each for each in rules if _selects(each.get("clusterSelector"), labels))


def _selects(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether a rule is for a cluster: one without a selector is for none, an empty one for all."""
    if selector is None:
        return False
    terms: list[Object] = selector.get("clusterSelectorTerms") or []
    if not terms:
        return True
    try:
        return any(
            each.get("labelSelector") is not None
            and label_selector_of(each["labelSelector"]).matches(labels)
            for each in terms
        )
    except MalformedSelector as error:
        raise OverrideFailed(f"clusterSelector: {error.message}") from error


def takes_away(rules: Sequence[Object]) -> bool:
    """Whether rules that hold on a cluster keep the object from it."""
    return any(each.get("overrideType") == DELETE for each in rules)


def roles_granted_by(spec: Object) -> tuple[tuple[str, str], ...]:
    """Return the roles, by kind and name, whose rules an override changes.

    Only those that it names: what is in a Namespace that it selects keeps what it grants.
    """
    rules: list[Object] = find_at(spec, "policy", "overrideRules") or []
    paths = (
        str(each.get("path") or "")
        for rule in rules
        for each in rule.get("jsonPatchOverrides") or ()
    )
    if not any(path.split("/")[1:2] == [RULES] for path in paths):
        return ()
    named = ((kind, name) for group, _, kind, name in selected_by(spec) if group == RBAC_GROUP)
    return tuple(each for each in named if each[0] in ROLE_KINDS)


def apply_rules(
    manifest: Object,
    rules: Sequence[Object],
    cluster: str,
    labels: Mapping[str, str],
    *,
    may_change_rules: bool = False,
) -> Object:
    """Return a manifest as rules change it; OverrideFailed names what cannot be done.

    After each operation it is the same object still: what admission let pass, or never saw, since
    anybody may have written the snapshot, ends here.
    """
    for rule in rules:
        patches: list[Object] = rule.get("jsonPatchOverrides") or []
        for index, patch in enumerate(patches):
            place = f"jsonPatchOverrides[{index}]"
            try:
                value = _with_variables(patch.get("value"), cluster, labels)
                operation = {"op": patch.get("op"), "path": patch.get("path"), "value": value}
                changed = apply_json_patch(manifest, parse_json_patch([operation]))
                require_same_object(manifest, changed, may_change_rules=may_change_rules)
            except InapplicablePatch as error:
                raise OverrideFailed(f"{place}: {error.problem}") from error
            except (Malformed, OverrideFailed) as error:
                raise OverrideFailed(f"{place}: {error}") from error
            manifest = changed
    return manifest


def _with_variables(value: Any, cluster: str, labels: Mapping[str, str]) -> Any:
    """Return a value with the variables in its texts filled in, those of its keys as well."""
    if isinstance(value, list):
        return [_with_variables(each, cluster, labels) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {
            _with_variables(key, cluster, labels): _with_variables(each, cluster, labels)
            for key, each in cast("Object", value).items()
        }
    if not isinstance(value, str) or "${MEMBER-CLUSTER-" not in value:
        return value

    def label_of(found: re.Match[str]) -> str:
        if found[1] not in labels:
            raise OverrideFailed(f"cluster {cluster} has no label {found[1]}")
        return labels[found[1]]

    filled = _LABEL.sub(label_of, value.replace(_CLUSTER_NAME, cluster))
    if _LABEL_PREFIX in filled:
        raise OverrideFailed(f"{_LABEL_PREFIX} in {value!r} lacks its closing brace")
    return filled


# -- what the hub refuses --------------------------------------------------------------------------


def fleet_override_causes(
    override: Object, old: Object | None, others: Sequence[Object]
) -> tuple[Cause, ...]:
    """Return every reason why an override cannot be as it is, beside those there are."""
    spec: Object = override.get("spec") or {}
    found = [*_selector_causes(override, others)]
    if old is None and len(name_of(override)) > LONGEST_NAME:
        found.append(causes.too_long("metadata.name", LONGEST_NAME))
    if old is None and len(others) >= MOST_OVERRIDES:
        why = f"there are {len(others)} of them, and at most {MOST_OVERRIDES} may be"
        found.append(causes.forbidden("metadata.name", why))
    if old is not None and find_at(old, "spec", "placement") != spec.get("placement"):
        found.append(causes.invalid("spec.placement", spec.get("placement"), "field is immutable"))
    reference: Object = spec.get("placement") or {}
    if override.get("kind") == CLUSTER_KIND and reference.get("scope") == _NAMESPACED:
        why = "what has no namespace is placed by a ClusterResourcePlacement"
        found.append(causes.invalid("spec.placement.scope", _NAMESPACED, why))
    may_mean_grants = any(grants_rights(f"{each[0]}/") for each in selected_by(spec))
    rules: list[Object] = find_at(spec, "policy", "overrideRules") or []
    for index, rule in enumerate(rules):
        found += _rule_causes(rule, f"{_RULES}[{index}]", may_mean_grants)
    return tuple(found)


def _selector_causes(override: Object, others: Sequence[Object]) -> Iterator[Cause]:
    spec: Object = override.get("spec") or {}
    is_wide = override.get("kind") == CLUSTER_KIND
    field = "spec.clusterResourceSelectors" if is_wide else "spec.resourceSelectors"
    written: list[Object] = spec.get(field.removeprefix("spec.")) or []
    taken = {
        named: name_of(other)
        for other in others
        if (name_of(other), namespace_of(other)) != (name_of(override), namespace_of(override))
        and namespace_of(other) == namespace_of(override)
        for named in selected_by(other.get("spec") or {})
    }
    seen: set[tuple[str, ...]] = set()
    for index, (each, named) in enumerate(zip(written, selected_by(spec), strict=True)):
        place = f"{field}[{index}]"
        if each.get("labelSelector") is not None:
            yield causes.forbidden(f"{place}.labelSelector", "overrides select by name")
        if not each.get("name"):
            yield causes.required(f"{place}.name", "overrides select by name")
        if named in seen:
            yield causes.duplicate(place, f"{named[2]} {named[3]}")
        seen.add(named)
        if named in taken:
            why = f"{taken[named]} selects it already, and an object has one override of a kind"
            yield causes.invalid(place, f"{named[2]} {named[3]}", why)


def _rule_causes(rule: Object, place: str, may_mean_grants: bool) -> Iterator[Cause]:
    terms: list[Object] = find_at(rule, "clusterSelector", "clusterSelectorTerms") or []
    for index, term in enumerate(terms):
        where = f"{place}.clusterSelector.clusterSelectorTerms[{index}]"
        for by_property in ("propertySelector", "propertySorter"):
            if term.get(by_property) is not None:
                yield causes.forbidden(f"{where}.{by_property}", "overrides go by labels alone")
        if term.get("labelSelector") is None:
            yield causes.required(f"{where}.labelSelector", "overrides go by labels")
            continue
        try:
            label_selector_of(term["labelSelector"])
        except MalformedSelector as error:
            yield causes.invalid(f"{where}.labelSelector", term["labelSelector"], error.message)
    patches: list[Object] = rule.get("jsonPatchOverrides") or []
    if rule.get("overrideType") == DELETE:
        if patches:
            yield causes.forbidden(f"{place}.jsonPatchOverrides", "nothing is left to be changed")
        return
    if not patches:
        yield causes.required(f"{place}.jsonPatchOverrides", "it says what is changed")
    for index, patch in enumerate(patches):
        yield from _patch_causes(patch, f"{place}.jsonPatchOverrides[{index}]", may_mean_grants)


def _patch_causes(patch: Object, place: str, may_mean_grants: bool) -> Iterator[Cause]:
    path, operator = str(patch.get("path") or ""), patch.get("op")
    try:
        steps = read_pointer(path)
    except ValueError as error:
        yield causes.invalid(f"{place}.path", path, str(error))
        return
    problem = pointer_problem(steps, may_mean_grants=may_mean_grants, may_change_rules=True)
    if not problem and steps[0] == "status":
        problem = "is what members report: an override changes what they are to have"
    if not problem and "" in steps:
        problem = "has an empty part"
    if problem:
        yield causes.invalid(f"{place}.path", path, problem)
    if operator == "remove" and patch.get("value") is not None:
        yield causes.forbidden(f"{place}.value", "nothing is put where something is removed")
    if operator != "remove" and "value" not in patch:
        yield causes.required(f"{place}.value", f"{operator} needs a value")
    if problem := value_problem(steps, patch.get("value")):
        yield causes.forbidden(f"{place}.value", problem)
