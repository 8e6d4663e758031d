"""A live cluster of many tools is planned, taken in, proved unmoved, and given back as it was."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.component.migration.living import (
    WEST,
    Site,
    apply_plan,
    differences,
    plan_of,
    undo_plan,
)

from clusterspace.aio.clocks import SystemClock
from clusterspace.controllers.leases import LeaseTimings
from clusterspace.errors import NotServed
from clusterspace.fleet.execution.takeover import is_managed
from clusterspace.fleet.migration.ownership import OwnerKind, owner_of
from clusterspace.fleet.migration.plan import Verdict, read_plan, write_plan
from clusterspace.fleet.migration.progress import State
from clusterspace.fleet.migration.proof import Report, compare
from clusterspace.fleet.migration.snapshots import Selection, Snapshot, capture
from clusterspace.kube.objects import Object, with_metadata, without_value
from clusterspace.testing.live_cluster import LiveCluster, live_cluster
from clusterspace.testing.live_pods import add_node, sidecar_injector
from clusterspace.testing.settled import settled
from clusterspace.testing.stage import Side, running_fleet, until_ready

RECONCILED = (OwnerKind.ARGO_CD, OwnerKind.FLUX, OwnerKind.OPERATOR)
PATIENCE = 600.0
LEASE = LeaseTimings(lease_seconds=600.0, renew_seconds=400.0, retry_seconds=2.0)
CONTROLLERS = (
    "statefulset-controller",
    "daemonset-controller",
    "job-controller",
    "cronjob-controller",
    "endpointslice-controller",
    "disruption-controller",
    "resourcequota-controller",
    "horizontal-pod-autoscaler-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
)
"""What a real member runs besides what every one on the stage does."""


@dataclass
class Living:
    """A fleet with one member that is full already."""

    site: Site
    live: LiveCluster

    async def snapshot(self) -> Snapshot:
        return await capture(self.site.member, Selection(), SystemClock())

    async def contents(self) -> dict[str, Object]:
        """Return every object, without what no undo can give back and what is never at rest."""
        found = await self.live.contents(self.site.member)
        return {key: _at_rest(each) for key, each in found.items()}


def _at_rest(live: Object) -> Object:
    if live["kind"] in ("HorizontalPodAutoscaler", "ResourceQuota"):
        # What they saw last: a real quota is counted at its leisure.
        return without_value(live, "status")
    if live["kind"] in ("Deployment", "StatefulSet", "DaemonSet"):
        # A change of annotations counts as well: there are two more, ours put on and taken off.
        live = without_value(live, "status", "observedGeneration")
        return with_metadata(live, generation=None)
    return live


@asynccontextmanager
async def living(directory: Path, count: int, *, is_real: bool = False) -> AsyncGenerator[Living]:
    live = live_cluster(count)
    async with running_fleet(directory) as fleet, sidecar_injector() as injector:
        west: Side
        if is_real:
            west = await fleet.add_kubernetes(WEST, *CONTROLLERS)
            await add_node(west.client)
            await live.load(west.client, injector, runs=False)
            await live.run(west.client, PATIENCE)
        else:
            west = await fleet.add_sim(WEST, nodes=max(2, live.pods // 60))
            await live.load(west.client, injector)
            await live.until_running(west.client, PATIENCE)
        # Hub, controllers and member share this event loop, which is often busy for seconds.
        async with fleet.controllers(lease=LEASE):
            await fleet.join(WEST, west)
            await until_ready(fleet, WEST)
            yield Living(Site(fleet, west), live)


async def take_and_give_back(living: Living) -> Report:
    """Plan, apply, prove and undo; return the proof."""
    site, live = living.site, living.live
    before, running = await living.contents(), await living.snapshot()
    assert running.unseen == ()
    assert running.counts()["Pod"] >= live.pods

    # As people have it: a file.
    plan = read_plan("".join(write_plan(await plan_of(site))).encode(), "west.yaml")

    # What another controller keeps is left to it, and of all others nothing would change.
    planned = {(each.kind, each.namespace, each.name): each for each in plan.spec.items}
    for each in live.objects:
        item = planned.get((each.body["kind"], each.path.namespace, each.path.name))
        if item is None:
            assert each.tool is OwnerKind.OPERATOR, each.path  # its controller goes on with it
            continue
        kind = OwnerKind(item.owner.kind) if item.owner is not None else OwnerKind.UNMANAGED
        assert kind is each.tool, item
        if each.tool in RECONCILED:
            assert not item.take, item
    verdicts = Counter(each.verdict for each in plan.spec.items if each.take)
    assert set(verdicts) == {Verdict.SAME}
    assert plan.takes > len(live.objects) // 3

    counts = await apply_plan(site, plan)
    assert counts[State.TAKEN] == plan.takes, counts
    taken = {(each.kind, each.namespace, each.name) for each in plan.taken}
    for each in live.objects:
        found = await site.member.get(each.path)
        key = each.body["kind"], each.path.namespace, each.path.name
        # A namespace is made on the hub for what goes into it, and stays the member's own.
        assert is_managed(found) == (key in taken and key[0] != "Namespace"), key
        if key not in taken:
            assert owner_of(found).kind is each.tool
    report = compare(running, await living.snapshot())
    assert report.is_unchanged, report.findings

    counts = await undo_plan(site, plan.name)
    assert counts[State.UNDONE] == plan.takes, counts
    report = compare(running, await living.snapshot())
    assert report.is_unchanged, report.findings
    await settled(seconds=PATIENCE)
    assert differences(before, await living.contents()) == []
    for each in plan.taken:
        with suppress(NotServed):  # a kind that came with its definition, and went with it
            assert await site.hub.find(each.path) is None, each.path
    return report


@pytest.mark.slow
@pytest.mark.parametrize("count", [300, 5000])
async def test_a_live_cluster_is_taken_in_and_given_back(tmp_path: Path, count: int) -> None:
    async with living(tmp_path, count) as site:
        report = await take_and_give_back(site)

    assert report.compared > count // 6


@pytest.mark.slow
async def test_three_hundred_objects_of_a_kubernetes_are_taken_in_and_given_back(
    tmp_path: Path,
) -> None:
    async with living(tmp_path, 300, is_real=True) as site:
        await take_and_give_back(site)
