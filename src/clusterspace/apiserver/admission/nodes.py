"""What a node may write: itself, the pods on it, and what belongs to them.

A kubelet is `system:node:NAME` in the group `system:nodes`. Whoever takes over one machine has its
rights; these rules keep them from reaching for the others.
"""

from typing import Final, cast

from clusterspace.apiserver.admission.pods import refused
from clusterspace.apiserver.admission.service_accounts import MIRROR, secret_names
from clusterspace.apiserver.identity.certificates.requests import UnreadableRequest, read_asked
from clusterspace.apiserver.identity.following import find_object
from clusterspace.apiserver.identity.nodes import NODE_USER, node_of
from clusterspace.apiserver.state import EVERY_OPERATION, Admission, HubState, Operation, Plugin
from clusterspace.kube import statuses
from clusterspace.kube.causes import quoted
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    metadata_of,
    uid_of,
    without_value,
)
from clusterspace.kube.resources import GroupResource

_LEASES: Final = "kube-node-lease"
_NODE_SIGNERS: Final = (
    "kubernetes.io/kube-apiserver-client-kubelet",
    "kubernetes.io/kubelet-serving",
)


class NodeRestriction(Plugin):
    """Keeps a node to itself and to the pods that are bound to it."""

    name = "NodeRestriction"
    handles = EVERY_OPERATION

    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        """Refuse what is not this node's to write; others are not looked at."""
        node = node_of(admission.user)
        if node is None or admission.operation is Operation.CONNECT:
            return admission.new
        if not node:
            who = quoted(admission.user.name)
            raise refused(admission, f"could not determine node from user {who}")
        info = admission.served.info
        why = ""
        match info.group, info.kind:
            case "", "Pod":
                why = await self._pod_problem(hub, admission, node)
            case "", "Node":
                why = _node_problem(admission, node)
            case "", "PersistentVolumeClaim":
                why = _claim_problem(admission, node)
            case "coordination.k8s.io", "Lease":
                if admission.namespace != _LEASES:
                    why = f"can only access leases in the {quoted(_LEASES)} system namespace"
                elif admission.name != node:
                    why = "can only access node lease with the same name as the requesting node"
            case "storage.k8s.io", "CSINode" if admission.name != node:
                why = "can only access CSINode with the same name as the requesting node"
            case "resource.k8s.io", "ResourceSlice":
                why = _slice_problem(admission, node)
            case "certificates.k8s.io", "CertificateSigningRequest" if admission.is_create:
                why = _request_problem(admission, node)
            case _:
                pass
        if why:
            raise refused(admission, why)
        return admission.new

    async def _pod_problem(self, hub: HubState, admission: Admission, node: str) -> str:
        pod, old, who = admission.new, admission.old, quoted(node)
        match admission.subresource, admission.operation:
            case "status", Operation.UPDATE:
                if find_at(old, "spec", "nodeName") != node:
                    own = "pods with spec.nodeName set to itself"
                    return f"node {who} can only update pod status for {own}"
                if labels_of(pod) != labels_of(old or {}):
                    return f"node {who} cannot update labels through pod status"
                field = ("status", "resourceClaimStatuses")
                if (find_at(pod, *field) or []) != (find_at(old, *field) or []):
                    return f"node {who} cannot update resource claim statues"
                return ""
            case "", Operation.DELETE:
                if find_at(pod, "spec", "nodeName") != node:
                    return f"node {who} can only delete pods with spec.nodeName set to itself"
                return ""
            case "", Operation.CREATE:
                return await _mirror_problem(hub, pod, node)
            case "", other:
                operation = quoted(str(other))
                return (
                    f"unexpected operation {operation}, node {who} can only create and delete "
                    "mirror pods"
                )
            case subresource, _:
                return (
                    f"unexpected pod subresource {quoted(subresource)}, only 'status' and "
                    "'eviction' are allowed"
                )


async def _mirror_problem(hub: HubState, pod: Object, node: str) -> str:
    """Return why a node may not create a pod: all it may show are those it runs by itself."""
    who = quoted(node)
    if MIRROR not in annotations_of(pod):
        return (
            f"pod does not have {quoted(MIRROR)} annotation, node {who} can only create mirror pods"
        )
    if find_at(pod, "spec", "nodeName") != node:
        return f"node {who} can only create pods with spec.nodeName set to itself"
    owners = cast("list[Object]", metadata_of(pod).get("ownerReferences") or [])
    if len(owners) > 1:
        return f"node {who} can only create pods with a single owner reference set to itself"
    named = [(each.get("apiVersion"), each.get("kind"), each.get("name")) for each in owners]
    if named != [("v1", "Node", node)]:
        return f"node {who} can only create pods with an owner reference set to itself"
    (owner,) = owners
    if owner.get("controller") is not True:
        return f"node {who} can only create pods with a controller owner reference set to itself"
    if owner.get("blockOwnerDeletion") is True:
        return f"node {who} must not set blockOwnerDeletion on an owner reference"
    found = await find_object(hub, "", "nodes", "", node)
    if found is None:
        raise statuses.not_found(GroupResource("", "node"), node)
    if owner.get("uid") != uid_of(found):
        return f"node {node} UID mismatch: expected {owner.get('uid')} got {uid_of(found)}"
    referenced = _referenced_by(cast("Object", pod["spec"]))
    return f"node {who} can not create pods that reference {referenced}" if referenced else ""


