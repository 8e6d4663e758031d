"""CronFederatedHPAs against a live hub; metrics APIs of members, as their servers answer."""

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
import pytest
import pytest_asyncio
from tests.component.reconcilers import following

from clusterspace.apis.autoscalers import CRON_FEDERATED_HPAS, FEDERATED_HPAS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.controllers.controller import Request, RequeueAfter
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import Invalid
from clusterspace.fleet.autoscaling.cron_federated_hpa import CronFederatedHpaController
from clusterspace.fleet.autoscaling.measures import MemberPods, Pod, read_usage, read_values
from clusterspace.fleet.autoscaling.metrics import (
    CannotScale,
    Target,
    by_external_metric,
    by_object_metric,
    by_pods_metric,
    by_usage,
)
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.resources import GroupVersionResource, ResourceInfo
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.faults import FaultProxy, Reply, fault_proxy
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.steps import edit, stop

DEPLOYMENTS: Final = GroupVersionResource("apps", "v1", "deployments")
WEB: Final = ResourcePath(DEPLOYMENTS, "default", "web")
CRON: Final = ResourcePath(CRON_FEDERATED_HPAS, "default", "hours")
BOUNDS: Final = ResourcePath(FEDERATED_HPAS, "default", "web")
REQUEST: Final = Request("hours", "default")
INGRESSES: Final = ResourceInfo(
    group="networking.k8s.io",
    version="v1",
    kind="Ingress",
    plural="ingresses",
    singular="ingress",
    namespaced=True,
    verbs=("get",),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClusterClient]:
    async with (
        hub_for_test(tmp_path_factory.mktemp("hub")) as settings,
        client_for_test(settings) as client,
    ):
        yield client


def deployment(replicas: int) -> Object:
    labels = {"app": "web"}
    containers = [{"name": "web", "image": "web:1"}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }


def cron_of(target: Object, *rules: Object) -> Object:
    return {
        "apiVersion": "autoscaling.karmada.io/v1alpha1",
        "kind": "CronFederatedHPA",
        "metadata": {"name": "hours"},
        "spec": {"scaleTargetRef": target, "rules": list(rules)},
    }


TO_WEB: Final = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
TO_BOUNDS: Final = {
    "apiVersion": "autoscaling.karmada.io/v1alpha1",
    "kind": "FederatedHPA",
    "name": "web",
}


@pytest.mark.asyncio(loop_scope="module")
async def test_rules_scale_workloads_and_bounds_when_their_times_come(hub: ClusterClient) -> None:
    clock = ManualClock()
    caches, events = HubCaches(hub), EventRecorder(hub, component="test", clock=clock)
    controller = CronFederatedHpaController(hub, caches, events, clock)
    informers = following(caches)
    try:
        await hub.create(ResourcePath(DEPLOYMENTS, "default"), deployment(1))
        rule = {"name": "each-minute", "schedule": "* * * * *", "targetReplicas": 4}
        await hub.create(ResourcePath(CRON_FEDERATED_HPAS, "default"), cron_of(TO_WEB, rule))

        again = await controller.reconcile(REQUEST)
        assert isinstance(again, RequeueAfter)
        assert 0 < again.seconds <= 61
        assert find_at(await hub.get(WEB), "spec", "replicas") == 1

        await clock.advance(again.seconds)
        await controller.reconcile(REQUEST)
        assert find_at(await hub.get(WEB), "spec", "replicas") == 4
        history = (await hub.get(CRON))["status"]["executionHistories"][0]
        assert history["successfulExecutions"][0]["appliedReplicas"] == 4
        assert history["ruleName"] == "each-minute"

        # What is due for something that is not there fails, says so, and comes again.
        absent = {**TO_WEB, "name": "absent"}
        await edit(
            hub, CRON, lambda each: {**each, "spec": {**each["spec"], "scaleTargetRef": absent}}
        )
        await clock.advance(61)
        await controller.reconcile(REQUEST)
        history = (await hub.get(CRON))["status"]["executionHistories"][0]
        assert 'deployments.apps "absent" not found' in history["failedExecutions"][0]["message"]

        bounds = {**cron_of(TO_WEB), "kind": "FederatedHPA", "metadata": {"name": "web"}}
        await hub.create(
            ResourcePath(FEDERATED_HPAS, "default"),
            {**bounds, "spec": {"scaleTargetRef": TO_WEB, "minReplicas": 1, "maxReplicas": 2}},
        )
        night = {
            "name": "each-minute",
            "schedule": "* * * * *",
            "targetMinReplicas": 3,
            "targetMaxReplicas": 9,
        }
        await edit(
            hub,
            CRON,
            lambda each: {**each, "spec": {"scaleTargetRef": TO_BOUNDS, "rules": [night]}},
        )
        await clock.advance(61)
        await controller.reconcile(REQUEST)
        spec = (await hub.get(BOUNDS))["spec"]
        assert (spec["minReplicas"], spec["maxReplicas"]) == (3, 9)

        await edit(
            hub,
            CRON,
            lambda each: {**each, "spec": {**each["spec"], "rules": [{**night, "suspend": True}]}},
        )
        await controller.reconcile(REQUEST)
        history = (await hub.get(CRON))["status"]["executionHistories"][0]
        assert "nextExecutionTime" not in history
    finally:
        await stop(*informers)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_schedule_nobody_understands_is_refused_by_the_hub(hub: ClusterClient) -> None:
    wrong = cron_of(TO_WEB, {"name": "a", "schedule": "at noon", "targetReplicas": 1})

    with pytest.raises(Invalid, match=r"spec.rules\[0\].schedule"):
        await hub.create(ResourcePath(CRON_FEDERATED_HPAS, "default"), wrong)


