import asyncio
from random import Random

import pytest
from tests.unit.controllers.hub_in_memory import HubInMemory

from clusterspace.apis.identities import CHECKED_HEADER, LEADER_HEADER
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import DeleteOptions
from clusterspace.controllers.leases import (
    LEASES,
    Candidacy,
    LeaderElection,
    Observation,
    epoch_of,
    may_claim,
)
from clusterspace.errors import ClusterUnreachable, LeadershipLost, NotLeading
from clusterspace.kube.objects import Object, uid_of
from clusterspace.testing.clocks import ManualClock, settle

PLACE = ResourcePath(LEASES, "kube-system", "controllers")
DOWN = ClusterUnreachable("hub", "down", was_sent=False)


class Process:
    """A candidate whose work only waits."""

    def __init__(
        self, name: str, hub_client: HubInMemory, clock: ManualClock, *, takes_over: bool = False
    ) -> None:
        candidacy = Candidacy(PLACE, name, takes_over=takes_over)
        self.election = LeaderElection(hub_client, candidacy, clock=clock, random=Random(1))
        self.epochs: list[int] = []
        self.is_working = False
        self.task = asyncio.create_task(self.election.lead(self._work))

    async def _work(self, epoch: int) -> None:
        self.epochs.append(epoch)
        self.is_working = True
        try:
            await asyncio.Event().wait()
        finally:
            self.is_working = False

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


def lease(holder: str) -> Object:
    return {"spec": {"holderIdentity": holder, "leaseDurationSeconds": 15}}


@pytest.mark.parametrize(
    ("present", "now", "free"),
    [
        (None, 0, True),
        (lease(""), 0, True),
        (lease("me"), 0, True),
        (lease("other"), 14.9, False),
        (lease("other"), 15, True),
    ],
)
def test_a_lease_is_free_when_nobody_was_seen_to_renew_it(
    present: Object | None, now: float, free: bool
):
    assert may_claim(present, "me", Observation("5", at=0), now) is free


async def test_of_two_one_leads_and_the_other_takes_over_when_it_stops():
    hub_client, clock = HubInMemory(), ManualClock()
    first = Process("a", hub_client, clock)
    await settle()
    second = Process("b", hub_client, clock)
    await clock.advance(60)

    assert (first.is_working, second.is_working) == (True, False)
    await first.stop()
    await clock.advance(3)

    assert second.is_working
    assert (first.epochs, second.epochs) == ([1], [2])
    await second.stop()


async def test_a_leader_that_vanished_is_followed_only_after_its_lease():
    hub_client, clock = HubInMemory(), ManualClock()
    vanished = {**lease("gone"), "metadata": {"name": PLACE.name}}
    await hub_client.create(PLACE.collection, vanished)
    second = Process("b", hub_client, clock)

    await clock.advance(14)
    assert not second.is_working
    await clock.advance(6)

    assert second.is_working
    await second.stop()


async def test_a_leader_that_cannot_renew_stops_before_others_may_start():
    hub_client, clock = HubInMemory(), ManualClock()
    first = Process("a", hub_client, clock)
    await clock.advance(1)
    assert first.election.is_leader

    hub_client.failure = DOWN
    await clock.advance(9)
    still_leading = first.election.is_leader
    await clock.advance(4)

    assert not still_leading
    assert not first.is_working
    with pytest.raises(LeadershipLost, match="renewed in time"):
        await first.task


