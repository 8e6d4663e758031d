"""Kinds of well-known projects, as data: where their replicas, pods, statuses and needs are.

The rules are the same as for Kubernetes' own kinds, in `interpreter/`; a kind that is
here needs no script. A kind is here in whatever version: these fields have not moved.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.quantities import ZERO, parse_quantity
from clusterspace.kube.resources import GroupKind

Path: TypeAlias = tuple[str, ...]

CLONE_SET: Final = GroupKind("apps.kruise.io", "CloneSet")
ADVANCED_STATEFUL_SET: Final = GroupKind("apps.kruise.io", "StatefulSet")
ADVANCED_DAEMON_SET: Final = GroupKind("apps.kruise.io", "DaemonSet")
UNITED_DEPLOYMENT: Final = GroupKind("apps.kruise.io", "UnitedDeployment")
BROADCAST_JOB: Final = GroupKind("apps.kruise.io", "BroadcastJob")
SIDECAR_SET: Final = GroupKind("apps.kruise.io", "SidecarSet")
WORKFLOW: Final = GroupKind("argoproj.io", "Workflow")
ROLLOUT: Final = GroupKind("argoproj.io", "Rollout")
VOLCANO_JOB: Final = GroupKind("batch.volcano.sh", "Job")
FLINK: Final = GroupKind("flink.apache.org", "FlinkDeployment")
SPARK: Final = GroupKind("sparkoperator.k8s.io", "SparkApplication")
NOTEBOOK: Final = GroupKind("kubeflow.org", "Notebook")
HELM_RELEASE: Final = GroupKind("helm.toolkit.fluxcd.io", "HelmRelease")
RAY_CLUSTER: Final = GroupKind("ray.io", "RayCluster")
RAY_JOB: Final = GroupKind("ray.io", "RayJob")
RAY_SERVICE: Final = GroupKind("ray.io", "RayService")

_TRAINING: Final = {
    GroupKind("kubeflow.org", "PyTorchJob"): "pytorchReplicaSpecs",
    GroupKind("kubeflow.org", "TFJob"): "tfReplicaSpecs",
    GroupKind("kubeflow.org", "MPIJob"): "mpiReplicaSpecs",
}
"""Kinds whose parts are a map, and where it is in the spec."""

_FLUX: Final[Mapping[GroupKind, tuple[tuple[str, Path], ...]]] = {
    HELM_RELEASE: (
        ("Secret", ("spec", "kubeConfig", "secretRef", "name")),
        ("Secret", ("spec", "chart", "spec", "verify", "secretRef", "name")),
        ("ServiceAccount", ("spec", "serviceAccountName")),
    ),
    GroupKind("kustomize.toolkit.fluxcd.io", "Kustomization"): (
        ("Secret", ("spec", "decryption", "secretRef", "name")),
        ("Secret", ("spec", "kubeConfig", "secretRef", "name")),
        ("ServiceAccount", ("spec", "serviceAccountName")),
    ),
    GroupKind("source.toolkit.fluxcd.io", "GitRepository"): (
        ("Secret", ("spec", "secretRef", "name")),
        ("Secret", ("spec", "verify", "secretRef", "name")),
    ),
    GroupKind("source.toolkit.fluxcd.io", "Bucket"): (("Secret", ("spec", "secretRef", "name")),),
    GroupKind("source.toolkit.fluxcd.io", "HelmChart"): (
        ("Secret", ("spec", "verify", "secretRef", "name")),
    ),
    GroupKind("source.toolkit.fluxcd.io", "HelmRepository"): (
        ("Secret", ("spec", "secretRef", "name")),
    ),
    GroupKind("source.toolkit.fluxcd.io", "OCIRepository"): (
        ("Secret", ("spec", "secretRef", "name")),
        ("Secret", ("spec", "certSecretRef", "name")),
        ("Secret", ("spec", "verify", "secretRef", "name")),
        ("ServiceAccount", ("spec", "serviceAccountName")),
    ),
}
_KYVERNO: Final = (GroupKind("kyverno.io", "ClusterPolicy"), GroupKind("kyverno.io", "Policy"))

REPLICA_FIELDS: Final[Mapping[GroupKind, str]] = {
    CLONE_SET: "replicas",
    ADVANCED_STATEFUL_SET: "replicas",
    UNITED_DEPLOYMENT: "replicas",
    ROLLOUT: "replicas",
    BROADCAST_JOB: "parallelism",
    WORKFLOW: "parallelism",
}
"""Which field of a kind's spec says how many pods run at once."""

