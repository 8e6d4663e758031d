"""CronJobs: Jobs at set times."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.unit.sim.pretend_api import PretendCluster, pretend_cluster
from tests.unit.sim.workload_objects import job

from clusterspace.kube.objects import Object, annotations_of, find_at, name_of, with_value
from clusterspace.sim.workloads.cron_jobs import Schedule


def moment(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("* * * * *", "2026-01-01T00:00:30", "2026-01-01T00:01:00"),
        ("*/15 * * * *", "2026-01-01T00:00:00", "2026-01-01T00:15:00"),
        ("5/20 * * * *", "2026-01-01T00:26:00", "2026-01-01T00:45:00"),
        ("0 9-17 * * mon-fri", "2026-01-02T18:00:00", "2026-01-05T09:00:00"),
        ("0 0 31 * *", "2026-02-01T00:00:00", "2026-03-31T00:00:00"),
        ("0 0 13 * fri", "2026-01-03T00:00:00", "2026-01-09T00:00:00"),
        ("0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("@hourly", "2026-01-01T00:00:00", "2026-01-01T01:00:00"),
        ("@every 90s", "2026-01-01T00:00:00", "2026-01-01T00:01:30"),
    ],
)
def test_a_schedule_says_when_it_is_next(schedule: str, after: str, expected: str) -> None:
    found = Schedule.parse(schedule).after(moment(after))
    assert found is not None
    assert datetime.fromtimestamp(found, UTC).isoformat()[:19] == expected


def test_a_schedule_keeps_to_its_zone_and_one_that_never_comes_ends() -> None:
    tokyo = Schedule.parse("0 9 * * *", ZoneInfo("Asia/Tokyo"))
    assert tokyo.after(moment("2026-01-01T10:00:00", "Asia/Tokyo")) == moment("2026-01-02T00:00:00")
    assert Schedule.parse("0 0 30 2 *").after(moment("2026-01-01T00:00:00")) is None


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
