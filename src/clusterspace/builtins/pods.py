"""What the containers of a pod ask for and may use together; and the volume with its token."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, cast

from clusterspace.kube.objects import Object
from clusterspace.kube.quantities import ZERO, Quantity, parse_quantity

ResourceList: TypeAlias = Mapping[str, str]
"""Quantities by resource name."""

_QOS_RESOURCES: Final = ("cpu", "memory")


def effective(pod_spec: Object, which: str) -> dict[str, str]:
    """Return the resources all containers need at once; `which` is `requests` or `limits`.

    Init containers run one by one before the rest, so only the largest counts; those that are
    restarted for ever keep running and count with everything after them.
    """
    containers = _containers(pod_spec, "containers")
    running = _added(_list_of(container, which) for container in containers)
    sidecars: dict[str, str] = {}
    peak: dict[str, str] = {}
    for container in _containers(pod_spec, "initContainers"):
        asked = _list_of(container, which)
        if container.get("restartPolicy") == "Always":
            sidecars = _added([sidecars, asked])
            peak = _larger(peak, sidecars)
        else:
            peak = _larger(peak, _added([sidecars, asked]))
    return _larger(_added([running, sidecars]), peak)


def largest(*lists: ResourceList) -> dict[str, str]:
    """Return the largest quantity of each resource that any of the lists has."""
    merged: dict[str, str] = {}
    for each in lists:
        merged = _larger(merged, each)
    return merged


def are_equal_amounts(one: ResourceList, other: ResourceList) -> bool:
    """Whether two lists have the same amounts of the same resources, however they are written."""
    return one.keys() == other.keys() and all(
        parse_quantity(text) == parse_quantity(other[name]) for name, text in one.items()
    )


def rounded_to_millis(text: str) -> str:
    """Return a quantity rounded away from zero to thousandths, as resource lists keep it."""
    quantity = parse_quantity(text)
    if quantity.nanos % _MILLI == 0:
        return str(quantity)
    millis = -(-abs(quantity.nanos) // _MILLI)
    return str(Quantity(millis * _MILLI if quantity.nanos > 0 else -millis * _MILLI))


_MILLI: Final = 10**6


def qos_class(pod: Object) -> str:
    """Return the pod's quality-of-service class, which decides who is evicted first."""
    spec = cast("Object", pod.get("spec") or {})
    if spec.get("resources") is not None:
        sources = [cast("Object", spec["resources"])]
    else:
        containers = (*_containers(spec, "containers"), *_containers(spec, "initContainers"))
        sources = [cast("Object", container.get("resources") or {}) for container in containers]
    requests = _added(_counted(each, "requests") for each in sources)
    limits = _added(_counted(each, "limits") for each in sources)
    if not requests and not limits:
        return "BestEffort"
    all_limited = all(len(_counted(each, "limits")) == len(_QOS_RESOURCES) for each in sources)
    are_equal = requests.keys() == limits.keys() and all(
        parse_quantity(text).nanos == parse_quantity(limits[key]).nanos
        for key, text in requests.items()
    )
    return "Guaranteed" if all_limited and are_equal else "Burstable"


def _counted(resources: Object, which: str) -> ResourceList:
    """Return the quantities that decide the class: CPU and memory above zero."""
    quantities = cast("ResourceList", resources.get(which) or {})
    return {
        key: text
        for key, text in quantities.items()
        if key in _QOS_RESOURCES and parse_quantity(text).nanos > 0
    }


def _containers(pod_spec: Object, field: str) -> list[Object]:
    return cast("list[Object]", pod_spec.get(field) or [])


def _list_of(container: Object, which: str) -> ResourceList:
    return cast("ResourceList", (container.get("resources") or {}).get(which) or {})


def _added(lists: Iterable[ResourceList]) -> dict[str, str]:
    totals: dict[str, Quantity] = {}
    for each in lists:
        for name, text in each.items():
            totals[name] = totals.get(name, ZERO) + parse_quantity(text)
    return {name: str(total) for name, total in totals.items()}


def _larger(one: ResourceList, other: ResourceList) -> dict[str, str]:
    merged = dict(one)
    for name, text in other.items():
        if name not in merged or parse_quantity(text).nanos > parse_quantity(merged[name]).nanos:
            merged[name] = text
    return merged


# -- the volume by which a pod has the token of its ServiceAccount, as every API server mounts it --

PREFIX: Final = "kube-api-access-"
MOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"

_EXPIRATION_SECONDS: Final = 3607
"""An hour and a bit, which tells this token from those that somebody asked for."""

TOKEN_SOURCE: Final[Object] = {
    "defaultMode": 0o644,
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": _EXPIRATION_SECONDS, "path": "token"}},
        {
            "configMap": {
                "name": "kube-root-ca.crt",
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }
        },
        {
            "downwardAPI": {
                "items": [
                    {
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }
                ]
            }
        },
    ],
}

_GENERATED: Final = re.compile(re.escape(PREFIX) + "[a-z0-9]{5}")
_MOUNT: Final[Object] = {"readOnly": True, "mountPath": MOUNT_PATH}
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")


def without_token_volume(pod: Object) -> Object:
    """Return a pod as it was before an API server mounted the token of its account into it.

    Every cluster mounts its own, under a name of its own. A pod that opts out of that, and one
    that has the volume in another way than an API server adds it, is left as it is: somebody wrote
    it so.
    """
    spec = cast("Object", pod.get("spec") or {})
    volumes = cast("list[Object]", spec.get("volumes") or [])
    added = {
        str(each["name"])
        for each in volumes
        if _GENERATED.fullmatch(str(each.get("name") or ""))
        and each == {"name": each["name"], "projected": TOKEN_SOURCE}
    }
    if not added or spec.get("automountServiceAccountToken") is False:
        return pod
    kept: Object = {key: value for key, value in spec.items() if key != "volumes"}
    if left := [each for each in volumes if each.get("name") not in added]:
        kept["volumes"] = left
    for field in _CONTAINERS:
        containers: list[Object] = []
        for container in cast("list[Object]", spec.get(field) or []):
            mounts = cast("list[Object]", container.get("volumeMounts") or [])
            others = [each for each in mounts if each.get("name") not in added]
            mounted = [each for each in mounts if each.get("name") in added]
            if any(each != {**_MOUNT, "name": each["name"]} for each in mounted):
                return pod
            bare: Object = {key: value for key, value in container.items() if key != "volumeMounts"}
            if others:
                bare["volumeMounts"] = others
            containers.append(bare if mounted else container)
        if containers:
            kept[field] = containers
    return {**pod, "spec": kept}
