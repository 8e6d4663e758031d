"""Pull clusters are heard or not; the hub says so, and doubts itself before it doubts them all."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.commit import commit
from clusterspace.controllers.events import EVENTS
from clusterspace.fleet.membership import manifests
from clusterspace.kube.conditions import Condition, set_condition
from clusterspace.kube.objects import Object, find_at, with_value
from clusterspace.kube.times import format_micro_time
from clusterspace.testing.settled import settled
from clusterspace.testing.stage import SOON_UNKNOWN, Fleet, running_fleet
from clusterspace.testing.steps import until

BEAT_SECONDS = 0.2


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncGenerator[Fleet]:
    async with running_fleet(tmp_path) as running:
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "karmada-cluster"},
        }
        await running.hub.client.create(ResourcePath(manifests.NAMESPACES), namespace)
        yield running


class Agent:
    """What the hub hears of a Pull cluster: its status once, its lease again and again."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self._hub = fleet.hub.client
        self.name = name
        self.is_silent = False

    async def register(self) -> None:
        cluster = {
            "apiVersion": "cluster.karmada.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": self.name},
            "spec": {"syncMode": "Pull", "id": f"id-of-{self.name}"},
        }
        stored = await self._hub.create(manifests.cluster_path(""), cluster)
        ready = set_condition([], Condition("Ready", "True", "ClusterReady"), 1_700_000_000.0)
        reported = with_value(stored, ready.conditions, "status", "conditions")
        await commit(self._hub, manifests.cluster_path(self.name), stored, reported)
        await self._hub.create(manifests.lease_path("").collection, self._lease(0))

    async def beat(self) -> None:
        count = 0
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            count += 1
            if not self.is_silent:
                place = manifests.lease_path(self.name)
                present = await self._hub.get(place)
                await commit(
                    self._hub, place, present, {**present, "spec": self._lease(count)["spec"]}
                )

    def _lease(self, count: int) -> Object:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": "karmada-cluster"},
            # The agent's clock is wrong by years; nobody may care.
            "spec": {
                "holderIdentity": self.name,
                "leaseDurationSeconds": 40,
                "renewTime": format_micro_time(1_000_000_000.0 + count),
            },
        }


@pytest.mark.usefixtures("logged_errors")  # on a slow machine the hub may suspect itself first
async def test_a_silent_cluster_is_unknown_and_tainted_and_the_others_are_not(
    fleet: Fleet,
) -> None:
    agents = [Agent(fleet, name) for name in ("east", "north", "west")]
    for agent in agents:
        await agent.register()
    async with fleet.controllers(monitor=SOON_UNKNOWN), asyncio.TaskGroup() as group:
        beating = [group.create_task(agent.beat()) for agent in agents]
        agents[2].is_silent = True

        async def is_unknown() -> bool:
            return await fleet.taints("west") == {"cluster.karmada.io/unreachable:NoSchedule"}

        await until(is_unknown)
        assert await fleet.ready("west") == ("Unknown", "ClusterStatusUnknown")
        assert await fleet.ready("east") == ("True", "ClusterReady")
        assert await fleet.taints("east") == set()
        for each in beating:
            each.cancel()


@pytest.mark.usefixtures("logged_errors")
async def test_a_hub_that_hears_nobody_doubts_itself_and_taints_nobody(fleet: Fleet) -> None:
    agents = [Agent(fleet, name) for name in ("east", "north", "west")]
    for agent in agents:
        await agent.register()
    async with fleet.controllers(monitor=SOON_UNKNOWN):

        async def says_so() -> bool:
            events = await fleet.hub.client.list_objects(ResourcePath(EVENTS, "default"))
            return any(each["reason"] == "HubSuspectsItself" for each in events)

        await until(says_so)
        # Whatever looks at clusters every now and then has looked at each of them once more.
        await settled()
        for agent in agents:
            assert (await fleet.ready(agent.name))[0] == "True"
            assert await fleet.taints(agent.name) == set()


async def test_a_cluster_that_never_reported_is_given_time_and_then_unknown(
    fleet: Fleet,
) -> None:
    cluster = {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "mute"},
        "spec": {"syncMode": "Pull"},
    }
    await fleet.hub.client.create(manifests.cluster_path(""), cluster)
    async with fleet.controllers(monitor=SOON_UNKNOWN):

        async def is_tainted() -> bool:
            return await fleet.taints("mute") == {"cluster.karmada.io/not-ready:NoSchedule"}

        await until(is_tainted)

        async def is_unknown() -> bool:
            return await fleet.ready("mute") == ("Unknown", "ClusterStatusNeverUpdated")

        await until(is_unknown)
    held = await fleet.cluster("mute")
    assert find_at(held, "metadata", "finalizers") == ["karmada.io/cluster-controller"]
    assert "karmada-es-mute" in await fleet.hub.names_of(ResourcePath(manifests.NAMESPACES))
