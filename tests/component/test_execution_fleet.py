"""Executions start and stop as Clusters come and go."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from tests.component.execution_site import CLUSTER, Site, new_name, two_clusters, work_of

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.controllers.controller import ControllerManager
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import CredentialsUnusable
from clusterspace.fleet.execution.controller import Execution
from clusterspace.kube.objects import Object, name_of, uid_of
from clusterspace.testing.builders import CONFIG_MAPS, config_map
from clusterspace.testing.settled import settled


@asynccontextmanager
async def running_execution(site: Site) -> AsyncGenerator[None]:
    clock = SystemClock()
    caches = HubCaches(site.hub)
    events = EventRecorder(site.hub, component="execution", clock=clock)

    async def reach(cluster: Object) -> ClusterClient:
        if name_of(cluster) != CLUSTER:
            raise CredentialsUnusable(name_of(cluster), "the hub holds no credentials for it")
        return site.member

    execution = Execution(site.hub, caches, events, reach)
    manager = ControllerManager(caches, events, [execution], clock=clock, random=Random(1))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(manager.run())
        try:
            yield
        finally:
            task.cancel()


def other_cluster(mode: str) -> Object:
    return {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "east"},
        "spec": {"syncMode": mode, "apiEndpoint": "https://127.0.0.1:2"},
    }


async def test_works_are_carried_out_while_another_cluster_cannot_be_reached(
    tmp_path: Path,
) -> None:
    async with two_clusters(tmp_path) as site:
        await site.hub.create(ResourcePath(CLUSTERS), other_cluster("Push"))
        early = await site.order(work_of(config_map(new_name())))
        async with running_execution(site):
            await site.applied(name_of(early))
            late = await site.order(work_of(config_map(new_name())))
            await site.applied(name_of(late))


@pytest.mark.parametrize("ending", ["gone", "pull"])
async def test_a_cluster_that_is_gone_or_has_an_agent_is_not_served(
    tmp_path: Path, ending: str
) -> None:
    async with two_clusters(tmp_path) as site, running_execution(site):
        first = await site.order(work_of(config_map(new_name())))
        await site.applied(name_of(first))
        place = ResourcePath(CLUSTERS, name=CLUSTER)
        cluster = await site.hub.get(place)
        if ending == "gone":
            await site.hub.delete(place, DeleteOptions(uid_of(cluster)))
        else:
            pulled = {**cluster, "spec": {**cluster["spec"], "syncMode": "Pull"}}
            await site.hub.update(place, pulled)
        await settled()

        name = new_name()
        await site.order(work_of(config_map(name)))

        async def is_absent() -> bool:
            return await site.member.find(ResourcePath(CONFIG_MAPS, "default", name)) is None

        await settled()
        assert await is_absent()
