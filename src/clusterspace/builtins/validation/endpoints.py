"""The rules of the endpoints behind Services: addresses that can be reached, and their ports."""

import ipaddress
from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.formats import (
    address_problems,
    port_problems,
)
from clusterspace.builtins.validation.rules import (
    at,
    chosen,
    if_set,
    immutable,
    of_form,
    problems_at,
    required,
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
_ADDRESS_TYPES: Final = ("FQDN", "IPv4", "IPv6")
_MOST_ENDPOINTS: Final = 1000
_MOST_ADDRESSES: Final = 100

_APP_PROTOCOL: Final = if_set("appProtocol", of_form("appProtocol", qualified_name_problems))


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
                yield from _check_endpoint(address, f"{path}.{field}[{number}]")
        yield from _check_endpoint_ports(subset, path)


def _check_endpoint(address: Object, path: str) -> Iterator[Cause]:
    text = address.get("ip", "")
    yield from problems_at(at(path, "ip"), text, address_problems(text))
    if host := address.get("hostname"):
        yield from problems_at(at(path, "hostname"), host, dns1123_label_problems(host))
    node = address.get("nodeName")
    if node is not None:
        yield from problems_at(at(path, "nodeName"), node, dns1123_subdomain_problems(node))
    if address_problems(text):
        yield causes.invalid(at(path, "ip"), text, "must be a valid IP address")
    else:
        yield from problems_at(at(path, "ip"), text, _unusable(text))


def _check_endpoint_ports(subset: Object, path: str) -> Iterator[Cause]:
    ports = structs_in(subset, "ports")
    for index, port in enumerate(ports):
        place = f"{path}.ports[{index}]"
        if len(ports) > 1 and not port.get("name"):
            yield causes.required(at(place, "name"))
        elif name := port.get("name"):
            yield from problems_at(at(place, "name"), name, dns1123_label_problems(name))
        number = port.get("port", 0)
        yield from problems_at(at(place, "port"), number, port_problems(number))
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
        yield from _check_slice_port(port, f"ports[{index}]")
    for index, endpoint in enumerate(endpoints):
        yield from _check_slice_endpoint(endpoint, kind, f"endpoints[{index}]")


def _check_slice_endpoint(endpoint: Object, kind: str, path: str) -> Iterator[Cause]:
    addresses, place = texts_in(endpoint, "addresses"), at(path, "addresses")
    if not addresses:
        yield causes.required(place, "must contain at least 1 address")
    elif len(addresses) > _MOST_ADDRESSES:
        yield causes.too_many(place, len(addresses), _MOST_ADDRESSES)
    for index, address in enumerate(addresses):
        if kind == "FQDN":
            problems = _domain_problems(address)
            yield from problems_at(f"{place}[{index}]", address, problems)
        elif kind in _ADDRESS_TYPES:
            yield from _check_slice_address(address, kind, f"{place}[{index}]")
    for field, form in (
        ("nodeName", dns1123_subdomain_problems),
        ("hostname", dns1123_label_problems),
    ):
        yield from if_set(field, of_form(field, form))(endpoint, path)


def _domain_problems(name: str) -> tuple[str, ...]:
    problems = dns1123_subdomain_problems(name)
    if problems or "." in name:
        return problems
    return ("should be a domain with at least two segments separated by dots",)


def _check_slice_address(address: str, kind: str, path: str) -> Iterator[Cause]:
    version = 4 if kind == "IPv4" else 6
    if problems := address_problems(address):
        yield from problems_at(path, address, problems)
    elif ipaddress.ip_address(address).version != version:
        yield causes.invalid(path, address, f"must be an {kind} address")
    else:
        yield from problems_at(path, address, _unusable(address))


def _check_slice_port(port: Object, path: str) -> Iterator[Cause]:
    if name := port.get("name"):
        yield from problems_at(at(path, "name"), name, dns1123_label_problems(name))
    yield from required("protocol")(port, path) if port.get("protocol") is None else ()
    yield from supported("protocol", *_PROTOCOLS)(port, path)
    yield from _APP_PROTOCOL(port, path)


def check_slice_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a slice keeps its kind of address."""
    return immutable(new.get("addressType"), old.get("addressType"), "addressType")
