"""metrics.k8s.io: how busy nodes and pods are, made up but steady, as `kubectl top` shows it.

A container uses a share of what it requests that is its own and moves slowly with time. The same
container at the same time always shows the same numbers, so a pod and its node agree.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.custom_resources import CustomRules
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.verbs.read import computed_verbs
from clusterspace.apiserver.verbs.resource_request import ResourceRequest, Verb
from clusterspace.builtins.printers.cells import AGE, NAME, Printer, printer, shown
from clusterspace.errors import MalformedQuantity, NotFound
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from clusterspace.kube.quantities import parse_quantity
from clusterspace.kube.resources import GroupResource, ResourceInfo
from clusterspace.kube.statuses import not_found
from clusterspace.kube.times import format_time
from clusterspace.sim.api import NODE, POD, Mirror
from clusterspace.sim.pods import containers_of, phase_of, resources_of
from clusterspace.sim.scheduling import PodsByNode

GROUP: Final = "metrics.k8s.io"
VERSION: Final = "v1beta1"
CPU_USAGE: Final = "sim.clusterspace.io/cpu-usage"
MEMORY_USAGE: Final = "sim.clusterspace.io/memory-usage"
_WINDOW: Final = "15s"
_PERIOD: Final = 600.0
_IDLE_CPU: Final = 20
"""Thousandths of a processor of a container that asks for none."""

_IDLE_MEMORY: Final = 32 * 1024 * 1024
_NODE_CPU: Final = 150
_NODE_MEMORY: Final = 700 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Usage:
    """Thousandths of a processor, and bytes."""

    cpu: int
    memory: int

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.cpu + other.cpu, self.memory + other.memory)

    def to_object(self) -> Object:
        """Return the quantities, as the metrics API writes them."""
        return {"cpu": f"{self.cpu}m", "memory": f"{self.memory // 1024}Ki"}


def container_usage(pod: Object, container: Object, now: float) -> Usage:
    """Return one container's usage now: between a fifth and nine tenths of its requests.

    A pod may say how busy it is, as a quantity or as a share of what each container requests.
    """
    digest = hashlib.sha256(f"{uid_of(pod)}/{container['name']}".encode()).digest()
    base = 0.2 + 0.5 * digest[0] / 255
    wave = 0.1 * (1 + math.sin(2 * math.pi * (now / _PERIOD + digest[1] / 255)))
    requested = resources_of(container, "requests")
    cpu = parse_quantity(str(requested.get("cpu", "0"))).milli or _IDLE_CPU
    memory = parse_quantity(str(requested.get("memory", "0"))).whole or _IDLE_MEMORY
    made_up = (max(1, int(cpu * (base + wave))), int(memory * (base + wave / 4)))
    busy = annotations_of(pod)
    return Usage(
        _driven(busy.get(CPU_USAGE, ""), cpu, made_up[0], is_cpu=True),
        _driven(busy.get(MEMORY_USAGE, ""), memory, made_up[1], is_cpu=False),
    )


def _driven(text: str, requested: int, otherwise: int, *, is_cpu: bool) -> int:
    """Return the usage that an annotation asks for; what is no usage is ignored."""
    if text.endswith("%") and text[:-1].isdecimal():
        return requested * int(text[:-1]) // 100
    if not text:
        return otherwise
    try:
        quantity = parse_quantity(text)
    except MalformedQuantity:
        return otherwise
    return max(0, quantity.milli if is_cpu else quantity.whole)


def pod_usage(pod: Object, now: float) -> Usage:
    """Return the usage of a pod now."""
    used = (container_usage(pod, container, now) for container in containers_of(pod))
    return sum(used, Usage(0, 0))


def pod_metrics(pod: Object, now: float) -> Object:
    """Return the PodMetrics of a running pod."""
    containers = [
        {"name": each["name"], "usage": container_usage(pod, each, now).to_object()}
        for each in containers_of(pod)
    ]
    metadata: Object = {**_metadata(pod, now), "namespace": namespace_of(pod)}
    return _metrics("PodMetrics", metadata, now) | {"containers": containers}


def node_metrics(node: Object, pods: Iterable[Object], now: float) -> Object:
    """Return the NodeMetrics of a node that runs these pods."""
    used = sum((pod_usage(pod, now) for pod in pods), Usage(_NODE_CPU, _NODE_MEMORY))
    return _metrics("NodeMetrics", _metadata(node, now), now) | {"usage": used.to_object()}


def _metadata(kube_object: Object, now: float) -> Object:
    labels = dict(labels_of(kube_object))
    metadata: Object = {"name": name_of(kube_object), "creationTimestamp": format_time(now)}
    return {**metadata, "labels": labels} if labels else metadata


def _metrics(kind: str, metadata: Object, now: float) -> Object:
    return {
        "kind": kind,
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": metadata,
        "timestamp": format_time(now),
        "window": _WINDOW,
    }


# -- what is served ----------------------------------------------------------------------------

_USAGE: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_MEASURED: Final = {"timestamp": {"type": "string"}, "window": {"type": "string"}}


def metrics_resources() -> tuple[Served, ...]:
    """Return the resources of metrics.k8s.io: pods and nodes."""
    containers = {"type": "array", "items": {"type": "object", "properties": {"usage": _USAGE}}}
    return (
        _served("PodMetrics", "pods", {"containers": containers}, _POD_PRINTER, namespaced=True),
        _served("NodeMetrics", "nodes", {"usage": _USAGE}, _NODE_PRINTER, namespaced=False),
    )


_POD_PRINTER: Final = printer(NAME, AGE)
_NODE_PRINTER: Final = printer(
    NAME,
    shown("CPU", lambda metrics: find_at(metrics, "usage", "cpu")),
    shown("Memory", lambda metrics: find_at(metrics, "usage", "memory")),
)


def _served(
    kind: str, plural: str, fields: Object, own_printer: Printer, *, namespaced: bool
) -> Served:
    info = ResourceInfo(
        group=GROUP,
        version=VERSION,
        kind=kind,
        plural=plural,
        singular="",
        namespaced=namespaced,
        verbs=("get", "list"),
    )
    schema: Object = {"type": "object", "properties": {**_MEASURED, **fields}}
    return Served(
        info=info,
        rules=CustomRules(info.group_version_kind, schema, has_status=False),
        form=forms.Form.of(
            kind=kind,
            api_version=info.api_version,
            stored_version=info.api_version,
            bare_items=False,
        ),
        printer=own_printer,
        storage=GroupResource(GROUP, plural),
        is_custom=True,
    )


def metrics_verbs(mirror: Mirror, pods_by_node: PodsByNode) -> Mapping[tuple[str, str], Verb]:
    """Return the verbs of metrics.k8s.io: nothing is stored, everything is worked out."""

    async def of_pods(hub: HubState) -> Iterable[Object]:
        now = hub.clock.now()
        running = (pod for pod in mirror.all(POD) if phase_of(pod) == "Running")
        return (pod_metrics(pod, now) for pod in running)

    async def of_nodes(hub: HubState) -> Iterable[Object]:
        now, nodes = hub.clock.now(), mirror.all(NODE)
        return (node_metrics(node, pods_by_node.on_node(name_of(node)), now) for node in nodes)

    verbs: dict[tuple[str, str], Verb] = {}
    for plural, work_out in (("pods", of_pods), ("nodes", of_nodes)):
        path = f"{GROUP}/{plural}"
        verbs |= computed_verbs(path, work_out)
        verbs[path, "get"] = _about_the_measured(verbs[path, "get"], plural)
    return verbs


def _about_the_measured(get: Verb, plural: str) -> Verb:
    """Return `get` that says, as metrics-server does, that the pod or node itself is not there."""

    async def get_metrics(request: ResourceRequest) -> Response | None:
        try:
            return await get(request)
        except NotFound as error:
            raise not_found(GroupResource("", plural), request.info.name) from error

    return get_metrics
