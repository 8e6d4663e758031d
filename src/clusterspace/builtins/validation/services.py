"""The rules of Services: their ports, addresses and traffic."""

from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.endpoints import check_endpoint_address
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
    of_form,
    problems_at,
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
        yield from _check_external_name(spec)
    yield from _check_ports(spec)
    yield from check_labels(struct_in(spec, "selector"), "spec.selector")
    yield from chosen("sessionAffinity", "ClientIP", "None")(spec, "spec")
    yield from _check_affinity(spec)
    yield from _check_addresses(spec)
    for index, address in enumerate(texts_in(spec, "externalIPs")):
        yield from check_endpoint_address(address, f"spec.externalIPs[{index}]")
    yield from chosen("type", *_TYPES)(spec, "spec")
    yield from _check_port_use(spec)
    yield from _check_load_balancer(spec)
    yield from _check_traffic(spec)


def _check_external_name(spec: Object) -> Iterator[Cause]:
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        is_set = spec.get(field) not in (None, [])
        if is_set or (field == "clusterIPs" and spec.get("clusterIP")):
            yield causes.forbidden(f"spec.{field}", _NOT_EXTERNAL_NAME)
    name = str(spec.get("externalName") or "").removesuffix(".")
    if not name:
        yield causes.required("spec.externalName")
    else:
        yield from problems_at("spec.externalName", name, dns1123_subdomain_problems(name))


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


def _check_affinity(spec: Object) -> Iterator[Cause]:
    config = spec.get("sessionAffinityConfig")
    if spec.get("sessionAffinity") != "ClientIP":
        return
    timeout = struct_in(config or {}, "clientIP").get("timeoutSeconds")
    place = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
    if timeout is not None and not 0 < timeout <= _A_DAY:
        why = f"must be greater than 0 and less than {_A_DAY}"
        yield causes.invalid(place, timeout, why)


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


def _check_port_use(spec: Object) -> Iterator[Cause]:
    seen: set[tuple[object, object]] = set()
    on_nodes: set[tuple[object, object]] = set()
    for index, port in enumerate(structs_in(spec, "ports")):
        path, on_node = f"spec.ports[{index}]", port.get("nodePort", 0)
        if on_node and spec.get("type") == "ClusterIP":
            why = "may not be used when `type` is 'ClusterIP'"
            yield causes.forbidden(at(path, "nodePort"), why)
        if on_node and (port.get("protocol"), on_node) in on_nodes:
            yield causes.duplicate(at(path, "nodePort"), on_node)
        on_nodes.add((port.get("protocol"), on_node))
        key = (port.get("protocol"), port.get("port"))
        if key in seen:
            yield duplicate_struct(path, _port_form(port))
        seen.add(key)


def _port_form(port: Object) -> Object:
    """Return the part of a port that must be unique, as the server's messages show it."""
    return {
        "Name": "",
        "Protocol": port.get("protocol"),
        "AppProtocol": None,
        "Port": port.get("port"),
        "TargetPort": 0,
        "NodePort": 0,
    }


def _check_load_balancer(spec: Object) -> Iterator[Cause]:
    is_balanced = spec.get("type") == "LoadBalancer"
    ranges = texts_in(spec, "loadBalancerSourceRanges")
    if ranges and not is_balanced:
        yield causes.forbidden("spec.LoadBalancerSourceRanges", _ONLY_LOAD_BALANCERS)
    for index, text in enumerate(ranges):
        place = f"spec.LoadBalancerSourceRanges[{index}]"
        yield from problems_at(place, text, network_problems(text.strip()))
    for field in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
        if spec.get(field) is not None and not is_balanced:
            yield causes.forbidden(f"spec.{field}", _ONLY_LOAD_BALANCERS)


def _check_traffic(spec: Object) -> Iterator[Cause]:
    external, kind = spec.get("externalTrafficPolicy"), spec.get("type")
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
    spec, held = struct_in(new, "spec"), struct_in(old, "spec")
    if "ExternalName" in (spec.get("type"), held.get("type")):
        return
    wanted, before = spec.get("clusterIP"), held.get("clusterIP")
    if before and wanted != before:
        why = "may not change once set"
        yield causes.invalid("spec.clusterIPs[0]", [wanted], why)
