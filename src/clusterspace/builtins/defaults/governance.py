"""Defaults of what governs a cluster: RBAC, admission, quota, flow control, custom resources."""

from typing import Final, cast

from clusterspace.builtins.defaults.rules import (
    Rule,
    Rules,
    empty,
    in_sequence,
    missing,
    part_of,
    rounded,
    with_missing,
    within,
)
from clusterspace.kube.objects import Object

_ADMISSION: Final = "io.k8s.api.admissionregistration"
_AGGREGATOR: Final = "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1"
_APIEXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_CERTIFICATES: Final = "io.k8s.api.certificates"
_CORE: Final = "io.k8s.api.core.v1"
_FLOW: Final = "io.k8s.api.flowcontrol.v1"
_RBAC: Final = "io.k8s.api.rbac.v1"
_RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_RESOURCE: Final = "io.k8s.api.resource"
_SCHEDULING: Final = "io.k8s.api.scheduling.v1"

_AN_HOUR: Final = 3600
_A_DAY: Final = 86400
_VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
_DEVICE_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")


def _namespace(namespace: Object) -> Object:
    """Label a namespace with its name, so that selectors can pick it."""
    metadata = cast("Object", namespace.get("metadata") or {})
    name, labels = metadata.get("name"), cast("Object", metadata.get("labels") or {})
    if not name or labels.get("kubernetes.io/metadata.name") == name:
        return namespace
    labelled = {**labels, "kubernetes.io/metadata.name": name}
    return {**namespace, "metadata": {**metadata, "labels": labelled}}


def _node_status(status: Object) -> Object:
    capacity = status.get("capacity")
    return with_missing(status, {"allocatable": capacity}) if capacity else status


def _limit_range_item(item: Object) -> Object:
    """Complete the limits of containers: default from max, request from default, then from min."""
    if item.get("type") != "Container":
        return item
    limit = {**part_of(item, "max"), **part_of(item, "default")}
    request = {**part_of(item, "min"), **limit, **part_of(item, "defaultRequest")}
    filled = {**item, **{key: held for key, held in _pairs(limit, request) if held}}
    return item if filled == item else filled


def _pairs(limit: Object, request: Object) -> tuple[tuple[str, Object], ...]:
    return (("default", limit), ("defaultRequest", request))


def _subject(subject: Object) -> Object:
    if subject.get("kind") in ("User", "Group"):
        return with_missing(subject, {"apiGroup": _RBAC_GROUP})
    return subject


def _custom_resource_definition(definition: Object) -> Object:
    spec = cast("Object", definition["spec"])
    filled = with_missing(spec, {"conversion": {"strategy": "None"}})
    names = _names(cast("Object", spec.get("names") or {}))
    status = cast("Object", definition.get("status") or {})
    if not status.get("storedVersions") and (stored := _storage_version(spec)):
        status = {**status, "storedVersions": [stored]}
    if filled is spec and names is spec.get("names") and status is definition.get("status"):
        return definition
    return {**definition, "spec": {**filled, "names": names}, "status": status}


def _names(names: Object) -> Object:
    kind = str(names.get("kind") or "")
    if not kind:
        return names
    return with_missing(names, {"singular": kind.lower(), "listKind": f"{kind}List"})


def _storage_version(spec: Object) -> str:
    versions = cast("list[Object]", spec.get("versions") or [])
    return next((str(each.get("name")) for each in versions if each.get("storage")), "")


def _device_request(request: Object) -> Object:
    filled = with_missing(request, {"allocationMode": "ExactCount"})
    is_counted = filled["allocationMode"] == "ExactCount"
    return with_missing(filled, {"count": 1}) if is_counted else filled


_WEBHOOK: Final = missing(
    failurePolicy="Fail",
    matchPolicy="Equivalent",
    namespaceSelector={},
    objectSelector={},
    timeoutSeconds=10,
)
_HTTPS: Final = missing(port=443)

_MATCH_RESOURCES: Final = missing(matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})
_ANY_SCOPE: Final = missing(scope="*")
_FAIL: Final = missing(failurePolicy="Fail")

_ADMISSION_RULES: Final[dict[str, Rule]] = {
    f"{_ADMISSION}.v1.ValidatingWebhook": _WEBHOOK,
    f"{_ADMISSION}.v1.MutatingWebhook": in_sequence(_WEBHOOK, missing(reinvocationPolicy="Never")),
    f"{_ADMISSION}.v1.RuleWithOperations": _ANY_SCOPE,
    f"{_ADMISSION}.v1.ServiceReference": _HTTPS,
    f"{_ADMISSION}.v1.ValidatingAdmissionPolicySpec": _FAIL,
    f"{_ADMISSION}.v1beta1.MutatingAdmissionPolicySpec": _FAIL,
    f"{_ADMISSION}.v1alpha1.MutatingAdmissionPolicySpec": _FAIL,
    **{f"{_ADMISSION}.{each}.NamedRuleWithOperations": _ANY_SCOPE for each in _VERSIONS},
    **{f"{_ADMISSION}.{each}.MatchResources": _MATCH_RESOURCES for each in _VERSIONS},
}

_DEVICE_RULES: Final[dict[str, Rule]] = {
    f"{_RESOURCE}.v1.ExactDeviceRequest": _device_request,
    f"{_RESOURCE}.v1beta2.ExactDeviceRequest": _device_request,
    **{f"{_RESOURCE}.{each}.DeviceSubRequest": _device_request for each in _DEVICE_VERSIONS},
    **{
        f"{_RESOURCE}.{each}.DeviceToleration": missing(operator="Equal")
        for each in _DEVICE_VERSIONS
    },
}

RULES: Final[Rules] = {
    **_ADMISSION_RULES,
    **_DEVICE_RULES,
    f"{_CORE}.Namespace": in_sequence(_namespace, within("status", missing(phase="Active"))),
    f"{_CORE}.NodeStatus": in_sequence(_node_status, rounded("capacity", "allocatable")),
    f"{_CORE}.LimitRangeItem": in_sequence(
        _limit_range_item,
        rounded("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"),
    ),
    f"{_CORE}.ResourceQuotaSpec": rounded("hard"),
    f"{_CORE}.ResourceQuotaStatus": rounded("hard", "used"),
    f"{_RBAC}.RoleBinding": within("roleRef", empty(apiGroup=_RBAC_GROUP)),
    f"{_RBAC}.ClusterRoleBinding": within("roleRef", empty(apiGroup=_RBAC_GROUP)),
    f"{_RBAC}.Subject": _subject,
    f"{_SCHEDULING}.PriorityClass": missing(preemptionPolicy="PreemptLowerPriority"),
    f"{_APIEXTENSIONS}.CustomResourceDefinition": _custom_resource_definition,
    f"{_APIEXTENSIONS}.ServiceReference": _HTTPS,
    f"{_AGGREGATOR}.ServiceReference": _HTTPS,
    "io.k8s.api.authentication.v1.TokenRequestSpec": missing(expirationSeconds=_AN_HOUR),
    f"{_CERTIFICATES}.v1beta1.PodCertificateRequestSpec": missing(maxExpirationSeconds=_A_DAY),
    f"{_FLOW}.FlowSchemaSpec": empty(matchingPrecedence=1000),
    f"{_FLOW}.ExemptPriorityLevelConfiguration": missing(
        nominalConcurrencyShares=0, lendablePercent=0
    ),
    f"{_FLOW}.LimitedPriorityLevelConfiguration": missing(
        nominalConcurrencyShares=30, lendablePercent=0
    ),
    f"{_FLOW}.QueuingConfiguration": empty(queues=64, handSize=8, queueLengthLimit=50),
}
