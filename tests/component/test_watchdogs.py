"""Exclusive copies on a Push cluster: a watchdog there stops them when the hub is not heard.

The hub, the member, and both ends of the lease between them, on clocks that the test turns.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest_asyncio
from tests.component.execution_site import CLUSTER, Site, executing, new_name, two_clusters
from tests.component.execution_site import work_of as work_for
from tests.component.reconcilers import following

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.exclusive import EXCLUSIVE, HEARD, STOPPED, WATCHES_FOR, promised_seconds
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.controllers.controller import Request, RequeueAfter
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import ClusterUnreachable
from clusterspace.fleet.execution.exclusive import CopyStops, ExclusiveCopies, HubLease
from clusterspace.fleet.membership.leases import RenewalSettings, StopPromise
from clusterspace.fleet.membership.manifests import lease_path
from clusterspace.fleet.membership.watchdogs import (
    SEEK_SECONDS,
    SILENT_SECONDS,
    WATCHDOG_LEASE,
    WatchdogRenewal,
    Watchdogs,
)
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    name_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.testing.builders import DEPLOYMENTS, NAMESPACES, deployment, namespace
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import edit, stop, until_equal

LEASE = 120.0


class Stage:
    """Both ends of the lease. Nothing passes between them but through `reach`, which can be cut."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.clock = ManualClock()
        self.is_cut = False
        self.caches = HubCaches(site.hub)
        self.watchdogs = Watchdogs(site.hub, self.caches, self.reach, self.clock)
        self.start_watchdog()

    async def reach(self, _cluster: Object) -> ClusterClient:
        if self.is_cut:
            raise ClusterUnreachable(CLUSTER, "it was cut off", was_sent=False)
        return self.site.member

    def start_watchdog(self) -> None:
        member = self.site.member
        self.lease = HubLease(self.clock, LEASE, lambda: self.renewal.is_counted_on)
        promise = StopPromise(LEASE, self.lease.heard)
        self.renewal = WatchdogRenewal(member, promise, self.clock, RenewalSettings())
        self.stops = CopyStops(member, self.lease, self.clock, CLUSTER)

    async def look(self) -> None:
        """Have the hub look once, and see what it has written."""
        await self.watchdogs.reconcile(Request(CLUSTER))
        await settled()

    async def beat(self, times: int = 1, seconds: float = 5.0) -> None:
        """Have the watchdog renew and the hub look, that often, with so much time in between."""
        for _ in range(times):
            await self.renewal.renew()
            await self.look()
            self.clock.freeze(seconds)

    async def promise(self) -> float | None:
        lease = await self.site.hub.find(lease_path(CLUSTER))
        return None if lease is None else promised_seconds(lease)


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with two_clusters(tmp_path) as site:
        for client in (site.hub, site.member):
            await client.create(ResourcePath(NAMESPACES), namespace("karmada-cluster"))
        stage = Stage(site)
        tasks = following(stage.caches)
        await settled()
        try:
            yield stage
        finally:
            await stop(*tasks)


async def test_the_hub_has_a_promise_once_the_watchdog_listens_to_it(stage: Stage) -> None:
    await stage.renewal.renew()
    await stage.look()
    # The first renewal that is seen may be of a watchdog that has been dead for days.
    assert (await stage.promise(), stage.lease.may_start) == (None, False)

    await stage.beat(3)
    cluster = await stage.site.hub.get(ResourcePath(CLUSTERS, name=CLUSTER))
    lease = await stage.site.member.get(WATCHDOG_LEASE)
    assert annotations_of(lease)[WATCHES_FOR] == uid_of(cluster)
    assert annotations_of(lease)[HEARD].startswith(uid_of(cluster))
    assert await stage.promise() == LEASE
    assert stage.lease.may_start


async def test_a_late_answer_gives_no_more_time_than_the_hub_counts(stage: Stage) -> None:
    await stage.beat(4)
    await stage.renewal.renew()
    sent_at = stage.clock.monotonic()
    await stage.look()
    # The acknowledgement is stored, and the watchdog comes to read it a minute later.
    stage.clock.freeze(60)
    await stage.renewal.renew()

    assert stage.lease.seconds_left == sent_at + LEASE - stage.clock.monotonic()


async def test_a_watchdog_that_is_gone_promises_nothing_while_its_cluster_answers(
    stage: Stage,
) -> None:
    await stage.beat(4)
    assert await stage.promise() == LEASE
    stage.clock.freeze(SILENT_SECONDS)
    await stage.look()
    assert await stage.promise() is None

    await stage.beat(2)
    assert await stage.promise() == LEASE
    lease = await stage.site.member.get(WATCHDOG_LEASE)
    await stage.site.member.delete(WATCHDOG_LEASE, DeleteOptions(uid_of(lease)))
    assert await stage.watchdogs.reconcile(Request(CLUSTER)) == RequeueAfter(SEEK_SECONDS)
    assert await stage.promise() is None


