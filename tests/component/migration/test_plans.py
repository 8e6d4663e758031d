"""`migrate plan`: what it says of a live cluster, and that it touches nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.component.migration.living import Site, living_cluster, plan_of

from clusterspace.fleet.migration.plan import (
    MigrationPlan,
    PlanItem,
    Verdict,
)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with living_cluster(tmp_path) as site:
        yield site


def entry(plan: MigrationPlan, title: str) -> PlanItem:
    return next(each for each in plan.spec.items if each.title == title)


async def test_a_plan_touches_neither_the_member_nor_the_hub(site: Site) -> None:
    before = await site.member_state(), await site.hub_state()

    plan = await plan_of(site)

    assert (await site.member_state(), await site.hub_state()) == before
    assert {each.verdict for each in plan.spec.items} == {Verdict.SAME}