_VOLUMES_BY_REFERENCE: Final = (
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
)
_PROJECTED: Final = (
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
)


def _referenced_by(spec: Object) -> str:
    """Return which other objects a pod needs, the first that is found; empty when none."""
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    if any(True for _ in secret_names(spec)):
        return "secrets"
    volumes = cast("list[Object]", spec.get("volumes") or [])
    sources = [
        cast("Object", source)
        for volume in volumes
        for source in find_at(volume, "projected", "sources") or ()
    ]
    variables = [
        cast("Object", each)
        for field in ("containers", "initContainers", "ephemeralContainers")
        for container in cast("list[Object]", spec.get(field) or [])
        for each in (*(container.get("env") or ()), *(container.get("envFrom") or ()))
    ]
    if any(
        each.get("configMapRef") or find_at(each, "valueFrom", "configMapKeyRef")
        for each in variables
    ) or any(each.get("configMap") for each in (*volumes, *sources)):
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for wanted, among in ((_VOLUMES_BY_REFERENCE, volumes), (_PROJECTED, sources)):
        for each in among:
            for field, what in wanted:
                if each.get(field) is not None:
                    return what
    return ""


_KUBELET_LABELS: Final = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_KUBELET_DOMAINS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESTRICTED: Final = "node-restriction.kubernetes.io"


def _is_under(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == each or domain.endswith(f".{each}") for each in parents)


def _forbidden_labels(new: Object, old: Object) -> str:
    """Return the labels by which a node would draw the pods of others to itself."""
    after, before = labels_of(new), labels_of(old)
    changed = {key for key in {**after, **before} if after.get(key) != before.get(key)}
    forbidden: list[str] = []
    for key in sorted(changed):
        domain = key.partition("/")[0] if "/" in key else ""
        is_known = key in _KUBELET_LABELS or _is_under(domain, _KUBELET_DOMAINS)
        is_ours = _is_under(domain, ("kubernetes.io", "k8s.io"))
        if _is_under(domain, (_RESTRICTED,)) or (is_ours and not is_known):
            forbidden.append(key)
    return ", ".join(forbidden)


def _node_problem(admission: Admission, node: str) -> str:
    new, old, who = admission.new, admission.old, quoted(node)
    if admission.name != node:
        return f"node {who} is not allowed to modify node {quoted(admission.name)}"
    source = ("spec", "configSource")
    if admission.operation is Operation.CREATE:
        if find_at(new, *source) is not None:
            return f"node {who} is not allowed to create pods with a non-nil configSource"
        if forbidden := _forbidden_labels(new, {}):
            return f"node {who} is not allowed to set the following labels: {forbidden}"
    elif admission.operation is Operation.UPDATE and old is not None:
        if find_at(new, *source) is not None and find_at(new, *source) != find_at(old, *source):
            return f"node {who} is not allowed to update configSource to a new non-nil configSource"
        if (find_at(new, "spec", "taints") or []) != (find_at(old, "spec", "taints") or []):
            return f"node {who} is not allowed to modify taints"
        if metadata_of(new).get("ownerReferences") != metadata_of(old).get("ownerReferences"):
            return f"node {who} is not allowed to modify ownerReferences"
        if forbidden := _forbidden_labels(new, old):
            return f"is not allowed to modify labels: {forbidden}"
    return ""


def _claim_problem(admission: Admission, node: str) -> str:
    if admission.subresource != "status" or admission.old is None:
        return "may only update PVC status"

    def kept(claim: Object) -> Object:
        for path in (
            ("metadata", "resourceVersion"),
            ("metadata", "managedFields"),
            ("status", "capacity"),
            ("status", "conditions"),
            ("status", "allocatedResources"),
            ("status", "allocatedResourceStatuses"),
        ):
            claim = without_value(claim, *path)
        return claim

    if kept(admission.new) == kept(admission.old):
        return ""
    return (
        f"node {quoted(node)} is not allowed to update fields other than status.quantity and "
        "status.conditions"
    )


def _slice_problem(admission: Admission, node: str) -> str:
    if find_at(admission.new, "spec", "nodeName") == node:
        return ""
    if admission.operation in (Operation.CREATE, Operation.DELETE):
        verb = admission.operation.value.lower()
        return f"can only {verb} ResourceSlice with the same NodeName as the requesting node"
    return ""


def _request_problem(admission: Admission, node: str) -> str:
    if find_at(admission.new, "spec", "signerName") not in _NODE_SIGNERS:
        return ""
    try:
        asked = read_asked(admission.new)
    except UnreadableRequest as error:
        return f"unable to parse csr: {error}"
    if asked.common_names != (f"{NODE_USER}{node}",):
        return f"can only create a node CSR with CN={NODE_USER}{node}"
    return ""
