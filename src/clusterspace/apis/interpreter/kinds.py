"""The kinds we know something about, whatever their version."""

from typing import Final

from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupKind, GroupVersionKind

DEPLOYMENT: Final = GroupKind("apps", "Deployment")
REPLICA_SET: Final = GroupKind("apps", "ReplicaSet")
STATEFUL_SET: Final = GroupKind("apps", "StatefulSet")
DAEMON_SET: Final = GroupKind("apps", "DaemonSet")
JOB: Final = GroupKind("batch", "Job")
CRON_JOB: Final = GroupKind("batch", "CronJob")
POD: Final = GroupKind("", "Pod")
SERVICE: Final = GroupKind("", "Service")
SERVICE_ACCOUNT: Final = GroupKind("", "ServiceAccount")
SECRET: Final = GroupKind("", "Secret")
CLAIM: Final = GroupKind("", "PersistentVolumeClaim")
VOLUME: Final = GroupKind("", "PersistentVolume")
INGRESS: Final = GroupKind("networking.k8s.io", "Ingress")
DISRUPTION_BUDGET: Final = GroupKind("policy", "PodDisruptionBudget")
AUTOSCALER: Final = GroupKind("autoscaling", "HorizontalPodAutoscaler")


def kind_of(kube_object: Object) -> GroupKind:
    """Return the kind of an object."""
    api_version, kind = kube_object.get("apiVersion"), kube_object.get("kind")
    return GroupVersionKind.of(str(api_version or ""), str(kind or "")).group_kind
