"""Pods: how many containers are ready, what the pod is doing, and how often it was restarted.

A pod starts its init containers one after the other. The first one that has neither finished
well nor is a sidecar that has started *blocks* the pod, and what blocks it is its status. The
main containers have a say only when nothing blocks, or when the pod says that it was initialized
once (a sidecar may fail later).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from clusterspace.builtins.printers.cells import (
    AGE,
    NAME,
    NONE,
    PrintedColumn,
    Printer,
    age_of,
    items_at,
    shown,
    wide,
)
from clusterspace.kube.conditions import find_condition, is_true
from clusterspace.kube.objects import Object, find_at, metadata_of
from clusterspace.kube.tables import Column

_FINISHED_PHASES: Final = ("Succeeded", "Failed")
_COMPLETED: Final = "Completed"


@dataclass(frozen=True)
class _Containers:
    """The containers of a pod, sorted by the part they play."""

    pod: Object

    @cached_property
    def sidecars(self) -> frozenset[str]:
        """Names of the init containers that keep running beside the main ones."""
        started_first = items_at(self.pod, "spec", "initContainers")
        return frozenset(
            str(held.get("name")) for held in started_first if held.get("restartPolicy") == "Always"
        )

    @cached_property
    def passed(self) -> Sequence[Object]:
        """Init statuses before the blocking one."""
        statuses = items_at(self.pod, "status", "initContainerStatuses")
        return statuses[: self._block_index(statuses)]

    @cached_property
    def blocking(self) -> Object | None:
        """The init status that holds the pod up, if one does."""
        statuses = items_at(self.pod, "status", "initContainerStatuses")
        return next(iter(statuses[len(self.passed) :]), None)

    @cached_property
    def main_have_a_say(self) -> bool:
        """Whether the main containers decide what is shown."""
        conditions = items_at(self.pod, "status", "conditions")
        return self.blocking is None or is_true(conditions, "Initialized")

    @property
    def main(self) -> Sequence[Object]:
        """Statuses of the main containers; none while they have no say."""
        return items_at(self.pod, "status", "containerStatuses") if self.main_have_a_say else ()

    def is_sidecar(self, status: Object) -> bool:
        """Tell whether an init container is a sidecar."""
        return status.get("name") in self.sidecars

    def _block_index(self, statuses: Sequence[Object]) -> int:
        blocked = (index for index, status in enumerate(statuses) if not self._has_passed(status))
        return next(blocked, len(statuses))

    def _has_passed(self, status: Object) -> bool:
        is_beside = self.is_sidecar(status) and bool(status.get("started"))
        return is_beside or _ended_well(status)


def ready(pod: Object) -> str:
    """Return how many of the containers that should run are ready."""
    containers = _Containers(pod)
    sidecars = [held for held in containers.passed if containers.is_sidecar(held)]
    count = sum(bool(held.get("ready")) and not _ended_well(held) for held in sidecars)
    count += sum(_is_up(held) for held in containers.main)
    total = len(items_at(pod, "spec", "containers")) + len(containers.sidecars)
    return f"{count}/{total}"


def status(pod: Object) -> str:
    """Return the one word that says what the pod is doing, or why it is not."""
    phase = str(find_at(pod, "status", "phase") or "")
    reason = find_at(pod, "status", "reason")
    if metadata_of(pod).get("deletionTimestamp"):
        if reason == "NodeLost":
            return "Unknown"
        if phase not in _FINISHED_PHASES:
            return "Terminating"
    return _status_of_containers(pod) or _gate(pod) or str(reason or phase)


def restarts(pod: Object, now: float) -> str:
    """Return how often containers were restarted, and when the last time was."""
    containers = _Containers(pod)
    started_first = [*containers.passed]
    if containers.blocking is not None:
        started_first.append(containers.blocking)
    if containers.main_have_a_say:
        # Ordinary init containers are done with: their restarts no longer interest anybody.
        started_first = [held for held in started_first if containers.is_sidecar(held)]
    counted = [*started_first, *containers.main]
    total = sum(int(held.get("restartCount") or 0) for held in counted)
    last = max(_last_ends(counted), default="")
    return f"{total} ({age_of(last, now)} ago)" if total and last else str(total)


def _status_of_containers(pod: Object) -> str:
    containers = _Containers(pod)
    reasons = [reason for held in containers.main if (reason := _reason(held))]
    if reasons and reasons[0] == _COMPLETED:
        return _status_when_completed(pod, containers.main)
    if reasons:
        return reasons[0]
    return _status_when_blocked(pod, containers) if containers.blocking is not None else ""


def _status_when_completed(pod: Object, main: Sequence[Object]) -> str:
    """Return what a pod is doing of which some container has ended well."""
    is_running = any(_is_up(held) for held in main)
    if is_running and is_true(items_at(pod, "status", "conditions"), "Ready"):
        return "Running"
    failed = [_reason(held) for held in main if find_at(held, "state", "terminated", "exitCode")]
    if failed:
        return failed[0]
    return "NotReady" if is_running else _COMPLETED


def _status_when_blocked(pod: Object, containers: _Containers) -> str:
    blocking = containers.blocking or {}
    reason = _reason(blocking)
    if reason and reason != "PodInitializing":
        return f"Init:{reason}"
    total = len(items_at(pod, "spec", "initContainers"))
    return f"Init:{len(containers.passed)}/{total}"


def _reason(container: Object) -> str:
    """Return why a container is not running; nothing when it is, or does not say."""
    waiting = find_at(container, "state", "waiting", "reason")
    if waiting:
        return str(waiting)
    ended = find_at(container, "state", "terminated")
    if ended is None:
        return ""
    if ended.get("reason"):
        return str(ended["reason"])
    signal = ended.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode', 0)}"


def _gate(pod: Object) -> str:
    scheduled = find_condition(items_at(pod, "status", "conditions"), "PodScheduled") or {}
    gated = "SchedulingGated"
    return gated if scheduled.get("reason") == gated else ""


def _ended_well(container: Object) -> bool:
    ended = find_at(container, "state", "terminated")
    return ended is not None and not ended.get("exitCode")


def _is_up(container: Object) -> bool:
    is_running = find_at(container, "state", "running") is not None
    return is_running and bool(container.get("ready"))


def _last_ends(containers: Iterable[Object]) -> Iterable[str]:
    for held in containers:
        ended = find_at(held, "lastState", "terminated", "finishedAt")
        if ended:
            yield str(ended)


def _address(pod: Object) -> str:
    return next((held.get("ip") for held in items_at(pod, "status", "podIPs")), None) or NONE


def _gates(pod: Object) -> str:
    gates = [str(held.get("conditionType")) for held in items_at(pod, "spec", "readinessGates")]
    conditions = items_at(pod, "status", "conditions")
    open_gates = sum(is_true(conditions, gate) for gate in gates)
    return f"{open_gates}/{len(gates)}" if gates else NONE


def _completion(pod: Object) -> list[Object]:
    """Return the row's condition that lets clients tell pods that are over from the others."""
    phase = find_at(pod, "status", "phase")
    if phase not in _FINISHED_PHASES:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase}]


def _wide_text(name: str, *path: str) -> PrintedColumn:
    def read(pod: Object) -> Any:
        return find_at(pod, *path) or NONE

    return wide(name, read)


PODS: Final = Printer(
    (
        NAME,
        shown("Ready", ready),
        shown("Status", status),
        PrintedColumn(Column("Restarts"), restarts),
        AGE,
        wide("IP", _address),
        _wide_text("Node", "spec", "nodeName"),
        _wide_text("Nominated Node", "status", "nominatedNodeName"),
        wide("Readiness Gates", _gates),
    ),
    _completion,
)
