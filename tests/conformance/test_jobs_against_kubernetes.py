"""Jobs on the simulated member and on Kubernetes: the same pods end, the same is said of them."""

from typing import Any

import pytest
from tests.conformance.controller_stage import Room

from clusterspace.kube.objects import Object, annotations_of, find_at, metadata_of, name_of
from clusterspace.testing.steps import until, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATIENCE = 60.0
INDEX = "batch.kubernetes.io/job-completion-index"


def job(**spec: Any) -> Object:
    containers = [{"name": "web", "image": "web:1"}]
    template = {"spec": {"containers": containers, "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work"},
        "spec": {"template": template, **spec},
    }


async def status(room: Room) -> dict[str, Any]:
    """Return what a Job says of itself, but for times."""
    told: dict[str, Any] = dict((await room.get("Job", "work")).get("status") or {})
    for field in ("startTime", "completionTime"):
        if field in told:
            told[field] = "set"
    told["conditions"] = [
        (each["type"], each["status"], each.get("reason", ""))
        for each in told.get("conditions", ())
    ]
    return {key: value for key, value in told.items() if value not in (0, {}, [])}


async def active(room: Room) -> list[Object]:
    found = [
        pod
        for pod in await room.all("Pod")
        if find_at(pod, "status", "phase") in ("Pending", "Running")
        and "deletionTimestamp" not in metadata_of(pod)
    ]
    return sorted(found, key=lambda pod: annotations_of(pod).get(INDEX, ""))


async def started(room: Room, count: int) -> list[Object]:
    async def enough() -> list[Object]:
        found = await active(room)
        return found if len(found) == count else []

    return await until(enough, PATIENCE, explain=lambda: active(room))


async def test_what_succeeded_is_counted_though_its_pod_is_deleted(room: Room) -> None:
    await room.create(job(completions=3, parallelism=2))
    first, second = await started(room, 2)
    await until_equal(lambda: status(room), {"active": 2, "startTime": "set"}, PATIENCE)
    assert metadata_of(first)["finalizers"] == ["batch.kubernetes.io/job-tracking"]

    await room.end_pod(name_of(first))
    (third,) = await _others(room, first, second)
    await until_equal(
        lambda: status(room), {"active": 2, "succeeded": 1, "startTime": "set"}, PATIENCE
    )
    await room.delete("Pod", name_of(first))
    for each in (second, third):
        await room.end_pod(name_of(each))

    reached = "CompletionsReached"
    await until_equal(
        lambda: status(room),
        {
            "succeeded": 3,
            "startTime": "set",
            "completionTime": "set",
            "conditions": [("SuccessCriteriaMet", "True", reached), ("Complete", "True", reached)],
        },
        PATIENCE,
    )
    assert not any(metadata_of(each).get("finalizers") for each in await room.all("Pod"))


async def _others(room: Room, *known: Object) -> list[Object]:
    names = {name_of(each) for each in known}

    async def found() -> list[Object]:
        return [each for each in await active(room) if name_of(each) not in names]

    return await until(found, PATIENCE)


async def test_a_job_fails_when_its_pods_failed_too_often(room: Room) -> None:
    await room.create(job(backoffLimit=0, parallelism=2, completions=2))
    first, _ = await started(room, 2)

    await room.end_pod(name_of(first), exit_code=1)

    exceeded = "BackoffLimitExceeded"
    await until_equal(
        lambda: status(room),
        {
            "failed": 2,
            "startTime": "set",
            "conditions": [("FailureTarget", "True", exceeded), ("Failed", "True", exceeded)],
        },
        PATIENCE,
    )


@pytest.mark.parametrize("action", ["FailJob", "Ignore", "Count"])
async def test_a_failure_policy_decides_by_exit_code(room: Room, action: str) -> None:
    rule = {"action": action, "onExitCodes": {"operator": "In", "values": [42]}}
    await room.create(job(backoffLimit=0, podFailurePolicy={"rules": [rule]}))
    (first,) = await started(room, 1)

    await room.end_pod(name_of(first), exit_code=42)

    policy, exceeded = "PodFailurePolicy", "BackoffLimitExceeded"
    expected = {
        "FailJob": {
            "failed": 1,
            "startTime": "set",
            "conditions": [("FailureTarget", "True", policy), ("Failed", "True", policy)],
        },
        "Count": {
            "failed": 1,
            "startTime": "set",
            "conditions": [("FailureTarget", "True", exceeded), ("Failed", "True", exceeded)],
        },
        "Ignore": {"active": 1, "startTime": "set"},
    }
    if action == "Ignore":
        await _others(room, first)
    await until_equal(lambda: status(room), expected[action], PATIENCE)
    if action == "FailJob":
        failed = find_at(await room.get("Job", "work"), "status", "conditions")[0]["message"]
        assert failed == (
            f"Container web for pod {room.namespace}/{name_of(first)} failed with exit code 42 "
            "matching FailJob rule at index 0"
        )


async def test_a_disrupted_pod_may_be_ignored(room: Room) -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    await room.create(job(backoffLimit=0, podFailurePolicy={"rules": [rule]}))
    (first,) = await started(room, 1)
    condition = {"type": "DisruptionTarget", "status": "True"}

    await room.run_pod(name_of(first), phase="Failed", conditions=[condition])

    await _others(room, first)
    await until_equal(lambda: status(room), {"active": 1, "startTime": "set"}, PATIENCE)


