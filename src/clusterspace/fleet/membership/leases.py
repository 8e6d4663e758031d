"""The heartbeat of Pull clusters: the agent renews a Lease on the hub, and the hub watches them.

The lease says that the agent runs and reaches the hub, and nothing else; how the member is, the
status tells. The hub waits forty seconds for the next renewal. One every five means that an agent
that dies is noticed between thirty-five and forty-five seconds later: its cluster is Unknown.

Nobody's clock is trusted but the hub's own steady one: a cluster is as fresh as the moment we saw
its lease or its status change. When most of the fleet falls silent at once it is not them, it is
us: then nothing is written, so nothing is tainted, and it is said loudly.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis import member_clusters
from clusterspace.apis.clusters import CLUSTER_NAMESPACE, CLUSTERS, conditions_of, is_pull
from clusterspace.apis.exclusive import STOPS_AFTER, promise_text
from clusterspace.apis.member_clusters import (
    INTERNAL_MEMBER_CLUSTERS,
    SILENT_PERIODS,
    has_kubefleet_agent,
    member_namespace,
    period_of,
)
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    nothing,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import ApiError, ClusterError
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.health import READY, silent_condition
from clusterspace.fleet.membership.status import ready_status, record_transition
from clusterspace.kube.conditions import UNKNOWN, find_condition, set_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    is_being_deleted,
    name_of,
    resource_version_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.times import format_micro_time
from clusterspace.telemetry import fleet_metrics

_log = structlog.get_logger(__name__)

_DURATION_SECONDS: Final = 40


@dataclass(frozen=True, slots=True)
class RenewalSettings:
    """How often to renew, and how soon to try again when the hub did not answer."""

    renew_seconds: float = 5.0
    retry_seconds: float = 2.0
    answer_seconds: float = 5.0
    """A request that hangs in a cut network must not outlast the cut."""


def lease_object(cluster: Object, now: float) -> Object:
    """Return the lease of a cluster; it goes away with its Cluster."""
    name = name_of(cluster)
    path = manifests.lease_path(name)
    # The reference of the Secrets, without what only a controller's children have.
    secrets_owner = manifests.owner_of_secrets(cluster)
    owner = {key: secrets_owner[key] for key in ("apiVersion", "kind", "name", "uid")}
    return {
        "apiVersion": manifests.LEASES.api_version,
        "kind": "Lease",
        "metadata": {
            "name": path.name,
            "namespace": path.namespace,
            "ownerReferences": [owner],
        },
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": _DURATION_SECONDS,
            "renewTime": format_micro_time(now),
        },
    }


@dataclass(frozen=True, slots=True)
class StopPromise:
    """After how long without the hub an agent stops exclusive copies, and who counts that."""

    seconds: float
    heard: Callable[[float], None]
    """Told when each renewal was sent that the hub has answered."""


class LeaseRenewal:
    """Renews the lease of one cluster."""

    def __init__(
        self,
        hub: Client,
        cluster_name: str,
        *,
        clock: Clock,
        settings: RenewalSettings,
        promise: StopPromise | None = None,
    ) -> None:
        self._promise = promise
        self._hub = hub
        self._name = cluster_name
        self._path = manifests.lease_path(cluster_name)
        self._clock = clock
        self._settings = settings
        self._lease: Object | None = None
        """As we last wrote it, so that a renewal is one request; None when that is not known."""
        self._trouble = ""

    async def run(self) -> None:
        """Renew until cancelled; a hub that does not answer is asked again soon."""
        while True:
            try:
                async with asyncio.timeout(self._settings.answer_seconds):
                    await self.renew()
                self._trouble = ""
            except (ApiError, ClusterError, TimeoutError) as error:
                # Whatever is wrong, even a write without an answer: we no longer know what the
                # hub has. With the lease as we believe it to be, every renewal would conflict, and
                # an agent that is alive would be Unknown.
                self._lease = None
                # Logged once: an agent may wait for days until its hub knows it.
                if repr(error) != self._trouble:
                    _log.warning("lease not renewed", cluster=self._name, reason=repr(error))
                self._trouble = repr(error)
                await self._clock.sleep(self._settings.retry_seconds)
            else:
                await self._clock.sleep(self._settings.renew_seconds)

    async def renew(self) -> None:
        """Renew the lease, or create it when there is none; a cluster that leaves needs none."""
        # Counted from before the first request: the hub counts from when it stored the renewal.
        sent_at = self._clock.monotonic()
        # A lease that somebody deleted makes the patch of ours NotFound, and is made anew after a
        # fresh look. It goes with its Cluster by its owner, so none is left behind by an agent
        # that dies right here.
        lease = self._lease or await self._hub.find(self._path)
        if lease is None:
            cluster = await self._hub.get(manifests.cluster_path(self._name))
            if not is_being_deleted(cluster):
                desired = self._promised(lease_object(cluster, self._clock.now()))
                self._lease = await self._hub.create(self._path.collection, desired)
                self._note_heard(sent_at)
            return
        renewed = with_value(lease, format_micro_time(self._clock.now()), "spec", "renewTime")
        self._lease = await commit(self._hub, self._path, lease, self._promised(renewed))
        self._note_heard(sent_at)

    def _promised(self, lease: Object) -> Object:
        if self._promise is None:
            return lease
        text = promise_text(self._promise.seconds, str(lease["spec"]["renewTime"]))
        return with_metadata(lease, annotations={**annotations_of(lease), STOPS_AFTER: text})

    def _note_heard(self, sent_at: float) -> None:
        if self._promise is not None:
            self._promise.heard(sent_at)


_FEW: Final = 2
"""One silent cluster is never a reason to doubt ourselves, however small the fleet."""


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """How often to look, and how long a cluster may be silent."""

    period_seconds: float = 5.0
    grace_seconds: float = 40.0
    startup_grace_seconds: float = 60.0
    """For a cluster that has never reported."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The values that change while a cluster is alive; as long as they do not, it is silent."""

    cluster_uid: str
    lease_version: str
    ready: str


