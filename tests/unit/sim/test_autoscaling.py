"""Autoscalers: replicas by the load that pods say they have."""

from typing import Any

from tests.unit.sim.pretend_api import PretendCluster, pretend_cluster
from tests.unit.sim.workload_objects import deployment, template

from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at
from clusterspace.sim.api import Change, Mirror
from clusterspace.sim.autoscaling import AutoscalerController


def loaded(cpu: str) -> Object:
    made = template(annotations={"sim.clusterspace.io/cpu-usage": cpu})
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    return made


def autoscaler(**spec: Any) -> Object:
    target = {"type": "Utilization", "averageUtilization": 50}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
            **spec,
        },
    }


def replicas(cluster: PretendCluster) -> int:
    return cluster.get("Deployment", "web")["spec"]["replicas"]


def reason(cluster: PretendCluster, kind: str) -> str:
    conditions = find_at(cluster.get("HorizontalPodAutoscaler", "web"), "status", "conditions")
    return str((find_condition(conditions, kind) or {}).get("reason"))


async def test_a_busy_workload_grows_until_its_load_is_right_and_no_further() -> None:
    async with pretend_cluster() as cluster:
        await cluster.api.create(deployment(replicas=2, template=loaded("90%")))
        await cluster.settle(5)
        await cluster.api.create(autoscaler())
        await cluster.settle(5)
        assert replicas(cluster) == 4

        await cluster.settle(120)

        status = cluster.get("HorizontalPodAutoscaler", "web")["status"]
        assert replicas(cluster) == status["desiredReplicas"] == 10
        assert status["currentMetrics"][0]["resource"]["current"]["averageUtilization"] == 90
        assert reason(cluster, "ScalingActive") == "ValidMetricFound"
        assert reason(cluster, "ScalingLimited") == "TooManyReplicas"


async def test_an_idle_workload_shrinks_only_after_its_window() -> None:
    async with pretend_cluster() as cluster:
        web = await cluster.api.create(deployment(replicas=2, template=loaded("90%")))
        await cluster.settle(5)
        await cluster.api.create(autoscaler(maxReplicas=4))
        await cluster.settle(60)
        assert replicas(cluster) == 4

        await cluster.edit(web, loaded("10%"), "spec", "template")
        await cluster.settle(200)
        assert replicas(cluster) == 4
        assert reason(cluster, "AbleToScale") == "ScaleDownStabilized"

        await cluster.settle(200)

        assert replicas(cluster) == 1


async def test_what_cannot_be_measured_is_said_and_nothing_is_scaled() -> None:
    external = {"type": "External", "external": {"metric": {"name": "queue"}, "target": {}}}
    async with pretend_cluster() as cluster:
        await cluster.api.create(deployment(replicas=2))
        await cluster.api.create(autoscaler(metrics=[external]))
        await cluster.settle(60)

        assert replicas(cluster) == 2
        assert reason(cluster, "ScalingActive") == "FailedGetExternalMetric"


async def test_a_workload_that_was_switched_off_stays_off() -> None:
    async with pretend_cluster() as cluster:
        await cluster.api.create(deployment(replicas=0, template=loaded("90%")))
        await cluster.api.create(autoscaler())
        await cluster.settle(60)

        assert replicas(cluster) == 0
        assert reason(cluster, "ScalingActive") == "ScalingDisabled"


def test_an_autoscaler_is_looked_at_although_kubernetes_gives_it_no_generation() -> None:
    controller = AutoscalerController(Mirror())
    made, told = autoscaler(), autoscaler(maxReplicas=3)
    said = {**made, "status": {"desiredReplicas": 2}}

    def wakes(before: Object | None, after: Object) -> bool:
        return bool(list(controller.requests(Change(before, after))))

    assert wakes(None, made)
    assert wakes(made, told)
    assert not wakes(made, said)


async def test_a_pod_without_a_request_leaves_the_bounds_alone_to_decide() -> None:
    async with pretend_cluster() as cluster:
        await cluster.api.create(deployment(replicas=1, template=loaded("90%")))
        unsized = deployment(replicas=3, template=template())
        unsized["metadata"]["name"] = "other"
        await cluster.api.create(unsized)
        await cluster.settle(5)
        await cluster.api.create(autoscaler(minReplicas=2))
        await cluster.settle(60)

        assert replicas(cluster) == 2
        assert reason(cluster, "ScalingActive") == "FailedGetResourceMetric"
