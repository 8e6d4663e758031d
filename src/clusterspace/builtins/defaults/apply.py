"""Filling in an object: every struct in it that has a rule gets what it lacks, parents first.

Which fields can lead to a struct with a rule is worked out once per struct, so the walk touches
only those: most of a Pod is never looked at.
"""

import base64
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias, cast

from clusterspace.builtins import wire_types
from clusterspace.builtins.defaults import governance, pods, workloads
from clusterspace.builtins.defaults.rules import Rule, Rules, in_sequence, rule_for, with_missing
from clusterspace.builtins.wire_types import ListOf, MapOf, PointerTo, Scalar, StructRef, WireType
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionKind

_CORE: Final = "io.k8s.api.core.v1"


def _first_of(single: str, plural: str, element: str) -> Rule:
    """Return a rule that keeps a single value and the first of a list of structs in step."""

    def fill(struct: Object) -> Object:
        listed = cast("list[Object]", struct.get(plural) or [])
        if not listed and struct.get(single):
            return {**struct, plural: [{element: struct[single]}]}
        if listed and listed[0].get(element) and not struct.get(single):
            return {**struct, single: listed[0][element]}
        return struct

    return fill


ALIASES: Final[Rules] = {
    f"{_CORE}.PodStatus": in_sequence(
        _first_of("podIP", "podIPs", "ip"), _first_of("hostIP", "hostIPs", "ip")
    ),
}
"""Fields that are two names for one thing: writing one writes the other.

A kube-apiserver keeps each such value once and shows it under both names, as part of reading an
object, so this happens before any default is filled in.
"""


@rule_for(ALIASES, f"{_CORE}.Secret")
def fill_secret(secret: Object) -> Object:
    """Move `stringData`, which is written and never read, into `data`."""
    texts = cast("dict[str, str]", secret.get("stringData") or {})
    if not texts:
        return with_missing(secret, {"type": "Opaque"})
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    kept = {key: value for key, value in secret.items() if key != "stringData"}
    data = {**cast("dict[str, str]", secret.get("data") or {}), **encoded}
    return with_missing({**kept, "data": data}, {"type": "Opaque"})


@rule_for(ALIASES, f"{_CORE}.PodSpec")
def fill_service_account(pod_spec: Object) -> Object:
    """Show the account under its old name too; the new name wins."""
    name = pod_spec.get("serviceAccountName") or pod_spec.get("serviceAccount")
    if not name or (pod_spec.get("serviceAccount") == pod_spec.get("serviceAccountName")):
        return pod_spec
    return {**pod_spec, "serviceAccountName": name, "serviceAccount": name}


@rule_for(ALIASES, f"{_CORE}.NodeSpec")
def fill_node_addresses(spec: Object) -> Object:
    """Keep the one range and the list of ranges in step; the one wins."""
    ranges, first = cast("list[str]", spec.get("podCIDRs") or []), spec.get("podCIDR")
    if first and ranges[:1] != [first]:
        return {**spec, "podCIDRs": [first]}
    if ranges and not first:
        return {**spec, "podCIDR": ranges[0]}
    return spec


_DEVICES: Final = "io.k8s.api.resource.v1"


def _dropped(*fields: str) -> Rule:
    gated = frozenset(fields)

    def drop(struct: Object) -> Object:
        if gated.isdisjoint(struct):
            return struct
        return {key: value for key, value in struct.items() if key not in gated}

    return drop


