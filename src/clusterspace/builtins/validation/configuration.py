"""The rules of ConfigMaps, Secrets, Events and Leases."""

import base64
import json
from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.formats import config_key_problems
from clusterspace.builtins.validation.rules import (
    immutable,
    not_negative,
    positive,
    problems_at,
    required,
    struct_in,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import qualified_name_problems
from clusterspace.kube.objects import Object, annotations_of, metadata_of

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
        yield from _check_key(data, key)
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        yield causes.required("data[username]")
        yield causes.required("data[password]")


def _check_key(data: Object, key: str) -> Iterator[Cause]:
    if key not in data:
        yield causes.required(f"data[{key}]")
    elif key in _JSON_KEYS and not _is_json(data[key]):
        yield causes.invalid(f"data[{key}]", "<secret contents redacted>", _BAD_JSON)


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
        yield from _check_reporter(event, is_core=is_core)
    elif is_core:
        yield from _check_subject(event)
    else:
        yield causes.required("eventTime")
    if not is_core:
        yield from _check_events_group(event)


def _check_subject(event: Object) -> Iterator[Cause]:
    """Check that an Event is kept in the namespace of what it is about."""
    about = struct_in(event, "involvedObject").get("namespace", "")
    namespace = metadata_of(event).get("namespace", "")
    is_at_home = namespace in ("", "default", about) if not about else namespace in ("", about)
    if not is_at_home:
        place = "involvedObject.namespace"
        yield causes.invalid(place, about, "does not match event.namespace")


def _check_reporter(event: Object, *, is_core: bool) -> Iterator[Cause]:
    reporter = "reportingComponent" if is_core else "reportingController"
    name = event.get(reporter, "")
    if not name:
        yield causes.required(reporter)
    yield from problems_at(reporter, name, qualified_name_problems(name))
    for field in ("reportingInstance", "action", "reason"):
        yield from _check_short(event, field)


def _check_short(event: Object, field: str) -> Iterator[Cause]:
    yield from required(field)(event, "")
    if len(event.get(field, "")) > _MOST_REASON:
        why = f"can have at most {_MOST_REASON} characters"
        yield causes.invalid(field, "", why)


_OLD_NAMES: Final = (
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
)


def _check_events_group(event: Object) -> Iterator[Cause]:
    """Check what the group `events.k8s.io` asks beyond the core group."""
    series = event.get("series")
    if series is not None:
        if series.get("count", 0) < 2:
            yield causes.invalid("series.count", "", "should be at least 2")
        if not series.get("lastObservedTime"):
            yield causes.required("series.lastObservedTime")
    if len(event.get("note", "")) > _MOST_NOTE:
        yield causes.invalid("message", "", f"can have at most {_MOST_NOTE} characters")
    if event.get("type", "") not in ("Normal", "Warning"):
        yield causes.invalid("type", "", f"has invalid value: {event.get('type', '')}")
    for field, shown in _OLD_NAMES:
        if event.get(field):
            yield causes.invalid(shown, "", "needs to be unset")
