"""The rules of what extends a cluster: flow control, further API servers, admission."""

from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.formats import qualified_domain_problems
from clusterspace.builtins.validation.metadata import selector
from clusterspace.builtins.validation.rules import (
    Check,
    at,
    between,
    check_all,
    each,
    inside,
    named,
    one_of,
    present,
    problems_at,
    required,
    satisfies,
    struct_in,
    structs_in,
    supported,
    texts_in,
    well_formed,
)
from clusterspace.builtins.webhook_configs import check_client_config, check_service_port
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1035_label_problems, dns1123_subdomain_problems
from clusterspace.kube.objects import Object, metadata_of

_LAST_PRECEDENCE: Final = 10000

_SUBJECTS: Final = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}


def _flow_subject(subject: Object, path: str) -> Iterator[Cause]:
    kind = subject.get("kind", "")
    if kind not in _SUBJECTS:
        yield causes.not_supported(at(path, "kind"), kind, tuple(_SUBJECTS))
        return
    for other, field in _SUBJECTS.items():
        if other == kind and subject.get(field) is None:
            why = f"{field} is required when subject kind is '{kind}'"
            yield causes.required(at(path, field), why)
        elif other == kind:
            yield from required("name")(subject[field], at(path, field))
        elif subject.get(field) is not None:
            why = f"{field} is forbidden when subject kind is not '{other}'"
            yield causes.forbidden(at(path, field), why)


def _at_least_one(field: str) -> Check:
    return required(field, f"{field} must contain at least one value")


def _flow_rule(rule: Object, path: str) -> Iterator[Cause]:
    yield from _at_least_one("subjects")(rule, path)
    yield from each("subjects", _flow_subject)(rule, path)
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        why = "at least one of resourceRules and nonResourceRules has to be non-empty"
        yield causes.required(path, why)
    resource = (_at_least_one("verbs"), _at_least_one("apiGroups"), _at_least_one("resources"))
    yield from each("resourceRules", *resource)(rule, path)
    urls = (_at_least_one("verbs"), _at_least_one("nonResourceURLs"))
    yield from each("nonResourceRules", *urls)(rule, path)


def check_flow_schema(schema: Object) -> Iterator[Cause]:
    """Check a FlowSchema."""
    spec = struct_in(schema, "spec")
    precedence = spec.get("matchingPrecedence", 0)
    if precedence > _LAST_PRECEDENCE:
        why = f"must not be greater than {_LAST_PRECEDENCE}"
        yield causes.invalid("spec.matchingPrecedence", precedence, why)
    if precedence < 0:
        yield causes.invalid("spec.matchingPrecedence", precedence, "must be a positive value")
    method = spec.get("distinguisherMethod")
    if method is not None and method.get("type") not in ("ByNamespace", "ByUser"):
        shown = {"Type": method.get("type", "")}
        place = "spec.distinguisherMethod.type"
        yield causes.not_supported(place, shown, ("ByNamespace", "ByUser"))
    level = struct_in(spec, "priorityLevelConfiguration")
    place = "spec.priorityLevelConfiguration"
    yield from required("name", "must reference a priority level")(level, place)
    yield from well_formed("name", dns1123_subdomain_problems)(level, place)
    yield from each("rules", _flow_rule)(spec, "spec")


