"""What the API server decides itself when a built-in object is created, replaced or reported on.

Clients own the spec, controllers own the status, and the server owns the generation and a few
marks of its own. `prepare_for_create`, `prepare_for_update` and `prepare_for_status_update` are the
steps; what differs between kinds is in two tables: what new objects are given, and what moves the
generation and what a PUT may do. The functions see objects in normal form with their defaults, and
leave names, uids and versions to the caller.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from clusterspace.builtins import normal_form, pods
from clusterspace.builtins.defaults.workloads import TEMPLATE_GENERATION
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    metadata_of,
    with_finalizer,
    with_metadata,
    with_value,
)
from clusterspace.kube.resources import GroupKind, GroupVersionKind

# -- what new objects are given --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Creation:
    """What a new object takes from the request that creates it."""

    uid: str
    now: str
    username: str = ""
    user_uid: str = ""
    groups: tuple[str, ...] = ()
    user_extra: Mapping[str, tuple[str, ...]] | None = None


AtCreation: TypeAlias = Callable[[Object, Creation], Object]

AT_CREATION: Final[dict[tuple[str, str], AtCreation]] = {}
"""What new objects of a group and kind are given."""


def at_creation(group: str, kind: str) -> Callable[[AtCreation], AtCreation]:
    """File a function in AT_CREATION."""

    def file(function: AtCreation) -> AtCreation:
        AT_CREATION[group, kind] = function
        return function

    return file


@at_creation("", "Namespace")
def create_namespace(namespace: Object, _: Creation) -> Object:
    """Hold a namespace until it is cleaned up, and call it active."""
    finalizers = cast("list[str]", find_at(namespace, "spec", "finalizers") or [])
    if "kubernetes" not in finalizers:
        finalizers = [*finalizers, "kubernetes"]
    spec = {**namespace["spec"], "finalizers": finalizers}
    return {**namespace, "spec": spec, "status": {"phase": "Active"}}


@at_creation("", "Pod")
def create_pod(pod: Object, creation: Creation) -> Object:
    """Give a pod its first phase and its quality of service; one that is gated says so."""
    status: Object = {"phase": "Pending", "qosClass": pods.qos_class(pod)}
    if find_at(pod, "spec", "schedulingGates"):
        status["conditions"] = [{**_SCHEDULING_GATED, "lastTransitionTime": creation.now}]
    return {**pod, "status": status}


_SCHEDULING_GATED: Final[Object] = {
    "type": "PodScheduled",
    "status": "False",
    "lastProbeTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


@at_creation("apps", "DaemonSet")
def create_daemon_set(daemon_set: Object, _: Creation) -> Object:
    """Count the template's generations from one."""
    generation = max(1, template_generation(daemon_set))
    return with_template_generation(daemon_set, generation)


def template_generation(daemon_set: Object) -> int:
    """Return how often the pod template has changed, as the annotation tells it."""
    text = annotations_of(daemon_set).get(TEMPLATE_GENERATION, "")
    return int(text) if text.isascii() and text.isdecimal() else 0


def with_template_generation(daemon_set: Object, generation: int) -> Object:
    """Return the daemon set with its template generation in the annotation."""
    annotations = {**annotations_of(daemon_set), TEMPLATE_GENERATION: str(generation)}
    return with_metadata(daemon_set, annotations=annotations)


@at_creation("batch", "Job")
def create_job(job: Object, creation: Creation) -> Object:
    """Mark the job's pods with its uid and select them by it, unless the user selects by hand."""
    spec = cast("Object", job["spec"])
    if spec.get("manualSelector"):
        return job
    template = cast("Object", spec.get("template") or {})
    metadata = metadata_of(template)
    given = cast("Object", metadata.get("labels") or {})
    name = str(metadata_of(job).get("name", ""))
    # Under their present names and the ones before.
    marks = {
        "batch.kubernetes.io/controller-uid": creation.uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": creation.uid,
        "job-name": name,
    }
    labels = {**marks, **given}
    marked = {**template, "metadata": {**metadata, "labels": labels}}
    selector = cast("Object", spec.get("selector") or {})
    wanted = cast("Object", selector.get("matchLabels") or {})
    by_uid = {**wanted, "batch.kubernetes.io/controller-uid": creation.uid}
    selected = {**selector, "matchLabels": by_uid}
    prepared = {**job, "spec": {**spec, "template": marked, "selector": selected}}
    # A job labelled like its pods, which is the default, stays labelled like them.
    is_alike = labels_of(job) == given
    return with_metadata(prepared, labels=labels) if is_alike else prepared


@at_creation("certificates.k8s.io", "CertificateSigningRequest")
def create_signing_request(request: Object, creation: Creation) -> Object:
    """Name who asks: a signer must not take the requester's word for it."""
    asked = {key: value for key, value in request["spec"].items() if key not in _REQUESTER}
    extra = {key: list(values) for key, values in (creation.user_extra or {}).items()}
    requester: Mapping[str, Any] = {
        "username": creation.username,
        "uid": creation.user_uid,
        "groups": list(creation.groups),
        "extra": extra,
    }
    named = {key: value for key, value in requester.items() if value}
    return {**request, "spec": {**asked, **named}}


_REQUESTER: Final = ("username", "uid", "groups", "extra")


@at_creation("", "PersistentVolume")
def create_volume(volume: Object, creation: Creation) -> Object:
    """Let a volume wait to be bound."""
    return {**volume, "status": {"phase": "Pending", "lastPhaseTransitionTime": creation.now}}


