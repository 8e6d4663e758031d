"""What one metric of an autoscaler asks for, counted over all clusters.

    Resource, ContainerResource   what pods use beside what they request, everywhere together
    Pods                          the average of a value over all pods
    Object                        the value of one object, added up over clusters: each has its own
    External                      a value from outside, which every cluster sees: the largest counts

Where a cluster did not answer, its pods count as pods of which nothing is known.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, cast

from clusterspace.client.requests import ResourcePath
from clusterspace.errors import ApiError, ClusterError, MalformedSelector
from clusterspace.fleet.autoscaling.measures import (
    MemberPods,
    amount_of,
    milli_of,
    read_values,
)
from clusterspace.kube.autoscaling import (
    TOLERANCE,
    PodLoad,
    replicas_for,
    replicas_for_value,
    tolerances_of,
)
from clusterspace.kube.conditions import FALSE, Condition
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.resources import ResourceInfo
from clusterspace.kube.selectors import label_selector_of

_CUSTOM: Final = "custom.metrics.k8s.io/v1beta2"
UNCOMPUTED: Final = "FailedComputeMetricsReplicas"
"""The reason of the event for every metric that cannot be had."""

_UNMEASURED: Final = {
    "Resource": "FailedGetResourceMetric",
    "ContainerResource": "FailedGetContainerResourceMetric",
    "Pods": "FailedGetPodsMetric",
    "Object": "FailedGetObjectMetric",
    "External": "FailedGetExternalMetric",
}
_EXTERNAL: Final = "external.metrics.k8s.io/v1beta1"


@dataclass(frozen=True, slots=True)
class Target:
    """What is scaled: its place, its size, the pods behind it, and where they are."""

    path: ResourcePath
    scale: Object
    selector: str
    pod_requests: Mapping[str, Mapping[str, int]]
    """What the containers of a pod ask for, as the template has them."""
    members: tuple[MemberPods, ...]

    @property
    def replicas(self) -> int:
        """The replicas of the template."""
        return int(find_at(self.scale, "spec", "replicas") or 0)

    @property
    def everywhere(self) -> int:
        """The pods those stand for: more, where every cluster has a full copy."""
        return sum(each.expected for each in self.members)

    @property
    def silent(self) -> str:
        """The clusters of which nothing is known, and why."""
        return "; ".join(f"{each.cluster}: {each.trouble}" for each in self.members if each.trouble)


@dataclass(frozen=True, slots=True)
class Measured:
    """What one metric asks for, how it is shown, and how it is called."""

    replicas: int
    shown: Object
    name: str


class CannotScale(Exception):
    """The target cannot be scaled: the condition that says so, and the reason of the event."""

    def __init__(self, condition: Condition, event: str = "") -> None:
        super().__init__(condition.message)
        self.condition = condition
        self.event = event or condition.reason


def unmeasured(kind: str, why: str) -> CannotScale:
    """Return the refusal for a metric that cannot be had."""
    reason = _UNMEASURED[kind]
    message = f"the HPA was unable to compute the replica count: {why}"
    return CannotScale(Condition("ScalingActive", FALSE, reason, message), UNCOMPUTED)


def by_usage(kind: str, source: Object, spec: Object, target: Target) -> Measured:
    """Return what the usage of a resource asks for."""
    resource, only = str(source.get("name")), source.get("container")
    goal = cast("Object", source.get("target") or {})
    is_share = goal.get("type") == "Utilization"
    percent = int(goal.get("averageUtilization") or 100)
    value = 0 if is_share else amount_of(resource, goal.get("averageValue")) or 0

    def requested(requests: Mapping[str, Mapping[str, int]]) -> int:
        amounts = [of.get(resource) for name, of in requests.items() if only in (None, name)]
        # One container that asks for nothing leaves a share without a meaning.
        return 0 if None in amounts else sum(each or 0 for each in amounts)

    def load(request: int, used: int | None, *, is_ready: bool = True) -> PodLoad:
        if is_share:
            return PodLoad(request * percent // 100, used, is_ready, most=request)
        return PodLoad(value, used, is_ready)

    loads: list[PodLoad] = []
    asked_for = used_by_all = 0
    template = requested(target.pod_requests)
    for member in target.members:
        if member.trouble:
            loads.extend([load(template, None)] * member.expected)
        for pod in member.pods:
            request = requested(pod.requests)
            if is_share and not request:
                why = f"missing request for {resource} of pod {pod.name} in {member.cluster}"
                raise unmeasured(kind, why)
            containers = member.usage.get(pod.name) or {}
            amounts = [of.get(resource) for name, of in containers.items() if only in (None, name)]
            # Of a pod that is reported in part as little is known as of one that is not.
            used = sum(each or 0 for each in amounts) if amounts and None not in amounts else None
            if used is not None and pod.is_ready:
                asked_for, used_by_all = asked_for + request, used_by_all + used
            loads.append(load(request, used, is_ready=pod.is_ready))
    replicas = _asked(kind, loads, spec, target, f"resource metrics API for {resource}")
    counted = sum(1 for each in loads if each.used is not None and each.is_ready)
    average = used_by_all // counted
    current: Object = {"averageValue": f"{average}m" if resource == "cpu" else str(average)}
    label = f"{resource} resource"
    if is_share:
        current["averageUtilization"] = used_by_all * 100 // asked_for
        label += " utilization (percentage of request)"
    shown: Object = {"name": resource, "current": current}
    if only:
        shown["container"] = only
    return Measured(replicas, {"type": kind, kind[0].lower() + kind[1:]: shown}, label)


async def by_pods_metric(source: Object, spec: Object, target: Target) -> Measured:
    """Return what the average of a value over all pods asks for."""
    name, selector = _identity(source, "Pods")
    goal = milli_of(find_at(source, "target", "averageValue")) or 0
    if goal <= 0:
        raise unmeasured("Pods", f"the goal of {name} is no amount")
    namespace = target.path.namespace
    query = (("metricLabelSelector", selector),) if selector else ()
    values = await _ask(
        target,
        _CUSTOM,
        ("namespaces", namespace, "pods", "*", name),
        target.selector,
        query=query,
    )
    loads: list[PodLoad] = []
    for member, found in zip(target.members, values, strict=True):
        if member.trouble:
            loads.extend([PodLoad(goal)] * member.expected)
        loads.extend(PodLoad(goal, found.get(pod.name), pod.is_ready) for pod in member.pods)
    replicas = _asked("Pods", loads, spec, target, f"custom metrics API for {name}")
    measured = [each.used or 0 for each in loads if each.used is not None]
    average = sum(measured) // len(measured)
    shown = {"metric": source["metric"], "current": {"averageValue": f"{average}m"}}
    return Measured(replicas, {"type": "Pods", "pods": shown}, f"pods metric {name}")


async def by_object_metric(source: Object, info: ResourceInfo, target: Target) -> Measured:
    """Return what the value of an object asks for, added up over clusters."""
    name, selector = _identity(source, "Object")
    described = str(find_at(source, "describedObject", "name") or "")
    query = (("metricLabelSelector", selector),) if selector else ()
    resource = f"{info.plural}.{info.group}" if info.group else info.plural
    segments = ("namespaces", target.path.namespace, resource, described, name)
    values = await _ask(target, _CUSTOM, segments, "", query=query)
    total = sum(sum(each.values()) for each in values)
    shown: Object = {"describedObject": source["describedObject"], "metric": source["metric"]}
    return _by_total("Object", name, total, bool(values) and all(values), source, shown, target)


async def by_external_metric(source: Object, target: Target) -> Measured:
    """Return what a value from outside asks for; each cluster sees the same one."""
    name, selector = _identity(source, "External")
    segments = ("namespaces", target.path.namespace, name)
    values = await _ask(target, _EXTERNAL, segments, selector)
    total = max((sum(each.values()) for each in values if each), default=0)
    shown: Object = {"metric": source["metric"]}
    return _by_total("External", name, total, any(values), source, shown, target)


def _by_total(
    kind: str,
    name: str,
    total: int,
    is_whole: bool,
    source: Object,
    shown: Object,
    target: Target,
) -> Measured:
    """Return what one value for all pods asks for; less than now only when all of it is known."""
    goal = cast("Object", source.get("target") or {})
    is_average = goal.get("type") == "AverageValue"
    wanted = milli_of(goal.get("averageValue" if is_average else "value")) or 0
    if wanted <= 0:
        raise unmeasured(kind, f"the goal of {name} is no amount")
    current = target.replicas
    share = current / max(target.everywhere, 1)
    if is_average:
        per_pod = total / max(target.everywhere, 1)
        is_near = abs(1 - per_pod / wanted) <= TOLERANCE
        replicas = current if is_near else ceil(round(total / wanted * share, 6))
        shown["current"] = {"averageValue": f"{int(per_pod)}m"}
    else:
        ready = sum(1 for each in target.members for pod in each.pods if pod.is_ready)
        replicas = replicas_for_value(total, wanted, ceil(ready * share), current)
        shown["current"] = {"value": f"{total}m"}
    if not is_whole:
        replicas = max(replicas, current)
    field = kind.lower()
    return Measured(replicas, {"type": kind, field: shown}, f"{field} metric {name}")


def _asked(kind: str, loads: Sequence[PodLoad], spec: Object, target: Target, source: str) -> int:
    """Return the replicas that loads ask for; CannotScale when nothing was measured."""
    share = target.replicas / max(target.everywhere, 1)
    asked = replicas_for(loads, target.replicas, tolerances=tolerances_of(spec), share=share)
    if asked is not None:
        return asked
    whys = [f"{each.cluster}: {each.trouble or each.unmeasured}" for each in target.members]
    known = [why for why in whys if not why.endswith(": ")]
    reasons = f" ({'; '.join(known)})" if known else ""
    raise unmeasured(kind, f"no metrics returned from {source}{reasons}")


def _identity(source: Object, kind: str) -> tuple[str, str]:
    """Return the name of a metric and its selector, as queries have it."""
    try:
        selector = label_selector_of(find_at(source, "metric", "selector") or {})
    except MalformedSelector as error:
        raise unmeasured(kind, str(error)) from error
    return str(find_at(source, "metric", "name") or ""), str(selector)


async def _ask(
    target: Target,
    api: str,
    segments: Sequence[str],
    selector: str,
    query: tuple[tuple[str, str], ...] = (),
) -> list[dict[str, int]]:
    """Ask every cluster for one metric; nothing of those that do not tell."""

    async def ask(member: MemberPods) -> dict[str, int]:
        if member.trouble:
            return {}
        try:
            return await read_values(member, api, segments, selector, query)
        except (ApiError, ClusterError) as error:
            member.unmeasured = str(error)
            return {}

    async with asyncio.TaskGroup() as requests:
        tasks = [requests.create_task(ask(each)) for each in target.members]
    found = [each.result() for each in tasks]
    if not any(found):
        known = [f"{each.cluster}: {each.trouble or each.unmeasured}" for each in target.members]
        raise unmeasured(
            "External" if api == _EXTERNAL else "Object" if "*" not in segments else "Pods",
            f"no cluster tells of {segments[-1]} ({'; '.join(known)})",
        )
    return found
