"""What members can take is counted node by node and by their quotas, and replicas go by that."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio

from clusterspace.apis.estimates import Claim, read_estimate
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, with_value
from clusterspace.kube.quantities import parse_quantity
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import DEPLOYMENTS, deployment
from clusterspace.testing.stage import (
    Fleet,
    Side,
    register,
    running_agent,
    running_fleet,
    until_ready,
)
from clusterspace.testing.steps import delete, edit, until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

PUSH, PULL = "west", "east"
NODES = GroupVersionResource("", "v1", "nodes")
QUOTAS = GroupVersionResource("", "v1", "resourcequotas")


@dataclass
class Stage:
    """One fleet for all tests here: a Push and a Pull member with two nodes each."""

    fleet: Fleet
    members: dict[str, Side]

    async def fits(self, cluster: str, cpu: str, namespace: str = "default") -> int | None:
        """Return how many replicas of this size the hub believes to fit."""
        written = find_at(await self.fleet.cluster(cluster), "status", "estimate")
        found = None if written is None else read_estimate(written)
        claim = Claim({"cpu": parse_quantity(cpu)}, namespace=namespace)
        return None if found is None else found.fits(claim)

    async def place(self, name: str, replicas: int, cpu: str, namespace: str = "default") -> None:
        """Divide a Deployment by what clusters can take."""
        template = deployment(name, replicas=replicas)
        containers = find_at(template, "spec", "template", "spec", "containers")
        asking = [{**each, "resources": {"requests": {"cpu": cpu}}} for each in containers]
        template = with_value(template, asking, "spec", "template", "spec", "containers")
        template["metadata"]["namespace"] = namespace
        scheduling = {
            "replicaSchedulingType": "Divided",
            "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"},
        }
        selector = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        policy: Object = {
            "apiVersion": "policy.karmada.io/v1alpha1",
            "kind": "PropagationPolicy",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "resourceSelectors": [selector],
                "placement": {"replicaScheduling": scheduling},
            },
        }
        hub = self.fleet.hub.client
        await hub.create(ResourcePath(DEPLOYMENTS, namespace), template)
        await hub.create(ResourcePath(PROPAGATION_POLICIES, namespace), policy)

    async def targets(self, name: str) -> dict[str, int]:
        """Return how many replicas of it each cluster is to have."""
        path = ResourcePath(RESOURCE_BINDINGS, "default", f"{name}-deployment")
        binding = await self.fleet.hub.client.find(path)
        placed = find_at(binding or {}, "spec", "clusters") or ()
        return {each["name"]: each["replicas"] for each in placed}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    async with AsyncExitStack() as stack:
        directory = tmp_path_factory.mktemp("estimates")
        fleet = await stack.enter_async_context(running_fleet(directory))
        await stack.enter_async_context(fleet.controllers())
        members = {name: await fleet.add_sim(name, nodes=2) for name in (PUSH, PULL)}
        await fleet.join(PUSH, members[PUSH])
        await register(fleet, PULL, members[PULL])
        await stack.enter_async_context(running_agent(members[PULL]))
        for name in members:
            await until_ready(fleet, name)
        yield Stage(fleet, members)


async def whole_node(stage: Stage) -> str:
    """Return what a node has in all."""
    nodes = await stage.members[PUSH].client.list_objects(ResourcePath(NODES))
    return str(find_at(nodes[0], "status", "allocatable", "cpu"))


async def test_a_replica_that_needs_a_whole_node_finds_one_on_each(stage: Stage) -> None:
    cpu = await whole_node(stage)
    for name in (PUSH, PULL):
        await until_equal(lambda name=name: stage.fits(name, cpu), 2)

    await stage.place("large", 4, cpu)

    await until_equal(lambda: stage.targets("large"), {PUSH: 2, PULL: 2})
    await delete(stage.fleet.hub.client, ResourcePath(DEPLOYMENTS, "default", "large"))
    for name in (PUSH, PULL):
        await until_equal(lambda name=name: stage.fits(name, cpu), 2)


async def test_nodes_that_are_tainted_and_quotas_that_are_used_up_take_nobody(
    stage: Stage,
) -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    for each in await stage.members[PUSH].client.list_objects(ResourcePath(NODES)):
        path = ResourcePath(NODES, name=each["metadata"]["name"])
        await edit(
            stage.members[PUSH].client,
            path,
            lambda node: with_value(node, [taint], "spec", "taints"),
        )
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small", "namespace": "default"},
        "spec": {"hard": {"requests.cpu": "300m"}},
    }
    await stage.members[PULL].client.create(ResourcePath(QUOTAS, "default"), quota)
    await until_equal(lambda: stage.fits(PUSH, "100m"), 0)
    await until_equal(lambda: stage.fits(PULL, "100m"), 3)

    await stage.place("small", 4, "100m")

    binding = ResourcePath(RESOURCE_BINDINGS, "default", "small-deployment")

    async def refusal() -> str:
        found = await stage.fleet.hub.client.find(binding)
        conditions = find_at(found or {}, "status", "conditions")
        return str((find_condition(conditions, "Scheduled") or {}).get("message") or "")

    message = await until(refusal)
    assert message == "The clusters that fit (east, west) have room for 3 of 4 replicas."
    # Nobody asks again and again: the cluster's own report says that there is room.
    path = ResourcePath(QUOTAS, "default", "small")
    await edit(
        stage.members[PULL].client,
        path,
        lambda held: with_value(held, {"requests.cpu": "1"}, "spec", "hard"),
    )
    await until_equal(lambda: stage.targets("small"), {PULL: 4})
