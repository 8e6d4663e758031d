"""Watchdogs of Push clusters: exclusive copies stop there, too, when the hub is not heard.

    watchdog ──renews, at w──> Lease on the member          copies may run until w + lease
                                     │ read
    controllers ──copy it──> Lease of the cluster on the hub, as an agent would renew it
                └─acknowledge, after that──> Lease on the member ──> watchdog: heard, at w

It is the promise of agents with the Lease on the other side. The watchdog counts from before it
wrote a renewal, and only once that is acknowledged; the hub counts from after it has read it. So
however late an acknowledgement arrives, it never makes a copy run for longer than the hub waits.

One hub is listened to. Another that pushes to the same member acknowledges in vain, sees that, and
has no promise: it would otherwise count on a silence that the first one fills.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTER_NAMESPACE, CLUSTERS, is_pull
from clusterspace.apis.exclusive import (
    HEARD,
    STOPS_AFTER,
    WATCHES_FOR,
    promise_text,
    promised_seconds,
)
from clusterspace.apis.member_clusters import has_kubefleet_agent
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    nothing,
)
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import ApiError, ClusterError, Conflict
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.connections import Reach
from clusterspace.fleet.membership.leases import RenewalSettings, StopPromise, lease_object
from clusterspace.fleet.membership.status import is_reached_anew
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.times import format_micro_time

_log = structlog.get_logger(__name__)

WATCHDOG: Final = "clusterspace-watchdog"
WATCHDOG_LEASE: Final = ResourcePath(manifests.LEASES, CLUSTER_NAMESPACE, WATCHDOG)
"""On the member, in the namespace that a push join makes there and a leave removes."""

LOOK_SECONDS: Final = 5.0
SEEK_SECONDS: Final = 30.0
"""How often a cluster is asked for a watchdog that has none."""
SILENT_SECONDS: Final = 30.0
"""After how long a watchdog that does not renew is taken to be gone, if its cluster answers."""


class WatchdogRenewal:
    """The watchdog's end: it renews a Lease on its own member, and hears by it of the hub."""

    def __init__(
        self, member: Client, promise: StopPromise, clock: Clock, settings: RenewalSettings
    ) -> None:
        self._member = member
        self._promise = promise
        self._clock = clock
        self._settings = settings
        self._sent: dict[str, float] = {}
        """When each renewal was sent that may yet be acknowledged."""
        self._listens_to = ""
        """The UID of the Cluster whose hub was listened to last; empty when none ever was."""
        self._listens_until = 0.0
        self._has_begun = False
        self._trouble = ""

    @property
    def is_counted_on(self) -> bool:
        """Whether a hub may count on copies being stopped: not before it was listened to.

        So that a watchdog that is new to its cluster interrupts nothing.
        """
        return not self._has_begun or bool(self._listens_to)

    async def run(self) -> None:
        """Renew until cancelled; a member that does not answer is asked again soon."""
        while True:
            try:
                async with asyncio.timeout(self._settings.answer_seconds):
                    await self.renew()
                self._trouble = ""
            except Conflict:
                continue  # the hub has just acknowledged the last one
            except (ApiError, ClusterError, TimeoutError) as error:
                if repr(error) != self._trouble:
                    _log.warning("watchdog has not renewed its lease", reason=repr(error))
                self._trouble = repr(error)
                await self._clock.sleep(self._settings.retry_seconds)
            else:
                await self._clock.sleep(self._settings.renew_seconds)

    async def renew(self) -> None:
        """Take in what the hub has acknowledged, and renew."""
        live = await self._member.find(WATCHDOG_LEASE)
        self._take_in(live or {})
        # Counted from before it is sent, and from the first that said so if the time of day was
        # turned back onto an earlier one.
        moment, now = format_micro_time(self._clock.now()), self._clock.monotonic()
        self._sent = {k: at for k, at in self._sent.items() if now - at < self._promise.seconds}
        self._sent.setdefault(moment, now)
        lease: Object = live or {
            "apiVersion": manifests.LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": WATCHDOG, "namespace": CLUSTER_NAMESPACE},
            "spec": {"holderIdentity": WATCHDOG},
        }
        notes = {
            **annotations_of(lease),
            STOPS_AFTER: promise_text(self._promise.seconds, moment),
            WATCHES_FOR: self._listens_to,
        }
        desired = with_metadata(with_value(lease, moment, "spec", "renewTime"), annotations=notes)
        if live is None:
            await self._member.create(WATCHDOG_LEASE.collection, desired)
        else:
            await self._member.update(WATCHDOG_LEASE, desired)

    def _take_in(self, lease: Object) -> None:
        now, seconds = self._clock.monotonic(), self._promise.seconds
        if not self._has_begun:
            # Whoever ran before us may have been heard until just now by the hub that it names,
            # which counts on that nobody else is listened to until its copies have stopped.
            self._has_begun = True
            self._listens_to = annotations_of(lease).get(WATCHES_FOR, "")
            self._listens_until = now + seconds
        hub, _, renewal = annotations_of(lease).get(HEARD, "").partition(" ")
        sent_at = self._sent.get(renewal)
        is_bound = bool(self._listens_to) and now < self._listens_until
        if not hub or sent_at is None or (is_bound and hub != self._listens_to):
            return
        if hub != self._listens_to:
            # The copies of whoever was listened to have stopped. The next renewal says that it is
            # another now, and that is the first one that the other hub counts on.
            _log.info("watchdog listens to a hub", cluster_uid=hub)
        self._listens_to, self._listens_until = hub, sent_at + seconds
        self._promise.heard(sent_at)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A renewal of a watchdog, when it was asked for, and whether it has changed since the last."""

    renewal: str
    asked_at: float
    is_fresh: bool


class PushLease:
    """By which exclusive copies are started on one Push cluster."""

    def __init__(self, watchdogs: "Watchdogs", cluster: str) -> None:
        self._watchdogs = watchdogs
        self._cluster = cluster

    @property
    def seconds_left(self) -> float:
        """For how much longer a copy may be started."""
        return self._watchdogs.seconds_left(self._cluster)

    @property
    def may_start(self) -> bool:
        """Whether a copy may be started now."""
        return self.seconds_left > 0


class Watchdogs(Reconciler):
    """Copies the renewals of watchdogs to the hub, and acknowledges them."""

    # What makes silence a proof, as with agents (fleet.propagation.works.exclusive), is an order:
    #
    #     read renewal r (asked at a)  ->  hub Lease says r  ->  r acknowledged
    #     copies are started until a + lease, by a check at the first byte of each write
    #     the hub waits from when it saw r on its own Lease, later than a, for lease + margin
    #
    # A write that was sent before a + lease and hangs in the network is given up by the operating
    # system after half the margin (MEMBER_LIMITS), so it arrives before anybody counts on silence,
    # and the watchdog, which looks every second, stops what it has started.

    name = "watchdogs"
    workers = 64  # a dead member takes seconds, and must not keep the others waiting

    def __init__(self, hub: Client, caches: HubCaches, reach: Reach, clock: Clock) -> None:
        self._hub = hub
        self._reach = reach
        self._clock = clock
        self._clusters = caches.informer(CLUSTERS)
        self._leases = caches.informer(manifests.LEASES, CLUSTER_NAMESPACE)
        self._seen: dict[str, _Seen] = {}
        self._started_until: dict[str, float] = {}

    def watches(self) -> Iterable[Watch]:
        """Return Clusters, and the Leases that were written for them."""
        yield Watch(self._clusters, when=is_reached_anew)
        yield Watch(self._leases, to=nothing)

    def lease_of(self, cluster: str) -> PushLease:
        """Return by what copies are started on a cluster."""
        return PushLease(self, cluster)

    def seconds_left(self, cluster: str) -> float:
        """Return for how much longer copies may be started on a cluster.

        Without end where nobody promises to stop any: then nobody counts on it either, and what
        runs there is replaced when the cluster itself has said that it stopped.
        """
        # The cache is behind what we write. Until it has seen a first promise copies are started
        # without it; the hub counts from when it sees the same, which is later.
        lease = self._leases.cache.find(f"{CLUSTER_NAMESPACE}/{cluster}")
        if lease is None or promised_seconds(lease) is None:
            return float("inf")
        return max(self._started_until.get(cluster, 0.0) - self._clock.monotonic(), 0.0)

    async def reconcile(self, request: Request) -> Result:
        """Look at the watchdog of one cluster."""
        name = request.name
        cluster = self._clusters.cache.find(name)
        if cluster is None or is_being_deleted(cluster) or is_pull(cluster):
            self._seen.pop(name, None)
            self._started_until.pop(name, None)
            return Done()
        if has_kubefleet_agent(cluster):
            return Done()
        asked_at = self._clock.monotonic()
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                member = await self._reach(cluster)
                lease = await member.find(WATCHDOG_LEASE)
        except (ApiError, ClusterError, TimeoutError) as error:
            # What was promised stands, and this is when it is needed.
            _log.debug("watchdog not seen", cluster=name, reason=repr(error))
            return RequeueAfter(LOOK_SECONDS)
        seconds = None if lease is None else promised_seconds(lease)
        if lease is None or seconds is None:
            await self._retract(name)
            return RequeueAfter(SEEK_SECONDS)
        renewal, known = str(find_at(lease, "spec", "renewTime")), self._seen.get(name)
        if known is None or known.renewal != renewal:
            # The first one we see may be hours old: it counts only when it has changed.
            is_fresh = known is not None
            self._seen[name] = known = _Seen(renewal, asked_at, is_fresh)
        elif asked_at - known.asked_at > SILENT_SECONDS:
            # The cluster answers and its watchdog does not renew: it is not running.
            await self._retract(name)
        is_ours = annotations_of(lease).get(WATCHES_FOR, "") == uid_of(cluster)
        if not known.is_fresh or known.asked_at != asked_at:
            return RequeueAfter(LOOK_SECONDS)
        if is_ours:
            await self._copy(cluster, renewal, seconds)
            self._started_until[name] = asked_at + seconds
        else:
            # Without a promise: it may listen to another hub. If it chooses us it says so, and its
            # next renewal is copied.
            await self._retract(name)
        await self._acknowledge(member, lease, f"{uid_of(cluster)} {renewal}")
        return RequeueAfter(LOOK_SECONDS)

    async def _acknowledge(self, member: Client, lease: Object, heard: str) -> None:
        noted = with_metadata(lease, annotations={**annotations_of(lease), HEARD: heard})
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await member.update(WATCHDOG_LEASE, noted)
        except Conflict:
            pass  # it has renewed meanwhile: the next one is acknowledged
        except (ApiError, ClusterError, TimeoutError) as error:
            _log.debug("watchdog not answered", reason=repr(error))

    async def _copy(self, cluster: Object, renewal: str, seconds: float) -> None:
        """Have the Lease of a cluster on the hub say what its watchdog has renewed."""
        path = manifests.lease_path(str(cluster["metadata"]["name"]))
        live = await self._hub.find(path)
        lease = live or lease_object(cluster, self._clock.now())
        notes = {**annotations_of(lease), STOPS_AFTER: promise_text(seconds, renewal)}
        desired = with_metadata(with_value(lease, renewal, "spec", "renewTime"), annotations=notes)
        if live is None:
            await self._hub.create(path.collection, desired)
        else:
            await commit(self._hub, path, live, desired)

    async def _retract(self, name: str) -> None:
        """Have the hub count on nobody in a cluster whose watchdog is gone, or not for us."""
        lease = self._leases.cache.find(f"{CLUSTER_NAMESPACE}/{name}")
        if lease is None or STOPS_AFTER not in annotations_of(lease):
            return
        notes = {k: v for k, v in annotations_of(lease).items() if k != STOPS_AFTER}
        path = manifests.lease_path(name)
        await commit(self._hub, path, lease, with_metadata(lease, annotations=notes or None))
        _log.warning("nobody stops exclusive copies any more", cluster=name)
