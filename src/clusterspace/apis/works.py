"""Bindings and Works of work.karmada.io: one template on its clusters; the manifests of one.

    template ──> ResourceBinding, ClusterResourceBinding ──> a Work per cluster ──> Report back

And confinement: what never leaves the hub, and how far what a namespace causes may go.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.apis import member_clusters, stamps
from clusterspace.apis.clusters import (
    CLUSTER_NAMESPACE,
    EXECUTION_PREFIX,
    PARTS_NAMESPACE,
    SYSTEM_NAMESPACE,
)
from clusterspace.apis.kinds import SECRET, kind_of
from clusterspace.apis.stamps import binding_name
from clusterspace.kube.conditions import TRUE, find_condition
from clusterspace.kube.objects import Object, annotations_of, find_at, name_of, namespace_of
from clusterspace.kube.resources import GroupKind, GroupVersionKind, GroupVersionResource

# -- one template, one policy, the chosen clusters ---------------------------------------------


BINDING_API_VERSION: Final = "work.karmada.io/v1alpha2"
RESOURCE_BINDING: Final = "ResourceBinding"
CLUSTER_RESOURCE_BINDING: Final = "ClusterResourceBinding"

RESOURCE_BINDINGS: Final = GroupVersionResource("work.karmada.io", "v1alpha2", "resourcebindings")
CLUSTER_RESOURCE_BINDINGS: Final = GroupVersionResource(
    "work.karmada.io", "v1alpha2", "clusterresourcebindings"
)


@dataclass(frozen=True, slots=True)
class TemplateReference:
    """Which object on the hub a binding is about, and in which state it was last looked at."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str

    @property
    def group_version_kind(self) -> GroupVersionKind:
        """The kind of the template."""
        return GroupVersionKind.of(self.api_version, self.kind)

    @property
    def subject(self) -> tuple[str, str, str, str]:
        """Which object, whatever its version and state: group, kind, namespace and name."""
        return self.api_version.rpartition("/")[0], self.kind, self.namespace, self.name

    @property
    def key(self) -> str:
        """Its name, with its namespace before it if it has one."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def outline(self) -> Object:
        """As much of the template as an Event needs; the object itself may not be at hand."""
        metadata = {"name": self.name, "namespace": self.namespace, "uid": self.uid}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata}


@dataclass(frozen=True, slots=True)
class TargetCluster:
    """A cluster the template goes to, with its share of the replicas."""

    name: str
    replicas: int = 0


@dataclass(frozen=True, slots=True)
class Requirer:
    """A binding that needs this one's template beside its own, and where."""

    namespace: str
    name: str
    clusters: tuple[TargetCluster, ...] = ()


def resource_for(namespace: str) -> GroupVersionResource:
    """Return which bindings belong to templates of this namespace, or of none."""
    return RESOURCE_BINDINGS if namespace else CLUSTER_RESOURCE_BINDINGS


def is_for_cluster_scope(binding: Object) -> bool:
    """Whether the binding is of a template without a namespace."""
    return binding.get("kind") == CLUSTER_RESOURCE_BINDING


def name_for(template: Object) -> str:
    """Return the name of a template's binding."""
    return binding_name(str(template.get("kind")), name_of(template))


def template_of(binding: Object) -> TemplateReference:
    """Return which template a binding is about."""
    named = find_at(binding, "spec", "resource")
    reference = cast("Object", named) if isinstance(named, dict) else {}
    return TemplateReference(
        api_version=str(reference.get("apiVersion") or ""),
        kind=str(reference.get("kind") or ""),
        namespace=str(reference.get("namespace") or ""),
        name=str(reference.get("name") or ""),
        uid=str(reference.get("uid") or ""),
        resource_version=str(reference.get("resourceVersion") or ""),
    )


def clusters_of(binding: Object) -> tuple[TargetCluster, ...]:
    """Return the clusters the scheduler chose."""
    return _read_clusters(find_at(binding, "spec", "clusters"))


def requirers_of(binding: Object) -> tuple[Requirer, ...]:
    """Return the bindings that need this one's template."""
    required_by: list[Object] = find_at(binding, "spec", "requiredBy") or []
    return tuple(
        Requirer(
            namespace=str(each.get("namespace") or ""),
            name=str(each.get("name") or ""),
            clusters=_read_clusters(each.get("clusters")),
        )
        for each in required_by
    )


def replicas_of(binding: Object) -> int:
    """Return how many replicas the template wants; 0 for what has none."""
    return int(find_at(binding, "spec", "replicas") or 0)


def placement_of(binding: Object) -> Object | None:
    """Return where the policy says the template may go; None when there is no policy of its own."""
    return find_at(binding, "spec", "placement")


def propagates_dependencies(binding: Object) -> bool:
    """Whether what the template needs goes with it."""
    return find_at(binding, "spec", "propagateDeps") is True


def conflict_resolution_of(binding: Object) -> str:
    """Return the binding's `conflictResolution`; Abort by default."""
    return str(find_at(binding, "spec", "conflictResolution") or "Abort")


