"""The watchdog of a Push cluster as a process: it knows its own cluster, and nothing of the hub."""

import asyncio

import structlog

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.aio.tasks import Supervisor, keep_all, report
from clusterspace.fleet.execution.exclusive import CopyStops, HubLease
from clusterspace.fleet.membership.leases import StopPromise
from clusterspace.fleet.membership.watchdogs import WatchdogRenewal
from clusterspace.roots.clients import connect
from clusterspace.roots.processes import stop_event
from clusterspace.roots.settings import WatchdogSettings

_log = structlog.get_logger(__name__)


async def run_watchdog(settings: WatchdogSettings, clock: Clock) -> None:
    """Stop exclusive copies whenever the hub is not heard, until cancelled."""
    # Each has a connection of its own: stopping must not queue up behind renewing.
    renewing, stopping = (connect(settings.member, clock) for _ in range(2))
    try:
        seconds = settings.exclusive_seconds
        lease = HubLease(clock, seconds, lambda: renewal.is_counted_on)
        promise = StopPromise(seconds, lease.heard)
        renewal = WatchdogRenewal(renewing, promise, clock, settings.lease)
        stops = CopyStops(stopping, lease, clock, settings.member.cluster)
        _log.info("watchdog is working", lease_seconds=settings.exclusive_seconds)
        async with Supervisor(clock, report) as tasks:
            keep_all(tasks, {"renewal": renewal.run, "exclusive copies": stops.run})
            await asyncio.Event().wait()
    finally:
        await renewing.connection.close()
        await stopping.connection.close()


async def serve_until_stopped(settings: WatchdogSettings) -> None:
    """Run a watchdog until told to stop."""
    stopped = stop_event()
    async with asyncio.TaskGroup() as group:
        working = group.create_task(run_watchdog(settings, SystemClock()), name="watchdog")
        await stopped.wait()
        working.cancel()
