"""The core group, less pods, services and volumes."""

from collections.abc import Callable
from typing import Any, Final

from clusterspace.builtins.printers.cells import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    PrintedColumn,
    age_of,
    items_at,
    labels_text,
    number,
    printer,
    shown,
    text,
    wide,
)
from clusterspace.builtins.printers.cells import container_images as images
from clusterspace.builtins.printers.cells import container_names as containers
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, labels_of, name_of
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
    shown("Containers", lambda held: containers("template", "spec").cell(held, 0)),
    shown("Images", lambda held: images("template", "spec").cell(held, 0)),
    shown("Pod Labels", lambda held: labels_text(find_at(held, "template", "metadata", "labels"))),
)

REPLICATION_CONTROLLERS: Final = printer(
    NAME,
    number("Desired", "spec", "replicas"),
    number("Current", "status", "replicas"),
    number("Ready", "status", "readyReplicas"),
    AGE,
    containers("spec", "template", "spec"),
    images("spec", "template", "spec"),
    wide("Selector", lambda held: labels_text(find_at(held, "spec", "selector"))),
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
        named = (held.get("address") for held in addresses if held.get("type") == kind)
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


def _event_last(event: Object) -> Any:
    observed = find_at(event, "series", "lastObservedTime")
    return observed or event.get("lastTimestamp") or _event_first(event)


def _event_object(event: Object) -> str:
    about: Object = event.get("involvedObject") or {}
    kind, name = str(about.get("kind") or "").lower(), about.get("name")
    return f"{kind}/{name}" if name else kind


def _event_source(event: Object) -> str:
    component = find_at(event, "source", "component") or event.get("reportingComponent")
    instance = find_at(event, "source", "host") or event.get("reportingInstance")
    return ", ".join(str(part) for part in (component or "", instance) if part)


def _event_count(event: Object) -> int:
    return find_at(event, "series", "count") or event.get("count") or 1


EVENTS: Final = printer(
    PrintedColumn(Column("Last Seen"), lambda event, now: age_of(_event_last(event), now)),
    text("Type", "type"),
    text("Reason", "reason"),
    shown("Object", _event_object),
    wide("Subobject", lambda event: find_at(event, "involvedObject", "fieldPath") or ""),
    wide("Source", _event_source),
    shown("Message", lambda event: str(event.get("message") or "").strip()),
    PrintedColumn(
        Column("First Seen", priority=1), lambda event, now: age_of(_event_first(event), now)
    ),
    wide("Count", _event_count),
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


def _health_word(component: Object) -> str:
    words = {"True": "Healthy", "False": "Unhealthy"}
    return words.get(_health("status")(component), "Unknown")


COMPONENT_STATUSES: Final = printer(
    NAME,
    shown("Status", _health_word),
    shown("Message", _health("message")),
    shown("Error", _health("error")),
)
