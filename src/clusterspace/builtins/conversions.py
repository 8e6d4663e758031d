"""The two built-in kinds that are served in two shapes and stored in one.

An Event is kept as core/v1 and shown by events.k8s.io/v1 with newer names for the same fields. A
HorizontalPodAutoscaler is kept as autoscaling/v2; v1 knows only CPU, so what it cannot say
travels in an annotation and comes back unchanged.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.builtins import normal_form
from clusterspace.kube.objects import Object, annotations_of, find_at, with_metadata
from clusterspace.kube.resources import GroupVersionKind

_METRICS: Final = "autoscaling.alpha.kubernetes.io/metrics"
_BEHAVIOR: Final = "autoscaling.alpha.kubernetes.io/behavior"
_STATUS: Final = "autoscaling.alpha.kubernetes.io/status"
_CARRIED: Final = (_METRICS, _BEHAVIOR, _STATUS)

_EVENT_NAMES: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
"""What core/v1 calls it, and what events.k8s.io/v1 does."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """The served shape to the stored one, and back."""

    to_stored: Callable[[Object], Object]
    from_stored: Callable[[Object], Object]


def conversion_between(served: GroupVersionKind, stored_version: str) -> Conversion:
    """Return how a kind that is stored in another shape is converted."""
    stored = GroupVersionKind.of(stored_version, served.kind)
    convert = {"Event": _EVENT, "HorizontalPodAutoscaler": _AUTOSCALER}[served.kind]
    return Conversion(
        to_stored=lambda kube_object: _normal(convert.to_stored(kube_object), stored),
        from_stored=lambda kube_object: _normal(convert.from_stored(kube_object), served),
    )


def _normal(kube_object: Object, kind: GroupVersionKind) -> Object:
    named = {**kube_object, "kind": kind.kind, "apiVersion": kind.api_version}
    return normal_form.normalize(named, kind).object


def _renamed(kube_object: Object, names: Mapping[str, str]) -> Object:
    return {names.get(field, field): value for field, value in kube_object.items()}


_EVENT: Final = Conversion(
    to_stored=lambda event: _renamed(event, {new: old for old, new in _EVENT_NAMES.items()}),
    from_stored=lambda event: _renamed(event, _EVENT_NAMES),
)


def _to_v2(autoscaler: Object) -> Object:
    spec = dict(cast("Object", autoscaler.get("spec") or {}))
    status = dict(cast("Object", autoscaler.get("status") or {}))
    carried = annotations_of(autoscaler)
    others = _carried(carried.get(_METRICS))
    metrics = cast("list[Object]", others) if isinstance(others, list) else []
    percentage = spec.pop("targetCPUUtilizationPercentage", None)
    if percentage is not None:
        target = {"type": "Utilization", "averageUtilization": percentage}
        metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}, *metrics]
    if metrics:
        spec["metrics"] = metrics
    behavior = _carried(carried.get(_BEHAVIOR))
    if isinstance(behavior, dict):
        spec["behavior"] = behavior
    current = status.pop("currentCPUUtilizationPercentage", None)
    reported = _carried(carried.get(_STATUS))
    status |= cast("Object", reported) if isinstance(reported, dict) else {}
    if current is not None and "currentMetrics" not in status:
        usage = {"averageUtilization": current, "averageValue": "0"}
        metric = {"type": "Resource", "resource": {"name": "cpu", "current": usage}}
        status["currentMetrics"] = [metric]
    kept = {key: value for key, value in carried.items() if key not in _CARRIED}
    shown = with_metadata(autoscaler, annotations=kept or None)
    return {**shown, "spec": spec, "status": status}


def _to_v1(autoscaler: Object) -> Object:
    spec = dict(cast("Object", autoscaler.get("spec") or {}))
    status = dict(cast("Object", autoscaler.get("status") or {}))
    carried = dict(annotations_of(autoscaler))
    metrics = cast("list[Object]", spec.pop("metrics", None) or [])
    cpu = next((each for each in metrics if _cpu_percentage(each) is not None), None)
    if cpu is not None:
        spec["targetCPUUtilizationPercentage"] = _cpu_percentage(cpu)
    rest = [each for each in metrics if each is not cpu]
    if rest:
        carried[_METRICS] = json.dumps(rest)
    if "behavior" in spec:
        carried[_BEHAVIOR] = json.dumps(spec.pop("behavior"))
    reported = {key: status.pop(key) for key in ("conditions", "currentMetrics") if key in status}
    for each in cast("list[Object]", reported.get("currentMetrics") or []):
        used = find_at(each, "resource", "current", "averageUtilization")
        if find_at(each, "resource", "name") == "cpu" and used is not None:
            status["currentCPUUtilizationPercentage"] = used
    if reported:
        carried[_STATUS] = json.dumps(reported)
    shown = with_metadata(autoscaler, annotations=carried or None)
    return {**shown, "spec": spec, "status": status}


def _cpu_percentage(metric: Object) -> Any:
    if metric.get("type") != "Resource" or find_at(metric, "resource", "name") != "cpu":
        return None
    return find_at(metric, "resource", "target", "averageUtilization")


def _carried(text: str | None) -> Any:
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None  # somebody else's annotation of the same name: not ours to read


_AUTOSCALER: Final = Conversion(to_stored=_to_v2, from_stored=_to_v1)
