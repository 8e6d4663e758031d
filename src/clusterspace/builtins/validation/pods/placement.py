"""The rules of where a pod may run: affinity, tolerations, spread over topology."""

from collections.abc import Iterator
from typing import Final

from clusterspace.builtins.validation.rules import (
    Check,
    at,
    between,
    each,
    inside,
    of_form,
    positive,
    problems_at,
    required,
    structs_in,
    supported,
    texts_in,
)
from clusterspace.builtins.validation.selectors import NODE_SELECTOR, NODE_TERM, selector
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import (
    dns1123_label_problems,
    label_key_problems,
    label_value_problems,
)
from clusterspace.kube.objects import Object

TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _namespaces(term: Object, path: str) -> Iterator[Cause]:
    for name in texts_in(term, "namespaces"):
        yield from problems_at(at(path, "namespace"), name, dns1123_label_problems(name))


def _field_terms(term: Object, path: str) -> Iterator[Cause]:
    """Check terms on the fields of a node, of which there is one: its name."""
    for index, requirement in enumerate(structs_in(term, "matchFields")):
        place = f"{path}.matchFields[{index}]"
        operator, values = requirement.get("operator", ""), texts_in(requirement, "values")
        if operator not in ("In", "NotIn"):
            yield causes.invalid(at(place, "operator"), operator, "not a valid selector operator")
        elif len(values) != 1:
            why = (
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            )
            yield causes.required(at(place, "values"), why)
        if requirement.get("key") != "metadata.name":
            key = requirement.get("key", "")
            yield causes.invalid(at(place, "key"), key, "not a valid field selector key")


_WEIGHT: Final = between("weight", 1, 100, "must be in the range 1-100")


def _label_keys(*fields: str) -> Check:
    """Check lists of label keys whose values a pod takes from itself."""

    def check(struct: Object, path: str) -> Iterator[Cause]:
        for field in fields:
            for index, key in enumerate(texts_in(struct, field)):
                yield from problems_at(f"{path}.{field}[{index}]", key, label_key_problems(key))

    return check


_POD_TERM: Final = (
    selector("labelSelector"),
    selector("namespaceSelector"),
    _namespaces,
    _label_keys("matchLabelKeys", "mismatchLabelKeys"),
    required("topologyKey", "can not be empty"),
    of_form("topologyKey", label_key_problems),
)
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_POD_TERMS: Final = (
    each(_REQUIRED, *_POD_TERM),
    each(_PREFERRED, _WEIGHT, inside("podAffinityTerm", *_POD_TERM)),
)

AFFINITY: Final = inside(
    "affinity",
    inside(
        "nodeAffinity",
        inside(_REQUIRED, *NODE_SELECTOR, each("nodeSelectorTerms", _field_terms)),
        each(_PREFERRED, _WEIGHT, inside("preference", *NODE_TERM, _field_terms)),
    ),
    inside("podAffinity", *_POD_TERMS),
    inside("podAntiAffinity", *_POD_TERMS),
)
"""The check of a pod's affinity."""


def _toleration(toleration: Object, path: str) -> Iterator[Cause]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    if key:
        yield from problems_at(at(path, "key"), key, label_key_problems(key))
    elif operator != "Exists":
        why = (
            "operator must be Exists when `key` is empty, "
            'which means "match all values and all keys"'
        )
        yield causes.invalid(at(path, "operator"), operator, why)
    effect = toleration.get("effect", "")
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield causes.invalid(at(path, "effect"), effect, why)
    yield from _toleration_operator(operator, toleration.get("value", ""), at(path, "operator"))
    if effect and effect not in TAINT_EFFECTS:
        yield causes.not_supported(at(path, "effect"), effect, TAINT_EFFECTS)


def _toleration_operator(operator: str, value: str, path: str) -> Iterator[Cause]:
    if operator in ("", "Equal"):
        if problems := label_value_problems(value):
            yield causes.invalid(path, value, ";".join(problems))
    elif operator == "Exists":
        if value:
            why = "value must be empty when `operator` is 'Exists'"
            yield causes.invalid(path, value, why)
    else:
        yield causes.not_supported(path, operator, ("Equal", "Exists"))


TOLERATIONS: Final = each("tolerations", _toleration)
"""The check of a pod's tolerations."""


def _repeated_spread(spec: Object, path: str) -> Iterator[Cause]:
    constraints = structs_in(spec, "topologySpreadConstraints")
    pairs = [(each.get("topologyKey"), each.get("whenUnsatisfiable")) for each in constraints]
    for index, pair in enumerate(pairs):
        if pair in pairs[index + 1 :]:
            place = f"{path}.topologySpreadConstraints[{index}].{{topologyKey, whenUnsatisfiable}}"
            yield causes.duplicate(place, f"{{{pair[0]}, {pair[1]}}}")


def _domains(constraint: Object, path: str) -> Iterator[Cause]:
    wanted = constraint.get("whenUnsatisfiable", "")
    if constraint.get("minDomains") is not None and wanted != "DoNotSchedule":
        why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {wanted}"
        yield causes.invalid(at(path, "minDomains"), constraint["minDomains"], why)


_ABOVE_ZERO: Final = "must be greater than zero"
SPREAD: Final = (
    each(
        "topologySpreadConstraints",
        positive("maxSkew", _ABOVE_ZERO),
        required("topologyKey", "can not be empty"),
        supported("whenUnsatisfiable", "DoNotSchedule", "ScheduleAnyway"),
        positive("minDomains", _ABOVE_ZERO),
        _domains,
        supported("nodeAffinityPolicy", "Honor", "Ignore"),
        supported("nodeTaintsPolicy", "Honor", "Ignore"),
        _label_keys("matchLabelKeys"),
        selector("labelSelector"),
    ),
    _repeated_spread,
)
"""The checks of how a pod's replicas are spread."""
