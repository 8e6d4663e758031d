"""CronJobs: Jobs at set times."""

from typing import Any

from tests.unit.sim.pretend_api import PretendCluster, pretend_cluster
from tests.unit.sim.workload_objects import job

from clusterspace.kube.objects import Object, annotations_of, find_at, name_of, with_value


def cron_job(run_for: str = "10s", **spec: Any) -> Object:
    template = with_value(
        job(completions=1),
        {"sim.clusterspace.io/run-for": run_for},
        "spec",
        "template",
        "metadata",
        "annotations",
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "tick", "namespace": "default"},
        "spec": {
            "schedule": "* * * * *",
            "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": template["spec"]},
            **spec,
        },
    }


def jobs(cluster: PretendCluster) -> list[str]:
    return sorted(name_of(each) for each in cluster.all("Job"))


async def test_a_job_is_made_every_minute_and_only_so_many_are_kept() -> None:
    async with pretend_cluster() as cluster:
        await cluster.api.create(cron_job(successfulJobsHistoryLimit=2))
        await cluster.settle(330)

        status = cluster.get("CronJob", "tick")["status"]
        assert len(jobs(cluster)) in (2, 3)
        newest = cluster.get("Job", jobs(cluster)[-1])
        annotation = "batch.kubernetes.io/cronjob-scheduled-timestamp"
        assert annotations_of(newest)[annotation] == status["lastScheduleTime"]
        assert status["lastSuccessfulTime"]


async def test_overlapping_jobs_are_allowed_forbidden_or_replaced() -> None:
    counts: dict[str, int] = {}
    for policy in ("Allow", "Forbid", "Replace"):
        async with pretend_cluster() as cluster:
            await cluster.api.create(cron_job("1h", concurrencyPolicy=policy))
            await cluster.settle(190)
            counts[policy] = len(jobs(cluster))
            active = find_at(cluster.get("CronJob", "tick"), "status", "active")
            assert sorted(each["name"] for each in active) == jobs(cluster)
    assert counts == {"Allow": 3, "Forbid": 1, "Replace": 1}


async def test_a_suspended_one_does_nothing() -> None:
    async with pretend_cluster() as cluster:
        await cluster.api.create(cron_job(suspend=True))
        await cluster.settle(300)

        assert jobs(cluster) == []
