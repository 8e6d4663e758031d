"""The rules of what a cluster is made of and shared by: nodes, quotas, limits, priorities."""

from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.formats import network_problems
from clusterspace.builtins.validation.metadata import check_labels, check_owned_finalizer
from clusterspace.builtins.validation.pods.placement import TAINT_EFFECTS
from clusterspace.builtins.validation.pods.resources import (
    check_container_resource_name,
    check_quantity,
    check_requirements,
    check_resource_name,
    is_known_resource,
)
from clusterspace.builtins.validation.rules import (
    at,
    check_all,
    chosen,
    duplicate_struct,
    immutable,
    of_form,
    problems_at,
    struct_in,
    structs_in,
    texts_in,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import (
    dns1123_label_problems,
    label_key_problems,
    label_value_problems,
    qualified_name_problems,
)
from clusterspace.kube.objects import Object, metadata_of
from clusterspace.kube.quantities import parse_quantity

_MOST_USER_PRIORITY: Final = 1_000_000_000
_SYSTEM: Final = "system-"
_SCOPES: Final = frozenset(
    {
        "BestEffort",
        "CrossNamespacePodAffinity",
        "NotBestEffort",
        "NotTerminating",
        "PriorityClass",
        "Terminating",
        "VolumeAttributesClass",
    }
)
_LIMIT_TYPES: Final = ("Container", "PersistentVolumeClaim", "Pod")


def _value(taint: Object, path: str) -> Iterator[Cause]:
    if problems := label_value_problems(taint.get("value", "")):
        yield causes.invalid(at(path, "value"), taint["value"], ";".join(problems))


_TAINT: Final = (
    of_form("key", label_key_problems),
    _value,
    chosen("effect", *TAINT_EFFECTS),
)


def check_node(node: Object) -> Iterator[Cause]:
    """Check a node's taints and what it can hold."""
    taints = structs_in(struct_in(node, "spec"), "taints")
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        place = f"metadata.taints[{index}]"
        yield from check_all(taint, place, _TAINT)
        key = (taint.get("key", ""), taint.get("effect", ""))
        if key in seen:
            why = "taints must be unique by key and effect pair"
            yield duplicate_struct(place, _taint_form(taint), why)
        seen.add(key)
    status = struct_in(node, "status")
    for field in ("capacity", "allocatable"):
        for name, text in struct_in(status, field).items():
            yield from check_quantity(name, text, f"status.{field}.{name}")
    for index, network in enumerate(texts_in(struct_in(node, "spec"), "podCIDRs")):
        yield from problems_at(f"spec.podCIDRs[{index}]", network, network_problems(network))


def _taint_form(taint: Object) -> Object:
    """Return a taint as the server's messages show it."""
    return {
        "Key": taint.get("key", ""),
        "Value": taint.get("value", ""),
        "Effect": taint.get("effect", ""),
        "TimeAdded": taint.get("timeAdded"),
    }


def check_node_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that what ties a node to its machine stays."""
    spec, held = struct_in(new, "spec"), struct_in(old, "spec")
    for field in ("podCIDRs", "providerID"):
        if held.get(field) and spec.get(field) != held[field]:
            why = "node updates may only change labels, taints, or capacity"
            yield causes.forbidden(f"spec.{field}", why)


def check_namespace(namespace: Object) -> Iterator[Cause]:
    """Check what holds a namespace until it is cleaned up."""
    for finalizer in texts_in(struct_in(namespace, "spec"), "finalizers"):
        yield from problems_at("spec.finalizers", finalizer, qualified_name_problems(finalizer))
        yield from check_owned_finalizer(finalizer, "spec.finalizers")


def check_quota(quota: Object) -> Iterator[Cause]:
    """Check a ResourceQuota."""
    scopes = texts_in(struct_in(quota, "spec"), "scopes")
    if any(scope not in _SCOPES for scope in scopes):
        yield causes.invalid("spec.scopes", scopes, "unsupported scope")
    for name, text in struct_in(struct_in(quota, "spec"), "hard").items():
        place = f"spec.hard[{name}]"
        yield from check_resource_name(name, place)
        if not is_known_resource(name) and "/" not in name:
            yield causes.invalid(place, name, "must be a standard resource for quota")
        yield from check_quantity(name, text, place)


def check_quota_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a quota goes on counting the same objects."""
    wanted, held = struct_in(new, "spec").get("scopes"), struct_in(old, "spec").get("scopes")
    return immutable(sorted(wanted or []), sorted(held or []), "spec.scopes")


def check_limit_range(limit_range: Object) -> Iterator[Cause]:
    """Check a LimitRange."""
    limits = structs_in(struct_in(limit_range, "spec"), "limits")
    seen: set[str] = set()
    for index, limit in enumerate(limits):
        place, kind = f"spec.limits[{index}]", str(limit.get("type") or "")
        yield from problems_at(f"{place}.type", kind, qualified_name_problems(kind))
        if kind and "/" not in kind and kind not in _LIMIT_TYPES:
            why = "must be a standard limit type or fully qualified"
            yield causes.invalid(f"{place}.type", kind, why)
        if kind in seen:
            yield causes.duplicate(f"{place}.type", kind)
        seen.add(kind)
        yield from _check_limit(limit, place)


_FIELDS: Final = ("max", "min", "default", "defaultRequest")

# Which bound must not exceed which, the words for it, and the field and value that are blamed.
_BOUNDS: Final = (
    ("min", "max", "min value {0} is greater than max value {1}", "min", 0),
    (
        "min",
        "defaultRequest",
        "min value {0} is greater than default request value {1}",
        "defaultRequest",
        1,
    ),
    (
        "defaultRequest",
        "max",
        "default request value {0} is greater than max value {1}",
        "defaultRequest",
        0,
    ),
    (
        "defaultRequest",
        "default",
        "default request value {0} is greater than default limit value {1}",
        "defaultRequest",
        0,
    ),
    ("min", "default", "min value {0} is greater than default value {1}", "default", 0),
    ("default", "max", "default value {0} is greater than max value {1}", "default", 1),
)


def _check_limit(limit: Object, path: str) -> Iterator[Cause]:
    is_of_containers = limit.get("type") in ("Container", "Pod")
    name_rule = check_container_resource_name if is_of_containers else check_resource_name
    for field in (*_FIELDS, "maxLimitRequestRatio"):
        for name in struct_in(limit, field):
            yield from name_rule(name, f"{path}.{field}[{name}]")
    for name, ratio in struct_in(limit, "maxLimitRequestRatio").items():
        if parse_quantity(ratio).whole < 1:
            place = f"{path}.maxLimitRequestRatio[{name}]"
            yield causes.invalid(place, ratio, f"ratio {ratio} is less than 1")
    for name in dict.fromkeys(each for field in _FIELDS for each in struct_in(limit, field)):
        yield from _check_bounds(limit, name, path)


def _check_bounds(limit: Object, name: str, path: str) -> Iterator[Cause]:
    for lower, upper, message, blamed, which in _BOUNDS:
        pair = struct_in(limit, lower).get(name), struct_in(limit, upper).get(name)
        if None not in pair and parse_quantity(pair[0]) > parse_quantity(pair[1]):
            why = message.format(*pair)
            yield causes.invalid(f"{path}.{blamed}[{name}]", pair[which], why)


def check_priority_class(priority_class: Object) -> Iterator[Cause]:
    """Check a PriorityClass."""
    name, value = metadata_of(priority_class).get("name", ""), priority_class.get("value", 0)
    if name.startswith(_SYSTEM):
        why = (
            "priority class names with 'system-' prefix are reserved for system use only. "
            f"error: {name} is not a known system priority class"
        )
        yield causes.forbidden("metadata.name", why)
    elif value > _MOST_USER_PRIORITY:
        why = f"maximum allowed value of a user defined priority is {_MOST_USER_PRIORITY}"
        yield causes.forbidden("value", why)
    policies = ("PreemptLowerPriority", "Never")
    yield from chosen("preemptionPolicy", *policies)(priority_class, "")


def check_priority_class_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a PriorityClass keeps what pods were given."""
    for field in ("value", "preemptionPolicy"):
        if (new.get(field) or None) != (old.get(field) or None):
            why = "may not be changed in an update."
            yield causes.forbidden(field, why)


def check_runtime_class(runtime_class: Object) -> Iterator[Cause]:
    """Check a RuntimeClass."""
    yield from of_form("handler", dns1123_label_problems)(runtime_class, "")
    overhead = struct_in(runtime_class, "overhead")
    fixed = {"limits": struct_in(overhead, "podFixed")}
    # The server checks the overhead as if it were limits, and says so.
    yield from check_requirements(fixed, "overhead")
    scheduling = struct_in(runtime_class, "scheduling")
    selector = struct_in(scheduling, "nodeSelector")
    yield from check_labels(selector, "scheduling.nodeSelector")


def check_runtime_class_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a RuntimeClass keeps its handler."""
    return immutable(new.get("handler"), old.get("handler"), "handler")
