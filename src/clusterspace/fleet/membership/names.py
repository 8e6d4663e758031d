"""What things are called on both sides of a membership, and where they are."""

from typing import Final

from clusterspace.apis.clusters import (
    CLUSTER_NAMESPACE,
    CLUSTERS,
    IMPERSONATOR_SUFFIX,
    WORKS,
    execution_namespace,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.resources import GroupVersionResource

NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")
SECRETS: Final = GroupVersionResource("", "v1", "secrets")
CONFIG_MAPS: Final = GroupVersionResource("", "v1", "configmaps")
SERVICE_ACCOUNTS: Final = GroupVersionResource("", "v1", "serviceaccounts")
NODES: Final = GroupVersionResource("", "v1", "nodes")
PODS: Final = GroupVersionResource("", "v1", "pods")
CLUSTER_ROLES: Final = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
CLUSTER_ROLE_BINDINGS: Final = GroupVersionResource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings"
)
LEASES: Final = GroupVersionResource("coordination.k8s.io", "v1", "leases")

IMPERSONATOR: Final = "karmada-impersonator"
"""The account, role and binding on the member through which users' own rights are used."""

HUB_MARK: Final = "clusterspace.io/hub-id"
"""Annotation on what a hub made on a member: another hub's things are not ours to remove."""


def service_account(cluster_name: str) -> str:
    """Return the account on the member that the hub works with."""
    return f"karmada-{cluster_name}"


def role(cluster_name: str) -> str:
    """Return the ClusterRole on the member, and the binding of the same name."""
    return f"karmada-controller-manager:{service_account(cluster_name)}"


def impersonation_role(cluster_name: str) -> str:
    """Return the ClusterRole on the member, and the binding of the same name, beside Karmada's."""
    return f"{IMPERSONATOR}:{service_account(cluster_name)}"


def impersonator_secret(cluster_name: str) -> str:
    """Return the Secret on the hub that holds the impersonator's token."""
    return cluster_name + IMPERSONATOR_SUFFIX


def left_behind(cluster_name: str) -> str:
    """Return the ConfigMap on the hub that tells what a forced leave could not clean."""
    return f"{cluster_name}-left-behind"


def cluster_place(cluster_name: str) -> ResourcePath:
    """Return where the Cluster is."""
    return ResourcePath(CLUSTERS, name=cluster_name)


def works_place(cluster_name: str) -> ResourcePath:
    """Return where the Works of a cluster are."""
    return ResourcePath(WORKS, execution_namespace(cluster_name))


def namespace_place(name: str) -> ResourcePath:
    """Return where a namespace is."""
    return ResourcePath(NAMESPACES, name=name)


def account_place(name: str) -> ResourcePath:
    """Return where an account of ours is on a member."""
    return ResourcePath(SERVICE_ACCOUNTS, CLUSTER_NAMESPACE, name)


def secret_place(name: str) -> ResourcePath:
    """Return where a Secret of ours is, on the hub or on a member."""
    return ResourcePath(SECRETS, CLUSTER_NAMESPACE, name)


def lease_place(cluster_name: str) -> ResourcePath:
    """Return where the heartbeat of a Pull cluster is."""
    return ResourcePath(LEASES, CLUSTER_NAMESPACE, cluster_name)


def role_place(name: str) -> ResourcePath:
    """Return where a ClusterRole is."""
    return ResourcePath(CLUSTER_ROLES, name=name)


def role_binding_place(name: str) -> ResourcePath:
    """Return where a ClusterRoleBinding is."""
    return ResourcePath(CLUSTER_ROLE_BINDINGS, name=name)


def left_behind_place(cluster_name: str) -> ResourcePath:
    """Return where it is written what a forced leave could not clean."""
    return ResourcePath(CONFIG_MAPS, CLUSTER_NAMESPACE, left_behind(cluster_name))
