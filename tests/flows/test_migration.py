"""A live cluster of hundreds of objects, of many tools: planned, taken in, proved, given back.

On a simulated member pods run. On a real kube-apiserver with its controllers they are only wanted,
and stay the same ones.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.component.migration.living import Site, apply_plan, differences, undo_plan

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis import stamps
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.migration.ownership import OwnerKind
from clusterspace.fleet.migration.plan import MigrationPlan, Verdict, read_plan, write_plan
from clusterspace.fleet.migration.planning import PlanRequest, plan_cluster
from clusterspace.fleet.migration.progress import State
from clusterspace.fleet.migration.proof import compare
from clusterspace.fleet.migration.snapshots import Selection, capture
from clusterspace.kube.objects import Object, annotations_of, without_value
from clusterspace.testing.live_cluster import LiveCluster, live_cluster
from clusterspace.testing.live_pods import sidecar_injector
from clusterspace.testing.settled import settled
from clusterspace.testing.stage import running_fleet, until_ready

# A small cluster is taken in and given back in tests/component/migration/test_apply_and_undo.py.
pytestmark = pytest.mark.slow

SIM, KUBERNETES = "sim", "kubernetes"
CLOCK = SystemClock()


@pytest.fixture(
    params=[(SIM, 300), (KUBERNETES, 300)],
    ids=lambda each: each[0],
)
async def world(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[Site, LiveCluster]]:
    kind, size = request.param
    live = live_cluster(size)
    async with (
        sidecar_injector() as injector,
        running_fleet(tmp_path) as fleet,
        fleet.controllers(),
    ):
        if kind == SIM:
            west = await fleet.add_sim("west", nodes=2)
        else:
            west = await fleet.add_kubernetes("west")
        await live.load(west.client, injector, runs=kind == SIM)
        if kind == SIM:
            await live.until_running(west.client)
        await fleet.join("west", west)
        await until_ready(fleet, "west")
        yield Site(fleet, west), live


def _comparable(found: dict[str, Object]) -> dict[str, Any]:
    """Return objects without what clusters count by themselves."""
    return {
        key: without_value(without_value(each, "metadata", "generation"), "status")
        for key, each in found.items()
    }


async def test_a_live_cluster_moves_in_and_out_and_nothing_moves_in_it(
    world: tuple[Site, LiveCluster],
) -> None:
    site, live = world
    await settled()
    contents = _comparable(await live.contents(site.member))
    before = await capture(site.member, Selection(()), CLOCK)

    plan = await plan_cluster(site.hub, site.member, PlanRequest("move", "west"), CLOCK.now())
    plan = read_plan("".join(write_plan(plan)).encode(), "move.yaml")

    assert not [each for each in plan.spec.items if each.verdict is Verdict.WOULD_RESTART]
    _assert_owners(plan, live)
    counts = await apply_plan(site, plan)
    assert counts[State.TAKEN] + counts[State.SKIPPED] == plan.takes, counts
    assert counts[State.TAKEN] > len(live.objects) / 3
    await settled()
    after = await capture(site.member, Selection(()), CLOCK)
    report = compare(before, after)
    assert report.is_unchanged, report

    await undo_plan(site, "move")

    await settled()
    assert differences(contents, _comparable(await live.contents(site.member))) == []
    report = compare(before, await capture(site.member, Selection(()), CLOCK))
    assert report.is_unchanged, report
    for resource in dict.fromkeys(each.path.resource for each in plan.taken):
        if resource.group.endswith("example.com"):
            continue  # the hub serves them no longer
        left = await site.hub.list_objects(ResourcePath(resource))
        assert [each for each in left if stamps.MIGRATION in annotations_of(each)] == []


def _assert_owners(plan: MigrationPlan, live: LiveCluster) -> None:
    """What others reconcile is not taken unasked, and each entry names them."""
    tools = {(each.path.resource.resource, each.path.key): each.tool for each in live.objects}
    for item in plan.spec.items:
        tool = tools.get((item.resource, item.path.key))
        if tool in (OwnerKind.ARGO_CD, OwnerKind.FLUX):
            assert item.owner is not None
            assert item.owner.kind == tool.value
            assert not item.take
