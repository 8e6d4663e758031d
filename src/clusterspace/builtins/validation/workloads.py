"""The rules of what keeps pods running: Deployments and their kin, autoscalers, budgets."""

import re
from collections.abc import Iterator
from typing import Any, Final

from clusterspace.builtins.validation.metadata import (
    SELECTOR,
    is_empty,
    is_readable,
    matches,
    ordered,
    selector,
)
from clusterspace.builtins.validation.pods import check_pod_template
from clusterspace.builtins.validation.rules import (
    IMMUTABLE,
    NOT_NEGATIVE,
    Check,
    at,
    between,
    check_all,
    chosen,
    each,
    immutable,
    inside,
    invalid_struct,
    not_negative,
    positive,
    problems_at,
    struct_in,
    structs_in,
    supported,
    unsupported_struct,
    well_formed,
)
from clusterspace.builtins.validation.volumes import CLAIM_SPEC
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_label_problems, path_segment_problems
from clusterspace.kube.objects import Object, metadata_of
from clusterspace.kube.quantities import parse_quantity

_PERCENT: Final = re.compile(r"[0-9]+%")
_PERCENT_SHAPE: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
_MISMATCH: Final = "`selector` does not match template `labels`"


def check_int_or_percent(value: Any, path: str) -> Iterator[Cause]:
    """Check a count that may be a share instead."""
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            yield causes.invalid(path, value, _PERCENT_SHAPE)
    elif value is not None and value < 0:
        yield causes.invalid(path, value, NOT_NEGATIVE)


def check_at_most_all(value: Any, path: str) -> Iterator[Cause]:
    """Check that a share is not more than everything."""
    is_share = isinstance(value, str) and _PERCENT.fullmatch(value)
    if is_share and int(value[:-1]) > 100:
        yield causes.invalid(path, value, "must not be greater than 100%")


def _amount(value: Any) -> int:
    """Return a count, or the number of a share; nothing counts as none."""
    if isinstance(value, str):
        return int(value[:-1]) if _PERCENT.fullmatch(value) else 0
    return value or 0


def check_selector(
    spec: Object, path: str, noun: str, unreadable: str = "invalid label selector"
) -> Iterator[Cause]:
    """Check the selector that says which pods belong to a workload."""
    selector, place = spec.get("selector"), at(path, "selector")
    if selector is None:
        yield causes.required(place)
        return
    yield from check_all(selector, place, SELECTOR)
    if is_empty(selector):
        yield causes.invalid(place, selector, f"empty selector is invalid for {noun}")
    elif not is_readable(selector):
        yield invalid_struct(place, ordered(selector), unreadable)


def _selects(selector: Object | None, template: Object) -> bool:
    """Whether a selector picks the pods of a template; one that is not there picks none."""
    return selector is not None and matches(selector, struct_in(metadata_of(template), "labels"))


def check_labels_match(spec: Object, path: str) -> Iterator[Cause]:
    """Check that a workload selects its own pods; no selector selects none."""
    template = struct_in(spec, "template")
    selector = spec.get("selector")
    if selector is not None and (is_empty(selector) or not is_readable(selector)):
        return
    if not _selects(selector, template):
        labels = metadata_of(template).get("labels")
        yield causes.invalid(f"{path}.template.metadata.labels", labels, _MISMATCH)


def check_restarts(template: Object, path: str, noun: str) -> Iterator[Cause]:
    """Check that pods are restarted for ever."""
    spec = struct_in(template, "spec")
    if spec.get("restartPolicy") != "Always":
        place = f"{path}.spec.restartPolicy"
        yield causes.not_supported(place, spec.get("restartPolicy"), ("Always",))
    if spec.get("activeDeadlineSeconds") is not None:
        why = f"activeDeadlineSeconds in {noun} is not Supported"
        yield causes.forbidden(f"{path}.spec.activeDeadlineSeconds", why)


def _replicated_template(spec: Object, path: str) -> Iterator[Cause]:
    template, place = struct_in(spec, "template"), at(path, "template")
    if spec.get("selector") is not None and not is_readable(spec["selector"]):
        return
    yield from check_labels_match(spec, path)
    yield from check_pod_template(template, place)
    yield from check_restarts(template, place, "ReplicaSet")


