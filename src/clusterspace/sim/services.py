"""Who answers for a Service: Endpoints, EndpointSlices, and slices of Endpoints made by hand.

Service + its pods ──EndpointsController──────> Endpoints
                   ──EndpointSliceController──> EndpointSlices, a hundred addresses in each
Endpoints of a Service without a selector ──MirroringController──> EndpointSlices
"""

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    identity_of,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
)
from clusterspace.sim.api import (
    ENDPOINT_SLICE,
    ENDPOINTS,
    NODE,
    POD,
    SERVICE,
    Change,
    Key,
    Mirror,
    key_of,
)
from clusterspace.sim.plans import Plan, owner_reference
from clusterspace.sim.pods import containers_of, is_ending, is_finished, ready_since

_BATCH_SECONDS: Final = 0.1
"""A rollout changes many pods of one Service within a moment."""

_PER_SLICE: Final = 100
_PER_SUBSET: Final = 1000
_HEADLESS: Final = "service.kubernetes.io/headless"
_SERVICE_NAME: Final = "kubernetes.io/service-name"
_SLICE_MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
_SLICE_CONTROLLER: Final = "endpointslice-controller.k8s.io"
_MIRRORING_CONTROLLER: Final = "endpointslicemirroring-controller.k8s.io"
_SKIP_MIRROR: Final = "endpointslice.kubernetes.io/skip-mirror"
_ENDPOINTS_MANAGED_BY: Final = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
_OVER_CAPACITY: Final = "endpoints.kubernetes.io/over-capacity"
_LEADER: Final = "control-plane.alpha.kubernetes.io/leader"
_NOT_MIRRORED: Final = frozenset(
    {
        "endpoints.kubernetes.io/last-change-trigger-time",
        "kubectl.kubernetes.io/last-applied-configuration",
    }
)


# -- a Service and its pods ----------------------------------------------------------------------


def _has_own_endpoints(service: Object) -> bool:
    """Whether the endpoints of a Service are found by its selector."""
    spec: Object = service.get("spec") or {}
    return bool(spec.get("selector")) and spec.get("type") != "ExternalName"


def _selects(service: Object, pod: Object) -> bool:
    selector: Mapping[str, str] = find_at(service, "spec", "selector") or {}
    return bool(selector) and selector.items() <= labels_of(pod).items()


def _services_concerned(mirror: Mirror, change: Change) -> Iterator[Key]:
    """Return the Services whose endpoints a change of a Service or of a pod may concern."""
    if change.kind == SERVICE.name:
        yield key_of(change.latest)
    if change.kind != POD.name:
        return
    if change.before is not None and change.after is not None:
        before, after = _what_counts(change.before), _what_counts(change.after)
        if before == after:
            return
    for service in mirror.in_namespace(SERVICE, namespace_of(change.latest)):
        if any(_selects(service, version) for version in change.versions):
            yield key_of(service)


def _what_counts(pod: Object) -> tuple[Any, ...]:
    """Return what endpoints are made of."""
    status: Object = pod.get("status") or {}
    is_ready = ready_since(pod) is not None
    place = (find_at(pod, "spec", "nodeName"), status.get("podIP"), status.get("podIPs"))
    return (labels_of(pod), place, is_finished(pod), is_ready, is_ending(pod))


def _pods_of(mirror: Mirror, service: Object) -> list[Object]:
    """Return the pods of a Service that have an address and have not ended."""
    found = (each for each in mirror.in_namespace(POD, namespace_of(service)))
    usable = (each for each in found if _selects(service, each) and not is_finished(each))
    return [each for each in usable if find_at(each, "status", "podIP")]


def _target_port(service_port: Object, pod: Object) -> int | None:
    """Return the port of a pod that a port of a Service leads to; None when it has no such one."""
    target = service_port.get("targetPort") or service_port["port"]
    if isinstance(target, int):
        return target
    protocol = service_port.get("protocol") or "TCP"
    sidecars: list[Object] = find_at(pod, "spec", "initContainers") or []
    for container in (
        *containers_of(pod),
        *(each for each in sidecars if each.get("restartPolicy") == "Always"),
    ):
        for port in container.get("ports") or ():
            if port.get("name") == target and (port.get("protocol") or "TCP") == protocol:
                return int(port["containerPort"])
    return None


def _ports_to(service: Object, pod: Object) -> list[Object]:
    """Return the ports of a Service as this pod serves them."""
    ports: list[Object] = []
    for each in find_at(service, "spec", "ports") or ():
        number = _target_port(each, pod)
        if number is None:
            continue
        port: Object = {"port": number, "protocol": each.get("protocol") or "TCP"}
        port |= {key: each[key] for key in ("name", "appProtocol") if each.get(key)}
        ports.append(port)
    return ports


