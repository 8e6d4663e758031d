"""The rules of traffic: Services and endpoints, Ingresses, NetworkPolicies, address ranges."""

import ipaddress
from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.formats import (
    address_problems,
    check_domain_path,
    network_problems,
    port_or_name_problems,
    port_problems,
    wildcard_subdomain_problems,
)
from clusterspace.builtins.validation.metadata import SELECTOR, check_labels, selector
from clusterspace.builtins.validation.rules import (
    at,
    check_all,
    chosen,
    duplicate_struct,
    if_set,
    immutable,
    of_form,
    present,
    problems_at,
    required,
    struct_in,
    structs_in,
    supported,
    texts_in,
    well_formed,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import (
    Problems,
    dns1035_label_problems,
    dns1123_label_problems,
    dns1123_subdomain_problems,
    path_segment_problems,
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
        yield from present("protocol")(port, path)
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
                here, version = f"{place}[{number}]", 4 if kind == "IPv4" else 6
                is_address = not address_problems(address)
                if is_address and ipaddress.ip_address(address).version != version:
                    yield causes.invalid(here, address, f"must be an {kind} address")
                else:
                    yield from check_endpoint_address(address, here)
        for field, form in (
            ("nodeName", dns1123_subdomain_problems),
            ("hostname", dns1123_label_problems),
        ):
            yield from if_set(field, of_form(field, form))(endpoint, where)


def check_slice_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a slice keeps its kind of address."""
    return immutable(new.get("addressType"), old.get("addressType"), "addressType")


_PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
_BAD_IN_PATHS: Final = ("//", "/./", "/../", "%2f", "%2F")
_BAD_AT_END: Final = ("/..", "/.")


def check_ingress(ingress: Object) -> Iterator[Cause]:
    """Check an Ingress."""
    spec = struct_in(ingress, "spec")
    backend, rules = spec.get("defaultBackend"), structs_in(spec, "rules")
    if not rules and backend is None:
        why = "either `defaultBackend` or `rules` must be specified"
        yield causes.invalid("spec", spec.get("rules"), why)
    if backend is not None:
        yield from _check_backend(backend, "spec.defaultBackend")
    for index, rule in enumerate(rules):
        path, host, http = f"spec.rules[{index}]", rule.get("host", ""), rule.get("http")
        if host and _is_address(host):
            why = "must be a DNS name, not an IP address"
            yield causes.invalid(at(path, "host"), host, why)
        if host:
            yield from problems_at(at(path, "host"), host, _host_problems(host))
        if http is not None and not http.get("paths"):
            yield causes.required(f"{path}.http.paths")
        for number, path_rule in enumerate(structs_in(http or {}, "paths")):
            yield from _check_path(path_rule, f"{path}.http.paths[{number}]")
    for index, tls in enumerate(structs_in(spec, "tls")):
        for number, host in enumerate(texts_in(tls, "hosts")):
            place = f"spec.tls[{index}].hosts[{number}]"
            yield from problems_at(place, host, _host_problems(host))
        secret = well_formed("secretName", dns1123_subdomain_problems)
        yield from secret(tls, f"spec.tls[{index}]")
    name_form = of_form("ingressClassName", dns1123_subdomain_problems)
    yield from if_set("ingressClassName", name_form)(spec, "spec")


def _host_problems(host: str) -> Problems:
    if "*" in host:
        return wildcard_subdomain_problems(host)
    return dns1123_subdomain_problems(host)


def _check_path(path_rule: Object, path: str) -> Iterator[Cause]:
    kind, where, place = path_rule.get("pathType"), path_rule.get("path", ""), at(path, "path")
    if kind is None:
        yield causes.required(at(path, "pathType"), "pathType must be specified")
    elif kind in ("Exact", "Prefix"):
        if not where.startswith("/"):
            yield causes.invalid(place, where, "must be an absolute path")
        for text in _BAD_IN_PATHS:
            if text in where:
                yield causes.invalid(place, where, f"must not contain '{text}'")
        for text in _BAD_AT_END:
            if where.endswith(text):
                yield causes.invalid(place, where, f"cannot end with '{text}'")
    elif kind == "ImplementationSpecific":
        if where and not where.startswith("/"):
            yield causes.invalid(place, where, "must be an absolute path")
    else:
        yield causes.not_supported(at(path, "pathType"), kind, _PATH_TYPES)
    yield from _check_backend(struct_in(path_rule, "backend"), at(path, "backend"))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_backend(backend: Object, path: str) -> Iterator[Cause]:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        yield causes.invalid(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        yield from _check_resource(resource, at(path, "resource"))
    elif service is not None:
        place, name, port = at(path, "service"), service.get("name", ""), struct_in(service, "port")
        if not name:
            yield causes.required(at(place, "name"))
        else:
            yield from problems_at(at(place, "name"), name, dns1035_label_problems(name))
        if port.get("name") and port.get("number"):
            yield causes.invalid(path, "", "cannot set both port name & port number")
        elif port.get("name"):
            problems = port_or_name_problems(port["name"])
            yield from problems_at(f"{place}.port.name", port["name"], problems)
        elif port.get("number"):
            problems = port_problems(port["number"])
            yield from problems_at(f"{place}.port.number", port["number"], problems)
        else:
            yield causes.required(path, "port name or number is required")
    else:
        yield causes.invalid(path, "", "resource or service backend is required")


def _check_resource(resource: Object, path: str) -> Iterator[Cause]:
    group = resource.get("apiGroup")
    if group is not None:
        yield from problems_at(at(path, "apiGroup"), group, dns1123_subdomain_problems(group))
    for field in ("kind", "name"):
        name = resource.get(field)
        if not name:
            yield causes.required(at(path, field))
        else:
            yield from problems_at(at(path, field), name, path_segment_problems(name))


def check_ingress_class(ingress_class: Object) -> Iterator[Cause]:
    """Check an IngressClass."""
    spec = struct_in(ingress_class, "spec")
    yield from check_domain_path(spec.get("controller", ""), "spec.controller")
    parameters = spec.get("parameters")
    if parameters is not None:
        yield from _check_resource(parameters, "spec.parameters")
        scope, namespace = parameters.get("scope"), parameters.get("namespace")
        yield from supported("scope", "Cluster", "Namespace")(parameters, "spec.parameters")
        if scope == "Namespace" and not namespace:
            why = "`parameters.scope` is set to 'Namespace'"
            yield causes.required("spec.parameters.namespace", why)
        if scope == "Cluster" and namespace is not None:
            why = "`parameters.scope` is set to 'Cluster'"
            yield causes.forbidden("spec.parameters.namespace", why)


def check_ingress_class_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that an IngressClass keeps its controller."""
    controller = struct_in(new, "spec").get("controller")
    return immutable(controller, struct_in(old, "spec").get("controller"), "spec.controller")


def check_network_policy(policy: Object) -> Iterator[Cause]:
    """Check a NetworkPolicy."""
    spec = struct_in(policy, "spec")
    yield from check_all(struct_in(spec, "podSelector"), "spec.podSelector", SELECTOR)
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(structs_in(spec, direction)):
            path = f"spec.{direction}[{index}]"
            for number, port in enumerate(structs_in(rule, "ports")):
                yield from _check_policy_port(port, f"{path}.ports[{number}]")
            for number, peer in enumerate(structs_in(rule, peers)):
                yield from _check_peer(peer, f"{path}.{peers}[{number}]")
    for index, kind in enumerate(texts_in(spec, "policyTypes")):
        if kind not in ("Ingress", "Egress"):
            place = f"spec.policyTypes[{index}]"
            yield causes.not_supported(place, kind, ("Ingress", "Egress"))


def _check_peer(peer: Object, path: str) -> Iterator[Cause]:
    yield from selector("podSelector")(peer, path)
    yield from selector("namespaceSelector")(peer, path)
    block, place = peer.get("ipBlock"), at(path, "ipBlock")
    if block is not None:
        network = str(block.get("cidr") or "")
        if not network:
            yield causes.required(at(place, "cidr"))
        else:
            problems = network_problems(network)
            yield from problems_at(at(place, "cidr"), network, problems)
            for index, text in enumerate(texts_in(block, "except")):
                here, own_problems = f"{place}.except[{index}]", network_problems(text)
                yield from problems_at(here, text, own_problems)
                if not problems and not own_problems and not _is_within(text, network):
                    yield causes.invalid(here, text, "must be a strict subset of `cidr`")
    selects = any(peer.get(each) is not None for each in ("podSelector", "namespaceSelector"))
    if block is None and not selects:
        yield causes.required(path, "must specify a peer")
    elif block is not None and selects:
        yield causes.forbidden(path, "may not specify both ipBlock and another peer")


def _check_policy_port(port: Object, path: str) -> Iterator[Cause]:
    yield from supported("protocol", "TCP", "UDP", "SCTP")(port, path)
    number, last = port.get("port"), port.get("endPort")
    if number is None:
        if last is not None:
            why = "may not be specified when `port` is not specified"
            yield causes.invalid(at(path, "endPort"), last, why)
        return
    if isinstance(number, int):
        yield from problems_at(at(path, "port"), number, port_problems(number))
        if last is not None and last < number:
            why = "must be greater than or equal to `port`"
            yield causes.invalid(at(path, "endPort"), number, why)
        if last is not None:
            yield from problems_at(at(path, "endPort"), last, port_problems(last))
        return
    if last is not None:
        why = "may not be specified when `port` is non-numeric"
        yield causes.invalid(at(path, "endPort"), last, why)
    yield from problems_at(at(path, "port"), number, port_or_name_problems(number))


def _is_within(inner: str, outer: str) -> bool:
    smaller = ipaddress.ip_network(inner, strict=False)
    larger = ipaddress.ip_network(outer, strict=False)
    if smaller.version != larger.version or smaller.prefixlen <= larger.prefixlen:
        return False
    return larger.supernet_of(smaller)  # pyright: ignore[reportArgumentType]


def address_name_problems(name: str) -> Problems:
    """Check the name of an IPAddress, which is the address in its canonical form."""
    if not _is_address(name):
        return ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)
    canonical = str(ipaddress.ip_address(name))
    return () if canonical == name else (f'must be in canonical form ("{canonical}")',)


def check_address(address: Object) -> Iterator[Cause]:
    """Check an IPAddress."""
    parent = struct_in(address, "spec").get("parentRef")
    if parent is None:
        yield causes.required("spec.parentRef")
        return
    yield from well_formed("group", dns1123_subdomain_problems)(parent, "spec.parentRef")
    for field in ("resource", "name"):
        yield from required(field)(parent, "spec.parentRef")


def check_service_range(service_range: Object) -> Iterator[Cause]:
    """Check a ServiceCIDR."""
    ranges = texts_in(struct_in(service_range, "spec"), "cidrs")
    if not ranges:
        yield causes.required("spec.cidrs", "at least one CIDR required")
    for index, text in enumerate(ranges):
        yield from problems_at(f"spec.cidrs[{index}]", text, network_problems(text))


def check_service_range_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a range of service addresses stays."""
    wanted, existing = struct_in(new, "spec").get("cidrs"), struct_in(old, "spec").get("cidrs")
    return immutable(wanted, existing, "spec.cidrs")
