"""The lease by which an agent runs exclusive copies: they stop when the hub is not heard.

    renewal sent at t ──answered──> copies may run until t + lease
    nothing answered                copies are stopped at t + lease, by us, here
    answered again                  each is started by its Work, read live, if it has one still

The hub counts from when it saw the renewal, which is later than t, and waits longer: by then the
copies have stopped, and it may have started another. What it started that for is withdrawn here
before the hub begins to count, so a live read of the Work tells us that our copy must not run.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import WORKS
from clusterspace.apis.exclusive import EXCLUSIVE, LEASED, STOPPED, restarted, stopped
from clusterspace.client.connection import Headers, WriteGuard
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import Client, ListOptions, WriteOptions
from clusterspace.errors import ApiError, ClusterError, Conflict, NotFound, NotLeading
from clusterspace.fleet.execution.takeover import FIELD_MANAGER
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    is_being_deleted,
    uid_of,
)
from clusterspace.kube.resources import GroupVersionResource

_log = structlog.get_logger(__name__)

LEASE_SECONDS: Final = 120.0
START_SECONDS: Final = 10.0
"""How long copies that run when an agent starts may go on until it has heard from the hub."""

_LOOK_SECONDS: Final = 1.0
_KINDS: Final = {
    GroupVersionResource("apps", "v1", "statefulsets"): "StatefulSet",
    GroupVersionResource("apps", "v1", "deployments"): "Deployment",
    GroupVersionResource("apps", "v1", "replicasets"): "ReplicaSet",
    GroupVersionResource("batch", "v1", "jobs"): "Job",
    GroupVersionResource("batch", "v1", "cronjobs"): "CronJob",
}
"""What is known how to stop. By label, and not by Works: after a start without a hub there are
none to be seen."""
_OURS: Final = ListOptions(label_selector=f"{EXCLUSIVE}={LEASED}")
_AS_US: Final = WriteOptions(field_manager=FIELD_MANAGER)

_is_leased_write: ContextVar[bool] = ContextVar("is_leased_write", default=False)


class HubLease:
    """For how long exclusive copies may run, by our own steady clock."""

    # Counted from when a renewal was sent, never from its answer: the hub may have seen it long
    # before we heard of that, and counts from there.

    def __init__(
        self,
        clock: Clock,
        seconds: float = LEASE_SECONDS,
        is_counted_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._is_counted_on = is_counted_on
        self._until = clock.monotonic() + min(START_SECONDS, seconds)
        self._has_heard = False

    def heard(self, sent_at: float) -> None:
        """Take in that the hub has answered a renewal that was sent at this time."""
        self._until = max(self._until, sent_at + self.seconds)
        self._has_heard = True

    @property
    def seconds_left(self) -> float:
        """For how much longer copies may run; as long as no hub counts on it, a moment more."""
        left = max(self._until - self._clock.monotonic(), 0.0)
        return left if self._is_counted_on() else max(left, _LOOK_SECONDS)

    @property
    def may_start(self) -> bool:
        """Whether a copy may be started now."""
        return self._has_heard and self.seconds_left > 0


class CopyLease(Protocol):
    """By which exclusive copies run on a member: our own, or that of a watchdog there."""

    @property
    def seconds_left(self) -> float:
        """For how much longer copies may run."""
        ...

    @property
    def may_start(self) -> bool:
        """Whether a copy may be started now."""
        ...


class LeasedWrites:
    """Guards a connection to the member: what starts exclusive copies goes only by the lease."""

    def __init__(self, lease: CopyLease, inner: WriteGuard, cluster: str) -> None:
        self._lease = lease
        self._inner = inner
        self._cluster = cluster

    async def admit(self) -> Headers:
        """Return what the other guard adds to a write; NotLeading when the lease has run out."""
        headers = await self._inner.admit()
        self.check()
        return headers

    def check(self) -> None:
        """Raise NotLeading when copies must not be started any more."""
        self._inner.check()
        if _is_leased_write.get() and not self._lease.may_start:
            why = "the hub was not heard for as long as exclusive copies may run without it"
            raise NotLeading(self._cluster, why)

    def answered(self, headers: Mapping[str, str]) -> None:
        """Hand on what the member answered."""
        self._inner.answered(headers)


@contextmanager
def leased_writes() -> Generator[None]:
    """Have all writes in this block go by the lease."""
    token = _is_leased_write.set(True)
    try:
        yield
    finally:
        _is_leased_write.reset(token)


class CopyStops:
    """Stops the exclusive copies of one member when the hub is not heard."""

    def __init__(self, member: Client, lease: CopyLease, clock: Clock, cluster_name: str) -> None:
        self._member = member
        self._lease = lease
        self._clock = clock
        self._name = cluster_name

    async def run(self) -> None:
        """Stop all copies each time the lease runs out, until cancelled."""
        while True:
            while (left := self._lease.seconds_left) > 0:
                await self._clock.sleep(left)
            try:
                await self.stop_all()
            except (ApiError, ClusterError) as error:
                # A member that does not answer cannot be told to stop anything. Tried again for as
                # long as it takes: the hub counts on it.
                _log.error("copies not stopped", cluster=self._name, reason=str(error))
            # And looked at again until the hub is heard: somebody may start one by hand.
            await self._clock.sleep(_LOOK_SECONDS)

    async def stop_all(self) -> int:
        """Stop every exclusive copy on the member; return how many ran."""
        count = 0
        for resource, kind in _KINDS.items():
            for listed in await self._member.list_objects(ResourcePath(resource), _OURS):
                # Items of a list do not say what they are.
                copy: Object = {**listed, "apiVersion": resource.api_version, "kind": kind}
                count += await self._stop(resource_path_of(resource, copy), copy)
        return count

    async def _stop(self, path: ResourcePath, copy: Object) -> bool:
        """Stop one copy, whatever else is written to it meanwhile; return whether it ran."""
        live: Object | None = copy
        while live is not None and not is_being_deleted(live) and stopped(live) != live:
            try:
                await self._member.update(path, stopped(live), _AS_US)
            except Conflict:
                live = await self._member.find(path)
                continue
            except NotFound:
                return False
            _log.warning("exclusive copy stopped", cluster=self._name, copy=str(path))
            return True
        return False


class ExclusiveCopies(CopyStops):
    """Stops the exclusive copies of one member, and starts them again by their Works."""

    def __init__(
        self, hub: Client, member: Client, lease: CopyLease, clock: Clock, cluster_name: str
    ) -> None:
        super().__init__(member, lease, clock, cluster_name)
        self._hub = hub

    async def admits(self, work: Object) -> bool:
        """Whether the copy of a Work may run here now, by the lease and by the Work as it is now.

        The cache may have a Work that was withdrawn while we did not hear from the hub, and whose
        copy runs elsewhere by now.
        """
        if not self._lease.may_start:
            return False
        live = await self._hub.find(resource_path_of(WORKS, work))
        is_meant = live is not None and uid_of(live) == uid_of(work) and not is_being_deleted(live)
        return is_meant and self._lease.may_start

    async def restart(self, path: ResourcePath) -> None:
        """Have a copy that was stopped for want of a lease run again, if it was."""
        live = await self._member.find(path)
        if live is None or STOPPED not in annotations_of(live):
            return
        await self._member.update(path, restarted(live), _AS_US)
        _log.info("exclusive copy restarted", cluster=self._name, copy=str(path))