def _hostname_for(service: Object, pod: Object) -> str:
    spec: Object = pod["spec"]
    hostname = str(spec.get("hostname") or "")
    return hostname if spec.get("subdomain") == name_of(service) else ""


def _pod_reference(pod: Object) -> Object:
    return {
        "kind": "Pod",
        "namespace": namespace_of(pod),
        "name": name_of(pod),
        "uid": uid_of(pod),
    }


def _is_headless(service: Object) -> bool:
    return find_at(service, "spec", "clusterIP") in (None, "", "None")


def _publishes_unready(service: Object) -> bool:
    return bool(find_at(service, "spec", "publishNotReadyAddresses"))


# -- Endpoints -----------------------------------------------------------------------------------


class EndpointsController:
    """One Endpoints object for every Service with a selector."""

    name = "endpoints"
    batch_seconds = _BATCH_SECONDS

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def requests(self, change: Change) -> Iterable[Key]:
        """Return the Services whose Endpoints may have to change."""
        yield from _services_concerned(self._mirror, change)
        if change.kind == ENDPOINTS.name:
            key = Key(SERVICE.name, namespace_of(change.latest), name_of(change.latest))
            # Endpoints without a Service are somebody's own, and nobody's business.
            if self._mirror.find(key) is not None:
                yield key

    def plan(self, key: Key, now: float) -> Plan:
        """Write the Endpoints of a Service; they go with it."""
        del now
        service = self._mirror.find(key)
        current = self._mirror.find(Key(ENDPOINTS.name, key.namespace, key.name))
        if service is None:
            return Plan() if current is None else Plan(delete=(current,))
        if not _has_own_endpoints(service):
            return Plan()
        subsets, is_cut = _subsets(service, _pods_of(self._mirror, service))
        labels = {k: v for k, v in labels_of(service).items() if k != _HEADLESS}
        labels |= _ENDPOINTS_MANAGED_BY
        if _is_headless(service):
            labels[_HEADLESS] = ""
        annotations = dict(annotations_of(current or {}))
        annotations.pop(_OVER_CAPACITY, None)
        if is_cut:
            annotations[_OVER_CAPACITY] = "truncated"
        desired = with_metadata(
            current or {"apiVersion": "v1", "kind": "Endpoints"},
            name=key.name,
            namespace=key.namespace,
            labels=labels,
            annotations=annotations or None,
        )
        desired = {**desired, "subsets": subsets}
        if not subsets:
            del desired["subsets"]
        if current is None:
            return Plan(create=(desired,))
        return Plan() if desired == current else Plan(update=(desired,))


def _subsets(service: Object, pods: Sequence[Object]) -> tuple[list[Object], bool]:
    """Return addresses, those with the same ports together, and whether some were left out."""
    addresses: dict[str, tuple[Object, bool]] = {}
    served: defaultdict[bytes, set[str]] = defaultdict(set)
    """A port to the pods that serve it."""
    ports: dict[bytes, Object | None] = {}
    for pod in pods:
        if is_ending(pod) and not _publishes_unready(service):
            continue
        address: Object = {"ip": find_at(pod, "status", "podIP"), "targetRef": _pod_reference(pod)}
        if node := find_at(pod, "spec", "nodeName"):
            address["nodeName"] = node
        if hostname := _hostname_for(service, pod):
            address["hostname"] = hostname
        is_ready = _publishes_unready(service) or ready_since(pod) is not None
        addresses[uid_of(pod)] = (address, is_ready)
        found: list[Object | None] = [*_ports_to(service, pod)]
        if not find_at(service, "spec", "ports"):
            found = [None] if _is_headless(service) else []
        for port in found:
            served[identity_of(port)].add(uid_of(pod))
            ports[identity_of(port)] = port
    together: defaultdict[frozenset[str], list[Object | None]] = defaultdict(list)
    for identity, uids in served.items():
        together[frozenset(uids)].append(ports[identity])
    subsets: list[Object] = []
    is_cut = False
    for uids, its_ports in together.items():
        ordered = sorted(uids, key=lambda uid: (_as_number(addresses[uid][0]["ip"]), uid))
        kept = sorted(ordered, key=lambda uid: not addresses[uid][1])[:_PER_SUBSET]
        is_cut = is_cut or len(kept) < len(ordered)
        subset: Object = {}
        for field, is_ready in (("addresses", True), ("notReadyAddresses", False)):
            listed = [addresses[uid][0] for uid in kept if addresses[uid][1] is is_ready]
            if listed:
                subset[field] = listed
        if listed_ports := [each for each in its_ports if each is not None]:
            subset["ports"] = sorted(
                listed_ports, key=lambda port: (port.get("name", ""), port["port"])
            )
        subsets.append(subset)
    return sorted(subsets, key=identity_of), is_cut


