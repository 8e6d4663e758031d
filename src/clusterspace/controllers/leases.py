"""Leader election: of several processes one works, and another takes over when it is gone.

Nobody trusts anybody's clock. A lease counts as expired when we ourselves have not seen it change
for as long as it lasts, and a leader stops by its own clock before others may think it gone:

    renewed ──── renew_seconds: the leader gives up ──── lease_seconds: others may take over

A process that is frozen does not give up, and when it is thawed it does not know. So a leader's
connections have a LeaderFence: no write leaves without a look at the clock, and at the hub the
write itself says whose it is, elsewhere the Lease is looked at before it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Protocol, TypeAlias

import structlog

from clusterspace.aio.clocks import Clock, Waiting
from clusterspace.apis.identities import CHECKED_HEADER, LEADER_HEADER, Leadership
from clusterspace.client.requests import Headers, ResourcePath
from clusterspace.errors import ApiError, ClusterError, LeadershipLost, NotLeading
from clusterspace.kube.objects import (
    Object,
    find_at,
    name_of,
    namespace_of,
    resource_version_of,
    with_value,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import format_micro_time

_log = structlog.get_logger(__name__)

LEASES: Final = GroupVersionResource("coordination.k8s.io", "v1", "leases")
_RELEASE_SECONDS: Final = 2.0

LOOK_SECONDS: Final = 0.25
"""How long a look at the Lease counts. Who was frozen for longer looks again; who writes a
thousand objects looks four times a second, and not a thousand times."""

Epoch: TypeAlias = int
"""How often the lease has changed hands: grows with every new leader."""

Work: TypeAlias = Callable[[Epoch], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """How long leadership lasts and how often it is renewed."""

    lease_seconds: float = 15.0
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Candidacy:
    """Who wants to hold which lease."""

    path: ResourcePath
    identity: str
    timings: LeaseTimings = LeaseTimings()
    takes_over: bool = False
    """Whether it takes the lease from whoever has it when it starts: the newest one is meant."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A state of the lease, and when we first observed it, by our own steady clock."""

    version: str
    at: float


def may_claim(lease: Object | None, identity: str, observed: Observation, now: float) -> bool:
    """Whether the lease is free, ours, or has not been renewed for as long as it lasts."""
    if lease is None:
        return True
    holder = find_at(lease, "spec", "holderIdentity") or ""
    if holder in ("", identity):
        return True
    lasts = find_at(lease, "spec", "leaseDurationSeconds") or LeaseTimings().lease_seconds
    return now - observed.at >= lasts


def claimed(lease: Object, identity: str, now: float, lease_seconds: float) -> Object:
    """Return the lease as ours; the epoch grows when it was not."""
    spec: Object = lease.get("spec") or {}
    is_ours = spec.get("holderIdentity") == identity
    moment = format_micro_time(now)
    changed: Object = {
        **spec,
        "holderIdentity": identity,
        "leaseDurationSeconds": int(lease_seconds),
        "renewTime": moment,
        "acquireTime": spec.get("acquireTime") if is_ours else moment,
        "leaseTransitions": epoch_of(lease) + (0 if is_ours else 1),
    }
    return {**lease, "spec": changed}


def epoch_of(lease: Object) -> Epoch:
    """Return how often the lease has changed hands."""
    return int(find_at(lease, "spec", "leaseTransitions") or 0)


class LeaseClient(Protocol):
    """The rights that an election needs at whoever keeps the Lease."""

    async def find(self, place: ResourcePath) -> Object | None:
        """Return the Lease as it is now, or None when it is certainly not there."""
        ...

    async def create(self, place: ResourcePath, kube_object: Object) -> Object:
        """Create the Lease; AlreadyExists when another was quicker."""
        ...

    async def update(self, place: ResourcePath, kube_object: Object) -> Object:
        """Replace the Lease as it was read; Conflict when another was quicker."""
        ...


async def put_lease(hub: LeaseClient, desired: Object) -> None:
    """Have a Lease that nobody else writes say this: what it is labelled, told and held by.

    Raises AlreadyExists or Conflict when an earlier write of ours came late.
    """
    collection = ResourcePath(LEASES, namespace_of(desired))
    place = replace(collection, name=name_of(desired))
    existing = await hub.find(place)
    if existing is None:
        await hub.create(collection, desired)
        return
    metadata = {**existing["metadata"]}
    for key in ("labels", "annotations"):
        metadata[key] = desired["metadata"][key]
    await hub.update(place, {**existing, "metadata": metadata, "spec": desired["spec"]})


