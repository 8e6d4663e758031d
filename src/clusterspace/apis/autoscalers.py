"""FederatedHPAs and CronFederatedHPAs: how they are read, completed and checked. Pure.

A FederatedHPA has the spec of a HorizontalPodAutoscaler, so Kubernetes' defaults and rules hold.
"""

from collections.abc import Iterator
from typing import Final, cast

from clusterspace.builtins.defaults.workloads import RULES
from clusterspace.builtins.validation.formats import schedule_problem
from clusterspace.builtins.validation.workloads import check_autoscaler, check_scale_target
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.schedules import Schedule, read_schedule

GROUP: Final = "autoscaling.karmada.io"
API_VERSION: Final = f"{GROUP}/v1alpha1"
FEDERATED_HPA: Final = "FederatedHPA"
CRON_FEDERATED_HPA: Final = "CronFederatedHPA"
FEDERATED_HPAS: Final = GroupVersionResource(GROUP, "v1alpha1", "federatedhpas")
CRON_FEDERATED_HPAS: Final = GroupVersionResource(GROUP, "v1alpha1", "cronfederatedhpas")
RESOURCES: Final = (FEDERATED_HPAS, CRON_FEDERATED_HPAS)

_COMPLETE: Final = RULES["io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec"]
_LARGEST: Final = 2**31 - 1


def completed_federated_hpa(autoscaler: Object) -> Object:
    """Return a FederatedHPA with the defaults of a HorizontalPodAutoscaler."""
    spec = cast("Object", autoscaler.get("spec") or {})
    return {**autoscaler, "spec": _COMPLETE(spec)}


def federated_hpa_causes(autoscaler: Object) -> Iterator[Cause]:
    """Check a completed FederatedHPA."""
    yield from check_autoscaler(autoscaler)


def scales_federated_hpa(cron: Object) -> bool:
    """Whether the rules of a CronFederatedHPA are for the bounds of a FederatedHPA."""
    return find_at(cron, "spec", "scaleTargetRef", "apiVersion") == API_VERSION


def rules_of(cron: Object) -> list[Object]:
    """Return the rules of a CronFederatedHPA."""
    return cast("list[Object]", find_at(cron, "spec", "rules") or [])


def rule_schedule(rule: Object) -> Schedule | None:
    """Return when a rule is due; None when its schedule or its time zone makes no sense."""
    return read_schedule(str(rule.get("schedule") or ""), str(rule.get("timeZone") or ""))


def cron_causes(cron: Object) -> Iterator[Cause]:
    """Check a CronFederatedHPA."""
    target = cast("Object", find_at(cron, "spec", "scaleTargetRef") or {})
    is_bounds = scales_federated_hpa(cron)
    kind = str(target.get("kind") or "")
    if is_bounds and kind != FEDERATED_HPA:
        place = "spec.scaleTargetRef.kind"
        yield causes.invalid(place, kind, f"of {API_VERSION} only {FEDERATED_HPA} can be scaled")
        return
    yield from check_scale_target(target, "spec.scaleTargetRef")
    seen: set[str] = set()
    for index, rule in enumerate(rules_of(cron)):
        place = f"spec.rules[{index}]"
        name = str(rule.get("name") or "")
        if name in seen:
            yield causes.duplicate(f"{place}.name", name)
        seen.add(name)
        schedule = str(rule.get("schedule") or "")
        if problem := schedule_problem(schedule):
            yield causes.invalid(f"{place}.schedule", schedule, f"invalid cron format: {problem}")
        elif rule_schedule(rule) is None:
            zone = rule.get("timeZone") or ""
            yield causes.invalid(f"{place}.timeZone", zone, f"unknown time zone {zone}")
        if is_bounds:
            yield from _bound_causes(rule, place)
        else:
            yield from _replica_causes(rule, place, kind)


def _bound_causes(rule: Object, place: str) -> Iterator[Cause]:
    least, most = rule.get("targetMinReplicas"), rule.get("targetMaxReplicas")
    if rule.get("targetReplicas") is not None:
        why = "a FederatedHPA has bounds: use targetMinReplicas and targetMaxReplicas"
        yield causes.forbidden(f"{place}.targetReplicas", why)
    if least is None and most is None:
        why = "targetMinReplicas and targetMaxReplicas cannot both be missing for a FederatedHPA"
        yield causes.invalid(f"{place}.targetMaxReplicas", "", why)
    for field, value in (("targetMinReplicas", least), ("targetMaxReplicas", most)):
        if value is not None and value <= 0:
            yield causes.invalid(f"{place}.{field}", value, "must be greater than 0")
    if (1 if least is None else least) > (_LARGEST if most is None else most):
        why = "must be less than or equal to targetMaxReplicas"
        yield causes.invalid(f"{place}.targetMinReplicas", least, why)


def _replica_causes(rule: Object, place: str, kind: str) -> Iterator[Cause]:
    wanted = rule.get("targetReplicas")
    if wanted is None:
        why = f"targetReplicas cannot be missing for a {kind}"
        yield causes.invalid(f"{place}.targetReplicas", "", why)
    elif wanted < 0:
        why = "must be greater than or equal to 0"
        yield causes.invalid(f"{place}.targetReplicas", wanted, why)
    for field in ("targetMinReplicas", "targetMaxReplicas"):
        if rule.get(field) is not None:
            why = f"only a FederatedHPA has bounds; a {kind} has targetReplicas"
            yield causes.forbidden(f"{place}.{field}", why)
