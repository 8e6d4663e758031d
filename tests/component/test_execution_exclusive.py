"""Exclusive copies on a member: they run by a lease, and stop when the hub is not heard."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from tests.component.execution_site import CLUSTER, Site, executing, new_name, two_clusters
from tests.component.execution_site import work_of as work_for

from clusterspace.apis.exclusive import EXCLUSIVE, STOPPED
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, WriteOptions
from clusterspace.errors import ClusterTimeout, NotLeading
from clusterspace.fleet.execution import controller
from clusterspace.fleet.execution.exclusive import (
    ExclusiveCopies,
    HubLease,
    LeasedWrites,
    leased_writes,
)
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
    name_of,
    with_metadata,
)
from clusterspace.testing.builders import DEPLOYMENTS, deployment
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import edit, stop, until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEASE = 120.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with two_clusters(tmp_path_factory.mktemp("site")) as site:
        yield site


class Agent:
    """What an agent knows of the hub, by a clock that the test turns."""

    def __init__(self, site: Site) -> None:
        self.clock = ManualClock()
        self.lease = HubLease(self.clock, LEASE)
        self.copies = ExclusiveCopies(site.hub, site.member, self.lease, self.clock, CLUSTER)

    def hears(self) -> None:
        self.lease.heard(self.clock.monotonic())


@asynccontextmanager
async def running_agent(site: Site) -> AsyncGenerator[Agent]:
    agent = Agent(site)
    agent.hears()
    async with executing(site, exclusive=agent.copies):
        task = asyncio.create_task(agent.copies.run())
        try:
            yield agent
        finally:
            await stop(task)


def exclusive_work(name: str, mark: str = "leased") -> Object:
    copy = with_metadata(deployment(name, replicas=3), labels={"app": name, EXCLUSIVE: mark})
    return with_metadata(work_for(copy), annotations={EXCLUSIVE: mark})


def place(name: str) -> ResourcePath:
    return ResourcePath(DEPLOYMENTS, "default", name)


async def replicas(site: Site, name: str) -> int | None:
    found = await site.member.find(place(name))
    return None if found is None else find_at(found, "spec", "replicas")


async def hold(member: ClusterClient, path: ResourcePath) -> None:
    """Have an object stay when it is deleted, as one does whose pods take their time."""
    await edit(member, path, lambda live: with_metadata(live, finalizers=["example.com/runs"]))


async def let_go(member: ClusterClient, path: ResourcePath) -> None:
    await edit(member, path, lambda live: with_metadata(live, finalizers=None))


async def test_a_copy_stops_with_the_lease_and_runs_again_by_its_work(site: Site) -> None:
    async with running_agent(site) as agent:
        name = new_name()
        work = await site.order(exclusive_work(name))
        await site.applied(name_of(work))
        await agent.clock.advance(LEASE - 1)
        assert await replicas(site, name) == 3

        await agent.clock.advance(1)
        await until_equal(lambda: replicas(site, name), 0)
        stopped = await site.member.get(place(name))
        assert annotations_of(stopped)[STOPPED] == "3"
        await settled()  # what was changed on the member is not repaired
        assert await replicas(site, name) == 0

        agent.hears()
        await until_equal(lambda: replicas(site, name), 3)
        assert STOPPED not in annotations_of(await site.member.get(place(name)))


async def test_a_copy_whose_work_went_meanwhile_never_runs_again(site: Site) -> None:
    name = new_name()
    async with running_agent(site) as agent:
        work = await site.order(exclusive_work(name))
        await site.applied(name_of(work))
        await agent.clock.advance(LEASE)
        await until_equal(lambda: replicas(site, name), 0)
        await hold(site.member, place(name))
        await site.delete_work(name_of(work))
        agent.hears()
        # Deleted in the foreground: it is there, with its Work, until what it ran is gone.
        await until_equal(lambda: is_leaving(site, name), True)
        await settled()
        assert await replicas(site, name) == 0
        assert await site.find_work(name_of(work)) is not None

        await let_go(site.member, place(name))
        await site.gone(name_of(work))


async def is_leaving(site: Site, name: str) -> bool:
    found = await site.member.find(place(name))
    return found is not None and is_being_deleted(found)


async def test_an_agent_that_starts_without_the_hub_stops_what_it_finds(site: Site) -> None:
    name = new_name()
    async with running_agent(site):
        work = await site.order(exclusive_work(name))
        await site.applied(name_of(work))
    second = Agent(site)
    task = asyncio.create_task(second.copies.run())
    try:
        await second.clock.advance(9)
        assert await replicas(site, name) == 3
        await second.clock.advance(1)
        await until_equal(lambda: replicas(site, name), 0)
    finally:
        await stop(task)


async def test_nothing_is_started_before_the_hub_was_heard(site: Site) -> None:
    agent, name = Agent(site), new_name()
    async with executing(site, exclusive=agent.copies):
        work = await site.order(exclusive_work(name))
        await settled()
        assert await replicas(site, name) is None
        agent.hears()
        await site.applied(name_of(work))


async def test_a_work_of_which_the_cache_is_behind_starts_nothing(site: Site) -> None:
    agent = Agent(site)
    agent.hears()
    name = new_name()
    work = await site.order(exclusive_work(name))
    assert await agent.copies.admits(work)
    await site.delete_work(name_of(work))
    assert not await agent.copies.admits(work)
    async with executing(site):
        await site.gone(name_of(work))
    assert not await agent.copies.admits(work)


async def test_what_is_acknowledged_goes_when_it_has_stopped(site: Site) -> None:
    async with executing(site):
        name = new_name()
        work = await site.order(exclusive_work(name, "acknowledged"))
        await site.applied(name_of(work))
        await hold(site.member, place(name))
        await site.delete_work(name_of(work))
        await until_equal(lambda: is_leaving(site, name), True)
        await settled()
        assert await site.find_work(name_of(work)) is not None

        await let_go(site.member, place(name))
        await site.gone(name_of(work))


async def test_a_write_that_starts_a_copy_is_held_back_at_the_wire_when_the_lease_is_out(
    site: Site,
) -> None:
    class Open:
        async def admit(self) -> tuple[tuple[str, str], ...]:
            return ()

        def check(self) -> None:
            return

        def answered(self, headers: object) -> None:
            return

    agent = Agent(site)
    guard = LeasedWrites(agent.lease, Open(), CLUSTER)
    agent.hears()
    with leased_writes():
        guard.check()
        agent.clock.freeze(LEASE)  # between the look and the first byte
        with pytest.raises(NotLeading):
            guard.check()
        with pytest.raises(NotLeading):
            await guard.admit()
    guard.check()  # what is not exclusive goes on


PLAIN = WriteOptions()


class Unanswered(ClusterClient):
    """A member at which what is to be created hangs, and the one who asked for it gives up."""

    def __init__(self, member: ClusterClient) -> None:
        super().__init__(member.connection)
        self.asked: list[Object] = []

    async def create(
        self, place: ResourcePath, kube_object: Object, options: WriteOptions = PLAIN
    ) -> Object:
        if place.resource != DEPLOYMENTS:
            return await super().create(place, kube_object, options)
        self.asked.append(kube_object)
        raise ClusterTimeout(self.cluster, "gave no answer within 30s")


@pytest.mark.parametrize("mark", ["leased", "acknowledged"])
async def test_a_work_is_not_let_go_while_a_copy_of_it_may_yet_be_made(
    site: Site, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "DOUBT_SECONDS", 3.0)
    member, name = Unanswered(site.member), new_name()
    agent = Agent(site)
    agent.hears()
    async with executing(site, member=member, exclusive=agent.copies):
        work = await site.order(exclusive_work(name, mark))
        (asked, *_) = await until(lambda: list(member.asked))
        await site.delete_work(name_of(work))
        await settled()
        assert await site.find_work(name_of(work)) is not None
        # Carried out only now, after whoever is to withdraw it would have looked.
        if await replicas(site, name) is None:
            await site.member.create(place(name).collection, asked)
        await site.gone(name_of(work))
        assert await replicas(site, name) is None


async def test_only_ours_are_stopped(site: Site) -> None:
    agent, name = Agent(site), new_name()
    await site.member.create(place(name).collection, deployment(name, replicas=2))
    assert EXCLUSIVE not in labels_of(await site.member.get(place(name)))
    await agent.copies.stop_all()
    assert await replicas(site, name) == 2