def preserves_resources(binding_or_work: Object) -> bool:
    """Whether clusters keep their objects when the binding, or the one Work, goes."""
    return find_at(binding_or_work, "spec", "preserveResourcesOnDeletion") is True


def controller_uid_of(binding: Object) -> str:
    """Return the UID of the template that owns the binding, or an empty text."""
    owners: list[Object] = find_at(binding, "metadata", "ownerReferences") or []
    ruling = (str(each.get("uid") or "") for each in owners if each.get("controller"))
    return next(ruling, "")


def reference_to(template: Object) -> Object:
    """Return `spec.resource` for a template."""
    named = {
        "apiVersion": template.get("apiVersion"),
        "kind": template.get("kind"),
        "namespace": namespace_of(template),
        "name": name_of(template),
        "uid": find_at(template, "metadata", "uid"),
        "resourceVersion": find_at(template, "metadata", "resourceVersion"),
    }
    return {key: value for key, value in named.items() if value}


def _read_clusters(listed: list[Object] | None) -> tuple[TargetCluster, ...]:
    return tuple(
        TargetCluster(str(each.get("name") or ""), int(each.get("replicas") or 0))
        for each in listed or ()
    )


# -- the manifests one cluster must hold, and what it reported back ----------------------------


WORK_API_VERSION: Final = "work.karmada.io/v1alpha1"
WORK: Final = "Work"

APPLIED: Final = "Applied"
DISPATCHING: Final = "Dispatching"

ALREADY_EXISTS: Final = "already exists in the cluster"
"""In what is said of a manifest whose place is taken by an object that is not ours."""
CO_OWNED: Final = "it is not shared unless applyStrategy.allowCoOwnership is true"
"""In what is said of one whose object has owners on the member."""

UNSCHEDULABLE: Final = "unschedulableReplicas"
"""In the status that a cluster reports of a workload: replicas that have long found no node."""

REPORTED_ENDPOINTS: Final = "endpointSlices"
"""In the status that a cluster reports of a Service it exports: the slices others may import."""

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
UNKNOWN: Final = "Unknown"


@dataclass(frozen=True, slots=True)
class Report:
    """What a cluster says of the one object a Work holds; `status` is None until it was read."""

    cluster: str
    is_applied: bool
    message: str = ""
    """Why it is not applied."""
    status: Object | None = None
    health: str = UNKNOWN


def cluster_of(work: Object) -> str:
    """Return the cluster a Work is for: its namespace is that cluster's execution space."""
    return namespace_of(work).removeprefix(EXECUTION_PREFIX)


def manifests_of(work: Object) -> tuple[Object, ...]:
    """Return the objects the cluster must hold."""
    return tuple(find_at(work, "spec", "workload", "manifests") or ())


def suspends_dispatching(work: Object) -> bool:
    """Whether the cluster is not to be changed for now."""
    return find_at(work, "spec", "suspendDispatching") is True


def binding_key_of(work: Object) -> str:
    """Return the key of the binding a Work is from; empty for one that is from no binding.

    A key with a namespace is a ResourceBinding's, one without a ClusterResourceBinding's.
    """
    annotations = annotations_of(work)
    name = annotations.get(stamps.BINDING_NAME)
    if name:
        return f"{annotations.get(stamps.BINDING_NAMESPACE, '')}/{name}"
    return annotations.get(stamps.CLUSTER_BINDING_NAME, "")


def report_of(work: Object) -> Report:
    """Return the cluster's report about the Work's object."""
    conditions = find_at(work, "status", "conditions")
    applied = find_condition(conditions, APPLIED) or {}
    if applied.get("status") != TRUE:
        return Report(cluster_of(work), is_applied=False, message=str(applied.get("message") or ""))
    # Only a status of the manifest the Work now holds counts; an older one is no answer.
    manifests = manifests_of(work)
    expected = identifier_of(manifests[0], 0) if manifests else None
    listed: list[Object] = find_at(work, "status", "manifestStatuses") or []
    matching = (each for each in listed if expected and each.get("identifier") == expected)
    reported = next(matching, Object())
    status: Object | None = reported.get("status")
    if isinstance(status, dict) and REPORTED_ENDPOINTS in status:
        # Of the Service that it exports: for those who import it, and no status of the object.
        status = {key: each for key, each in status.items() if key != REPORTED_ENDPOINTS} or None
    return Report(
        cluster_of(work),
        is_applied=True,
        status=status,
        health=str(reported.get("health") or UNKNOWN),
    )


DELETION_ASKED: Final = "clusterspace.io/deletion-asked-for"
"""Annotation of a Work: `true` when it goes because somebody deleted its template."""


def identifier_of(manifest: Object, ordinal: int) -> Object:
    """Return how a Work's status names one of its manifests; what is empty is left out."""
    kind = GroupVersionKind.of(str(manifest.get("apiVersion") or ""), str(manifest.get("kind")))
    named: dict[str, Any] = {
        "group": kind.group,
        "kind": kind.kind,
        "name": find_at(manifest, "metadata", "name"),
        "namespace": find_at(manifest, "metadata", "namespace"),
        "version": kind.version,
    }
    kept = {key: value for key, value in named.items() if value}
    # Karmada leaves the resource empty, and its readers compare whole identifiers.
    return {**kept, "ordinal": ordinal, "resource": ""}