async def test_every_index_has_a_pod_that_knows_it(room: Room) -> None:
    await room.create(job(completions=3, parallelism=3, completionMode="Indexed"))
    pods = await started(room, 3)

    assert [annotations_of(each)[INDEX] for each in pods] == ["0", "1", "2"]
    assert [each["spec"]["hostname"] for each in pods] == ["work-0", "work-1", "work-2"]
    assert [name_of(each).rpartition("-")[0] for each in pods] == ["work-0", "work-1", "work-2"]
    variable = pods[0]["spec"]["containers"][0]["env"][0]
    assert variable["name"] == "JOB_COMPLETION_INDEX"
    assert find_at(variable, "valueFrom", "fieldRef", "fieldPath") == f"metadata.labels['{INDEX}']"

    for each in (pods[0], pods[2]):
        await room.end_pod(name_of(each))

    await until_equal(
        lambda: status(room),
        {"active": 1, "succeeded": 2, "completedIndexes": "0,2", "startTime": "set"},
        PATIENCE,
    )


@pytest.mark.parametrize(
    "rule", [{"succeededIndexes": "1-2"}, {"succeededCount": 2}], ids=["indexes", "count"]
)
async def test_a_success_policy_ends_a_job_early(room: Room, rule: Object) -> None:
    spec = {"completionMode": "Indexed", "completions": 4, "parallelism": 4}
    await room.create(job(**spec, successPolicy={"rules": [rule]}))
    pods = await started(room, 4)

    await room.end_pod(name_of(pods[1]))
    await room.end_pod(name_of(pods[2]))

    policy = "SuccessPolicy"
    await until_equal(
        lambda: status(room),
        {
            "succeeded": 2,
            "completedIndexes": "1,2",
            "startTime": "set",
            "completionTime": "set",
            "conditions": [("SuccessCriteriaMet", "True", policy), ("Complete", "True", policy)],
        },
        PATIENCE,
    )
    assert await active(room) == []


async def test_an_index_that_failed_too_often_leaves_the_others_alone(room: Room) -> None:
    spec = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
    await room.create(job(**spec, backoffLimitPerIndex=0))
    pods = await started(room, 3)
    assert annotations_of(pods[0])["batch.kubernetes.io/job-index-failure-count"] == "0"

    await room.end_pod(name_of(pods[1]), exit_code=1)
    await until_equal(
        lambda: status(room),
        {"active": 2, "failed": 1, "failedIndexes": "1", "startTime": "set"},
        PATIENCE,
    )
    for each in (pods[0], pods[2]):
        await room.end_pod(name_of(each))

    reason = "FailedIndexes"
    await until_equal(
        lambda: status(room),
        {
            "succeeded": 2,
            "failed": 1,
            "completedIndexes": "0,2",
            "failedIndexes": "1",
            "startTime": "set",
            "conditions": [("FailureTarget", "True", reason), ("Failed", "True", reason)],
        },
        PATIENCE,
    )


async def test_too_many_failed_indexes_end_a_job(room: Room) -> None:
    spec = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
    await room.create(job(**spec, backoffLimitPerIndex=0, maxFailedIndexes=0))
    pods = await started(room, 3)

    await room.end_pod(name_of(pods[0]), exit_code=1)

    reason = "MaxFailedIndexesExceeded"
    await until_equal(
        lambda: status(room),
        {
            "failed": 3,
            "failedIndexes": "0",
            "startTime": "set",
            "conditions": [("FailureTarget", "True", reason), ("Failed", "True", reason)],
        },
        PATIENCE,
    )


async def test_a_suspended_job_stops_and_starts_anew(room: Room) -> None:
    await room.create(job(parallelism=2, completions=2))
    await started(room, 2)
    await room.patch("Job", "work", {"spec": {"suspend": True}})
    await until(lambda: _is_suspended(room), PATIENCE, explain=lambda: status(room))
    await until_equal(lambda: active(room), [], PATIENCE)

    await room.patch("Job", "work", {"spec": {"suspend": False}})

    await started(room, 2)
    resumed = await until(lambda: _resumed(room), PATIENCE, explain=lambda: status(room))
    assert resumed["conditions"] == [("Suspended", "False", "JobResumed")]
    assert resumed["startTime"] == "set"


async def _is_suspended(room: Room) -> bool:
    found = await status(room)
    return found.get("conditions") == [("Suspended", "True", "JobSuspended")]


async def _resumed(room: Room) -> dict[str, Any] | None:
    found = await status(room)
    return found if found.get("active") == 2 else None


async def test_a_job_past_its_deadline_fails(room: Room) -> None:
    await room.create(job(activeDeadlineSeconds=1))

    reason = "DeadlineExceeded"
    await until_equal(
        lambda: status(room),
        {
            "failed": 1,
            "startTime": "set",
            "conditions": [("FailureTarget", "True", reason), ("Failed", "True", reason)],
        },
        PATIENCE,
    )


async def test_a_job_releases_a_pod_with_other_labels_and_adopts_it_again(room: Room) -> None:
    await room.create(job(parallelism=1))
    (first,) = await started(room, 1)
    labels = metadata_of(first)["labels"]
    await room.patch("Pod", name_of(first), {"metadata": {"labels": dict.fromkeys(labels)}})

    async def owner() -> Any:
        metadata = metadata_of(await room.get("Pod", name_of(first)))
        return [each["name"] for each in metadata.get("ownerReferences") or ()]

    await until_equal(owner, [], PATIENCE)
    (second,) = await _others(room, first)
    await room.delete("Pod", name_of(second))
    await room.patch("Pod", name_of(first), {"metadata": {"labels": labels}})

    await until_equal(owner, ["work"], PATIENCE)


async def test_a_finished_job_goes_when_its_time_is_over(room: Room) -> None:
    await room.create(job(ttlSecondsAfterFinished=1))
    (only,) = await started(room, 1)
    await room.end_pod(name_of(only))

    await until(lambda: _is_gone(room), PATIENCE)


async def _is_gone(room: Room) -> bool:
    return await room.find("Job", "work") is None and not await room.all("Pod")
