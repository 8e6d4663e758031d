"""Jobs: pods that end."""

from typing import Any

from tests.unit.sim.pretend_api import PretendCluster, pretend_cluster
from tests.unit.sim.workload_objects import job

from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, annotations_of, find_at, with_value
from clusterspace.sim.workloads.jobs import TRACKING, Backoff, plan_job

INDEX = "batch.kubernetes.io/job-completion-index"


def status_of(cluster: PretendCluster) -> Any:
    return cluster.get("Job", "web")["status"]


def failing(wanted: Object) -> Object:
    notes = {"sim.clusterspace.io/exit-code": "1"}
    return with_value(wanted, notes, "spec", "template", "metadata", "annotations")


async def test_a_job_ends_when_enough_pods_have_succeeded() -> None:
    async with pretend_cluster() as cluster:
        await cluster.api.create(job(completions=5, parallelism=2))
        most = 0
        for _ in range(300):
            await cluster.settle(0.1)
            most = max(most, len(cluster.pods()))

        assert most == 2
        assert status_of(cluster)["succeeded"] == 5
        assert is_true(status_of(cluster)["conditions"], "Complete")
        assert status_of(cluster)["completionTime"]


async def test_a_job_whose_pods_fail_gives_up_after_its_retries() -> None:
    async with pretend_cluster() as cluster:
        await cluster.api.create(failing(job(completions=1, backoffLimit=2)))
        await cluster.settle()

        assert status_of(cluster)["failed"] == 3
        assert is_true(status_of(cluster)["conditions"], "Failed")


async def test_a_suspended_job_runs_nothing_until_it_is_resumed() -> None:
    async with pretend_cluster() as cluster:
        held = await cluster.api.create(job(completions=1, suspend=True))
        await cluster.settle()
        assert cluster.all("Pod") == []

        await cluster.edit(held, False, "spec", "suspend")
        await cluster.settle()

        assert is_true(status_of(cluster)["conditions"], "Complete")


async def test_an_indexed_job_runs_every_index_once() -> None:
    async with pretend_cluster() as cluster:
        await cluster.api.create(job(completions=3, parallelism=3, completionMode="Indexed"))
        await cluster.settle()

        indexes = sorted(annotations_of(pod)[INDEX] for pod in cluster.all("Pod"))
        assert indexes == ["0", "1", "2"]
        assert status_of(cluster)["completedIndexes"] == "0-2"


async def test_a_job_past_its_deadline_fails_and_stops_its_pods() -> None:
    endless = with_value(
        job(completions=1, activeDeadlineSeconds=5),
        {"sim.clusterspace.io/run-for": "1h"},
        "spec",
        "template",
        "metadata",
        "annotations",
    )
    async with pretend_cluster() as cluster:
        await cluster.api.create(endless)
        await cluster.settle(20)

        assert is_true(status_of(cluster)["conditions"], "Failed")
        assert find_at(status_of(cluster), "conditions")[0]["reason"] == "DeadlineExceeded"
        assert cluster.pods() == []


async def test_a_finished_job_goes_when_its_time_to_live_is_over() -> None:
    async with pretend_cluster() as cluster:
        await cluster.api.create(job(completions=1, ttlSecondsAfterFinished=30))
        await cluster.settle(10)
        assert len(cluster.all("Job")) == 1

        await cluster.settle(40)

        assert cluster.all("Job") == []


def test_pods_that_went_with_a_success_nobody_wrote_down_have_not_failed() -> None:
    policy = {"rules": [{"succeededCount": 2}]}
    wanted = job(completions=4, parallelism=4, completionMode="Indexed", successPolicy=policy)
    ending = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    pods = [
        pod_of_index(index, phase, **({} if phase == "Succeeded" else ending))
        for index, phase in enumerate(("Pending", "Succeeded", "Succeeded", "Running"))
    ]

    planned = plan_job(wanted, pods, Backoff(), now=0.0)

    assert planned.status is not None
    status = planned.status["status"]
    assert is_true(status["conditions"], "SuccessCriteriaMet")
    assert (status["succeeded"], status["failed"]) == (2, 0)
    assert status["uncountedTerminatedPods"] == {}


def pod_of_index(index: int, phase: str, **metadata: Any) -> Object:
    identity = {"name": f"web-{index}", "uid": f"uid-{index}", "annotations": {INDEX: str(index)}}
    made = {"creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": [TRACKING]}
    return {"metadata": {**identity, **made, **metadata}, "status": {"phase": phase}}