def _as_number(address: str) -> int:
    return int(ipaddress.ip_address(address))


# -- slices, whoever fills them ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Group:
    """Endpoints that can share slices: of one family, with the same ports."""

    address_type: str
    ports: tuple[Object, ...]
    endpoints: tuple[Object, ...]

    @property
    def identity(self) -> bytes:
        return identity_of([self.address_type, sorted(self.ports, key=identity_of)])


def _plan_slices(
    owner: Object,
    groups: Sequence[_Group],
    existing: Sequence[Object],
    metadata: Object,
    per_slice: int,
) -> Plan:
    """Fill slices, each endpoint where it is already, so that few slices change."""
    left: defaultdict[bytes, list[Object]] = defaultdict(list)
    for each in sorted(existing, key=lambda each: -len(each.get("endpoints") or ())):
        of = _Group(str(each.get("addressType")), tuple(each.get("ports") or ()), ())
        left[of.identity].append(each)
    create: list[Object] = []
    update: list[Object] = []
    for group in groups:
        missing = {identity_of(each["addresses"]): each for each in group.endpoints}
        filled: list[tuple[Object, list[Object]]] = []
        for current in left.pop(group.identity, []):
            kept = [
                missing.pop(identity)
                for each in current.get("endpoints") or ()
                if (identity := identity_of(each.get("addresses"))) in missing
            ]
            filled.append((current, kept))
        for current, kept in filled:
            while missing and len(kept) < per_slice:
                kept.append(missing.pop(next(iter(missing))))
            if not kept and (len(filled) > 1 or group.endpoints):
                left[b""].append(current)  # nothing is in it any more, and another one will do
                continue
            desired = with_metadata(current, **metadata)
            if kept != (current.get("endpoints") or []):
                desired = {**desired, "endpoints": kept}
            if desired != current:
                update.append(desired)
        rest = list(missing.values())
        starts = range(0, len(rest), per_slice) if rest or filled else (0,)
        create += [
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "namespace": namespace_of(owner),
                    "generateName": f"{name_of(owner)}-",
                    "ownerReferences": [owner_reference(owner)],
                    **{key: value for key, value in metadata.items() if value},
                },
                "addressType": group.address_type,
                "ports": list(group.ports),
                "endpoints": rest[start : start + per_slice],
            }
            for start in starts
        ]
    surplus = tuple(each for slices in left.values() for each in slices if not is_ending(each))
    return Plan(create=tuple(create), update=tuple(update), delete=surplus)


def _slice_of(change: Change, manager: str) -> str:
    """Return the Service that a slice of this manager belongs to; empty for everything else."""
    labels = labels_of(change.latest)
    is_ours = change.kind == ENDPOINT_SLICE.name and labels.get(_SLICE_MANAGED_BY) == manager
    return labels.get(_SERVICE_NAME, "") if is_ours else ""


def _slices_of(mirror: Mirror, key: Key, manager: str) -> list[Object]:
    ours = {_SERVICE_NAME: key.name, _SLICE_MANAGED_BY: manager}.items()
    slices = mirror.in_namespace(ENDPOINT_SLICE, key.namespace)
    return [each for each in slices if ours <= labels_of(each).items()]


