"""A pod from Pending to Running to gone: what workloads count, what happens next, how it looks.

    unscheduled ──bind──> scheduled ──start──> running ──ready──> ready ──end──> finished
         │                    │                   │                 │
         └────────────────────┴───delete──────────┴─────────────────┴──> stopping ──> gone

What its containers run decides how long it goes on and how it ends (containers.py). A pod may also
say how it wants to behave, in annotations of its template:

    sim.clusterspace.io/ready-after: 5s      how long after its start it is ready, or `never`
    sim.clusterspace.io/run-for: 10s         when it ends by itself
    sim.clusterspace.io/exit-code: "3"       what it then ends with
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

from clusterspace.errors import MalformedDuration
from clusterspace.kube.conditions import Condition, find_condition, set_condition
from clusterspace.kube.objects import Object, annotations_of, find_at, metadata_of, uid_of
from clusterspace.kube.times import format_time, parse_time, seconds_of

READY_AFTER: Final = "sim.clusterspace.io/ready-after"
RUN_FOR: Final = "sim.clusterspace.io/run-for"
EXIT_CODE: Final = "sim.clusterspace.io/exit-code"
_NEVER: Final = "never"
_INSTANT: Final = 0.001


# -- active, ready, available: what workloads count --------------------------------------------


def phase_of(pod: Object) -> str:
    """Return the pod's phase; a pod nobody has looked at is Pending."""
    return str(find_at(pod, "status", "phase") or "Pending")


def is_ending(kube_object: Object) -> bool:
    """Whether an object has been deleted and is only waiting to go."""
    return bool(metadata_of(kube_object).get("deletionTimestamp"))


def is_finished(pod: Object) -> bool:
    """Whether the pod's containers have ended for good."""
    return phase_of(pod) in ("Succeeded", "Failed")


def is_active(pod: Object) -> bool:
    """Whether the pod counts as one of a workload's replicas."""
    return not is_ending(pod) and not is_finished(pod)


def ready_since(pod: Object) -> float | None:
    """Return when the pod became ready; None when it is not."""
    conditions: list[Any] | None = find_at(pod, "status", "conditions")
    ready = find_condition(conditions, "Ready")
    if ready is None or ready.get("status") != "True":
        return None
    return parse_time(str(ready["lastTransitionTime"]))


def is_ready(pod: Object) -> bool:
    """Whether the pod takes traffic."""
    return ready_since(pod) is not None and not is_ending(pod)


def is_available(pod: Object, min_ready_seconds: int, now: float) -> bool:
    """Whether the pod has been ready for long enough to be relied on."""
    since = ready_since(pod)
    return since is not None and not is_ending(pod) and now >= since + min_ready_seconds


def next_availability(pods: Iterable[Object], min_ready_seconds: int, now: float) -> float | None:
    """Return how long until the next ready pod becomes available; None when none will."""
    waits = [
        since + min_ready_seconds - now
        for since in map(ready_since, pods)
        if since is not None and since + min_ready_seconds > now
    ]
    return min(waits, default=None)


def resources_of(container: Object, which: str) -> dict[str, str]:
    """Return a container's requests or limits."""
    return cast("dict[str, str]", find_at(container, "resources", which) or {})


def containers_of(pod: Object) -> list[Object]:
    """Return the pod's containers."""
    return cast("list[Object]", find_at(pod, "spec", "containers") or [])


# -- what happens next -------------------------------------------------------------------------


class Stage(Enum):
    """Where a pod is on its way."""

    UNSCHEDULED = "unscheduled"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    READY = "ready"
    FINISHED = "finished"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Pace:
    """How many seconds each stage takes, where the pod does not say otherwise."""

    start: float = 0.2
    ready: float = 0.0
    stop: float = 0.2
    job: float = 2.0
    """How long a pod runs that is to end by itself."""


