"""What the hub makes for a member, as values; everything goes with its MemberCluster.

An agent may do what its Role in `fleet-member-NAME` says, which is KubeFleet's, and what our own
agent needs beside it: report on the one Cluster, renew the one lease, carry out the Works of the
one execution namespace. Each of these names what it is about. Nothing can be created outside the
agent's own namespaces, for RBAC cannot say under which name.
"""

from typing import Final

from clusterspace.apis.clusters import CLUSTER_NAMESPACE, CLUSTERS, PULL, WORKS, execution_namespace
from clusterspace.apis.clusters import KIND as CLUSTER_KIND
from clusterspace.apis.member_clusters import (
    FLEET_LABEL,
    FLEET_WORKS,
    GROUP,
    INTERNAL_KIND,
    INTERNAL_MEMBER_CLUSTERS,
    identity_of,
    member_namespace,
    owner_reference,
    period_of,
)
from clusterspace.client.places import Place
from clusterspace.fleet.membership import names
from clusterspace.fleet.membership.member_clusters import places
from clusterspace.kube.objects import Object, name_of

_RBAC: Final = "rbac.authorization.k8s.io"
_EVERYTHING: Final = ["*"]
_READ: Final = ["get", "list", "watch"]
_CHANGE: Final = ["get", "update", "patch"]
_EVENTS: Final = {
    "apiGroups": [""],
    "resources": ["events"],
    "verbs": ["get", "list", "update", "patch", "watch", "create"],
}

MEMBER_RULES: Final = (
    *(
        {"apiGroups": [group], "resources": _EVERYTHING, "verbs": _EVERYTHING}
        for group in (GROUP, FLEET_WORKS.group, "networking.fleet.azure.com")
    ),
    _EVENTS,
)
"""KubeFleet's four rules, in its order."""


def namespace(member_cluster: Object) -> Object:
    """Return the namespace a member shares with the hub."""
    place = places.namespace_place(name_of(member_cluster))
    body = _body("v1", "Namespace", place, member_cluster)
    return {**body, "metadata": {**body["metadata"], "labels": {FLEET_LABEL: "true"}}}


def internal(member_cluster: Object, state: str) -> Object:
    """Return what the agent is told: to join or to leave, and how often to be heard."""
    place = places.internal_place(name_of(member_cluster))
    return {
        **_body(INTERNAL_MEMBER_CLUSTERS.api_version, INTERNAL_KIND, place, member_cluster),
        "spec": {"state": state, "heartbeatPeriodSeconds": period_of(member_cluster)},
    }


def member_role(member_cluster: Object) -> Object:
    """Return the agent's Role in the namespace it shares with the hub."""
    return _role(member_cluster, member_namespace(name_of(member_cluster)), MEMBER_RULES)


def lease_role(member_cluster: Object) -> Object:
    """Return the agent's right to renew its lease."""
    own = {"resourceNames": [name_of(member_cluster)]}
    verbs = [*_READ, "update", "patch"]
    rule = {"apiGroups": [names.LEASES.group], "resources": ["leases"], **own, "verbs": verbs}
    return _role(member_cluster, CLUSTER_NAMESPACE, (rule,))


def works_role(member_cluster: Object) -> Object:
    """Return the agent's right to carry out its Works."""
    groups = [WORKS.group]
    rules = (
        {"apiGroups": groups, "resources": ["works"], "verbs": [*_READ, "update", "patch"]},
        {"apiGroups": groups, "resources": ["works/status"], "verbs": _CHANGE},
        _EVENTS,
    )
    return _role(member_cluster, execution_namespace(name_of(member_cluster)), rules)


def cluster_role(member_cluster: Object) -> Object:
    """Return the agent's right to report on its Cluster."""
    own = {"apiGroups": [CLUSTERS.group], "resourceNames": [name_of(member_cluster)]}
    place = places.cluster_role_place(name_of(member_cluster))
    return {
        **_body(f"{_RBAC}/v1", "ClusterRole", place, member_cluster),
        "rules": [
            {**own, "resources": ["clusters"], "verbs": _READ},
            {**own, "resources": ["clusters/status"], "verbs": _CHANGE},
        ],
    }


def role_binding(member_cluster: Object, role_namespace: str) -> Object:
    """Return the binding of a member's identity to its Role in a namespace."""
    name = name_of(member_cluster)
    place = places.binding_place(name, role_namespace)
    role = places.role_place(name, role_namespace).name
    return {
        **_body(f"{_RBAC}/v1", "RoleBinding", place, member_cluster),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": role},
        "subjects": [identity_of(member_cluster)],
    }


def cluster_role_binding(member_cluster: Object) -> Object:
    """Return the binding of a member's identity to its right on its Cluster."""
    name = name_of(member_cluster)
    place = places.cluster_binding_place(name)
    role = places.cluster_role_place(name).name
    return {
        **_body(f"{_RBAC}/v1", "ClusterRoleBinding", place, member_cluster),
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [identity_of(member_cluster)],
    }


def cluster(member_cluster: Object, cluster_id: str) -> Object:
    """Return the Cluster of a member, as every other part of the fleet knows it."""
    place = names.cluster_place(name_of(member_cluster))
    identified = {"id": cluster_id} if cluster_id else {}
    return {
        **_body(CLUSTERS.api_version, CLUSTER_KIND, place, member_cluster),
        "spec": {"syncMode": PULL, **identified},
    }


def _role(member_cluster: Object, role_namespace: str, rules: tuple[Object, ...]) -> Object:
    place = places.role_place(name_of(member_cluster), role_namespace)
    return {
        **_body(f"{_RBAC}/v1", "Role", place, member_cluster),
        "rules": list(rules),
    }


def _body(api_version: str, kind: str, place: Place, member_cluster: Object) -> Object:
    inside = {"namespace": place.namespace} if place.namespace else {}
    owners = [owner_reference(member_cluster)]
    metadata: Object = {"name": place.name, **inside, "ownerReferences": owners}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
