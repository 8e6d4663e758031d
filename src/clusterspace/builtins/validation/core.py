"""The rules of the core group's smaller kinds, and of Leases, priorities and RuntimeClasses.

ConfigMaps and Secrets, Events, nodes and namespaces, quotas and limits.
"""

import base64
import json
from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.formats import config_key_problems, network_problems
from clusterspace.builtins.validation.metadata import check_labels, check_owned_finalizer
from clusterspace.builtins.validation.pods import TAINT_EFFECTS
from clusterspace.builtins.validation.resources import (
    check_container_resource_name,
    check_quantity,
    check_requirements,
    check_resource_name,
    is_known_resource,
)
from clusterspace.builtins.validation.rules import (
    at,
    chosen,
    duplicate_struct,
    immutable,
    not_negative,
    of_form,
    positive,
    problems_at,
    required,
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
from clusterspace.kube.objects import Object, annotations_of, metadata_of
from clusterspace.kube.quantities import parse_quantity

_MOST_BYTES: Final = 1 << 20
_FROZEN: Final = "field is immutable when `immutable` is set"
_MOST_REASON: Final = 128
_MOST_NOTE: Final = 1024


def check_config_map(config_map: Object) -> Iterator[Cause]:
    """Check keys and size of a ConfigMap."""
    texts, binaries = struct_in(config_map, "data"), struct_in(config_map, "binaryData")
    for key in texts:
        place = f"data[{key}]"
        yield from problems_at(place, key, config_key_problems(key))
        if key in binaries:
            yield causes.invalid(place, key, "duplicate of key present in binaryData")
    for key in binaries:
        place = f"binaryData[{key}]"
        yield from problems_at(place, key, config_key_problems(key))
    size = sum(len(text.encode()) for text in texts.values())
    if size + sum(map(_decoded_size, binaries.values())) > _MOST_BYTES:
        yield causes.too_long("", _MOST_BYTES)


def _decoded_size(encoded: str) -> int:
    return len(encoded) // 4 * 3 - encoded.count("=", -2)


def check_config_map_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a ConfigMap that is immutable stays so, and stays as it is."""
    return _check_frozen(new, old, ("data", "binaryData"))


def _check_frozen(new: Object, old: Object, fields: tuple[str, ...]) -> Iterator[Cause]:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield causes.forbidden("immutable", _FROZEN)
    for field in fields:
        if struct_in(new, field) != struct_in(old, field):
            yield causes.forbidden(field, _FROZEN)


_REQUIRED_KEYS: Final = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_JSON_KEYS: Final = (".dockerconfigjson", ".dockercfg")


def check_secret(secret: Object) -> Iterator[Cause]:
    """Check keys and size of a Secret, and that it holds what its type promises."""
    data, kind = struct_in(secret, "data"), str(secret.get("type") or "")
    for key in data:
        yield from problems_at(f"data[{key}]", key, config_key_problems(key))
    if sum(map(_decoded_size, data.values())) > _MOST_BYTES:
        yield causes.too_long("data", _MOST_BYTES)
    if kind == "kubernetes.io/service-account-token":
        account = annotations_of(secret).get("kubernetes.io/service-account.name", "")
        if not account:
            yield causes.required("metadata.annotations[kubernetes.io/service-account.name]")
    for key in _REQUIRED_KEYS.get(kind, ()):
        if key not in data:
            yield causes.required(f"data[{key}]")
        elif key in _JSON_KEYS and not _is_json(data[key]):
            yield causes.invalid(f"data[{key}]", "<secret contents redacted>", _BAD_JSON)
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        yield causes.required("data[username]")
        yield causes.required("data[password]")


_BAD_JSON: Final = "unexpected end of JSON input"


def _is_json(encoded: str) -> bool:
    try:
        json.loads(base64.b64decode(encoded))
    except ValueError:
        return False
    return True


def check_secret_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a Secret keeps its type, and its contents when it is immutable."""
    yield from immutable(new.get("type"), old.get("type"), "type")
    yield from _check_frozen(new, old, ("data",))


def check_lease(lease: Object) -> Iterator[Cause]:
    """Check a Lease."""
    spec = struct_in(lease, "spec")
    yield from positive("leaseDurationSeconds")(spec, "spec")
    yield from not_negative("leaseTransitions")(spec, "spec")


def check_event(event: Object) -> Iterator[Cause]:
    """Check an Event; those that say when they happened must say who saw it, too."""
    is_core = "involvedObject" in event
    if event.get("eventTime"):
        reporter = "reportingComponent" if is_core else "reportingController"
        name = event.get(reporter, "")
        if not name:
            yield causes.required(reporter)
        yield from problems_at(reporter, name, qualified_name_problems(name))
        for field in ("reportingInstance", "action", "reason"):
            yield from required(field)(event, "")
            if len(event.get(field, "")) > _MOST_REASON:
                why = f"can have at most {_MOST_REASON} characters"
                yield causes.invalid(field, "", why)
    elif is_core:
        about = struct_in(event, "involvedObject").get("namespace", "")
        namespace = metadata_of(event).get("namespace", "")
        # An Event is kept in the namespace of what it is about; of what has none, in the default.
        homes = ("", about) if about else ("", "default")
        if namespace not in homes:
            place = "involvedObject.namespace"
            yield causes.invalid(place, about, "does not match event.namespace")
    else:
        yield causes.required("eventTime")
    if not is_core:
        series = event.get("series")
        if series is not None and series.get("count", 0) < 2:
            yield causes.invalid("series.count", "", "should be at least 2")
        if series is not None and not series.get("lastObservedTime"):
            yield causes.required("series.lastObservedTime")
        if len(event.get("note", "")) > _MOST_NOTE:
            yield causes.invalid("message", "", f"can have at most {_MOST_NOTE} characters")
        if event.get("type", "") not in ("Normal", "Warning"):
            yield causes.invalid("type", "", f"has invalid value: {event.get('type', '')}")
        for field, shown in _OLD_NAMES:
            if event.get(field):
                yield causes.invalid(shown, "", "needs to be unset")


_OLD_NAMES: Final = (
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
)


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


def check_node(node: Object) -> Iterator[Cause]:
    """Check a node's taints and what it can hold."""
    taints = structs_in(struct_in(node, "spec"), "taints")
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        place = f"metadata.taints[{index}]"
        yield from of_form("key", label_key_problems)(taint, place)
        if problems := label_value_problems(taint.get("value", "")):
            yield causes.invalid(at(place, "value"), taint["value"], ";".join(problems))
        yield from chosen("effect", *TAINT_EFFECTS)(taint, place)
        key = (taint.get("key", ""), taint.get("effect", ""))
        if key in seen:
            shown = {
                "Key": taint.get("key", ""),
                "Value": taint.get("value", ""),
                "Effect": taint.get("effect", ""),
                "TimeAdded": taint.get("timeAdded"),
            }
            why = "taints must be unique by key and effect pair"
            yield duplicate_struct(place, shown, why)
        seen.add(key)
    status = struct_in(node, "status")
    for field in ("capacity", "allocatable"):
        for name, text in struct_in(status, field).items():
            yield from check_quantity(name, text, f"status.{field}.{name}")
    for index, network in enumerate(texts_in(struct_in(node, "spec"), "podCIDRs")):
        yield from problems_at(f"spec.podCIDRs[{index}]", network, network_problems(network))


def check_node_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that what ties a node to its machine stays."""
    spec, existing = struct_in(new, "spec"), struct_in(old, "spec")
    for field in ("podCIDRs", "providerID"):
        if existing.get(field) and spec.get(field) != existing[field]:
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
    wanted, existing = struct_in(new, "spec").get("scopes"), struct_in(old, "spec").get("scopes")
    return immutable(sorted(wanted or []), sorted(existing or []), "spec.scopes")


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
        is_of_containers = limit.get("type") in ("Container", "Pod")
        name_rule = check_container_resource_name if is_of_containers else check_resource_name
        for field in (*_FIELDS, "maxLimitRequestRatio"):
            for name in struct_in(limit, field):
                yield from name_rule(name, f"{place}.{field}[{name}]")
        yield from _check_limit_fields(limit, kind, place)
        for name, ratio in struct_in(limit, "maxLimitRequestRatio").items():
            if parse_quantity(ratio) < parse_quantity("1"):
                here = f"{place}.maxLimitRequestRatio[{name}]"
                yield causes.invalid(here, ratio, f"ratio {ratio} is less than 1")
        for name in dict.fromkeys(each for field in _FIELDS for each in struct_in(limit, field)):
            for lower, upper, message, blamed, which in _BOUNDS:
                pair = struct_in(limit, lower).get(name), struct_in(limit, upper).get(name)
                if None not in pair and parse_quantity(pair[0]) > parse_quantity(pair[1]):
                    why = message.format(*pair)
                    yield causes.invalid(f"{place}.{blamed}[{name}]", pair[which], why)


def _check_limit_fields(limit: Object, kind: str, place: str) -> Iterator[Cause]:
    """Check that a limit has what its type needs, and nothing it has no use for."""
    if kind == "Pod":
        for field in ("default", "defaultRequest"):
            if struct_in(limit, field):
                yield causes.forbidden(
                    f"{place}.{field}", "may not be specified when `type` is 'Pod'"
                )
    elif kind == "PersistentVolumeClaim" and not any(
        "storage" in struct_in(limit, field) for field in ("min", "max")
    ):
        why = "either minimum or maximum storage value is required, but neither was provided"
        yield causes.required(f"{place}.limits", why)


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
