"""What replaced objects of some kinds keep from the object they replace."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from clusterspace.builtins.strategies.creation import (
    both_data_sources,
    template_generation,
    with_stored_version,
    with_template_generation,
)
from clusterspace.kube.objects import Object, find_at

AtUpdate: TypeAlias = Callable[[Object, Object], Object]
"""Takes the new object and the old one."""


def _update_daemon_set(new: Object, old: Object) -> Object:
    is_changed = find_at(new, "spec", "template") != find_at(old, "spec", "template")
    return with_template_generation(new, template_generation(old) + is_changed)


def _update_namespace(new: Object, old: Object) -> Object:
    finalizers = find_at(old, "spec", "finalizers")
    kept = {key: held for key, held in new.get("spec", {}).items() if key != "finalizers"}
    return {**new, "spec": {**kept, **({"finalizers": finalizers} if finalizers else {})}}


def _update_signing_request(new: Object, old: Object) -> Object:
    return {**new, "spec": old["spec"]}


_KEPT_ADDRESSES: Final = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def _update_service(new: Object, old: Object) -> Object:
    """Keep the addresses a service was given when its new version leaves them out."""
    spec, held = cast("Object", new["spec"]), cast("Object", old["spec"])
    if "ExternalName" in (spec.get("type"), held.get("type")):
        return new
    kept = {key: held[key] for key in _KEPT_ADDRESSES if key in held and not spec.get(key)}
    if spec.get("clusterIP") and "clusterIPs" in kept:
        kept["clusterIPs"] = [spec["clusterIP"]]
    ports = _with_node_ports(spec, held)
    return {**new, "spec": {**spec, **kept, **({"ports": ports} if ports else {})}}


def _with_node_ports(spec: Object, held: Object) -> list[Object]:
    ports = cast("list[Object]", spec.get("ports") or [])
    exposed = ("NodePort", "LoadBalancer")
    if spec.get("type") not in exposed or held.get("type") not in exposed:
        return ports
    before = cast("list[Object]", held.get("ports") or [])
    given = {_port_key(port): port.get("nodePort") for port in before}
    return [
        {**port, "nodePort": node_port}
        if not port.get("nodePort") and (node_port := given.get(_port_key(port)))
        else port
        for port in ports
    ]


def _port_key(port: Object) -> tuple[Any, Any]:
    return port.get("port"), port.get("protocol")


def _update_claim(new: Object, _: Object) -> Object:
    return both_data_sources(new)


def _update_custom_resource_definition(new: Object, _: Object) -> Object:
    return with_stored_version(new)


AT_UPDATE: Final[Mapping[tuple[str, str], AtUpdate]] = {
    ("", "Namespace"): _update_namespace,
    ("", "PersistentVolumeClaim"): _update_claim,
    ("", "Service"): _update_service,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _update_custom_resource_definition,
    ("apps", "DaemonSet"): _update_daemon_set,
    ("certificates.k8s.io", "CertificateSigningRequest"): _update_signing_request,
}
