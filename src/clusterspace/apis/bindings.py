"""ResourceBinding and ClusterResourceBinding: one template, one policy, the chosen clusters."""

from dataclasses import dataclass
from typing import Final, cast

from clusterspace.apis.stamps import binding_name
from clusterspace.kube.objects import Object, find_at, name_of, namespace_of
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource

API_VERSION: Final = "work.karmada.io/v1alpha2"
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


def preserves_resources(binding: Object) -> bool:
    """Whether clusters keep their objects when the binding goes."""
    return find_at(binding, "spec", "preserveResourcesOnDeletion") is True


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
