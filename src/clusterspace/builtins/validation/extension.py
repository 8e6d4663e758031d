"""The rules of what extends a cluster: flow control, further API servers, new kinds."""

from collections.abc import Iterator
from typing import Any, Final

from clusterspace.builtins.validation.admission import service_port
from clusterspace.builtins.validation.rules import (
    Check,
    at,
    between,
    check_all,
    chosen,
    each,
    one_of,
    problems_at,
    required,
    satisfies,
    struct_in,
    structs_in,
    texts_in,
    well_formed,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1035_label_problems, dns1123_subdomain_problems
from clusterspace.kube.objects import Object, find_at, metadata_of

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
            yield from _check_limited(spec["limited"])
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


def _check_limited(limited: Object) -> Iterator[Cause]:
    yield from check_all(limited, "spec.limited", _SHARES)
    response, path = struct_in(limited, "limitResponse"), "spec.limited.limitResponse"
    yield from one_of("type", "Queue", "Reject")(response, path)
    if response.get("type") not in ("Queue", "Reject"):
        return
    queues = response.get("queuing")
    if response.get("type") == "Queue" and queues is None:
        why = "must not be empty if limited.limitResponse.type is Limited"
        yield causes.required(at(path, "queuing"), why)
    elif response.get("type") != "Queue" and queues is not None:
        why = "must be nil if limited.limitResponse.type is not Limited"
        yield causes.forbidden(at(path, "queuing"), why)


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
        backend, "spec.service", (required("namespace"), required("name"), service_port)
    )
    if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
        why = "may not be true if caBundle is present"
        yield causes.invalid("spec.insecureSkipTLSVerify", True, why)


def _check_priority(spec: Object, field: str, most: int) -> Iterator[Cause]:
    number = spec.get(field, 0)
    if not 0 < number <= most:
        why = f"must be positive and less than {most}"
        yield causes.invalid(f"spec.{field}", number, why)


def check_custom_resource_definition(definition: Object) -> Iterator[Cause]:
    """Check a CustomResourceDefinition, but for its schemas."""
    spec = struct_in(definition, "spec")
    names = struct_in(spec, "names")
    name, wanted = (
        metadata_of(definition).get("name", ""),
        f"{names.get('plural', '')}.{spec.get('group', '')}",
    )
    if name and name != wanted:
        why = 'must be spec.names.plural+"."+spec.group'
        yield causes.invalid("metadata.name", name, why)
    yield from _check_group(spec.get("group", ""))
    yield from chosen("scope", "Cluster", "Namespaced")(spec, "spec")
    yield from _check_versions(spec)
    yield from _check_names(names)
    if not struct_in(definition, "status").get("storedVersions"):
        why = "must have at least one stored version"
        yield causes.invalid("status.storedVersions", None, why)


def _check_group(group: str) -> Iterator[Cause]:
    if not group:
        yield causes.required("spec.group")
        return
    problems = dns1123_subdomain_problems(group)
    yield from problems_at("spec.group", group, problems)
    if not problems and "." not in group:
        why = "should be a domain with at least one dot"
        yield causes.invalid("spec.group", group, why)


def _check_versions(spec: Object) -> Iterator[Cause]:
    versions = structs_in(spec, "versions")
    seen: set[str] = set()
    is_duplicated = False
    for index, version in enumerate(versions):
        name = version.get("name", "")
        place = f"spec.versions[{index}].name"
        yield from problems_at(place, name, dns1035_label_problems(name))
        is_duplicated = is_duplicated or name in seen
        seen.add(name)
        if struct_in(version, "schema").get("openAPIV3Schema") is None:
            place = f"spec.versions[{index}].schema.openAPIV3Schema"
            yield causes.required(place, "schemas are required")
    if is_duplicated:
        yield causes.invalid("spec.versions", _shown(spec), "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        yield causes.invalid("spec.versions", _shown(spec), why)


def _shown(spec: Object) -> Any:
    return spec.get("versions")


def _check_names(names: Object) -> Iterator[Cause]:
    for field in ("plural", "singular", "kind", "listKind"):
        text = str(names.get(field) or "")
        if not text:
            yield causes.required(f"spec.names.{field}")
        else:
            problems = dns1035_label_problems(text.lower())
            yield from problems_at(f"spec.names.{field}", text, problems)
    for index, text in enumerate(texts_in(names, "shortNames")):
        problems = dns1035_label_problems(text)
        yield from problems_at(f"spec.names.shortNames[{index}]", text, problems)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        why = "kind and listKind may not be the same"
        yield causes.invalid("spec.names.listKind", names["listKind"], why)


def check_custom_resource_definition_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a definition goes on defining the same kind."""
    spec, held = struct_in(new, "spec"), struct_in(old, "spec")
    for path in (("group",), ("scope",), ("names", "kind"), ("names", "plural")):
        wanted, before = find_at(spec, *path), find_at(held, *path)
        if wanted != before:
            yield causes.invalid(f"spec.{'.'.join(path)}", wanted, "field is immutable")
