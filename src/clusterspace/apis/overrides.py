"""Override policies: what no override may change, and what the hub refuses in them.

No override changes which object it is, whose it is, and what it grants:

    apiVersion, kind              the object's identity, as policies and rights know it
    metadata, but for labels      name and namespace, and what the servers keep there
      and annotations
    labels and annotations of     marks by which hub and members know their objects, and what
      our own domains             becomes of them in a conflict
    rules, roleRef, subjects, …   of RBAC kinds: the hub compared them with the rights of whoever
                                  wrote the template, and nobody compares an override's. Only a
                                  KubeFleet override that names a role changes its rules: whoever
                                  writes it needs the right to `escalate` that role

An override is written by somebody who may change objects of a namespace on their way to members.
With any of these in their hands it would be somebody who may write anything, anywhere.

The same limits are held twice: against pointers, when an override policy is written, and against
the outcome, when it is applied. The outcome is what counts.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, cast

from clusterspace.apis import stamps
from clusterspace.apis.policies import affinity_causes, selector_causes
from clusterspace.errors import Cause, OverrideFailed
from clusterspace.kube import causes
from clusterspace.kube.json_patches import Steps, read_pointer, write_pointer
from clusterspace.kube.names import (
    label_key_problems,
    label_value_problems,
    qualified_name_problems,
)
from clusterspace.kube.objects import Object, metadata_of

RBAC_GROUP: Final = "rbac.authorization.k8s.io"
ROLE_KINDS: Final = ("ClusterRole", "Role")
RULES: Final = "rules"
"""What a role grants, and the one field of it that an override may be allowed to change."""

_GRANTS: Final = frozenset({"rules", "roleRef", "subjects", "aggregationRule"})
_METADATA: Final = "metadata"
_IDENTITY: Final = frozenset({"apiversion", "kind", _METADATA})
_MAPS: Final = ("labels", "annotations")

_OUR_DOMAINS: Final = (
    "karmada.io",
    "clusterspace.io",
    "kubernetes-fleet.io",
    RBAC_GROUP,  # labels by which roles are gathered into others
    "rbac.authorization.kubernetes.io",
)
_USERS_MARKS: Final = frozenset({stamps.RETAIN_REPLICAS})
"""Words with our prefix that mean nothing but what the member object is to look like."""


def is_mark(key: str) -> bool:
    """Whether a label or annotation is one that no override may touch."""
    domain, slash, _ = key.partition("/")
    if not slash or key in _USERS_MARKS:
        return False
    lowered = domain.lower()
    return lowered in _OUR_DOMAINS or lowered.endswith(tuple(f".{each}" for each in _OUR_DOMAINS))


def grants_rights(api_version: str) -> bool:
    """Whether objects of this group are about who may do what."""
    return api_version.partition("/")[0] == RBAC_GROUP


def pointer_problem(
    steps: Steps, *, may_mean_grants: bool = False, may_change_rules: bool = False
) -> str:
    """Return why an override may not point here; empty when it may.

    `may_mean_grants` says that the policy may select RBAC kinds, `may_change_rules` that it names
    roles, and that its author's right to change what these grant is asked for elsewhere.
    """
    if not steps:
        return "is the whole object, and an override keeps which object it is"
    first = steps[0]
    if first != _METADATA and first.lower() in _IDENTITY:
        return "says which object it is: an override keeps that"
    if may_mean_grants and first in _GRANTS and not (may_change_rules and first == RULES):
        return "says what an RBAC object grants: change the object itself, by your own rights"
    if first != _METADATA:
        return ""
    if len(steps) == 1 or steps[1] not in _MAPS:
        return "says which object it is: of metadata, overrides change labels and annotations"
    if len(steps) > 2 and is_mark(steps[2]):
        return f"{steps[2]} is a mark of the control plane"
    return ""


def value_problem(steps: Steps, value: Any) -> str:
    """Return why an override may not put a value where a pointer points; empty when it may."""
    if len(steps) != 2 or steps[0] != _METADATA or not isinstance(value, dict):
        return ""
    marks = sorted(key for key in cast("Object", value) if is_mark(key))
    return f"{marks[0]} is a mark of the control plane" if marks else ""


def require_same_object(
    template: Object, overridden: Object, *, may_change_rules: bool = False
) -> None:
    """Raise OverrideFailed unless an override kept what it must keep.

    `may_change_rules` says that the override names this role, and that whoever wrote it was asked
    for the right to change what it grants.

    Marks may be lost, with a map that is replaced whole: stamps of ours come later, and what
    becomes of conflicts is read from the template. None may be added or changed.
    """
    is_grant = grants_rights(str(template.get("apiVersion")))
    for field in {**template, **overridden}:
        if field == _METADATA or template.get(field) == overridden.get(field):
            continue
        if field.lower() in _IDENTITY:  # some readers of JSON take `Kind` for `kind`
            raise OverrideFailed(f"it would make {overridden.get(field)!r} of /{field}")
        is_rules = field == RULES and template.get("kind") in ROLE_KINDS
        if is_grant and not (may_change_rules and is_rules):
            raise OverrideFailed(f"it would change /{field}, and with it what is granted")
    before, after = metadata_of(template), metadata_of(overridden)
    for field in {**before, **after}:
        if field not in _MAPS and before.get(field) != after.get(field):
            pointer = write_pointer((_METADATA, field))
            raise OverrideFailed(f"it would change {pointer}, which says which object it is")
    for field in _MAPS:
        ours, theirs = _map(before.get(field)), _map(after.get(field))
        for key, value in theirs.items():
            if is_mark(key) and (key not in ours or ours[key] != value):
                pointer = write_pointer((_METADATA, field, key))
                raise OverrideFailed(f"it would change {pointer}, a mark of the control plane")


def _map(value: Any) -> Mapping[str, Any]:
    return cast("Object", value) if isinstance(value, dict) else {}


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
    found = [*selector_causes(policy)]
    # The fields from before there were rules say the same as one rule, and nothing beside rules.
    found += [
        causes.invalid(f"spec.{field}", spec[field], "overrideRules excludes it")
        for field in ("targetCluster", "overriders")
        if rules and spec.get(field)
    ]
    places = ["spec", *(f"spec.overrideRules[{index}]" for index in range(len(rules)))]
    for place, rule in zip(places, [spec, *rules], strict=True):
        found += affinity_causes(rule.get("targetCluster"), f"{place}.targetCluster")
        overriders: Object = rule.get("overriders") or {}
        found += _overriders_causes(overriders, f"{place}.overriders", may_mean_grants)
    return tuple(found)


def _overriders_causes(overriders: Object, field: str, may_mean_grants: bool) -> Iterator[Cause]:
    """Yield what is wrong with the overriders of one rule, and what they may not touch."""
    for place, each in _listed(overriders, "labelsOverrider", field):
        labels: Object = each.get("value") or {}
        for key, value in labels.items():
            for why in (*label_key_problems(key), *label_value_problems(str(value))):
                yield causes.invalid(f"{place}.value[{key}]", value, why)
        yield from _mark_causes(labels, f"{place}.value")
    for place, each in _listed(overriders, "annotationsOverrider", field):
        annotations: Object = each.get("value") or {}
        for key in annotations:
            for why in qualified_name_problems(key.lower()):
                yield causes.invalid(f"{place}.value", key, why)
        yield from _mark_causes(annotations, f"{place}.value")
    for place, each in _listed(overriders, "imageOverrider", field):
        predicate: Object = each.get("predicate") or {}
        path = str(predicate.get("path") or "")
        if path:  # without one, every container is meant
            yield from _target_causes(path, f"{place}.predicate.path", may_mean_grants)
    for place, each in _listed(overriders, "plaintext", field):
        path = str(each.get("path") or "")
        yield from _target_causes(path, f"{place}.path", may_mean_grants)
        with suppress(ValueError):  # said of the path
            if problem := value_problem(read_pointer(path), each.get("value")):
                yield causes.forbidden(f"{place}.value", problem)
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
            path = str(operation.get("subPath") or "")
            try:
                read_pointer(path)
            except ValueError as error:
                yield causes.invalid(f"{where}.subPath", path, str(error))
            operator, has_value = operation.get("operator"), "value" in operation
            if operator == "remove" and has_value:
                why = "nothing is put where something is removed"
                yield causes.forbidden(f"{where}.value", why)
            if operator != "remove" and not has_value:
                yield causes.required(f"{where}.value", f"{operator} needs a value")


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


def _mark_causes(words: Object, field: str) -> Iterator[Cause]:
    for key in words:
        if is_mark(key):
            yield causes.forbidden(f"{field}[{key}]", "it is a mark of the control plane")


def _listed(holder: Object, key: str, field: str) -> Iterator[tuple[str, Object]]:
    entries: list[Object] = holder.get(key) or []
    return ((f"{field}.{key}[{index}]", each) for index, each in enumerate(entries))
