"""Deployments in a cluster whose time stands still until it is turned."""

from collections.abc import Callable

import pytest
from tests.unit.sim.pretend_api import PretendCluster, pretend_cluster
from tests.unit.sim.workload_objects import deployment, template

from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, annotations_of, find_at, name_of, with_value

REVISION = "deployment.kubernetes.io/revision"


async def started(cluster: PretendCluster, wanted: Object) -> Object:
    made = await cluster.api.create(wanted)
    await cluster.settle()
    return made


async def test_a_deployment_runs_as_many_ready_pods_as_it_asks_for() -> None:
    async with pretend_cluster() as cluster:
        await started(cluster, deployment(replicas=3))

        web = cluster.get("Deployment", "web")
        assert cluster.ready_count() == 3
        assert find_at(web, "status", "readyReplicas") == 3
        assert find_at(web, "status", "observedGeneration") == 1
        assert annotations_of(web)[REVISION] == "1"
        progressing = find_condition(find_at(web, "status", "conditions"), "Progressing")
        assert progressing is not None
        assert progressing["reason"] == "NewReplicaSetAvailable"


async def test_every_running_pod_has_a_node_and_an_address_of_its_own() -> None:
    async with pretend_cluster() as cluster:
        await started(cluster, deployment(replicas=7))

        addresses = {find_at(pod, "status", "podIP") for pod in cluster.pods()}
        nodes = {find_at(pod, "spec", "nodeName") for pod in cluster.pods()}
        assert len(addresses) == 7
        assert nodes == {"east-node-0", "east-node-1", "east-node-2"}


@pytest.mark.parametrize(
    "change",
    [
        lambda web: with_value(web, {"team": "blue"}, "metadata", "labels"),
        lambda web: with_value(web, {"note": "hello"}, "metadata", "annotations"),
        lambda web: with_value(web, 30, "spec", "progressDeadlineSeconds"),
        lambda web: with_value(web, 5, "spec", "revisionHistoryLimit"),
        lambda web: with_value(web, {"type": "Recreate"}, "spec", "strategy"),
        lambda web: with_value(web, 5, "spec", "replicas"),
        lambda web: with_value(web, 1, "spec", "minReadySeconds"),
    ],
    ids=["labels", "annotations", "deadline", "history", "strategy", "replicas", "min-ready"],
)
async def test_what_is_not_the_template_replaces_no_pod(
    change: Callable[[Object], Object],
) -> None:
    async with pretend_cluster() as cluster:
        await started(cluster, deployment(replicas=3))
        before = cluster.pod_names()

        await cluster.api.update(change(cluster.get("Deployment", "web")))
        await cluster.settle()

        assert before <= cluster.pod_names()
        assert len(cluster.all("ReplicaSet")) == 1


@pytest.mark.parametrize(
    "changed",
    [template("web:2"), template(annotations={"kubectl.kubernetes.io/restartedAt": "now"})],
    ids=["image", "restart"],
)
async def test_a_template_change_replaces_every_pod(changed: Object) -> None:
    async with pretend_cluster() as cluster:
        web = await started(cluster, deployment(replicas=3))
        before = cluster.pod_names()

        await cluster.edit(web, changed, "spec", "template")
        await cluster.settle()

        assert cluster.ready_count() == 3
        assert not before & cluster.pod_names()


async def test_a_rollout_never_has_fewer_ready_pods_or_more_pods_than_its_limits_allow() -> None:
    limits = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 2}, "type": "RollingUpdate"}
    async with pretend_cluster() as cluster:
        web = await started(cluster, deployment(replicas=8, strategy=limits))

        await cluster.edit(web, template("web:2"), "spec", "template")
        seen: list[tuple[int, int]] = []
        for _ in range(200):
            await cluster.settle(0.05)
            seen.append((cluster.ready_count(), len(cluster.pods())))

        assert min(ready for ready, _ in seen) >= 6
        assert max(total for _, total in seen) <= 9
        assert find_at(cluster.get("Deployment", "web"), "status", "updatedReplicas") == 8


async def test_a_deployment_that_recreates_has_no_old_pod_left_when_the_new_ones_come() -> None:
    async with pretend_cluster() as cluster:
        web = await started(cluster, deployment(replicas=3, strategy={"type": "Recreate"}))
        before = cluster.pod_names()

        await cluster.edit(web, template("web:2"), "spec", "template")
        for _ in range(100):
            await cluster.settle(0.05)
            there = {name_of(pod) for pod in cluster.all("Pod")}
            assert not (there & before and there - before)
        await cluster.settle()

        assert cluster.ready_count() == 3


async def test_going_back_reuses_the_old_replica_set_under_a_new_revision() -> None:
    async with pretend_cluster() as cluster:
        web = await started(cluster, deployment(replicas=2))
        (first,) = cluster.all("ReplicaSet")
        await cluster.edit(web, template("web:2"), "spec", "template")
        await cluster.settle()

        await cluster.edit(web, template("web:1"), "spec", "template")
        await cluster.settle()

        sizes = {name_of(each): each["spec"]["replicas"] for each in cluster.all("ReplicaSet")}
        assert sizes[name_of(first)] == 2
        assert sum(sizes.values()) == 2
        back = cluster.get("ReplicaSet", name_of(first))
        assert annotations_of(back)[REVISION] == "3"
        assert annotations_of(cluster.get("Deployment", "web"))[REVISION] == "3"


async def test_a_paused_deployment_scales_but_rolls_nothing_out() -> None:
    async with pretend_cluster() as cluster:
        web = await started(cluster, deployment(replicas=2))
        before = cluster.pod_names()

        await cluster.edit(web, True, "spec", "paused")
        await cluster.edit(web, template("web:2"), "spec", "template")
        await cluster.edit(web, 3, "spec", "replicas")
        await cluster.settle()

        assert before < cluster.pod_names()
        assert len(cluster.all("ReplicaSet")) == 1


async def test_only_so_much_history_is_kept() -> None:
    async with pretend_cluster() as cluster:
        web = await started(cluster, deployment(replicas=1, revisionHistoryLimit=2))
        for number in range(2, 7):
            await cluster.edit(web, template(f"web:{number}"), "spec", "template")
            await cluster.settle()

        kept = {annotations_of(each)[REVISION] for each in cluster.all("ReplicaSet")}
        assert kept == {"4", "5", "6"}


async def test_a_rollout_whose_pods_never_become_ready_is_overdue() -> None:
    broken = template("web:2", annotations={"sim.clusterspace.io/ready-after": "never"})
    async with pretend_cluster() as cluster:
        web = await started(cluster, deployment(replicas=2, progressDeadlineSeconds=30))

        await cluster.edit(web, broken, "spec", "template")
        await cluster.settle(90)

        conditions = find_at(cluster.get("Deployment", "web"), "status", "conditions")
        progressing = find_condition(conditions, "Progressing")
        assert progressing is not None
        assert progressing["reason"] == "ProgressDeadlineExceeded"
        assert cluster.ready_count() >= 2


async def test_a_settled_cluster_writes_nothing_but_heartbeats() -> None:
    async with pretend_cluster() as cluster:
        await started(cluster, deployment(replicas=3))
        before = len(cluster.api.history)

        await cluster.settle(120)

        assert {each.split("/")[0] for each in cluster.api.history[before:]} == {"update Lease"}