_TEMPLATE: Final = ("spec", "template", "spec")
POD_SPECS: Final[Mapping[GroupKind, Path]] = {
    CLONE_SET: _TEMPLATE,
    ADVANCED_STATEFUL_SET: _TEMPLATE,
    ADVANCED_DAEMON_SET: _TEMPLATE,
    BROADCAST_JOB: _TEMPLATE,
    ROLLOUT: _TEMPLATE,
    NOTEBOOK: _TEMPLATE,
    UNITED_DEPLOYMENT: ("spec", "template", "statefulSetTemplate", *_TEMPLATE),
    SIDECAR_SET: ("spec",),
    WORKFLOW: ("spec",),
}
"""Where the specification of their pods is, or what there is of it."""

SUSPENDED: Final[Mapping[GroupKind, tuple[Path, ...]]] = {
    **dict.fromkeys(_FLUX, (("spec", "suspend"),)),
    WORKFLOW: (("spec", "suspend"),),
    BROADCAST_JOB: (("spec", "template", "metadata", "labels"),),
}
"""What a member keeps of its own."""

WORKLOADS: Final = frozenset({CLONE_SET, ADVANCED_STATEFUL_SET, UNITED_DEPLOYMENT, ROLLOUT})
"""They count replicas as Deployments do."""

_COUNTED: Final = ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas")
REPORTED: Final[Mapping[GroupKind, tuple[str, ...]]] = {
    CLONE_SET: (
        *_COUNTED,
        "updatedReadyReplicas",
        "expectedUpdatedReplicas",
        "updateRevision",
        "currentRevision",
        "labelSelector",
        "observedGeneration",
    ),
    ADVANCED_STATEFUL_SET: (
        *_COUNTED,
        "currentReplicas",
        "updatedReadyReplicas",
        "updateRevision",
        "currentRevision",
        "observedGeneration",
    ),
    UNITED_DEPLOYMENT: (*_COUNTED, "unavailableReplicas", "observedGeneration"),
    ROLLOUT: (*_COUNTED, "observedGeneration"),
    ADVANCED_DAEMON_SET: (
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "daemonSetHash",
        "observedGeneration",
    ),
}
"""Which fields of its status a kind reports, with the generations; others report all of it."""

SUMS: Final[Mapping[GroupKind, tuple[str, ...]]] = {
    CLONE_SET: (*_COUNTED, "updatedReadyReplicas", "expectedUpdatedReplicas"),
    ADVANCED_STATEFUL_SET: (*_COUNTED, "currentReplicas", "updatedReadyReplicas"),
    UNITED_DEPLOYMENT: (*_COUNTED, "unavailableReplicas"),
    ROLLOUT: _COUNTED,
    ADVANCED_DAEMON_SET: (
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
    ),
}
"""Which counters are added up, of kinds that say which generation they have seen."""

PLAIN_SUMS: Final[Mapping[GroupKind, tuple[str, ...]]] = {
    BROADCAST_JOB: ("active", "succeeded", "failed", "desired"),
    SIDECAR_SET: ("matchedPods", "updatedPods", "readyPods"),
    NOTEBOOK: ("readyReplicas",),
    VOLCANO_JOB: ("pending", "running", "succeeded", "failed", "terminating", "unknown"),
    **dict.fromkeys(_FLUX, ()),
    **dict.fromkeys(_KYVERNO, ()),
}
"""Which counters are added up, of kinds that do not."""

READY_EVERYWHERE: Final = frozenset({*_FLUX, *_KYVERNO})
"""Their templates are Ready when they are so in every cluster."""