class Step(Enum):
    """The next step of a pod's life."""

    BIND = "bind"
    START = "start"
    MAKE_READY = "make ready"
    FINISH = "finish"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Next:
    """The next step of a pod, and in how many seconds; no step when only others can move it."""

    step: Step | None = None
    seconds: float = 0.0


def stage_of(pod: Object) -> Stage:
    """Return where a pod is on its way."""
    if is_ending(pod):
        return Stage.STOPPING
    if is_finished(pod):
        return Stage.FINISHED
    if not find_at(pod, "spec", "nodeName"):
        return Stage.UNSCHEDULED
    if phase_of(pod) != "Running":
        return Stage.SCHEDULED
    ready = find_condition(find_at(pod, "status", "conditions"), "Ready") or {}
    return Stage.READY if ready.get("status") == "True" else Stage.RUNNING


def next_step(pod: Object, in_stage: float, pace: Pace, *, ends_itself: bool = False) -> Next:
    """Return the next step of a pod that has been in its stage for so many seconds.

    The end of one that `ends_itself` is up to the programs in its containers.
    """
    stage = stage_of(pod)
    if stage is Stage.UNSCHEDULED:
        gates = find_at(pod, "spec", "schedulingGates")
        return Next() if gates else Next(Step.BIND)
    if stage is Stage.SCHEDULED:
        return Next(Step.START, _left(pace.start, in_stage))
    if stage is Stage.STOPPING:
        grace = find_at(pod, "metadata", "deletionGracePeriodSeconds") or 0
        return Next(Step.REMOVE, _left(min(pace.stop, grace), in_stage))
    if stage is Stage.FINISHED:
        return Next()
    ready_after = annotations_of(pod).get(READY_AFTER, "")
    if stage is Stage.RUNNING and ready_after != _NEVER and are_all_running(pod):
        return Next(Step.MAKE_READY, _left(_seconds(ready_after, pace.ready), in_stage))
    run_for = annotations_of(pod).get(RUN_FOR, "")
    if not run_for and (ends_itself or restart_policy(pod) == "Always"):
        return Next()  # it goes on until it is told to stop
    return Next(Step.FINISH, _left(_seconds(run_for, pace.job), in_stage))


def _left(seconds: float, passed: float) -> float:
    """Return how much longer to wait; a wait too short to tell from none is none."""
    left = seconds - passed
    return left if left > _INSTANT else 0.0


def _seconds(text: str, otherwise: float) -> float:
    if not text:
        return otherwise
    try:
        return max(0.0, seconds_of(text))
    except MalformedDuration:
        return otherwise


def starts_ready(pod: Object, pace: Pace) -> bool:
    """Whether a pod is ready as soon as it runs, as one is that nobody probes."""
    return not pace.ready and READY_AFTER not in annotations_of(pod)


def restart_policy(pod: Object) -> str:
    """Return whether containers of a pod are started again when they have ended."""
    return str(find_at(pod, "spec", "restartPolicy") or "Always")


def are_all_running(pod: Object) -> bool:
    """Whether no container of a pod has ended or waits."""
    statuses: list[Object] = find_at(pod, "status", "containerStatuses") or []
    return all(find_at(each, "state", "running") for each in statuses)


def exit_code_of(pod: Object) -> int:
    """Return the exit code of a pod's containers."""
    text = annotations_of(pod).get(EXIT_CODE, "0")
    return int(text) if text.isascii() and text.isdigit() else 0


# -- how it looks then -------------------------------------------------------------------------


def unschedulable(pod: Object, why: str, now: float) -> Object:
    """Return the pod as one that no node takes."""
    condition = Condition("PodScheduled", "False", "Unschedulable", why)
    conditions = set_condition(find_at(pod, "status", "conditions"), condition, now).conditions
    return {**pod, "status": {**(pod.get("status") or {}), "conditions": conditions}}


def nominated(pod: Object, node: str) -> Object:
    """Return the pod with the node on which others make room for it."""
    return {**pod, "status": {**(pod.get("status") or {}), "nominatedNodeName": node}}


