"""Defaults of what carries traffic: Services, endpoints, Ingresses and NetworkPolicies."""

from typing import Any, Final, cast

from clusterspace.builtins.defaults.rules import Rules, missing, part_of, with_missing, within
from clusterspace.kube.objects import Object

_CORE: Final = "io.k8s.api.core.v1"
_DISCOVERY: Final = "io.k8s.api.discovery.v1"
_NETWORKING: Final = "io.k8s.api.networking.v1"

_THREE_HOURS: Final = 10800


def _service(service: Object) -> Object:
    spec = cast("Object", service["spec"])
    filled = _session_affinity(_service_type(_service_ports(spec)))
    status = cast("Object", service.get("status") or {})
    if filled["type"] == "LoadBalancer":
        status = within("loadBalancer", _ingress_modes)(status)
    if filled is spec and status is service.get("status"):
        return service
    return {**service, "spec": filled, "status": status}


def _service_type(spec: Object) -> Object:
    filled = with_missing(spec, {"type": "ClusterIP"})
    values: Object = {}
    if filled["type"] != "ExternalName":
        values["internalTrafficPolicy"] = "Cluster"
    is_external = filled["type"] in ("NodePort", "LoadBalancer")
    if is_external or (filled["type"] == "ClusterIP" and filled.get("externalIPs")):
        values["externalTrafficPolicy"] = "Cluster"
    if filled["type"] == "LoadBalancer":
        values["allocateLoadBalancerNodePorts"] = True
    return with_missing(filled, values)


def _session_affinity(spec: Object) -> Object:
    filled = with_missing(spec, {"sessionAffinity": "None"})
    if filled["sessionAffinity"] == "None":
        is_set = "sessionAffinityConfig" in filled
        return _without(filled, "sessionAffinityConfig") if is_set else filled
    given = part_of(part_of(filled, "sessionAffinityConfig"), "clientIP")
    timeout = given.get("timeoutSeconds")
    if filled["sessionAffinity"] != "ClientIP" or timeout is not None:
        return filled
    config = {"clientIP": {"timeoutSeconds": _THREE_HOURS}}
    return {**filled, "sessionAffinityConfig": config}


def _service_ports(spec: Object) -> Object:
    ports = cast("list[Object]", spec.get("ports") or [])
    filled = [_service_port(port) for port in ports]
    return spec if filled == ports else {**spec, "ports": filled}


def _service_port(port: Object) -> Object:
    target: Any = port.get("targetPort") or port.get("port", 0)
    return {**with_missing(port, {"protocol": "TCP"}), "targetPort": target}


def _ingress_modes(load_balancer: Object) -> Object:
    addresses = cast("list[Object]", load_balancer.get("ingress") or [])
    filled = [
        with_missing(each, {"ipMode": "VIP"}) if each.get("ip") else each for each in addresses
    ]
    return load_balancer if filled == addresses else {**load_balancer, "ingress": filled}


def _policy_types(spec: Object) -> Object:
    directions = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    return with_missing(spec, {"policyTypes": directions})


def _without(struct: Object, field: str) -> Object:
    return {key: held for key, held in struct.items() if key != field}


RULES: Final[Rules] = {
    f"{_CORE}.Service": _service,
    f"{_CORE}.EndpointPort": missing(protocol="TCP"),
    f"{_DISCOVERY}.EndpointPort": missing(name="", protocol="TCP"),
    f"{_NETWORKING}.NetworkPolicySpec": _policy_types,
    f"{_NETWORKING}.NetworkPolicyPort": missing(protocol="TCP"),
    f"{_NETWORKING}.IngressClassParametersReference": missing(scope="Cluster"),
}
