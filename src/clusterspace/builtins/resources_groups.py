"""The named groups: every stable resource under `/apis`, in the order of discovery."""

import ipaddress
from typing import Final

from clusterspace.builtins.resource_model import (
    CREATE_ONLY,
    NAME,
    NAMESPACE,
    OWN_FIELDS,
    SCALE,
    STATUS,
    FieldSelection,
    GroupRows,
    Part,
    Persistence,
    Row,
    select,
)
from clusterspace.builtins.resources_core import CORE
from clusterspace.kube.names import (
    Problems,
    dns1123_label_problems,
    path_segment_problems,
)
from clusterspace.kube.resources import GroupVersion

_ALL: Final = ("all",)
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


def _workload(kind: str, plural: str, short_name: str, *parts: Part) -> Row:
    return Row(
        kind,
        plural,
        short_names=(short_name,),
        categories=_ALL,
        parts=parts,
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
        parts=(SCALE, STATUS),
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
        parts=(STATUS,),
        stored_in=stored_in,
    )


_BATCH: Final = (
    _workload("CronJob", "cronjobs", "cj", STATUS),
    Row(
        "Job",
        "jobs",
        categories=_ALL,
        parts=(STATUS,),
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
        parts=(Part("approval"), STATUS),
        check_name=path_segment_problems,
        selection=FieldSelection((NAME, select("spec.signerName")), OWN_FIELDS),
    ),
)

_NETWORKING: Final = (
    Row("IngressClass", "ingressclasses", namespaced=False, has_generation=True),
    Row("Ingress", "ingresses", short_names=("ing",), parts=(STATUS,), has_generation=True),
    Row(
        "IPAddress",
        "ipaddresses",
        namespaced=False,
        short_names=("ip",),
        check_name=ip_address_problems,
    ),
    Row("NetworkPolicy", "networkpolicies", short_names=("netpol",), has_generation=True),
    Row("ServiceCIDR", "servicecidrs", namespaced=False, parts=(STATUS,)),
)

_POLICY: Final = (
    Row(
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        short_names=("pdb",),
        parts=(STATUS,),
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
    Row("VolumeAttachment", "volumeattachments", namespaced=False, parts=(STATUS,)),
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
        parts=(STATUS,),
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

_EXTENSION_KINDS: Final = (
    Row(
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=_EXTENSIONS,
        parts=(STATUS,),
        has_generation=True,
        hashed_version="v1beta1",
    ),
)

_DYNAMIC_RESOURCES: Final = (
    Row("DeviceClass", "deviceclasses", namespaced=False, has_generation=True),
    Row("ResourceClaim", "resourceclaims", parts=(STATUS,)),
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
    Row(kind, plural, namespaced=False, parts=(STATUS,), has_generation=True)
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
    parts=(STATUS,),
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
