"""FederatedHPAs over two clusters: more where pods are busy, and less only where all are known."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest_asyncio

from clusterspace.apis.autoscalers import FEDERATED_HPAS
from clusterspace.apis.policies import GROUP as POLICIES
from clusterspace.apis.stamps import RETAIN_REPLICAS
from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.events import EVENTS
from clusterspace.fleet.autoscaling.measures import PODS
from clusterspace.fleet.propagation.scale_targets import AUTOSCALERS
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, labels_of, name_of, with_metadata
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.stage import Fleet, Side, move_cluster, running_fleet, until_ready
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
    assert (await site.condition("ScalingLimited"))["reason"] == "TooFewReplicas"


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
