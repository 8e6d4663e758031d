"""Nodes with capacity, and the heartbeats that keep them there and alive."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.errors import AlreadyExists, Conflict, InternalError, NotFound
from clusterspace.kube.objects import Object, find_at, name_of, with_value, without_value
from clusterspace.kube.times import format_micro_time, format_time
from clusterspace.sim.api import NODE, Key, Mirror, SimApi
from clusterspace.sim.pods import is_finished

LEASE_NAMESPACE: Final = "kube-node-lease"
HEARTBEAT_SECONDS: Final = 10.0
"""As kubelets do."""

_PROVIDER: Final = "sim://"
_LEASE_SECONDS: Final = 40
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_POD_NETWORK: Final = ipaddress.ip_network("10.128.0.0/9")
_NODE_NETWORK: Final = ipaddress.ip_network("172.24.0.0/14")
_ADDRESSES_PER_NODE: Final = 256

_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ("Ready", "True", "KubeletReady"),
)


@dataclass(frozen=True, slots=True)
class NodeShape:
    """The capacity and version of the nodes of a simulated cluster, and its number of zones."""

    cpu: str = "8"
    memory: str = "32Gi"
    pods: int = 110
    version: str = "v1.35.0"
    zones: int = 3


def node_name(cluster: str, index: int) -> str:
    """Return the name of a node, counted from 0."""
    return f"{cluster}-node-{index}"


def new_node(cluster: str, index: int, shape: NodeShape) -> Object:
    """Return a node as it joins; its status comes with its first heartbeat."""
    name = node_name(cluster, index)
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/region": cluster,
        "topology.kubernetes.io/zone": f"{cluster}-{index % shape.zones}",
    }
    network = pod_network(index)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "podCIDR": network,
            "podCIDRs": [network],
            "providerID": f"{_PROVIDER}{cluster}/{name}",
        },
    }


def has_kubelet(node: Object) -> bool:
    """Whether somebody runs the pods of a node: nodes that users make stand empty."""
    return str(find_at(node, "spec", "providerID") or "").startswith(_PROVIDER)


def with_node_status(node: Object, index: int, shape: NodeShape, now: float) -> Object:
    """Return the node with its capacity, addresses and good health."""
    room = {
        "cpu": shape.cpu,
        "memory": shape.memory,
        "pods": str(shape.pods),
        "ephemeral-storage": "100Gi",
    }
    stamp = format_time(now)
    conditions: list[Object] = [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "lastHeartbeatTime": stamp,
            "lastTransitionTime": stamp,
        }
        for kind, status, reason in _CONDITIONS
    ]
    status: Object = {
        "capacity": room,
        "allocatable": room,
        "conditions": conditions,
        "addresses": [
            {"type": "InternalIP", "address": node_address(index)},
            {"type": "Hostname", "address": name_of(node)},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": "amd64",
            "operatingSystem": "linux",
            "osImage": "Clusterspace simulation",
            "kernelVersion": "0.0.0-sim",
            "kubeletVersion": shape.version,
            "kubeProxyVersion": shape.version,
            "containerRuntimeVersion": "sim://1",
            "machineID": name_of(node),
            "systemUUID": name_of(node),
            "bootID": name_of(node),
        },
    }
    return {**node, "status": status}


def without_taints(node: Object) -> Object:
    """Return a node that is ready without the taint the API puts on those that join."""
    taints: list[Object] = find_at(node, "spec", "taints") or []
    kept = [each for each in taints if each.get("key") != _NOT_READY]
    if len(kept) == len(taints):
        return node
    return (
        with_value(node, kept, "spec", "taints") if kept else without_value(node, "spec", "taints")
    )


def new_lease(node: Object, now: float) -> Object:
    """Return the lease of a node, just renewed."""
    reference = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": name_of(node),
        "uid": find_at(node, "metadata", "uid"),
    }
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name_of(node),
            "namespace": LEASE_NAMESPACE,
            "ownerReferences": [reference],
        },
        "spec": {
            "holderIdentity": name_of(node),
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": format_micro_time(now),
        },
    }


def renewed(lease: Object, now: float) -> Object:
    """Return the lease renewed."""
    return with_value(lease, format_micro_time(now), "spec", "renewTime")


# -- addresses ---------------------------------------------------------------------------------


def node_address(index: int) -> str:
    """Return the address of a node."""
    return str(_NODE_NETWORK[index + 2])


def pod_network(index: int) -> str:
    """Return the addresses of a node's pods, as a CIDR."""
    return f"{_POD_NETWORK[index * _ADDRESSES_PER_NODE]}/24"


def host_address(node: Object) -> str:
    """Return the address a node says it has."""
    addresses: list[Object] = find_at(node, "status", "addresses") or []
    found = (each["address"] for each in addresses if each.get("type") == "InternalIP")
    return str(next(found, ""))


def free_address(node: Object, pods: Iterable[Object]) -> str:
    """Return the lowest address of a node that none of its pods has."""
    taken = {find_at(pod, "status", "podIP") for pod in pods if not is_finished(pod)}
    network = ipaddress.ip_network(str(find_at(node, "spec", "podCIDR")))
    for address in network.hosts():
        # The first is the node's own end of the network.
        if address != network[1] and str(address) not in taken:
            return str(address)
    raise InternalError(f"node {name_of(node)} has no free pod address")


# -- heartbeats --------------------------------------------------------------------------------


class Heartbeats:
    """The kubelets' only other duty: registering nodes and renewing their leases."""

    def __init__(
        self,
        api: SimApi,
        mirror: Mirror,
        clock: Clock,
        cluster: str,
        count: int,
        shape: NodeShape,
    ) -> None:
        self._api = api
        self._mirror = mirror
        self._clock = clock
        self._cluster = cluster
        self._count = count
        self._shape = shape
        self._leases: dict[int, Object] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self.beat()
            await self._clock.sleep(HEARTBEAT_SECONDS)

    async def beat(self) -> None:
        """Register what is missing and renew every lease."""
        for index in range(self._count):
            node = self._mirror.find(Key(NODE.name, "", node_name(self._cluster, index)))
            if node is None:
                created = await self._api.create(new_node(self._cluster, index, self._shape))
                running = with_node_status(created, index, self._shape, self._clock.now())
                healthy = without_taints(await self._api.update_status(running))
                node = await self._api.update(healthy)
            await self._renew(index, node)

    async def _renew(self, index: int, node: Object) -> None:
        last, now = self._leases.get(index), self._clock.now()
        try:
            if last is None:
                self._leases[index] = await self._api.create(new_lease(node, now))
            else:
                self._leases[index] = await self._api.update(renewed(last, now))
        except (AlreadyExists, Conflict, NotFound) as error:
            # Somebody deleted or changed the lease: the next beat makes a new one in its place.
            self._leases.pop(index, None)
            if last is not None and not isinstance(error, NotFound):
                await self._api.delete(last)
