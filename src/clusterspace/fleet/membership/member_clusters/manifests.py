"""What the hub makes for a member, where, and as values; everything goes with its MemberCluster.

An agent may do what its Role in `fleet-member-NAME` says, which is KubeFleet's and all that
KubeFleet's agent gets. Our own gets what it needs beside it once it has said that it is ours:
report on the one Cluster, renew the one lease, carry out the Works of the one execution namespace.
Each of these names what it is about. Nothing can be created outside the agent's own namespaces, for
RBAC cannot say under which name.
"""

from typing import Final

import msgspec

from clusterspace.apis import clusters, member_clusters
from clusterspace.apis.clusters import (
    CLUSTER_NAMESPACE,
    CLUSTERS,
    KEEP_ON_LEAVE,
    PULL,
    WORKS,
    execution_namespace,
)
from clusterspace.apis.clusters import KIND as CLUSTER_KIND
from clusterspace.apis.interpreters import CUSTOMIZATIONS, WEBHOOK_CONFIGURATIONS
from clusterspace.apis.member_clusters import (
    AGENT,
    FLEET_LABEL,
    FLEET_WORKS,
    GROUP,
    INTERNAL_KIND,
    INTERNAL_MEMBER_CLUSTERS,
    LEAVE,
    MEMBER_CLUSTERS,
    identity_of,
    keeps_resources,
    member_namespace,
    owner_reference,
    period_of,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.controller import with_taints
from clusterspace.kube.objects import Object, annotations_of, labels_of, name_of, with_metadata
from clusterspace.kube.resources import GroupVersionResource

_RBAC: Final = "rbac.authorization.k8s.io"
ROLES: Final = GroupVersionResource(_RBAC, "v1", "roles")
ROLE_BINDINGS: Final = GroupVersionResource(_RBAC, "v1", "rolebindings")


def member_cluster_path(cluster_name: str) -> ResourcePath:
    """Return where the MemberCluster is."""
    return ResourcePath(MEMBER_CLUSTERS, name=cluster_name)


def internal_path(cluster_name: str) -> ResourcePath:
    """Return where the InternalMemberCluster is."""
    return ResourcePath(INTERNAL_MEMBER_CLUSTERS, member_namespace(cluster_name), cluster_name)


def fleet_works_path(cluster_name: str) -> ResourcePath:
    """Return where the fleet Works of a member are."""
    return ResourcePath(FLEET_WORKS, member_namespace(cluster_name))


def member_namespace_path(cluster_name: str) -> ResourcePath:
    """Return where the namespace is that a member shares with the hub."""
    return manifests.namespace_path(member_namespace(cluster_name))


def role_path(cluster_name: str, namespace: str) -> ResourcePath:
    """Return where the agent's Role in one of its namespaces is."""
    return ResourcePath(ROLES, namespace, f"fleet-role-{cluster_name}")


def binding_path(cluster_name: str, namespace: str) -> ResourcePath:
    """Return where the binding to that Role is."""
    return ResourcePath(ROLE_BINDINGS, namespace, f"fleet-rolebinding-{cluster_name}")


def cluster_role_path(cluster_name: str) -> ResourcePath:
    """Return where the agent's rights on its Cluster are."""
    return manifests.role_path(f"fleet-role-{cluster_name}")


def cluster_binding_path(cluster_name: str) -> ResourcePath:
    """Return where the binding to those is."""
    return manifests.role_binding_path(f"fleet-rolebinding-{cluster_name}")


def shared_rights(cluster_name: str) -> tuple[ResourcePath, ...]:
    """Return the rights of an agent that no namespace of its own takes along when it goes."""
    return (
        cluster_binding_path(cluster_name),
        cluster_role_path(cluster_name),
        binding_path(cluster_name, CLUSTER_NAMESPACE),
        role_path(cluster_name, CLUSTER_NAMESPACE),
    )


def works_namespace_path(cluster_name: str) -> ResourcePath:
    """Return where the namespace of the cluster's Works is."""
    return manifests.namespace_path(execution_namespace(cluster_name))


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
    path = member_namespace_path(name_of(member_cluster))
    body = _body("v1", "Namespace", path, member_cluster)
    return {**body, "metadata": {**body["metadata"], "labels": {FLEET_LABEL: "true"}}}


def internal(member_cluster: Object, state: str) -> Object:
    """Return the InternalMemberCluster: whether to join or to leave, and how often to be heard."""
    path = internal_path(name_of(member_cluster))
    body = _body(INTERNAL_MEMBER_CLUSTERS.api_version, INTERNAL_KIND, path, member_cluster)
    if state == LEAVE and keeps_resources(member_cluster):
        # The agent cannot read the MemberCluster, and says what became of what was placed.
        body = with_metadata(body, annotations={KEEP_ON_LEAVE: "true"})
    spec = {"state": state, "heartbeatPeriodSeconds": period_of(member_cluster)}
    return {**body, "spec": spec}


def member_role(member_cluster: Object) -> Object:
    """Return the agent's Role in the namespace it shares with the hub."""
    return _role(member_cluster, member_namespace(name_of(member_cluster)), MEMBER_RULES)


def lease_role(member_cluster: Object) -> Object:
    """Return the agent's right to renew its lease."""
    own = {"resourceNames": [name_of(member_cluster)]}
    verbs = [*_READ, "update", "patch"]
    rule = {"apiGroups": [manifests.LEASES.group], "resources": ["leases"], **own, "verbs": verbs}
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
    path = cluster_role_path(name_of(member_cluster))
    return {
        **_body(f"{_RBAC}/v1", "ClusterRole", path, member_cluster),
        "rules": [
            {**own, "resources": ["clusters"], "verbs": _READ},
            {**own, "resources": ["clusters/status"], "verbs": _CHANGE},
            # What people say of kinds of their own, which the agent goes by.
            {
                "apiGroups": [CUSTOMIZATIONS.group],
                "resources": [CUSTOMIZATIONS.resource, WEBHOOK_CONFIGURATIONS.resource],
                "verbs": _READ,
            },
        ],
    }


def role_binding(member_cluster: Object, role_namespace: str) -> Object:
    """Return the binding of a member's identity to its Role in a namespace."""
    name = name_of(member_cluster)
    path = binding_path(name, role_namespace)
    role = role_path(name, role_namespace).name
    return {
        **_body(f"{_RBAC}/v1", "RoleBinding", path, member_cluster),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": role},
        "subjects": [identity_of(member_cluster)],
    }


def cluster_role_binding(member_cluster: Object) -> Object:
    """Return the binding of a member's identity to its right on its Cluster."""
    name = name_of(member_cluster)
    path = cluster_binding_path(name)
    role = cluster_role_path(name).name
    return {
        **_body(f"{_RBAC}/v1", "ClusterRoleBinding", path, member_cluster),
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [identity_of(member_cluster)],
    }


def cluster(member_cluster: Object, cluster_id: str, agent: str = "") -> Object:
    """Return the Cluster of a member, as every other part of the fleet knows it."""
    path = manifests.cluster_path(name_of(member_cluster))
    identified = {"id": cluster_id} if cluster_id else {}
    body = _body(CLUSTERS.api_version, CLUSTER_KIND, path, member_cluster)
    if agent:
        body = with_metadata(body, annotations={AGENT: agent})
    return {**body, "spec": {"syncMode": PULL, **identified}}


def _role(member_cluster: Object, role_namespace: str, rules: tuple[Object, ...]) -> Object:
    path = role_path(name_of(member_cluster), role_namespace)
    return {
        **_body(f"{_RBAC}/v1", "Role", path, member_cluster),
        "rules": list(rules),
    }


def _body(api_version: str, kind: str, path: ResourcePath, member_cluster: Object) -> Object:
    inside = {"namespace": path.namespace} if path.namespace else {}
    owners = [owner_reference(member_cluster)]
    metadata: Object = {"name": path.name, **inside, "ownerReferences": owners}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


_RESTORED: Final = ("rules", "subjects", "spec")
"""What of an object is put back when somebody changes it, where the object has it."""


def restored(present: Object, desired: Object) -> Object:
    """Return an object as it is to be; what others may add stays."""
    kept = {field: desired[field] for field in _RESTORED if field in desired}
    labels = {**labels_of(present), **labels_of(desired)}
    annotations = {**annotations_of(present), **annotations_of(desired)}
    marked = with_metadata(present, labels=labels or None, annotations=annotations or None)
    owner = desired["metadata"]["ownerReferences"][0]
    owners: list[Object] = list(present["metadata"].get("ownerReferences") or [])
    if not any(each.get("uid") == owner["uid"] for each in owners):
        marked = with_metadata(marked, ownerReferences=[*owners, owner])
    return {**marked, **kept}


MIRRORED: Final = "clusterspace.io/mirrored-from-membercluster"
"""Annotation of a Cluster: what of it came from its MemberCluster, as JSON."""

_TAINT_FIELDS: Final = ("key", "value", "effect")


class Mirrored(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields of a Cluster that came from its MemberCluster."""

    labels: tuple[str, ...] = ()
    taints: tuple[tuple[str, str, str], ...] = ()


def mirrored(cluster: Object, member_cluster: Object) -> Object:
    """Return the Cluster with the labels and taints its MemberCluster has now.

    Others write both fields too: health taints, `cordon`, labels people give the Cluster. So it is
    written down what came from the MemberCluster, and only that is changed or taken back:

        mirrored before    k=v:NoSchedule
        MemberCluster now  gpu=yes:NoSchedule
        Cluster            k=v, not-ready   ──>   not-ready, gpu=yes
    """
    before = read_mirrored(cluster)
    labels = {key: text for key, text in labels_of(cluster).items() if key not in before.labels}
    merged = {**labels, **labels_of(member_cluster)}
    kept = [each for each in clusters.taints_of(cluster) if _taint_key(each) not in before.taints]
    added = [
        {field: each[field] for field in _TAINT_FIELDS if each.get(field)}
        for each in member_clusters.taints_of(member_cluster)
        if _taint_key(each) not in map(_taint_key, kept)
    ]
    now = Mirrored(tuple(sorted(labels_of(member_cluster))), tuple(map(_taint_key, added)))
    annotations = {**annotations_of(cluster), MIRRORED: msgspec.json.encode(now).decode()}
    labelled = with_metadata(cluster, labels=merged or None, annotations=annotations)
    # In the order the Cluster has them, so that no order is fought over.
    desired = {_taint_key(each): each for each in (*kept, *added)}
    order = [_taint_key(each) for each in clusters.taints_of(cluster)]
    first = [desired.pop(key) for key in order if key in desired]
    return with_taints(labelled, [*first, *desired.values()])


def read_mirrored(cluster: Object) -> Mirrored:
    """Return the record of what came from the MemberCluster; empty if it is unreadable."""
    try:
        return msgspec.json.decode(annotations_of(cluster).get(MIRRORED, "{}"), type=Mirrored)
    except msgspec.DecodeError:
        return Mirrored()


def _taint_key(taint: Object) -> tuple[str, str, str]:
    key, value, effect = (str(taint.get(field) or "") for field in _TAINT_FIELDS)
    return key, value, effect