GATED: Final[Rules] = {
    f"{_CORE}.Lifecycle": _dropped("stopSignal"),
    f"{_CORE}.NodeSpec": _dropped("configSource"),
    f"{_CORE}.NodeStatus": _dropped("config"),
    f"{_CORE}.PodSpec": _dropped("workloadRef"),
    "io.k8s.api.apps.v1.RollingUpdateStatefulSetStrategy": _dropped("maxUnavailable"),
    "io.k8s.api.coordination.v1.LeaseSpec": _dropped("preferredHolder", "strategy"),
    f"{_DEVICES}.Device": _dropped(
        "allNodes",
        "allowMultipleAllocations",
        "bindingConditions",
        "bindingFailureConditions",
        "bindsToNode",
        "consumesCounters",
        "nodeName",
        "nodeSelector",
        "taints",
    ),
    f"{_DEVICES}.DeviceCapacity": _dropped("requestPolicy"),
    f"{_DEVICES}.DeviceClassSpec": _dropped("extendedResourceName"),
    f"{_DEVICES}.DeviceSubRequest": _dropped("capacity", "tolerations"),
    f"{_DEVICES}.ExactDeviceRequest": _dropped("capacity", "tolerations"),
    f"{_DEVICES}.ResourceSliceSpec": _dropped("perDeviceNodeSelection", "sharedCounters"),
}
"""Fields behind feature gates that are off by default: they are accepted and dropped.

Kubernetes 1.35 drops each of these from a new object. Keeping one would promise behaviour that no
member with default settings has.
"""


_Fill: TypeAlias = Callable[[Any], Any]

_DEFAULTS: Final[Rules] = {
    **pods.RULES,
    **workloads.RULES,
    **governance.RULES,
}

# A struct's own rules apply in this order: what was said, what may be said, what was not said.
_IN_ORDER: Final = (ALIASES, GATED, _DEFAULTS)


def apply_defaults(kind: GroupVersionKind, kube_object: Object) -> Object:
    """Return the object with its defaults; the same object when it has them all.

    The object is in normal form. A kind that is not built in has no defaults here.
    """
    struct = wire_types.struct_of_kind(kind)
    if struct is None or not _has_rules(struct.name):
        return kube_object
    return cast("Object", _struct_filler(struct.name)(kube_object))


@cache
def _struct_filler(name: str) -> _Fill:
    rule = in_sequence(*(rules[name] for rules in _IN_ORDER if name in rules))
    # Made at the first use: structs may hold themselves.
    children: dict[str, _Fill] = {}
    paths = {
        key: field.type
        for key, field in wire_types.struct_type(name).fields.items()
        if any(_has_rules(inner) for inner in _structs_of(field.type))
    }

    def fill(struct: Object) -> Object:
        if paths and not children:
            children.update({key: _filler(inner) for key, inner in paths.items()})
        filled = rule(struct)
        changed: Object = {}
        for key, fill_child in children.items():
            child = filled.get(key)
            if child is not None and (new := fill_child(child)) is not child:
                changed[key] = new
        return {**filled, **changed} if changed else filled

    return fill


def _filler(wire_type: WireType) -> _Fill:
    match wire_type:
        case StructRef():
            return _struct_filler(wire_type.name)
        case PointerTo():
            return _filler(wire_type.target)
        case ListOf():
            fill = _filler(wire_type.element)

            def fill_list(given: list[Any]) -> list[Any]:
                filled = [fill(each) for each in given]
                is_same = all(new is old for new, old in zip(filled, given, strict=True))
                return given if is_same else filled

            return fill_list
        case MapOf():
            fill = _filler(wire_type.value)

            def fill_map(given: Object) -> Object:
                filled = {key: fill(each) for key, each in given.items()}
                is_same = all(filled[key] is given[key] for key in given)
                return given if is_same else filled

            return fill_map
        case Scalar():
            return lambda value: value


@cache
def _has_rules(name: str) -> bool:
    """Whether the struct, or any struct it can hold, has a rule."""
    pending, seen = [name], {name}
    while pending:
        current = pending.pop()
        if any(current in rules for rules in _IN_ORDER):
            return True
        for field in wire_types.struct_type(current).fields.values():
            new = [inner for inner in _structs_of(field.type) if inner not in seen]
            seen.update(new)
            pending.extend(new)
    return False


def _structs_of(wire_type: WireType) -> tuple[str, ...]:
    match wire_type:
        case StructRef():
            return (wire_type.name,)
        case PointerTo():
            return _structs_of(wire_type.target)
        case ListOf():
            return _structs_of(wire_type.element)
        case MapOf():
            return _structs_of(wire_type.value)
        case Scalar():
            return ()
