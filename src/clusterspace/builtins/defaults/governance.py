"""Defaults of traffic and of what governs a cluster: Services, RBAC, admission, quota, devices."""

from typing import Final, cast

from clusterspace.builtins.defaults.rules import (
    Rules,
    empty,
    in_sequence,
    missing,
    part_of,
    rounded,
    rule_for,
    with_missing,
    within,
)
from clusterspace.kube.objects import Object

_ADMISSION: Final = "io.k8s.api.admissionregistration"
_AGGREGATOR: Final = "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1"
_APIEXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
_CERTIFICATES: Final = "io.k8s.api.certificates"
_CORE: Final = "io.k8s.api.core.v1"
_DISCOVERY: Final = "io.k8s.api.discovery.v1"
_FLOW: Final = "io.k8s.api.flowcontrol.v1"
_NETWORKING: Final = "io.k8s.api.networking.v1"
_RBAC: Final = "io.k8s.api.rbac.v1"
_RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_RESOURCE: Final = "io.k8s.api.resource"
_SCHEDULING: Final = "io.k8s.api.scheduling.v1"

_AN_HOUR: Final = 3600
_A_DAY: Final = 86400
_THREE_HOURS: Final = 10800
_VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
_DEVICE_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")

_HTTPS: Final = missing(port=443)
_MATCH_RESOURCES: Final = missing(matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})
_ANY_SCOPE: Final = missing(scope="*")
_FAIL: Final = missing(failurePolicy="Fail")
_WEBHOOK: Final = missing(
    failurePolicy="Fail",
    matchPolicy="Equivalent",
    namespaceSelector={},
    objectSelector={},
    timeoutSeconds=10,
)

RULES: Final[Rules] = {
    f"{_ADMISSION}.v1.ValidatingWebhook": _WEBHOOK,
    f"{_ADMISSION}.v1.MutatingWebhook": in_sequence(_WEBHOOK, missing(reinvocationPolicy="Never")),
    f"{_ADMISSION}.v1.RuleWithOperations": _ANY_SCOPE,
    f"{_ADMISSION}.v1.ServiceReference": _HTTPS,
    f"{_ADMISSION}.v1.ValidatingAdmissionPolicySpec": _FAIL,
    f"{_ADMISSION}.v1beta1.MutatingAdmissionPolicySpec": _FAIL,
    f"{_ADMISSION}.v1alpha1.MutatingAdmissionPolicySpec": _FAIL,
    **{f"{_ADMISSION}.{each}.NamedRuleWithOperations": _ANY_SCOPE for each in _VERSIONS},
    **{f"{_ADMISSION}.{each}.MatchResources": _MATCH_RESOURCES for each in _VERSIONS},
    **{
        f"{_RESOURCE}.{each}.DeviceToleration": missing(operator="Equal")
        for each in _DEVICE_VERSIONS
    },
    f"{_CORE}.ResourceQuotaSpec": rounded("hard"),
    f"{_CORE}.ResourceQuotaStatus": rounded("hard", "used"),
    f"{_RBAC}.RoleBinding": within("roleRef", empty(apiGroup=_RBAC_GROUP)),
    f"{_RBAC}.ClusterRoleBinding": within("roleRef", empty(apiGroup=_RBAC_GROUP)),
    f"{_SCHEDULING}.PriorityClass": missing(preemptionPolicy="PreemptLowerPriority"),
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
    f"{_CORE}.EndpointPort": missing(protocol="TCP"),
    f"{_DISCOVERY}.EndpointPort": missing(name="", protocol="TCP"),
    f"{_NETWORKING}.NetworkPolicyPort": missing(protocol="TCP"),
    f"{_NETWORKING}.IngressClassParametersReference": missing(scope="Cluster"),
}


@rule_for(RULES, f"{_CORE}.Namespace")
def fill_namespace(namespace: Object) -> Object:
    """Label a namespace with its name, so that selectors can pick it."""
    namespace = within("status", missing(phase="Active"))(namespace)
    metadata = cast("Object", namespace.get("metadata") or {})
    name, labels = metadata.get("name"), cast("Object", metadata.get("labels") or {})
    if not name or labels.get("kubernetes.io/metadata.name") == name:
        return namespace
    labelled = {**labels, "kubernetes.io/metadata.name": name}
    return {**namespace, "metadata": {**metadata, "labels": labelled}}


@rule_for(RULES, f"{_CORE}.NodeStatus")
def fill_node_status(status: Object) -> Object:
    """Let all that a node has be allocated, unless it says otherwise."""
    if capacity := status.get("capacity"):
        status = with_missing(status, {"allocatable": capacity})
    return rounded("capacity", "allocatable")(status)


