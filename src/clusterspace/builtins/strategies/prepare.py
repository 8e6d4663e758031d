"""The steps of a write that the server decides itself: create, update, status update.

What differs between kinds is a table: what moves the generation, and what a PUT may do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.builtins import normal_form
from clusterspace.builtins.strategies.creation import (
    AT_CREATION,
    Creation,
    both_data_sources,
    template_generation,
    with_stored_version,
    with_template_generation,
)
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    metadata_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupKind, GroupVersionKind


@dataclass(frozen=True, slots=True)
class Strategy:
    """How the server treats one kind.

    `generation_fields` are the parts whose change moves `metadata.generation`; none means the
    kind does not count generations.
    """

    generation_fields: tuple[str, ...] = ()
    creates_on_update: bool = False
    updates_unconditionally: bool = True


_PLAIN: Final = Strategy()
_SPEC: Final = Strategy(generation_fields=("spec",))
_SPEC_VERSIONED: Final = Strategy(generation_fields=("spec",), updates_unconditionally=False)
_VERSIONED: Final = Strategy(updates_unconditionally=False)
_UPSERT: Final = Strategy(creates_on_update=True)
_UPSERT_VERSIONED: Final = Strategy(creates_on_update=True, updates_unconditionally=False)
_WEBHOOKS: Final = Strategy(generation_fields=("webhooks",), updates_unconditionally=False)

_STRATEGIES: Final[Mapping[tuple[str, str], Strategy]] = {
    ("", "Endpoints"): _UPSERT,
    ("", "Event"): _UPSERT,
    ("", "LimitRange"): _UPSERT,
    ("", "Pod"): _SPEC,
    ("", "PodTemplate"): Strategy(generation_fields=("template",)),
    ("", "ReplicationController"): _SPEC,
    ("", "Service"): _UPSERT,
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): _SPEC_VERSIONED,
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"): _SPEC_VERSIONED,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _WEBHOOKS,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): _SPEC_VERSIONED,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): _SPEC_VERSIONED,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _WEBHOOKS,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _SPEC_VERSIONED,
    ("apiregistration.k8s.io", "APIService"): _VERSIONED,
    ("apps", "DaemonSet"): _SPEC,
    ("apps", "Deployment"): _SPEC,
    ("apps", "ReplicaSet"): _SPEC,
    ("apps", "StatefulSet"): _SPEC,
    ("batch", "CronJob"): _SPEC,
    ("batch", "Job"): _SPEC,
    ("certificates.k8s.io", "ClusterTrustBundle"): _VERSIONED,
    ("certificates.k8s.io", "PodCertificateRequest"): _VERSIONED,
    ("coordination.k8s.io", "Lease"): _UPSERT_VERSIONED,
    ("coordination.k8s.io", "LeaseCandidate"): _UPSERT_VERSIONED,
    ("discovery.k8s.io", "EndpointSlice"): Strategy(("addressType", "endpoints", "ports")),
    ("events.k8s.io", "Event"): _UPSERT,
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): _SPEC,
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): _SPEC,
    ("networking.k8s.io", "Ingress"): _SPEC,
    ("networking.k8s.io", "IngressClass"): _SPEC,
    ("networking.k8s.io", "NetworkPolicy"): _SPEC,
    ("node.k8s.io", "RuntimeClass"): _UPSERT_VERSIONED,
    ("policy", "PodDisruptionBudget"): _SPEC_VERSIONED,
    ("rbac.authorization.k8s.io", "ClusterRole"): _UPSERT,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _UPSERT,
    ("rbac.authorization.k8s.io", "Role"): _UPSERT,
    ("rbac.authorization.k8s.io", "RoleBinding"): _UPSERT,
    ("resource.k8s.io", "DeviceClass"): _SPEC,
    ("resource.k8s.io", "DeviceTaintRule"): _SPEC,
    ("resource.k8s.io", "ResourceSlice"): _SPEC,
    ("scheduling.k8s.io", "PriorityClass"): Strategy(generation_fields=("value",)),
    ("storage.k8s.io", "CSIDriver"): _VERSIONED,
    ("storage.k8s.io", "CSINode"): _VERSIONED,
    ("storage.k8s.io", "CSIStorageCapacity"): _VERSIONED,
    ("storage.k8s.io", "VolumeAttachment"): _VERSIONED,
    ("storagemigration.k8s.io", "StorageVersionMigration"): _VERSIONED,
}


def strategy_for(kind: GroupKind) -> Strategy:
    """Return how the server treats a kind."""
    return _STRATEGIES.get((kind.group, kind.kind), _PLAIN)


def _at_update(kind: tuple[str, str], new: Object, old: Object) -> Object:
    """Return a replacement with what objects of some kinds keep from the object they replace."""
    match kind:
        case "", "Namespace":
            finalizers = find_at(old, "spec", "finalizers")
            kept = {key: value for key, value in new.get("spec", {}).items() if key != "finalizers"}
            return {**new, "spec": {**kept, **({"finalizers": finalizers} if finalizers else {})}}
        case "", "PersistentVolumeClaim":
            return both_data_sources(new)
        case "", "Service":
            return _update_service(new, old)
        case "apiextensions.k8s.io", "CustomResourceDefinition":
            return with_stored_version(new)
        case "apps", "DaemonSet":
            is_changed = find_at(new, "spec", "template") != find_at(old, "spec", "template")
            return with_template_generation(new, template_generation(old) + is_changed)
        case "certificates.k8s.io", "CertificateSigningRequest":
            return {**new, "spec": old["spec"]}
        case _:
            return new


_KEPT_ADDRESSES: Final = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def _update_service(new: Object, old: Object) -> Object:
    """Keep the addresses a service was given when its new version leaves them out.

    One that changes its type loses what only the old type has, unless its author changed that too.
    """
    new = _for_type(new, old)
    spec, existing = cast("Object", new["spec"]), cast("Object", old["spec"])
    if spec.get("type") == "ExternalName":
        return new
    if existing.get("type") == "ExternalName":
        return {**new, "spec": {"ipFamilyPolicy": "SingleStack", **spec}}
    kept = {key: existing[key] for key in _KEPT_ADDRESSES if key in existing and not spec.get(key)}
    if spec.get("clusterIP") and "clusterIPs" in kept:
        kept["clusterIPs"] = [spec["clusterIP"]]
    ports = cast("list[Object]", spec.get("ports") or [])
    if spec.get("type") in _EXPOSED and existing.get("type") in _EXPOSED:
        before = cast("list[Object]", existing.get("ports") or [])
        given = {_port_key(port): port.get("nodePort") for port in before}
        ports = [
            {**port, "nodePort": node_port}
            if not port.get("nodePort") and (node_port := given.get(_port_key(port)))
            else port
            for port in ports
        ]
    return {**new, "spec": {**spec, **kept, **({"ports": ports} if ports else {})}}


_EXPOSED: Final = ("NodePort", "LoadBalancer")


def _for_type(new: Object, old: Object) -> Object:
    """Drop what the server filled in for the type a service had, and the new type has not."""
    spec, existing = cast("Object", new["spec"]), cast("Object", old["spec"])
    kind, before = spec.get("type"), existing.get("type")
    filled_in: list[str] = []
    gone: set[str] = set()
    if kind == "ExternalName" != before:
        filled_in += ("ipFamilies", "ipFamilyPolicy")
        # An author who takes the one address away means all of them.
        addresses = ("clusterIP", "clusterIPs") if spec.get("clusterIP") else ("clusterIPs",)
        if all(spec.get(key) == existing.get(key) for key in addresses):
            gone |= {"clusterIP", "clusterIPs"}
    if before == "LoadBalancer" != kind:
        filled_in += ("allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort")
        new = {**new, "status": {**new.get("status", {}), "loadBalancer": {}}}
    if _is_reached_from_outside(existing) and not _is_reached_from_outside(spec):
        filled_in.append("externalTrafficPolicy")
    gone |= {key for key in filled_in if spec.get(key) == existing.get(key)}
    kept = {key: value for key, value in spec.items() if key not in gone}
    if before in _EXPOSED and kind not in _EXPOSED:
        own = cast("list[Object]", kept.get("ports") or [])
        earlier = cast("list[Object]", existing.get("ports") or [])
        if [port.get("nodePort") for port in own] == [port.get("nodePort") for port in earlier]:
            ports = [{k: v for k, v in port.items() if k != "nodePort"} for port in own]
            kept |= {"ports": ports} if ports else {}
    return new if kept == spec else {**new, "spec": kept}


def _is_reached_from_outside(spec: Object) -> bool:
    has_addresses = spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs"))
    return spec.get("type") in _EXPOSED or has_addresses


def _port_key(port: Object) -> tuple[Any, Any]:
    return port.get("port"), port.get("protocol")


def prepare_for_create(kind: GroupVersionKind, new: Object, creation: Creation) -> Object:
    """Return the object as it is first stored: generation one, an unreported status."""
    counts_generations = bool(strategy_for(kind.group_kind).generation_fields)
    if not _DELETION_MARKS.isdisjoint(metadata_of(new)):  # nothing is born dying
        new = with_metadata(new, deletionTimestamp=None, deletionGracePeriodSeconds=None)
    prepared = _with_generation(new, 1) if counts_generations else new
    status = normal_form.empty_status(kind)
    if status is not None and kind.kind != "Node":  # a node reports itself as it registers
        prepared = {**prepared, "status": status}
    at_creation = AT_CREATION.get((kind.group, kind.kind))
    return at_creation(prepared, creation) if at_creation else prepared


def prepare_for_update(kind: GroupVersionKind, new: Object, old: Object) -> Object:
    """Return the replacement with what only the server or a controller may change put back."""
    born = metadata_of(old).get("creationTimestamp")
    prepared = with_metadata(new, creationTimestamp=born)
    if "status" in old:
        prepared = {**prepared, "status": old["status"]}
    prepared = _at_update((kind.group, kind.kind), prepared, old)
    fields = strategy_for(kind.group_kind).generation_fields
    generation = metadata_of(old).get("generation")
    if not fields:
        return _with_generation(prepared, generation)
    is_changed = any(prepared.get(field) != old.get(field) for field in fields)
    # Metadata that these kinds count as part of what is asked for.
    if kind.kind == "Deployment":
        is_changed = is_changed or annotations_of(prepared) != annotations_of(old)
    if kind.kind == "EndpointSlice":
        is_changed = is_changed or labels_of(prepared) != labels_of(old)
    return _with_generation(prepared, (generation or 0) + 1 if is_changed else generation)


def prepare_for_status_update(new: Object, old: Object) -> Object:
    """Return the old object with the new status and metadata, but its own generation."""
    metadata = {**metadata_of(new), "generation": metadata_of(old).get("generation")}
    kept = {key: value for key, value in metadata.items() if value is not None}
    reported = {"status": new["status"]} if "status" in new else {}
    return {**old, "metadata": kept, **reported}


_DELETION_MARKS: Final = frozenset({"deletionTimestamp", "deletionGracePeriodSeconds"})


def _with_generation(kube_object: Object, generation: int | None) -> Object:
    if metadata_of(kube_object).get("generation") == generation:
        return kube_object
    return with_metadata(kube_object, generation=generation)
