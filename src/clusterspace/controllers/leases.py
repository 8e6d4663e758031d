"""Leader election: of several processes one works, and another takes over when it is gone.

Nobody trusts anybody's clock. A lease counts as expired when we ourselves have not seen it change
for as long as it lasts, and a leader stops by its own clock before others may think it gone:

    renewed ──── renew_seconds: the leader gives up ──── lease_seconds: others may take over
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client
from clusterspace.errors import ApiError, ClusterError, LeadershipLost
from clusterspace.kube.objects import Object, find_at, resource_version_of, with_value
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.timestamps import format_micro_time

_log = structlog.get_logger(__name__)

LEASES: Final = GroupVersionResource("coordination.k8s.io", "v1", "leases")
_RELEASE_SECONDS: Final = 2.0

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

    place: ResourcePath
    identity: str
    timings: LeaseTimings = LeaseTimings()


@dataclass(frozen=True, slots=True)
class Sighting:
    """A state of the lease, and when we first saw it, by our own steady clock."""

    version: str
    at: float


def may_claim(lease: Object | None, identity: str, sighting: Sighting, now: float) -> bool:
    """Whether the lease is free, ours, or has not been renewed for as long as it lasts."""
    if lease is None:
        return True
    holder = find_at(lease, "spec", "holderIdentity") or ""
    if holder in ("", identity):
        return True
    lasts = find_at(lease, "spec", "leaseDurationSeconds") or LeaseTimings().lease_seconds
    return now - sighting.at >= lasts


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


class LeaderElection:
    """One process's part in electing a leader."""

    def __init__(
        self, hub_client: Client, candidacy: Candidacy, *, clock: Clock, random: Random
    ) -> None:
        self._hub_client = hub_client
        self._place = candidacy.place
        self._identity = candidacy.identity
        self._timings = candidacy.timings
        self._clock = clock
        self._random = random
        self._sighting: Sighting | None = None
        self._held: Object | None = None
        self._renewed_at = 0.0

    @property
    def is_leader(self) -> bool:
        """Whether we lead, by our own clock."""
        age = self._clock.monotonic() - self._renewed_at
        return self._held is not None and age < self._timings.renew_seconds

    async def lead(self, work: Work) -> None:
        """Wait for leadership, then work while it lasts.

        Returns when the work does, having given the lease back. When the lease cannot be kept
        the work is cancelled and LeadershipLost raised: the process should start over.
        """
        epoch = await self._acquire()
        _log.info("leading", lease=str(self._place), identity=self._identity, epoch=epoch)
        try:
            await self._work_and_renew(work, epoch)
        finally:
            await self._release()

    async def _acquire(self) -> Epoch:
        while True:
            try:
                lease = await self._try_claim()
            except (ApiError, ClusterError) as error:
                _log.debug("lease not claimed", lease=str(self._place), reason=str(error))
            else:
                if lease is not None:
                    return epoch_of(lease)
            await self._clock.sleep(self._timings.retry_seconds * (1 + 0.2 * self._random.random()))

    async def _try_claim(self) -> Object | None:
        """Claim the lease if it may be claimed; return it when it is ours."""
        # Counted from before the request: the server may have taken its time.
        started = self._clock.monotonic()
        lease = await self._hub_client.find(self._place)
        if not may_claim(lease, self._identity, self._sight(lease, started), started):
            return None
        now, lasts = self._clock.now(), self._timings.lease_seconds
        if lease is None:
            written = await self._hub_client.create(
                self._place.collection, claimed(self._new_lease(), self._identity, now, lasts)
            )
        else:
            written = await self._hub_client.update(
                self._place, claimed(lease, self._identity, now, lasts)
            )
        self._held, self._renewed_at = written, started
        return written

    def _sight(self, lease: Object | None, now: float) -> Sighting:
        version = "" if lease is None else resource_version_of(lease)
        if self._sighting is None or self._sighting.version != version:
            self._sighting = Sighting(version, now)
        return self._sighting

    def _new_lease(self) -> Object:
        metadata = {"name": self._place.name, "namespace": self._place.namespace}
        # Deleted under a leader, it comes back with the leader's epoch: that only ever grows.
        spec: Object = {} if self._held is None else self._held.get("spec") or {}
        return {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": metadata,
            "spec": spec,
        }

    async def _work_and_renew(self, work: Work, epoch: Epoch) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._keep_renewing(), name=f"renew {self._place}")
                working = group.create_task(_as_coroutine(work, epoch), name="leader's work")
                working.add_done_callback(lambda _: renewing.cancel())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the first is the reason

    async def _keep_renewing(self) -> None:
        while True:
            await self._clock.sleep(self._timings.retry_seconds)
            left = self._renewed_at + self._timings.renew_seconds - self._clock.monotonic()
            if left <= 0:
                raise LeadershipLost(f"{self._place} could not be renewed in time")
            try:
                async with asyncio.timeout(left):
                    lease = await self._try_claim()
            except (ApiError, ClusterError, TimeoutError) as error:
                _log.warning("lease not renewed", lease=str(self._place), reason=str(error))
                continue
            if lease is None:
                raise LeadershipLost(f"{self._place} was taken over by somebody else")

    async def _release(self) -> None:
        """Give the lease back, so that the next one need not wait for it to expire."""
        held, self._held = self._held, None
        if held is None or self._clock.monotonic() - self._renewed_at > self._timings.renew_seconds:
            return
        # Whoever cannot be told will find out by waiting.
        with suppress(ApiError, ClusterError, TimeoutError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                freed = with_value(held, "", "spec", "holderIdentity")
                await self._hub_client.update(self._place, freed)


async def _as_coroutine(work: Work, epoch: Epoch) -> None:
    await work(epoch)
