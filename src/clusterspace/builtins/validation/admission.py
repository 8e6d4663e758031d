"""The rules of admission: webhook configurations, policies, bindings; expressions are compiled."""

from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.extension import check_client_config
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
    present,
    problems_at,
    required,
    struct_in,
    structs_in,
    supported,
    texts_in,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.cel.parser import RESERVED
from clusterspace.kube.cel.requests import (
    CONFIGURATION,
    PATCHES,
    TEXT,
    TEXT_OR_NULL,
    TRUTH,
    Declarations,
    Expression,
)
from clusterspace.kube.names import (
    dns1035_label_problems,
    dns1123_subdomain_problems,
    path_segment_problems,
    qualified_name_problems,
)
from clusterspace.kube.objects import Object, name_of

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
        yield from _check_conditions(webhook, path, has_params=False)
        reviews, place = texts_in(webhook, "admissionReviewVersions"), f"{path}.{_REVIEWS}"
        if not reviews:
            yield causes.required(place, f"must specify one of {', '.join(_REVIEW_VERSIONS)}")
        elif not any(version in _REVIEW_VERSIONS for version in reviews):
            why = f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"
            yield causes.invalid(place, reviews, why)
        if name and name in seen:
            yield causes.duplicate(at(path, "name"), name)
        seen.add(name)


_MOST_CONDITIONS: Final = 64
_MOST_ANNOTATIONS: Final = 20
_LONGEST_ANNOTATION: Final = 5 * 1024
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_NO_NAMES: Final = RESERVED | {"true", "false", "null", "in"}
_BLANK: Final = "must be non-empty if specified"


