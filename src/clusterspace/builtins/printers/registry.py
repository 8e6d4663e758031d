"""Which printer is whose: built-in kinds by group and kind, and a plain one for all the others."""

from collections.abc import Mapping
from typing import Final

from clusterspace.builtins.printers import (
    access,
    core,
    networks,
    volumes,
    workloads,
)
from clusterspace.builtins.printers.cells import AGE, CREATED_AT, NAME, Printer, printer

PLAIN: Final = printer(NAME, CREATED_AT)
"""For a built-in kind without a printer of its own."""

_NAME_AND_AGE: Final = printer(NAME, AGE)

_PRINTERS: Final[Mapping[str, Mapping[str, Printer]]] = {
    "": {
        "ComponentStatus": core.COMPONENT_STATUSES,
        "ConfigMap": core.CONFIG_MAPS,
        "Endpoints": networks.ENDPOINTS,
        "Event": core.EVENTS,
        "Namespace": core.NAMESPACES,
        "Node": core.NODES,
        "PersistentVolume": volumes.PERSISTENT_VOLUMES,
        "PersistentVolumeClaim": volumes.PERSISTENT_VOLUME_CLAIMS,
        "Pod": core.PODS,
        "PodTemplate": core.POD_TEMPLATES,
        "ReplicationController": core.REPLICATION_CONTROLLERS,
        "ResourceQuota": core.RESOURCE_QUOTAS,
        "Secret": core.SECRETS,
        "Service": networks.SERVICES,
        "ServiceAccount": core.SERVICE_ACCOUNTS,
    },
    "admissionregistration.k8s.io": {
        "MutatingWebhookConfiguration": access.WEBHOOK_CONFIGURATIONS,
        "ValidatingAdmissionPolicy": access.ADMISSION_POLICIES,
        "ValidatingAdmissionPolicyBinding": access.ADMISSION_BINDINGS,
        "ValidatingWebhookConfiguration": access.WEBHOOK_CONFIGURATIONS,
    },
    "apiregistration.k8s.io": {"APIService": access.API_SERVICES},
    "apps": {
        "ControllerRevision": workloads.CONTROLLER_REVISIONS,
        "DaemonSet": workloads.DAEMON_SETS,
        "Deployment": workloads.DEPLOYMENTS,
        "ReplicaSet": workloads.REPLICA_SETS,
        "StatefulSet": workloads.STATEFUL_SETS,
    },
    "autoscaling": {
        "HorizontalPodAutoscaler": workloads.AUTOSCALERS,
        "Scale": workloads.SCALES,
    },
    "batch": {"CronJob": workloads.CRON_JOBS, "Job": workloads.JOBS},
    "certificates.k8s.io": {"CertificateSigningRequest": access.CERTIFICATE_REQUESTS},
    "coordination.k8s.io": {"Lease": access.LEASES},
    "discovery.k8s.io": {"EndpointSlice": networks.ENDPOINT_SLICES},
    "events.k8s.io": {"Event": core.EVENTS},
    "flowcontrol.apiserver.k8s.io": {
        "FlowSchema": access.FLOW_SCHEMAS,
        "PriorityLevelConfiguration": access.PRIORITY_LEVELS,
    },
    "networking.k8s.io": {
        "IPAddress": networks.IP_ADDRESSES,
        "Ingress": networks.INGRESSES,
        "IngressClass": networks.INGRESS_CLASSES,
        "NetworkPolicy": networks.NETWORK_POLICIES,
        "ServiceCIDR": networks.SERVICE_CIDRS,
    },
    "node.k8s.io": {"RuntimeClass": access.RUNTIME_CLASSES},
    "policy": {"PodDisruptionBudget": access.DISRUPTION_BUDGETS},
    "rbac.authorization.k8s.io": {
        "ClusterRoleBinding": access.BINDINGS,
        "RoleBinding": access.BINDINGS,
    },
    "resource.k8s.io": {
        "DeviceClass": _NAME_AND_AGE,
        "ResourceClaim": access.RESOURCE_CLAIMS,
        "ResourceClaimTemplate": _NAME_AND_AGE,
        "ResourceSlice": access.RESOURCE_SLICES,
    },
    "scheduling.k8s.io": {"PriorityClass": access.PRIORITY_CLASSES},
    "storage.k8s.io": {
        "CSIDriver": volumes.CSI_DRIVERS,
        "CSINode": volumes.CSI_NODES,
        "StorageClass": volumes.STORAGE_CLASSES,
        "VolumeAttachment": volumes.VOLUME_ATTACHMENTS,
        "VolumeAttributesClass": volumes.VOLUME_ATTRIBUTES_CLASSES,
    },
}

_FLEET_PRINTERS: Final[Mapping[tuple[str, str], Printer]] = {
    ("cluster.karmada.io", "Cluster"): core.CLUSTERS,
}


def printer_for(group: str, kind: str) -> Printer:
    """Return the printer of a built-in kind; the plain one when it has none of its own."""
    return _PRINTERS.get(group, {}).get(kind, PLAIN)


def find_fleet_printer(group: str, kind: str) -> Printer | None:
    """Return the printer of a kind of the fleet; None where its definition says all there is."""
    return _FLEET_PRINTERS.get((group, kind))
