"""An exclusive workload on a Push cluster with a watchdog, controllers with their own rights."""

import asyncio
from pathlib import Path

import pytest

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.exclusive import EXCLUSIVE, promised_seconds
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.membership.leases import RenewalSettings
from clusterspace.fleet.membership.manifests import lease_path
from clusterspace.fleet.membership.watchdogs import WATCHDOG
from clusterspace.kube.objects import Object, find_at, name_of, with_metadata
from clusterspace.roots.settings import WatchdogSettings
from clusterspace.roots.watchdog import run_watchdog
from clusterspace.testing.builders import DEPLOYMENTS, deployment
from clusterspace.testing.stage import Fleet, Side, running_fleet, until_ready
from clusterspace.testing.steps import stop, until, until_equal

pytestmark = pytest.mark.slow

LEASE = 15.0
LEDGER = ResourcePath(DEPLOYMENTS, "default", "ledger")
POLICY: Object = {
    "apiVersion": "policy.karmada.io/v1alpha1",
    "kind": "PropagationPolicy",
    "metadata": {"name": "ledger", "namespace": "default"},
    "spec": {
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "ledger"}],
        "placement": {"clusterAffinity": {"clusterNames": ["west"]}},
    },
}


async def wanted_on(member: Side) -> int | None:
    found = await member.client.find(LEDGER)
    return None if found is None else find_at(found, "spec", "replicas")


async def is_placed(fleet: Fleet, member: Side) -> bool:
    """Whether the watchdog is on the member, as Works have it there."""
    works = await fleet.hub.client.list_objects(ResourcePath(WORKS, execution_namespace("west")))
    found = await member.client.find(ResourcePath(DEPLOYMENTS, "karmada-cluster", WATCHDOG))
    return found is not None and sum(WATCHDOG in name_of(each) for each in works) == 4


async def promised(fleet: Fleet) -> bool:
    lease = await fleet.hub.client.find(lease_path("west"))
    return lease is not None and promised_seconds(lease) == LEASE


async def test_it_stops_when_no_controller_is_heard_and_runs_again_when_one_is(
    tmp_path: Path,
) -> None:
    async with running_fleet(tmp_path) as fleet:
        member = await fleet.add_sim("west", nodes=1)
        await fleet.join("west", member)
        renewal = RenewalSettings(renew_seconds=1.0, retry_seconds=0.5)
        settings = WatchdogSettings(member.settings, LEASE, renewal)
        async with fleet.controllers(watchdog_image="example.com/clusterspace:1"):
            await until_ready(fleet, "west")
            template = with_metadata(
                deployment("ledger", replicas=1), annotations={EXCLUSIVE: "true"}
            )
            await fleet.hub.client.create(ResourcePath(DEPLOYMENTS, "default"), template)
            await fleet.hub.client.create(ResourcePath(PROPAGATION_POLICIES, "default"), POLICY)
            await until_equal(lambda: wanted_on(member), 1)
            await until(lambda: is_placed(fleet, member))
            # Simulated pods run nothing, so this is what would run in the one that was placed.
            task = asyncio.create_task(run_watchdog(settings, SystemClock()))
            await until(lambda: promised(fleet), 90)
            assert await wanted_on(member) == 1

        await until_equal(lambda: wanted_on(member), 0, 60)
        async with fleet.controllers():
            await until_equal(lambda: wanted_on(member), 1, 90)
            await stop(task)
