"""Defaults of what makes pods: Deployments, StatefulSets, DaemonSets, Jobs and their kin."""

from typing import Final, cast

from clusterspace.builtins.defaults.rules import (
    Rule,
    Rules,
    empty,
    in_sequence,
    missing,
    part_of,
    with_missing,
    within,
)
from clusterspace.kube.objects import Object, annotations_of, with_metadata

_APPS: Final = "io.k8s.api.apps.v1"
_BATCH: Final = "io.k8s.api.batch.v1"
_CORE: Final = "io.k8s.api.core.v1"
_AUTOSCALING: Final = "io.k8s.api.autoscaling"

TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
_LARGEST_INT32: Final = (1 << 31) - 1


def _rolling_update(values: Object, otherwise: Object) -> Rule:
    """Return a rule for an update strategy: rolling when nobody said, with these bounds.

    `otherwise` are the bounds shown when they are given to a strategy that has no use for them.
    """

    def fill(strategy: Object) -> Object:
        filled = with_missing(strategy, {"type": "RollingUpdate"})
        if filled["type"] != "RollingUpdate":
            return within("rollingUpdate", missing(**otherwise))(filled)
        rolling = with_missing(cast("Object", filled.get("rollingUpdate") or {}), values)
        is_same = rolling == filled.get("rollingUpdate")
        return filled if is_same else {**filled, "rollingUpdate": rolling}

    return fill


def _stateful_set_strategy(strategy: Object) -> Object:
    """Give a partition to a strategy that was left out, but not to a bare `RollingUpdate`."""
    if not strategy.get("type"):
        rolling = with_missing(
            cast("Object", strategy.get("rollingUpdate") or {}), {"partition": 0}
        )
        return {**strategy, "type": "RollingUpdate", "rollingUpdate": rolling}
    if strategy["type"] == "RollingUpdate":
        return within("rollingUpdate", missing(partition=0))(strategy)
    return strategy


_RETENTION: Final = missing(whenDeleted="Retain", whenScaled="Retain")
_STATEFUL_SET_SPEC: Final = in_sequence(
    missing(
        podManagementPolicy="OrderedReady",
        persistentVolumeClaimRetentionPolicy={},
        replicas=1,
        revisionHistoryLimit=10,
    ),
    within("persistentVolumeClaimRetentionPolicy", _RETENTION),
    within("updateStrategy", _stateful_set_strategy),
)


def _claim_template_types(spec: Object) -> Object:
    """Name the kind of each claim template: alone among embedded objects, they show it."""
    templates = cast("list[Object]", spec.get("volumeClaimTemplates") or [])
    if all(each.get("kind") for each in templates):
        return spec
    named = [{**each, "kind": "PersistentVolumeClaim", "apiVersion": "v1"} for each in templates]
    return {**spec, "volumeClaimTemplates": named}


def _daemon_set(daemon_set: Object) -> Object:
    """Give a daemon set the mark of its template's generation; the server counts it later."""
    annotations = annotations_of(daemon_set)
    if TEMPLATE_GENERATION in annotations:
        return daemon_set
    return with_metadata(daemon_set, annotations={**annotations, TEMPLATE_GENERATION: "0"})


def _job(job: Object) -> Object:
    spec = cast("Object", job["spec"])
    filled = with_missing(
        spec,
        {
            "parallelism": 1,
            "backoffLimit": 6 if spec.get("backoffLimitPerIndex") is None else _LARGEST_INT32,
            "completionMode": "NonIndexed",
            "suspend": False,
            "podReplacementPolicy": "Failed" if spec.get("podFailurePolicy") else _REPLACED_EARLY,
            "manualSelector": False,
        },
    )
    if spec.get("parallelism") is None:
        filled = with_missing(filled, {"completions": 1})
    labelled = _labels_from_template(job, cast("Object", spec.get("template") or {}))
    return labelled if filled is spec else {**labelled, "spec": filled}


_REPLACED_EARLY: Final = "TerminatingOrFailed"


def _labels_from_template(owner: Object, template: Object) -> Object:
    """Label the owner like its pods when it has no labels of its own."""
    pod_labels = part_of(template, "metadata").get("labels")
    metadata = cast("Object", owner.get("metadata") or {})
    if not pod_labels or metadata.get("labels"):
        return owner
    return {**owner, "metadata": {**metadata, "labels": pod_labels}}


def _replication_controller(controller: Object) -> Object:
    spec = cast("Object", controller["spec"])
    template = cast("Object", spec.get("template") or {})
    pod_labels = part_of(template, "metadata").get("labels")
    values: Object = {"replicas": 1, **({"selector": pod_labels} if pod_labels else {})}
    filled = with_missing(spec, values)
    labelled = _labels_from_template(controller, template)
    return labelled if filled is spec else {**labelled, "spec": filled}


_CPU_AT_80_PERCENT: Final = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
_SCALE_UP: Final = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_SCALE_DOWN: Final = {
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}


def _scaling_behavior(behavior: Object) -> Object:
    filled: Object = {
        "scaleUp": with_missing(cast("Object", behavior.get("scaleUp") or {}), _SCALE_UP),
        "scaleDown": with_missing(cast("Object", behavior.get("scaleDown") or {}), _SCALE_DOWN),
    }
    return behavior if filled == behavior else filled


_QUARTER: Final = {"maxUnavailable": "25%", "maxSurge": "25%"}
_ONE: Final = {"maxUnavailable": 1, "maxSurge": 0}
_NONE: Final = {"maxUnavailable": 0, "maxSurge": 0}

RULES: Final[Rules] = {
    f"{_APPS}.DeploymentSpec": in_sequence(
        missing(replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600),
        within("strategy", _rolling_update(_QUARTER, otherwise={})),
    ),
    f"{_APPS}.ReplicaSetSpec": missing(replicas=1),
    f"{_APPS}.DaemonSetSpec": in_sequence(
        missing(revisionHistoryLimit=10),
        within("updateStrategy", _rolling_update(_ONE, otherwise=_NONE)),
    ),
    f"{_APPS}.StatefulSetSpec": in_sequence(_STATEFUL_SET_SPEC, _claim_template_types),
    f"{_APPS}.DaemonSet": _daemon_set,
    f"{_BATCH}.Job": _job,
    f"{_BATCH}.PodFailurePolicyOnPodConditionsPattern": empty(status="True"),
    f"{_BATCH}.CronJobSpec": missing(
        concurrencyPolicy="Allow",
        suspend=False,
        successfulJobsHistoryLimit=3,
        failedJobsHistoryLimit=1,
    ),
    f"{_CORE}.ReplicationController": _replication_controller,
    f"{_AUTOSCALING}.v1.HorizontalPodAutoscalerSpec": missing(
        minReplicas=1, targetCPUUtilizationPercentage=80
    ),
    f"{_AUTOSCALING}.v2.HorizontalPodAutoscalerSpec": in_sequence(
        missing(minReplicas=1, metrics=[_CPU_AT_80_PERCENT]),
        within("behavior", _scaling_behavior),
    ),
}
