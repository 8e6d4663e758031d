"""How the server treats each built-in kind: generations, and what a PUT may do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from clusterspace.kube.resources import GroupKind


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
