"""Killed at any write, whoever goes on brings a migration to the same end, and each object once."""

from collections import Counter
from collections.abc import AsyncIterator
from itertools import count

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
from clusterspace.fleet.migration.plan import MigrationPlan
from clusterspace.fleet.migration.progress import MigrationStore, State
from clusterspace.kube.objects import annotations_of, uid_of
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
