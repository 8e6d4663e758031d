"""The heartbeat of a Pull cluster."""

import asyncio
from typing import Any

import pytest
from tests.unit.membership.fleet_objects import cluster

from clusterspace.client.places import Place
from clusterspace.errors import ClusterUnreachable
from clusterspace.kube.objects import Object, find_at, with_metadata
from clusterspace.membership import names
from clusterspace.membership.lease import BeatSettings, HeartBeat, lease_object
from clusterspace.testing.clocks import ManualClock, settle


class LeaseHub:
    """A hub that holds one Cluster and its lease, and can be out of reach."""

    def __init__(self, held_cluster: Object) -> None:
        self.cluster = held_cluster
        self.lease: Object | None = None
        self.writes = 0
        self.is_reachable = True

    async def get(self, place: Place) -> Object:
        assert place == names.cluster_place("west")
        return self.cluster

    async def find(self, place: Place) -> Object | None:
        self._reach()
        return self.lease

    async def create(self, place: Place, kube_object: Object, options: Any = None) -> Object:
        return self._hold(kube_object)

    async def patch(self, place: Place, patch_type: Any, patch: Any, options: Any = None) -> Object:
        assert self.lease is not None
        return self._hold({**self.lease, "spec": {**self.lease["spec"], **patch["spec"]}})

    async def list_objects(self, place: Place, options: Any = None) -> list[Object]:
        raise NotImplementedError

    async def update(self, place: Place, kube_object: Object, options: Any = None) -> Object:
        raise NotImplementedError

    async def apply(self, place: Place, kube_object: Object, options: Any = None) -> Object:
        raise NotImplementedError

    async def delete(self, place: Place, options: Any) -> Object:
        raise NotImplementedError

    def _hold(self, lease: Object) -> Object:
        self._reach()
        self.writes += 1
        self.lease = with_metadata(lease, resourceVersion=str(self.writes))
        return self.lease

    def _reach(self) -> None:
        if not self.is_reachable:
            raise ClusterUnreachable("hub", "no route", was_sent=False)


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
