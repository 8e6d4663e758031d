"""The table of every resource the hub serves out of the box: what Kubernetes 1.35 calls stable."""

import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from clusterspace.builtins.resource_model import (
    CREATE_ONLY,
    NAME,
    NAMESPACE,
    OWN_FIELDS,
    SCALE,
    STATUS,
    BuiltinResource,
    FieldSelection,
    GroupRows,
    Persistence,
    Row,
    SubresourceRow,
    resource_of,
    select,
)
from clusterspace.kube.names import (
    Problems,
    dns1035_label_problems,
    dns1123_label_problems,
    path_segment_problems,
)
from clusterspace.kube.resources import GroupVersion, GroupVersionKind, GroupVersionResource

CORE: Final = GroupVersion("", "v1")

_ALL: Final = ("all",)
_CONNECT: Final = ("create", "get")
_PROXY: Final = ("create", "delete", "get", "patch", "update")

_POD_SUBRESOURCES: Final = (
    SubresourceRow("attach", _CONNECT, "PodAttachOptions"),
    SubresourceRow("binding", CREATE_ONLY, "Binding"),
    SubresourceRow("ephemeralcontainers"),
    SubresourceRow("eviction", CREATE_ONLY, "Eviction", GroupVersion("policy", "v1")),
    SubresourceRow("exec", _CONNECT, "PodExecOptions"),
    SubresourceRow("log", ("get",)),
    SubresourceRow("portforward", _CONNECT, "PodPortForwardOptions"),
    SubresourceRow("proxy", _PROXY, "PodProxyOptions"),
    SubresourceRow("resize"),
    STATUS,
)

_POD_FIELDS: Final = FieldSelection(
    (
        NAME,
        NAMESPACE,
        select("spec.nodeName"),
        select("spec.host", "spec.nodeName"),
        select("spec.restartPolicy"),
        select("spec.schedulerName"),
        select("spec.serviceAccountName"),
        select("spec.hostNetwork", when_absent="false"),
        select("status.phase"),
        select("status.podIP"),
        # Kubernetes lets a selector name it and has nothing to compare it with.
        select("status.podIPs", "status.podIPs.none"),
        select("status.nominatedNodeName"),
    ),
    OWN_FIELDS,
)

EVENT_FIELDS: Final = FieldSelection(
    (
        *(
            select(f"involvedObject.{name}")
            for name in (
                "kind",
                "namespace",
                "name",
                "uid",
                "apiVersion",
                "resourceVersion",
                "fieldPath",
            )
        ),
        select("reason"),
        select("reportingComponent"),
        select("source", "source.component", "reportingComponent"),
        select("type"),
        NAMESPACE,
        NAME,
    ),
    OWN_FIELDS,
)


def _own_fields(*names: str) -> FieldSelection:
    return FieldSelection((NAME, NAMESPACE, *(select(name) for name in names)), OWN_FIELDS)


CORE_V1: Final = GroupRows(
    CORE,
    (
        Row(
            "Binding",
            "bindings",
            verbs=CREATE_ONLY,
            check_name=path_segment_problems,
            persistence=Persistence.ANSWERED,
        ),
        Row(
            "ComponentStatus",
            "componentstatuses",
            namespaced=False,
            verbs=("get", "list"),
            short_names=("cs",),
            persistence=Persistence.COMPUTED,
        ),
        Row("ConfigMap", "configmaps", short_names=("cm",)),
        Row("Endpoints", "endpoints", short_names=("ep",)),
        Row(
            "Event",
            "events",
            short_names=("ev",),
            check_name=path_segment_problems,
            selection=EVENT_FIELDS,
        ),
        Row("LimitRange", "limitranges", short_names=("limits",)),
        Row(
            "Namespace",
            "namespaces",
            namespaced=False,
            # Deleting every namespace at once is nothing anybody should be able to ask for.
            verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
            short_names=("ns",),
            subresources=(SubresourceRow("finalize", ("update",)), STATUS),
            check_name=dns1123_label_problems,
            selection=FieldSelection((NAME, select("status.phase")), OWN_FIELDS),
        ),
        Row(
            "Node",
            "nodes",
            namespaced=False,
            short_names=("no",),
            subresources=(SubresourceRow("proxy", _PROXY, "NodeProxyOptions"), STATUS),
            selection=FieldSelection(
                (NAME, select("spec.unschedulable", when_absent="false")), OWN_FIELDS
            ),
        ),
        Row(
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            short_names=("pvc",),
            subresources=(STATUS,),
        ),
        Row(
            "PersistentVolume",
            "persistentvolumes",
            namespaced=False,
            short_names=("pv",),
            subresources=(STATUS,),
        ),
        Row(
            "Pod",
            "pods",
            short_names=("po",),
            categories=_ALL,
            subresources=_POD_SUBRESOURCES,
            has_generation=True,
            selection=_POD_FIELDS,
        ),
        Row("PodTemplate", "podtemplates", has_generation=True),
        Row(
            "ReplicationController",
            "replicationcontrollers",
            short_names=("rc",),
            categories=_ALL,
            subresources=(SCALE, STATUS),
            has_generation=True,
            selection=FieldSelection(
                (NAME, NAMESPACE, select("status.replicas", when_absent="0")), OWN_FIELDS
            ),
        ),
        Row("ResourceQuota", "resourcequotas", short_names=("quota",), subresources=(STATUS,)),
        Row("Secret", "secrets", selection=_own_fields("type")),
        Row(
            "ServiceAccount",
            "serviceaccounts",
            short_names=("sa",),
            subresources=(
                SubresourceRow(
                    "token",
                    CREATE_ONLY,
                    "TokenRequest",
                    GroupVersion("authentication.k8s.io", "v1"),
                ),
            ),
        ),
        Row(
            "Service",
            "services",
            short_names=("svc",),
            categories=_ALL,
            subresources=(SubresourceRow("proxy", _PROXY, "ServiceProxyOptions"), STATUS),
            check_name=dns1035_label_problems,
            selection=_own_fields("spec.clusterIP", "spec.type"),
        ),
    ),
)


