"""Which objects of a member are taken in, which are left where they are and why; in which order.

left out       what a controller made, what each cluster writes for itself, what is a cluster's
               own, what belongs to a control plane
on the hub     kinds whose objects have an effect on the hub, too, are taken only when allowed
order          namespaces, definitions, what others need, workloads, what is about workloads
"""

from collections.abc import Iterable, Mapping
from typing import Final

from clusterspace.apis import kinds
from clusterspace.apis.interpreter.templates import Dependency
from clusterspace.apis.kinds import kind_of
from clusterspace.apis.works import is_reserved_namespace, why_at_home
from clusterspace.fleet.execution.provenance import controller_of
from clusterspace.fleet.propagation.templates import is_template
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
)
from clusterspace.kube.resources import GroupKind, GroupResource, ResourceInfo

NAMESPACE: Final = GroupKind("", "Namespace")
DEFINITION: Final = GroupKind("apiextensions.k8s.io", "CustomResourceDefinition")

_NEEDED_VERBS: Final = frozenset({"list", "get", "update"})

_CLUSTERS_OWN: Final[Mapping[GroupResource, str]] = {
    GroupResource(group, resource): why
    for why, resources in {
        "each cluster writes these for itself": (
            ("", "events"), ("events.k8s.io", "events"), ("coordination.k8s.io", "leases"),
            ("", "componentstatuses"),
        ),
        "they are machines and disks of this cluster": (
            ("", "nodes"), ("storage.k8s.io", "csinodes"),
            ("storage.k8s.io", "csistoragecapacities"), ("storage.k8s.io", "volumeattachments"),
            ("resource.k8s.io", "resourceslices"),
        ),
        "controllers of the cluster make them": (
            ("", "endpoints"), ("discovery.k8s.io", "endpointslices"),
            ("apps", "controllerrevisions"),
            ("networking.k8s.io", "ipaddresses"), ("networking.k8s.io", "servicecidrs"),
        ),
        "they are part of how the API server itself works": (
            ("apiregistration.k8s.io", "apiservices"),
            ("flowcontrol.apiserver.k8s.io", "flowschemas"),
            ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
            ("certificates.k8s.io", "certificatesigningrequests"),
            ("certificates.k8s.io", "clustertrustbundles"),
            ("internal.apiserver.k8s.io", "storageversions"),
            ("storagemigration.k8s.io", "storageversionmigrations"),
        ),
    }.items()
    for group, resource in resources
}  # fmt: skip

