"""ReplicaSets: as many pods as asked for."""

from typing import Any

from tests.unit.sim.workload_objects import pod, workload

from clusterspace.kube.objects import Object, name_of, with_metadata
from clusterspace.sim import pods
from clusterspace.sim.workloads.deployments import plan_replica_set

NOW = 1_700_000_000.0


def ready(name: str, since: float) -> Object:
    running = pods.started(pod(name, node="a"), "10.0.0.2", "172.0.0.1", since)
    return pods.made_ready(running, since)


def replica_set(replicas: int, **spec: Any) -> Object:
    return with_metadata(workload("ReplicaSet", replicas=replicas, **spec), uid="u1")


def test_missing_pods_are_made_from_the_template_and_owned() -> None:
    plan = plan_replica_set(replica_set(2), [ready("a", NOW)], NOW)

    (made,) = plan.create
    assert made["metadata"]["generateName"] == "web-"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert made["spec"]["containers"][0]["image"] == "web:1"


def test_those_that_do_least_go_first() -> None:
    held = [ready("old", NOW - 100), ready("young", NOW - 1), pod("bound", node="a"), pod("new")]

    gone = [
        name_of(plan_replica_set(replica_set(left), held[: left + 1], NOW).delete[0])
        for left in range(1, 4)
    ]

    assert gone == ["young", "bound", "new"]


def test_a_finished_pod_is_replaced_and_an_ending_one_is_not_counted() -> None:
    done = pods.finished(ready("done", NOW), 1, NOW)
    ending = with_metadata(ready("ending", NOW), deletionTimestamp="x")

    plan = plan_replica_set(replica_set(1), [done, ending], NOW)

    assert len(plan.create) == 1
    assert plan.status is not None
    assert plan.status["status"]["replicas"] == 0
    assert plan.status["status"]["terminatingReplicas"] == 1


def test_a_pod_is_available_only_after_it_was_ready_for_long_enough() -> None:
    held = [ready("a", NOW - 5)]

    early = plan_replica_set(replica_set(1, minReadySeconds=10), held, NOW)
    late = plan_replica_set(replica_set(1, minReadySeconds=10), held, NOW + 5)

    assert early.status is not None
    assert late.status is not None
    assert early.status["status"]["availableReplicas"] == 0
    assert early.again_after == 5
    assert late.status["status"]["availableReplicas"] == 1


def test_a_replica_set_that_is_ending_makes_no_pods() -> None:
    ending = with_metadata(replica_set(3), deletionTimestamp="x")

    assert plan_replica_set(ending, [], NOW).create == ()