_EXTENSIONS: Final = ("api-extensions",)


def ip_address_problems(value: str) -> Problems:
    """Check the name of an IPAddress: the address itself, written the one canonical way."""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)
    if value != str(address):
        return (f'must be in canonical form ("{address}")',)
    return ()


def _review(kind: str, plural: str, *, namespaced: bool = False) -> Row:
    """Return a question that a client asks by creating it."""
    return Row(
        kind,
        plural,
        namespaced=namespaced,
        verbs=CREATE_ONLY,
        check_name=path_segment_problems,
        persistence=Persistence.ANSWERED,
    )


def _workload(kind: str, plural: str, short_name: str, *subresources: SubresourceRow) -> Row:
    return Row(
        kind,
        plural,
        short_names=(short_name,),
        categories=_ALL,
        subresources=subresources,
        has_generation=True,
    )


_APPS: Final = (
    Row("ControllerRevision", "controllerrevisions"),
    _workload("DaemonSet", "daemonsets", "ds", STATUS),
    _workload("Deployment", "deployments", "deploy", SCALE, STATUS),
    _workload("ReplicaSet", "replicasets", "rs", SCALE, STATUS),
    Row(
        "StatefulSet",
        "statefulsets",
        short_names=("sts",),
        categories=_ALL,
        subresources=(SCALE, STATUS),
        has_generation=True,
        check_name=dns1123_label_problems,
    ),
)

# The same objects as the core group's events, under other field names.
_EVENT_FIELDS: Final = FieldSelection(
    (
        select("reason"),
        *(
            select(f"regarding.{name}")
            for name in (
                "kind",
                "namespace",
                "name",
                "uid",
                "apiVersion",
                "resourceVersion",
                "fieldPath",
            )
        ),
        select("reportingController"),
        select("type"),
        NAMESPACE,
        NAME,
    ),
    OWN_FIELDS,
)

_AUTOSCALING_V2: Final = GroupVersion("autoscaling", "v2")


def _autoscaler(stored_in: GroupVersion | None = None) -> Row:
    return Row(
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        short_names=("hpa",),
        categories=_ALL,
        subresources=(STATUS,),
        stored_in=stored_in,
    )


_BATCH: Final = (
    _workload("CronJob", "cronjobs", "cj", STATUS),
    Row(
        "Job",
        "jobs",
        categories=_ALL,
        subresources=(STATUS,),
        has_generation=True,
        selection=FieldSelection(
            (NAME, NAMESPACE, select("status.successful", "status.succeeded", when_absent="0")),
            'field label "{field}" not supported for Job',
        ),
    ),
)

_CERTIFICATES: Final = (
    Row(
        "CertificateSigningRequest",
        "certificatesigningrequests",
        namespaced=False,
        short_names=("csr",),
        subresources=(SubresourceRow("approval"), STATUS),
        check_name=path_segment_problems,
        selection=FieldSelection((NAME, select("spec.signerName")), OWN_FIELDS),
    ),
)

