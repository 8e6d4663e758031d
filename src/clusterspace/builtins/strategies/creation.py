"""What new objects are given: a phase, a selector, who asks; and what admission plug-ins add."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from clusterspace.builtins import resource_lists
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
from clusterspace.kube.resources import GroupKind


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
    status: Object = {"phase": "Pending", "qosClass": resource_lists.qos_class(pod)}
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
