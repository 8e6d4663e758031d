"""Nothing is deleted because it could not be seen, and never too much at once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from tests.component.execution_site import (
    CLUSTER,
    PATIENCE,
    Site,
    executing,
    new_name,
    two_clusters,
    work_of,
)

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS, conditions_of
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import Client, DeleteOptions, ListOptions
from clusterspace.controllers.commit import commit
from clusterspace.fleet.execution import prune
from clusterspace.fleet.execution.prune import PAUSED, is_paused
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import (
    Object,
    is_being_deleted,
    labels_of,
    name_of,
    uid_of,
    with_metadata,
)
from clusterspace.roots.workloads import resume
from clusterspace.testing.builders import CONFIG_MAPS, config_map
from clusterspace.testing.crashes import CrashPoint, Fuse, Killed, MortalClient
from clusterspace.testing.faults import (
    HTML,
    HTML_NOT_FOUND,
    Fault,
    FaultProxy,
    Freeze,
    Reply,
    Rule,
    Truncate,
    empty_list,
    fault_proxy,
    is_watch,
    status_reply,
)
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

OBJECTS = 6


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with two_clusters(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="module")
async def fresh_site(tmp_path: Path) -> AsyncIterator[Site]:
    async with two_clusters(tmp_path) as site:
        yield site


def map_place(name: str) -> ResourcePath:
    return ResourcePath(CONFIG_MAPS, "default", name)


def lists_of(resource: str):
    """Match lists and watches of a collection, streamed or not, whatever the namespace."""

    def matches(request: web.Request) -> bool:
        return request.method == "GET" and request.path.endswith(f"/{resource}")

    return matches


def deletions_in(proxy: FaultProxy) -> list[str]:
    return [each for each in proxy.requests if each.startswith("DELETE")]


async def until_told(rule: Rule) -> None:
    """Wait until a lie was told, heard and told again.

    Who asks again has read the first answer; of one that goes on and on there is no second.
    """
    times = rule.hits + (1 if isinstance(rule.fault, Freeze | Truncate) else 2)
    await until(lambda: rule.hits >= times)


async def stale_list(site: Site) -> Reply:
    """Return a list of the member as it was before anything was placed."""
    answer = await site.member.connection.ask(ApiRequest("GET", ResourcePath(CONFIG_MAPS).path))
    return Reply(200, answer.body)


FAULTS: dict[str, Fault] = {
    "empty": empty_list("ConfigMapList"),
    "403": status_reply(403, "Forbidden"),
    "404": status_reply(404, "NotFound"),
    "HTML": HTML,
    "HTML 404": HTML_NOT_FOUND,
    "truncated": Truncate(after_bytes=200),
    "silent": Freeze(),
}


@pytest.mark.parametrize("fault", [*FAULTS, "stale"])
async def test_a_member_that_lies_about_what_it_holds_loses_nothing(site: Site, fault: str) -> None:
    stale = await stale_list(site)
    names = [new_name() for _ in range(OBJECTS)]
    async with (
        fault_proxy(site.member.connection) as proxy,
        client_for_test(proxy.settings) as member,
    ):
        async with executing(site, member=member):
            works = [await site.order(work_of(config_map(each))) for each in names]
            for work in works:
                await site.applied(name_of(work))
            rule = proxy.inject(FAULTS.get(fault, stale), when=lists_of("configmaps"), times=None)
            proxy.cut()
            await until_told(rule)
            await settled(lied_to_by=[CLUSTER])
        async with executing(site, member=member):
            # A cold start under the same fault, and an order to carry out in the middle of it.
            await site.change_order(name_of(works[0]), lambda each: {**each, "data": {"b": "2"}})
            await until_told(rule)  # nothing is settled: all wait to know what is there
            assert deletions_in(proxy) == []
    for name in names:
        assert await site.member.find(map_place(name)) is not None


@pytest.mark.parametrize("fault", [*FAULTS])
async def test_a_hub_that_lies_about_its_orders_loses_nothing(site: Site, fault: str) -> None:
    name = new_name()
    async with (
        fault_proxy(site.hub.connection) as hub_proxy,
        fault_proxy(site.member.connection) as member_proxy,
        client_for_test(hub_proxy.settings) as hub,
        client_for_test(member_proxy.settings) as member,
    ):
        async with executing(Site(hub, member), member=member):
            work = await site.order(work_of(config_map(name)))
            await site.applied(name_of(work))
            rule = hub_proxy.inject(FAULTS[fault], when=lists_of("works"), times=None)
            hub_proxy.cut()
            await until_told(rule)
            await settled(lied_to_by=["hub"])
        assert deletions_in(member_proxy) == []
    assert await site.member.find(map_place(name)) is not None


def remembered(uid: str):
    """Stand in for the live look at an object: it was ours when we last heard of it."""

    async def find(
        _member: Client, place: ResourcePath, _manifest: Object, _work: Object
    ) -> prune.Doomed:
        return prune.Doomed(place, uid)

    return find


@pytest.mark.parametrize("looks", [True, False])
async def test_an_object_that_was_handed_over_a_moment_ago_outlives_its_work(
    site: Site, monkeypatch: pytest.MonkeyPatch, *, looks: bool
) -> None:
    """The cache still shows our stamps, and the UID is the same: only a live look tells."""
    name = new_name()
    async with (
        fault_proxy(site.member.connection) as proxy,
        client_for_test(proxy.settings) as member,
        executing(site, member=member),
    ):
        work = await site.order(work_of(config_map(name)))
        await site.applied(name_of(work))
        silence = proxy.inject(Freeze(), when=is_watch, times=None)
        proxy.cut()
        await until_told(silence)
        live = await site.member.get(map_place(name))
        labels = {key: each for key, each in labels_of(live).items() if key != stamps.MANAGED}
        kept = with_metadata(live, labels=labels)
        await site.member.update(map_place(name), kept, site.foreign)

        if not looks:
            monkeypatch.setattr(prune, "find_doomed", remembered(uid_of(live)))
        await site.delete_work(name_of(work))
        await site.gone(name_of(work))

        assert bool(deletions_in(proxy)) is not looks
    assert (await site.member.find(map_place(name)) is not None) is looks


async def test_a_new_object_in_the_place_of_one_that_was_to_go_is_kept(site: Site) -> None:
    """Killed after the delete and before letting go, with another object there on return."""
    name = new_name()
    async with executing(site):
        work = await site.order(work_of(config_map(name)))
        await site.applied(name_of(work))
    # The first write notes what is withdrawn, the second deletes it.
    member = MortalClient(site.member.connection, Fuse(CrashPoint(2, is_after=True)))
    await site.delete_work(name_of(work))
    await run_until_killed(site, member)
    manifest = work["spec"]["workload"]["manifests"][0]
    again = await site.member.create(map_place(name).collection, manifest, site.foreign)

    async with executing(site):
        await site.gone(name_of(work))

    assert uid_of(await site.member.get(map_place(name))) == uid_of(again)


async def run_until_killed(site: Site, member: MortalClient) -> None:
    with pytest.raises(BaseExceptionGroup) as ended:
        async with executing(site, member=member):
            await asyncio.sleep(PATIENCE)
    assert ended.value.subgroup(Killed) is not None


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("write", [1, 2, 3, 4])
async def test_killed_at_a_write_to_the_member_it_ends_where_it_would_have(
    site: Site, write: int, *, is_after: bool
) -> None:
    """Four writes: the object is made, changed, noted as withdrawn and deleted."""
    name = new_name()
    work = work_of(config_map(name, {"a": "1"}))
    told = Story(site, work, name)
    fuse = Fuse(CrashPoint(write, is_after=is_after))
    with contextlib.suppress(BaseExceptionGroup):
        async with executing(site, member=MortalClient(site.member.connection, fuse)):
            await told.go_on()
    assert fuse.writes == write, "it was killed where it should be"

    async with executing(site):
        await told.go_on()

    assert await site.member.find(map_place(name)) is None
    assert await site.find_work(name_of(work)) is None


class Story:
    """Order, change, withdraw; goes on where it was interrupted."""

    def __init__(self, site: Site, work: Object, name: str) -> None:
        self._site = site
        self._work = work
        self._name = name
        self._steps = [self._order, self._change, self._withdraw]

    async def go_on(self) -> None:
        while self._steps:
            await self._steps[0]()
            self._steps.pop(0)

    async def _order(self) -> None:
        if await self._site.find_work(name_of(self._work)) is None:
            await self._site.order(self._work)
        await self._site.applied(name_of(self._work))

    async def _change(self) -> None:
        await self._site.change_order(
            name_of(self._work), lambda each: {**each, "data": {"a": "2"}}
        )

        async def is_changed() -> bool:
            live = await self._site.member.find(map_place(self._name))
            return live is not None and live["data"] == {"a": "2"}

        await until(is_changed)

    async def _withdraw(self) -> None:
        held = await self._site.find_work(name_of(self._work))
        if held is not None and not is_being_deleted(held):
            await self._site.delete_work(name_of(self._work))
        await self._site.gone(name_of(self._work))


async def test_too_many_deletions_pause_until_a_person_resumes_them(fresh_site: Site) -> None:
    site = fresh_site
    names = [new_name() for _ in range(30)]
    async with executing(site):
        works = [await site.order(work_of(config_map(each))) for each in names]
        for work in works:
            await site.applied(name_of(work))
        for work in works[:20]:
            await site.delete_work(name_of(work))

        async def is_pausing() -> bool:
            return is_paused(await site.hub.get(ResourcePath(CLUSTERS, name=CLUSTER)))

        await until(is_pausing)
        left = await count_left(site, names)
        assert left >= 20, "at most ten may go before somebody looks"
        await settled()
        assert await has_left(site, names, left)
        cluster = await site.hub.get(ResourcePath(CLUSTERS, name=CLUSTER))
        told = find_condition(conditions_of(cluster), PAUSED) or {}
        assert "clusterspace resume" in told["message"]
        await site.event(PAUSED, CLUSTER)
    async with executing(site):
        # Whoever comes next keeps the pause.
        await settled()
        assert await has_left(site, names, left)
        await resume(site.hub, CLUSTER, SystemClock())
        await until(lambda: has_left(site, names, 10))
        for work in works[:20]:
            await site.gone(name_of(work))


async def count_left(site: Site, names: list[str]) -> int:
    found = [await site.member.find(map_place(each)) for each in names]
    return sum(each is not None for each in found)


async def has_left(site: Site, names: list[str], count: int) -> bool:
    return await count_left(site, names) == count


async def test_a_cluster_that_leaves_takes_everything_along(fresh_site: Site) -> None:
    site = fresh_site
    names = [new_name() for _ in range(15)]
    place = ResourcePath(CLUSTERS, name=CLUSTER)
    async with executing(site):
        works = [await site.order(work_of(config_map(each))) for each in names]
        for work in works:
            await site.applied(name_of(work))
        cluster = await site.hub.get(place)
        held = await commit(
            site.hub, place, cluster, with_metadata(cluster, finalizers=["example.com/leaving"])
        )
        await site.hub.delete(place, DeleteOptions(uid_of(held)))
        for work in works:
            await site.delete_work(name_of(work))
        for work in works:
            await site.gone(name_of(work))
    assert (
        await site.member.list_objects(
            ResourcePath(CONFIG_MAPS, "default"),
            ListOptions(label_selector=f"{stamps.MANAGED}=true"),
        )
        == []
    )
