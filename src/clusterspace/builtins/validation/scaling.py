"""The rules of autoscalers and disruption budgets."""

from collections.abc import Iterator
from typing import Any, Final

from clusterspace.builtins.validation.metadata import selector
from clusterspace.builtins.validation.rules import (
    at,
    between,
    check_all,
    invalid_struct,
    positive,
    problems_at,
    struct_in,
    structs_in,
    supported,
)
from clusterspace.builtins.validation.workloads import check_at_most_all, check_int_or_percent
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import path_segment_problems
from clusterspace.kube.objects import Object
from clusterspace.kube.quantities import parse_quantity

_SOURCES: Final = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_RESOURCES: Final = ("containerResource", "resource")
_MOST_PERIOD: Final = 1800
_MOST_WINDOW: Final = 3600
_POSITIVE: Final = "must be greater than zero"


def check_autoscaler(autoscaler: Object) -> Iterator[Cause]:
    """Check a HorizontalPodAutoscaler of either version."""
    spec = struct_in(autoscaler, "spec")
    least, most = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if least is not None and least < 1:
        yield causes.invalid("spec.minReplicas", least, "must be greater than or equal to 1")
    if most < 1:
        yield causes.invalid("spec.maxReplicas", most, "must be greater than 0")
    if least is not None and most < least:
        why = "must be greater than or equal to `minReplicas`"
        yield causes.invalid("spec.maxReplicas", most, why)
    target = struct_in(spec, "scaleTargetRef")
    yield from _check_reference(target, "spec.scaleTargetRef")
    if "/" not in target.get("apiVersion", "") and target.get("kind") not in _CORE_KINDS:
        why = "apiVersion must specify API group"
        place = "spec.scaleTargetRef.apiVersion"
        yield causes.invalid(place, target.get("apiVersion", ""), why)
    cpu = spec.get("targetCPUUtilizationPercentage")
    if cpu is not None and cpu < 1:
        place = "spec.metrics[0].resource.target.averageUtilization"
        yield causes.invalid(place, cpu, "must be greater than 0")
    for index, metric in enumerate(structs_in(spec, "metrics")):
        yield from _check_metric(metric, f"spec.metrics[{index}]")
    kinds = {metric.get("type") for metric in structs_in(spec, "metrics")}
    if spec.get("minReplicas") == 0 and not kinds & {"Object", "External"}:
        why = (
            "must specify at least one Object or External metric "
            "to support scaling to zero replicas"
        )
        yield causes.forbidden("spec.metrics", why)
    yield from _check_behavior(spec)


_CORE_KINDS: Final = ("ReplicationController",)


def _check_reference(reference: Object, path: str) -> Iterator[Cause]:
    for field in ("kind", "name"):
        name = reference.get(field)
        if not name:
            yield causes.required(at(path, field))
        else:
            yield from problems_at(at(path, field), name, path_segment_problems(name))


def _check_metric(metric: Object, path: str) -> Iterator[Cause]:
    kind = metric.get("type", "")
    if not kind:
        yield causes.required(at(path, "type"), "must specify a metric source type")
    if kind not in _SOURCES:
        yield causes.not_supported(at(path, "type"), kind, tuple(_SOURCES))
    given = [field for field in sorted(_SOURCES.values()) if metric.get(field) is not None]
    wanted = _SOURCES.get(kind)
    if wanted and wanted not in given:
        why = "must populate information for the given metric source"
        yield causes.required(at(path, wanted), why)
    for field in given:
        if field == wanted or field not in _RESOURCES:
            source = metric[field]
            here = at(path, field)
            target, place = struct_in(source, "target"), at(here, "target")
            if field == "object":
                described = struct_in(source, "describedObject")
                yield from _check_reference(described, at(here, "describedObject"))
            if field in ("object", "external", "pods"):
                name = struct_in(source, "metric").get("name")
                if not name:
                    yield causes.required(f"{here}.metric.name", "must specify a metric name")
            elif not source.get("name"):
                yield causes.required(at(here, "name"), "must specify a resource name")
            yield from _check_target(target, place)
            fields, why = _NEEDS.get(field, ((), ""))
            if fields and not any(target.get(each) for each in fields):
                yield causes.required(at(place, "averageValue"), why)
        if field != wanted and wanted:
            yield causes.forbidden(at(path, field), "must populate the given metric source only")


def _check_target(target: Object, path: str) -> Iterator[Cause]:
    if not target.get("type"):
        yield causes.required(at(path, "type"), "must specify a metric target type")
    if target.get("type") not in ("Utilization", "Value", "AverageValue"):
        why = "must be either Utilization, Value, or AverageValue"
        yield causes.invalid(at(path, "type"), target.get("type", ""), why)
    for field in ("value", "averageValue"):
        text = target.get(field)
        if text is not None and parse_quantity(text).nanos <= 0:
            yield causes.invalid(at(path, field), text, "must be positive")
    yield from positive("averageUtilization")(target, path)


_NEEDS: Final = {
    "pods": (("averageValue",), "must specify a positive target averageValue"),
    "object": (("value", "averageValue"), "must set either a target value or averageValue"),
    "external": (
        ("value", "averageValue"),
        "must set either a target value for metric or a per-pod target",
    ),
}


_POLICY: Final = (
    supported("type", "Percent", "Pods"),
    positive("value", _POSITIVE),
    positive("periodSeconds", _POSITIVE),
    between(
        "periodSeconds", -(1 << 31), _MOST_PERIOD, f"must be less than or equal to {_MOST_PERIOD}"
    ),
)


def _check_behavior(spec: Object) -> Iterator[Cause]:
    behavior = struct_in(spec, "behavior")
    for direction in ("scaleUp", "scaleDown"):
        rules, path = behavior.get(direction), f"spec.behavior.{direction}"
        if rules is None:
            continue
        window: Any = rules.get("stabilizationWindowSeconds")
        place = at(path, "stabilizationWindowSeconds")
        if window is not None and window < 0:
            yield causes.invalid(place, window, "must be greater than or equal to zero")
        if window is not None and window > _MOST_WINDOW:
            yield causes.invalid(place, window, f"must be less than or equal to {_MOST_WINDOW}")
        yield from supported("selectPolicy", "Disabled", "Max", "Min")(rules, path)
        policies = structs_in(rules, "policies")
        if not policies:
            yield causes.required(at(path, "policies"), "must specify at least one Policy")
        for index, policy in enumerate(policies):
            yield from check_all(policy, f"{path}.policies[{index}]", _POLICY)


def check_budget(budget: Object) -> Iterator[Cause]:
    """Check a PodDisruptionBudget."""
    spec = struct_in(budget, "spec")
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if least is not None and most is not None:
        shown = {
            "MinAvailable": least,
            "Selector": spec.get("selector"),
            "MaxUnavailable": most,
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        why = "minAvailable and maxUnavailable cannot be both set"
        yield invalid_struct("spec", shown, why)
    for field in ("minAvailable", "maxUnavailable"):
        yield from check_int_or_percent(spec.get(field), f"spec.{field}")
        yield from check_at_most_all(spec.get(field), f"spec.{field}")
    policies = ("AlwaysAllow", "IfHealthyBudget")
    yield from selector("selector")(spec, "spec")
    yield from supported("unhealthyPodEvictionPolicy", *policies)(spec, "spec")
