"""The core group, less services and volumes; and Clusters, the nodes of a fleet.

A pod starts its init containers one after the other. The first one that has neither finished
well nor is a sidecar that has started *blocks* the pod, and what blocks it is its status. The
main containers have a say only when nothing blocks, or when the pod says that it was initialized
once (a sidecar may fail later).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from clusterspace.builtins.printers.cells import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    PrintedColumn,
    Printer,
    age_of,
    condition_status,
    items_at,
    joined,
    labels_text,
    number,
    printer,
    shown,
    text,
    texts_at,
    wide,
)
from clusterspace.builtins.printers.cells import container_images as images
from clusterspace.builtins.printers.cells import container_names as containers
from clusterspace.kube.conditions import find_condition, is_true
from clusterspace.kube.objects import Object, find_at, labels_of, metadata_of, name_of
from clusterspace.kube.tables import Column

_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_OLD_ROLE: Final = "kubernetes.io/role"


def _data_count(kube_object: Object) -> int:
    return sum(len(kube_object.get(part) or ()) for part in ("data", "binaryData"))


CONFIG_MAPS: Final = printer(NAME, shown("Data", _data_count), AGE)
SECRETS: Final = printer(NAME, text("Type", "type"), shown("Data", _data_count), AGE)
SERVICE_ACCOUNTS: Final = printer(NAME, AGE)
NAMESPACES: Final = printer(NAME, text("Status", "status", "phase"), AGE)

POD_TEMPLATES: Final = printer(
    NAME,
    shown("Containers", lambda item: containers("template", "spec").cell(item, 0)),
    shown("Images", lambda item: images("template", "spec").cell(item, 0)),
    shown("Pod Labels", lambda item: labels_text(find_at(item, "template", "metadata", "labels"))),
)

REPLICATION_CONTROLLERS: Final = printer(
    NAME,
    number("Desired", "spec", "replicas"),
    number("Current", "status", "replicas"),
    number("Ready", "status", "readyReplicas"),
    AGE,
    containers("spec", "template", "spec"),
    images("spec", "template", "spec"),
    wide("Selector", lambda item: labels_text(find_at(item, "spec", "selector"))),
)


def _node_status(node: Object) -> str:
    ready = find_condition(items_at(node, "status", "conditions"), "Ready")
    said = None if ready is None else ready.get("status") == "True"
    word = {None: "Unknown", True: "Ready", False: "NotReady"}[said]
    is_cordoned = find_at(node, "spec", "unschedulable")
    return f"{word},SchedulingDisabled" if is_cordoned else word


def _node_roles(node: Object) -> str:
    labels = labels_of(node)
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    if labels.get(_OLD_ROLE):
        roles.add(labels[_OLD_ROLE])
    return ",".join(sorted(filter(None, roles))) or NONE


def _node_address(kind: str) -> Callable[[Object], Any]:
    def read(node: Object) -> str:
        addresses = items_at(node, "status", "addresses")
        named = (each.get("address") for each in addresses if each.get("type") == kind)
        return next(named, None) or NONE

    return read


def _node_info(name: str, field: str) -> PrintedColumn:
    return wide(name, lambda node: find_at(node, "status", "nodeInfo", field) or UNKNOWN)


NODES: Final = printer(
    NAME,
    shown("Status", _node_status),
    shown("Roles", _node_roles),
    AGE,
    text("Version", "status", "nodeInfo", "kubeletVersion"),
    wide("Internal-IP", _node_address("InternalIP")),
    wide("External-IP", _node_address("ExternalIP")),
    _node_info("OS-Image", "osImage"),
    _node_info("Kernel-Version", "kernelVersion"),
    _node_info("Container-Runtime", "containerRuntimeVersion"),
)


def _event_first(event: Object) -> Any:
    return event.get("firstTimestamp") or event.get("eventTime")


def _event_age(event: Object, now: float) -> str:
    observed = find_at(event, "series", "lastObservedTime")
    return age_of(observed or event.get("lastTimestamp") or _event_first(event), now)


def _event_object(event: Object) -> str:
    about: Object = event.get("involvedObject") or {}
    kind, name = str(about.get("kind") or "").lower(), about.get("name")
    return f"{kind}/{name}" if name else kind


def _event_source(event: Object) -> str:
    component = find_at(event, "source", "component") or event.get("reportingComponent")
    instance = find_at(event, "source", "host") or event.get("reportingInstance")
    return ", ".join(str(part) for part in (component or "", instance) if part)


EVENTS: Final = printer(
    PrintedColumn(Column("Last Seen"), _event_age),
    text("Type", "type"),
    text("Reason", "reason"),
    shown("Object", _event_object),
    wide("Subobject", lambda event: find_at(event, "involvedObject", "fieldPath") or ""),
    wide("Source", _event_source),
    shown("Message", lambda event: str(event.get("message") or "").strip()),
    PrintedColumn(
        Column("First Seen", priority=1), lambda event, now: age_of(_event_first(event), now)
    ),
    wide("Count", lambda event: find_at(event, "series", "count") or event.get("count") or 1),
    PrintedColumn(Column("Name", format="name", priority=1), lambda event, _: name_of(event)),
)


def _quota(*, limits: bool) -> Callable[[Object], str]:
    def read(quota: Object) -> str:
        hard: Object = find_at(quota, "status", "hard") or {}
        used: Object = find_at(quota, "status", "used") or {}
        names = sorted(name for name in hard if name.startswith("limits.") is limits)
        return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in names)

    return read


RESOURCE_QUOTAS: Final = printer(
    NAME,
    shown("Request", _quota(limits=False)),
    shown("Limit", _quota(limits=True)),
    AGE,
)


def _health(field: str) -> Callable[[Object], str]:
    def read(component: Object) -> str:
        found = find_condition(component.get("conditions"), "Healthy") or {}
        return str(found.get(field) or "")

    return read


_HEALTH_WORDS: Final = {"True": "Healthy", "False": "Unhealthy"}

COMPONENT_STATUSES: Final = printer(
    NAME,
    shown(
        "Status",
        lambda component: _HEALTH_WORDS.get(_health("status")(component), "Unknown"),
    ),
    shown("Message", _health("message")),
    shown("Error", _health("error")),
)


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
            str(container.get("name"))
            for container in started_first
            if container.get("restartPolicy") == "Always"
        )

    @cached_property
    def passed(self) -> Sequence[Object]:
        """Init statuses before the blocking one."""
        statuses = items_at(self.pod, "status", "initContainerStatuses")
        for index, each in enumerate(statuses):
            is_beside = self.is_sidecar(each) and bool(each.get("started"))
            if not is_beside and not _ended_well(each):
                return statuses[:index]
        return statuses

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


def _ready(pod: Object) -> str:
    """Return how many of the containers that should run are ready."""
    containers = _Containers(pod)
    sidecars = [container for container in containers.passed if containers.is_sidecar(container)]
    count = sum(
        bool(container.get("ready")) and not _ended_well(container) for container in sidecars
    )
    count += sum(_is_up(container) for container in containers.main)
    total = len(items_at(pod, "spec", "containers")) + len(containers.sidecars)
    return f"{count}/{total}"


def _status(pod: Object) -> str:
    """Return the one word that says what the pod is doing, or why it is not."""
    phase = str(find_at(pod, "status", "phase") or "")
    reason = find_at(pod, "status", "reason")
    if metadata_of(pod).get("deletionTimestamp"):
        if reason == "NodeLost":
            return "Unknown"
        if phase not in _FINISHED_PHASES:
            return "Terminating"
    if shown_of_containers := _status_of_containers(pod):
        return shown_of_containers
    conditions = items_at(pod, "status", "conditions")
    scheduled = find_condition(conditions, "PodScheduled") or {}
    if scheduled.get("reason") == "SchedulingGated":
        return "SchedulingGated"
    return str(reason or phase)


def _restarts(pod: Object, now: float) -> str:
    """Return how often containers were restarted, and when the last time was."""
    containers = _Containers(pod)
    started_first = [*containers.passed]
    if containers.blocking is not None:
        started_first.append(containers.blocking)
    if containers.main_have_a_say:
        # Ordinary init containers are done with: their restarts no longer interest anybody.
        started_first = [
            container for container in started_first if containers.is_sidecar(container)
        ]
    counted = [*started_first, *containers.main]
    total = sum(int(container.get("restartCount") or 0) for container in counted)
    ends = [find_at(each, "lastState", "terminated", "finishedAt") for each in counted]
    last = max((str(end) for end in ends if end), default="")
    return f"{total} ({age_of(last, now)} ago)" if total and last else str(total)


def _status_of_containers(pod: Object) -> str:
    containers = _Containers(pod)
    reasons = [reason for container in containers.main if (reason := _reason(container))]
    if reasons and reasons[0] == _COMPLETED:
        is_running = any(_is_up(container) for container in containers.main)
        if is_running and is_true(items_at(pod, "status", "conditions"), "Ready"):
            return "Running"
        failed = [
            _reason(container)
            for container in containers.main
            if find_at(container, "state", "terminated", "exitCode")
        ]
        if failed:
            return failed[0]
        return "NotReady" if is_running else _COMPLETED
    if reasons:
        return reasons[0]
    if containers.blocking is None:
        return ""
    reason = _reason(containers.blocking)
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


def _ended_well(container: Object) -> bool:
    ended = find_at(container, "state", "terminated")
    return ended is not None and not ended.get("exitCode")


def _is_up(container: Object) -> bool:
    is_running = find_at(container, "state", "running") is not None
    return is_running and bool(container.get("ready"))


def _gates(pod: Object) -> str:
    gates = [str(gate.get("conditionType")) for gate in items_at(pod, "spec", "readinessGates")]
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
        shown("Ready", _ready),
        shown("Status", _status),
        PrintedColumn(Column("Restarts"), _restarts),
        AGE,
        wide(
            "IP",
            lambda pod: (
                next((address.get("ip") for address in items_at(pod, "status", "podIPs")), None)
                or NONE
            ),
        ),
        _wide_text("Node", "spec", "nodeName"),
        _wide_text("Nominated Node", "status", "nominatedNodeName"),
        wide("Readiness Gates", _gates),
    ),
    _completion,
)


# As Karmada's API server shows them: a definition's columns could not say all of it.
CLUSTERS: Final = printer(
    NAME,
    text("Version", "status", "kubernetesVersion"),
    text("Mode", "spec", "syncMode"),
    condition_status("Ready", "Ready", when_absent="Unknown"),
    AGE,
    wide("Zones", lambda cluster: joined(texts_at(cluster, "spec", "zones"))),
    wide("Region", lambda cluster: find_at(cluster, "spec", "region") or NONE),
    wide("Provider", lambda cluster: find_at(cluster, "spec", "provider") or NONE),
    wide("API-Endpoint", lambda cluster: find_at(cluster, "spec", "apiEndpoint") or ""),
    wide("Proxy-URL", lambda cluster: find_at(cluster, "spec", "proxyURL") or NONE),
)
