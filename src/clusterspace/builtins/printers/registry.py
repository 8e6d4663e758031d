"""Which printer is whose: built-in kinds by group and kind, custom ones by their definition."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from clusterspace.builtins.printers import access, core, networks, volumes, workloads
from clusterspace.builtins.printers.cells import (
    AGE,
    CREATED_AT,
    NAME,
    PrintedColumn,
    Printer,
    printer,
)
from clusterspace.errors import Malformed, MalformedPath
from clusterspace.kube import times
from clusterspace.kube.json_paths import JsonPath, read_json_path
from clusterspace.kube.objects import Object
from clusterspace.kube.tables import Column

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


_AGE_COLUMN: Final[Object] = {
    "name": "Age",
    "type": "date",
    "jsonPath": ".metadata.creationTimestamp",
}


def printer_of(raw_columns: Sequence[Object]) -> Printer:
    """Return the printer of a custom resource: its name, then what its definition lists."""
    return Printer((NAME, *(_printed(raw) for raw in raw_columns or (_AGE_COLUMN,))))


def _printed(raw: Object) -> PrintedColumn:
    text = str(raw["jsonPath"])
    column = Column(
        name=str(raw["name"]),
        type=str(raw["type"]),
        format=str(raw.get("format") or ""),
        description=str(
            raw.get("description")
            or f"Custom resource definition column (in JSONPath format): {text}"
        ),
        priority=int(raw.get("priority") or 0),
    )
    path: JsonPath | None = None
    with suppress(MalformedPath):  # Kubernetes stores such a column too; it finds nothing
        path = read_json_path(text)

    def cell(kube_object: Object, now: float) -> Any:
        value = None if path is None else path.find(kube_object)
        return None if value is None else _shown(value, column.type, now)

    return PrintedColumn(column, cell)


def _shown(value: Any, column_type: str, now: float) -> Any:
    """Return a value as a column of this type shows it; None where it is of another type."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match column_type:
        case "boolean":
            return value if isinstance(value, bool) else None
        case "integer":
            return int(value) if is_number else None
        case "number":
            return value if is_number else None
        case "date":
            if not isinstance(value, str):
                return None
            try:
                return times.age(now - times.parse_time(value))
            except Malformed:
                return "<invalid>"
        case _:
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()
