"""Nodes with capacity, the heartbeats that keep them alive, and what follows when those end."""

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from clusterspace.aio.clocks import Clock
from clusterspace.errors import AlreadyExists, Conflict, InternalError, MalformedTimestamp, NotFound
from clusterspace.kube.conditions import Condition, find_condition, set_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    metadata_of,
    name_of,
    with_value,
    without_value,
)
from clusterspace.kube.selectors import tolerates
from clusterspace.kube.times import format_micro_time, format_time, parse_time
from clusterspace.sim.api import LEASE, NODE, POD, Change, Key, Mirror, SimApi, key_of
from clusterspace.sim.plans import Plan, with_status
from clusterspace.sim.pods import is_ending, is_finished

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


# -- nodes that fall silent, and the pods on them --------------------------------------------------
#
# The nodes that the simulation makes are always well. Nodes that users make have no kubelet, unless
# somebody else plays one: without a heartbeat they become Unknown and are tainted, pods that do not
# tolerate that are deleted, and pods of a node that is gone are removed.

GRACE_SECONDS: Final = 50.0
"""How long a node may be silent before it counts as lost."""

ORPHAN_SECONDS: Final = 40.0
"""How long pods outlive their node: it may only have been registered anew."""

_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_PRESSURES: Final = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_MANAGED: Final = frozenset({_NOT_READY, _UNREACHABLE, _UNSCHEDULABLE, *_PRESSURES.values()})
_REPORTED: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class NodeController:
    """Marks nodes that are silent, and keeps their taints as their conditions are."""

    name = "nodes"
    batch_seconds = 0.0

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def requests(self, change: Change) -> Iterable[Key]:
        """Return the node that changed; a heartbeat alone concerns only a node that was lost."""
        if change.kind == NODE.name and change.after is not None:
            yield key_of(change.after)
        elif change.kind == LEASE.name and metadata_of(change.latest)["namespace"] == (
            LEASE_NAMESPACE
        ):
            key = Key(NODE.name, "", name_of(change.latest))
            node = self._mirror.find(key)
            if node is not None and _status_of(node, "Ready") == "Unknown":
                yield key

    def plan(self, key: Key, now: float) -> Plan:
        """Look when a node was last heard of."""
        node = self._mirror.find(key)
        if node is None or is_ending(node):
            return Plan()
        again_after = None
        if not has_kubelet(node):
            again_after = self._last_heard(node) + GRACE_SECONDS - now
            if again_after <= 0:
                lost = _lost(node, now)
                if lost is not None:
                    return Plan(status=lost)
                again_after = None
        taints = _tainted(node, now)
        if taints is None:
            return Plan(again_after=again_after)
        changed = with_value(node, taints, "spec", "taints")
        if not taints:
            changed = without_value(changed, "spec", "taints")
        return Plan(update=(changed,), again_after=again_after)

    def _last_heard(self, node: Object) -> float:
        lease = self._mirror.find(Key(LEASE.name, LEASE_NAMESPACE, name_of(node)))
        ready = find_condition(find_at(node, "status", "conditions"), "Ready") or {}
        stamps = (
            metadata_of(node).get("creationTimestamp"),
            ready.get("lastHeartbeatTime"),
            find_at(lease, "spec", "renewTime"),
        )
        return max((_moment(each) for each in stamps), default=0.0)


def _moment(stamp: Any) -> float:
    try:
        return parse_time(str(stamp)) if stamp else 0.0
    except MalformedTimestamp:
        return 0.0


def _status_of(node: Object, condition: str) -> str:
    found = find_condition(find_at(node, "status", "conditions"), condition) or {}
    return str(found.get("status") or "")


def _lost(node: Object, now: float) -> Object | None:
    """Return a node that nobody hears of; None when it says so already."""
    conditions: list[Object] = find_at(node, "status", "conditions") or []
    for each in _REPORTED:
        known = find_condition(conditions, each)
        reason, message = "NodeStatusUnknown", "Kubelet stopped posting node status."
        if known is None or known.get("reason") == "NodeStatusNeverUpdated":
            reason, message = "NodeStatusNeverUpdated", "Kubelet never posted node status."
        if known is not None and known.get("status") == "Unknown":
            continue
        condition = Condition(each, "Unknown", reason, message)
        conditions = set_condition(conditions, condition, now).conditions
    return with_status(node, {**(node.get("status") or {}), "conditions": conditions})


