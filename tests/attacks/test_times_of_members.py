"""A member writes times that API servers store and few programs read: nobody stops at one."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.component.placement_site import PlacementSite, placement

from clusterspace.controllers.commit import commit
from clusterspace.fleet.membership.manifests import cluster_path
from clusterspace.testing.stage import as_agent, register, running_fleet, until_ready
from clusterspace.testing.steps import until

AT_ONCE = {"maxUnavailable": "100%", "maxSurge": "100%", "unavailablePeriodSeconds": 0}


@pytest.mark.parametrize("moment", ["2026-01-01t00:00:00z", "2026-01-01T00:00:00+99:99"])
async def test_a_time_that_nobody_else_writes_so_keeps_no_placement_back(
    tmp_path: Path, moment: str
) -> None:
    async with running_fleet(tmp_path) as fleet, fleet.controllers(), AsyncExitStack() as stack:
        good, evil = await fleet.add_sim("good"), await fleet.add_member("evil")
        await fleet.join("good", good)
        await register(fleet, "evil", evil)
        agent = await stack.enter_async_context(as_agent(evil))
        await until(lambda: agent.find(cluster_path("evil")))
        condition = {"type": "Ready", "status": "False", "reason": "x", "message": ""}
        status = {"conditions": [{**condition, "lastTransitionTime": moment}]}
        cluster = await agent.get(cluster_path("evil"))
        await commit(agent, cluster_path("evil"), cluster, {**cluster, "status": status})
        await until_ready(fleet, "good")
        site = PlacementSite(fleet.hub.client, tmp_path, stack, {"good": good.client})

        await site.app("settings")
        await site.place(placement(rollingUpdate=AT_ONCE))

        await site.until_data("good", "settings", {"v": "1"})