_RIGHTS: Final = "it gives the same rights"
_CHECKS: Final = "it checks or changes requests as well"
_LIMITS: Final = "it limits templates as well"
_HUB_EFFECTS: Final[Mapping[GroupKind, str]] = {
    GroupKind("rbac.authorization.k8s.io", "ClusterRole"): _RIGHTS,
    GroupKind("rbac.authorization.k8s.io", "ClusterRoleBinding"): _RIGHTS,
    GroupKind("rbac.authorization.k8s.io", "RoleBinding"): _RIGHTS,
    GroupKind("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _CHECKS,
    GroupKind("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _CHECKS,
    GroupKind("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): _CHECKS,
    GroupKind("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): _CHECKS,
    GroupKind("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): _CHECKS,
    GroupKind("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"): _CHECKS,
    GroupKind("", "ResourceQuota"): _LIMITS,
    GroupKind("", "LimitRange"): _LIMITS,
}
"""A template is an object of the hub. Most kinds only lie there; these are obeyed by it."""

_RANKS: Final = (
    (NAMESPACE,),
    (DEFINITION,),
    (
        kinds.SERVICE_ACCOUNT,
        kinds.SECRET,
        GroupKind("", "ConfigMap"),
        kinds.CLAIM,
        kinds.VOLUME,
        GroupKind("storage.k8s.io", "StorageClass"),
        GroupKind("scheduling.k8s.io", "PriorityClass"),
        GroupKind("node.k8s.io", "RuntimeClass"),
        GroupKind("networking.k8s.io", "IngressClass"),
    ),
    (kinds.SERVICE,),
    (
        kinds.DEPLOYMENT,
        kinds.STATEFUL_SET,
        kinds.DAEMON_SET,
        kinds.REPLICA_SET,
        kinds.JOB,
        kinds.CRON_JOB,
        kinds.POD,
        GroupKind("", "ReplicationController"),
        GroupKind("", "PodTemplate"),
    ),
)
_AFTER_WORKLOADS: Final = len(_RANKS)
_LAST: Final = _AFTER_WORKLOADS + 1

_BOOTSTRAPPED: Final = "kubernetes.io/bootstrapping"
_ADDON: Final = "addonmanager.kubernetes.io/mode"
_PROVISIONED: Final = "pv.kubernetes.io/provisioned-by"
_HELM_RELEASE: Final = "helm.sh/release.v1"
_MEMBERSHIP_PREFIX: Final = "karmada-"


def why_resource_left(resource: ResourceInfo) -> str:
    """Return why no object of a resource is taken; empty when they may be."""
    if resource.group_resource in _CLUSTERS_OWN:
        return _CLUSTERS_OWN[resource.group_resource]
    if frozenset(resource.verbs) < _NEEDED_VERBS or "update" not in resource.verbs:
        return "they cannot be written"
    return ""


def why_left(live: Object) -> str:
    """Return why an object is left to its cluster; empty when it may be taken."""
    kind, name = kind_of(live), name_of(live)
    space = name if kind == NAMESPACE else namespace_of(live)
    if is_reserved_namespace(space):
        return "it is in a namespace of the cluster itself"
    if kind == NAMESPACE and name == "default":
        return "every cluster has it"
    if is_being_deleted(live):
        return "it is being deleted"
    if made_by := controller_of(live):
        return f"a {made_by[1]} made it and looks after it"
    if why_at_home(live):
        return "it is a credential of this cluster"
    if not is_template(live):
        return "every cluster makes it for itself"
    labels, annotations = labels_of(live), annotations_of(live)
    if _BOOTSTRAPPED in labels or _ADDON in labels or name.startswith("system:"):
        return "it came with the cluster"
    if kind == GroupKind("scheduling.k8s.io", "PriorityClass") and name.startswith("system-"):
        return "it came with the cluster"
    if kind == kinds.VOLUME and _PROVISIONED in annotations:
        return "a provisioner made it for a claim"
    if kind == kinds.SECRET and live.get("type") == _HELM_RELEASE:
        return "Helm keeps its releases in it"
    if not space and name.startswith(_MEMBERSHIP_PREFIX) and kind.group.startswith("rbac."):
        return "it is part of a membership"
    return ""


def hub_effect(kind: GroupKind) -> str:
    """Return what an object of a kind does on the hub, besides lying there; mostly nothing."""
    return _HUB_EFFECTS.get(kind, "")


def rank_of(kind: GroupKind) -> int:
    """Return where objects of a kind come in the order; what others need comes first."""
    for rank, of_rank in enumerate(_RANKS):
        if kind in of_rank:
            return rank
    return _LAST if _HUB_EFFECTS.get(kind) == _LIMITS else _AFTER_WORKLOADS


def needs_of(
    live: Object, definitions: Mapping[GroupKind, str], needed: Iterable[Dependency]
) -> tuple[str, ...]:
    """Return what an object needs, as people call it.

    `definitions` are names by kind; `needed` is what it names itself, or an interpreter says.
    """
    needs: list[str] = []
    if namespace := namespace_of(live):
        needs.append(f"Namespace {namespace}")
    if definition := definitions.get(kind_of(live)):
        needs.append(f"CustomResourceDefinition {definition}")
    # What is selected by labels is nobody's in particular.
    named = (each for each in needed if each.name)
    needs += (f"{each.kind} {each.namespace}/{each.name}".replace(" /", " ") for each in named)
    match kind_of(live):
        case kinds.AUTOSCALER:
            target: Object = find_at(live, "spec", "scaleTargetRef") or {}
            needs.append(f"{target.get('kind')} {namespace}/{target.get('name')}")
        case kinds.STATEFUL_SET if service := find_at(live, "spec", "serviceName"):
            needs.append(f"Service {namespace}/{service}")
        case kinds.INGRESS:
            needs += sorted(f"Service {namespace}/{each}" for each in _backends(live))
        case _:
            pass
    return tuple(needs)


def _backends(ingress: Object) -> set[str]:
    rules: list[Object] = find_at(ingress, "spec", "rules") or []
    paths = [path for rule in rules for path in find_at(rule, "http", "paths") or ()]
    named = [find_at(path, "backend", "service", "name") for path in paths]
    named.append(find_at(ingress, "spec", "defaultBackend", "service", "name"))
    return {str(each) for each in named if each}
