"""What makes a hub a member: nodes, workload controllers, pods, and the doors into them."""

from clusterspace.apiserver.app import HubApp
from clusterspace.apiserver.identity.assembly import Verbs
from clusterspace.apiserver.state import HubState
from clusterspace.controllers.background import Tasks
from clusterspace.roots.sim_api import LocalApi
from clusterspace.roots.sim_doors import metrics_verbs, pod_verbs
from clusterspace.sim.api import CONFIG_MAP, FOLLOWED
from clusterspace.sim.containers import Containers
from clusterspace.sim.controllers import Controllers
from clusterspace.sim.faults import Faults
from clusterspace.sim.heartbeats import Heartbeats
from clusterspace.sim.lifecycle import Lifecycle
from clusterspace.sim.mirror import Mirror
from clusterspace.sim.nodes import NodeShape
from clusterspace.sim.placement import Placement
from clusterspace.sim.pod_streams import PodStreams
from clusterspace.sim.pods import Pace


class Simulation:
    """The parts of one simulated member around one mirror."""

    def __init__(
        self, hub: HubState, cluster: str, nodes: int, shape: NodeShape, pace: Pace
    ) -> None:
        self._hub = hub
        self._cluster = cluster
        self._nodes = nodes
        self._shape = shape
        self._pace = pace
        self._mirror = Mirror()
        self._placement = Placement(self._mirror)
        self._containers = Containers(hub.clock)

    def verbs(self) -> Verbs:
        """Return what a member answers and a plain hub does not."""
        streams = PodStreams(self._containers, self._mirror, self._hub.clock)
        doors = pod_verbs(streams)
        return {**doors, **metrics_verbs(self._mirror, self._placement)}

    def tasks(self, app: HubApp, faults: Faults) -> Tasks:
        """Return what runs as long as the member does, each under the name its work is known by."""
        hub, mirror, clock = self._hub, self._mirror, self._hub.clock
        manager = LocalApi(hub, app, "kube-controller-manager")
        scheduler = LocalApi(hub, app, "kube-scheduler")
        kubelet = LocalApi(hub, app, "kubelet")
        lifecycle = Lifecycle(scheduler, kubelet, mirror, self._placement, clock, self._pace)
        lifecycle.on_removal(self._containers.forget)
        heartbeats = Heartbeats(
            kubelet, mirror, clock, cluster=self._cluster, count=self._nodes, shape=self._shape
        )
        return {
            "mirror": lambda: manager.follow(FOLLOWED, mirror),
            "fault rules": lambda: manager.follow((CONFIG_MAP,), faults),
            "workload controllers": Controllers(manager, mirror, clock).run,
            "pods": lifecycle.run,
            "nodes": heartbeats.run,
        }
