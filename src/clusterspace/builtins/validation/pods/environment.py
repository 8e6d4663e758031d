"""The rules of a container's environment."""

from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.formats import config_key_problems, environment_name_problems
from clusterspace.builtins.validation.rules import (
    Check,
    at,
    check_all,
    each,
    inside,
    named,
    of_form,
    problems_at,
    required,
    well_formed,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_subdomain_problems, qualified_name_problems
from clusterspace.kube.objects import Object

_CONVERTIBLE: Final = frozenset(
    {
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "spec.hostNetwork",
        "status.phase",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    }
)
_IN_ENVIRONMENT: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
IN_FILES: Final = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
"""The fields of a pod that can be projected into files."""

_CONTAINER_AMOUNTS: Final = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)


def pod_field(supported: tuple[str, ...]) -> Check:
    """Check a reference to a field of the pod."""

    def check(reference: Object, path: str) -> Iterator[Cause]:
        field = str(reference.get("fieldPath") or "")
        if not field:
            yield causes.required(at(path, "fieldPath"))
        name, bracket, rest = field.partition("['")
        if name not in _CONVERTIBLE:
            why = f"error converting fieldPath: field label not supported: {field}"
            yield causes.invalid(at(path, "fieldPath"), field, why)
        elif bracket:
            yield from _check_subscript(name, rest.removesuffix("']"), path)
        elif field not in supported:
            yield causes.not_supported(at(path, "fieldPath"), field, supported)

    return check


def _check_subscript(name: str, key: str, path: str) -> Iterator[Cause]:
    if name == "metadata.annotations":
        yield from problems_at(path, key.lower(), qualified_name_problems(key.lower()))
    elif name == "metadata.labels":
        yield from problems_at(path, key, qualified_name_problems(key))
    else:
        yield causes.invalid(path, name, "does not support subscript")


def container_amount(reference: Object, path: str) -> Iterator[Cause]:
    """Check a reference to what a container asks for or may use."""
    resource = str(reference.get("resource") or "")
    if not resource:
        yield causes.required(at(path, "resource"))
    elif resource not in _CONTAINER_AMOUNTS and not resource.startswith(_HUGE_PAGES):
        yield causes.not_supported(at(path, "resource"), resource, _CONTAINER_AMOUNTS)


_HUGE_PAGES: Final = ("limits.hugepages-", "requests.hugepages-")

_KEY_REFERENCE: Final = (
    of_form("name", dns1123_subdomain_problems),
    named("key", config_key_problems),
)

_SOURCES: Final[dict[str, tuple[Check, ...]]] = {
    "fieldRef": (pod_field(_IN_ENVIRONMENT),),
    "resourceFieldRef": (container_amount,),
    "configMapKeyRef": _KEY_REFERENCE,
    "secretKeyRef": _KEY_REFERENCE,
    "fileKeyRef": (
        named("key", environment_name_problems),
        required("volumeName"),
        required("path"),
    ),
}


def _value_source(variable: Object, path: str) -> Iterator[Cause]:
    source, place = variable.get("valueFrom"), at(path, "valueFrom")
    if source is None:
        return
    given = [field for field in _SOURCES if source.get(field) is not None]
    for field in given:
        yield from check_all(source[field], at(place, field), _SOURCES[field])
    if not given:
        listed = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        yield causes.invalid(place, "", f"must specify one of: {listed}")
    elif variable.get("value"):
        yield causes.invalid(place, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield causes.invalid(place, "", "may not have more than one field specified at a time")


def _one_bulk_source(source: Object, path: str) -> Iterator[Cause]:
    given = [each for each in ("configMapRef", "secretRef") if source.get(each) is not None]
    place = path.rpartition("[")[0]
    if not given:
        yield causes.invalid(place, "", "must specify one of: `configMapRef` or `secretRef`")
    elif len(given) > 1:
        yield causes.invalid(place, "", "may not have more than one field specified at a time")


ENVIRONMENT: Final = (
    each("env", named("name", environment_name_problems), _value_source),
    each(
        "envFrom",
        well_formed("prefix", environment_name_problems),
        inside("configMapRef", named("name", dns1123_subdomain_problems)),
        inside("secretRef", named("name", dns1123_subdomain_problems)),
        _one_bulk_source,
    ),
)
"""The checks of a container's `env` and `envFrom`."""
