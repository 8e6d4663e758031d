"""The rules of flow control: FlowSchemas, and the priority levels they lead to."""

import math
from collections.abc import Iterator
from typing import Any, Final

from clusterspace.builtins import flow_control
from clusterspace.builtins.validation.rules import (
    Check,
    at,
    between,
    check_all,
    each,
    invalid_struct,
    required,
    satisfies,
    struct_in,
    structs_in,
    texts_in,
    well_formed,
)
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_label_problems, dns1123_subdomain_problems
from clusterspace.kube.objects import Object, name_of

_LAST_PRECEDENCE: Final = 10000
_MOST_QUEUES: Final = 10_000_000
_ENTROPY_BITS: Final = 60
_EVERY: Final = "*"

_SUBJECTS: Final = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}
_VERBS: Final = (
    "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch",
)  # fmt: skip

_FIXED: Final = {
    (each["kind"], name_of(each)): each["spec"]
    for each in (*flow_control.MANDATORY_SCHEMAS, *flow_control.MANDATORY_LEVELS)
}


# -- FlowSchemas -----------------------------------------------------------------------------------


def _check_subject(subject: Object, path: str) -> Iterator[Cause]:
    kind = subject.get("kind", "")
    if kind not in _SUBJECTS:
        yield causes.not_supported(at(path, "kind"), kind, tuple(_SUBJECTS))
        return
    # What the subject is comes first, then what it must not be besides.
    own = _SUBJECTS[kind]
    said = subject.get(own)
    if said is None:
        yield causes.required(at(path, own), f"{own} is required when subject kind is '{kind}'")
    else:
        yield from required("name")(said, at(path, own))
        if kind == "ServiceAccount":
            if said.get("name") != _EVERY:
                yield from well_formed("name", dns1123_subdomain_problems)(said, at(path, own))
            why = "must specify namespace for service account"
            yield from required("namespace", why)(said, at(path, own))
            yield from well_formed("namespace", dns1123_label_problems)(said, at(path, own))
    order = ("User", "Group") if kind == "ServiceAccount" else ("ServiceAccount", "User", "Group")
    for other in order:
        if other != kind and subject.get(_SUBJECTS[other]) is not None:
            field = _SUBJECTS[other]
            why = f"{field} is forbidden when subject kind is not '{other}'"
            yield causes.forbidden(at(path, field), why)


def _alone(field: str, what: str, missing: str) -> Check:
    """Require values, of which the one for all is the only one."""

    def check(rule: Object, path: str) -> Iterator[Cause]:
        values = texts_in(rule, field)
        if not values:
            yield causes.required(at(path, field), missing)
        elif _EVERY in values and len(values) > 1:
            why = f"if '*' is present, must not specify other {what}"
            yield causes.invalid(at(path, field), values, why)

    return check


def _check_verbs(rule: Object, path: str) -> Iterator[Cause]:
    yield from _alone("verbs", "verbs", "verbs must contain at least one value")(rule, path)
    verbs = texts_in(rule, "verbs")
    if _EVERY not in verbs and not set(verbs) <= set(_VERBS):
        yield causes.not_supported(at(path, "verbs"), verbs, _VERBS)


def _check_namespaces(rule: Object, path: str) -> Iterator[Cause]:
    namespaces, place = texts_in(rule, "namespaces"), at(path, "namespaces")
    if not namespaces and not rule.get("clusterScope"):
        why = "resource rules that are not cluster scoped must supply at least one namespace"
        yield causes.required(place, why)
    elif _EVERY in namespaces:
        if len(namespaces) > 1:
            why = "if '*' is present, must not specify other namespaces"
            yield causes.invalid(place, namespaces, why)
    else:
        introduction = "each member of this list must be '*' or a DNS-1123 label; "
        for index, namespace in enumerate(namespaces):
            for problem in dns1123_label_problems(namespace):
                yield causes.invalid(f"{place}[{index}]", namespace, introduction + problem)


def _check_urls(rule: Object, path: str) -> Iterator[Cause]:
    missing = "nonResourceURLs must contain at least one value"
    yield from _alone("nonResourceURLs", "non-resource URLs", missing)(rule, path)
    urls = texts_in(rule, "nonResourceURLs")
    if _EVERY in urls:
        return
    for index, url in enumerate(urls):
        problem = ""
        if not url:
            problem = "must not be empty"
        elif url != "/" and not url.startswith("/"):
            problem = "must start with slash"
        elif " " in url:
            problem = "must not contain white-space"
        elif "//" in url:
            problem = "must not contain double slash"
        elif url.count(_EVERY) > 1 or (_EVERY in url and not url.endswith("/*")):
            problem = "wildcard can only do suffix matching"
        if problem:
            yield causes.invalid(f"{at(path, 'nonResourceURLs')}[{index}]", url, problem)


def _check_rule(rule: Object, path: str) -> Iterator[Cause]:
    why = "subjects must contain at least one value"
    yield from required("subjects", why)(rule, path)
    yield from each("subjects", _check_subject)(rule, path)
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        why = "at least one of resourceRules and nonResourceRules has to be non-empty"
        yield causes.required(path, why)
    yield from each(
        "resourceRules",
        _check_verbs,
        _alone("apiGroups", "api groups", "resource rules must supply at least one api group"),
        _alone("resources", "resources", "resource rules must supply at least one resource"),
        _check_namespaces,
    )(rule, path)
    yield from each("nonResourceRules", _check_verbs, _check_urls)(rule, path)


