"""HorizontalPodAutoscalers: as many replicas as the made-up load of their pods asks for.

Every fifteen seconds the usage that `kubectl top` shows is compared with the target. Metrics that
only adapters serve (Pods, Object, External) are not there, and the conditions say so.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from clusterspace.errors import MalformedQuantity, MalformedSelector
from clusterspace.kube.autoscaling import SYNC_SECONDS, TOLERANCE, ScaleHistory
from clusterspace.kube.conditions import Condition, set_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
    with_value,
)
from clusterspace.kube.quantities import parse_quantity
from clusterspace.kube.selectors import label_selector_of
from clusterspace.kube.times import format_time
from clusterspace.sim.api import (
    AUTOSCALER,
    DEPLOYMENT,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
    Change,
    Key,
    Mirror,
    key_of,
)
from clusterspace.sim.metrics_api import container_usage
from clusterspace.sim.plans import Plan, with_status
from clusterspace.sim.pods import containers_of, is_active, is_ready, resources_of

_SCALED: Final = {
    kind.name: kind for kind in (DEPLOYMENT, REPLICA_SET, STATEFUL_SET, REPLICATION_CONTROLLER)
}


@dataclass(frozen=True, slots=True)
class _Metric:
    """What one metric asks for, and how it is shown."""

    replicas: int
    shown: Object
    name: str


class _Unmeasured(Exception):
    """A metric that cannot be had: the reason of the condition, and the message."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class AutoscalerController:
    """Gives the targets of autoscalers the replicas their load asks for."""

    name = "autoscalers"
    batch_seconds = 0.0

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._histories: defaultdict[str, ScaleHistory] = defaultdict(ScaleHistory)
        """The UID of an autoscaler to what it lately found necessary and did."""

    def requests(self, change: Change) -> Iterable[Key]:
        """Return an autoscaler that is new, or that was told something else."""
        if change.kind != AUTOSCALER.name:
            return
        if change.after is None:
            self._histories.pop(uid_of(change.latest), None)
            return
        # Not by their generation: Kubernetes gives autoscalers none.
        if change.before is None or change.before.get("spec") != change.after.get("spec"):
            yield key_of(change.after)

    def plan(self, key: Key, now: float) -> Plan:
        """Compare the load with the target, and give the workload its replicas."""
        autoscaler = self._mirror.find(key)
        if autoscaler is None or metadata_of(autoscaler).get("deletionTimestamp"):
            return Plan()
        spec: Object = autoscaler["spec"]
        reference: Object = spec.get("scaleTargetRef") or {}
        target_key = Key(str(reference.get("kind")), key.namespace, str(reference.get("name")))
        target = self._mirror.find(target_key) if target_key.kind in _SCALED else None
        status: Object = {**(autoscaler.get("status") or {})}
        status["observedGeneration"] = metadata_of(autoscaler).get("generation")
        said = _Said(status.get("conditions") or [], now)
        if target is None:
            message = (
                f"the HPA controller was unable to get the target's current scale: "
                f'{target_key.kind} "{target_key.name}" not found'
            )
            said.add("AbleToScale", "False", "FailedGetScale", message)
            return self._with_conditions(autoscaler, status, said)
        current: int = find_at(target, "spec", "replicas") or 0
        status["currentReplicas"] = find_at(target, "status", "replicas") or 0
        if not current:
            message = "the HPA controller was able to get the target's current scale"
            said.add("AbleToScale", "True", "SucceededGetScale", message)
            message = "scaling is disabled since the replica count of the target is zero"
            said.add("ScalingActive", "False", "ScalingDisabled", message)
            status["desiredReplicas"] = 0
            return self._with_conditions(autoscaler, status, said)
        history = self._histories[uid_of(autoscaler)]
        # Bounds hold whatever the load is, and where nobody can measure it.
        desired = min(max(current, int(spec.get("minReplicas") or 1)), int(spec["maxReplicas"]))
        if desired == current:
            try:
                desired = self._measured(spec, target, current, status, said, now)
            except _Unmeasured as missing:
                said.add("ScalingActive", "False", missing.reason, missing.message)
                status.setdefault("desiredReplicas", current)
                return self._with_conditions(autoscaler, status, said)
            following = history.next_size(spec, current, desired, now)
            said.set(following.able_to_scale)
            said.set(following.limited)
            desired = following.replicas
        status["desiredReplicas"] = desired
        if desired == current:
            return self._with_conditions(autoscaler, status, said)
        history.stepped(desired - current, now)
        message = f"the HPA controller was able to update the target scale to {desired}"
        said.add("AbleToScale", "True", "SucceededRescale", message)
        status["lastScaleTime"] = format_time(now)
        described = self._with_conditions(autoscaler, status, said)
        scaled = with_value(target, desired, "spec", "replicas")
        return Plan(update=(scaled,), status=described.status, again_after=SYNC_SECONDS)

    def _with_conditions(self, autoscaler: Object, status: Object, said: "_Said") -> Plan:
        status = {**status, "conditions": said.conditions}
        return Plan(status=with_status(autoscaler, status), again_after=SYNC_SECONDS)

    # -- measuring -----------------------------------------------------------------------------

    def _measured(
        self, spec: Object, target: Object, current: int, status: Object, said: "_Said", now: float
    ) -> int:
        """Return the largest number that any metric asks for."""
        pods = self._pods_of(target)
        metrics: list[Object] = spec.get("metrics") or []
        found = [_measure(each, pods, current, now) for each in metrics]
        if not found:
            raise _Unmeasured("InvalidMetricSourceType", "the HPA has no metrics")
        largest = max(found, key=lambda each: each.replicas)
        status["currentMetrics"] = [each.shown for each in found]
        message = "the HPA was able to successfully calculate a replica count from " + largest.name
        said.add("ScalingActive", "True", "ValidMetricFound", message)
        return largest.replicas

    def _pods_of(self, target: Object) -> list[Object]:
        selector: Object | None = find_at(target, "spec", "selector")
        if target["kind"] == REPLICATION_CONTROLLER.name and selector is not None:
            selector = {"matchLabels": selector}
        try:
            wanted = label_selector_of(selector)
        except MalformedSelector:
            return []
        pods = self._mirror.in_namespace(POD, namespace_of(target))
        return [pod for pod in pods if is_active(pod) and wanted.matches(labels_of(pod))]


