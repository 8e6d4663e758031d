"""Saying no to a built-in object, with every reason at once, up to as many as anybody reads.

What each kind must be is in the modules beside this one; here is which rules belong to which kind.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeAlias

from clusterspace.builtins.validation import (
    access,
    admission,
    core,
    extension,
    flow_control,
    jobs,
    networking,
    pods,
    storage,
    workloads,
)
from clusterspace.builtins.validation.definitions import (
    validate_definition,
    validate_definition_update,
)
from clusterspace.builtins.validation.metadata import (
    check_metadata,
    check_metadata_update,
    check_owned_finalizers,
)
from clusterspace.builtins.validation.rules import texts_in
from clusterspace.errors import Cause
from clusterspace.kube.causes import first
from clusterspace.kube.names import (
    NameCheck,
    dns1035_label_problems,
    dns1123_label_problems,
    dns1123_subdomain_problems,
    path_segment_problems,
)
from clusterspace.kube.objects import Object, metadata_of
from clusterspace.kube.resources import GroupVersionKind

_Check: TypeAlias = Callable[[Object], Iterable[Cause]]
_CheckChange: TypeAlias = Callable[[Object, Object], Iterable[Cause]]


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules of a kind: always, when it is new, and when it changes."""

    name: NameCheck = dns1123_subdomain_problems
    always: _Check | None = None
    when_new: _Check | None = None
    on_change: tuple[_CheckChange, ...] = field(default=())
    takes_any_finalizer: bool = False


_RBAC: Final = "rbac.authorization.k8s.io"
_STORAGE: Final = "storage.k8s.io"
_NETWORKING: Final = "networking.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"
_FLOW: Final = "flowcontrol.apiserver.k8s.io"