def preempted(pod: Object, now: float) -> Object:
    """Return a pod that has to leave for a more important one."""
    message = "preempting to accommodate a higher priority pod"
    condition = Condition("DisruptionTarget", "True", "PreemptionByScheduler", message)
    conditions = set_condition(find_at(pod, "status", "conditions"), condition, now).conditions
    return {**pod, "status": {**(pod.get("status") or {}), "conditions": conditions}}


def started(pod: Object, address: str, host_address: str, now: float) -> Object:
    """Return the pod with its containers running, not ready yet."""
    stamp = format_time(now)
    status: Object = {
        **(pod.get("status") or {}),
        "phase": "Running",
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": stamp,
        "containerStatuses": [_container(pod, each, stamp) for each in containers_of(pod)],
    }
    ended: Object = {"exitCode": 0, "reason": "Completed", "startedAt": stamp, "finishedAt": stamp}
    initialized: Object = {"ready": True, "started": False, "state": {"terminated": ended}}
    init_containers: list[Object] = find_at(pod, "spec", "initContainers") or []
    if init_containers:
        status["initContainerStatuses"] = [
            {**_container(pod, each, stamp), **initialized} for each in init_containers
        ]
    return {**pod, "status": {**status, "conditions": _conditions(pod, now, is_ready=False)}}


def made_ready(pod: Object, now: float) -> Object:
    """Return the pod with every container ready."""
    containers: list[Object] = find_at(pod, "status", "containerStatuses") or []
    status: Object = {
        **pod["status"],
        "containerStatuses": [
            {**each, "ready": bool(find_at(each, "state", "running"))} for each in containers
        ],
        "conditions": _conditions(pod, now, is_ready=True),
    }
    return {**pod, "status": status}


def finished(pod: Object, exit_code: int, now: float) -> Object:
    """Return the pod with every container ended."""
    containers: list[Object] = []
    for each in find_at(pod, "status", "containerStatuses") or ():
        ended: Object = {
            "exitCode": exit_code,
            "reason": "Error" if exit_code else "Completed",
            "startedAt": find_at(each, "state", "running", "startedAt"),
            "finishedAt": format_time(now),
            "containerID": each.get("containerID"),
        }
        state: Object = {"terminated": ended}
        containers.append({**each, "ready": False, "started": False, "state": state})
    status: Object = {
        **pod["status"],
        "phase": "Failed" if exit_code else "Succeeded",
        "containerStatuses": containers,
        "conditions": _conditions(pod, now, is_ready=False, reason="PodCompleted"),
    }
    return {**pod, "status": status}


# -- containers that end and start again -----------------------------------------------------------

_FIRST_BACKOFF: Final = 10.0
_LONGEST_BACKOFF: Final = 300.0
BACKING_OFF: Final = "CrashLoopBackOff"


@dataclass(frozen=True, slots=True)
class End:
    """How and when a program ended."""

    exit_code: int
    at: float


def restart_delay(restarts: int) -> float:
    """Return how long a container waits that was started again so often: the first time not."""
    if not restarts:
        return 0.0
    return min(_FIRST_BACKOFF * 2 ** min(restarts - 1, 16), _LONGEST_BACKOFF)