class EndpointSliceController:
    """The EndpointSlices of every Service with a selector."""

    name = "endpoint slices"
    batch_seconds = _BATCH_SECONDS

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def requests(self, change: Change) -> Iterable[Key]:
        """Return the Services whose slices may have to change."""
        yield from _services_concerned(self._mirror, change)
        if service := _slice_of(change, _SLICE_CONTROLLER):
            yield Key(SERVICE.name, namespace_of(change.latest), service)

    def plan(self, key: Key, now: float) -> Plan:
        """Write the slices of a Service; the garbage collector removes them with it."""
        del now
        service = self._mirror.find(key)
        if service is None or is_ending(service) or not _has_own_endpoints(service):
            return Plan()
        by_ports: defaultdict[bytes, list[Object]] = defaultdict(list)
        ports: dict[bytes, list[Object]] = {}
        for pod in _pods_of(self._mirror, service):
            its_ports = [{"name": "", **each} for each in _ports_to(service, pod)]
            identity = identity_of(its_ports)
            ports[identity] = its_ports
            by_ports[identity].append(self._endpoint(service, pod))
        groups: list[_Group] = []
        for family in find_at(service, "spec", "ipFamilies") or ["IPv4"]:
            of_family = [
                _Group(family, tuple(ports[identity]), tuple(endpoints))
                for identity, endpoints in by_ports.items()
                if family == "IPv4"  # pods of a simulated cluster have no other addresses
            ]
            # A Service without pods has one slice that says so.
            groups += of_family or [_Group(family, (), ())]
        reserved = (_HEADLESS, _SERVICE_NAME, _SLICE_MANAGED_BY)
        labels = {k: v for k, v in labels_of(service).items() if k not in reserved}
        labels |= {_SERVICE_NAME: name_of(service), _SLICE_MANAGED_BY: _SLICE_CONTROLLER}
        if _is_headless(service):
            labels[_HEADLESS] = ""
        existing = _slices_of(self._mirror, key, _SLICE_CONTROLLER)
        return _plan_slices(service, groups, existing, {"labels": labels}, _PER_SLICE)

    def _endpoint(self, service: Object, pod: Object) -> Object:
        is_serving = ready_since(pod) is not None
        is_ready = _publishes_unready(service) or (is_serving and not is_ending(pod))
        endpoint: Object = {
            "addresses": [find_at(pod, "status", "podIP")],
            "conditions": {
                "ready": is_ready,
                "serving": is_serving,
                "terminating": is_ending(pod),
            },
            "targetRef": _pod_reference(pod),
        }
        if node := find_at(pod, "spec", "nodeName"):
            endpoint["nodeName"] = node
            known = self._mirror.find(Key(NODE.name, "", str(node))) or {}
            if zone := labels_of(known).get("topology.kubernetes.io/zone"):
                endpoint["zone"] = zone
        if hostname := _hostname_for(service, pod):
            endpoint["hostname"] = hostname
        return endpoint


# -- slices of Endpoints made by hand ------------------------------------------------------------


class MirroringController:
    """EndpointSlices of the Endpoints that somebody wrote for a Service without a selector."""

    name = "endpoint slice mirroring"
    batch_seconds = _BATCH_SECONDS

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def requests(self, change: Change) -> Iterable[Key]:
        """Return the Endpoints that a change of them, of their Service or slices concerns."""
        name = _slice_of(change, _MIRRORING_CONTROLLER)
        if change.kind in (SERVICE.name, ENDPOINTS.name):
            name = name_of(change.latest)
        if name:
            yield Key(ENDPOINTS.name, namespace_of(change.latest), name)

    def plan(self, key: Key, now: float) -> Plan:
        """Write the slices of Endpoints, or remove them where they are not to be mirrored."""
        del now
        existing = _slices_of(self._mirror, key, _MIRRORING_CONTROLLER)
        endpoints = self._mirror.find(key)
        service = self._mirror.find(Key(SERVICE.name, key.namespace, key.name))
        if (
            endpoints is None
            or service is None
            or find_at(service, "spec", "selector")
            or labels_of(endpoints).get(_SKIP_MIRROR) == "true"
            or _LEADER in annotations_of(endpoints)
        ):
            return Plan(delete=tuple(each for each in existing if not is_ending(each)))
        annotations = {k: v for k, v in annotations_of(endpoints).items() if k not in _NOT_MIRRORED}
        labels = {
            **labels_of(endpoints),
            _SERVICE_NAME: key.name,
            _SLICE_MANAGED_BY: _MIRRORING_CONTROLLER,
        }
        metadata: Object = {"labels": labels}
        if annotations or any(annotations_of(each) for each in existing):
            metadata["annotations"] = annotations or None
        groups = list(_mirrored_groups(endpoints))
        if not groups:
            return Plan(delete=tuple(each for each in existing if not is_ending(each)))
        return _plan_slices(endpoints, groups, existing, metadata, _PER_SUBSET)


def _mirrored_groups(endpoints: Object) -> Iterator[_Group]:
    by_group: defaultdict[bytes, dict[bytes, Object]] = defaultdict(dict)
    kinds: dict[bytes, tuple[str, tuple[Object, ...]]] = {}
    for subset in endpoints.get("subsets") or ():
        ports = tuple({"name": "", **each} for each in subset.get("ports") or ())
        for field, is_ready in (("addresses", True), ("notReadyAddresses", False)):
            for address in subset.get(field) or ():
                try:
                    number = ipaddress.ip_address(str(address.get("ip")))
                except ValueError:
                    continue
                family = "IPv4" if number.version == 4 else "IPv6"
                endpoint: Object = {
                    "addresses": [str(number)],
                    "conditions": {"ready": is_ready},
                    **{
                        key: address[key]
                        for key in ("targetRef", "nodeName", "hostname")
                        if address.get(key)
                    },
                }
                group = _Group(family, ports, ())
                kinds[group.identity] = (family, ports)
                by_group[group.identity].setdefault(identity_of([str(number)]), endpoint)
    for identity, found in by_group.items():
        yield _Group(*kinds[identity], tuple(found.values())[:_PER_SUBSET])
