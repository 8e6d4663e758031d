"""The rules of admission: webhooks, and policies written as expressions."""

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from clusterspace.builtins.validation.formats import port_problems, qualified_domain_problems
from clusterspace.builtins.validation.rules import (
    Check,
    at,
    between,
    check_all,
    each,
    inside,
    named,
    problems_at,
    required,
    struct_in,
    structs_in,
    supported,
    texts_in,
)
from clusterspace.builtins.validation.selectors import selector
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_subdomain_problems
from clusterspace.kube.objects import Object

_SCOPES: Final = ("*", "Cluster", "Namespaced")
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


def service_port(service: Object, path: str) -> Iterator[Cause]:
    """Check the port of a service that the server itself calls."""
    port = service.get("port", 443)
    problems = [f"port is not valid: {problem}" for problem in port_problems(port)]
    return problems_at(at(path, "port"), port, problems)


def _service_name(service: Object, path: str) -> Iterator[Cause]:
    """Check the name of a webhook's service.

    A kube-apiserver calls a missing name a missing namespace and the other way round, and so do
    we: people look for what it says.
    """
    for field, shown in (("namespace", "name"), ("name", "namespace")):
        if not service.get(field):
            yield causes.required(at(path, shown))


_SERVICE: Final = (_service_name, service_port)
_URL_FORM: Final = "; desired format: https://host[/path]"


def _client(config: Object, path: str) -> Iterator[Cause]:
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield causes.required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _check_url(url, at(path, "url"))
    elif service is not None:
        yield from check_all(service, at(path, "service"), _SERVICE)


def _check_url(url: str, path: str) -> Iterator[Cause]:
    parts = urlsplit(url)
    if parts.scheme != "https":
        why = f"'https' is the only allowed URL scheme{_URL_FORM}"
        yield causes.invalid(path, parts.scheme, why)
    if not parts.netloc:
        yield causes.invalid(path, parts.netloc, f"host must be specified{_URL_FORM}")


def _review_versions(webhook: Object, path: str) -> Iterator[Cause]:
    versions, place = texts_in(webhook, "admissionReviewVersions"), at(path, _REVIEWS)
    if not versions:
        yield causes.required(place, f"must specify one of {', '.join(_REVIEW_VERSIONS)}")
    elif not any(version in _REVIEW_VERSIONS for version in versions):
        why = f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"
        yield causes.invalid(place, versions, why)


_REVIEWS: Final = "admissionReviewVersions"


def _side_effects(webhook: Object, path: str) -> Iterator[Cause]:
    if webhook.get("sideEffects") is None:
        why = "must specify one of None, NoneOnDryRun"
        yield causes.required(at(path, "sideEffects"), why)
    yield from supported("sideEffects", "None", "NoneOnDryRun")(webhook, path)


_WEBHOOK: Final[tuple[Check, ...]] = (
    named("name", qualified_domain_problems),
    each("rules", *_RULE),
    supported("failurePolicy", "Fail", "Ignore"),
    supported("matchPolicy", "Equivalent", "Exact"),
    _side_effects,
    between("timeoutSeconds", 1, 30, "the timeout value must be between 1 and 30 seconds"),
    selector("namespaceSelector"),
    selector("objectSelector"),
    inside("clientConfig", _client),
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
        yield from check_all(webhook, path, (*checks, _review_versions))
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


def _expression(validation: Object, path: str) -> Iterator[Cause]:
    if not str(validation.get("expression") or "").strip():
        yield causes.required(at(path, "expression"), "expression is not specified")


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
    yield from each("validations", _expression, supported("reason", *reasons))(spec, "spec")


def check_policy_binding(binding: Object) -> Iterator[Cause]:
    """Check a ValidatingAdmissionPolicyBinding."""
    spec = struct_in(binding, "spec")
    yield from named("policyName", dns1123_subdomain_problems)(spec, "spec")
    yield from inside("paramRef", _parameters)(spec, "spec")
    yield from inside("matchResources", *_MATCH_RESOURCES)(spec, "spec")
    actions = texts_in(spec, "validationActions")
    if not actions:
        why = "at least one validation action is required"
        yield causes.required("spec.validationActions", why)
    for index, action in enumerate(actions):
        if action not in ("Audit", "Deny", "Warn"):
            place = f"spec.validationActions[{index}]"
            yield causes.not_supported(place, action, ("Audit", "Deny", "Warn"))


def _parameters(reference: Object, path: str) -> Iterator[Cause]:
    name, labels = reference.get("name"), reference.get("selector")
    if name and labels is not None:
        yield causes.forbidden(at(path, "name"), "name and selector are mutually exclusive")
    if not name and labels is None:
        yield causes.required(path, "one of name or selector must be specified")
    action = reference.get("parameterNotFoundAction")
    if action is None:
        yield causes.required(at(path, "parameterNotFoundAction"))
    elif action not in ("Allow", "Deny"):
        place = at(path, "parameterNotFoundAction")
        yield causes.not_supported(place, action, ("Allow", "Deny"))
