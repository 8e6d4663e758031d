"""apps, batch and autoscaling: what runs, how much of it, and how far it has come."""

from collections.abc import Callable
from typing import Any, Final

from clusterspace.builtins.printers.cells import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    UNSET,
    PrintedColumn,
    age_of,
    container_images,
    container_names,
    given,
    items_at,
    labels_text,
    number,
    printer,
    selector_text,
    shown,
    size,
    text,
    wide,
)
from clusterspace.errors import Malformed
from clusterspace.kube import times
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, find_at, metadata_of
from clusterspace.kube.tables import Column

_POD_SPEC: Final = ("spec", "template", "spec")
_JOB_POD_SPEC: Final = ("spec", "jobTemplate", "spec", "template", "spec")
_CONTAINERS: Final = container_names(*_POD_SPEC)
_IMAGES: Final = container_images(*_POD_SPEC)
_TARGETS_SHOWN: Final = 2


def _selector(*path: str) -> PrintedColumn:
    def read(kube_object: Object) -> str:
        selector = find_at(kube_object, *path)
        return NONE if selector is None else selector_text(selector)

    return wide("Selector", read)


_SELECTOR: Final = _selector("spec", "selector")


def _ready_of_desired(kube_object: Object) -> str:
    ready = find_at(kube_object, "status", "readyReplicas") or 0
    return f"{ready}/{find_at(kube_object, 'spec', 'replicas') or 0}"


def _count(*path: str) -> Callable[[Object], int]:
    return lambda kube_object: find_at(kube_object, *path) or 0


DEPLOYMENTS: Final = printer(
    NAME,
    shown("Ready", _ready_of_desired),
    shown("Up-to-date", _count("status", "updatedReplicas")),
    shown("Available", _count("status", "availableReplicas")),
    AGE,
    _CONTAINERS,
    _IMAGES,
    _SELECTOR,
)

REPLICA_SETS: Final = printer(
    NAME,
    number("Desired", "spec", "replicas"),
    number("Current", "status", "replicas"),
    number("Ready", "status", "readyReplicas"),
    AGE,
    _CONTAINERS,
    _IMAGES,
    _SELECTOR,
)

STATEFUL_SETS: Final = printer(NAME, shown("Ready", _ready_of_desired), AGE, _CONTAINERS, _IMAGES)

DAEMON_SETS: Final = printer(
    NAME,
    number("Desired", "status", "desiredNumberScheduled"),
    number("Current", "status", "currentNumberScheduled"),
    number("Ready", "status", "numberReady"),
    number("Up-to-date", "status", "updatedNumberScheduled"),
    number("Available", "status", "numberAvailable"),
    shown("Node Selector", lambda item: labels_text(find_at(item, *_POD_SPEC, "nodeSelector"))),
    AGE,
    _CONTAINERS,
    _IMAGES,
    _SELECTOR,
)


def _controller(kube_object: Object) -> str:
    owners = items_at(kube_object, "metadata", "ownerReferences")
    owner = next((each for each in owners if each.get("controller")), None)
    if owner is None:
        return NONE
    group = str(owner.get("apiVersion")).rpartition("/")[0]
    kind, name = str(owner.get("kind")).lower(), owner.get("name")
    return f"{kind}.{group}/{name}" if group else f"{kind}/{name}"


CONTROLLER_REVISIONS: Final = printer(
    NAME, shown("Controller", _controller), shown("Revision", _count("revision")), AGE
)

# In this order: an end outranks a deletion, a deletion whatever was under way.
_JOB_ENDS: Final = ("Complete", "Failed")
_JOB_STAGES: Final = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def _job_status(job: Object) -> str:
    conditions = items_at(job, "status", "conditions")
    is_leaving = bool(metadata_of(job).get("deletionTimestamp"))
    words = [
        *(end for end in _JOB_ENDS if is_true(conditions, end)),
        *(["Terminating"] if is_leaving else []),
        *(stage for stage in _JOB_STAGES if is_true(conditions, stage)),
        "Running",
    ]
    return words[0]


