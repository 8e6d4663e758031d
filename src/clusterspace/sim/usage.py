"""How busy nodes and pods are, made up but steady: what metrics.k8s.io shows.

A container uses a share of what it asks for that is its own and moves slowly with time. The same
container at the same time always shows the same numbers, so a pod and its node agree.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from clusterspace.kube.objects import Object, labels_of, name_of, namespace_of, uid_of
from clusterspace.kube.quantities import parse_quantity
from clusterspace.kube.timestamps import format_time
from clusterspace.sim.pod_states import containers_of, resources_of

API_VERSION: Final = "metrics.k8s.io/v1beta1"
WINDOW: Final = "15s"
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
    """Return what one container uses now: between a fifth and nine tenths of what it asks for."""
    digest = hashlib.sha256(f"{uid_of(pod)}/{container['name']}".encode()).digest()
    base = 0.2 + 0.5 * digest[0] / 255
    wave = 0.1 * (1 + math.sin(2 * math.pi * (now / _PERIOD + digest[1] / 255)))
    asked = resources_of(container, "requests")
    cpu = parse_quantity(str(asked.get("cpu", "0"))).milli or _IDLE_CPU
    memory = parse_quantity(str(asked.get("memory", "0"))).whole or _IDLE_MEMORY
    return Usage(max(1, int(cpu * (base + wave))), int(memory * (base + wave / 4)))


def pod_usage(pod: Object, now: float) -> Usage:
    """Return what a pod uses now."""
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
        "apiVersion": API_VERSION,
        "metadata": metadata,
        "timestamp": format_time(now),
        "window": WINDOW,
    }
