"""The rules of Services, and of the endpoints behind them: addresses that can be reached."""

import ipaddress
from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.formats import (
    address_problems,
    network_problems,
    port_or_name_problems,
    port_problems,
)
from clusterspace.builtins.validation.metadata import check_labels
from clusterspace.builtins.validation.rules import (
    at,
    chosen,
    duplicate_struct,
    if_set,
    immutable,
    of_form,
    problems_at,
    required,
    struct_in,
    structs_in,
    supported,
    texts_in,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import (
    dns1123_label_problems,
    dns1123_subdomain_problems,
    qualified_name_problems,
)
from clusterspace.kube.objects import Object

_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_ONLY_LOAD_BALANCERS: Final = "may only be used when `type` is 'LoadBalancer'"
_NOT_EXTERNAL_NAME: Final = "may not be set for ExternalName services"
_A_DAY: Final = 86400

_APP_PROTOCOL: Final = if_set("appProtocol", of_form("appProtocol", qualified_name_problems))


def check_service(service: Object) -> Iterator[Cause]:
    """Check a Service."""
    spec = struct_in(service, "spec")
    kind, is_headless = spec.get("type", ""), spec.get("clusterIP") == "None"
    if not spec.get("ports") and not is_headless and kind != "ExternalName":
        yield causes.required("spec.ports")
    if is_headless and kind in ("LoadBalancer", "NodePort"):
        why = f"may not be set to 'None' for {kind} services"
        yield causes.invalid("spec.clusterIPs[0]", "None", why)
    if kind == "ExternalName":
        for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            is_set = spec.get(field) not in (None, [])
            if is_set or (field == "clusterIPs" and spec.get("clusterIP")):
                yield causes.forbidden(f"spec.{field}", _NOT_EXTERNAL_NAME)
        name = str(spec.get("externalName") or "").removesuffix(".")
        if not name:
            yield causes.required("spec.externalName")
        else:
            yield from problems_at("spec.externalName", name, dns1123_subdomain_problems(name))
    yield from _check_ports(spec)
    yield from check_labels(struct_in(spec, "selector"), "spec.selector")
    yield from chosen("sessionAffinity", "ClientIP", "None")(spec, "spec")
    if spec.get("sessionAffinity") == "ClientIP":
        config = struct_in(struct_in(spec, "sessionAffinityConfig"), "clientIP")
        timeout = config.get("timeoutSeconds")
        if timeout is not None and not 0 < timeout <= _A_DAY:
            place = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            why = f"must be greater than 0 and less than {_A_DAY}"
            yield causes.invalid(place, timeout, why)
    yield from _check_addresses(spec)
    for index, address in enumerate(texts_in(spec, "externalIPs")):
        yield from check_endpoint_address(address, f"spec.externalIPs[{index}]")
    yield from chosen("type", *_TYPES)(spec, "spec")
    yield from _check_traffic(spec)


def _check_ports(spec: Object) -> Iterator[Cause]:
    ports = structs_in(spec, "ports")
    seen: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"spec.ports[{index}]", port.get("name", "")
        if not name and len(ports) > 1:
            yield causes.required(at(path, "name"))
        elif name:
            yield from problems_at(at(path, "name"), name, dns1123_label_problems(name))
            if name in seen:
                yield causes.duplicate(at(path, "name"), name)
            seen.add(name)
        number, target = port.get("port", 0), port.get("targetPort", 0)
        yield from problems_at(at(path, "port"), number, port_problems(number))
        yield from chosen("protocol", *_PROTOCOLS)(port, path)
        yield from problems_at(at(path, "targetPort"), target, port_or_name_problems(target))
        yield from _APP_PROTOCOL(port, path)


def _check_addresses(spec: Object) -> Iterator[Cause]:
    policies = ("PreferDualStack", "RequireDualStack", "SingleStack")
    if spec.get("type") == "ExternalName":
        return
    yield from supported("ipFamilyPolicy", *policies)(spec, "spec")
    families = texts_in(spec, "ipFamilies")
    for index, family in enumerate(families):
        if family in families[:index]:
            yield causes.duplicate(f"spec.ipFamilies[{index}]", family)
        if family not in ("IPv4", "IPv6"):
            yield causes.not_supported(f"spec.ipFamilies[{index}]", family, ("IPv4", "IPv6"))
    address, listed = spec.get("clusterIP", ""), texts_in(spec, "clusterIPs")
    if listed and not address:
        why = "must be empty when `clusterIP` is not specified"
        yield causes.invalid("spec.clusterIPs", listed, why)
    elif listed and listed[0] != address:
        why = "first value must match `clusterIP`"
        yield causes.invalid("spec.clusterIPs", listed, why)
    for index, each in enumerate(listed):
        if each != "None":
            yield from problems_at(f"spec.clusterIPs[{index}]", each, address_problems(each))


def _check_traffic(spec: Object) -> Iterator[Cause]:
    kind = spec.get("type")
    seen: set[tuple[object, object]] = set()
    on_nodes: set[tuple[object, object]] = set()
    for index, port in enumerate(structs_in(spec, "ports")):
        path, on_node = f"spec.ports[{index}]", port.get("nodePort", 0)
        if on_node and kind == "ClusterIP":
            why = "may not be used when `type` is 'ClusterIP'"
            yield causes.forbidden(at(path, "nodePort"), why)
        if on_node and (port.get("protocol"), on_node) in on_nodes:
            yield causes.duplicate(at(path, "nodePort"), on_node)
        on_nodes.add((port.get("protocol"), on_node))
        key = (port.get("protocol"), port.get("port"))
        if key in seen:
            # What must be unique, as the server's messages show it.
            protocol, number = key
            shown = {"Name": "", "Protocol": protocol, "AppProtocol": None, "Port": number}
            yield duplicate_struct(path, {**shown, "TargetPort": 0, "NodePort": 0})
        seen.add(key)

    is_balanced = kind == "LoadBalancer"
    ranges = texts_in(spec, "loadBalancerSourceRanges")
    if ranges and not is_balanced:
        yield causes.forbidden("spec.LoadBalancerSourceRanges", _ONLY_LOAD_BALANCERS)
    for index, text in enumerate(ranges):
        place = f"spec.LoadBalancerSourceRanges[{index}]"
        yield from problems_at(place, text, network_problems(text.strip()))
    for field in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
        if spec.get(field) is not None and not is_balanced:
            yield causes.forbidden(f"spec.{field}", _ONLY_LOAD_BALANCERS)

    external = spec.get("externalTrafficPolicy")
    is_external = kind in ("LoadBalancer", "NodePort") or (
        kind == "ClusterIP" and bool(spec.get("externalIPs"))
    )
    if external and not is_external:
        why = "may only be set for externally-accessible services"
        yield causes.invalid("spec.externalTrafficPolicy", external, why)
    elif external:
        yield from supported("externalTrafficPolicy", "Cluster", "Local")(spec, "spec")
    yield from supported("internalTrafficPolicy", "Cluster", "Local")(spec, "spec")
    checked = spec.get("healthCheckNodePort", 0)
    if checked and (kind, external) != ("LoadBalancer", "Local"):
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield causes.invalid("spec.healthCheckNodePort", checked, why)
    near = ("PreferClose", "PreferSameZone", "PreferSameNode")
    yield from supported("trafficDistribution", *near)(spec, "spec")


def check_service_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a service keeps the address it was given."""
    spec, existing = struct_in(new, "spec"), struct_in(old, "spec")
    if "ExternalName" in (spec.get("type"), existing.get("type")):
        return
    wanted, before = spec.get("clusterIP"), existing.get("clusterIP")
    if before and wanted != before:
        why = "may not change once set"
        yield causes.invalid("spec.clusterIPs[0]", [wanted], why)


_ADDRESS_TYPES: Final = ("FQDN", "IPv4", "IPv6")
_MOST_ENDPOINTS: Final = 1000
_MOST_ADDRESSES: Final = 100


def check_endpoint_address(text: str, path: str) -> Iterator[Cause]:
    """Check an address that traffic is to be sent to."""
    problems = address_problems(text)
    yield from problems_at(path, text, problems)
    if not problems:
        yield from problems_at(path, text, _unusable(text))


def _unusable(text: str) -> tuple[str, ...]:
    """Say why an address cannot be that of an endpoint."""
    address = ipaddress.ip_address(text)
    found = (
        (address.is_unspecified, f"may not be unspecified ({text})"),
        (address.is_loopback, "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (address.is_link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (
            address.is_multicast,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    )
    return tuple(why for is_so, why in found if is_so)


def check_endpoints(endpoints: Object) -> Iterator[Cause]:
    """Check Endpoints."""
    for index, subset in enumerate(structs_in(endpoints, "subsets")):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            yield causes.required(path, "must specify `addresses` or `notReadyAddresses`")
        for field in ("addresses", "notReadyAddresses"):
            for number, address in enumerate(structs_in(subset, field)):
                place = f"{path}.{field}[{number}]"
                text = address.get("ip", "")
                yield from problems_at(at(place, "ip"), text, address_problems(text))
                if host := address.get("hostname"):
                    yield from problems_at(
                        at(place, "hostname"), host, dns1123_label_problems(host)
                    )
                node = address.get("nodeName")
                if node is not None:
                    yield from problems_at(
                        at(place, "nodeName"), node, dns1123_subdomain_problems(node)
                    )
                if address_problems(text):
                    yield causes.invalid(at(place, "ip"), text, "must be a valid IP address")
                else:
                    yield from problems_at(at(place, "ip"), text, _unusable(text))
        ports = structs_in(subset, "ports")
        for number, port in enumerate(ports):
            place = f"{path}.ports[{number}]"
            if len(ports) > 1 and not port.get("name"):
                yield causes.required(at(place, "name"))
            elif name := port.get("name"):
                yield from problems_at(at(place, "name"), name, dns1123_label_problems(name))
            target = port.get("port", 0)
            yield from problems_at(at(place, "port"), target, port_problems(target))
            yield from chosen("protocol", *_PROTOCOLS)(port, place)
            yield from _APP_PROTOCOL(port, place)


def check_slice(endpoint_slice: Object) -> Iterator[Cause]:
    """Check an EndpointSlice."""
    kind = endpoint_slice.get("addressType", "")
    yield from chosen("addressType", *_ADDRESS_TYPES)(endpoint_slice, "")
    endpoints = structs_in(endpoint_slice, "endpoints")
    if len(endpoints) > _MOST_ENDPOINTS:
        yield causes.too_many("endpoints", len(endpoints), _MOST_ENDPOINTS)
        return
    for index, port in enumerate(structs_in(endpoint_slice, "ports")):
        path = f"ports[{index}]"
        if name := port.get("name"):
            yield from problems_at(at(path, "name"), name, dns1123_label_problems(name))
        yield from required("protocol")(port, path) if port.get("protocol") is None else ()
        yield from supported("protocol", *_PROTOCOLS)(port, path)
        yield from _APP_PROTOCOL(port, path)
    for index, endpoint in enumerate(endpoints):
        where = f"endpoints[{index}]"
        addresses, place = texts_in(endpoint, "addresses"), at(where, "addresses")
        if not addresses:
            yield causes.required(place, "must contain at least 1 address")
        elif len(addresses) > _MOST_ADDRESSES:
            yield causes.too_many(place, len(addresses), _MOST_ADDRESSES)
        for number, address in enumerate(addresses):
            if kind == "FQDN":
                problems = dns1123_subdomain_problems(address)
                if not problems and "." not in address:
                    problems = ("should be a domain with at least two segments separated by dots",)
                yield from problems_at(f"{place}[{number}]", address, problems)
            elif kind in _ADDRESS_TYPES:
                here = f"{place}[{number}]"
                version = 4 if kind == "IPv4" else 6
                if problems := address_problems(address):
                    yield from problems_at(here, address, problems)
                elif ipaddress.ip_address(address).version != version:
                    yield causes.invalid(here, address, f"must be an {kind} address")
                else:
                    yield from problems_at(here, address, _unusable(address))
        for field, form in (
            ("nodeName", dns1123_subdomain_problems),
            ("hostname", dns1123_label_problems),
        ):
            yield from if_set(field, of_form(field, form))(endpoint, where)


def check_slice_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a slice keeps its kind of address."""
    return immutable(new.get("addressType"), old.get("addressType"), "addressType")
