"""Cluster: how to reach a member, and whether it is alive; the names and rules around it.

Names, namespaces, finalizers and taints are Karmada's, so that its clients find what they expect.
"""

from dataclasses import dataclass
from typing import Any, Final

from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_label_problems
from clusterspace.kube.objects import Object, annotations_of, find_at, name_of
from clusterspace.kube.resources import GroupVersionResource

CLUSTERS: Final = GroupVersionResource("cluster.karmada.io", "v1alpha1", "clusters")
WORKS: Final = GroupVersionResource("work.karmada.io", "v1alpha1", "works")
KIND: Final = "Cluster"

PUSH: Final = "Push"
PULL: Final = "Pull"

CLUSTER_NAMESPACE: Final = "karmada-cluster"
"""Where credentials and heartbeats are: on the hub, and under the same name on each member."""

EXECUTION_PREFIX: Final = "karmada-es-"
FINALIZER: Final = "karmada.io/cluster-controller"
WORK_FINALIZER: Final = "karmada.io/execution-controller"
KEEP_ON_LEAVE: Final = "clusterspace.io/keep-resources-on-leave"
SYSTEM_LABELS: Final = {"karmada.io/system": "true"}

NOT_READY_TAINT: Final = "cluster.karmada.io/not-ready"
UNREACHABLE_TAINT: Final = "cluster.karmada.io/unreachable"
CORDON_TAINT: Final = "cluster.karmada.io/unschedulable"

RESERVED_NAMES: Final = frozenset({"karmada", "hub", "all"})
"""Words that mean something else where a cluster is named: the control plane, or every cluster."""

IMPERSONATOR_SUFFIX: Final = "-impersonator"
"""What the Secret through which users reach `west` is called more than `west`. A cluster called
`west-impersonator` would share it, and its agent would read it.
"""

LONGEST_NAME: Final = 48
"""`karmada-es-NAME` and the names of accounts and secrets must stay within a DNS label."""

_LARGEST: Final = "9223372036854775807"
_MODEL_CPUS: Final = ("0", "1", "2", "4", "8", "16", "32", "64", "128", _LARGEST)
_MODEL_MEMORY: Final = (
    "0", "4Gi", "16Gi", "32Gi", "64Gi", "128Gi", "256Gi", "512Gi", "1Ti", _LARGEST,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Where on the hub a Secret with credentials is."""

    namespace: str
    name: str


def execution_namespace(cluster_name: str) -> str:
    """Return the namespace on the hub that holds a cluster's Works."""
    return EXECUTION_PREFIX + cluster_name


def cluster_name_causes(name: str) -> tuple[Cause, ...]:
    """Return every reason why a cluster cannot be called this."""
    field = "metadata.name"
    found = [causes.invalid(field, name, why) for why in dns1123_label_problems(name)]
    if len(name) > LONGEST_NAME:
        found.append(causes.invalid(field, name, f"must be no more than {LONGEST_NAME} characters"))
    if name.endswith(IMPERSONATOR_SUFFIX):
        why = f"must not end in {IMPERSONATOR_SUFFIX}: Secrets of other clusters are called so"
        found.append(causes.invalid(field, name, why))
    if name in RESERVED_NAMES:
        words = ", ".join(sorted(RESERVED_NAMES))
        found.append(causes.invalid(field, name, f"is reserved, as are all of: {words}"))
    return tuple(found)


def secret_ref_of(cluster: Object) -> SecretRef | None:
    """Return where the credentials are that the hub works with, if it has any."""
    return _ref_at(cluster, "secretRef")


def impersonator_ref_of(cluster: Object) -> SecretRef | None:
    """Return where the credentials are through which users' own rights are used, if any."""
    return _ref_at(cluster, "impersonatorSecretRef")


def _ref_at(cluster: Object, field: str) -> SecretRef | None:
    namespace = find_at(cluster, "spec", field, "namespace")
    name = find_at(cluster, "spec", field, "name")
    return SecretRef(str(namespace), str(name)) if namespace and name else None


def id_of(cluster: Object) -> str:
    """Return the ID that no other cluster has, or an empty text."""
    return str(find_at(cluster, "spec", "id") or "")


def is_pull(cluster: Object) -> bool:
    """Whether an agent inside the cluster reports for it."""
    return find_at(cluster, "spec", "syncMode") == PULL


def keeps_on_leave(cluster: Object) -> bool:
    """Whether what was placed on the cluster stays there when it leaves."""
    return annotations_of(cluster).get(KEEP_ON_LEAVE) == "true"


def taints_of(cluster: Object) -> tuple[Object, ...]:
    """Return the taints of a cluster."""
    return tuple(find_at(cluster, "spec", "taints") or ())


def conditions_of(cluster: Object) -> list[Object]:
    """Return the conditions of a cluster."""
    return list(find_at(cluster, "status", "conditions") or ())


def default_resource_models() -> list[Object]:
    """Return the nine sizes of nodes that are counted unless the Cluster names others."""
    return [
        {
            "grade": grade,
            "ranges": [_range("cpu", _MODEL_CPUS, grade), _range("memory", _MODEL_MEMORY, grade)],
        }
        for grade in range(len(_MODEL_CPUS) - 1)
    ]


def find_same_id(clusters: list[Object], cluster_id: str, own_name: str) -> str | None:
    """Return the name of another cluster that has this ID, or None."""
    if not cluster_id:
        return None
    names = (name_of(each) for each in clusters if id_of(each) == cluster_id)
    return next((name for name in names if name != own_name), None)


def _range(name: str, bounds: tuple[str, ...], grade: int) -> dict[str, Any]:
    return {"name": name, "min": bounds[grade], "max": bounds[grade + 1]}
