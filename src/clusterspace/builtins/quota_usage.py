"""What an object takes up of a ResourceQuota, which quotas count it, and what it must state.

Pods are counted by what they ask for, claims by their storage, Services by their ports, and every
object by its number. The names are those of a quota's `hard`:

    pods, requests.cpu, limits.memory, hugepages-2Mi, requests.example.com/gpu     of pods
    persistentvolumeclaims, requests.storage, gold.storageclass.storage.k8s.io/…   of claims
    services, services.nodeports, services.loadbalancers                           of Services
    count/deployments.apps, and the old names secrets, configmaps, …               of anything
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias, cast

from clusterspace.builtins.pods import (
    ResourceList,
    effective,
    largest,
    qos_class,
)
from clusterspace.kube.objects import Object, annotations_of, find_at, metadata_of
from clusterspace.kube.quantities import ZERO, Quantity, parse_quantity
from clusterspace.kube.resources import GroupResource
from clusterspace.kube.times import parse_time

Amounts: TypeAlias = Mapping[str, Quantity]
"""Quantities by the names a quota has for them."""

PODS: Final = GroupResource("", "pods")
SERVICES: Final = GroupResource("", "services")
CLAIMS: Final = GroupResource("", "persistentvolumeclaims")
DEVICE_CLAIMS: Final = GroupResource("resource.k8s.io", "resourceclaims")

IGNORED: Final = frozenset(
    {
        GroupResource("", "bindings"),
        GroupResource("", "componentstatuses"),
        GroupResource("", "events"),
        GroupResource("events.k8s.io", "events"),
    }
)
"""Resources that no quota counts: they are not stored, or make too little of a difference."""

_OLD_NAMES: Final = frozenset(
    {
        GroupResource("", "configmaps"),
        GroupResource("", "replicationcontrollers"),
        GroupResource("", "resourcequotas"),
        GroupResource("", "secrets"),
    }
)
"""Resources whose number a quota may give without `count/`."""

_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_OF_PODS: Final = frozenset(
    {
        "count/pods",
        "pods",
        *_COMPUTE,
        *(f"requests.{each}" for each in _COMPUTE),
        *(f"limits.{each}" for each in _COMPUTE),
    }
)
_MUST_BE_STATED: Final = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)
_OF_SERVICES: Final = frozenset(
    {"count/services", "services", "services.nodeports", "services.loadbalancers"}
)
_OF_CLAIMS: Final = ("persistentvolumeclaims", "requests.storage")
_BY_STORAGE_CLASS: Final = ".storageclass.storage.k8s.io/"
_BY_DEVICE_CLASS: Final = ".deviceclass.resource.k8s.io/devices"
_MOST_DEVICES: Final = 32
_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_ONE: Final = parse_quantity("1")


def counts_of(resource: GroupResource, names: Iterable[str]) -> list[str]:
    """Return those names of a quota that objects of a resource count for, in order."""
    return sorted(each for each in set(names) if _is_count_of(resource, each))


def _is_count_of(resource: GroupResource, name: str) -> bool:
    if name == _count_name(resource):
        return True
    if resource == PODS:
        if name in _OF_PODS or name.startswith(("hugepages-", "requests.hugepages-")):
            return True
        return name.startswith("requests.") and _is_extended(name.removeprefix("requests."))
    if resource == SERVICES:
        return name in _OF_SERVICES
    if resource == CLAIMS:
        return name.rpartition(_BY_STORAGE_CLASS)[2] in _OF_CLAIMS
    if resource == DEVICE_CLAIMS:
        return name.endswith(_BY_DEVICE_CLASS)
    return resource in _OLD_NAMES and name == resource.resource


def resource_counted_as(name: str) -> GroupResource | None:
    """Return the resource whose objects a name of a quota counts; None for a name of nothing."""
    if name.startswith("count/"):
        plural, _, group = name.removeprefix("count/").partition(".")
        return GroupResource(group, plural)
    special = (PODS, SERVICES, CLAIMS, DEVICE_CLAIMS, *_OLD_NAMES)
    return next((each for each in special if _is_count_of(each, name)), None)


def _count_name(resource: GroupResource) -> str:
    suffix = f".{resource.group}" if resource.group else ""
    return f"count/{resource.resource}{suffix}"


def _is_extended(name: str) -> bool:
    """Whether a resource is one of a vendor's, which only a domain before a slash can say."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and not (domain == "kubernetes.io" or domain.endswith(".kubernetes.io"))


def is_measured(resource: GroupResource, subresource: str, new: Object, old: Object | None) -> bool:
    """Whether a write can change what is used; most changes of an object cannot."""
    if resource in IGNORED:
        return False
    if resource == PODS:
        if subresource == "resize":
            return old is not None
        is_rescoped = old is not None and _is_terminating(old) != _is_terminating(new)
        return not subresource and (old is None or is_rescoped)
    if resource == CLAIMS and subresource == "status":
        return old is not None and any(
            find_at(old, *path) != find_at(new, *path) for path in (_ALLOCATED, *_ATTRIBUTES_CLASS)
        )
    return not subresource and (old is None or resource in (SERVICES, CLAIMS, DEVICE_CLAIMS))


