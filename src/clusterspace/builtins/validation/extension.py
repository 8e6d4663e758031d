"""The rules of what extends a cluster: flow control, further API servers, webhooks."""

from collections.abc import Iterator
from typing import Final, cast
from urllib.parse import urlsplit

from clusterspace.builtins.validation.rules import (
    Check,
    at,
    between,
    check_all,
    each,
    one_of,
    problems_at,
    required,
    satisfies,
    struct_in,
    well_formed,
)
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


_URL_FORM: Final = "; desired format: https://host[/path]"
_HIGHEST_PORT: Final = 65535


def check_client_config(config: Object, path: str) -> Iterator[Cause]:
    """Check the client configuration of a webhook."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield causes.required(path, "exactly one of url or service is required")
    elif url is not None:
        address = urlsplit(str(url))
        if address.scheme != "https":
            why = f"'https' is the only allowed URL scheme{_URL_FORM}"
            yield causes.invalid(f"{path}.url", address.scheme, why)
        if not address.netloc:
            why = f"host must be specified{_URL_FORM}"
            yield causes.invalid(f"{path}.url", address.netloc, why)
    elif service is not None:
        yield from _check_service(cast("Object", service), f"{path}.service")


def _check_service(service: Object, path: str) -> Iterator[Cause]:
    # A kube-apiserver calls a missing name a missing namespace and the other way round, and so do
    # we: people look for what it says.
    for field, shown in (("namespace", "name"), ("name", "namespace")):
        if not service.get(field):
            yield causes.required(f"{path}.{shown}")
    yield from check_service_port(service, path)


def check_service_port(service: Object, path: str) -> Iterator[Cause]:
    """Check the port of a service that the server itself calls."""
    port = service.get("port", 443)
    if not isinstance(port, int) or not 1 <= port <= _HIGHEST_PORT:
        why = f"port is not valid: must be between 1 and {_HIGHEST_PORT}, inclusive"
        yield causes.invalid(f"{path}.port", port, why)
