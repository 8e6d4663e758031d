"""Works are removed only for certain; a controller killed at any write ends where it would have."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import pytest_asyncio
from tests.component.reconcilers import following
from tests.component.works_site import (
    ConfigMapCaches,
    Site,
    running_works,
)

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.works import RESOURCE_BINDINGS, manifests_of
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import Client, read_raw_object
from clusterspace.controllers.controller import Request
from clusterspace.controllers.events import EventRecorder
from clusterspace.errors import ClusterUnreachable, Conflict
from clusterspace.fleet.propagation.works.controller import BindingWorks
from clusterspace.kube.objects import Object, resource_version_of, with_metadata, with_value
from clusterspace.testing.builders import CONFIG_MAPS, config_map
from clusterspace.testing.crashes import CrashingClient, CrashPoint, Killed
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.steps import stop, until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    directory = tmp_path_factory.mktemp("hub")
    async with hub_for_test(directory) as settings, client_for_test(settings) as hub_client:
        site = Site(hub_client)
        await site.join("member1")
        await site.join("member2")
        yield site


class Teller(CrashingClient):
    """A hub that tells of bindings what the test wants it to tell, and writes as always."""

    def __init__(self, inner: Client, tell: Callable[[Object | None], Object | None]) -> None:
        super().__init__(inner)
        self._tell = tell

    async def find(self, place: ResourcePath) -> Object | None:
        found = await super().find(place)
        return self._tell(found) if place.resource == RESOURCE_BINDINGS else found


@asynccontextmanager
async def frozen_works(
    site: Site, tell: Callable[[Object | None], Object | None]
) -> AsyncGenerator[BindingWorks]:
    """Return a reconciler whose caches hold what is there now, and hear nothing from then on."""
    caches, clock = ConfigMapCaches(site.hub_client), SystemClock()
    events = EventRecorder(site.hub_client, component="test", clock=clock)
    works = BindingWorks(Teller(site.hub_client, tell), caches, events, clock)
    tasks = following(caches)
    for informer in caches._informers.values():
        await informer.wait_synced()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    yield works


async def move_behind_the_cache(site: Site, name: str) -> ResourcePath:
    """Have a binding with Works in two clusters that, by the caches, wants only one of them."""
    template = await site.put(CONFIG_MAPS, config_map(name, {"a": "1"}))
    place = await site.bind(template, "member1", "member2")
    caches = ConfigMapCaches(site.hub_client)
    async with running_works(site.hub_client, caches=caches):
        await site.until_works(place, "member1", "member2")
    await site.change(
        place, lambda held: with_value(held, [{"name": "member1"}], "spec", "clusters")
    )
    return place


async def leaving(site: Site, place: ResourcePath) -> set[str]:
    works = await site.works_of(place)
    return {name for name, work in works.items() if work["metadata"].get("deletionTimestamp")}


def request_for(place: ResourcePath) -> Request:
    return Request(place.name, place.namespace)


async def test_an_orphan_goes_when_the_live_binding_does_not_want_its_cluster(site: Site) -> None:
    place = await move_behind_the_cache(site, "orphan")
    async with frozen_works(site, lambda live: live) as works:
        await works.reconcile(request_for(place))

    assert await leaving(site, place) == {"member2"}


async def test_an_orphan_by_the_cache_stays_when_the_live_binding_wants_its_cluster(
    site: Site,
) -> None:
    place = await move_behind_the_cache(site, "wanted")
    async with frozen_works(site, lambda live: live) as works:
        wanted = [{"name": "member1"}, {"name": "member2"}]
        await site.change(place, lambda held: with_value(held, wanted, "spec", "clusters"))
        await works.reconcile(request_for(place))

    assert await leaving(site, place) == set()


async def test_a_binding_that_cannot_be_read_keeps_its_works(site: Site) -> None:
    place = await move_behind_the_cache(site, "unreadable")

    def refuse(live: Object | None) -> Object | None:
        raise ClusterUnreachable("hub", "the connection broke", was_sent=True)

    async with frozen_works(site, refuse) as works:
        with pytest.raises(ClusterUnreachable):
            await works.reconcile(request_for(place))

    assert await leaving(site, place) == set()


async def test_a_binding_that_is_said_to_be_gone_keeps_its_works(site: Site) -> None:
    place = await move_behind_the_cache(site, "gone")
    async with frozen_works(site, lambda live: None) as works:
        await works.reconcile(request_for(place))

    assert await leaving(site, place) == set()


async def test_an_answer_from_before_what_is_known_removes_nothing(site: Site) -> None:
    place = await move_behind_the_cache(site, "stale")

    def tell_old(live: Object | None) -> Object | None:
        assert live is not None
        return with_metadata(live, resourceVersion=str(int(resource_version_of(live)) - 1))

    async with frozen_works(site, tell_old) as works:
        with pytest.raises(Conflict):
            await works.reconcile(request_for(place))

    assert await leaving(site, place) == set()


async def test_a_deletion_that_only_the_cache_knows_of_withdraws_nothing(site: Site) -> None:
    place = await move_behind_the_cache(site, "alive")
    await site.delete(place)

    def tell_alive(live: Object | None) -> Object | None:
        assert live is not None
        return with_metadata(live, deletionTimestamp=None)

    async with frozen_works(site, tell_alive) as works:
        await works.reconcile(request_for(place))

    assert await leaving(site, place) == set()
    assert not await site.is_gone(place)


async def test_a_work_that_the_cache_does_not_show_is_withdrawn_before_its_binding_goes(
    site: Site,
) -> None:
    template = await site.put(CONFIG_MAPS, config_map("unseen", {"a": "1"}))
    place = await site.bind(template, "member1")
    async with frozen_works(site, lambda live: live) as works:
        caches = ConfigMapCaches(site.hub_client)
        async with running_works(site.hub_client, caches=caches):
            await site.until_works(place, "member1")
        await site.delete(place)
        # By the frozen cache the binding lives, and has no Works: only the hub knows better.
        known = read_raw_object(await site.hub_client.get_raw(place))
        works._bindings.cache.put(known)
        await works.reconcile(request_for(place))

    assert await leaving(site, place) == {"member1"}
    assert await site.is_gone(place)


@asynccontextmanager
async def living(site: Site, first: Client) -> AsyncGenerator[Callable[[], bool]]:
    """Keep controllers running; the first of them may be killed, and the next take its place."""
    was_killed = False

    async def live_on() -> None:
        nonlocal was_killed
        writer: Client | None = first
        while True:
            caches = ConfigMapCaches(site.hub_client)
            async with running_works(site.hub_client, writer, caches) as running:
                with suppress(Killed):
                    await running.task
            was_killed, writer = True, None

    task = asyncio.create_task(live_on())
    try:
        yield lambda: was_killed
    finally:
        await stop(task)


async def tell_story(site: Site, name: str, point: CrashPoint | None) -> int:
    """Deploy, change, move and delete, with the controllers killed at one point."""
    counting = CrashingClient(site.hub_client, point)
    template = await site.put(CONFIG_MAPS, config_map(name, {"a": "1"}))
    place = await site.bind(template, "member1")
    async with living(site, counting) as was_killed:
        await site.until_works(place, "member1")
        changed = await site.change(
            resource_path_of(CONFIG_MAPS, template), lambda held: {**held, "data": {"a": "2"}}
        )
        version = resource_version_of(changed)
        await site.change(
            place, lambda held: with_value(held, version, "spec", "resource", "resourceVersion")
        )
        await until_equal(lambda: data_in(site, place), {"member1": {"a": "2"}})
        moved = [{"name": "member2"}]
        await site.change(place, lambda held: with_value(held, moved, "spec", "clusters"))
        await until_equal(lambda: leaving(site, place), {"member1"})
        await site.execute_deletions()
        await until_equal(lambda: data_in(site, place), {"member2": {"a": "2"}})
        await site.delete(place)
        await until(lambda: site.is_gone(place))
        # Killed by its last write it ends a moment after the hub has shown what it wrote.
        await until(lambda: was_killed() is (point is not None))
    assert await leaving(site, place) == {"member2"}
    await site.execute_deletions()
    assert await site.works_of(place) == {}
    await site.delete(resource_path_of(CONFIG_MAPS, template))
    return counting.writes


async def data_in(site: Site, place: ResourcePath) -> dict[str, Any]:
    works = await site.works_of(place)
    return {name: manifests_of(work)[0].get("data") for name, work in works.items()}


async def test_killed_before_or_after_any_write_the_end_is_the_same(site: Site) -> None:
    # Hold, create, update, create, delete, release: statuses are written in between, as they come.
    least = 6
    assert await tell_story(site, "unharmed", None) >= least
    for write in range(1, least + 1):
        for is_after in (False, True):
            await tell_story(
                site, f"killed-{write}-{is_after}".lower(), CrashPoint(write, is_after)
            )
