"""Defaults of what makes pods: Deployments, StatefulSets, DaemonSets, Jobs and their kin."""

from typing import Final, cast

from clusterspace.builtins.defaults.rules import (
    Rule,
    Rules,
    empty,
    in_sequence,
    missing,
    part_of,
    rule_for,
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
    f"{_BATCH}.PodFailurePolicyOnPodConditionsPattern": empty(status="True"),
    f"{_BATCH}.CronJobSpec": missing(
        concurrencyPolicy="Allow",
        suspend=False,
        successfulJobsHistoryLimit=3,
        failedJobsHistoryLimit=1,
    ),
    f"{_AUTOSCALING}.v1.HorizontalPodAutoscalerSpec": missing(
        minReplicas=1, targetCPUUtilizationPercentage=80
    ),
    f"{_AUTOSCALING}.v2.HorizontalPodAutoscalerSpec": in_sequence(
        missing(minReplicas=1, metrics=[_CPU_AT_80_PERCENT]),
        within("behavior", _scaling_behavior),
    ),
}

_STATEFUL_SET: Final[Object] = {
    "podManagementPolicy": "OrderedReady",
    "persistentVolumeClaimRetentionPolicy": {},
    "replicas": 1,
    "revisionHistoryLimit": 10,
}
_RETENTION: Final = missing(whenDeleted="Retain", whenScaled="Retain")


@rule_for(RULES, f"{_APPS}.StatefulSetSpec")
def fill_stateful_set_spec(spec: Object) -> Object:
    """Complete a set's spec; its claim templates name their kind, alone among embedded objects."""
    spec = with_missing(spec, _STATEFUL_SET)
    spec = within("persistentVolumeClaimRetentionPolicy", _RETENTION)(spec)
    strategy = part_of(spec, "updateStrategy")
    if not strategy.get("type"):
        # A strategy that was left out gets a partition; a bare `RollingUpdate` does not.
        rolling = with_missing(part_of(strategy, "rollingUpdate"), {"partition": 0})
        filled = {**strategy, "type": "RollingUpdate", "rollingUpdate": rolling}
        spec = {**spec, "updateStrategy": filled} if "updateStrategy" in spec else spec
    elif strategy["type"] == "RollingUpdate":
        partition = within("rollingUpdate", missing(partition=0))
        spec = within("updateStrategy", partition)(spec)
    templates = cast("list[Object]", spec.get("volumeClaimTemplates") or [])
    if all(each.get("kind") for each in templates):
        return spec
    named = [{**each, "kind": "PersistentVolumeClaim", "apiVersion": "v1"} for each in templates]
    return {**spec, "volumeClaimTemplates": named}


@rule_for(RULES, f"{_APPS}.DaemonSet")
def fill_daemon_set(daemon_set: Object) -> Object:
    """Give a daemon set the mark of its template's generation; the server counts it later."""
    annotations = annotations_of(daemon_set)
    if TEMPLATE_GENERATION in annotations:
        return daemon_set
    return with_metadata(daemon_set, annotations={**annotations, TEMPLATE_GENERATION: "0"})


@rule_for(RULES, f"{_BATCH}.Job")
def fill_job(job: Object) -> Object:
    """Let one pod run once, and label a job like its pods."""
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


@rule_for(RULES, f"{_CORE}.ReplicationController")
def fill_replication_controller(controller: Object) -> Object:
    """Keep one pod, selected by the labels of the template, and label the controller alike."""
    spec = cast("Object", controller["spec"])
    template = cast("Object", spec.get("template") or {})
    pod_labels = part_of(template, "metadata").get("labels")
    values: Object = {"replicas": 1, **({"selector": pod_labels} if pod_labels else {})}
    filled = with_missing(spec, values)
    labelled = _labels_from_template(controller, template)
    return labelled if filled is spec else {**labelled, "spec": filled}
