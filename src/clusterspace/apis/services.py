"""Services between clusters: who exports one, what may be exported of it, who imports it. Pure.

    Work with a ServiceExport or MultiClusterService   an order to report the Service's endpoints
    status of that Work                                the report: EndpointSlices of one cluster
    EndpointSlice `imported-CLUSTER-NAME` on the hub   what a ServiceExport's reports become
    EndpointSlice `CLUSTER-NAME` on a consumer         what a MultiClusterService's reports become

A report comes from a member, which may mean harm: it says addresses and ports, and nothing else.
Whose Service it is, in which namespace and from which cluster, is said by the Work it is about.
Names, labels and annotations are Karmada's, letter for letter.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.apis.clusters import cluster_name_causes
from clusterspace.apis.stamps import short_hash
from clusterspace.apis.works import (
    EXPORT_GROUP,
    REPORTED_ENDPOINTS,
    identifier_of,
    manifests_of,
)
from clusterspace.builtins.validation.formats import port_problems
from clusterspace.builtins.validation.networking import check_ingress
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import (
    dns1035_label_problems,
    dns1123_label_problems,
    dns1123_subdomain_problems,
    label_value_problems,
    qualified_name_problems,
)
from clusterspace.kube.objects import Object, find_at, labels_of, name_of
from clusterspace.kube.resources import GroupVersionResource

SERVICE_IMPORT: Final = "ServiceImport"
SERVICE_IMPORTS: Final = GroupVersionResource(EXPORT_GROUP, "v1alpha1", "serviceimports")

GROUP: Final = "networking.karmada.io"
MULTI_CLUSTER_INGRESS: Final = "MultiClusterIngress"
MULTI_CLUSTER_SERVICES: Final = GroupVersionResource(GROUP, "v1alpha1", "multiclusterservices")

SERVICES: Final = GroupVersionResource("", "v1", "services")
ENDPOINT_SLICES: Final = GroupVersionResource("discovery.k8s.io", "v1", "endpointslices")
SLICE_API_VERSION: Final = "discovery.k8s.io/v1"
ENDPOINT_SLICE: Final = "EndpointSlice"

SERVICE_NAME: Final = "kubernetes.io/service-name"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
IMPORTER: Final = "endpointslice-controller.karmada.io"
DISPATCHER: Final = "endpointslice-dispatch-controller.karmada.io"
"""Who manages slices that came from another cluster: those are never exported again."""

PROVISION_CLUSTER: Final = "endpointslice.karmada.io/provision-cluster"
MCS_ID: Final = "multiclusterservice.karmada.io/permanent-id"
MCS_NAMESPACE: Final = "multiclusterservice.karmada.io/namespace"
MCS_NAME: Final = "multiclusterservice.karmada.io/name"
MCS_FINALIZER: Final = "karmada.io/multiclusterservice-controller"

IMPORTED_PREFIX: Final = "imported-"
DERIVED_PREFIX: Final = "derived-"

_LONGEST_NAME: Final = 253

# -- an order, and the report on it --------------------------------------------------------------


def is_passed_on(endpoint_slice: Object) -> bool:
    """Whether a slice came from another cluster by our own hands."""
    return labels_of(endpoint_slice).get(MANAGED_BY) in (IMPORTER, DISPATCHER)


def find_report(work: Object) -> "Endpoints | None":
    """Return what a cluster reported of the Service it exports; None when it has said nothing.

    None is no answer: what was known stays known.
    """
    manifests = manifests_of(work)
    if len(manifests) != 1:
        return None
    expected = identifier_of(manifests[0], 0)
    listed = cast("list[Any]", find_at(work, "status", "manifestStatuses") or [])
    for entry in listed:
        if isinstance(entry, dict) and cast("Object", entry).get("identifier") == expected:
            reported = find_at(entry, "status", REPORTED_ENDPOINTS)
            return read_endpoints(cast("list[Any]", reported)) if _is_list(reported) else None
    return None


# -- what may be exported -------------------------------------------------------------------------

MOST_SLICES: Final = 100
MOST_ENDPOINTS: Final = 1000
"""Of one Service in one cluster: as much as one slice of Kubernetes' may have at most. A report is
in the status of one Work, and goes to every cluster that imports."""

_MOST_ADDRESSES: Final = 100
_MOST_PORTS: Final = 100
_FAMILIES: Final = {"IPv4": 4, "IPv6": 6}
_PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
_METADATA_SERVICES: Final = frozenset(
    ipaddress.ip_address(each)
    for each in ("fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
)
"""Where clouds tell machines who they are, outside of the link-local range."""
_NOWHERE: Final = tuple(
    map(ipaddress.ip_network, ("0.0.0.0/8", "2001::/32", "2002::/16", "fec0::/10"))
)
"""This network, and ways to write an IPv4 address, or one of the site, as an IPv6 address."""
_CONDITIONS: Final = ("ready", "serving", "terminating")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The slices of one Service in one cluster, and how many endpoints were left out."""

    slices: tuple[Object, ...] = ()
    """Each with name, addressType, endpoints and ports."""
    left_out: int = 0


