"""What runs in containers: how long it takes, how it ends, what it writes."""

from typing import Any

import pytest
from tests.unit.sim.pretend_api import PretendCluster, pretend_cluster
from tests.unit.sim.workload_objects import job, pod

from clusterspace.kube.conditions import is_true
from clusterspace.kube.objects import Object, find_at, with_value
from clusterspace.sim.containers import environment_of, program_of
from clusterspace.sim.pods import is_ready, phase_of


def running(command: list[str], *, policy: str = "Always", **container: Any) -> Object:
    spec = {"name": "web", "image": "busybox:1", "command": command, **container}
    return pod("p", containers=[spec], restartPolicy=policy)


def status_of(cluster: PretendCluster) -> Object:
    return cluster.get("Pod", "p")["status"]["containerStatuses"][0]


@pytest.mark.parametrize(
    ("command", "is_run"),
    [
        (["sleep", "1000"], True),
        (["/bin/sh", "-c", "echo a; exit 3"], True),
        (["sh", "-c", "A=1 echo $A && sleep 5"], True),
        (["sh", "-c", "while true; do echo a; done"], False),
        (["sh", "-c", "echo a && nginx"], False),
        (["nginx", "-g", "daemon off;"], False),
        ([], False),
    ],
)
def test_what_the_shell_does_not_know_is_a_server(command: list[str], is_run: bool) -> None:
    container = {"name": "web", "image": "web:1", "command": command}
    assert bool(program_of(container)) is is_run


async def test_sleep_takes_as_long_as_it_says() -> None:
    wanted = job(completions=1)
    wanted["spec"]["template"]["spec"]["containers"][0]["command"] = ["sleep", "1000"]
    async with pretend_cluster() as cluster:
        await cluster.api.create(wanted)
        await cluster.settle(990)
        assert cluster.ready_count() == 1

        await cluster.settle(20)

        assert is_true(cluster.get("Job", "web")["status"]["conditions"], "Complete")


@pytest.mark.parametrize(
    ("command", "policy", "phase", "code"),
    [
        (["sh", "-c", "exit 3"], "Never", "Failed", 3),
        (["false"], "Never", "Failed", 1),
        (["true"], "OnFailure", "Succeeded", 0),
        (["sh", "-c", "sleep 5 && exit 0"], "Never", "Succeeded", 0),
    ],
)
async def test_a_program_ends_with_its_own_code(
    command: list[str], policy: str, phase: str, code: int
) -> None:
    async with pretend_cluster() as cluster:
        await cluster.api.create(running(command, policy=policy))
        await cluster.settle()

        assert phase_of(cluster.get("Pod", "p")) == phase
        assert find_at(status_of(cluster), "state", "terminated", "exitCode") == code


async def test_what_always_runs_is_started_again_later_and_later() -> None:
    async with pretend_cluster() as cluster:
        await cluster.api.create(running(["sh", "-c", "sleep 1; exit 7"]))
        counts: list[int] = []
        for _ in range(5):
            await cluster.settle(20)
            counts.append(status_of(cluster)["restartCount"])

        assert counts[0] == 2
        assert counts[-1] == 4
        assert find_at(status_of(cluster), "state", "waiting", "reason") == "CrashLoopBackOff"
        assert find_at(status_of(cluster), "lastState", "terminated", "exitCode") == 7
        assert phase_of(cluster.get("Pod", "p")) == "Running"
        assert not is_ready(cluster.get("Pod", "p"))


async def test_a_pod_with_two_containers_ends_when_both_have() -> None:
    two = running(["sleep", "30"], policy="Never")
    more = {"name": "short", "image": "busybox:1", "command": ["sleep", "5"]}
    two["spec"]["containers"].append(more)
    async with pretend_cluster() as cluster:
        await cluster.api.create(two)
        await cluster.settle(15)
        assert phase_of(cluster.get("Pod", "p")) == "Running"
        assert not is_ready(cluster.get("Pod", "p"))

        await cluster.settle(30)

        assert phase_of(cluster.get("Pod", "p")) == "Succeeded"


async def test_a_pod_that_does_nothing_but_wait_never_ends() -> None:
    waiting = pod("p", containers=[{"name": "c", "image": "registry.k8s.io/pause:3.10"}])
    waiting = with_value(waiting, "Never", "spec", "restartPolicy")
    async with pretend_cluster() as cluster:
        await cluster.api.create(waiting)
        await cluster.settle(3600)

        assert phase_of(cluster.get("Pod", "p")) == "Running"


async def test_an_ephemeral_container_joins_a_running_pod() -> None:
    async with pretend_cluster() as cluster:
        made = await cluster.api.create(running(["sleep", "1000"]))
        await cluster.settle(5)

        await cluster.edit(
            made, [{"name": "debug", "image": "busybox:1"}], "spec", "ephemeralContainers"
        )
        await cluster.settle(5)

        (found,) = cluster.get("Pod", "p")["status"]["ephemeralContainerStatuses"]
        assert found["name"] == "debug"
        assert find_at(found, "state", "running")


def test_variables_come_from_values_other_variables_and_the_pod_itself() -> None:
    env = [
        {"name": "PLAIN", "value": "a"},
        {"name": "MADE", "value": "$(PLAIN)-$$(PLAIN)-$(NOBODY)"},
        {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        {"name": "HIDDEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    described = with_value(running(["env"], env=env), {"app": "web"}, "metadata", "labels")

    found = environment_of(described, "web")

    assert found["MADE"] == "a-$(PLAIN)-$(NOBODY)"
    assert (found["ME"], found["APP"]) == ("p", "web")
    assert "HIDDEN" not in found