def _check_fixed(kube_object: Object, *, but: str = "") -> Iterator[Cause]:
    """Refuse a mandatory object whose spec is not the one that it always has."""
    name, spec = name_of(kube_object), struct_in(kube_object, "spec")
    fixed = _FIXED.get((str(kube_object.get("kind")), name))
    if fixed is None:
        return
    free = f" except the 'spec.{but}' field" if but else ""
    if {**spec, but: None} != {**fixed, but: None}:
        yield invalid_struct("spec", spec, f"spec of '{name}'{free} must equal the fixed value")


def _check_conditions(kube_object: Object) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, condition in enumerate(structs_in(struct_in(kube_object, "status"), "conditions")):
        path, kind = f"status.conditions[{index}]", str(condition.get("type", ""))
        if kind in seen:
            yield causes.duplicate(at(path, "type"), kind)
        seen.add(kind)
        yield from required("type")(condition, path)


def check_flow_schema(schema: Object) -> Iterator[Cause]:
    """Check a FlowSchema."""
    spec = struct_in(schema, "spec")
    precedence, place = spec.get("matchingPrecedence", 0), "spec.matchingPrecedence"
    if precedence <= 0:
        yield causes.invalid(place, precedence, "must be a positive value")
    if precedence > _LAST_PRECEDENCE:
        yield causes.invalid(place, precedence, f"must not be greater than {_LAST_PRECEDENCE}")
    if precedence == 1 and name_of(schema) != flow_control.EXEMPT:
        why = "only the schema named 'exempt' may have matchingPrecedence 1"
        yield causes.invalid(place, precedence, why)
    method = spec.get("distinguisherMethod")
    methods = (flow_control.BY_NAMESPACE, flow_control.BY_USER)
    if method is not None and method.get("type") not in methods:
        shown = {"Type": method.get("type", "")}
        yield causes.not_supported("spec.distinguisherMethod.type", shown, methods)
    level, place = struct_in(spec, "priorityLevelConfiguration"), "spec.priorityLevelConfiguration"
    yield from required("name", "must reference a priority level")(level, place)
    yield from well_formed("name", dns1123_subdomain_problems)(level, place)
    yield from each("rules", _check_rule)(spec, "spec")
    yield from _check_fixed(schema)
    yield from _check_conditions(schema)


# -- priority levels -------------------------------------------------------------------------------


def check_priority_level(level: Object) -> Iterator[Cause]:
    """Check a PriorityLevelConfiguration."""
    spec = struct_in(level, "spec")
    kind = spec.get("type", "")
    if (kind == "Exempt") != (name_of(level) == flow_control.EXEMPT):
        why = "must be 'Exempt' if and only if `name` is 'exempt'"
        yield causes.invalid("spec.type", kind, why)
    if kind == "Exempt":
        if spec.get("limited") is not None:
            yield causes.forbidden("spec.limited", "must be nil if the type is not Limited")
        yield from check_all(struct_in(spec, "exempt"), "spec.exempt", (_SHARES, _LENT))
    elif kind == "Limited":
        if spec.get("exempt") is not None:
            yield causes.forbidden("spec.exempt", "must be nil if the type is Limited")
        if spec.get("limited") is None:
            yield causes.required("spec.limited", "must not be empty when type is Limited")
        else:
            checks = (_SHARES, _check_response, _LENT, _BORROWED)
            yield from check_all(spec["limited"], "spec.limited", checks)
    else:
        yield causes.not_supported("spec.type", kind, ("Exempt", "Limited"))
    yield from _check_fixed(level, but="exempt" if name_of(level) == flow_control.EXEMPT else "")
    yield from _check_conditions(level)


_SHARES: Final = satisfies(
    "nominalConcurrencyShares", lambda shares: shares >= 0, "must be a non-negative integer"
)
_LENT: Final = between("lendablePercent", 0, 100)
_BORROWED: Final = satisfies(
    "borrowingLimitPercent",
    lambda share: share >= 0,
    "if specified, must be a non-negative integer",
)


def _check_response(limited: Object, path: str) -> Iterator[Cause]:
    response, path = struct_in(limited, "limitResponse"), at(path, "limitResponse")
    kind, queuing = response.get("type", ""), response.get("queuing")
    if kind == "Reject":
        if queuing is not None:
            why = "must be nil if limited.limitResponse.type is not Limited"
            yield causes.forbidden(at(path, "queuing"), why)
    elif kind == "Queue":
        if queuing is None:
            why = "must not be empty if limited.limitResponse.type is Limited"
            yield causes.required(at(path, "queuing"), why)
        else:
            yield from _check_queuing(queuing, at(path, "queuing"))
    else:
        yield causes.not_supported(at(path, "type"), kind, ("Queue", "Reject"))


def _check_queuing(queuing: Object, path: str) -> Iterator[Cause]:
    numbers: dict[str, Any] = {
        field: queuing.get(field, 0) for field in ("queueLengthLimit", "queues", "handSize")
    }
    queues, hand = numbers["queues"], numbers["handSize"]
    for field, number in numbers.items():
        if number <= 0:
            yield causes.invalid(at(path, field), number, "must be positive")
        elif field == "queues" and number > _MOST_QUEUES:
            yield causes.invalid(
                at(path, field), number, f"must not be greater than {_MOST_QUEUES}"
            )
        elif field == "handSize" and hand > queues:
            why = f"should not be greater than queues ({queues})"
            yield causes.invalid(at(path, field), hand, why)
        elif field == "handSize" and math.ceil(math.log2(queues) * hand) > _ENTROPY_BITS:
            why = (
                f"required entropy bits of deckSize {queues} and handSize {hand} should not be "
                f"greater than {_ENTROPY_BITS}"
            )
            yield causes.invalid(at(path, field), hand, why)