_PLAIN: Final = _Rules()
_RULES: Final[Mapping[tuple[str, str], _Rules]] = {
    ("", "ConfigMap"): _Rules(
        always=core.check_config_map,
        on_change=(core.check_config_map_update,),
    ),
    ("", "Endpoints"): _Rules(always=networking.check_endpoints),
    ("", "Event"): _Rules(path_segment_problems, core.check_event, takes_any_finalizer=True),
    ("", "LimitRange"): _Rules(always=core.check_limit_range),
    ("", "Namespace"): _Rules(dns1123_label_problems, core.check_namespace),
    ("", "Node"): _Rules(always=core.check_node, on_change=(core.check_node_update,)),
    ("", "PersistentVolume"): _Rules(
        always=storage.check_volume, on_change=(storage.check_volume_update,)
    ),
    ("", "PersistentVolumeClaim"): _Rules(
        always=storage.check_claim, on_change=(storage.check_claim_update,)
    ),
    ("", "Pod"): _Rules(
        always=pods.check_pod,
        when_new=pods.check_new_pod,
        on_change=(pods.check_pod_update,),
    ),
    ("", "PodTemplate"): _Rules(always=workloads.check_pod_template_object),
    ("", "ReplicationController"): _Rules(always=workloads.check_replication_controller),
    ("", "ResourceQuota"): _Rules(always=core.check_quota, on_change=(core.check_quota_update,)),
    ("", "Secret"): _Rules(always=core.check_secret, on_change=(core.check_secret_update,)),
    ("", "Service"): _Rules(
        dns1035_label_problems,
        always=networking.check_service,
        on_change=(networking.check_service_update,),
    ),
    ("apps", "ControllerRevision"): _Rules(
        always=workloads.check_controller_revision,
        on_change=(workloads.check_controller_revision_update,),
    ),
    ("apps", "DaemonSet"): _Rules(
        always=workloads.check_daemon_set, on_change=(workloads.check_selector_update,)
    ),
    ("apps", "Deployment"): _Rules(
        always=workloads.check_deployment, on_change=(workloads.check_selector_update,)
    ),
    ("apps", "ReplicaSet"): _Rules(
        always=workloads.check_replica_set, on_change=(workloads.check_selector_update,)
    ),
    ("apps", "StatefulSet"): _Rules(
        dns1123_label_problems,
        always=workloads.check_stateful_set,
        on_change=(workloads.check_stateful_set_update,),
    ),
    ("batch", "CronJob"): _Rules(always=jobs.check_cron_job, when_new=jobs.check_cron_job_name),
    ("batch", "Job"): _Rules(always=jobs.check_job, on_change=(jobs.check_job_update,)),
    ("autoscaling", "HorizontalPodAutoscaler"): _Rules(always=workloads.check_autoscaler),
    ("policy", "PodDisruptionBudget"): _Rules(
        path_segment_problems, workloads.check_budget, takes_any_finalizer=True
    ),
    (_NETWORKING, "IPAddress"): _Rules(networking.address_name_problems, networking.check_address),
    (_NETWORKING, "Ingress"): _Rules(always=networking.check_ingress),
    (_NETWORKING, "IngressClass"): _Rules(
        always=networking.check_ingress_class,
        on_change=(networking.check_ingress_class_update,),
    ),
    (_NETWORKING, "NetworkPolicy"): _Rules(always=networking.check_network_policy),
    (_NETWORKING, "ServiceCIDR"): _Rules(
        always=networking.check_service_range,
        on_change=(networking.check_service_range_update,),
    ),
    ("discovery.k8s.io", "EndpointSlice"): _Rules(
        always=networking.check_slice, on_change=(networking.check_slice_update,)
    ),
    ("events.k8s.io", "Event"): _Rules(
        path_segment_problems, core.check_event, takes_any_finalizer=True
    ),
    ("coordination.k8s.io", "Lease"): _Rules(always=core.check_lease, takes_any_finalizer=True),
    (_RBAC, "ClusterRole"): _Rules(path_segment_problems, access.check_cluster_role),
    (_RBAC, "ClusterRoleBinding"): _Rules(
        path_segment_problems,
        access.check_cluster_role_binding,
        on_change=(access.check_binding_update,),
    ),
    (_RBAC, "Role"): _Rules(path_segment_problems, access.check_role),
    (_RBAC, "RoleBinding"): _Rules(
        path_segment_problems,
        access.check_role_binding,
        on_change=(access.check_binding_update,),
    ),
    ("certificates.k8s.io", "CertificateSigningRequest"): _Rules(
        path_segment_problems, access.check_signing_request
    ),
    (_STORAGE, "CSIDriver"): _Rules(
        always=storage.check_driver, on_change=(storage.check_driver_update,)
    ),
    (_STORAGE, "CSINode"): _Rules(always=storage.check_node_drivers),
    (_STORAGE, "CSIStorageCapacity"): _Rules(always=storage.check_capacity),
    (_STORAGE, "StorageClass"): _Rules(
        always=storage.check_class, on_change=(storage.check_class_update,)
    ),
    (_STORAGE, "VolumeAttachment"): _Rules(
        always=storage.check_attachment, on_change=(storage.check_attachment_update,)
    ),
    (_STORAGE, "VolumeAttributesClass"): _Rules(
        always=storage.check_attributes_class,
        on_change=(storage.check_attributes_class_update,),
    ),
    ("scheduling.k8s.io", "PriorityClass"): _Rules(
        always=core.check_priority_class,
        on_change=(core.check_priority_class_update,),
    ),
    ("node.k8s.io", "RuntimeClass"): _Rules(
        always=core.check_runtime_class,
        on_change=(core.check_runtime_class_update,),
        takes_any_finalizer=True,
    ),
    (_ADMISSION, "MutatingWebhookConfiguration"): _Rules(
        always=admission.check_mutating_webhooks, takes_any_finalizer=True
    ),
    (_ADMISSION, "ValidatingWebhookConfiguration"): _Rules(
        always=admission.check_validating_webhooks, takes_any_finalizer=True
    ),
    (_ADMISSION, "MutatingAdmissionPolicy"): _Rules(
        always=admission.check_mutating_policy, takes_any_finalizer=True
    ),
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): _Rules(
        always=admission.check_mutating_binding, takes_any_finalizer=True
    ),
    (_ADMISSION, "ValidatingAdmissionPolicy"): _Rules(
        always=admission.check_policy, takes_any_finalizer=True
    ),
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): _Rules(
        always=admission.check_policy_binding, takes_any_finalizer=True
    ),
    (_FLOW, "FlowSchema"): _Rules(always=flow_control.check_flow_schema),
    (_FLOW, "PriorityLevelConfiguration"): _Rules(always=flow_control.check_priority_level),
    ("apiregistration.k8s.io", "APIService"): _Rules(
        path_segment_problems, extension.check_api_service, takes_any_finalizer=True
    ),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _Rules(
        when_new=validate_definition,
        on_change=(validate_definition_update,),
        takes_any_finalizer=True,
    ),
}


def validate_create(kind: GroupVersionKind, new: Object) -> tuple[Cause, ...]:
    """Return the causes to refuse a new object for, in the order a kube-apiserver reports them."""
    rules = _RULES.get((kind.group, kind.kind), _PLAIN)
    found: list[Iterable[Cause]] = [check_metadata(new, rules.name), _check_finalizers(rules, new)]
    if rules.always:
        found.append(rules.always(new))
    if rules.when_new:
        found.append(rules.when_new(new))
    return first(chain.from_iterable(found))


def validate_update(kind: GroupVersionKind, new: Object, old: Object) -> tuple[Cause, ...]:
    """Return the causes to refuse a changed object for."""
    rules = _RULES.get((kind.group, kind.kind), _PLAIN)
    found: list[Iterable[Cause]] = [check_metadata_update(new, old), _check_finalizers(rules, new)]
    if rules.always:
        found.append(rules.always(new))
    found += [check(new, old) for check in rules.on_change]
    return first(chain.from_iterable(found))


def _check_finalizers(rules: _Rules, new: Object) -> Iterator[Cause]:
    if rules.takes_any_finalizer:
        return
    finalizers = texts_in(metadata_of(new), "finalizers")
    yield from check_owned_finalizers(finalizers, "metadata.finalizers")