class LeaderElection:
    """One process's part in electing a leader."""

    def __init__(
        self, hub_client: LeaseClient, candidacy: Candidacy, *, clock: Clock, random: Random
    ) -> None:
        self._hub_client = hub_client
        self._path = candidacy.path
        self._identity = candidacy.identity
        self._timings = candidacy.timings
        self._clock = clock
        self._random = random
        self._observed: Observation | None = None
        self._lease: Object | None = None
        self._renewed_at = 0.0
        self._hub_answers = Waiting(clock, "the hub", lease=str(self._path))
        self._followed = ""
        self._takes_over = candidacy.takes_over
        self._looked_at = float("-inf")
        self._refused = ""
        self._looking = asyncio.Lock()

    @property
    def is_leader(self) -> bool:
        """Whether we lead, by our own clock."""
        age = self._clock.monotonic() - self._renewed_at
        return self._lease is not None and age < self._timings.renew_seconds

    @property
    def leadership(self) -> Leadership | None:
        """The leadership that we believe to have; None by our own clock."""
        if self._lease is None or not self.is_leader:
            return None
        namespace, name = self._path.namespace, self._path.name
        return Leadership(namespace, name, epoch_of(self._lease), self._identity)

    async def look(self) -> None:
        """Make sure by a look at the Lease that we lead; NotLeading when we do not, or cannot."""
        # Those who come while one looks wait, and share the look that begins after they came: it
        # is counted from before its request, so none of them goes by an answer older than that.
        # They share its failure, too: a hub that hangs costs all of them one deadline together.
        came = self._clock.monotonic()
        async with self._looking:
            began = self._clock.monotonic()
            is_fresh = not self._refused and began - self._looked_at < LOOK_SECONDS
            if self._looked_at > came or is_fresh:
                if self._refused:
                    raise NotLeading(str(self._path), self._refused)
                return
            try:
                async with asyncio.timeout(self._timings.renew_seconds):
                    lease = await self._hub_client.find(self._path)
            except (ApiError, ClusterError, TimeoutError) as error:
                self._refused = f"cannot be read, nothing is written: {error}"
            else:
                leadership = self.leadership
                is_ours = leadership is not None and leadership.holds(lease)
                self._refused = "" if is_ours else "is somebody else's by now, nothing is written"
            self._looked_at = began
            if self._refused:
                raise NotLeading(str(self._path), self._refused)

    def fence(self, cluster: str, *, is_leases: bool = False) -> "LeaderFence":
        """Return the guard of a connection; `is_leases` when the Lease is kept on its other end."""
        return LeaderFence(self, cluster, is_leases=is_leases)

    async def lead(self, work: Work) -> None:
        """Wait for leadership, then work while it lasts.

        Returns when the work does, having given the lease back. When the lease cannot be kept
        the work is cancelled and LeadershipLost raised: the process should start over.
        """
        lease = await self._try_claim_quietly()
        while lease is None:
            await self._clock.sleep(self._timings.retry_seconds * (1 + 0.2 * self._random.random()))
            lease = await self._try_claim_quietly()
        epoch = epoch_of(lease)
        _log.info("leading", lease=str(self._path), identity=self._identity, epoch=epoch)

        async def do_work() -> None:
            await work(epoch)

        try:
            # Whichever ends first takes the other along. A lost lease cancels the work wherever it
            # waits: a request that is on its way to the hub may still be carried out, after the
            # next leader has begun. That is why every write carries the version or the UID that
            # it was planned on, and no write relies on being the only one.
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._keep_renewing(), name=f"renew {self._path}")
                working = group.create_task(do_work(), name="leader's work")
                # Waited for in here, and not by the group on its way out: that would forget to say
                # of a cancellation whether it was its own.
                await asyncio.wait((working,))
                renewing.cancel()
        except BaseExceptionGroup as failures:
            # Who is told to end while the work of a lost lease still clears up ends: a group keeps
            # that to itself, and whoever leads again after a loss would do so for ever.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from failures
            raise failures.exceptions[0] from None  # the first is the reason
        finally:
            await self._release()

    @property
    def is_waiting(self) -> bool:
        """Whether the hub could not be asked for the lease, and we do not lead."""
        return bool(self._hub_answers.reason) and not self.is_leader

    @property
    def state(self) -> str:
        """What this process does, in a few words: leads, stands by, or waits for the hub."""
        if self.is_leader:
            return "leads"
        if self._hub_answers.reason:
            return f"waits for the hub: {self._hub_answers.reason}"
        return f"stands by: {self._followed} leads" if self._followed else "stands by"

    async def _try_claim_quietly(self) -> Object | None:
        try:
            lease = await self._try_claim()
        except (ApiError, ClusterError) as error:
            self._hub_answers.failed(str(error))
            return None
        self._hub_answers.over()
        return lease

    async def _try_claim(self) -> Object | None:
        """Claim the lease if it may be claimed; return it when it is ours."""
        # Everything is counted from before the request: the server may have taken its time, and
        # others count from when it wrote. Counting from the answer we would think ourselves the
        # leader for that much longer than they do.
        started = self._clock.monotonic()
        lease = await self._hub_client.find(self._path)
        version = "" if lease is None else resource_version_of(lease)
        if self._observed is None or self._observed.version != version:
            self._observed = Observation(version, started)
        if not self._takes_over and not may_claim(lease, self._identity, self._observed, started):
            holder = str(find_at(lease, "spec", "holderIdentity"))
            if holder != self._followed:
                self._followed = holder
                _log.info("standing by", lease=str(self._path), leader=holder)
            return None
        # Two candidates may get as far as this at the same time. The hub lets one of them write:
        # the other's creation is AlreadyExists, its update a Conflict.
        now, lasts = self._clock.now(), self._timings.lease_seconds
        if lease is None:
            # Deleted under a leader, it comes back with the leader's epoch: that only ever grows.
            spec: Object = {} if self._lease is None else self._lease.get("spec") or {}
            new = {
                "apiVersion": LEASES.api_version,
                "kind": "Lease",
                "metadata": {"name": self._path.name, "namespace": self._path.namespace},
                "spec": spec,
            }
            desired = claimed(new, self._identity, now, lasts)
            written = await self._hub_client.create(self._path.collection, desired)
        else:
            desired = claimed(lease, self._identity, now, lasts)
            written = await self._hub_client.update(self._path, desired)
        self._lease, self._renewed_at = written, started
        self._takes_over = False  # once: who took it from us in turn is newer than we are
        return written

    async def _keep_renewing(self) -> None:
        while True:
            await self._clock.sleep(self._timings.retry_seconds)
            left = self._renewed_at + self._timings.renew_seconds - self._clock.monotonic()
            if left <= 0:
                raise LeadershipLost(f"{self._path} could not be renewed in time")
            try:
                # A hub that hangs must not keep us leading: by the deadline we have given up.
                async with asyncio.timeout(left):
                    lease = await self._try_claim()
            except (ApiError, ClusterError, TimeoutError) as error:
                _log.warning("lease not renewed", lease=str(self._path), reason=str(error))
                continue
            if lease is None:
                raise LeadershipLost(f"{self._path} was taken over by somebody else")

    async def _release(self) -> None:
        """Give the lease back, so that the next one need not wait for it to expire."""
        lease, self._lease = self._lease, None
        if (
            lease is None
            or self._clock.monotonic() - self._renewed_at > self._timings.renew_seconds
        ):
            return
        # Who cannot be told will find out by waiting.
        with suppress(ApiError, ClusterError, TimeoutError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                freed = with_value(lease, "", "spec", "holderIdentity")
                await self._hub_client.update(self._path, freed)


class LeaderFence:
    """Holds back the writes of one connection that are no longer ours to make."""

    # What is left, where the other end knows nothing of leases, is the time between the check of
    # the clock and the bytes on the wire, and what a kernel holds back after that. A write that
    # slips through there is found by what it leaves behind: see fleet/execution/withdrawn.py.

    def __init__(self, election: LeaderElection, cluster: str, *, is_leases: bool) -> None:
        self._election = election
        self._cluster = cluster
        self._is_leases = is_leases
        self._is_checked = False
        """Whether the other end has shown that it compares writes with the Lease itself."""

    async def admit(self) -> Headers:
        """Return the header that says whose the write is; look at the Lease where nobody else does.

        NotLeading when it is not ours to make any more.
        """
        self.check()
        if not self._is_checked:
            await self._election.look()
        leadership = self._election.leadership
        if leadership is None:
            raise self._refusal()
        return ((LEADER_HEADER, leadership.header),) if self._is_leases else ()

    def check(self) -> None:
        """Raise NotLeading when our own clock says that others may lead by now."""
        if not self._election.is_leader:
            raise self._refusal()

    def answered(self, headers: Mapping[str, str]) -> None:
        """Note whether the other end has compared the write with the Lease."""
        # Behind one address there may be servers of two versions: the last answer counts, and
        # one that does not say so costs a look before the next write.
        self._is_checked = self._is_leases and CHECKED_HEADER.lower() in headers

    def _refusal(self) -> NotLeading:
        return NotLeading(self._cluster, "our lease has run out, nothing is written")