def references_in(kind: GroupKind, template: Object) -> Iterator[tuple[str, Any]]:
    """Yield kinds and names of what a template names beside its pods."""
    for needed, path in _FLUX.get(kind, ()):
        yield needed, find_at(template, *path)
    if kind == HELM_RELEASE:
        for each in cast("list[Object]", find_at(template, "spec", "valuesFrom") or []):
            if each.get("kind") in ("ConfigMap", "Secret"):
                yield str(each["kind"]), each.get("name")
    if kind == WORKFLOW:
        yield "ServiceAccount", find_at(template, "spec", "executor", "serviceAccountName")


def find_health(kind: GroupKind, live: Object) -> bool | None:
    """Return whether an object is well, by the rules of its kind; None where there are none."""
    rule = _HEALTH.get(kind)
    return None if rule is None else rule(live.get("status") or {})


def _is_ready(status: Object) -> bool:
    """Whether it is Ready because something succeeded; a reason of another kind is no success."""
    found = find_condition_in(status, "Ready")
    return found.get("status") == "True" and str(found.get("reason")).endswith("Succeeded")


def _is_policy_ready(status: Object) -> bool:
    ready = status.get("ready")
    return ready if isinstance(ready, bool) else _is_ready(status)


def _is_ray_cluster_ready(status: Object) -> bool:
    are_true = ("HeadPodReady", "RayClusterProvisioned")
    is_failing = has_condition(status, "RayClusterReplicaFailure", "True")
    return not is_failing and all(has_condition(status, each, "True") for each in are_true)


def _is_container_well(status: Object) -> bool:
    state: Object = status.get("containerState") or {}
    ended: Object = state.get("terminated") or {}
    has_failed = ended.get("reason") in ("Error", "ContainerCannotRun")
    is_being_made = find_at(state, "waiting", "reason") == "ContainerCreating"
    return "running" in state or is_being_made or (ended.get("exitCode") == 0 and not has_failed)


def _is_flink_well(status: Object) -> bool:
    state = find_at(status, "jobStatus", "state")
    if not state:
        ready = status.get("jobManagerDeploymentStatus"), status.get("lifecycleState")
        return ready == ("READY", "STABLE")
    return state not in ("CREATED", "INITIALIZING", "RECONCILING")


def _is_broadcast(status: Object) -> bool:
    active, succeeded, desired = (
        status.get(each) or 0 for each in ("active", "succeeded", "desired")
    )
    return desired > 0 and desired == active + succeeded and not status.get("failed")


def _is_at_work(status: Object) -> bool:
    return bool(status.get("phase")) and status["phase"] not in ("Failed", "Error")


def _is_ray_job_well(status: Object) -> bool:
    has_failed = status.get("jobStatus") in ("FAILED", "STOPPED")
    under_way = ("Running", "Complete", "Suspending", "Suspended")
    return not has_failed and status.get("jobDeploymentStatus") in under_way


def _is_one_of(words: frozenset[str], *path: str) -> Callable[[Object], bool]:
    def rule(status: Object) -> bool:
        return find_at(status, *path) in words

    return rule


def _has_not_failed(status: Object) -> bool:
    return bool(status.get("conditions")) and not has_condition(status, "Failed", "True")


_SPARK_WELL: Final = frozenset({"", "COMPLETED", "RUNNING", "SUBMITTED", "SUCCEEDING"})
_VOLCANO_WELL: Final = frozenset({"Completed", "Completing", "Running"})
_HEALTH: Final[Mapping[GroupKind, Callable[[Object], bool]]] = {
    BROADCAST_JOB: _is_broadcast,
    SIDECAR_SET: lambda status: (
        "matchedPods" in status and status["matchedPods"] == status.get("updatedPods")
    ),
    WORKFLOW: _is_at_work,
    VOLCANO_JOB: _is_one_of(_VOLCANO_WELL, "state", "phase"),
    FLINK: _is_flink_well,
    SPARK: _is_one_of(_SPARK_WELL, "applicationState", "state"),
    NOTEBOOK: _is_container_well,
    RAY_CLUSTER: _is_ray_cluster_ready,
    RAY_JOB: _is_ray_job_well,
    RAY_SERVICE: lambda status: has_condition(status, "Ready", "True"),
    **dict.fromkeys(_FLUX, _is_ready),
    **dict.fromkeys(_KYVERNO, _is_policy_ready),
    **dict.fromkeys(_TRAINING, _has_not_failed),
}


