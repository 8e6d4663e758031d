"""When the agents of Pull clusters were last heard, by our own steady clock.

Conditions say less: when most of the fleet falls silent at once the hub suspects itself, and leaves
the clusters as Ready as they were. Whoever is about to act on silence asks here as well.
"""

from dataclasses import dataclass
from math import inf

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTER_NAMESPACE
from clusterspace.controllers.controller import Watch, nothing
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.controllers.leases import LEASES
from clusterspace.kube.objects import resource_version_of


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A state of a cluster's Lease, and when we first saw it. Their clocks are not looked at."""

    version: str
    seen_at: float


class Heartbeats:
    """The Leases of all clusters, as they were seen to be renewed."""

    def __init__(self, caches: HubCaches, clock: Clock) -> None:
        self._clock = clock
        self._leases = caches.informer(LEASES, CLUSTER_NAMESPACE)
        self._seen: dict[str, Heartbeat] = {}
        self._leases.add_handler(self._lease_changed)

    @property
    def watch(self) -> Watch:
        """What has to be synced before anybody asks."""
        return Watch(self._leases, to=nothing)

    @property
    def are_stale(self) -> bool:
        """Whether nothing is heard of Leases at all: then silence means nothing."""
        return self._leases.is_stale

    def find(self, cluster: str) -> Heartbeat | None:
        """Return the last renewal that was seen of a cluster; None when it has no Lease."""
        return self._seen.get(cluster)

    def silent_seconds(self, cluster: str) -> float:
        """Return for how long a cluster was not heard; for ever when it has no Lease."""
        known = self._seen.get(cluster)
        return inf if known is None else self._clock.monotonic() - known.seen_at

    def _lease_changed(self, update: Update) -> None:
        name, lease = update.key.rpartition("/")[2], update.decode_after()
        if lease is None:
            self._seen.pop(name, None)
            return
        version, known = resource_version_of(lease), self._seen.get(name)
        if known is None or known.version != version:
            self._seen[name] = Heartbeat(version, self._clock.monotonic())