@dataclass(frozen=True, slots=True)
class Observation:
    """A heartbeat, and when we first saw it by our own clock."""

    heartbeat: Heartbeat
    at: float


@dataclass(frozen=True, slots=True)
class Silence:
    """Which clusters have fallen silent; none are named when the hub suspects itself."""

    silent: tuple[str, ...] = ()
    suspects_itself: bool = False


def judge_silence(
    silences: Mapping[str, float], fleet_size: int, settings: MonitorSettings
) -> Silence:
    """Return who fell silent, given for how long each was quiet that was heard before.

    Heartbeats come at different moments, so when the first of many has been silent for too long
    the others are close: half the time counts as quiet.
    """
    quiet = [each for each in silences.values() if each >= settings.grace_seconds / 2]
    if len(quiet) >= _FEW and 2 * len(quiet) > fleet_size:
        return Silence(suspects_itself=True)
    silent = [name for name, each in silences.items() if each >= settings.grace_seconds]
    return Silence(tuple(sorted(silent)))


def heartbeat_of(cluster: Object, lease: Object | None) -> Heartbeat:
    """Return the heartbeat of a cluster, as its lease and its status have it now.

    KubeFleet's agent has no lease: its InternalMemberCluster, which it writes, is that.
    """
    ready = find_condition(conditions_of(cluster), READY) or {}
    status = f"{ready.get('status')} {ready.get('lastTransitionTime')}"
    renewal = resource_version_of(lease or {})
    if has_kubefleet_agent(cluster):
        renewal = member_clusters.heartbeat_of(lease or {})
    return Heartbeat(uid_of(cluster), renewal, status)


