"""Fifty workloads that Karmada's own programs placed come over to our hub, and go back.

Whoever has the programs says where in KARMADA_ASSETS; they are not part of this project. They run
on a hub of ours, and where Karmada's sources are found, too (CONFORMANCE_KARMADA_TREE), on its own
API server with its webhook.
"""

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.component.migration.living import differences
from tests.conformance.hubs import running_hub
from tests.conformance.real_karmada import running_karmada_server
from tests.conformance.sims import Kubectl, RunningSim, running_sim
from tests.conformance.test_karmada_programs import (
    deployment,
    find_karmada,
    is_true,
    running_program,
    wait_for,
)

from clusterspace.apis import stamps
from clusterspace.testing.programs import Program as Process

pytestmark = pytest.mark.slow

MEMBERS = ("east", "west")
WORKLOADS = 50
LOOPBACK = ("--allow-member-cidrs", "127.0.0.0/8")


@dataclass(frozen=True)
class Hubs:
    """A control plane of Karmada's programs, a hub of ours, and the members of both."""

    directory: Path
    karmada: Kubectl
    ours: Kubectl
    members: dict[str, RunningSim]

    def clusterspace(self, *words: str) -> str:
        hub = ("--kubeconfig", str(self.ours.kubeconfig))
        done = subprocess.run(
            [sys.executable, "-m", "clusterspace", *words, *hub],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.directory,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def join_karmada(self, name: str, member: RunningSim) -> None:
        words = ["join", name, f"--cluster-kubeconfig={member.kubeconfig}"]
        there = f"--kubeconfig={self.karmada.kubeconfig}"
        environment = self.karmada.environment
        subprocess.run([find_karmada("karmadactl"), *words, there], check=True, env=environment)

    def migrate(self, *words: str) -> str:
        there = ("--hub-kubeconfig", str(self.karmada.kubeconfig))
        return self.clusterspace("migrate", *words, *there, *LOOPBACK)

    def running(self) -> dict[str, Any]:
        """Return what must not change: pods, their containers and restarts, and ReplicaSets."""
        found: dict[str, Any] = {}
        for name, member in self.members.items():
            for pod in member.get("pods", "-n", "default")["items"]:
                containers = pod["status"].get("containerStatuses") or []
                found[f"{name} {pod['metadata']['name']}"] = (
                    pod["metadata"]["uid"],
                    pod["status"]["phase"],
                    [(each.get("containerID"), each.get("restartCount")) for each in containers],
                )
            for each in member.get("replicasets", "-n", "default")["items"]:
                found[f"{name} {each['metadata']['name']}"] = each["metadata"]["uid"]
        return found

    def contents(self) -> dict[str, Any]:
        """Return the workloads of all members, without what only counts writes."""
        counted = ("resourceVersion", "managedFields", "generation")
        found: dict[str, Any] = {}
        for name, member in self.members.items():
            for each in member.get("deployments", "-n", "default")["items"]:
                metadata = {k: v for k, v in each["metadata"].items() if k not in counted}
                metadata["annotations"] = _without(metadata["annotations"])
                metadata["labels"] = _without(metadata["labels"])
                found[f"{name} {metadata['name']}"] = {"metadata": metadata, "spec": each["spec"]}
        return found


def _without(marks: dict[str, str]) -> dict[str, str]:
    """Return labels or annotations without those that tell how often Karmada wrote its Work.

    Its webhook gives a Work its ID at once. Where it does not run, the programs give it to the
    manifest when they write the Work for the second time.
    """
    counters = (stamps.TEMPLATE_GENERATION, stamps.WORK_ID, stamps.MANAGED_LABELS_LIST)
    return {key: value for key, value in marks.items() if key not in counters}


@pytest.fixture(params=["a hub of ours", "Karmada's API server"])
async def hubs(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Hubs]:
    find_karmada("karmada-controller-manager")
    async with AsyncExitStack() as stack:
        for name in ("karmada", "ours", *MEMBERS):
            (tmp_path / name).mkdir()
        if request.param == "a hub of ours":
            theirs = stack.enter_context(running_hub(tmp_path / "karmada")).kubeconfig
        else:
            theirs = await stack.enter_async_context(running_karmada_server(tmp_path / "karmada"))
        server = stack.enter_context(running_hub(tmp_path / "ours"))
        members = {
            name: stack.enter_context(running_sim(tmp_path / name, name, "--nodes", "2"))
            for name in MEMBERS
        }
        karmada, ours = Kubectl(tmp_path, theirs), Kubectl(tmp_path, server.kubeconfig)
        there = f"--kubeconfig={karmada.kubeconfig}"
        for name, options in (
            ("karmada-controller-manager", ("--cluster-status-update-frequency=2s",)),
            ("karmada-scheduler", ()),
        ):
            stack.enter_context(running_program(tmp_path, name, there, *options))
        identity = server.kubeconfig.parent / "parts" / "controllers" / "kubeconfig"
        words = ["controllers", "--log-format", "json", *LOOPBACK]
        controllers = Process(
            "clusterspace", [*words, "--hub-kubeconfig", str(identity)], log=tmp_path / "log"
        )
        stack.callback(controllers.wait)
        stack.callback(controllers.terminate)
        hubs = Hubs(tmp_path, karmada, ours, members)
        for name, member in members.items():
            hubs.join_karmada(name, member)
        wait_for(lambda: are_ready(karmada), "members of Karmada")
        yield hubs


def are_ready(hub: Kubectl) -> bool:
    clusters = hub.get("clusters.cluster.karmada.io")["items"]
    return [is_true(each, "Ready") for each in clusters] == [True] * len(MEMBERS)


def policy() -> dict[str, Any]:
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "shop", "namespace": "default"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "placement": {
                "clusterAffinity": {"clusterNames": list(MEMBERS)},
                "replicaScheduling": {
                    "replicaSchedulingType": "Divided",
                    "replicaDivisionPreference": "Weighted",
                },
            },
        },
    }