def _completions(job: Object) -> str:
    succeeded = find_at(job, "status", "succeeded") or 0
    wanted = find_at(job, "spec", "completions")
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    parallelism = find_at(job, "spec", "parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(job: Object, now: float) -> str:
    started, ended = (find_at(job, "status", name) for name in ("startTime", "completionTime"))
    if not started:
        return ""
    try:
        end = times.parse_time(ended) if ended else now
        return times.age(end - times.parse_time(started))
    except Malformed:
        return UNKNOWN


JOBS: Final = printer(
    NAME,
    shown("Status", _job_status),
    shown("Completions", _completions),
    PrintedColumn(Column("Duration"), _job_duration),
    AGE,
    _CONTAINERS,
    _IMAGES,
    _SELECTOR,
)


CRON_JOBS: Final = printer(
    NAME,
    text("Schedule", "spec", "schedule"),
    text("Timezone", "spec", "timeZone", when_absent=NONE),
    # A word, though the column says boolean: that is how clients know this one.
    shown("Suspend", lambda item: str(bool(find_at(item, "spec", "suspend"))), "boolean"),
    size("Active", "status", "active"),
    PrintedColumn(
        Column("Last Schedule"),
        lambda cron_job, now: (
            age_of(last, now) if (last := find_at(cron_job, "status", "lastScheduleTime")) else NONE
        ),
    ),
    AGE,
    container_names(*_JOB_POD_SPEC),
    container_images(*_JOB_POD_SPEC),
    _selector("spec", "jobTemplate", "spec", "selector"),
)

_METRIC_FIELDS: Final = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}
_NAMED_METRICS: Final = ("Resource", "ContainerResource")


def _metric_text(metric: Object, current: Object) -> str:
    """Return one metric as `current/target`, led by its name when it is a resource."""
    kind = str(metric.get("type"))
    field = _METRIC_FIELDS.get(kind, "")
    target: Object = find_at(metric, field, "target") or {}
    now: Object = find_at(current, field, "current") or {}
    lead = f"{find_at(metric, field, 'name')}: " if kind in _NAMED_METRICS else ""
    average = target.get("averageValue")
    if average is not None:
        suffix = " (avg)" if kind in ("Object", "External") else ""
        return f"{lead}{now.get('averageValue', UNKNOWN)}/{average}{suffix}"
    if kind in _NAMED_METRICS:
        wanted, reached = target.get("averageUtilization"), now.get("averageUtilization")
        return f"{lead}{_percent(reached, UNKNOWN)}/{_percent(wanted, '<auto>')}"
    return f"{now.get('value', UNKNOWN)}/{target.get('value', UNKNOWN)}"


def _percent(share: Any, when_absent: str) -> str:
    return when_absent if share is None else f"{share}%"


def _targets(autoscaler: Object) -> str:
    metrics = items_at(autoscaler, "spec", "metrics")
    current = items_at(autoscaler, "status", "currentMetrics")
    seen = [*current, *({} for _ in metrics)]
    texts = [_metric_text(metric, seen[index]) for index, metric in enumerate(metrics)]
    more = len(texts) - _TARGETS_SHOWN
    suffix = f" + {more} more..." if more > 0 else ""
    return (", ".join(texts[:_TARGETS_SHOWN]) or NONE) + suffix


def _scaled(autoscaler: Object) -> str:
    target: Object = find_at(autoscaler, "spec", "scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


AUTOSCALERS: Final = printer(
    NAME,
    shown("Reference", _scaled),
    shown("Targets", _targets),
    given("MinPods", "spec", "minReplicas", when_absent=UNSET, form=str),
    shown("MaxPods", _count("spec", "maxReplicas")),
    shown("Replicas", _count("status", "currentReplicas")),
    AGE,
)

SCALES: Final = printer(
    NAME,
    number("Desired", "spec", "replicas"),
    number("Available", "status", "replicas"),
    AGE,
)