class LeaseMonitor(Reconciler):
    """Looks at all Pull clusters again and again, together: silence is judged over the fleet."""

    # What an agent's renewal looks like from here, with a grace of 40 seconds:
    #
    #     agent   renews  renews  renews  dies
    #     hub       5       10      15                          by our steady clock, when seen
    #     look           ^       ^       ^  ^ … ^       ^
    #                                          35: quiet, but not yet silent
    #                                                  55: silent since 15 by 40: Unknown
    #
    # The times in the lease are the agent's, and are not read. Nor does it count how often it was
    # renewed: an observation is replaced when anything about the heartbeat has changed since.
    #
    # If our own informer falls behind, all agents look silent at once, and the hub suspects itself.
    # Observations are lost with the process: whoever leads next gives every cluster its whole grace
    # anew, since nobody was there to listen. An agent that died in between is noticed that later.
    name = "lease-monitor"
    workers = 1  # looks must not overlap: each replaces the observations of the last
    at_start = (Request("all"),)

    def __init__(
        self,
        hub: Client,
        caches: HubCaches,
        events: EventRecorder,
        clock: Clock,
        settings: MonitorSettings | None = None,
    ) -> None:
        self._hub = hub
        self._clusters = caches.informer(CLUSTERS)
        self._leases = caches.informer(manifests.LEASES, CLUSTER_NAMESPACE)
        self._internals = caches.informer(INTERNAL_MEMBER_CLUSTERS)
        self._events = events
        self._clock = clock
        self._settings = settings or MonitorSettings()
        self._observations: dict[str, Observation] = {}
        self.suspects_itself = False

    def watches(self) -> Iterable[Watch]:
        """Return Clusters and leases; looks come by the clock, and not with every renewal."""
        yield Watch(self._clusters, to=nothing)
        yield Watch(self._leases, to=nothing)
        yield Watch(self._internals, to=nothing)

    async def reconcile(self, request: Request) -> Result:
        """Look at all clusters."""
        await self.look()
        return RequeueAfter(self._settings.period_seconds)

    async def look(self) -> Silence:
        """Look once: mark who fell silent, or suspect ourselves."""
        clusters = [each for each in self._clusters.cache.objects() if not is_being_deleted(each)]
        heard = [each for each in clusters if ready_status(each) != UNKNOWN]
        now, settings = self._clock.monotonic(), self._settings
        observations: dict[str, Observation] = {}
        silences: dict[str, float] = {}
        for cluster in filter(is_pull, clusters):
            name, pace = name_of(cluster), 1.0
            lease = self._leases.cache.find(manifests.lease_path(name).key)
            if has_kubefleet_agent(cluster):
                # Its heartbeats come as often as its MemberCluster says, which may be every ten
                # minutes: time counts for as much less.
                lease = self._internals.cache.find(f"{member_namespace(name)}/{name}")
                pace = settings.grace_seconds / (SILENT_PERIODS * period_of(lease or {}))
            heartbeat = heartbeat_of(cluster, lease)
            last = self._observations.get(name)
            seen = last if last and last.heartbeat == heartbeat else Observation(heartbeat, now)
            observations[name] = seen
            if ready_status(cluster) != UNKNOWN:
                # Who never reported is given more time.
                has_reported = bool(ready_status(cluster))
                more = settings.startup_grace_seconds - settings.grace_seconds
                silences[name] = pace * (now - seen.at) - (0.0 if has_reported else more)
        # Before the first await: marking takes requests, and a Cluster that is made meanwhile is
        # observed at the next look. Those that are gone, or are Push by now, are forgotten.
        self._observations = observations
        silence = judge_silence(silences, len(heard), settings)
        self._suspect(silence.suspects_itself, clusters)
        for cluster in heard:
            if name_of(cluster) in silence.silent:
                await self._mark_silent(cluster)
        return silence

    def _suspect(self, suspects: bool, clusters: list[Object]) -> None:
        if suspects == self.suspects_itself:
            return
        self.suspects_itself = suspects
        fleet_metrics.hub_doubts(itself=suspects)
        if suspects:
            _log.error("most of the fleet fell silent at once: the hub suspects itself")
            message = "most of the fleet fell silent at once: the hub suspects itself, not clusters"
            for each in clusters:
                self._events.record(each, "HubSuspectsItself", message, is_warning=True)
            return
        _log.warning("the fleet is heard again", clusters=len(clusters))
        # The way to the hub is back, but some agents are heard later than others. Whoever is not
        # yet would be Unknown at once, being silent for so long: all begin anew.
        now = self._clock.monotonic()
        self._observations = {
            name: Observation(last.heartbeat, now) for name, last in self._observations.items()
        }

    async def _mark_silent(self, cluster: Object) -> None:
        condition = silent_condition(was_heard=bool(ready_status(cluster)))
        conditions = set_condition(conditions_of(cluster), condition, self._clock.now())
        marked = with_value(cluster, conditions.conditions, "status", "conditions")
        path = manifests.cluster_path(name_of(cluster))
        try:
            # At the version in our cache: an agent that has just written its status is heard, and
            # its write makes ours a conflict.
            after = await commit(self._hub, path, cluster, marked)
        except (ApiError, ClusterError) as error:
            # Somebody was faster, or the hub is not there: the next look will see.
            _log.warning("not marked", cluster=name_of(cluster), reason=str(error))
        else:
            record_transition(self._events, cluster, after)