# -- how much ------------------------------------------------------------------------------------


def usage_of(resource: GroupResource, kube_object: Object, now: float) -> dict[str, Quantity]:
    """Return what an object takes up, by every name it counts for."""
    used = {_count_name(resource): _ONE}
    if resource == PODS:
        if not _is_over(kube_object, now):
            spec = cast("Object", kube_object.get("spec") or {})
            used |= _compute_usage(
                _amounts(_pod_requests(kube_object, spec)), _amounts(_pod_limits(spec))
            )
    elif resource == SERVICES:
        used |= _service_usage(cast("Object", kube_object.get("spec") or {}))
    elif resource == CLAIMS:
        used |= _claim_usage(kube_object)
    elif resource == DEVICE_CLAIMS:
        used |= _device_usage(kube_object)
    elif resource in _OLD_NAMES:
        used[resource.resource] = _ONE
    return used


def _compute_usage(requests: Amounts, limits: Amounts) -> dict[str, Quantity]:
    used: dict[str, Quantity] = {"pods": _ONE}
    for name, amount in requests.items():
        if name in _COMPUTE or name.startswith("hugepages-"):
            used[name] = used[f"requests.{name}"] = amount
        elif _is_extended(name):
            used[f"requests.{name}"] = amount
    used |= {f"limits.{name}": amount for name, amount in limits.items() if name in _COMPUTE}
    return used


def _is_over(pod: Object, now: float) -> bool:
    """Whether a pod has ended, or should have gone some time ago and is on a lost node, say."""
    if find_at(pod, "status", "phase") in ("Failed", "Succeeded"):
        return True
    metadata = metadata_of(pod)
    marked, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    return marked is not None and grace is not None and now > parse_time(str(marked)) + int(grace)


def _pod_requests(pod: Object, spec: Object) -> dict[str, str]:
    """Return what a pod asks for; one that is being resized is counted by the larger of both."""
    statuses: dict[str, Object] = {
        str(each.get("name")): each
        for field in ("containerStatuses", "initContainerStatuses")
        for each in cast("list[Object]", find_at(pod, "status", field) or [])
        if each.get("resources") is not None
    }
    if statuses:
        spec = dict(spec)
        for field in ("containers", "initContainers"):
            spec[field] = [
                _with_actual_requests(each, statuses.get(str(each.get("name"))))
                if field == "containers" or each.get("restartPolicy") == "Always"
                else each
                for each in cast("list[Object]", spec.get(field) or [])
            ]
    asked = {**effective(spec, "requests"), **_stated(spec, "requests")}
    for name, text in cast("ResourceList", spec.get("overhead") or {}).items():
        asked[name] = str(parse_quantity(asked.get(name, "0")) + parse_quantity(text))
    return asked


def _with_actual_requests(container: Object, status: Object | None) -> Object:
    if status is None:
        return container
    requests = largest(
        find_at(container, "resources", "requests") or {},
        find_at(status, "resources", "requests") or {},
        status.get("allocatedResources") or {},
    )
    return {**container, "resources": {**(container.get("resources") or {}), "requests": requests}}


def _pod_limits(spec: Object) -> dict[str, str]:
    allowed = {**effective(spec, "limits"), **_stated(spec, "limits")}
    for name, text in cast("ResourceList", spec.get("overhead") or {}).items():
        limit = parse_quantity(allowed.get(name, "0"))
        if limit:
            allowed[name] = str(limit + parse_quantity(text))
    return allowed


def _stated(spec: Object, which: str) -> dict[str, str]:
    """Return what a pod says for itself, which wins over what its containers say."""
    own: ResourceList = find_at(spec, "resources", which) or {}
    return {
        name: text
        for name, text in own.items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }


def _service_usage(spec: Object) -> dict[str, Quantity]:
    kind, ports = spec.get("type"), cast("list[Object]", spec.get("ports") or [])
    node_ports = 0
    if kind == "NodePort":
        node_ports = len(ports)
    elif kind == "LoadBalancer":
        is_spared = spec.get("allocateLoadBalancerNodePorts") is False
        node_ports = sum(bool(each.get("nodePort")) for each in ports) if is_spared else len(ports)
    return {
        "services": _ONE,
        "services.loadbalancers": _ONE if kind == "LoadBalancer" else ZERO,
        "services.nodeports": parse_quantity(str(node_ports)),
    }


_ALLOCATED: Final = ("status", "allocatedResources", "storage")


def _claim_usage(claim: Object) -> dict[str, Quantity]:
    used: dict[str, Quantity] = {"persistentvolumeclaims": _ONE}
    asked = find_at(claim, "spec", "resources", "requests", "storage")
    if asked is not None:
        sizes = [parse_quantity(str(each)) for each in (asked, find_at(claim, *_ALLOCATED)) if each]
        size = max(sizes, default=ZERO)  # of a claim that grows, the larger counts
        is_whole = size.nanos % 10**9 == 0
        used["requests.storage"] = size if is_whole else Quantity(size.whole * 10**9, size.form)
    annotated = annotations_of(claim).get(_STORAGE_CLASS)
    name = str(annotated or find_at(claim, "spec", "storageClassName") or "")
    if name:
        used |= {
            f"{name}{_BY_STORAGE_CLASS}{each}": used[each] for each in _OF_CLAIMS if each in used
        }
    return used