_NETWORKING: Final = (
    Row("IngressClass", "ingressclasses", namespaced=False, has_generation=True),
    Row("Ingress", "ingresses", short_names=("ing",), subresources=(STATUS,), has_generation=True),
    Row(
        "IPAddress",
        "ipaddresses",
        namespaced=False,
        short_names=("ip",),
        check_name=ip_address_problems,
    ),
    Row("NetworkPolicy", "networkpolicies", short_names=("netpol",), has_generation=True),
    Row("ServiceCIDR", "servicecidrs", namespaced=False, subresources=(STATUS,)),
)

_POLICY: Final = (
    Row(
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        short_names=("pdb",),
        subresources=(STATUS,),
        has_generation=True,
        check_name=path_segment_problems,
    ),
)

_RBAC: Final = (
    Row(
        "ClusterRoleBinding",
        "clusterrolebindings",
        namespaced=False,
        check_name=path_segment_problems,
    ),
    Row("ClusterRole", "clusterroles", namespaced=False, check_name=path_segment_problems),
    Row("RoleBinding", "rolebindings", check_name=path_segment_problems),
    Row("Role", "roles", check_name=path_segment_problems),
)

_STORAGE: Final = (
    Row("CSIDriver", "csidrivers", namespaced=False),
    Row("CSINode", "csinodes", namespaced=False),
    Row("CSIStorageCapacity", "csistoragecapacities"),
    Row("StorageClass", "storageclasses", namespaced=False, short_names=("sc",)),
    Row("VolumeAttachment", "volumeattachments", namespaced=False, subresources=(STATUS,)),
    Row(
        "VolumeAttributesClass",
        "volumeattributesclasses",
        namespaced=False,
        short_names=("vac",),
        hashed_version="v1beta1",
    ),
)

_ADMISSION: Final = (
    Row(
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        namespaced=False,
        categories=_EXTENSIONS,
        has_generation=True,
    ),
    Row(
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        namespaced=False,
        categories=_EXTENSIONS,
        subresources=(STATUS,),
        has_generation=True,
    ),
    Row(
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        namespaced=False,
        categories=_EXTENSIONS,
        has_generation=True,
    ),
    Row(
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        namespaced=False,
        categories=_EXTENSIONS,
        has_generation=True,
    ),
)

_MUTATING_POLICIES: Final = (
    Row(
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
        namespaced=False,
        categories=_EXTENSIONS,
        has_generation=True,
    ),
    Row(
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        namespaced=False,
        categories=_EXTENSIONS,
        has_generation=True,
    ),
)

_EXTENSION_KINDS: Final = (
    Row(
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=_EXTENSIONS,
        subresources=(STATUS,),
        has_generation=True,
        hashed_version="v1beta1",
    ),
)

_DYNAMIC_RESOURCES: Final = (
    Row("DeviceClass", "deviceclasses", namespaced=False, has_generation=True),
    Row("ResourceClaim", "resourceclaims", subresources=(STATUS,)),
    Row("ResourceClaimTemplate", "resourceclaimtemplates"),
    Row(
        "ResourceSlice",
        "resourceslices",
        namespaced=False,
        has_generation=True,
        selection=FieldSelection(
            (NAME, select("spec.nodeName"), select("spec.driver")),
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {field}",
        ),
    ),
)

_FLOW_CONTROL: Final = tuple(
    Row(kind, plural, namespaced=False, subresources=(STATUS,), has_generation=True)
    for kind, plural in (
        ("FlowSchema", "flowschemas"),
        ("PriorityLevelConfiguration", "prioritylevelconfigurations"),
    )
)

_API_SERVICE: Final = Row(
    "APIService",
    "apiservices",
    namespaced=False,
    categories=_EXTENSIONS,
    subresources=(STATUS,),
    check_name=path_segment_problems,
)

_AUTHENTICATION: Final = (
    _review("SelfSubjectReview", "selfsubjectreviews"),
    _review("TokenReview", "tokenreviews"),
)