def _tainted(node: Object, now: float) -> list[Object] | None:
    """Return the taints that a node's conditions ask for; None when it has them."""
    current: list[Object] = find_at(node, "spec", "taints") or []
    wanted: list[tuple[str, str]] = []
    ready = _status_of(node, "Ready")
    if ready == "Unknown":
        wanted += [(_UNREACHABLE, "NoSchedule"), (_UNREACHABLE, "NoExecute")]
    elif ready == "False":
        wanted += [(_NOT_READY, "NoSchedule"), (_NOT_READY, "NoExecute")]
    elif not ready:
        wanted.append((_NOT_READY, "NoSchedule"))  # nobody has said anything yet
    wanted += [
        (taint, "NoSchedule")
        for condition, taint in _PRESSURES.items()
        if _status_of(node, condition) == "True"
    ]
    if find_at(node, "spec", "unschedulable"):
        wanted.append((_UNSCHEDULABLE, "NoSchedule"))
    kept = [
        each
        for each in current
        if each.get("key") not in _MANAGED or (each.get("key"), each.get("effect")) in wanted
    ]
    present = {(each.get("key"), each.get("effect")) for each in kept}
    new: list[Object] = [
        {"key": key, "effect": effect, "timeAdded": format_time(now)}
        for key, effect in wanted
        if (key, effect) not in present
    ]
    desired = [*kept, *new]
    return None if desired == current else desired


class PodEvictions:
    """Deletes pods that do not tolerate their node, and removes those whose node is gone."""

    name = "pod evictions"
    batch_seconds = 0.0

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._pods_on: defaultdict[str, set[Key]] = defaultdict(set)
        self._missing: dict[str, float] = {}
        """A node that is not there to since when."""

    def requests(self, change: Change) -> Iterable[Key]:
        """Return the pods that a change of them, or of their node, may drive away."""
        if change.kind == POD.name:
            key = key_of(change.latest)
            node = str(find_at(change.latest, "spec", "nodeName") or "")
            if not node:
                return
            if change.after is None:
                self._pods_on[node].discard(key)
                if not self._pods_on[node]:
                    del self._pods_on[node]
                return
            self._pods_on[node].add(key)
            known = self._mirror.find(Key(NODE.name, "", node))
            if known is None or _no_execute(known):
                yield key
        elif change.kind == NODE.name:
            if change.after is None or _no_execute(change.after):
                yield from tuple(self._pods_on.get(name_of(change.latest), ()))
            if change.after is not None:
                self._missing.pop(name_of(change.after), None)

    def plan(self, key: Key, now: float) -> Plan:
        """Decide whether, and when, a pod has to go."""
        pod = self._mirror.find(key)
        if pod is None:
            return Plan()
        name = str(find_at(pod, "spec", "nodeName"))
        node = self._mirror.find(Key(NODE.name, "", name))
        if node is None:
            left = self._missing.setdefault(name, now) + ORPHAN_SECONDS - now
            # Nobody will ever stop it: it is removed, and not asked to stop.
            return Plan(remove=(pod,)) if left <= 0 else Plan(again_after=left)
        if is_ending(pod) or is_finished(pod):
            return Plan()
        due = _due(pod, _no_execute(node))
        if due is None:
            return Plan()
        return Plan(delete=(pod,)) if due <= now else Plan(again_after=due - now)


def _no_execute(node: Object) -> list[Object]:
    taints: list[Object] = find_at(node, "spec", "taints") or []
    return [each for each in taints if each.get("effect") == "NoExecute"]


def _due(pod: Object, taints: Sequence[Object]) -> float | None:
    """Return when a pod has to leave a node with these taints; None for never."""
    tolerations: list[Object] = find_at(pod, "spec", "tolerations") or []
    times: list[float] = []
    for taint in taints:
        matching = [each for each in tolerations if tolerates(each, taint)]
        if not matching:
            return 0.0
        seconds = [
            float(each["tolerationSeconds"])
            for each in matching
            if each.get("tolerationSeconds") is not None
        ]
        if seconds:
            times.append(_moment(taint.get("timeAdded")) + max(0.0, min(seconds)))
    return min(times, default=None)