def _device_usage(claim: Object) -> dict[str, Quantity]:
    """Return how many devices of each class a claim may be given at most."""
    totals: dict[str, int] = {}
    for request in cast("list[Object]", find_at(claim, "spec", "devices", "requests") or []):
        wanted = cast("list[Object]", request.get("firstAvailable") or [])
        if not wanted:
            wanted = [cast("Object", request.get("exactly") or request)]
        most: dict[str, int] = {}
        for each in wanted:
            name = f"{each.get('deviceClassName') or ''}{_BY_DEVICE_CLASS}"
            match each.get("allocationMode"):
                case "ExactCount":
                    number = int(each.get("count") or 0)
                case "All":
                    number = _MOST_DEVICES
                case _:
                    number = 0
            most[name] = max(most.get(name, 0), number)
        for name, number in most.items():
            totals[name] = totals.get(name, 0) + number
    return {name: parse_quantity(str(number)) for name, number in totals.items()}


def _amounts(resources: ResourceList) -> dict[str, Quantity]:
    return {name: parse_quantity(str(text)) for name, text in resources.items()}


# -- which quotas count it -----------------------------------------------------------------------


def is_in_scope(resource: GroupResource, quota: Object, kube_object: Object) -> bool:
    """Whether a quota counts an object: every scope it has must hold, and most kinds have none."""
    named = cast("list[str]", find_at(quota, "spec", "scopes") or [])
    scopes: list[Object] = [{"scopeName": each, "operator": "Exists"} for each in named]
    scopes += find_at(quota, "spec", "scopeSelector", "matchExpressions") or []
    return all(_holds(each, resource, kube_object) for each in scopes)


_ATTRIBUTES_CLASS: Final = (
    ("spec", "volumeAttributesClassName"),
    ("status", "currentVolumeAttributesClassName"),
    ("status", "modifyVolumeStatus", "targetVolumeAttributesClassName"),
)


def _holds(scope: Object, resource: GroupResource, kube_object: Object) -> bool:
    name = scope.get("scopeName")
    if resource == CLAIMS and name == "VolumeAttributesClass":
        found = {str(find_at(kube_object, *path) or "") for path in _ATTRIBUTES_CLASS} - {""}
        return any(_selects(scope, each) for each in found or {""})
    if resource != PODS:
        return False
    match name:
        case "Terminating":
            return _is_terminating(kube_object)
        case "NotTerminating":
            return not _is_terminating(kube_object)
        case "BestEffort":
            return qos_class(kube_object) == "BestEffort"
        case "NotBestEffort":
            return qos_class(kube_object) != "BestEffort"
        case "PriorityClass":
            return _selects(scope, str(find_at(kube_object, "spec", "priorityClassName") or ""))
        case "CrossNamespacePodAffinity":
            return any(
                term.get("namespaces") or term.get("namespaceSelector") is not None
                for term in _affinity_terms(kube_object)
            )
        case _:
            return False


def _selects(scope: Object, given: str) -> bool:
    """Whether the name of a class, or none, is one that a scope means."""
    values = cast("list[str]", scope.get("values") or [])
    match scope.get("operator"):
        case "In":
            return bool(given) and given in values
        case "NotIn":
            return given not in values
        case "DoesNotExist":
            return not given
        case _:
            return bool(given)


def _is_terminating(pod: Object) -> bool:
    """Whether a pod ends by itself, at a deadline."""
    return find_at(pod, "spec", "activeDeadlineSeconds") is not None


def _affinity_terms(pod: Object) -> Iterator[Object]:
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = cast("Object", find_at(pod, "spec", "affinity", kind) or {})
        yield from affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted.get("podAffinityTerm") or {}


# -- what it must state --------------------------------------------------------------------------


def unstated(pod: Object, required: Iterable[str]) -> str:
    """Return what a counted pod leaves open, and which of its containers; empty if nothing.

    A pod that says for itself what it needs leaves nothing open.
    """
    spec = cast("Object", pod.get("spec") or {})
    if _stated(spec, "requests") or _stated(spec, "limits"):
        return ""
    missing: dict[str, set[str]] = {}
    for field in ("containers", "initContainers"):
        for container in cast("list[Object]", spec.get(field) or []):
            requests: ResourceList = find_at(container, "resources", "requests") or {}
            limits: ResourceList = find_at(container, "resources", "limits") or {}
            given = _compute_usage(_amounts(requests), _amounts(limits))
            for name in _MUST_BE_STATED.intersection(required) - given.keys():
                missing.setdefault(name, set()).add(str(container.get("name") or ""))
    if not missing:
        return ""
    texts = (f"{name} for: {','.join(sorted(names))}" for name, names in sorted(missing.items()))
    return f"must specify {'; '.join(texts)}"
