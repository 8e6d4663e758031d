"""The rules of PersistentVolumeClaims, alone and as templates."""

from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.rules import (
    Check,
    at,
    problems_at,
    required,
    struct_in,
    supported,
    texts_in,
    well_formed,
)
from clusterspace.builtins.validation.selectors import selector
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_subdomain_problems
from clusterspace.kube.objects import Object
from clusterspace.kube.quantities import parse_quantity

ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES: Final = ("Block", "Filesystem")

_SPEC_IS_IMMUTABLE: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName "
    "for bound claims"
)


def access_modes(spec: Object, path: str) -> Iterator[Cause]:
    """Check the ways a volume may be mounted."""
    modes = texts_in(spec, "accessModes")
    for mode in modes:
        if mode not in ACCESS_MODES:
            yield causes.not_supported(at(path, "accessModes"), mode, ACCESS_MODES)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        why = "may not use ReadWriteOncePod with other access modes"
        yield causes.forbidden(at(path, "accessModes"), why)


def _storage_request(spec: Object, path: str) -> Iterator[Cause]:
    requests = struct_in(struct_in(spec, "resources"), "requests")
    if "storage" not in requests:
        yield causes.required(f"{path}.resources[storage]")
    elif parse_quantity(requests["storage"]).nanos <= 0:
        why = "must be greater than zero"
        yield causes.invalid(f"{path}.resources[storage]", requests["storage"], why)


def _class_name(spec: Object, path: str) -> Iterator[Cause]:
    name = spec.get("storageClassName")
    if name:
        problems = dns1123_subdomain_problems(name)
        yield from problems_at(at(path, "storageClassName"), name, problems)


def _data_source(field: str) -> Check:
    def check(spec: Object, path: str) -> Iterator[Cause]:
        source, place = spec.get(field), at(path, field)
        if source is None:
            return
        yield from required("name")(source, place)
        yield from required("kind")(source, place)
        if not source.get("apiGroup") and source.get("kind") != "PersistentVolumeClaim":
            why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
            yield causes.invalid(place, source.get("kind", ""), why)

    return check


def _has_access_modes(spec: Object, path: str) -> Iterator[Cause]:
    if not spec.get("accessModes"):
        why = "at least 1 access mode is required"
        yield causes.required(at(path, "accessModes"), why)


CLAIM_SPEC: Final = (
    _has_access_modes,
    selector("selector"),
    access_modes,
    _storage_request,
    _class_name,
    supported("volumeMode", *VOLUME_MODES),
    well_formed("volumeAttributesClassName", dns1123_subdomain_problems),
    _data_source("dataSource"),
    _data_source("dataSourceRef"),
)
"""The checks of a claim's spec."""


def check_claim_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of a claim: only what it asks for may grow, once it is bound."""
    spec, held = struct_in(new, "spec"), struct_in(old, "spec")
    asked, had = _storage(spec), _storage(held)
    changeable = {"volumeAttributesClassName", "resources"}
    if not held.get("volumeName"):
        changeable |= {"volumeName"}
    fixed = {key: value for key, value in spec.items() if key not in changeable}
    fixed_before = {key: value for key, value in held.items() if key not in changeable}
    is_bound = struct_in(old, "status").get("phase") == "Bound"
    if fixed != fixed_before or (asked != had and not is_bound):
        yield causes.forbidden("spec", _SPEC_IS_IMMUTABLE)
    elif asked < had:
        why = "field can not be less than status.capacity"
        yield causes.forbidden("spec.resources.requests.storage", why)


def _storage(spec: Object) -> int:
    requests = struct_in(struct_in(spec, "resources"), "requests")
    return parse_quantity(requests.get("storage", "0")).nanos