def read_endpoints(listed: Sequence[Any]) -> Endpoints:
    """Read slices that a member told of, as far as they make sense and are not too many.

    Left out are addresses that mean the reader's own machine or network (loopback, link-local and
    so every metadata service, multicast, unspecified), names instead of addresses, nodes and pods
    of the other cluster, and what is beyond the bounds.
    """
    kept: dict[str, Object] = {}
    left_out, room = 0, MOST_ENDPOINTS
    for each in listed:
        found = _read_slice(each)
        if found is None or found[0]["name"] in kept or len(kept) >= MOST_SLICES:
            left_out += 1 if found is None else len(found[0]["endpoints"]) + found[1]
            continue
        clean, dropped = found
        endpoints = cast("list[Object]", clean["endpoints"])
        left_out += dropped + max(0, len(endpoints) - room)
        kept[str(clean["name"])] = {**clean, "endpoints": endpoints[:room]}
        room -= min(room, len(endpoints))
    return Endpoints(tuple(kept[name] for name in sorted(kept)), left_out)


def _read_slice(reported: Any) -> tuple[Object, int] | None:
    """Return a slice and how many of its endpoints make no sense; None when nothing of it does."""
    if not isinstance(reported, dict):
        return None
    slice_ = cast("Object", reported)
    name = slice_.get("name") or find_at(slice_, "metadata", "name")
    family = slice_.get("addressType")
    if not isinstance(name, str) or dns1123_subdomain_problems(name):
        return None
    if not isinstance(family, str) or family not in _FAMILIES:
        return None
    ports: dict[str, Object] = {}
    for port in map(_read_port, _dicts(slice_.get("ports"))[:_MOST_PORTS]):
        if port is not None:
            ports.setdefault(str(port["name"]), port)  # of two with one name no slice may consist
    reported_endpoints = _dicts(slice_.get("endpoints"))
    endpoints = [
        clean
        for each in reported_endpoints
        if (clean := _read_endpoint(each, _FAMILIES[family])) is not None
    ]
    clean_slice: Object = {"name": name, "addressType": family, "endpoints": endpoints}
    return {**clean_slice, "ports": [*ports.values()]}, len(reported_endpoints) - len(endpoints)


def _read_port(port: Object) -> Object | None:
    number, name = port.get("port"), port.get("name") or ""
    protocol = port.get("protocol") or "TCP"
    if not isinstance(number, int) or isinstance(number, bool) or port_problems(number):
        return None
    if protocol not in _PROTOCOLS:
        return None
    if not isinstance(name, str) or (name and dns1123_label_problems(name)):
        return None
    clean: Object = {"name": name, "port": number, "protocol": protocol}
    spoken = port.get("appProtocol")
    if isinstance(spoken, str) and not qualified_name_problems(spoken):
        clean["appProtocol"] = spoken
    return clean


def _read_endpoint(endpoint: Object, version: int) -> Object | None:
    reported = endpoint.get("addresses")
    if not _is_list(reported):
        return None
    addresses = [
        each
        for each in cast("list[Any]", reported)[:_MOST_ADDRESSES]
        if may_be_endpoint(each, version)
    ]
    if not addresses:
        return None
    clean: Object = {"addresses": addresses}
    conditions = {key: find_at(endpoint, "conditions", key) for key in _CONDITIONS}
    stated = {key: each for key, each in conditions.items() if isinstance(each, bool)}
    if stated:
        clean["conditions"] = stated
    hostname, zone = endpoint.get("hostname"), endpoint.get("zone")
    if isinstance(hostname, str) and hostname and not dns1123_label_problems(hostname):
        clean["hostname"] = hostname
    if isinstance(zone, str) and zone and not label_value_problems(zone):
        clean["zone"] = zone
    return clean


def may_be_endpoint(address: Any, version: int) -> bool:
    """Whether traffic of another cluster may be sent to an address."""
    if not isinstance(address, str):
        return False
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    # An IPv4 address in the dress of an IPv6 one, or with a scope, means what it is underneath.
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    is_local = (
        parsed.is_loopback
        or parsed.is_link_local
        or parsed.is_multicast
        or parsed.is_unspecified
        or parsed.is_reserved
        or parsed in _METADATA_SERVICES
        or any(parsed in each for each in _NOWHERE)
    )
    return parsed.version == version and not is_local and mapped is None and "%" not in address


def _dicts(listed: Any) -> list[Object]:
    if not _is_list(listed):
        return []
    return [cast("Object", each) for each in cast("list[Any]", listed) if isinstance(each, dict)]


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


# -- names ----------------------------------------------------------------------------------------


def derived_service_name(service: str) -> str:
    """Return what the Service of a ServiceImport is called."""
    return DERIVED_PREFIX + service


def imported_slice_names(cluster: str, slice_name: str) -> tuple[str, str]:
    """Return what a collected slice is called, and what when that name is another's.

    `imported-a-b-x` may be of cluster `a-b` or of cluster `a`: the second name tells them apart.
    """
    return _two_names(f"{IMPORTED_PREFIX}{cluster}-{slice_name}", cluster, slice_name)