def check_priority_level(level: Object) -> Iterator[Cause]:
    """Check a PriorityLevelConfiguration."""
    spec = struct_in(level, "spec")
    kind = spec.get("type", "")
    yield from one_of("type", "Exempt", "Limited")(spec, "spec")
    if kind == "Limited":
        if spec.get("exempt") is not None:
            yield causes.forbidden("spec.exempt", "must be nil if the type is Limited")
        if spec.get("limited") is None:
            yield causes.required("spec.limited", "must not be empty when type is Limited")
        else:
            limited = spec["limited"]
            yield from check_all(limited, "spec.limited", _SHARES)
            response, path = struct_in(limited, "limitResponse"), "spec.limited.limitResponse"
            yield from one_of("type", "Queue", "Reject")(response, path)
            if response.get("type") in ("Queue", "Reject"):
                queues = response.get("queuing")
                if response.get("type") == "Queue" and queues is None:
                    why = "must not be empty if limited.limitResponse.type is Limited"
                    yield causes.required(at(path, "queuing"), why)
                elif response.get("type") != "Queue" and queues is not None:
                    why = "must be nil if limited.limitResponse.type is not Limited"
                    yield causes.forbidden(at(path, "queuing"), why)
    elif kind == "Exempt" and spec.get("limited") is not None:
        why = "must be nil if the type is not Limited"
        yield causes.forbidden("spec.limited", why)


_SHARES: Final = (
    satisfies(
        "nominalConcurrencyShares", lambda shares: shares >= 0, "must be a non-negative integer"
    ),
    between("lendablePercent", 0, 100),
    satisfies(
        "borrowingLimitPercent",
        lambda share: share >= 0,
        "if specified, must be a non-negative integer",
    ),
)


def check_api_service(service: Object) -> Iterator[Cause]:
    """Check an APIService."""
    spec = struct_in(service, "spec")
    group, version = spec.get("group", ""), spec.get("version", "")
    name, wanted = metadata_of(service).get("name", ""), f"{version}.{group}"
    if name and name != wanted:
        why = f'must be `spec.version+"."+spec.group`: "{wanted}"'
        yield causes.invalid("metadata.name", name, why)
    if not group and version != "v1":
        why = "only v1 may have an empty group and it better be legacy kube"
        yield causes.required("spec.group", why)
    yield from problems_at("spec.version", version, dns1035_label_problems(version))
    yield from _check_priority(spec, "groupPriorityMinimum", 20000)
    yield from _check_priority(spec, "versionPriority", 1000)
    backend = spec.get("service")
    if backend is None:
        return
    yield from check_all(
        backend, "spec.service", (required("namespace"), required("name"), check_service_port)
    )
    if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
        why = "may not be true if caBundle is present"
        yield causes.invalid("spec.insecureSkipTLSVerify", True, why)


def _check_priority(spec: Object, field: str, most: int) -> Iterator[Cause]:
    number = spec.get(field, 0)
    if not 0 < number <= most:
        why = f"must be positive and less than {most}"
        yield causes.invalid(f"spec.{field}", number, why)


_SCOPES: Final = ("*", "Cluster", "Namespaced")
_REVIEWS: Final = "admissionReviewVersions"
_REVIEW_VERSIONS: Final = ("v1", "v1beta1")


def _operations(rule: Object, path: str) -> Iterator[Cause]:
    place, wanted = at(path, "operations"), texts_in(rule, "operations")
    known = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
    if not wanted:
        yield causes.required(place)
    if len(wanted) > 1 and "*" in wanted:
        why = "if '*' is present, must not specify other operations"
        yield causes.invalid(place, wanted, why)
    for index, operation in enumerate(wanted):
        if operation not in known:
            yield causes.not_supported(f"{place}[{index}]", operation, known)


_RULE: Final = (
    _operations,
    required("apiGroups"),
    required("apiVersions"),
    required("resources"),
    supported("scope", *_SCOPES),
)


_WEBHOOK: Final[tuple[Check, ...]] = (
    named("name", qualified_domain_problems),
    each("rules", *_RULE),
    supported("failurePolicy", "Fail", "Ignore"),
    supported("matchPolicy", "Equivalent", "Exact"),
    present("sideEffects", "must specify one of None, NoneOnDryRun"),
    supported("sideEffects", "None", "NoneOnDryRun"),
    between("timeoutSeconds", 1, 30, "the timeout value must be between 1 and 30 seconds"),
    selector("namespaceSelector"),
    selector("objectSelector"),
    inside("clientConfig", check_client_config),
)


