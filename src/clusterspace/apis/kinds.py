"""The kinds we know something about, whatever their version."""

from collections.abc import Mapping
from typing import Final, cast

from clusterspace.apis import third_party
from clusterspace.kube.objects import Object, find_at
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
SERVICE_IMPORT: Final = GroupKind("multicluster.x-k8s.io", "ServiceImport")
AUTOSCALER: Final = GroupKind("autoscaling", "HorizontalPodAutoscaler")


def kind_of(kube_object: Object) -> GroupKind:
    """Return the kind of an object."""
    api_version, kind = kube_object.get("apiVersion"), kube_object.get("kind")
    return GroupVersionKind.of(str(api_version or ""), str(kind or "")).group_kind


_IN_TEMPLATE: Final = ("spec", "template", "spec")

_PATHS: Final[Mapping[GroupKind, tuple[str, ...]]] = {
    DEPLOYMENT: _IN_TEMPLATE,
    REPLICA_SET: _IN_TEMPLATE,
    STATEFUL_SET: _IN_TEMPLATE,
    DAEMON_SET: _IN_TEMPLATE,
    JOB: _IN_TEMPLATE,
    CRON_JOB: ("spec", "jobTemplate", *_IN_TEMPLATE),
    POD: ("spec",),
    **third_party.POD_SPECS,
}


def pod_spec_of(template: Object) -> Object | None:
    """Return the specification of a workload's pods; None for what runs no pods we know of."""
    path = _PATHS.get(kind_of(template))
    if path is None:
        return None
    found = find_at(template, *path)
    return cast("Object", found) if isinstance(found, dict) else {}