def find_condition_in(status: Object, condition_type: str) -> Object:
    """Return a condition of a status, or an empty one; what cannot be read says none."""
    listed: Any = status.get("conditions")
    readable = (
        cast("Object", each)
        for each in cast("list[Any]", listed if isinstance(listed, list) else [])
        if isinstance(each, dict)
    )
    none: Object = {}
    return next((each for each in readable if each.get("type") == condition_type), none)


def has_condition(status: Object, condition_type: str, value: str) -> bool:
    """Whether a status says a condition with a value."""
    return find_condition_in(status, condition_type).get("status") == value


WITH_PARTS: Final = frozenset({*_TRAINING, FLINK, VOLCANO_JOB, RAY_CLUSTER, RAY_JOB})
"""Kinds that have pods of several templates."""


def parts_of(kind: GroupKind, template: Object) -> list[tuple[str, int, Object]]:
    """Return name, replicas and pod specification of each part of a kind that has some."""
    spec: Object = template.get("spec") or {}
    if kind in _TRAINING:
        parts = cast("dict[str, Object | None]", spec.get(_TRAINING[kind]) or {})
        return [
            (name if kind.kind == "MPIJob" else name.lower(), _count(each), _pod_spec(each))
            for name, each in parts.items()
            if each is not None
        ]
    if kind == VOLCANO_JOB:
        tasks = cast("list[Object]", spec.get("tasks") or [])
        return [
            # So many have to run at once; a job that gets no more than these runs.
            (
                str(each.get("name") or f"task-{index}"),
                _count({"replicas": each.get("minAvailable", each.get("replicas"))}),
                _pod_spec(each),
            )
            for index, each in enumerate(tasks)
        ]
    if kind == FLINK:
        return [
            ("jobmanager", _count(spec.get("jobManager") or {}), _flink_pod(spec, "jobManager")),
            ("taskmanager", _flink_workers(spec), _flink_pod(spec, "taskManager")),
        ]
    cluster: Object = spec if kind == RAY_CLUSTER else spec.get("rayClusterSpec") or {}
    head: Object = cluster.get("headGroupSpec") or {}
    found = [("ray-head", 1, _pod_spec(head))]
    groups = cast("list[Object]", cluster.get("workerGroupSpecs") or [])
    for number, group in enumerate(groups, start=1):
        name = str(group.get("groupName") or f"worker-{number}")
        found.append((name, _count(group), _pod_spec(group)))
    return found


_FLINK_MAIN: Final = "flink-main-container"


def _flink_pod(spec: Object, part: str) -> Object:
    """Return what is known of the pods of a part: its own template over that of all."""
    templates = (find_at(spec, *path, "podTemplate", "spec") for path in ((), (part,)))
    pod: Object = {}
    for template in templates:
        pod |= cast("Object", template or {})
    resource: Object = find_at(spec, part, "resource") or {}
    # Numbers in its definition, and text in requests; as Kubernetes would print it.
    requests = {
        name: str(parse_quantity(str(resource[name])) + ZERO)
        for name in ("cpu", "memory")
        if resource.get(name) is not None
    }
    containers = cast("list[Object]", pod.get("containers") or [])
    main: Object = {"name": _FLINK_MAIN}
    beside: list[Object] = []
    for each in containers:
        if each.get("name") == _FLINK_MAIN:
            main |= each
        else:
            beside.append(each)
    main["resources"] = {"requests": requests}
    return {**pod, "containers": [main, *beside]}


def _flink_workers(spec: Object) -> int:
    """Return how many task managers there are: as many as a job needs slots for, if not said."""
    if find_at(spec, "taskManager", "replicas") is not None:
        return _count(spec["taskManager"])
    parallel = _count({"replicas": find_at(spec, "job", "parallelism")})
    slots = find_at(spec, "flinkConfiguration", "taskmanager.numberOfTaskSlots")
    return -(-parallel // max(_count({"replicas": slots}), 1))


def _count(part: Object) -> int:
    count = part.get("replicas")
    if isinstance(count, str) and count.isdecimal():
        return int(count)
    return int(count) if isinstance(count, int | float) else 1


def _pod_spec(part: Object) -> Object:
    return find_at(part, "template", "spec") or {}
