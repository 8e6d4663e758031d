"""Killed at any write, whoever goes on brings a migration to the same end, and each object once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from itertools import count
from random import Random

import pytest
import pytest_asyncio
from tests.component.migration.living import (
    SHOP,
    Site,
    apply_plan,
    differences,
    living_cluster,
    plan_of,
    state_of,
    undo_plan,
)

from clusterspace.apis import stamps
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.execution.takeover import is_managed
from clusterspace.fleet.migration.apply import ApplyOptions
from clusterspace.fleet.migration.plan import MigrationPlan
from clusterspace.fleet.migration.progress import MigrationStore, State
from clusterspace.kube.objects import annotations_of, uid_of
from clusterspace.roots import cluster_migration
from clusterspace.testing.builders import CONFIG_MAPS, DEPLOYMENTS
from clusterspace.testing.crashes import CrashingClient, CrashPoint, Killed

pytestmark = pytest.mark.asyncio(loop_scope="module")

WEB = ResourcePath(DEPLOYMENTS, SHOP, "web")
SETTINGS = ResourcePath(CONFIG_MAPS, SHOP, "settings")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with living_cluster(tmp_path_factory.mktemp("site")) as site:
        yield site


async def small_plan(site: Site) -> MigrationPlan:
    return await plan_of(
        site, namespaces=frozenset({SHOP}), kinds=("deployments.apps", "configmaps")
    )


async def assert_taken_once(site: Site, plan: MigrationPlan) -> None:
    store = MigrationStore(site.hub, plan.name)
    chunk = await store.chunk(0)
    assert {each.state for each in chunk.items} == {State.TAKEN}
    for item in chunk.items:
        template = await site.hub.get(item.plan.path)
        assert uid_of(template) == item.template_uid
        live = await site.member.get(item.plan.path)
        assert uid_of(live) == item.plan.uid
        original = await store.original(item)
        # What is kept is from before: whoever went on did not take the copy for the original.
        assert original is not None
        assert not is_managed(original)
        assert stamps.MIGRATION not in annotations_of(original)


@pytest.mark.parametrize(
    ("first", "step", "sides"),
    [(1, 5, (True,)), pytest.param(1, 1, (False, True), marks=pytest.mark.slow)],
    ids=["some", "all"],
)
async def test_killed_at_a_write_of_apply_it_is_finished_by_the_next(
    site: Site, first: int, step: int, sides: tuple[bool, ...]
) -> None:
    before = await state_of(site.member, is_whole=False)
    rounds = 0
    for number in count(first, step):
        is_over = False
        for is_after in sides:
            plan = await small_plan(site)
            dying = CrashingClient(site.hub, CrashPoint(number, is_after))
            try:
                await apply_plan(site, plan, hub=dying, at_once=1)
                is_over = True
            except Killed:
                rounds += 1
            counts = await apply_plan(site, plan)

            assert counts == Counter({State.TAKEN: 3}), f"killed at {number}, {is_after}"
            await assert_taken_once(site, plan)
            await undo_plan(site, plan.name)
            assert differences(before, await state_of(site.member, is_whole=False)) == []
            await MigrationStore(site.hub, plan.name).forget()
        if is_over:
            break
    assert rounds >= 2


@pytest.mark.parametrize(
    ("step", "sides"),
    [(4, (True,)), pytest.param(1, (False, True), marks=pytest.mark.slow)],
    ids=["some", "all"],
)
async def test_killed_at_a_write_of_undo_it_is_finished_by_the_next(
    site: Site, step: int, sides: tuple[bool, ...]
) -> None:
    before = await state_of(site.member, is_whole=False)
    rounds = 0
    for number in count(1, step):
        is_over = False
        for is_after in sides:
            plan = await small_plan(site)
            await apply_plan(site, plan)
            dying = CrashingClient(site.hub, CrashPoint(number, is_after))
            try:
                await undo_plan(site, plan.name, hub=dying, at_once=1)
                is_over = True
            except Killed:
                rounds += 1
            counts = await undo_plan(site, plan.name)

            assert counts == Counter({State.UNDONE: 3}), f"killed at {number}, {is_after}"
            assert differences(before, await state_of(site.member, is_whole=False)) == []
            assert await site.hub.find(WEB) is None
            assert await site.hub.list_objects(ResourcePath(PROPAGATION_POLICIES)) == []
            await MigrationStore(site.hub, plan.name).forget()
        if is_over:
            break
    assert rounds >= 2


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.slow)])
async def test_killed_again_and_again_it_comes_to_the_same_end(site: Site, kills: int) -> None:
    """One migration to its end and back, by as many processes as it takes: each dies somewhere."""
    random, before = Random(20260102), await state_of(site.member, is_whole=False)
    killed = 0
    while killed < kills:
        plan = await small_plan(site)
        for carry_out, end in (
            (lambda hub, plan=plan: apply_plan(site, plan, hub=hub, at_once=2), State.TAKEN),
            (lambda hub, plan=plan: undo_plan(site, plan.name, hub=hub, at_once=2), State.UNDONE),
        ):
            while True:
                point = CrashPoint(random.randint(1, 6), is_after=random.random() < 0.5)
                try:
                    counts = await carry_out(CrashingClient(site.hub, point))
                except Killed:
                    killed += 1
                else:
                    break
            assert counts == Counter({end: 3})
            if end is State.TAKEN:
                await assert_taken_once(site, plan)
        assert differences(before, await state_of(site.member, is_whole=False)) == []
        assert await site.hub.find(WEB) is None
        await MigrationStore(site.hub, plan.name).forget()


async def test_of_two_operators_one_works_and_the_other_waits_for_its_turn(site: Site) -> None:
    before = await state_of(site.member, is_whole=False)
    plan = await small_plan(site)
    progress: dict[str, list[int]] = {"ann": [], "ben": []}
    said: list[str] = []

    async def operate(name: str) -> Counter[State]:
        def tell(counts: Counter[State], _total: int) -> None:
            progress[name].append(counts[State.TAKEN])

        return await cluster_migration.apply(
            plan,
            site.hub.connection.settings,
            cluster_migration.Member(site.member.connection.settings),
            ApplyOptions(at_once=1),
            tell,
            said.append,
        )

    ann, ben = await asyncio.gather(operate("ann"), operate("ben"))

    assert ann == ben == Counter({State.TAKEN: 3})
    # Whoever had the lease took all of them, one by one; the other found nothing left to do.
    assert sorted(progress.values()) == [[], [1, 2, 3]]
    assert said == ["somebody else is at work on migration west-1; waiting for our turn"]
    await assert_taken_once(site, plan)
    await undo_plan(site, plan.name)
    assert differences(before, await state_of(site.member, is_whole=False)) == []
    await MigrationStore(site.hub, plan.name).forget()