# -- metrics ---------------------------------------------------------------------------------------


def answered(proxy: FaultProxy, path: str, *items: Object) -> None:
    body = msgspec.json.encode({"kind": "MetricValueList", "metadata": {}, "items": list(items)})
    proxy.inject(Reply(200, body), when=lambda request: request.path == path, times=None)


def target_of(*members: MemberPods, replicas: int) -> Target:
    scale = {"spec": {"replicas": replicas}}
    return Target(WEB, scale, "app=web", {"web": {"cpu": 100}}, members)


def member_at(client: ClusterClient | None, name: str, *pods: str, trouble: str = "") -> MemberPods:
    known = tuple(Pod(each, is_ready=True, requests={"web": {"cpu": 100}}) for each in pods)
    return MemberPods(name, len(pods) or 2, known, client=client, trouble=trouble)


@pytest.mark.asyncio(loop_scope="module")
async def test_metrics_of_adapters_are_counted_over_clusters(hub: ClusterClient) -> None:
    custom = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default"
    async with fault_proxy(hub.connection) as proxy, client_for_test(proxy.settings) as client:
        west = member_at(client, "west", "a", "b")
        away = member_at(None, "away", trouble="no route to it")
        answered(
            proxy,
            f"{custom}/pods/*/rps",
            {"describedObject": {"name": "a"}, "value": "30"},
            {"describedObject": {"name": "b"}, "value": "50"},
        )
        answered(proxy, f"{custom}/ingresses.networking.k8s.io/shop/rps", {"value": "90"})
        external = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue"
        answered(proxy, external, {"value": "40"}, {"value": "20500m"})

        def source(**fields: Any) -> Object:
            return {"metric": {"name": "rps"}, **fields}

        average = {"type": "AverageValue", "averageValue": "20"}
        pods = await by_pods_metric(source(target=average), {}, target_of(west, replicas=2))
        assert (pods.replicas, pods.shown["pods"]["current"]) == (4, {"averageValue": "40000m"})

        shop = {"kind": "Ingress", "name": "shop"}
        whole = {"type": "Value", "value": "30"}
        one = await by_object_metric(
            source(target=whole, describedObject=shop), INGRESSES, target_of(west, replicas=2)
        )
        both = await by_object_metric(
            source(target=whole, describedObject=shop),
            INGRESSES,
            target_of(west, member_at(client, "east", "c", "d"), replicas=4),
        )
        assert (one.replicas, both.replicas) == (6, 24)

        queue = {
            "metric": {"name": "queue"},
            "target": {"type": "AverageValue", "averageValue": "10"},
        }
        seen = await by_external_metric(queue, target_of(west, replicas=2))
        twice = await by_external_metric(
            queue, target_of(west, member_at(client, "east", "c", "d"), replicas=4)
        )
        # Each cluster sees the same queue: it does not get longer by being seen twice.
        assert (seen.replicas, twice.replicas) == (7, 7)

        # Less than now is only asked for when every cluster was heard.
        long_enough = {**whole, "value": "900"}
        partly = await by_object_metric(
            source(target=long_enough, describedObject=shop),
            INGRESSES,
            target_of(west, away, replicas=4),
        )
        assert partly.replicas == 4

        with pytest.raises(CannotScale, match=r"no cluster tells of rps .*no route to it"):
            await by_pods_metric(source(target=average), {}, target_of(away, replicas=2))


@pytest.mark.asyncio(loop_scope="module")
async def test_a_member_that_talks_nonsense_is_one_of_which_nothing_is_known(
    hub: ClusterClient,
) -> None:
    path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    for items in (
        [{"metadata": {"name": "a"}, "containers": "many"}],
        [{"metadata": {"name": "a"}, "containers": [{"name": "web", "usage": {"cpu": "lots"}}]}],
        ["a", 1, None],
    ):
        async with fault_proxy(hub.connection) as proxy, client_for_test(proxy.settings) as client:
            body = msgspec.json.encode({"items": items})
            proxy.inject(Reply(200, body), when=lambda r: r.path == path, times=None)
            west = member_at(client, "west", "a")
            await read_usage(west, "default", "app=web")
            pods = ("namespaces", "default", "pods")
            assert await read_values(west, "metrics.k8s.io/v1beta1", pods, "") == {}
            with pytest.raises(CannotScale, match="no metrics returned"):
                by_usage("Resource", cpu, {}, target_of(west, replicas=1))
