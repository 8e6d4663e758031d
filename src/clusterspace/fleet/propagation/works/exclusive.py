"""Whether the old copy of an exclusive workload has stopped, before a new one is started.

    Work gone ─────────────────────────> stopped: its executor has seen the last pod go
    Work withdrawn, its cluster silent
      └─ agent, watchdog promised ──> renewal last seen + promise + margin + pods' time ──> stopped

A renewal reaches the hub after it was sent and is seen by us after that. The agent counts from the
sending, so when all of that has passed by our clock it has passed by the agent's, if neither clock
runs faster than the other by more than the margin allows for.
"""

from collections.abc import Iterable
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTER_NAMESPACE, CLUSTERS, conditions_of, is_pull
from clusterspace.apis.exclusive import (
    LEASED,
    can_be_stopped,
    exclusiveness_of_work,
    promised_seconds,
    stop_seconds,
)
from clusterspace.apis.works import cluster_of, manifests_of
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client
from clusterspace.controllers.informers import HubCaches
from clusterspace.controllers.leases import LEASES
from clusterspace.fleet.propagation.heartbeats import Heartbeats
from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, is_being_deleted, name_of, resource_version_of

NOT_STOPPED: Final = "ExclusiveCopyNotStopped"
"""Why a cluster lacks its Work: another copy of what must not run twice may still run."""

MARGIN_SECONDS: Final = 60.0
"""For clocks that do not run alike, and for an agent that has to be started first."""

LOOK_SECONDS: Final = 5.0

_READY: Final = "Ready"


class StopProofs:
    """What proves that a copy has stopped on a cluster that cannot be asked."""

    def __init__(
        self, hub: Client, caches: HubCaches, clock: Clock, margin_seconds: float = MARGIN_SECONDS
    ) -> None:
        self._hub = hub
        self._clock = clock
        self._margin = margin_seconds
        self._clusters = caches.informer(CLUSTERS)
        self.heartbeats = Heartbeats(caches, clock)

    async def why_not_stopped(self, work: Object) -> str:
        """Return why the copy of a Work that was withdrawn may still run; empty when it cannot.

        The Work has to be on its way out when this is asked, by a live read: an agent that comes
        back then finds that its copy must not be started again. What is found here is true from
        then on, however late it is made use of.
        """
        name = cluster_of(work)
        cluster = self._clusters.cache.find(name)
        if why := why_never_proven(name, work, cluster):
            return f"{name} has not stopped it{why}"
        if why := self._why_not_trusted():
            return f"{name} has not stopped it; {why}"
        # Live, and after the Work was seen to be on its way out. Were it read before, the agent
        # could renew in between, find its Work still wanted, and start the copy again.
        lease = await self._hub.find(ResourcePath(LEASES, CLUSTER_NAMESPACE, name))
        known = self.heartbeats.find(name)
        due = None if lease is None else proven_after(work, lease, self._margin)
        if lease is None or known is None or due is None:
            return f"{name} has not stopped it{no_promise(name, cluster)}"
        quiet = self._clock.monotonic() - known.seen_at
        if resource_version_of(lease) != known.version or quiet < due:
            # No time that is left, which would be another text, and another write, at every look.
            who = "agent" if cluster is None or is_pull(cluster) else "watchdog"
            return (
                f"{name} has not stopped it; if its {who} stays silent it has by its lease, "
                f"{due:g} s after it was last heard"
            )
        return ""

    def _why_not_trusted(self) -> str:
        """Return why silence may be ours: most of the fleet is silent, or we hear nothing."""
        if self._clusters.is_stale or self.heartbeats.are_stale:
            return "nothing is heard of the clusters, so silence means nothing"
        clusters = [each for each in self._clusters.cache.objects() if not is_being_deleted(each)]
        quiet = sum(self._is_quiet(each) for each in clusters)
        if 2 * quiet > len(clusters):
            return f"{quiet} of {len(clusters)} clusters are silent: the hub suspects itself first"
        return ""

    def _is_quiet(self, cluster: Object) -> bool:
        """Whether a cluster looks dead; by its Lease, too, of which its condition may say less."""
        if not is_true(conditions_of(cluster), _READY):
            return True
        is_silent = self.heartbeats.silent_seconds(name_of(cluster)) > self._margin
        return is_pull(cluster) and is_silent


def no_promise(name: str, cluster: Object | None) -> str:
    """Return why nobody stops copies on a silent cluster, and what to install there.

    In words that go on from "has not stopped it".
    """
    if cluster is None or is_pull(cluster):
        return (
            ", and its agent does not promise to stop exclusive copies when it loses the hub: run "
            "a newer agent, with --exclusive-lease"
        )
    return (
        ": it is a Push cluster, and no watchdog runs there that stops it by a lease: start "
        "`clusterspace watchdog` there (controllers with --watchdog-image place it), register it "
        f"with an agent, or, if you know that it is dead, `clusterspace unjoin {name} --force`"
    )


def proven_after(work: Object, lease: Object, margin_seconds: float) -> float | None:
    """Return how long a silent agent proves that it has stopped a copy; None when it never does."""
    promised = promised_seconds(lease)
    if promised is None:
        return None
    pods = max((stop_seconds(each) for each in manifests_of(work)), default=0.0)
    return promised + margin_seconds + pods


def why_never_proven(name: str, work: Object, cluster: Object | None) -> str:
    """Return why only an answer of the cluster itself proves that a copy has stopped.

    In words that go on from "has not stopped it"; empty when a lease would prove it, too.
    """
    is_leased = exclusiveness_of_work(work) == LEASED
    if cluster is not None and is_leased:
        if all(can_be_stopped(each) for each in manifests_of(work)):
            return ""
        return ", and nobody there knows how to stop its kind"
    if is_leased:
        more = "there is no such cluster any more"
    else:
        more = (
            "only its own answer proves it. Annotate the template with "
            "clusterspace.io/exclusive=true to have it stopped by a lease, or with false when "
            "two copies do no harm"
        )
    return f": {more}"


def staying(binding_tasks: Iterable[Object]) -> frozenset[str]:
    """Return the clusters whose copies stay until a person says that they may go."""
    return frozenset(
        str(each.get("fromCluster"))
        for each in binding_tasks
        if each.get("suppressDeletion") or each.get("purgeMode") == "Never"
    )
