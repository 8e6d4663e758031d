"""Where things are on the hub that a MemberCluster has."""

from typing import Final

from clusterspace.apis.clusters import CLUSTER_NAMESPACE, execution_namespace
from clusterspace.apis.member_clusters import (
    FLEET_WORKS,
    INTERNAL_MEMBER_CLUSTERS,
    MEMBER_CLUSTERS,
    member_namespace,
)
from clusterspace.client.places import Place
from clusterspace.fleet.membership import names
from clusterspace.kube.resources import GroupVersionResource

_RBAC: Final = "rbac.authorization.k8s.io"
ROLES: Final = GroupVersionResource(_RBAC, "v1", "roles")
ROLE_BINDINGS: Final = GroupVersionResource(_RBAC, "v1", "rolebindings")


def member_cluster_place(cluster_name: str) -> Place:
    """Return where the MemberCluster is."""
    return Place(MEMBER_CLUSTERS, name=cluster_name)


def internal_place(cluster_name: str) -> Place:
    """Return where the InternalMemberCluster is."""
    return Place(INTERNAL_MEMBER_CLUSTERS, member_namespace(cluster_name), cluster_name)


def fleet_works_place(cluster_name: str) -> Place:
    """Return where the fleet Works of a member are."""
    return Place(FLEET_WORKS, member_namespace(cluster_name))


def namespace_place(cluster_name: str) -> Place:
    """Return where the namespace is that a member shares with the hub."""
    return names.namespace_place(member_namespace(cluster_name))


def role_place(cluster_name: str, namespace: str) -> Place:
    """Return where the agent's Role in one of its namespaces is."""
    return Place(ROLES, namespace, f"fleet-role-{cluster_name}")


def binding_place(cluster_name: str, namespace: str) -> Place:
    """Return where the binding to that Role is."""
    return Place(ROLE_BINDINGS, namespace, f"fleet-rolebinding-{cluster_name}")


def cluster_role_place(cluster_name: str) -> Place:
    """Return where the agent's rights on its Cluster are."""
    return names.role_place(f"fleet-role-{cluster_name}")


def cluster_binding_place(cluster_name: str) -> Place:
    """Return where the binding to those is."""
    return names.role_binding_place(f"fleet-rolebinding-{cluster_name}")


def shared_rights(cluster_name: str) -> tuple[Place, ...]:
    """Return the rights of an agent that no namespace of its own takes along when it goes."""
    return (
        cluster_binding_place(cluster_name),
        cluster_role_place(cluster_name),
        binding_place(cluster_name, CLUSTER_NAMESPACE),
        role_place(cluster_name, CLUSTER_NAMESPACE),
    )


def works_namespace(cluster_name: str) -> Place:
    """Return where the namespace of the cluster's Works is."""
    return names.namespace_place(execution_namespace(cluster_name))