async def test_who_is_stopped_in_the_moment_the_lease_is_lost_stops():
    hub_client, clock = HubInMemory(), ManualClock()
    leaving = asyncio.Event()

    async def work(epoch: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await leaving.wait()

    candidacy = Candidacy(PLACE, "a")
    election = LeaderElection(hub_client, candidacy, clock=clock, random=Random(1))
    leading = asyncio.create_task(election.lead(work))
    await clock.advance(1)
    hub_client.failure = DOWN
    await clock.advance(13)
    assert not election.is_leader

    leading.cancel()  # the process is told to end, while its work still clears up
    await settle()
    leaving.set()

    with pytest.raises(asyncio.CancelledError):
        await leading


async def test_a_short_outage_changes_nothing():
    hub_client, clock = HubInMemory(), ManualClock()
    first = Process("a", hub_client, clock)
    await clock.advance(1)

    hub_client.failure = DOWN
    await clock.advance(6)
    hub_client.failure = None
    await clock.advance(60)

    assert first.is_working
    assert first.epochs == [1]
    await first.stop()


async def test_a_lease_somebody_else_took_ends_the_work():
    hub_client, clock = HubInMemory(), ManualClock()
    first = Process("a", hub_client, clock)
    await clock.advance(1)
    held = hub_client.objects[PLACE]
    await hub_client.update(PLACE, {**held, "spec": {**held["spec"], "holderIdentity": "b"}})

    await clock.advance(3)

    assert not first.is_working
    with pytest.raises(LeadershipLost, match="taken over"):
        await first.task


async def test_a_lease_deleted_under_its_leader_comes_back_with_the_same_epoch():
    hub_client, clock = HubInMemory(), ManualClock()
    first = Process("a", hub_client, clock)
    await clock.advance(1)
    await hub_client.delete(PLACE, DeleteOptions(uid=uid_of(hub_client.objects[PLACE])))

    await clock.advance(5)

    assert first.is_working
    assert epoch_of(hub_client.objects[PLACE]) == 1
    await first.stop()


async def test_a_leader_thawed_after_its_lease_writes_nothing_before_it_is_told():
    hub_client, clock = HubInMemory(), ManualClock()
    first = Process("a", hub_client, clock)
    await clock.advance(1)
    fence = first.election.fence("member")
    await fence.admit()

    clock.freeze(30)

    assert first.is_working  # nobody has told it yet
    with pytest.raises(NotLeading, match="run out"):
        fence.check()
    with pytest.raises(NotLeading, match="run out"):
        await fence.admit()
    await first.stop()


async def test_a_write_to_a_member_looks_at_the_lease_before_it_is_sent():
    hub_client, clock = HubInMemory(), ManualClock()
    first = Process("a", hub_client, clock)
    await clock.advance(1)
    fence = first.election.fence("member")
    assert await fence.admit() == ()

    held = hub_client.objects[PLACE]
    await hub_client.update(PLACE, {**held, "spec": {**held["spec"], "holderIdentity": "b"}})
    clock.freeze(0.3)

    with pytest.raises(NotLeading, match="somebody else's"):
        await fence.admit()
    hub_client.failure = DOWN
    with pytest.raises(NotLeading, match="cannot be read"):
        await fence.admit()
    hub_client.failure = None
    await first.stop()


async def test_a_hub_that_compares_writes_with_the_lease_is_not_asked_before_each():
    hub_client, clock = HubInMemory(), ManualClock()
    first = Process("a", hub_client, clock)
    await clock.advance(1)
    fence = first.election.fence("hub", is_leases=True)
    await fence.admit()
    fence.answered({CHECKED_HEADER.lower(): "1"})
    clock.freeze(0.3)
    hub_client.failure = DOWN

    assert await fence.admit() == ((LEADER_HEADER, f"{PLACE.namespace}/{PLACE.name} 1 a"),)

    fence.answered({})  # another server behind the same address, which does not know of this
    with pytest.raises(NotLeading, match="cannot be read"):
        await fence.admit()
    hub_client.failure = None
    await first.stop()


async def test_the_newest_agent_takes_over_and_the_older_one_waits_until_it_is_gone():
    hub_client, clock = HubInMemory(), ManualClock()
    older = Process("older", hub_client, clock, takes_over=True)
    await clock.advance(1)
    newer = Process("newer", hub_client, clock, takes_over=True)
    await settle()

    assert newer.is_working
    with pytest.raises(NotLeading):
        await older.election.fence("member").admit()
    await clock.advance(3)
    assert not older.is_working
    with pytest.raises(LeadershipLost, match="taken over"):
        await older.task

    again = asyncio.create_task(older.election.lead(older._work))
    await clock.advance(30)
    assert (older.is_working, newer.is_working) == (False, True)
    await newer.stop()
    await clock.advance(3)
    assert older.is_working
    again.cancel()
    await asyncio.wait([again])
