"""The heartbeat of a Pull cluster."""

import asyncio

import pytest
from tests.unit.fleet.membership.fleet_objects import cluster
from tests.unit.fleet.membership.lease_hubs import LeaseHub

from clusterspace.fleet.membership.lease import BeatSettings, HeartBeat, lease_object
from clusterspace.kube.objects import find_at, with_metadata
from clusterspace.testing.clocks import ManualClock, settle


def test_a_lease_goes_away_with_its_cluster() -> None:
    lease = lease_object(cluster(mode="Pull"), 0.0)

    assert lease["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "cluster.karmada.io/v1alpha1",
            "kind": "Cluster",
            "name": "west",
            "uid": "uid-of-west",
        }
    ]
    assert lease["spec"]["leaseDurationSeconds"] == 40


async def test_a_lease_is_made_once_and_then_renewed() -> None:
    hub, clock = LeaseHub(cluster(mode="Pull")), ManualClock()
    beat = HeartBeat(hub, "west", clock=clock, settings=BeatSettings())

    await beat.beat()
    first = find_at(hub.lease, "spec", "renewTime")
    await clock.advance(5)
    await beat.beat()

    assert hub.writes == 2
    assert find_at(hub.lease, "spec", "renewTime") != first


async def test_a_cluster_that_leaves_gets_no_new_lease() -> None:
    leaving = with_metadata(cluster(mode="Pull"), deletionTimestamp="2026-01-01T00:00:00Z")
    hub = LeaseHub(leaving)

    await HeartBeat(hub, "west", clock=ManualClock(), settings=BeatSettings()).beat()

    assert hub.lease is None


@pytest.mark.parametrize("outage_seconds", [3, 60])
async def test_after_an_outage_the_hub_hears_of_us_within_two_seconds(outage_seconds: int) -> None:
    hub, clock = LeaseHub(cluster(mode="Pull")), ManualClock()
    beat = HeartBeat(hub, "west", clock=clock, settings=BeatSettings())
    async with asyncio.TaskGroup() as group:
        running = group.create_task(beat.run())
        await settle()
        hub.is_reachable = False
        for _ in range(outage_seconds + 5):
            await clock.advance(1)
        written = hub.writes
        hub.is_reachable = True
        await clock.advance(2)

        assert hub.writes == written + 1
        running.cancel()