def check_deployment(deployment: Object) -> Iterator[Cause]:
    """Check a Deployment."""
    spec = struct_in(deployment, "spec")
    yield from not_negative("replicas")(spec, "spec")
    yield from check_selector(spec, "spec", "deployment")
    yield from _replicated_template(spec, "spec")
    strategy = struct_in(spec, "strategy")
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            why = "may not be specified when strategy `type` is 'Recreate'"
            yield causes.forbidden("spec.strategy.rollingUpdate", why)
    elif kind == "RollingUpdate":
        place, rolling = "spec.strategy.rollingUpdate", struct_in(strategy, "rollingUpdate")
        down, extra = rolling.get("maxUnavailable"), rolling.get("maxSurge")
        yield from check_int_or_percent(down, at(place, "maxUnavailable"))
        yield from check_int_or_percent(extra, at(place, "maxSurge"))
        if _amount(down) == 0 and _amount(extra) == 0:
            why = "may not be 0 when `maxSurge` is 0"
            yield causes.invalid(at(place, "maxUnavailable"), down, why)
        yield from check_at_most_all(down, at(place, "maxUnavailable"))
    else:
        shown = {"Type": kind, "RollingUpdate": rolling and _bounds_form(rolling)}
        yield unsupported_struct("spec.strategy", shown, ("Recreate", "RollingUpdate"))
    yield from not_negative("minReadySeconds")(spec, "spec")
    yield from not_negative("revisionHistoryLimit")(spec, "spec")
    yield from not_negative("progressDeadlineSeconds")(spec, "spec")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        why = "must be greater than minReadySeconds"
        yield causes.invalid("spec.progressDeadlineSeconds", deadline, why)


def _bounds_form(rolling: Object) -> Object:
    """Return the bounds of a rolling update as the server's messages show them."""
    return {
        "MaxUnavailable": rolling.get("maxUnavailable", 0),
        "MaxSurge": rolling.get("maxSurge", 0),
    }


def check_replica_set(replica_set: Object) -> Iterator[Cause]:
    """Check a ReplicaSet."""
    spec = struct_in(replica_set, "spec")
    yield from not_negative("replicas")(spec, "spec")
    yield from not_negative("minReadySeconds")(spec, "spec")
    yield from check_selector(spec, "spec", "deployment")
    yield from _replicated_template(spec, "spec")