_AUTHORIZATION: Final = (
    _review("LocalSubjectAccessReview", "localsubjectaccessreviews", namespaced=True),
    _review("SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    _review("SelfSubjectRulesReview", "selfsubjectrulesreviews"),
    _review("SubjectAccessReview", "subjectaccessreviews"),
)


def _v1(group: str, *rows: Row) -> GroupRows:
    return GroupRows(GroupVersion(group, "v1"), rows)


NAMED_GROUPS: Final = (
    _v1("apiregistration.k8s.io", _API_SERVICE),
    _v1("apps", *_APPS),
    _v1(
        "events.k8s.io",
        Row("Event", "events", short_names=("ev",), selection=_EVENT_FIELDS, stored_in=CORE),
    ),
    _v1("authentication.k8s.io", *_AUTHENTICATION),
    _v1("authorization.k8s.io", *_AUTHORIZATION),
    GroupRows(_AUTOSCALING_V2, (_autoscaler(),)),
    _v1("autoscaling", _autoscaler(stored_in=_AUTOSCALING_V2)),
    _v1("batch", *_BATCH),
    _v1("certificates.k8s.io", *_CERTIFICATES),
    _v1("networking.k8s.io", *_NETWORKING),
    _v1("policy", *_POLICY),
    _v1("rbac.authorization.k8s.io", *_RBAC),
    _v1("storage.k8s.io", *_STORAGE),
    _v1("admissionregistration.k8s.io", *_ADMISSION),
    _v1("apiextensions.k8s.io", *_EXTENSION_KINDS),
    _v1(
        "scheduling.k8s.io",
        Row(
            "PriorityClass",
            "priorityclasses",
            namespaced=False,
            short_names=("pc",),
            has_generation=True,
        ),
    ),
    _v1("coordination.k8s.io", Row("Lease", "leases")),
    _v1("node.k8s.io", Row("RuntimeClass", "runtimeclasses", namespaced=False)),
    _v1("discovery.k8s.io", Row("EndpointSlice", "endpointslices", has_generation=True)),
    _v1("resource.k8s.io", *_DYNAMIC_RESOURCES),
    _v1("flowcontrol.apiserver.k8s.io", *_FLOW_CONTROL),
)
"""In the order of discovery; of two versions of a group the preferred one comes first."""


_TABLE: Final = (CORE_V1, *NAMED_GROUPS)

OPTIONAL_GROUPS: Final = (
    GroupRows(GroupVersion("admissionregistration.k8s.io", "v1beta1"), _MUTATING_POLICIES),
)
"""What Kubernetes serves of its own only when it is asked to, with `--runtime-config`."""


@dataclass(frozen=True, slots=True)
class ApiGroup:
    """A group and the versions it is served at, the preferred one first."""

    name: str
    versions: tuple[str, ...]

    @property
    def preferred_version(self) -> str:
        """The version a client takes when it does not care."""
        return self.versions[0]


@cache
def all_resources() -> tuple[BuiltinResource, ...]:
    """Return every resource in the order of discovery: group, then version, then plural."""
    return tuple(resource_of(served.group_version, row) for served in _TABLE for row in served.rows)


def optional_resources(asked: Collection[str]) -> tuple[BuiltinResource, ...]:
    """Return the resources of these versions, written `group/version`, that are not there else."""
    return tuple(
        resource_of(served.group_version, row)
        for served in OPTIONAL_GROUPS
        for row in served.rows
        if served.group_version.api_version in asked
    )


@cache
def all_groups() -> tuple[ApiGroup, ...]:
    """Return every group in the order of discovery; the core group, without a name, is first."""
    versions: dict[str, list[str]] = {}
    for served in _TABLE:
        versions.setdefault(served.group_version.group, []).append(served.group_version.version)
    return tuple(ApiGroup(name, tuple(listed)) for name, listed in versions.items())


def group_order(name: str) -> tuple[int, int, str]:
    """Return the place of a group among others: the first that has a name is who it means.

    Clients take `cronjobs` for the resource of the first group that has one. Built-in groups come
    first, as Kubernetes orders them; then those of Karmada, whose words the fleet speaks; then all
    others by name. docs/decisions/0024 says why.

    >>> sorted(["work.karmada.io", "a.example.com", "batch", ""], key=group_order)
    ['', 'batch', 'work.karmada.io', 'a.example.com']
    """
    place = _places_of_groups().get(name)
    if place is not None:
        return (0, place, name)
    return (1 if name.endswith(".karmada.io") else 2, 0, name)


@cache
def _places_of_groups() -> Mapping[str, int]:
    return {group.name: place for place, group in enumerate(all_groups())}


def find_resource(group: str, version: str, plural: str) -> BuiltinResource | None:
    """Return the resource that a URL names, or None when it is not built in."""
    return _by_resource().get(GroupVersionResource(group, version, plural))


def find_kind(group: str, version: str, kind: str) -> BuiltinResource | None:
    """Return the resource that holds objects of a kind, or None when it is not built in."""
    return _by_kind().get(GroupVersionKind(group, version, kind))


@cache
def _by_resource() -> Mapping[GroupVersionResource, BuiltinResource]:
    return {resource.info.group_version_resource: resource for resource in all_resources()}


@cache
def _by_kind() -> Mapping[GroupVersionKind, BuiltinResource]:
    return {resource.info.group_version_kind: resource for resource in all_resources()}
