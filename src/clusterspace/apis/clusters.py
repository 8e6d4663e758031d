"""Cluster: how to reach a member, and whether it is alive; the names and rules around it.

Names, namespaces, finalizers and taints are Karmada's, so that its clients find what they expect.
"""

from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_label_problems
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
)
from clusterspace.kube.resources import GroupVersionResource

CLUSTERS: Final = GroupVersionResource("cluster.karmada.io", "v1alpha1", "clusters")
WORKS: Final = GroupVersionResource("work.karmada.io", "v1alpha1", "works")
KIND: Final = "Cluster"

PUSH: Final = "Push"
PULL: Final = "Pull"

DELETIONS_PAUSED: Final = "DeletionsPaused"
"""Condition of a Cluster: True while nothing is deleted there, False since it was resumed."""

NAMESPACES_KEPT: Final = "NamespacesKept"
"""Condition of a Cluster: True when namespaces of ours stayed, for somebody's objects are there."""

TOO_MANY_DELETIONS: Final = "TooManyDeletions"
DELETIONS_RESUMED: Final = "Resumed"

CLUSTER_NAMESPACE: Final = "karmada-cluster"
"""Where credentials and heartbeats are: on the hub, and under the same name on each member."""

SYSTEM_NAMESPACE: Final = "karmada-system"
"""Where Karmada's controllers elect their leaders on the hub, and agents live on members."""

PARTS_NAMESPACE: Final = "clusterspace-system"
"""Where the accounts of our parts are, on a hub that is a kube-apiserver."""

EXECUTION_PREFIX: Final = "karmada-es-"
FINALIZER: Final = "karmada.io/cluster-controller"
WORK_FINALIZER: Final = "karmada.io/execution-controller"
WITHDRAWN_PREFIX: Final = "clusterspace-withdrawn-"
"""What the name of a ConfigMap on a member begins with that tells what was withdrawn from it."""

KEEP_ON_LEAVE: Final = "clusterspace.io/keep-resources-on-leave"
SYSTEM_LABELS: Final = {"karmada.io/system": "true"}

NOT_READY_TAINT: Final = "cluster.karmada.io/not-ready"
UNREACHABLE_TAINT: Final = "cluster.karmada.io/unreachable"
CORDON_TAINT: Final = "cluster.karmada.io/unschedulable"
DRAIN_TAINT: Final = "clusterspace.io/drain"
"""With effect NoExecute: a person has all that may go elsewhere leave the cluster."""

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


# -- which Secret is whose: credentials are tied to one Cluster, and to where it is ------------

#     Cluster west, UID 7c…      spec.apiEndpoint https://10.0.0.7:6443
#         ▲ ownerReference, by UID           ▲ annotation clusterspace.io/used-with
#     Secret karmada-cluster/west ───────────┘
#
# The owner is Karmada's own mark, which every join sets. The annotation is ours: the hub writes it
# when a Secret gets its owner, and both must agree with the Cluster before the token is used. The
# authority that vouches for a member is taken from a Secret of the same owner and no other.
#
# What a Cluster says may be changed by those who hold `update` on `clusters/credentials`; what a
# Secret says, by those who may write Secrets in `karmada-cluster`. Moving a token takes both.


CREDENTIALS_SUBRESOURCE: Final = "credentials"
"""`update` on `clusters/credentials`: the right to say where credentials go. It has no URL."""

USED_WITH: Final = "clusterspace.io/used-with"
"""Annotation of a Secret: the one address its token is sent to, and how."""

CREDENTIAL_FIELDS: Final = (
    "apiEndpoint",
    "secretRef",
    "impersonatorSecretRef",
    "insecureSkipTLSVerification",
    "proxyURL",
    "proxyHeader",
)
"""What a Cluster says of where credentials go. Left out, empty and false are the same."""


def changed_fields(new: Object, old: Object | None) -> tuple[str, ...]:
    """Return which of these fields a write sets, changes or removes.

    A Pull cluster that becomes a Push one changes who uses its credentials, so that counts too.
    """
    before = old or {}
    changed = [each for each in CREDENTIAL_FIELDS if _value(new, each) != _value(before, each)]
    if old is not None and _value(new, "syncMode") != _value(old, "syncMode"):
        changed.append("syncMode")
    return tuple(changed)


def destination_of(cluster: Object) -> str:
    """Return where a Cluster has its credentials sent, as the annotation says it."""
    server = str(_value(cluster, "apiEndpoint") or "").rstrip("/")
    proxy = _value(cluster, "proxyURL")
    is_unverified = _value(cluster, "insecureSkipTLSVerification")
    words = (server, f"via {proxy}" if proxy else "", "unverified" if is_unverified else "")
    return " ".join(filter(None, words))


def owning_clusters(secret: Object) -> tuple[Object, ...]:
    """Return the references by which a Secret names Clusters as its owners."""
    references = cast("list[object]", metadata_of(secret).get("ownerReferences") or [])
    owners = [cast("Object", each) for each in references if isinstance(each, dict)]
    groups = [str(each.get("apiVersion") or "").partition("/")[0] for each in owners]
    return tuple(
        owner
        for owner, group in zip(owners, groups, strict=True)
        if (group, owner.get("kind")) == (CLUSTERS.group, KIND)
    )


def is_claimed(secret: Object) -> bool:
    """Whether a Secret belongs to any Cluster yet: a join says so last."""
    return bool(owning_clusters(secret))


def belongs_to(secret: Object, cluster: Object) -> bool:
    """Whether a Secret is this Cluster's, and no other's."""
    identity = (name_of(cluster), uid_of(cluster))
    owners = {(str(each.get("name")), str(each.get("uid"))) for each in owning_clusters(secret)}
    return bool(identity[1]) and owners == {identity}


def misuse_of(secret: Object, cluster: Object) -> str:
    """Return why a Cluster may not be reached with this Secret; empty when it may.

    The sentence names the Secret and what to do, and no address: users read it too.
    """
    what = f"Secret {name_of(secret)} on the hub"
    if namespace_of(secret) != CLUSTER_NAMESPACE:
        return f"{what} is not in namespace {CLUSTER_NAMESPACE}, where credentials are"
    if not is_claimed(secret):
        return f"{what} names no Cluster as its owner: join the cluster again"
    if not belongs_to(secret, cluster):
        return f"{what} belongs to another Cluster: join this one to give it credentials"
    if annotations_of(secret).get(USED_WITH) != destination_of(cluster):
        return (
            f"{what} was given for another address than the Cluster has now: join the cluster "
            f"again, or remove the Secret's annotation {USED_WITH} if the change was meant"
        )
    return ""


def _value(cluster: Object, name: str) -> object:
    return find_at(cluster, "spec", name) or None