def check_selector_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that a workload goes on selecting the same pods."""
    selector, existing = (struct_in(struct_in(each, "spec"), "selector") for each in (new, old))
    if selector != existing:
        yield invalid_struct("spec.selector", ordered(selector), IMMUTABLE)


def check_daemon_set(daemon_set: Object) -> Iterator[Cause]:
    """Check a DaemonSet."""
    spec = struct_in(daemon_set, "spec")
    template, selector = struct_in(spec, "template"), spec.get("selector")
    yield from inside("selector", *SELECTOR)(spec, "spec")
    can_select = selector is None or is_readable(selector)
    if can_select and not _selects(selector, template):
        labels = metadata_of(template).get("labels")
        yield causes.invalid("spec.template.metadata.labels", labels, _MISMATCH)
    if selector is not None and is_empty(selector):
        yield causes.invalid("spec.selector", selector, "empty selector is invalid for daemonset")
    yield from check_pod_template(template, "spec.template")
    yield from check_restarts(template, "spec.template", "DaemonSet")
    yield from not_negative("minReadySeconds")(spec, "spec")
    strategy = struct_in(spec, "updateStrategy")
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        wanted = ("RollingUpdate", "OnDelete")
        rolling = strategy.get("rollingUpdate")
        shown = {"Type": strategy.get("type"), "RollingUpdate": rolling and _bounds_form(rolling)}
        yield unsupported_struct("spec.updateStrategy", shown, wanted)
    elif strategy["type"] == "RollingUpdate":
        rolling, place = struct_in(strategy, "rollingUpdate"), "spec.updateStrategy.rollingUpdate"
        down, extra = rolling.get("maxUnavailable"), rolling.get("maxSurge")
        yield from check_int_or_percent(down, at(place, "maxUnavailable"))
        yield from check_int_or_percent(extra, at(place, "maxSurge"))
        most_down, most_extra = _amount(down), _amount(extra)
        # A daemon is replaced either by taking it down or by doubling it, not both.
        if most_down and most_extra:
            why = "may not be set when maxUnavailable is non-zero"
            yield causes.invalid(at(place, "maxSurge"), extra, why)
        if not most_down and not most_extra:
            why = "cannot be 0 when maxSurge is 0"
            yield causes.required(at(place, "maxUnavailable"), why)
        yield from check_at_most_all(down, at(place, "maxUnavailable"))
        yield from check_at_most_all(extra, at(place, "maxSurge"))
    yield from not_negative("revisionHistoryLimit")(spec, "spec")


_RETENTION: Final = (
    chosen("whenDeleted", "Retain", "Delete"),
    chosen("whenScaled", "Retain", "Delete"),
)
_SET_COUNTS: Final[tuple[Check, ...]] = (
    inside("persistentVolumeClaimRetentionPolicy", *_RETENTION),
    each("volumeClaimTemplates", inside("spec", *CLAIM_SPEC)),
    not_negative("replicas"),
    not_negative("minReadySeconds"),
    well_formed("serviceName", dns1123_label_problems),
)


def check_stateful_set(stateful_set: Object) -> Iterator[Cause]:
    """Check a StatefulSet."""
    spec = struct_in(stateful_set, "spec")
    policy = spec.get("podManagementPolicy")
    if policy not in ("OrderedReady", "Parallel"):
        why = "must be 'OrderedReady' or 'Parallel'"
        yield causes.invalid("spec.podManagementPolicy", policy, why)
    strategy = struct_in(spec, "updateStrategy")
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    bounds = struct_in(strategy, "rollingUpdate")
    shown = {"Partition": bounds.get("partition", 0), "MaxUnavailable": None}
    if kind == "OnDelete" and rolling is not None:
        why = "only allowed for updateStrategy 'RollingUpdate'"
        yield invalid_struct("spec.updateStrategy.rollingUpdate", shown, why)
    elif kind == "RollingUpdate" and rolling is not None:
        yield from not_negative("partition")(rolling, "spec.updateStrategy.rollingUpdate")
    elif kind not in ("OnDelete", "RollingUpdate"):
        why = "must be 'RollingUpdate' or 'OnDelete'"
        yield invalid_struct(
            "spec.updateStrategy",
            {"Type": kind, "RollingUpdate": None if rolling is None else shown},
            why,
        )
    yield from check_all(spec, "spec", _SET_COUNTS)
    yield from check_selector(spec, "spec", "statefulset", unreadable="")
    if spec.get("selector") is None or is_readable(spec["selector"]):
        yield from check_labels_match(spec, "spec")
        # As the pods have it: a volume for each claim, and host names of their own.
        template = struct_in(spec, "template")
        claims = structs_in(spec, "volumeClaimTemplates")
        names = [metadata_of(claim).get("name", "") for claim in claims]
        volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
        own = struct_in(template, "spec")
        volumes += [each for each in structs_in(own, "volumes") if each.get("name") not in names]
        kept = {field: own[field] for field in own if field not in ("hostname", "subdomain")}
        deployed = {**template, "spec": {**kept, "volumes": volumes}}
        yield from check_pod_template(deployed, "spec.template")
    yield from check_restarts(struct_in(spec, "template"), "spec.template", "StatefulSet")


_MUTABLE_IN_A_SET: Final = frozenset(
    {
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    }
)
_SET_IS_FIXED: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
    "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
    "'minReadySeconds' are forbidden"
)


def check_stateful_set_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check a change of a StatefulSet: what names its pods and claims is fixed."""
    wanted, existing = (
        {
            key: value
            for key, value in struct_in(each, "spec").items()
            if key not in _MUTABLE_IN_A_SET
        }
        for each in (new, old)
    )
    if wanted != existing:
        yield causes.forbidden("spec", _SET_IS_FIXED)


def check_replication_controller(controller: Object) -> Iterator[Cause]:
    """Check a ReplicationController."""
    spec = struct_in(controller, "spec")
    yield from not_negative("minReadySeconds")(spec, "spec")
    if not spec.get("selector"):
        yield causes.required("spec.selector")
    yield from not_negative("replicas")(spec, "spec")
    template = spec.get("template")
    if template is None:
        yield causes.required("spec.template")
        return
    labels = struct_in(metadata_of(template), "labels")
    wanted = struct_in(spec, "selector")
    if any(labels.get(key) != value for key, value in wanted.items()):
        yield causes.invalid("spec.template.metadata.labels", labels or None, _MISMATCH)
    yield from check_pod_template(template, "spec.template")
    yield from check_restarts(template, "spec.template", "ReplicationController")


def check_pod_template_object(pod_template: Object) -> Iterator[Cause]:
    """Check a PodTemplate."""
    return check_pod_template(struct_in(pod_template, "template"), "template")


def check_controller_revision(revision: Object) -> Iterator[Cause]:
    """Check a ControllerRevision."""
    yield from not_negative("revision")(revision, "")
    if revision.get("data") is None:
        yield causes.required("data", "data is mandatory")


def check_controller_revision_update(new: Object, old: Object) -> Iterator[Cause]:
    """Check that the recorded state of a ControllerRevision stays as recorded."""
    return immutable(new.get("data"), old.get("data"), "data")


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
    yield from check_scale_target(target, "spec.scaleTargetRef")
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


def check_scale_target(reference: Object, path: str) -> Iterator[Cause]:
    """Check that a reference names a kind and an object."""
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
                yield from check_scale_target(described, at(here, "describedObject"))
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
