"""Workloads leave a cluster that evicts them, on simulated members: one copy runs all the time."""

import asyncio
from pathlib import Path

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.propagation.eviction.decisions import EvictionSettings
from clusterspace.fleet.propagation.explanation import explain, gather
from clusterspace.kube.objects import Object, find_at, with_value, without_value
from clusterspace.testing.builders import DEPLOYMENTS, deployment
from clusterspace.testing.settled import settled
from clusterspace.testing.stage import Fleet, Side, running_fleet, until_ready
from clusterspace.testing.steps import edit, stop, until, until_equal

EVICTING = EvictionSettings(is_on=True, each_second=50, settle_seconds=0.5)
WEB = ResourcePath(DEPLOYMENTS, "default", "web")
BINDING = ResourcePath(RESOURCE_BINDINGS, "default", "web-deployment")
FAILED = {"key": "fail-test", "effect": "NoExecute"}

POLICY: Object = {
    "apiVersion": "policy.karmada.io/v1alpha1",
    "kind": "PropagationPolicy",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
        "placement": {
            "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]
        },
    },
}


async def ready_on(member: Side) -> int:
    found = await member.client.find(WEB)
    return int(find_at(found or {}, "status", "readyReplicas") or 0)


async def placed_on(fleet: Fleet) -> list[str]:
    binding = await fleet.hub.client.find(BINDING)
    return [each["name"] for each in find_at(binding or {}, "spec", "clusters") or ()]


async def test_a_workload_moves_and_is_never_without_a_copy_that_is_ready(tmp_path: Path) -> None:
    async with running_fleet(tmp_path) as fleet:
        members: dict[str, Side] = {}
        for name in ("east", "west"):
            members[name] = await fleet.add_sim(name, nodes=1)
            await fleet.join(name, members[name])
        hub = fleet.hub.client
        async with fleet.controllers():
            for name in members:
                await until_ready(fleet, name)
            await hub.create(ResourcePath(DEPLOYMENTS, "default"), deployment("web", replicas=2))
            await hub.create(ResourcePath(PROPAGATION_POLICIES, "default"), POLICY)
            (old,) = await until(lambda: placed_on(fleet))
            await until_equal(lambda: ready_on(members[old]), 2)
            cluster = ResourcePath(CLUSTERS, name=old)
            await edit(hub, cluster, lambda held: with_value(held, [FAILED], "spec", "taints"))
            await settled()

            # Nobody leaves unless the operator turned it on.
            assert await placed_on(fleet) == [old]
            assert await ready_on(members[old]) == 2

        new = "west" if old == "east" else "east"
        fewest = 2

        async def watch_over() -> None:
            """Look at both clusters again and again, as their users do."""
            nonlocal fewest
            while True:
                counts = [await ready_on(members[name]) for name in (new, old)]
                fewest = min(fewest, max(counts))
                await asyncio.sleep(0.01)

        looking = asyncio.create_task(watch_over())
        async with fleet.controllers(evictions=EVICTING):
            await until_equal(lambda: placed_on(fleet), [new])
            told = explain(await gather(hub, WEB))

            async def is_left() -> bool:
                return await members[old].client.find(WEB) is None

            await until(is_left)
            await stop(looking)
            assert await ready_on(members[new]) == 2
            assert fewest == 2
            notes = {each.name: each for each in told.clusters}
            assert "(TaintUntolerated: its taint fail-test:NoExecute" in notes[old].why

            # Well again, it is used when somebody asks for it, and not before.
            await edit(hub, cluster, lambda held: without_value(held, "spec", "taints"))
            await settled()
            assert await placed_on(fleet) == [new]
            assert find_at(await hub.get(BINDING), "spec", "gracefulEvictionTasks") is None
