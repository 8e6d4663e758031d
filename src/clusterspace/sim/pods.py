"""Pending to Running to gone: what happens to a pod next, and how it looks then.

    unscheduled ──bind──> scheduled ──start──> running ──ready──> ready ──end──> finished
         │                    │                   │                 │
         └────────────────────┴───delete──────────┴─────────────────┴──> stopping ──> gone

A pod may say how it wants to behave, in annotations of its template:

    sim.clusterspace.io/ready-after: 5s      how long after its start it is ready, or `never`
    sim.clusterspace.io/run-for: 10s         when it ends by itself; pods of Jobs do so anyway
    sim.clusterspace.io/exit-code: "3"       what it then ends with
"""

import hashlib
from dataclasses import dataclass
from enum import Enum
from typing import Final

from clusterspace.errors import MalformedDuration
from clusterspace.kube.conditions import Condition, find_condition, set_condition
from clusterspace.kube.durations import seconds_of
from clusterspace.kube.objects import Object, annotations_of, find_at, uid_of
from clusterspace.kube.timestamps import format_time
from clusterspace.sim.pod_states import containers_of, is_ending, is_finished, phase_of

READY_AFTER: Final = "sim.clusterspace.io/ready-after"
RUN_FOR: Final = "sim.clusterspace.io/run-for"
EXIT_CODE: Final = "sim.clusterspace.io/exit-code"
_NEVER: Final = "never"
_INSTANT: Final = 0.001


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
    ready: float = 0.2
    stop: float = 0.2
    job: float = 2.0
    """How long a pod runs that is to end by itself."""


class Step(Enum):
    """What to do with a pod now."""

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


def next_step(pod: Object, in_stage: float, pace: Pace) -> Next:
    """Return what happens to a pod that has been in its stage for so many seconds."""
    stage = stage_of(pod)
    if stage is Stage.UNSCHEDULED:
        gates = find_at(pod, "spec", "schedulingGates")
        return Next() if gates else Next(Step.BIND)
    if stage is Stage.SCHEDULED:
        return Next(Step.START, _left(pace.start, in_stage))
    if stage is Stage.STOPPING:
        grace = find_at(pod, "metadata", "deletionGracePeriodSeconds") or 0
        return Next(Step.REMOVE, _left(min(pace.stop, grace), in_stage))
    if stage is Stage.RUNNING:
        return _next_of_running(pod, in_stage, pace)
    if stage is Stage.READY:
        seconds = _run_seconds(pod, pace)
        return Next() if seconds is None else Next(Step.FINISH, _left(seconds, in_stage))
    return Next()


def _left(wanted: float, passed: float) -> float:
    """Return how much longer to wait; a wait too short to tell from none is none."""
    left = wanted - passed
    return left if left > _INSTANT else 0.0


def _next_of_running(pod: Object, in_stage: float, pace: Pace) -> Next:
    ready = annotations_of(pod).get(READY_AFTER, "")
    run = _run_seconds(pod, pace)
    if ready == _NEVER:
        return Next() if run is None else Next(Step.FINISH, _left(run, in_stage))
    return Next(Step.MAKE_READY, _left(_seconds(ready, pace.ready), in_stage))


def _run_seconds(pod: Object, pace: Pace) -> float | None:
    """Return how long a pod runs; None for one that goes on until it is told to stop."""
    asked = annotations_of(pod).get(RUN_FOR, "")
    if asked:
        return _seconds(asked, pace.job)
    restarts = find_at(pod, "spec", "restartPolicy") or "Always"
    return None if restarts == "Always" else pace.job


def _seconds(text: str, otherwise: float) -> float:
    if not text:
        return otherwise
    try:
        return max(0.0, seconds_of(text))
    except MalformedDuration:
        return otherwise


def exit_code_of(pod: Object) -> int:
    """Return what a pod's containers end with."""
    text = annotations_of(pod).get(EXIT_CODE, "0")
    return int(text) if text.isascii() and text.isdigit() else 0


# -- how it looks then -------------------------------------------------------------------------


def unschedulable(pod: Object, why: str, now: float) -> Object:
    """Return the pod as one that no node takes."""
    condition = Condition("PodScheduled", "False", "Unschedulable", why)
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
    initial: list[Object] = find_at(pod, "spec", "initContainers") or []
    if initial:
        status["initContainerStatuses"] = [_initialized(pod, each, stamp) for each in initial]
    held: list[Object] = find_at(pod, "status", "conditions") or []
    return {**pod, "status": {**status, "conditions": _conditions(held, now, is_ready=False)}}


def made_ready(pod: Object, now: float) -> Object:
    """Return the pod with every container ready."""
    held: list[Object] = find_at(pod, "status", "conditions") or []
    containers: list[Object] = find_at(pod, "status", "containerStatuses") or []
    status: Object = {
        **pod["status"],
        "containerStatuses": [{**each, "ready": True} for each in containers],
        "conditions": _conditions(held, now, is_ready=True),
    }
    return {**pod, "status": status}


def finished(pod: Object, exit_code: int, now: float) -> Object:
    """Return the pod with every container ended."""
    containers: list[Object] = find_at(pod, "status", "containerStatuses") or []
    held: list[Object] = find_at(pod, "status", "conditions") or []
    status: Object = {
        **pod["status"],
        "phase": "Failed" if exit_code else "Succeeded",
        "containerStatuses": [_ended(each, exit_code, now) for each in containers],
        "conditions": _conditions(held, now, is_ready=False, reason="PodCompleted"),
    }
    return {**pod, "status": status}


def _conditions(
    held: list[Object], now: float, *, is_ready: bool, reason: str = "ContainersNotReady"
) -> list[Object]:
    verdict = "True" if is_ready else "False"
    why = "" if is_ready else reason
    wanted = (
        Condition("PodReadyToStartContainers", "True", ""),
        Condition("Initialized", "True", ""),
        Condition("Ready", verdict, why),
        Condition("ContainersReady", verdict, why),
        Condition("PodScheduled", "True", ""),
    )
    for each in wanted:
        held = set_condition(held, each, now).conditions
    return [{key: value for key, value in each.items() if value != ""} for each in held]


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


def _initialized(pod: Object, container: Object, stamp: str) -> Object:
    running = _container(pod, container, stamp)
    ended: Object = {"exitCode": 0, "reason": "Completed", "startedAt": stamp, "finishedAt": stamp}
    return {**running, "ready": True, "started": False, "state": {"terminated": ended}}


def _ended(container: Object, exit_code: int, now: float) -> Object:
    ended: Object = {
        "exitCode": exit_code,
        "reason": "Error" if exit_code else "Completed",
        "startedAt": find_at(container, "state", "running", "startedAt"),
        "finishedAt": format_time(now),
        "containerID": container.get("containerID"),
    }
    return {**container, "ready": False, "started": False, "state": {"terminated": ended}}


def _digest(*parts: str) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()
