"""Pending to Running to gone."""

from typing import Any

import pytest
from tests.unit.sim.pretend_api import pretend_cluster
from tests.unit.sim.workload_objects import pod

from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, with_metadata
from clusterspace.sim import pods
from clusterspace.sim.pods import Next, Pace, Stage, Step, next_step, stage_of

NOW = 1_700_000_000.0
PACE = Pace(start=2, ready=3, stop=1, job=5)


def running(**spec: Any) -> Object:
    return pods.started(pod(node="a", **spec), "10.0.0.2", "172.0.0.1", NOW)


@pytest.mark.parametrize(
    ("held", "stage", "expected"),
    [
        (pod(), Stage.UNSCHEDULED, Next(Step.BIND)),
        (pod(schedulingGates=[{"name": "wait"}]), Stage.UNSCHEDULED, Next()),
        (pod(node="a"), Stage.SCHEDULED, Next(Step.START, 2)),
        (running(), Stage.RUNNING, Next(Step.MAKE_READY, 3)),
        (pods.made_ready(running(), NOW), Stage.READY, Next()),
        (
            pods.made_ready(running(restartPolicy="Never"), NOW),
            Stage.READY,
            Next(Step.FINISH, 5),
        ),
        (pods.finished(running(), 0, NOW), Stage.FINISHED, Next()),
    ],
    ids=["new", "gated", "bound", "started", "serving", "job", "done"],
)
def test_a_pod_moves_from_stage_to_stage(held: Object, stage: Stage, expected: Next) -> None:
    assert stage_of(held) is stage
    assert next_step(held, 0.0, PACE) == expected


def test_a_pod_with_no_grace_left_goes_at_once() -> None:
    ending = with_metadata(running(), deletionTimestamp="x", deletionGracePeriodSeconds=0)

    assert next_step(ending, 0.0, PACE) == Next(Step.REMOVE)


def test_a_pod_says_for_itself_when_it_is_ready_and_how_it_ends() -> None:
    notes = {pods.READY_AFTER: "7s", pods.RUN_FOR: "9s", pods.EXIT_CODE: "3"}
    held = with_metadata(running(), annotations=notes)

    assert next_step(held, 0.0, PACE) == Next(Step.MAKE_READY, 7)
    assert next_step(pods.made_ready(held, NOW), 4.0, PACE) == Next(Step.FINISH, 5)
    assert pods.exit_code_of(held) == 3


def test_a_finished_pod_tells_how_its_containers_ended() -> None:
    ended = pods.finished(pods.made_ready(running(), NOW), 3, NOW + 5)

    container = find_at(ended, "status", "containerStatuses")[0]
    ready = find_condition(find_at(ended, "status", "conditions"), "Ready")
    assert find_at(ended, "status", "phase") == "Failed"
    assert container["state"]["terminated"]["exitCode"] == 3
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("False", "PodCompleted")


async def test_a_pod_that_fits_nowhere_waits_and_starts_when_room_comes() -> None:
    async with pretend_cluster(nodes=1) as cluster:
        first = await cluster.api.create(pod("first", cpu="6"))
        await cluster.settle()
        await cluster.api.create(pod("second", cpu="6"))
        await cluster.settle()
        conditions = find_at(cluster.get("Pod", "second"), "status", "conditions")
        scheduled = find_condition(conditions, "PodScheduled")
        assert scheduled is not None
        assert scheduled["reason"] == "Unschedulable"

        await cluster.api.delete(first)
        await cluster.settle()

        assert find_at(cluster.get("Pod", "second"), "status", "phase") == "Running"


async def test_a_deleted_pod_is_gone_soon_and_its_address_is_free_again() -> None:
    async with pretend_cluster(nodes=1) as cluster:
        held = await cluster.api.create(pod("first"))
        await cluster.settle()
        address = find_at(cluster.get("Pod", "first"), "status", "podIP")

        await cluster.api.delete(held)
        await cluster.settle()
        await cluster.api.create(pod("second"))
        await cluster.settle()

        assert [key.name for key in cluster.api.objects if key.kind == "Pod"] == ["second"]
        assert find_at(cluster.get("Pod", "second"), "status", "podIP") == address
