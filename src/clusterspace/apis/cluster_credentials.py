"""Which Secret is whose: credentials are tied to one Cluster, and to where that Cluster is.

    Cluster west, UID 7c…      spec.apiEndpoint https://10.0.0.7:6443
        ▲ ownerReference, by UID           ▲ annotation clusterspace.io/used-with
    Secret karmada-cluster/west ───────────┘

The owner is Karmada's own mark, which every join sets. The annotation is ours: the hub writes it
when a Secret gets its owner, and both must agree with the Cluster before the token is used. The
authority that vouches for a member is taken from a Secret of the same owner and no other.

What a Cluster says may be changed by those who hold `update` on `clusters/credentials`; what a
Secret says, by those who may write Secrets in `karmada-cluster`. Moving a token takes both.
"""

from typing import Final, cast

from clusterspace.apis.clusters import CLUSTER_NAMESPACE, CLUSTERS, KIND
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
)

SUBRESOURCE: Final = "credentials"
"""`update` on `clusters/credentials`: the right to say where credentials go. It has no URL."""

USED_WITH: Final = "clusterspace.io/used-with"
"""Annotation of a Secret: the one address its token is sent to, and how."""

FIELDS: Final = (
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
    changed = [each for each in FIELDS if _value(new, each) != _value(before, each)]
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