@rule_for(RULES, f"{_CORE}.LimitRangeItem")
def fill_limit_range_item(item: Object) -> Object:
    """Complete the limits of containers: default from max, request from default, then from min."""
    if item.get("type") == "Container":
        limit = {**part_of(item, "max"), **part_of(item, "default")}
        request = {**part_of(item, "min"), **limit, **part_of(item, "defaultRequest")}
        completed = {"default": limit, "defaultRequest": request}
        filled = {**item, **{field: values for field, values in completed.items() if values}}
        item = item if filled == item else filled
    return rounded("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")(item)


@rule_for(RULES, f"{_RBAC}.Subject")
def fill_subject(subject: Object) -> Object:
    """Name the group of users and groups; accounts have none."""
    if subject.get("kind") in ("User", "Group"):
        return with_missing(subject, {"apiGroup": _RBAC_GROUP})
    return subject


@rule_for(RULES, f"{_APIEXTENSIONS}.CustomResourceDefinition")
def fill_custom_resource_definition(definition: Object) -> Object:
    """Name a definition's kind in full, and remember the version it is stored in."""
    spec = cast("Object", definition["spec"])
    filled = with_missing(spec, {"conversion": {"strategy": "None"}})
    names = cast("Object", spec.get("names") or {})
    if kind := str(names.get("kind") or ""):
        names = with_missing(names, {"singular": kind.lower(), "listKind": f"{kind}List"})
    status = cast("Object", definition.get("status") or {})
    versions = cast("list[Object]", spec.get("versions") or [])
    stored = next((str(each.get("name")) for each in versions if each.get("storage")), "")
    if stored and not status.get("storedVersions"):
        status = {**status, "storedVersions": [stored]}
    if filled is spec and names is spec.get("names") and status is definition.get("status"):
        return definition
    return {**definition, "spec": {**filled, "names": names}, "status": status}


@rule_for(
    RULES,
    f"{_RESOURCE}.v1.ExactDeviceRequest",
    f"{_RESOURCE}.v1beta2.ExactDeviceRequest",
    *(f"{_RESOURCE}.{each}.DeviceSubRequest" for each in _DEVICE_VERSIONS),
)
def fill_device_request(request: Object) -> Object:
    """Ask for one device when nobody said how many."""
    filled = with_missing(request, {"allocationMode": "ExactCount"})
    is_counted = filled["allocationMode"] == "ExactCount"
    return with_missing(filled, {"count": 1}) if is_counted else filled


@rule_for(RULES, f"{_CORE}.Service")
def fill_service(service: Object) -> Object:
    """Complete ports, then what the type of the service asks for, then session affinity."""
    spec = cast("Object", service["spec"])
    ports = cast("list[Object]", spec.get("ports") or [])
    filled_ports = [
        {
            **with_missing(port, {"protocol": "TCP"}),
            "targetPort": port.get("targetPort") or port.get("port", 0),
        }
        for port in ports
    ]
    filled = spec if filled_ports == ports else {**spec, "ports": filled_ports}
    filled = with_missing(filled, {"type": "ClusterIP"})
    kind = filled["type"]
    values: Object = {}
    if kind != "ExternalName":
        values["internalTrafficPolicy"] = "Cluster"
    if kind in _EXPOSED or (kind == "ClusterIP" and filled.get("externalIPs")):
        values["externalTrafficPolicy"] = "Cluster"
    if kind == "LoadBalancer":
        values["allocateLoadBalancerNodePorts"] = True
    values["sessionAffinity"] = "None"
    filled = _session_affinity(with_missing(filled, values))
    status = cast("Object", service.get("status") or {})
    if kind == "LoadBalancer":
        status = within("loadBalancer", _ingress_modes)(status)
    if filled is spec and status is service.get("status"):
        return service
    return {**service, "spec": filled, "status": status}


_EXPOSED: Final = ("NodePort", "LoadBalancer")


def _session_affinity(spec: Object) -> Object:
    if spec["sessionAffinity"] == "None":
        if "sessionAffinityConfig" not in spec:
            return spec
        return {key: value for key, value in spec.items() if key != "sessionAffinityConfig"}
    given = part_of(part_of(spec, "sessionAffinityConfig"), "clientIP")
    if spec["sessionAffinity"] != "ClientIP" or given.get("timeoutSeconds") is not None:
        return spec
    config = {"clientIP": {"timeoutSeconds": _THREE_HOURS}}
    return {**spec, "sessionAffinityConfig": config}


def _ingress_modes(load_balancer: Object) -> Object:
    addresses = cast("list[Object]", load_balancer.get("ingress") or [])
    filled = [
        with_missing(each, {"ipMode": "VIP"}) if each.get("ip") else each for each in addresses
    ]
    return load_balancer if filled == addresses else {**load_balancer, "ingress": filled}


@rule_for(RULES, f"{_NETWORKING}.NetworkPolicySpec")
def fill_network_policy_spec(spec: Object) -> Object:
    """Say which directions a policy is about: always what comes in."""
    directions = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    return with_missing(spec, {"policyTypes": directions})
