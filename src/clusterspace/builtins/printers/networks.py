"""Services and what is behind them, ingresses, policies between pods, addresses."""

from collections.abc import Callable
from typing import Final

from clusterspace.builtins.printers.cells import (
    AGE,
    NAME,
    NONE,
    UNSET,
    items_at,
    joined,
    labels_text,
    printer,
    selector_text,
    shortened,
    shown,
    text,
    texts_at,
    wide,
)
from clusterspace.kube.objects import Object, find_at


def _balancer_addresses(kube_object: Object) -> list[str]:
    ingress = items_at(kube_object, "status", "loadBalancer", "ingress")
    return sorted({str(each.get("ip") or each.get("hostname") or "") for each in ingress} - {""})


def _external_address(service: Object) -> str:
    extra = texts_at(service, "spec", "externalIPs")
    match find_at(service, "spec", "type"):
        case "ExternalName":
            return str(find_at(service, "spec", "externalName") or "")
        case "LoadBalancer":
            return joined([*_balancer_addresses(service), *extra], "<pending>")
        case _:
            return joined(extra)


def _service_ports(service: Object) -> str:
    listed: list[str] = []
    for port in items_at(service, "spec", "ports"):
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        listed.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    return joined(listed)


SERVICES: Final = printer(
    NAME,
    text("Type", "spec", "type"),
    text("Cluster-IP", "spec", "clusterIP", when_absent=NONE),
    shown("External-IP", _external_address),
    shown("Port(s)", _service_ports),
    AGE,
    wide("Selector", lambda item: labels_text(find_at(item, "spec", "selector"))),
)


def _endpoints(endpoints: Object) -> str:
    subsets = items_at(endpoints, "subsets")
    listed: list[str] = []
    for subset in subsets:
        addresses = [str(each.get("ip")) for each in items_at(subset, "addresses")]
        ports = [each.get("port") for each in items_at(subset, "ports")]
        listed += [
            f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
            for port in ports
            for address in addresses
        ]
        listed += [] if ports else addresses
    return shortened(listed, when_empty="") if subsets else NONE


ENDPOINTS: Final = printer(NAME, shown("Endpoints", _endpoints), AGE)


def _slice_ports(endpoint_slice: Object) -> str:
    ports = items_at(endpoint_slice, "ports")
    return shortened([str(port.get("port") or port.get("name") or "") for port in ports], UNSET)


def _slice_addresses(endpoint_slice: Object) -> str:
    endpoints = items_at(endpoint_slice, "endpoints")
    listed = [address for each in endpoints for address in texts_at(each, "addresses")]
    return shortened(listed, UNSET)


ENDPOINT_SLICES: Final = printer(
    NAME,
    text("AddressType", "addressType"),
    shown("Ports", _slice_ports),
    shown("Endpoints", _slice_addresses),
    AGE,
)


INGRESSES: Final = printer(
    NAME,
    text("Class", "spec", "ingressClassName", when_absent=NONE),
    shown(
        "Hosts",
        lambda ingress: shortened(
            [str(rule["host"]) for rule in items_at(ingress, "spec", "rules") if rule.get("host")],
            when_empty="*",
        ),
    ),
    shown("Address", lambda item: ",".join(_balancer_addresses(item))),
    shown("Ports", lambda item: "80, 443" if find_at(item, "spec", "tls") else "80"),
    AGE,
)


def _reference(kind_field: str, group_field: str) -> Callable[[Object], str]:
    def read(reference: Object) -> str:
        group = reference.get(group_field)
        kind = reference.get(kind_field, "")
        return f"{kind}.{group}" if group else str(kind)

    return read


def _parameters(ingress_class: Object) -> str:
    parameters: Object | None = find_at(ingress_class, "spec", "parameters")
    if parameters is None:
        return NONE
    return f"{_reference('kind', 'apiGroup')(parameters)}/{parameters.get('name')}"


INGRESS_CLASSES: Final = printer(
    NAME, text("Controller", "spec", "controller"), shown("Parameters", _parameters), AGE
)

NETWORK_POLICIES: Final = printer(
    NAME,
    shown("Pod-Selector", lambda item: selector_text(find_at(item, "spec", "podSelector") or {})),
    AGE,
)


def _parent(address: Object) -> str:
    parent: Object = find_at(address, "spec", "parentRef") or {}
    path = (_reference("resource", "group")(parent), parent.get("namespace"), parent.get("name"))
    return "/".join(str(step) for step in path if step)


IP_ADDRESSES: Final = printer(NAME, shown("ParentRef", _parent), AGE)

SERVICE_CIDRS: Final = printer(
    NAME, shown("CIDRs", lambda item: ",".join(texts_at(item, "spec", "cidrs"))), AGE
)
