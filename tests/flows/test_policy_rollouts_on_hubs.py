"""A bad image stops in the first stage and is taken back; on our hub, and on a kube-apiserver."""

from pathlib import Path
from typing import Any

import pytest
from tests.flows.test_policy_rollouts import deployment, policy
from tests.flows.test_staged_updates import stage, strategy

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.staged_updates import NAMESPACED_RUNS
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import Invalid
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, with_metadata, with_value
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    config_map,
    namespace,
)
from clusterspace.testing.hubs import KUBERNETES, OURS
from clusterspace.testing.stage import running_fleet, until_ready
from clusterspace.testing.steps import edit, until_equal

WEB = ResourcePath(DEPLOYMENTS, "app", "web")
CONTAINERS = ("spec", "template", "spec", "containers")
RINGS = {"west": "canary", "east": "prod"}
SECONDS = 60.0


def with_image(held: Object, image: str) -> Object:
    return with_value(held, [{"name": "web", "image": image}], *CONTAINERS)


@pytest.mark.parametrize(
    "hub_kind", [OURS, pytest.param(KUBERNETES, marks=pytest.mark.slow)], ids=str
)
async def test_a_bad_image_stops_in_the_first_stage_and_is_taken_back(
    tmp_path: Path, hub_kind: str
) -> None:
    async with running_fleet(tmp_path, hub_kind=hub_kind) as fleet, fleet.controllers():
        hub = fleet.hub.client
        members: dict[str, Any] = {}
        for name, ring in RINGS.items():
            member = await fleet.add_sim(name, nodes=1)
            await fleet.join(name, member)
            await until_ready(fleet, name)
            members[name] = member.client
            labels = {"ring": ring}
            path = ResourcePath(CLUSTERS, "", name)
            await edit(hub, path, lambda held, labels=labels: with_metadata(held, labels=labels))

        async def images() -> list[Any]:
            found = [await each.find(WEB) for each in members.values()]
            return [(find_at(each or {}, *CONTAINERS) or [{}])[0].get("image") for each in found]

        async def rolled_out() -> str:
            binding = await hub.find(ResourcePath(RESOURCE_BINDINGS, "app", "web-deployment")) or {}
            found = find_condition(find_at(binding, "status", "conditions"), "RolledOut") or {}
            return f"{found.get('reason')}: {found.get('message')}"

        everywhere = "RolledOut: every cluster has the newest state"
        await hub.create(ResourcePath(NAMESPACES), namespace("app"))
        await hub.create(ResourcePath(CONFIG_MAPS, "app"), config_map("settings", namespace="app"))
        made = strategy(stage("canary", "canary"), stage("prod", "prod"), namespace="app")
        await hub.create(ResourcePath(NAMESPACED_RUNS.strategies, "app"), made)
        template = with_value(with_image(deployment("settings"), "web:1"), 2, "spec", "replicas")
        await hub.create(WEB.collection, template)

        selectors = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}]
        chosen = policy(resourceSelectors=selectors, propagateDeps=True)
        policies = ResourcePath(PROPAGATION_POLICIES, "app")
        for rollout in BAD:
            with pytest.raises(Invalid, match=r"spec\.rollout"):
                await hub.create(policies, with_value(chosen, rollout, "spec", "rollout"))
        rollout = {"strategyName": "rings", "progressDeadlineSeconds": 2}
        await hub.create(policies, with_value(chosen, rollout, "spec", "rollout"))
        await until_equal(images, ["web:1", "web:1"], SECONDS)
        await until_equal(rolled_out, everywhere, SECONDS)

        await edit(hub, WEB, lambda held: with_image(held, "web:2"))
        await until_equal(images, ["web:2", "web:2"], SECONDS)
        await until_equal(rolled_out, everywhere, SECONDS)
        await edit(hub, WEB, lambda held: with_image(held, "registry.invalid/web:3"))
        stuck = "UpdateRunStuck: StagedUpdateRun web-2: west: Deployment web is not healthy"
        await until_equal(rolled_out, stuck, SECONDS)
        assert await images() == ["registry.invalid/web:3", "web:2"]
        await edit(hub, WEB, lambda held: with_image(held, "web:2"))
        await until_equal(rolled_out, everywhere, SECONDS)
        assert await images() == ["web:2", "web:2"]


BAD: list[Object] = [
    {},
    {"strategyName": ""},
    {"strategyName": "Not_A_Name"},
    {"strategyName": "rings", "progressDeadlineSeconds": 0},
]