@at_creation("", "PersistentVolumeClaim")
def create_claim(claim: Object, _: Creation) -> Object:
    """Let a claim wait to be bound."""
    return {**both_data_sources(claim), "status": {"phase": "Pending"}}


def both_data_sources(claim: Object) -> Object:
    """Show a claim's data source under both of its names."""
    spec = cast("Object", claim["spec"])
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if (
        reference is None
        and source is not None
        and (source.get("apiGroup") or "", source.get("kind")) not in _OLD_STYLE
    ):
        kept = {key: value for key, value in spec.items() if key != "dataSource"}
        return {**claim, "spec": kept}
    if (source is None) == (reference is None) or (reference or {}).get("namespace"):
        return claim
    both = source or reference
    return {**claim, "spec": {**spec, "dataSource": both, "dataSourceRef": both}}


_OLD_STYLE: Final = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))
"""What `dataSource`, the older of the two names, may hold."""


@at_creation("apiextensions.k8s.io", "CustomResourceDefinition")
def create_custom_resource_definition(definition: Object, _: Creation) -> Object:
    """Remember the version objects are stored in."""
    return with_stored_version({**definition, "status": {**definition["status"]}})


def with_stored_version(definition: Object) -> Object:
    """Remember the version objects are stored in from now on."""
    versions = cast("list[Object]", find_at(definition, "spec", "versions") or [])
    stored = cast("list[str]", find_at(definition, "status", "storedVersions") or [])
    name = next((str(each["name"]) for each in versions if each.get("storage")), "")
    if not name or name in stored:
        return definition
    return {**definition, "status": {**definition["status"], "storedVersions": [*stored, name]}}


@at_creation("apiregistration.k8s.io", "APIService")
def create_api_service(service: Object, creation: Creation) -> Object:
    """Call a local API available: it is this server's own."""
    if find_at(service, "spec", "service") is not None:
        return service
    local: Object = {
        "type": "Available",
        "status": "True",
        "lastTransitionTime": creation.now,
        "reason": "Local",
        "message": "Local APIServices are always available",
    }
    return {**service, "status": {"conditions": [local]}}


@at_creation("", "Service")
def create_service(service: Object, _: Creation) -> Object:
    """Say which address families a service has; handing out addresses is the caller's business."""
    spec = cast("Object", service["spec"])
    if spec.get("type") == "ExternalName":
        return service
    families = cast("list[str]", spec.get("ipFamilies") or ["IPv4"])
    policy: Any = spec.get("ipFamilyPolicy")
    if spec.get("clusterIP") != "None" or spec.get("selector") or policy == "SingleStack":
        policy = "SingleStack" if policy is None else policy
    else:
        # A headless service without a selector has whatever its endpoints have, so it has both.
        if len(families) == 1:
            families = [families[0], _OTHER_FAMILY.get(families[0], "IPv6")]
        policy = "RequireDualStack" if policy is None else policy
    filled = {**spec, "ipFamilies": families, "ipFamilyPolicy": policy}
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        filled["clusterIPs"] = [spec["clusterIP"]]
    return {**service, "spec": filled}


_OTHER_FAMILY: Final = {"IPv4": "IPv6", "IPv6": "IPv4"}


@at_creation("", "LimitRange")
def create_limit_range(limit_range: Object, creation: Creation) -> Object:
    """Name a limit range by its uid when the user gave no name."""
    if metadata_of(limit_range).get("name"):
        return limit_range
    return with_metadata(limit_range, name=creation.uid)


# -- what the server's own admission plug-ins add --------------------------------------------------

_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_SECONDS_ON_A_LOST_NODE: Final = 300

SYSTEM_PRIORITIES: Final = {
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
}
"""The classes every cluster has without an object; others are looked up."""


PROTECTION: Final = {
    ("", "PersistentVolume"): "kubernetes.io/pv-protection",
    ("", "PersistentVolumeClaim"): "kubernetes.io/pvc-protection",
    ("storage.k8s.io", "VolumeAttributesClass"): "kubernetes.io/vac-protection",
}
"""Finalizers that keep what is in use, by group and kind; whoever serves these takes them away."""


# What the plug-ins of an API server that need nothing but the object add to it.


def with_protection(kind: GroupKind, new: Object) -> Object:
    """Return a new object with the finalizer that keeps objects of its kind while in use."""
    finalizer = PROTECTION.get((kind.group, kind.kind))
    return new if finalizer is None else with_finalizer(new, finalizer)


def with_not_ready_taint(node: Object) -> Object:
    """Return a new node that takes no pods until its controller has seen that it is ready."""
    taints = cast("list[Object]", find_at(node, "spec", "taints") or [])
    if any((each.get("key"), each.get("effect")) == (_NOT_READY, "NoSchedule") for each in taints):
        return node
    not_ready = {"key": _NOT_READY, "effect": "NoSchedule"}
    return with_value(node, [*taints, not_ready], "spec", "taints")


def with_default_tolerations(pod: Object) -> Object:
    """Return a pod that stays five minutes on a node that went away, unless it says otherwise."""
    tolerations = cast("list[Object]", find_at(pod, "spec", "tolerations") or [])
    added = [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _SECONDS_ON_A_LOST_NODE,
        }
        for key in (_NOT_READY, _UNREACHABLE)
        if not any(
            each.get("key", "") in ("", key) and each.get("effect", "") in ("", "NoExecute")
            for each in tolerations
        )
    ]
    return with_value(pod, [*tolerations, *added], "spec", "tolerations") if added else pod


# -- create, update and status update --------------------------------------------------------------


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
