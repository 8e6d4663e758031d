"""The rules of Ingresses, NetworkPolicies and address ranges."""

import ipaddress
from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.formats import (
    check_domain_path,
    network_problems,
    port_or_name_problems,
    port_problems,
    wildcard_subdomain_problems,
)
from clusterspace.builtins.validation.metadata import SELECTOR, selector
from clusterspace.builtins.validation.rules import (
    at,
    check_all,
    if_set,
    immutable,
    of_form,
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
    dns1123_subdomain_problems,
    path_segment_problems,
)
from clusterspace.kube.objects import Object

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
            yield causes.required(at("spec.parameters", "namespace"), why)
        if scope == "Cluster" and namespace is not None:
            why = "`parameters.scope` is set to 'Cluster'"
            yield causes.forbidden(at("spec.parameters", "namespace"), why)


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
