"""What new objects of some kinds are given: a phase, a selector, the name of who asks."""

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
    with_metadata,
)


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


def _create_namespace(namespace: Object, _: Creation) -> Object:
    finalizers = cast("list[str]", find_at(namespace, "spec", "finalizers") or [])
    held = finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]
    spec = {**namespace["spec"], "finalizers": held}
    return {**namespace, "spec": spec, "status": {"phase": "Active"}}


def _create_pod(pod: Object, creation: Creation) -> Object:
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


def _create_daemon_set(daemon_set: Object, _: Creation) -> Object:
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


def _create_job(job: Object, creation: Creation) -> Object:
    """Mark the job's pods with its uid and select them by it, unless the user selects by hand."""
    spec = cast("Object", job["spec"])
    if spec.get("manualSelector"):
        return job
    template = cast("Object", spec.get("template") or {})
    metadata = metadata_of(template)
    given = cast("Object", metadata.get("labels") or {})
    labels = {**_job_labels(job, creation.uid), **given}
    marked = {**template, "metadata": {**metadata, "labels": labels}}
    selector = cast("Object", spec.get("selector") or {})
    wanted = cast("Object", selector.get("matchLabels") or {})
    by_uid = {**wanted, "batch.kubernetes.io/controller-uid": creation.uid}
    selected = {**selector, "matchLabels": by_uid}
    prepared = {**job, "spec": {**spec, "template": marked, "selector": selected}}
    # A job labelled like its pods, which is the default, stays labelled like them.
    is_alike = labels_of(job) == given
    return with_metadata(prepared, labels=labels) if is_alike else prepared


def _job_labels(job: Object, uid: str) -> dict[str, str]:
    """Return the labels of a job's pods, under their present names and the ones before."""
    name = str(metadata_of(job).get("name", ""))
    return {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }


def _create_signing_request(request: Object, creation: Creation) -> Object:
    """Name who asks: a signer must not take the requester's word for it."""
    asked = {key: held for key, held in request["spec"].items() if key not in _REQUESTER}
    extra = {key: list(held) for key, held in (creation.user_extra or {}).items()}
    requester: Mapping[str, Any] = {
        "username": creation.username,
        "uid": creation.user_uid,
        "groups": list(creation.groups),
        "extra": extra,
    }
    named = {key: held for key, held in requester.items() if held}
    return {**request, "spec": {**asked, **named}}


_REQUESTER: Final = ("username", "uid", "groups", "extra")


def _create_volume(volume: Object, creation: Creation) -> Object:
    return {**volume, "status": {"phase": "Pending", "lastPhaseTransitionTime": creation.now}}


def _create_claim(claim: Object, _: Creation) -> Object:
    return {**both_data_sources(claim), "status": {"phase": "Pending"}}


def both_data_sources(claim: Object) -> Object:
    """Show a claim's data source under both of its names."""
    spec = cast("Object", claim["spec"])
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if reference is None and source is not None and not _is_old_style(source):
        kept = {key: held for key, held in spec.items() if key != "dataSource"}
        return {**claim, "spec": kept}
    if (source is None) == (reference is None) or (reference or {}).get("namespace"):
        return claim
    both = source or reference
    return {**claim, "spec": {**spec, "dataSource": both, "dataSourceRef": both}}


def _is_old_style(source: Object) -> bool:
    """Whether `dataSource`, the older of the two names, may hold this: claims and snapshots."""
    wanted = (source.get("apiGroup") or "", source.get("kind"))
    return wanted in (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def _create_custom_resource_definition(definition: Object, _: Creation) -> Object:
    return with_stored_version({**definition, "status": {**definition["status"]}})


def with_stored_version(definition: Object) -> Object:
    """Remember the version objects are stored in from now on."""
    versions = cast("list[Object]", find_at(definition, "spec", "versions") or [])
    stored = cast("list[str]", find_at(definition, "status", "storedVersions") or [])
    name = next((str(each["name"]) for each in versions if each.get("storage")), "")
    if not name or name in stored:
        return definition
    return {**definition, "status": {**definition["status"], "storedVersions": [*stored, name]}}


def _create_api_service(service: Object, creation: Creation) -> Object:
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


def _create_service(service: Object, _: Creation) -> Object:
    """Say which address families a service has; handing out addresses is the caller's business."""
    spec = cast("Object", service["spec"])
    if spec.get("type") == "ExternalName":
        return service
    families, policy = _address_families(spec)
    filled = {**spec, "ipFamilies": families, "ipFamilyPolicy": policy}
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        filled["clusterIPs"] = [spec["clusterIP"]]
    return {**service, "spec": filled}


def _address_families(spec: Object) -> tuple[list[str], str]:
    """Return the families and the policy of a service in a cluster that has IPv4 addresses.

    A headless service without a selector has whatever its endpoints have, so it has both.
    """
    families = cast("list[str]", spec.get("ipFamilies") or ["IPv4"])
    policy: Any = spec.get("ipFamilyPolicy")
    if spec.get("clusterIP") != "None" or spec.get("selector") or policy == "SingleStack":
        return families, "SingleStack" if policy is None else policy
    both = families if len(families) > 1 else [families[0], _OTHER_FAMILY.get(families[0], "IPv6")]
    return both, "RequireDualStack" if policy is None else policy


_OTHER_FAMILY: Final = {"IPv4": "IPv6", "IPv6": "IPv4"}


def _create_limit_range(limit_range: Object, creation: Creation) -> Object:
    """Name a limit range by its uid when the user gave no name."""
    if metadata_of(limit_range).get("name"):
        return limit_range
    return with_metadata(limit_range, name=creation.uid)


AT_CREATION: Final[Mapping[tuple[str, str], AtCreation]] = {
    ("", "LimitRange"): _create_limit_range,
    ("", "Namespace"): _create_namespace,
    ("", "PersistentVolume"): _create_volume,
    ("", "PersistentVolumeClaim"): _create_claim,
    ("", "Pod"): _create_pod,
    ("", "Service"): _create_service,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _create_custom_resource_definition,
    ("apiregistration.k8s.io", "APIService"): _create_api_service,
    ("apps", "DaemonSet"): _create_daemon_set,
    ("batch", "Job"): _create_job,
    ("certificates.k8s.io", "CertificateSigningRequest"): _create_signing_request,
}