def with_ends(pod: Object, ends: Mapping[str, End], now: float) -> Object:
    """Return the pod after programs of it ended: over, started again, or waiting for that."""
    statuses: list[Object] = []
    policy = restart_policy(pod)
    for each in find_at(pod, "status", "containerStatuses") or ():
        end = ends.get(str(each["name"]))
        if end is None:
            statuses.append(each)
            continue
        terminated: Object = {
            "exitCode": end.exit_code,
            "reason": "Error" if end.exit_code else "Completed",
            "startedAt": find_at(each, "state", "running", "startedAt"),
            "finishedAt": format_time(end.at),
            "containerID": each.get("containerID"),
        }
        stopped = {**each, "ready": False, "started": False}
        if policy == "Never" or (policy == "OnFailure" and not end.exit_code):
            statuses.append({**stopped, "state": {"terminated": terminated}})
            continue
        stopped["lastState"] = {"terminated": terminated}
        delay = restart_delay(int(each.get("restartCount") or 0))
        if not delay:
            statuses.append(_restarted(pod, stopped, now))
            continue
        message = f"back-off {delay:g}s restarting failed container={each['name']}"
        waiting = {"reason": BACKING_OFF, "message": message}
        statuses.append({**stopped, "state": {"waiting": waiting}})
    codes = [find_at(each, "state", "terminated", "exitCode") for each in statuses]
    status: Object = {**pod["status"], "containerStatuses": statuses}
    reason = "ContainersNotReady"
    if None not in codes:
        status["phase"] = "Failed" if any(codes) else "Succeeded"
        reason = "PodFailed" if any(codes) else "PodCompleted"
    status["conditions"] = _conditions(pod, now, is_ready=False, reason=reason)
    return {**pod, "status": status}


def with_restart(pod: Object, container: str, now: float) -> Object:
    """Return the pod with a container that waited long enough running again."""
    statuses: list[Object] = find_at(pod, "status", "containerStatuses") or []
    changed = [
        _restarted(pod, each, now) if each["name"] == container else each for each in statuses
    ]
    return {**pod, "status": {**pod["status"], "containerStatuses": changed}}


def _restarted(pod: Object, status: Object, now: float) -> Object:
    count = int(status.get("restartCount") or 0) + 1
    digest = _digest(uid_of(pod), str(status["name"]), str(count))
    running = {"startedAt": format_time(now)}
    return {
        **status,
        "started": True,
        "restartCount": count,
        "containerID": f"sim://{digest}",
        "state": {"running": running},
    }


def missing_ephemeral(pod: Object) -> list[Object]:
    """Return the ephemeral containers of a pod that nobody has started."""
    statuses: list[Object] = find_at(pod, "status", "ephemeralContainerStatuses") or []
    known = {each.get("name") for each in statuses}
    containers: list[Object] = find_at(pod, "spec", "ephemeralContainers") or []
    return [each for each in containers if each.get("name") not in known]


def with_ephemeral(pod: Object, containers: Iterable[Object], now: float) -> Object:
    """Return the pod with ephemeral containers running in it."""
    stamp = format_time(now)
    present: list[Object] = find_at(pod, "status", "ephemeralContainerStatuses") or []
    new = [{**_container(pod, each, stamp), "started": False} for each in containers]
    status = {**pod["status"], "ephemeralContainerStatuses": [*present, *new]}
    return {**pod, "status": status}


# -- parts of a status -----------------------------------------------------------------------------


def _conditions(
    pod: Object, now: float, *, is_ready: bool, reason: str = "ContainersNotReady"
) -> list[Object]:
    ready = ("True", "") if is_ready else ("False", reason)
    conditions: list[Object] = find_at(pod, "status", "conditions") or []
    for each in (
        Condition("PodReadyToStartContainers", "True", ""),
        Condition("Initialized", "True", ""),
        Condition("Ready", *ready),
        Condition("ContainersReady", *ready),
        Condition("PodScheduled", "True", ""),
    ):
        conditions = set_condition(conditions, each, now).conditions
    return [{key: value for key, value in each.items() if value != ""} for each in conditions]


def _container(pod: Object, container: Object, stamp: str) -> Object:
    image = str(container.get("image", ""))
    return {
        "name": container["name"],
        "image": image,
        "imageID": f"sim://{_digest(image)}",
        "containerID": f"sim://{_digest(uid_of(pod), str(container['name']))}",
        "ready": False,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": stamp}},
        "lastState": {},
    }


def _digest(*names: str) -> str:
    return hashlib.sha256("/".join(names).encode()).hexdigest()
