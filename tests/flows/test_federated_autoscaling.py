"""FederatedHPAs over two clusters: more where pods are busy, and less only where all are known."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from clusterspace.apis.autoscalers import FEDERATED_HPAS
from clusterspace.apis.identities import CONTROLLERS_ON_MEMBERS
from clusterspace.apis.policies import GROUP as POLICIES
from clusterspace.apis.stamps import RETAIN_REPLICAS
from clusterspace.apis.tunnels import VIEW_ANNOTATION
from clusterspace.client.requests import ResourcePath
from clusterspace.client.settings import Impersonation
from clusterspace.controllers.events import EVENTS
from clusterspace.errors import Forbidden
from clusterspace.fleet.autoscaling.measures import PODS
from clusterspace.fleet.membership.connections import proxied_settings
from clusterspace.fleet.membership.manifests import SECRETS, cluster_path
from clusterspace.fleet.propagation.scale_targets import AUTOSCALERS
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, labels_of, name_of, with_metadata
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.hubs import OURS, SEVERAL, client_for_test, part_of_hub
from clusterspace.testing.stage import (
    Fleet,
    Side,
    move_cluster,
    register,
    running_agent,
    running_fleet,
    until_ready,
)
from clusterspace.testing.steps import delete, edit, until, until_equal

DEPLOYMENTS: Final = GroupVersionResource("apps", "v1", "deployments")
PROPAGATION: Final = GroupVersionResource(POLICIES, "v1alpha1", "propagationpolicies")
WEB: Final = ResourcePath(DEPLOYMENTS, "default", "web")
AUTOSCALER: Final = ResourcePath(FEDERATED_HPAS, "default", "web")
USAGE: Final = "sim.clusterspace.io/cpu-usage"


@dataclass
class Site:
    fleet: Fleet
    members: dict[str, Side]

    async def replicas(self) -> Any:
        return find_at(await self.fleet.hub.client.get(WEB), "spec", "replicas")

    async def autoscaler(self) -> Object:
        return await self.fleet.hub.client.get(AUTOSCALER)

    async def condition(self, kind: str) -> Object:
        found = find_at(await self.autoscaler(), "status", "conditions")
        return find_condition(found, kind) or {}

    async def pods(self, member: str) -> list[Object]:
        listed = await self.members[member].client.list_objects(ResourcePath(PODS, "default"))
        return [each for each in listed if labels_of(each).get("app") == "web"]

    async def use(self, member: str, usage: str) -> None:
        """Have every pod of a member use this much."""
        client = self.members[member].client
        for pod in await self.pods(member):
            place = ResourcePath(PODS, "default", name_of(pod))
            await edit(client, place, lambda each: with_metadata(each, annotations={USAGE: usage}))


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with running_fleet(tmp_path) as fleet, fleet.controllers():
        members = {name: await fleet.add_sim(name, nodes=1) for name in ("west", "east")}
        for name, member in members.items():
            await fleet.join(name, member)
        for name in members:
            await until_ready(fleet, name)
        await fleet.hub.client.create(ResourcePath(DEPLOYMENTS, "default"), web())
        await fleet.hub.client.create(ResourcePath(PROPAGATION, "default"), divided())
        yield Site(fleet, members)


@pytest_asyncio.fixture(params=[OURS, pytest.param(SEVERAL, marks=pytest.mark.slow)])
async def mixed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Site, AsyncExitStack]]:
    """West is reached by the hub, east by its agent alone; the stack ends that agent."""
    async with (
        running_fleet(tmp_path, hub_kind=request.param) as fleet,
        fleet.controllers(),
        AsyncExitStack() as agent,
    ):
        members = {name: await fleet.add_sim(name, nodes=1) for name in ("west", "east")}
        await fleet.join("west", members["west"])
        await register(fleet, "east", members["east"])
        await agent.enter_async_context(running_agent(members["east"]))
        for name in members:
            await until_ready(fleet, name)
        await fleet.hub.client.create(ResourcePath(DEPLOYMENTS, "default"), web())
        await fleet.hub.client.create(ResourcePath(PROPAGATION, "default"), divided())
        yield Site(fleet, members), agent


def web() -> Object:
    container = {"name": "web", "image": "web:1", "resources": {"requests": {"cpu": "100m"}}}
    metadata = {"labels": {"app": "web"}, "annotations": {USAGE: "90%"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": metadata, "spec": {"containers": [container]}},
        },
    }


def divided() -> Object:
    weights = [
        {"targetCluster": {"clusterNames": [name]}, "weight": 1} for name in ("west", "east")
    ]
    return {
        "apiVersion": f"{POLICIES}/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "web"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
            "placement": {
                "replicaScheduling": {
                    "replicaSchedulingType": "Divided",
                    "replicaDivisionPreference": "Weighted",
                    "weightPreference": {"staticWeightList": weights},
                }
            },
        },
    }


def autoscaler(**spec: Any) -> Object:
    at_once = {"stabilizationWindowSeconds": 0}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 30}}
    return {
        "apiVersion": "autoscaling.karmada.io/v1alpha1",
        "kind": "FederatedHPA",
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": 10,
            "metrics": [{"type": "Resource", "resource": cpu}],
            "behavior": {"scaleDown": at_once, "scaleUp": at_once},
            **spec,
        },
    }


async def test_busy_pods_of_all_clusters_get_company_and_idle_ones_lose_it(site: Site) -> None:
    hub = site.fleet.hub.client

    await hub.create(ResourcePath(FEDERATED_HPAS, "default"), autoscaler())

    # Two pods at three times their goal: six, in both clusters alike.
    await until_equal(site.replicas, 6)

    async def on_members() -> list[int]:
        return [len(await site.pods(name)) for name in ("west", "east")]

    await until_equal(on_members, [3, 3])

    async def rescaled() -> bool:
        events = await hub.list_objects(ResourcePath(EVENTS, "default"))
        return any(
            each["reason"] == "SuccessfulRescale"
            and each["involvedObject"]["kind"] == "FederatedHPA"
            and each["message"].startswith("New size: 6; reason: cpu resource utilization")
            for each in events
        )

    await until(rescaled)
    status = (await site.autoscaler())["status"]
    assert status["lastScaleTime"]
    assert (await site.condition("ScalingActive"))["reason"] == "ValidMetricFound"

    # A cluster that fell silent is not an idle one: nothing is taken away from the other.
    apis = site.members["west"].settings.server
    await move_cluster(hub, "west", "https://127.0.0.1:1")
    await site.use("east", "1%")

    async def east_alone_is_heard() -> bool:
        shown = find_at(await site.autoscaler(), "status", "currentMetrics") or [{}]
        used = find_at(shown[0], "resource", "current", "averageUtilization")
        message = (await site.condition("ScalingActive")).get("message", "")
        return used == 1 and "nothing is known of the pods in west" in message

    await until(east_alone_is_heard)
    assert await site.replicas() == 6
    assert (await site.autoscaler())["status"]["desiredReplicas"] == 6

    await move_cluster(hub, "west", apis)
    await site.use("west", "1%")

    await until_equal(site.replicas, 2)

    async def why_no_fewer() -> str:
        return str((await site.condition("ScalingLimited")).get("reason"))

    await until_equal(why_no_fewer, "TooFewReplicas")  # said behind the scaling itself


async def test_pods_of_a_pull_cluster_count_and_its_silence_takes_nothing_away(
    mixed: tuple[Site, AsyncExitStack],
) -> None:
    site, agent = mixed
    hub = site.fleet.hub.client
    await hub.create(ResourcePath(FEDERATED_HPAS, "default"), autoscaler(maxReplicas=6))
    await until_equal(site.replicas, 6)

    async def on_members() -> list[int]:
        return [len(await site.pods(name)) for name in ("west", "east")]

    await until_equal(on_members, [3, 3])

    async def seen() -> tuple[Any, bool]:
        """Return what pods use on average, and whether those of east are unknown."""
        shown = find_at(await site.autoscaler(), "status", "currentMetrics") or [{}]
        used = find_at(shown[0], "resource", "current", "averageUtilization")
        message = (await site.condition("ScalingActive")).get("message", "")
        return used, "nothing is known of the pods in east" in message

    await site.use("west", "30%")
    await site.use("east", "50%")
    await until_equal(seen, (40, False))

    # To who they are there, nothing else is shown; and the hub passes nothing else on.
    administrator = site.members["east"].settings
    somebody = replace(administrator.identity, impersonation=Impersonation(CONTROLLERS_ON_MEMBERS))
    as_there = replace(administrator, identity=somebody)
    async with client_for_test(as_there) as there:
        assert await there.list_objects(ResourcePath(PODS, "default"))
        with pytest.raises(Forbidden):
            await there.list_objects(ResourcePath(SECRETS, "default"))
    parts = part_of_hub(site.fleet.directory / "hub", "controllers")
    through_hub = proxied_settings(parts, await site.fleet.cluster("east"))
    async with client_for_test(through_hub) as there:
        assert await there.list_objects(ResourcePath(PODS, "default"))
        with pytest.raises(Forbidden, match="reach nothing else"):
            await there.list_objects(ResourcePath(SECRETS, "default"))

    await agent.aclose()
    await site.use("west", "1%")
    await site.use("east", "1%")
    await until_equal(seen, (1, True))
    assert await site.replicas() == 6
    assert (await site.autoscaler())["status"]["desiredReplicas"] == 6

    async with running_agent(site.members["east"]):
        await until_equal(site.replicas, 2)

        # One whose view the hub's operator forbids is as unknown as one that is away.
        forbidden = {VIEW_ANNOTATION: "forbidden"}
        await edit(
            hub, cluster_path("east"), lambda each: with_metadata(each, annotations=forbidden)
        )

        async def forbids() -> bool:
            return "forbids its view" in (await site.condition("ScalingActive")).get("message", "")

        await until(forbids)
        assert await site.replicas() == 2


async def test_an_autoscaler_says_what_it_cannot_scale_or_measure(site: Site) -> None:
    hub = site.fleet.hub.client
    absent = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "absent"}
    await hub.create(ResourcePath(FEDERATED_HPAS, "default"), autoscaler(scaleTargetRef=absent))

    async def said() -> tuple[Any, Any]:
        able = await site.condition("AbleToScale")
        return able.get("status"), able.get("reason")

    await until_equal(said, ("False", "FailedGetScaleTargetRef"))

    queue = {
        "type": "Pods",
        "pods": {
            "metric": {"name": "requests_per_second"},
            "target": {"type": "AverageValue", "averageValue": "10"},
        },
    }
    found = {**absent, "name": "web"}
    await edit(
        hub,
        AUTOSCALER,
        lambda each: {
            **each,
            "spec": {**each["spec"], "scaleTargetRef": found, "metrics": [queue]},
        },
    )

    async def unmeasured() -> Any:
        return (await site.condition("ScalingActive")).get("reason")

    await until_equal(unmeasured, "FailedGetPodsMetric")
    assert "requests_per_second" in (await site.condition("ScalingActive"))["message"]
    assert await site.replicas() == 2

    # Neither of two for the same pods scales them, and both say which they are.
    second = {**autoscaler(), "metadata": {"name": "again"}}
    await hub.create(ResourcePath(FEDERATED_HPAS, "default"), second)
    await until_equal(unmeasured, "AmbiguousSelector")
    assert "FederatedHPAs: again, web" in (await site.condition("ScalingActive"))["message"]
    await delete(hub, ResourcePath(FEDERATED_HPAS, "default", "again"))
    await until_equal(unmeasured, "FailedGetPodsMetric")
    assert await site.replicas() == 2


async def test_a_template_follows_what_autoscalers_of_its_members_do(site: Site) -> None:
    hub = site.fleet.hub.client
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 30}}
    own = {
        **autoscaler(maxReplicas=3, minReplicas=1, metrics=[{"type": "Resource", "resource": cpu}]),
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
    }
    selected = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "name": "web"}
    await hub.create(ResourcePath(AUTOSCALERS, "default"), own)
    both = {**divided(), "metadata": {"name": "own"}}
    both["spec"] = {"resourceSelectors": [selected], "placement": {}}
    await hub.create(ResourcePath(PROPAGATION, "default"), both)

    async def label() -> Any:
        return labels_of(await hub.get(WEB)).get(RETAIN_REPLICAS)

    # One pod each, three times as busy as it should be: three each, and the template says six.
    await until_equal(label, "true")
    await until_equal(site.replicas, 6)

    await delete(hub, ResourcePath(AUTOSCALERS, "default", "web"))
    await until_equal(label, None)
    assert await site.replicas() == 6
