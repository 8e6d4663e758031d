"""Karmada's own `karmadactl register` and karmada-agent, as they are, join a fleet of ours.

The hub was told to accept them; everything else in the fleet is ours. Whoever has the programs says
where in KARMADA_ASSETS; they are not part of this project.
"""

import base64
import re
import subprocess
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conformance.hubs import ALLOW_LOOPBACK, RunningHub, running_server, tokens_in
from tests.conformance.sims import Kubectl, RunningSim, running_sim
from tests.conformance.test_karmada_programs import (
    PATIENCE,
    deployment,
    find_karmada,
    is_true,
    policy,
    running_program,
    server_in,
    wait_for,
)

from clusterspace.testing.programs import Program

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Stage:
    """A hub that accepts Karmada's agents, our controllers, and a cluster that is to join."""

    directory: Path
    server: RunningHub
    hub: Kubectl
    west: RunningSim

    def karmadactl(self, *words: str, kubeconfig: Path) -> str:
        command = [find_karmada("karmadactl"), *words, "--kubeconfig", str(kubeconfig)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            env=self.hub.environment,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stage]:
    directory = tmp_path_factory.mktemp("joins")
    find_karmada("karmadactl")
    find_karmada("karmada-agent")
    for name in ("hub", "west"):
        (directory / name).mkdir()
    with ExitStack() as stack:
        words = ("hub", "--port", "0", "--store", "memory", "--accept-karmada-agents")
        tokens = tokens_in(directory / "hub")
        server = stack.enter_context(
            running_server(directory / "hub", *words, *ALLOW_LOOPBACK, *tokens)
        )
        identity = server.kubeconfig.parent / "parts/controllers/kubeconfig"
        arguments = ["controllers", "--hub-kubeconfig", str(identity), *ALLOW_LOOPBACK]
        controllers = Program("clusterspace", arguments, log=directory / "controllers.log")
        stack.callback(controllers.wait)
        stack.callback(controllers.terminate)
        west = stack.enter_context(running_sim(directory / "west", "west", "--nodes", "1"))
        yield Stage(directory, server, Kubectl(directory, server.kubeconfig), west)


def register(stage: Stage) -> None:
    """Do what Karmada's documentation says, once."""
    if stage.west.kubectl("get", "deployment", "karmada-agent", "-n", "karmada-system").output:
        return
    printed = stage.karmadactl(
        "token", "create", "--print-register-command", kubeconfig=stage.hub.kubeconfig
    )
    # Its own command, with the name of the cluster, which it leaves to the kubeconfig.
    found = re.search(r"karmadactl (register .*)", printed)
    assert found is not None, printed
    words = found[1].split()
    said = stage.karmadactl(*words, "--cluster-name", "west", kubeconfig=stage.west.kubeconfig)
    assert "cluster(west) is joined successfully" in said


@pytest.fixture(scope="module")
def agent(stage: Stage) -> Generator[None]:
    """The agent that `register` has installed: simulated members run no images."""
    register(stage)
    secret = stage.west.get("secret", "karmada-kubeconfig", "-n", "karmada-system")
    kubeconfig = stage.directory / "agent.kubeconfig"
    kubeconfig.write_bytes(base64.b64decode(secret["data"]["karmada-kubeconfig"]))
    with running_program(
        stage.directory,
        "karmada-agent",
        f"--karmada-kubeconfig={kubeconfig}",
        f"--kubeconfig={stage.west.kubeconfig}",
        "--cluster-name=west",
        f"--cluster-api-endpoint={server_in(stage.west.kubeconfig)}",
        "--cluster-status-update-frequency=2s",
    ) as running:
        wait_for(running.is_up, "the agent")
        yield


def test_karmadas_own_commands_register_a_cluster(stage: Stage) -> None:
    register(stage)

    role = stage.hub.get("clusterrolebinding", "system:karmada:west:agent")
    assert [each["name"] for each in role["subjects"]] == ["system:karmada:agent:west"]


@pytest.mark.usefixtures("agent")
def test_its_agent_makes_the_cluster_ready(stage: Stage) -> None:
    def ready() -> bool:
        return is_true(stage.hub.get("clusters.cluster.karmada.io", "west"), "Ready")

    wait_for(ready, "the cluster")
    assert stage.hub.get("clusters.cluster.karmada.io", "west")["spec"]["syncMode"] == "Pull"


@pytest.mark.usefixtures("agent")
def test_its_agent_carries_out_what_our_controllers_place(stage: Stage) -> None:
    test_its_agent_makes_the_cluster_ready(stage)
    placed = policy("web")
    placed["spec"]["placement"]["clusterAffinity"]["clusterNames"] = ["west"]
    stage.hub.apply(deployment("web"), placed)

    wait_for(lambda: stage.west.get("deployment", "web"), "web on west")
    wait_for(
        lambda: stage.hub.get("deployment", "web")["status"].get("readyReplicas") == 2,
        "the status of web",
    )

    stage.hub.do("delete", "deployment,propagationpolicy", "web")
    wait_for(lambda: not stage.west.kubectl("get", "deployment", "web").output, "web to leave west")


@pytest.mark.usefixtures("agent")
def test_karmadactl_unregisters_it(stage: Stage) -> None:
    test_its_agent_carries_out_what_our_controllers_place(stage)
    wait_for(
        lambda: not stage.hub.get("works.work.karmada.io", "-n", "karmada-es-west")["items"],
        "the works of west",
    )

    said = stage.karmadactl(
        "unregister",
        "west",
        "--cluster-kubeconfig",
        str(stage.west.kubeconfig),
        "--karmada-config",
        str(stage.hub.kubeconfig),
        kubeconfig=stage.west.kubeconfig,
    )

    assert "Successfully delete cluster object (west)" in said
    assert stage.hub.get("clusters.cluster.karmada.io")["items"] == []
    assert stage.hub.kubectl("get", "clusterrole", "system:karmada:west:agent").exit_code != 0
    assert stage.server.errors() == []