def _named_rule(rule: Object, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, name in enumerate(texts_in(rule, "resourceNames")):
        place = f"{at(path, 'resourceNames')}[{index}]"
        yield from problems_at(place, name, path_segment_problems(name))
        if name in seen:
            yield causes.duplicate(place, name)
        seen.add(name)


_MATCH_RESOURCES: Final = (
    supported("matchPolicy", "Equivalent", "Exact"),
    selector("namespaceSelector"),
    selector("objectSelector"),
    each("resourceRules", _named_rule, *_RULE),
    each("excludeResourceRules", _named_rule, *_RULE),
)


def _fault(place: str, expression: Expression, shown: str = "") -> Iterator[Cause]:
    if expression.fault:
        yield causes.invalid(place, shown or expression.text, expression.fault)


def _check_conditions(struct: Object, path: str, *, has_params: bool) -> Iterator[Cause]:
    """Check `matchConditions`."""
    conditions, field = structs_in(struct, "matchConditions"), at(path, "matchConditions")
    if len(conditions) > _MOST_CONDITIONS:
        yield causes.too_many(field, len(conditions), _MOST_CONDITIONS)
    declared = Declarations(has_params=has_params, has_variables=False)
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        place, name = f"{field}[{index}]", str(condition.get("name") or "")
        text = str(condition.get("expression") or "").strip()
        if text:
            yield from _fault(at(place, "expression"), declared.compile(text, TRUTH))
        else:
            yield causes.required(at(place, "expression"))
        if not name:
            yield causes.required(at(place, "name"))
        else:
            yield from problems_at(at(place, "name"), name, qualified_name_problems(name))
            if name in seen:
                yield causes.duplicate(at(place, "name"), name)
            seen.add(name)


def _param_kind(kind: Object, path: str) -> Iterator[Cause]:
    version = str(kind.get("apiVersion") or "")
    place = at(path, "apiVersion")
    if not version:
        yield causes.required(place)
    elif version.count("/") > 1:
        yield causes.invalid(place, version, f"unexpected GroupVersion string: {version}")
    else:
        group, _, own = version.rpartition("/")
        if group:
            problems = dns1123_subdomain_problems(group)
            yield from ((causes.invalid(place, group, ",".join(problems)),) if problems else ())
        problems = dns1035_label_problems(own)
        yield from ((causes.invalid(place, own, ",".join(problems)),) if problems else ())
    name = str(kind.get("kind") or "")
    if not name:
        yield causes.required(at(path, "kind"))
    elif problems := dns1035_label_problems(name.lower()):
        why = f"may have mixed case, but should otherwise match: {','.join(problems)}"
        yield causes.invalid(at(path, "kind"), name, why)


def _check_policy_head(spec: Object) -> Iterator[Cause]:
    """Check what comes before the expressions of any policy."""
    yield from supported("failurePolicy", "Fail", "Ignore")(spec, "spec")
    yield from inside("paramKind", _param_kind)(spec, "spec")
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield causes.required("spec.matchConstraints")
    else:
        yield from check_all(constraints, "spec.matchConstraints", _MATCH_RESOURCES)
        yield from required("resourceRules")(constraints, "spec.matchConstraints")


def _check_variables(spec: Object, declared: Declarations) -> Iterator[Cause]:
    """Check the variables of a policy, and make them known to the expressions after them."""
    for index, variable in enumerate(structs_in(spec, "variables")):
        place, name = f"spec.variables[{index}]", str(variable.get("name") or "")
        text = str(variable.get("expression") or "")
        if not name.strip():
            yield causes.required(at(place, "name"), "name is not specified")
        elif not name.isascii() or not name.isidentifier() or name in _NO_NAMES:
            yield causes.invalid(at(place, "name"), name, "must be a valid CEL identifier")
        if not text.strip():
            yield causes.required(at(place, "expression"), "expression is not specified")
        else:
            yield from _fault(at(place, "expression"), declared.add_variable(name, text))


def check_policy(policy: Object) -> Iterator[Cause]:
    """Check a ValidatingAdmissionPolicy."""
    spec = struct_in(policy, "spec")
    has_params = spec.get("paramKind") is not None
    declared = Declarations(has_params=has_params)
    yield from _check_policy_head(spec)
    yield from _check_conditions(spec, "spec", has_params=has_params)
    yield from _check_variables(spec, declared)
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        why = "validations or auditAnnotations must contain at least one item"
        yield causes.required("spec.validations", why)
        yield causes.required("spec.auditAnnotations", why)
    for index, validation in enumerate(structs_in(spec, "validations")):
        yield from _check_validation(validation, f"spec.validations[{index}]", declared)
    annotations = structs_in(spec, "auditAnnotations")
    if len(annotations) > _MOST_ANNOTATIONS:
        why = f"must not have more than {_MOST_ANNOTATIONS} auditAnnotations"
        yield causes.invalid("spec.auditAnnotations", annotations, why)
    seen: set[str] = set()
    for index, annotation in enumerate(annotations):
        place, key = f"spec.auditAnnotations[{index}]", str(annotation.get("key") or "")
        qualified = f"{name_of(policy)}/{key}"
        yield from problems_at(at(place, "key"), qualified, qualified_name_problems(qualified))
        text = str(annotation.get("valueExpression") or "")
        field = at(place, "valueExpression")
        if not text.strip():
            yield causes.required(field, "valueExpression is not specified")
        elif len(text.strip().encode()) > _LONGEST_ANNOTATION:
            yield causes.required(field, f"must not exceed {_LONGEST_ANNOTATION} bytes in length")
        else:
            yield from _fault(field, declared.compile(text.strip(), TEXT_OR_NULL), text)
        if key in seen:
            yield causes.duplicate(at(place, "key"), key)
        seen.add(key)


def _check_validation(validation: Object, place: str, declared: Declarations) -> Iterator[Cause]:
    text = str(validation.get("expression") or "")
    if not text.strip():
        yield causes.required(at(place, "expression"), "expression is not specified")
    else:
        yield from _fault(at(place, "expression"), declared.compile(text, TRUTH))
    computed = str(validation.get("messageExpression") or "")
    field = at(place, "messageExpression")
    if computed and not computed.strip():
        yield causes.invalid(field, computed, _BLANK)
    elif computed:
        yield from _fault(field, declared.compile(computed, TEXT, has_authorizer=False))
    message = str(validation.get("message") or "")
    if message and not message.strip():
        yield causes.invalid(at(place, "message"), message, _BLANK)
    elif "\n" in message.strip() or "\r" in message.strip():
        yield causes.invalid(at(place, "message"), message, "must not contain line breaks")
    yield from supported("reason", *_REASONS)(validation, place)


_MUTABLE: Final = ("*", "CONNECT", "CREATE", "UPDATE")
_PATCH_TYPES: Final = ("ApplyConfiguration", "JSONPatch")


def check_mutating_policy(policy: Object) -> Iterator[Cause]:
    """Check a MutatingAdmissionPolicy."""
    spec = struct_in(policy, "spec")
    has_params = spec.get("paramKind") is not None
    declared = Declarations(has_params=has_params)
    yield from _check_policy_head(spec)
    for rule in structs_in(spec.get("matchConstraints") or {}, "resourceRules"):
        for operation in texts_in(rule, "operations"):
            if operation not in _MUTABLE:
                place = "spec.matchConstraints.resourceRules.operations"
                yield causes.not_supported(place, operation, _MUTABLE)
    yield from _check_conditions(spec, "spec", has_params=has_params)
    yield from _check_variables(spec, declared)
    mutations = structs_in(spec, "mutations")
    if not mutations:
        yield causes.required("spec.mutations", "mutations must contain at least one item")
    for index, mutation in enumerate(mutations):
        yield from _check_mutation(mutation, f"spec.mutations[{index}]", declared)
    if not spec.get("reinvocationPolicy"):
        yield causes.required("spec.reinvocationPolicy")
    else:
        yield from supported("reinvocationPolicy", "IfNeeded", "Never")(spec, "spec")


def _check_mutation(mutation: Object, place: str, declared: Declarations) -> Iterator[Cause]:
    given = str(mutation.get("patchType") or "")
    if not given:
        yield causes.required(at(place, "patchType"))
        return
    if given not in _PATCH_TYPES:
        yield causes.not_supported(at(place, "patchType"), given, _PATCH_TYPES)
        return
    own, other = "applyConfiguration", "jsonPatch"
    if given == "JSONPatch":
        own, other = other, own
    patch = mutation.get(own)
    if patch is None:
        why = f"must be specified when patchType is {given}"
        yield causes.required(at(place, own), why)
    else:
        text = str(patch.get("expression") or "").strip()
        field = at(at(place, own), "expression")
        if not text:
            yield causes.required(field)
        else:
            results = PATCHES if given == "JSONPatch" else CONFIGURATION
            yield from _fault(field, declared.compile(text, results))
    if mutation.get(other) is not None:
        why = f"must not be specified when patchType is {given}"
        yield causes.invalid(at(place, other), f"{{{other}}}", why)


def check_mutating_binding(binding: Object) -> Iterator[Cause]:
    """Check a MutatingAdmissionPolicyBinding."""
    return _check_binding_head(struct_in(binding, "spec"))


def _check_binding_head(spec: Object) -> Iterator[Cause]:
    """Check what every binding has."""
    yield from named("policyName", dns1123_subdomain_problems)(spec, "spec")
    if spec.get("paramRef") is not None:
        yield from _check_param_ref(spec["paramRef"], "spec.paramRef")
    yield from inside("matchResources", *_MATCH_RESOURCES)(spec, "spec")


def _check_param_ref(reference: Object, path: str) -> Iterator[Cause]:
    name, labels = reference.get("name"), reference.get("selector")
    exclusive = "name and selector are mutually exclusive"
    if name:
        yield from problems_at(at(path, "name"), name, path_segment_problems(name))
        if labels is not None:
            yield causes.forbidden(at(path, "name"), exclusive)
    if labels is not None:
        yield from selector("selector")(reference, path)
        if name:
            yield causes.forbidden(at(path, "selector"), exclusive)
    if not name and labels is None:
        yield causes.required(path, "one of name or selector must be specified")
    action, place = reference.get("parameterNotFoundAction"), at(path, "parameterNotFoundAction")
    if not action:
        yield causes.required(place)
    elif action not in ("Allow", "Deny"):
        yield causes.not_supported(place, action, ("Deny", "Allow"))


def check_policy_binding(binding: Object) -> Iterator[Cause]:
    """Check a ValidatingAdmissionPolicyBinding."""
    spec = struct_in(binding, "spec")
    yield from _check_binding_head(spec)
    actions, field = texts_in(spec, "validationActions"), "spec.validationActions"
    seen: set[str] = set()
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            yield causes.not_supported(f"{field}[{index}]", action, _ACTIONS)
        if action in seen:
            yield causes.duplicate(f"{field}[{index}]", action)
        seen.add(action)
    if {"Deny", "Warn"} <= seen:
        why = (
            "must not contain both Deny and Warn (repeating the same validation failure "
            "information in the API response and headers serves no purpose)"
        )
        yield causes.invalid(field, actions, why)
    if not actions:
        yield causes.required(field, "at least one validation action is required")