# -- orders to report the endpoints of a Service (apis/services.py says what they report) --------

BY_EXPORT: Final = "export"
SERVICE_EXPORT: Final = "ServiceExport"
MULTI_CLUSTER_SERVICE: Final = "MultiClusterService"
EXPORT_GROUP: Final = "multicluster.x-k8s.io"
_EXPORTS: Final = {
    SERVICE_EXPORT: EXPORT_GROUP,
    MULTI_CLUSTER_SERVICE: "networking.karmada.io",
}


def export_word(kind: str, key: str) -> str:
    """Return the word under which the Works that export a Service are found."""
    return f"{kind} {key}"


def is_export(manifest: Object) -> bool:
    """Whether a manifest asks a cluster to report the endpoints of a Service."""
    kind = str(manifest.get("kind"))
    group = str(manifest.get("apiVersion")).partition("/")[0]
    return kind in _EXPORTS and _EXPORTS[kind] == group


def by_export(work: Object) -> Iterable[str]:
    """Index Works by the Service they export."""
    return [
        export_word(str(each["kind"]), f"{namespace_of(each)}/{name_of(each)}")
        for each in manifests_of(work)[:1]
        if is_export(each)
    ]


# -- which objects may be sent: never the hub's own, and only from their own namespace ---------

#     of namespace X                  may carry
#     ResourceBinding                 objects of X
#     Work of such a binding          objects of X
#     of no namespace
#     ClusterResourceBinding          objects without a namespace
#
# Rights on the hub are given by namespace, and controllers act for everybody. So whoever acts on a
# binding or a Work asks here first, wherever it came from: the hub's admission refuses most of what
# is wrong, but another API server may be the hub, and objects are older than rules.
#
# The hub's own namespaces and its credentials are never sent, whoever asks.


NAMESPACE: Final = GroupKind("", "Namespace")

_OWN_NAMESPACES: Final = frozenset(
    {SYSTEM_NAMESPACE, CLUSTER_NAMESPACE, PARTS_NAMESPACE, "fleet-system"}
)
_OWN_PREFIXES: Final = (EXECUTION_PREFIX, "kube-", member_clusters.NAMESPACE_PREFIX)

_CREDENTIALS: Final = frozenset(
    {"kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"}
)
"""Types of Secrets that let whoever has one act on the hub."""


def is_reserved_namespace(namespace: str) -> bool:
    """Whether a namespace belongs to a control plane, ours or a member's."""
    return namespace in _OWN_NAMESPACES or namespace.startswith(_OWN_PREFIXES)


def why_at_home(kube_object: Object) -> str:
    """Return why an object never leaves the hub; empty when it may.

    A Secret that a Cluster names as its credentials stays as well, and does not know it.
    """
    kind = kind_of(kube_object)
    namespace = name_of(kube_object) if kind == NAMESPACE else namespace_of(kube_object)
    if is_reserved_namespace(namespace):
        return f"namespace {namespace} belongs to the control plane"
    if kind == SECRET and kube_object.get("type") in _CREDENTIALS:
        return f"a Secret of type {kube_object['type']} is a credential of the hub"
    return ""


def why_not_carried(binding: Object, *, is_namespaced: bool | None = None) -> str:
    """Return why a binding may not carry what it names; empty when it may.

    `is_namespaced` is the scope of the kind it names, if that is known.
    """
    about = template_of(binding)
    if is_for_cluster_scope(binding):
        if about.namespace or is_namespaced:
            return (
                "a ClusterResourceBinding carries objects without a namespace, and "
                f"{about.kind} {about.key} has one"
            )
        return ""
    own = namespace_of(binding)
    if about.namespace != own:
        where = f"in namespace {about.namespace}" if about.namespace else "in no namespace"
        return f"a ResourceBinding of {own} carries objects of {own}, not {about.kind} {where}"
    if is_namespaced is False:
        return f"a ResourceBinding of {own} carries objects of {own}, and {about.kind} is in none"
    if is_reserved_namespace(own):
        return f"namespace {own} belongs to the control plane"
    return ""


def why_not_ordered(work: Object, manifest: Object, *, is_namespaced: bool) -> str:
    """Return why a Work may not order a manifest; empty when it may.

    `is_namespaced` is the scope the kind has on the member, which need not be the hub's. Works
    without a ResourceBinding (of namespaces, of cluster-wide policies, by hand) are not confined:
    whoever writes those has rights on a whole member.
    """
    namespace, slash, _ = binding_key_of(work).partition("/")
    if not slash:
        return ""
    if not is_namespaced:
        return f"its binding is of namespace {namespace}, and {manifest.get('kind')} is in none"
    if namespace_of(manifest) != namespace:
        return f"its binding is of namespace {namespace}, and it is not in there"
    return ""
