"""How changes go from cluster to cluster, within what the strategy allows."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.component.placement_site import (
    PlacementSite,
    of_cluster,
    placement,
    placement_site,
    running,
)

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.membership.manifests import NODES
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import name_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.sim.nodes import NodeShape, new_node, with_node_status, without_taints
from clusterspace.testing.builders import DEPLOYMENTS, deployment
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import edit, until, until_equal

ONE_BY_ONE = {"maxUnavailable": 1, "maxSurge": 1, "unavailablePeriodSeconds": 0}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[PlacementSite]:
    async with placement_site(tmp_path, "east", "west") as made, running(made):
        yield made


async def test_a_cluster_that_cannot_take_a_change_holds_up_the_others(site: PlacementSite) -> None:
    await site.app()
    await site.put(DEPLOYMENTS, deployment("web", namespace="app", replicas=0))
    await site.place(placement(rollingUpdate=ONE_BY_ONE))
    web = ResourcePath(DEPLOYMENTS, "app", "web")
    await site.until_settled()
    await site.change(web, lambda held: {**held, "spec": {**held["spec"], "replicas": 1}})

    async def has_begun() -> bool:
        live = await site.members["east"].get(web)
        return live["spec"]["replicas"] == 1

    await until(has_begun)

    async def is_waiting() -> bool:
        binding = of_cluster(await site.status(), "west")
        started = find_condition(binding.get("conditions"), "RolloutStarted") or {}
        return started.get("reason") == "RolloutNotStartedYet"

    await until(is_waiting)
    await settled()
    assert (await site.members["west"].get(web))["spec"]["replicas"] == 0
    assert "west" in await site.message("RolloutStarted")
    await add_node(site, "east")

    async def is_rolled_out() -> bool:
        return (await site.members["west"].get(web))["spec"]["replicas"] == 1

    await until(is_rolled_out)


async def add_node(site: PlacementSite, cluster: str) -> None:
    """Give a member somewhere to run pods: before, none of them could start."""
    member, shape = site.members[cluster], NodeShape()
    made = await member.create(ResourcePath(NODES), new_node(cluster, 0, shape))
    path = ResourcePath(NODES, "", name_of(made))
    now = SystemClock().now()
    status = path.with_subresource("status")
    await edit(member, status, lambda node: with_node_status(node, 0, shape, now))
    await edit(member, path, without_taints)


async def test_objects_that_cannot_tell_are_given_their_time(site: PlacementSite) -> None:
    jobs = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "app"},
        "spec": {
            "schedule": "0 0 * * *",
            "jobTemplate": {
                "spec": {
                    "template": {
                        "spec": {
                            "restartPolicy": "Never",
                            "containers": [{"name": "main", "image": "web:1"}],
                        }
                    }
                }
            },
        },
    }
    await site.app()
    resource = GroupVersionResource("batch", "v1", "cronjobs")
    await site.put(resource, jobs)
    slow = {"maxUnavailable": 1, "maxSurge": 1, "unavailablePeriodSeconds": 2}
    await site.place(placement(rollingUpdate=slow))
    await site.until_settled()
    reason = (await site.condition("Available"))[1]
    assert reason == "ResourceAvailable"
    told = of_cluster(await site.status(), "east")["conditions"]
    assert told[-1]["reason"] == "NotAllWorkAreAvailabilityTrackable"
    started = asyncio.get_running_loop().time()
    place = ResourcePath(resource, "app", "nightly")
    await site.change(place, lambda h: {**h, "spec": {**h["spec"], "schedule": "1 0 * * *"}})

    async def is_everywhere() -> bool:
        held = [await site.members[each].get(place) for each in ("east", "west")]
        return all(each["spec"]["schedule"] == "1 0 * * *" for each in held)

    await until(is_everywhere)
    assert asyncio.get_running_loop().time() - started >= 1.0


async def test_an_external_strategy_picks_clusters_and_rolls_out_nothing(
    site: PlacementSite,
) -> None:
    await site.app("settings")
    await site.place(placement(type="External"))

    async def look() -> Any:
        return await site.condition("RolloutStarted")

    await until_equal(look, ("Unknown", "RolloutControlledByExternalController"))
    await site.until_clusters("east", "west")
    assert await site.data("east", "settings") is None