def _measure(metric: Object, pods: Sequence[Object], current: int, now: float) -> _Metric:
    """Return what one metric asks for."""
    kind = str(metric.get("type"))
    if kind not in ("Resource", "ContainerResource"):
        message = f"the HPA was unable to compute the replica count: no {kind} metrics are served"
        raise _Unmeasured(f"FailedGet{kind}Metric", message)
    source: Object = metric["resource" if kind == "Resource" else "containerResource"]
    resource, only = str(source["name"]), source.get("container")
    ready = [pod for pod in pods if is_ready(pod)]
    used = requested = 0
    without = ""
    for pod in ready:
        for container in containers_of(pod):
            if only and container["name"] != only:
                continue
            usage = container_usage(pod, container, now)
            used += usage.cpu if resource == "cpu" else usage.memory
            asked = _amount(resource, resources_of(container, "requests").get(resource, "0"))
            requested += asked
            if not asked:
                without = f"{resource} in container {container['name']} of Pod {name_of(pod)}"
    if not ready or resource not in ("cpu", "memory"):
        message = (
            "the HPA was unable to compute the replica count: no metrics returned from resource "
            f"metrics API for {resource}"
        )
        raise _Unmeasured("FailedGetResourceMetric", message)
    goal: Object = source.get("target") or {}
    average = used // len(ready)
    shown: Object = {"averageValue": f"{average}m" if resource == "cpu" else str(average)}
    label = f"{resource} resource"
    if goal.get("type") == "Utilization":
        if without:
            message = (
                f"the HPA was unable to compute the replica count: missing request for {without}"
            )
            raise _Unmeasured("FailedGetResourceMetric", message)
        percent = used * 100 // requested
        shown["averageUtilization"] = percent
        ratio = percent / int(goal.get("averageUtilization") or 100)
        label += " utilization (percentage of request)"
    else:
        ratio = average / max(1, _amount(resource, str(goal.get("averageValue") or "1")))
    replicas = current if abs(1 - ratio) <= TOLERANCE else ceil(ratio * len(ready))
    field = "resource" if kind == "Resource" else "containerResource"
    described: Object = {"name": resource, "current": shown}
    if only:
        described["container"] = only
    return _Metric(replicas, {"type": kind, field: described}, label)


def _amount(resource: str, text: str) -> int:
    try:
        quantity = parse_quantity(text)
    except MalformedQuantity:
        return 0
    return quantity.milli if resource == "cpu" else quantity.whole


class _Said:
    """The conditions of an autoscaler as they come to be."""

    def __init__(self, conditions: Sequence[Object], now: float) -> None:
        self.conditions = list(conditions)
        self._now = now

    def add(self, kind: str, status: str, reason: str, message: str) -> None:
        self.set(Condition(kind, status, reason, message))

    def set(self, condition: Condition) -> None:
        self.conditions = set_condition(self.conditions, condition, self._now).conditions