def test_fifty_workloads_come_over_and_go_back_without_a_restart(hubs: Hubs) -> None:
    names = [f"web-{number:02d}" for number in range(WORKLOADS)]
    hubs.karmada.apply(policy(), *map(deployment, names))

    def all_run() -> bool:
        pods = [
            pod
            for member in hubs.members.values()
            for pod in member.get("pods", "-n", "default")["items"]
        ]
        return len(pods) == 2 * WORKLOADS and all(is_true(each, "Ready") for each in pods)

    wait_for(all_run, "pods")
    for name, member in hubs.members.items():
        hubs.clusterspace("join", name, "--cluster-kubeconfig", str(member.kubeconfig))
    wait_for(lambda: are_ready(hubs.ours), "members of ours")
    running, before = hubs.running(), hubs.contents()
    assert len(running) >= 3 * WORKLOADS

    summary = hubs.migrate("plan", "--from", "karmada", "--name", "over", "-f", "over.yaml")
    assert f"{WORKLOADS + 1} of {WORKLOADS + 1} objects of karmada would be taken" in summary
    taken = hubs.migrate("apply", "over.yaml")
    assert f"migration over: {WORKLOADS + 1} taken" in taken
    assert hubs.running() == running
    # Ours decides now: a change here gets there, and Karmada does not change it back.
    hubs.ours.do("scale", "deployment/web-00", "--replicas=4", "-n", "default")

    def replicas() -> int:
        found = [m.get("deployment", "web-00", "-n", "default") for m in hubs.members.values()]
        return sum(each["spec"]["replicas"] for each in found)

    wait_for(lambda: replicas() == 4, "the change of ours")
    hubs.ours.do("scale", "deployment/web-00", "--replicas=2", "-n", "default")
    wait_for(lambda: replicas() == 2, "the change back")
    untouched = {k: v for k, v in running.items() if "web-00-" not in k}
    now = {k: v for k, v in hubs.running().items() if "web-00-" not in k}
    assert now == untouched

    undone = hubs.migrate("undo", "over")
    assert f"migration over: {WORKLOADS + 1} undone" in undone
    assert {k: v for k, v in hubs.running().items() if "web-00-" not in k} == untouched
    # Karmada has them again, and has nothing to write: each object is as it was.
    hubs.karmada.do("annotate", "deployment/web-01", "-n", "default", "back=yes")
    wait_for(
        lambda: all(
            "back" in m.get("deployment", "web-01", "-n", "default")["metadata"]["annotations"]
            for m in hubs.members.values()
        ),
        "a change of Karmada's",
    )
    hubs.karmada.do("annotate", "deployment/web-01", "-n", "default", "back-")

    def as_before() -> bool:
        # The difference is the message of the failure.
        assert differences(before, hubs.contents()) == []
        return True

    wait_for(as_before, "the objects as they were")
    assert {k: v for k, v in hubs.running().items() if "web-00-" not in k} == untouched