async def test_a_promise_stands_when_its_cluster_is_cut_off(stage: Stage) -> None:
    await stage.beat(4)
    stage.is_cut = True
    stage.clock.freeze(SILENT_SECONDS + 1)
    await stage.look()
    assert await stage.promise() == LEASE
    copies = stage.watchdogs.lease_of(CLUSTER)
    assert copies.may_start
    stage.clock.freeze(LEASE)
    assert not copies.may_start  # nothing is sent there that could start a copy


async def test_one_hub_is_listened_to_and_the_other_has_no_promise(stage: Stage) -> None:
    await stage.beat(4)

    # Another hub, of which this member is a cluster, too, answers every renewal from now on.
    async def answer_as_another() -> None:
        lease = await stage.site.member.get(WATCHDOG_LEASE)
        heard = f"other {find_at(lease, 'spec', 'renewTime')}"
        notes = {**annotations_of(lease), HEARD: heard}
        await stage.site.member.update(WATCHDOG_LEASE, with_metadata(lease, annotations=notes))

    stage.is_cut = True
    before = stage.lease.seconds_left
    for _ in range(4):
        await stage.renewal.renew()
        await answer_as_another()
        stage.clock.freeze(5)
    assert stage.lease.seconds_left <= before - 20 + 5
    # A watchdog that is started anew goes on listening to the same one, until that has to know.
    stage.start_watchdog()
    await stage.renewal.renew()
    await answer_as_another()
    await stage.renewal.renew()
    assert not stage.lease.may_start
    lease = await stage.site.member.get(WATCHDOG_LEASE)
    assert annotations_of(lease)[WATCHES_FOR] != "other"

    stage.clock.freeze(LEASE)
    for _ in range(2):
        await stage.renewal.renew()
        await answer_as_another()
    await stage.renewal.renew()
    lease = await stage.site.member.get(WATCHDOG_LEASE)
    assert annotations_of(lease)[WATCHES_FOR] == "other"

    stage.is_cut = False
    await stage.look()
    stage.clock.freeze(5)
    await stage.beat(2)
    assert await stage.promise() is None


async def test_a_watchdog_that_nobody_counts_on_yet_interrupts_nothing(stage: Stage) -> None:
    await stage.renewal.renew()
    stage.clock.freeze(LEASE)
    assert stage.lease.seconds_left > 0
    await stage.beat(4)
    stage.clock.freeze(LEASE)
    assert stage.lease.seconds_left == 0
    # Nor is that forgotten when it is started anew.
    stage.start_watchdog()
    await stage.renewal.renew()
    stage.clock.freeze(LEASE)
    assert stage.lease.seconds_left == 0


def exclusive_work(name: str) -> Object:
    copy = with_metadata(deployment(name, replicas=3), labels={"app": name, EXCLUSIVE: "leased"})
    return with_metadata(work_for(copy), annotations={EXCLUSIVE: "leased"})


@asynccontextmanager
async def executing_for(stage: Stage) -> AsyncGenerator[None]:
    """Carry out Works as the controllers do on a Push cluster, with its watchdog at work."""
    lease = stage.watchdogs.lease_of(CLUSTER)
    copies = ExclusiveCopies(stage.site.hub, stage.site.member, lease, stage.clock, CLUSTER)
    async with executing(stage.site, exclusive=copies):
        task = asyncio.create_task(stage.stops.run())
        try:
            yield
        finally:
            await stop(task)


async def replicas(site: Site, name: str) -> int | None:
    found = await site.member.find(ResourcePath(DEPLOYMENTS, "default", name))
    return None if found is None else find_at(found, "spec", "replicas")


async def test_copies_stop_when_the_hub_is_cut_off_and_run_again_when_it_is_heard(
    stage: Stage,
) -> None:
    site, name = stage.site, new_name()
    await stage.beat(4)
    async with executing_for(stage):
        work = await site.order(exclusive_work(name))
        await site.applied(name_of(work))
        assert await replicas(site, name) == 3

        stage.is_cut = True
        await stage.clock.advance(LEASE)
        await until_equal(lambda: replicas(site, name), 0)
        # Somebody starts it by hand, or what was sent before the cut arrives only now.
        path = ResourcePath(DEPLOYMENTS, "default", name)
        await edit(site.member, path, lambda live: with_value(live, 3, "spec", "replicas"))
        await stage.clock.advance(1)
        await until_equal(lambda: replicas(site, name), 0)

        stage.is_cut = False
        await stage.beat(2, seconds=0)
        await stage.renewal.renew()
        await until_equal(lambda: replicas(site, name), 3)
        assert STOPPED not in annotations_of(await site.member.get(path))