def dispatched_slice_names(cluster: str, slice_name: str) -> tuple[str, str]:
    """Return what a slice is called on consumers, and what when that name is another's."""
    return _two_names(f"{cluster}-{slice_name}", cluster, slice_name)


def _two_names(name: str, cluster: str, slice_name: str) -> tuple[str, str]:
    suffix = f"-{short_hash(f'{cluster}/{slice_name}')}"
    short = name[: _LONGEST_NAME - len(suffix)].rstrip("-.") + suffix
    return (name if len(name) <= _LONGEST_NAME else short), short


# -- MultiClusterService --------------------------------------------------------------------------

CROSS_CLUSTER: Final = "CrossCluster"
LOAD_BALANCER: Final = "LoadBalancer"
TYPES: Final = (CROSS_CLUSTER, LOAD_BALANCER)

_TYPES: Final = "spec.types"


def is_cross_cluster(service: Object) -> bool:
    """Whether a MultiClusterService wants its endpoints in other clusters."""
    return CROSS_CLUSTER in (find_at(service, "spec", "types") or ())


def providers_of(service: Object, everywhere: Iterable[str]) -> frozenset[str]:
    """Return the clusters whose endpoints count: those it names, by the newest field, or all."""
    return _clusters_at(service, "providerClusters", "serviceProvisionClusters", everywhere)


def consumers_of(service: Object, everywhere: Iterable[str]) -> frozenset[str]:
    """Return the clusters that are to reach the Service: those it names, or all."""
    return _clusters_at(service, "consumerClusters", "serviceConsumptionClusters", everywhere)


def _clusters_at(
    service: Object, field: str, older: str, everywhere: Iterable[str]
) -> frozenset[str]:
    named = [each.get("name") for each in _dicts(find_at(service, "spec", field))]
    # Deprecated, and still in the schema: what is stored counts.
    named = named or find_at(service, "spec", older)
    named = named or find_at(service, "spec", "range", "clusterNames")
    return frozenset(str(each) for each in named) if named else frozenset(everywhere)


def exposed_ports(service: Object, template: Object) -> frozenset[str] | None:
    """Return the names of the ports that others may reach; None for all of them."""
    listed = _dicts(find_at(service, "spec", "ports"))
    if not listed:
        return None
    names = {
        each.get("port"): str(each.get("name") or "")
        for each in _dicts(find_at(template, "spec", "ports"))
    }
    return frozenset(str(each.get("name") or names.get(each.get("port"), "")) for each in listed)


def multi_cluster_service_causes(service: Object, old: Object | None) -> Iterator[Cause]:
    """Check a MultiClusterService."""
    name = name_of(service)
    for why in dns1035_label_problems(name):
        yield causes.invalid("metadata.name", name, why)
    types = cast("list[str]", find_at(service, "spec", "types") or [])
    if old is not None and types != (find_at(old, "spec", "types") or []):
        yield causes.invalid(_TYPES, types, "MultiClusterService types are immutable")
    if not types:
        yield causes.required(_TYPES, f"one of {', '.join(TYPES)}")
    for index, each in enumerate(types):
        if each not in TYPES:
            yield causes.not_supported(f"{_TYPES}[{index}]", each, TYPES)
    if len(set(types)) > 1:
        why = "MultiClusterService types should not contain more than one type"
        yield causes.invalid(_TYPES, types, why)
    yield from _port_causes(service)
    for field in ("providerClusters", "consumerClusters"):
        for index, each in enumerate(_dicts(find_at(service, "spec", field))):
            yield from _name_causes(f"spec.{field}[{index}].name", str(each.get("name") or ""))
    older = (
        ("serviceProvisionClusters",),
        ("serviceConsumptionClusters",),
        ("range", "clusterNames"),
    )
    for path in older:
        for index, each in enumerate(find_at(service, "spec", *path) or ()):
            yield from _name_causes(f"spec.{'.'.join(path)}[{index}]", str(each))


def _port_causes(service: Object) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, port in enumerate(_dicts(find_at(service, "spec", "ports"))):
        place, port_name = f"spec.ports[{index}]", str(port.get("name") or "")
        for why in dns1123_label_problems(port_name) if port_name else ():
            yield causes.invalid(f"{place}.name", port_name, why)
        if port_name in seen and port_name:
            yield causes.duplicate(f"{place}.name", port_name)
        seen.add(port_name)
        for why in port_problems(int(port.get("port") or 0)):
            yield causes.invalid(f"{place}.port", port.get("port"), why)


def _name_causes(place: str, name: str) -> Iterator[Cause]:
    for cause in cluster_name_causes(name):
        yield Cause(cause.reason, cause.message, place)


def multi_cluster_ingress_causes(ingress: Object, _old: Object | None) -> Iterator[Cause]:
    """Check a MultiClusterIngress: its spec is an Ingress's."""
    yield from check_ingress(ingress)
