"""A live cluster taken in and given back: nothing restarts, nothing is lost, nothing is left."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
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
from clusterspace.fleet.migration.progress import State
from clusterspace.kube.objects import annotations_of, name_of
from clusterspace.testing.builders import DEPLOYMENTS, NAMESPACES
from clusterspace.testing.settled import settled

WEB = ResourcePath(DEPLOYMENTS, SHOP, "web")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with living_cluster(tmp_path) as site:
        yield site


async def test_a_cluster_is_taken_in_and_given_back_as_it_was(site: Site) -> None:
    before = await state_of(site.member, is_whole=False)
    pods = {key: each for key, each in before.items() if key.startswith("pods ")}
    plan = await plan_of(site)

    counts = await apply_plan(site, plan)

    assert counts == Counter({State.TAKEN: plan.takes})
    web = await site.member.get(WEB)
    assert is_managed(web)
    assert annotations_of(web)[stamps.MIGRATION] == "west-1"
    await settled()
    taken = await state_of(site.member, is_whole=False)
    assert differences(pods, {k: v for k, v in taken.items() if k.startswith("pods ")}) == []

    counts = await undo_plan(site, "west-1")

    assert counts == Counter({State.UNDONE: plan.takes})
    await settled()
    assert differences(before, await state_of(site.member, is_whole=False)) == []
    assert await site.hub.list_objects(ResourcePath(PROPAGATION_POLICIES)) == []
    names = {name_of(each) for each in await site.hub.list_objects(ResourcePath(NAMESPACES))}
    assert SHOP not in names
