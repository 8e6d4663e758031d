"""The core group: every resource under `/api/v1`, in the order of discovery."""

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
from clusterspace.kube.names import (
    dns1035_label_problems,
    dns1123_label_problems,
    path_segment_problems,
)
from clusterspace.kube.resources import GroupVersion

CORE: Final = GroupVersion("", "v1")

_ALL: Final = ("all",)
_CONNECT: Final = ("create", "get")
_PROXY: Final = ("create", "delete", "get", "patch", "update")

_POD_PARTS: Final = (
    Part("attach", _CONNECT, "PodAttachOptions"),
    Part("binding", CREATE_ONLY, "Binding"),
    Part("ephemeralcontainers"),
    Part("eviction", CREATE_ONLY, "Eviction", GroupVersion("policy", "v1")),
    Part("exec", _CONNECT, "PodExecOptions"),
    Part("log", ("get",)),
    Part("portforward", _CONNECT, "PodPortForwardOptions"),
    Part("proxy", _PROXY, "PodProxyOptions"),
    Part("resize"),
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
            parts=(Part("finalize", ("update",)), STATUS),
            check_name=dns1123_label_problems,
            selection=FieldSelection((NAME, select("status.phase")), OWN_FIELDS),
        ),
        Row(
            "Node",
            "nodes",
            namespaced=False,
            short_names=("no",),
            parts=(Part("proxy", _PROXY, "NodeProxyOptions"), STATUS),
            selection=FieldSelection(
                (NAME, select("spec.unschedulable", when_absent="false")), OWN_FIELDS
            ),
        ),
        Row(
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            short_names=("pvc",),
            parts=(STATUS,),
        ),
        Row(
            "PersistentVolume",
            "persistentvolumes",
            namespaced=False,
            short_names=("pv",),
            parts=(STATUS,),
        ),
        Row(
            "Pod",
            "pods",
            short_names=("po",),
            categories=_ALL,
            parts=_POD_PARTS,
            has_generation=True,
            selection=_POD_FIELDS,
        ),
        Row("PodTemplate", "podtemplates", has_generation=True),
        Row(
            "ReplicationController",
            "replicationcontrollers",
            short_names=("rc",),
            categories=_ALL,
            parts=(SCALE, STATUS),
            has_generation=True,
            selection=FieldSelection(
                (NAME, NAMESPACE, select("status.replicas", when_absent="0")), OWN_FIELDS
            ),
        ),
        Row("ResourceQuota", "resourcequotas", short_names=("quota",), parts=(STATUS,)),
        Row("Secret", "secrets", selection=_own_fields("type")),
        Row(
            "ServiceAccount",
            "serviceaccounts",
            short_names=("sa",),
            parts=(
                Part(
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
            parts=(Part("proxy", _PROXY, "ServiceProxyOptions"), STATUS),
            check_name=dns1035_label_problems,
            selection=_own_fields("spec.clusterIP", "spec.type"),
        ),
    ),
)