def check_validating_webhooks(configuration: Object) -> Iterator[Cause]:
    """Check a ValidatingWebhookConfiguration."""
    return _check_webhooks(configuration, _WEBHOOK)


def check_mutating_webhooks(configuration: Object) -> Iterator[Cause]:
    """Check a MutatingWebhookConfiguration."""
    reinvocation = supported("reinvocationPolicy", "IfNeeded", "Never")
    return _check_webhooks(configuration, (*_WEBHOOK, reinvocation))


def _check_webhooks(configuration: Object, checks: tuple[Check, ...]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, webhook in enumerate(structs_in(configuration, "webhooks")):
        path, name = f"webhooks[{index}]", webhook.get("name", "")
        yield from check_all(webhook, path, checks)
        reviews, place = texts_in(webhook, "admissionReviewVersions"), f"{path}.{_REVIEWS}"
        if not reviews:
            yield causes.required(place, f"must specify one of {', '.join(_REVIEW_VERSIONS)}")
        elif not any(version in _REVIEW_VERSIONS for version in reviews):
            why = f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"
            yield causes.invalid(place, reviews, why)
        if name and name in seen:
            yield causes.duplicate(at(path, "name"), name)
        seen.add(name)


_MATCH_RESOURCES: Final = (
    supported("matchPolicy", "Equivalent", "Exact"),
    selector("namespaceSelector"),
    selector("objectSelector"),
    each("resourceRules", *_RULE),
    each("excludeResourceRules", *_RULE),
)


def check_policy(policy: Object) -> Iterator[Cause]:
    """Check a ValidatingAdmissionPolicy; its expressions are compiled elsewhere."""
    spec = struct_in(policy, "spec")
    yield from supported("failurePolicy", "Fail", "Ignore")(spec, "spec")
    yield from inside("paramKind", required("apiVersion"), required("kind"))(spec, "spec")
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield causes.required("spec.matchConstraints")
    else:
        yield from check_all(constraints, "spec.matchConstraints", _MATCH_RESOURCES)
        yield from required("resourceRules")(constraints, "spec.matchConstraints")
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        why = "validations or auditAnnotations must contain at least one item"
        yield causes.required("spec.validations", why)
        yield causes.required("spec.auditAnnotations", why)
    reasons = ("Forbidden", "Invalid", "RequestEntityTooLarge")
    for index, validation in enumerate(structs_in(spec, "validations")):
        place = f"spec.validations[{index}]"
        if not str(validation.get("expression") or "").strip():
            yield causes.required(at(place, "expression"), "expression is not specified")
        yield from supported("reason", *reasons)(validation, place)


def check_policy_binding(binding: Object) -> Iterator[Cause]:
    """Check a ValidatingAdmissionPolicyBinding."""
    spec = struct_in(binding, "spec")
    yield from named("policyName", dns1123_subdomain_problems)(spec, "spec")
    if spec.get("paramRef") is not None:
        reference = spec["paramRef"]
        name, labels = reference.get("name"), reference.get("selector")
        if name and labels is not None:
            why = "name and selector are mutually exclusive"
            yield causes.forbidden("spec.paramRef.name", why)
        if not name and labels is None:
            yield causes.required("spec.paramRef", "one of name or selector must be specified")
        action = reference.get("parameterNotFoundAction")
        if action is None:
            yield causes.required("spec.paramRef.parameterNotFoundAction")
        elif action not in ("Allow", "Deny"):
            place = "spec.paramRef.parameterNotFoundAction"
            yield causes.not_supported(place, action, ("Allow", "Deny"))
    yield from inside("matchResources", *_MATCH_RESOURCES)(spec, "spec")
    actions = texts_in(spec, "validationActions")
    if not actions:
        why = "at least one validation action is required"
        yield causes.required("spec.validationActions", why)
    for index, action in enumerate(actions):
        if action not in ("Audit", "Deny", "Warn"):
            place = f"spec.validationActions[{index}]"
            yield causes.not_supported(place, action, ("Audit", "Deny", "Warn"))
