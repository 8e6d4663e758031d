"""Karmada's own programs, as they are, on our hub: nothing is applied for them by hand.

Whoever has them says where in KARMADA_ASSETS; they are not part of this project.
"""

import json
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.component.serving.certificates import Authority
from tests.conformance.hubs import RunningHub, running_hub
from tests.conformance.sims import Kubectl, RunningSim, running_sim

from clusterspace.testing.hubs import free_port

pytestmark = pytest.mark.slow

PATIENCE = 180.0
POLICY = "policy.karmada.io/v1alpha1"


def find_karmada(name: str) -> str:
    """Return the path of one of Karmada's programs; skip the asking test where it is not."""
    directory = os.environ.get("KARMADA_ASSETS", "")
    program = Path(directory) / name
    if not directory or not program.exists():
        pytest.skip(f"no {name}: set KARMADA_ASSETS to where Karmada's programs are")
    return str(program)


def wait_for(is_so: Callable[[], Any], what: str) -> Any:
    """Return the first true answer; fail with the last one when none comes."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            seen = is_so()
        except (OSError, AssertionError, KeyError) as error:
            seen, why = None, str(error)
        else:
            why = str(seen)
        if seen:
            return seen
        assert time.monotonic() < deadline, f"{what}: {why}"
        time.sleep(0.5)


@dataclass(frozen=True)
class Program:
    """A program of Karmada's that runs."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path
    health_port: int

    def is_up(self) -> bool:
        ended = self.process.poll()
        words = self.log.read_text()[-2000:] if ended is not None else ""
        if ended is not None:
            pytest.fail(f"{self.name} ended with {ended}:\n{words}")
        url = f"http://127.0.0.1:{self.health_port}/healthz"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status == 200
        except urllib.error.HTTPError as error:
            return error.code == 404  # the webhook serves, and has no checks


@contextmanager
def running_program(directory: Path, name: str, *arguments: str) -> Generator[Program]:
    """Run one of Karmada's programs for as long as the block lasts."""
    log, health, metrics = directory / f"{name}.log", free_port(), free_port()
    command = [
        find_karmada(name),
        f"--health-probe-bind-address=127.0.0.1:{health}",
        f"--metrics-bind-address=127.0.0.1:{metrics}",
        *arguments,
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=directory)
    try:
        yield Program(name, process, log, health)
    finally:
        process.terminate()
        try:
            process.wait(20)
        finally:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Stage:
    """A hub with Karmada's control plane on it, a Push member and a Pull member."""

    hub: Kubectl
    members: dict[str, RunningSim]
    programs: dict[str, Program]
    webhook_url: str
    server: RunningHub

    def karmadactl(self, *words: str) -> str:
        command = [find_karmada("karmadactl"), *words, "--kubeconfig", str(self.hub.kubeconfig)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            env=self.hub.environment,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stage]:
    directory = tmp_path_factory.mktemp("karmada")
    find_karmada("karmada-controller-manager")
    with ExitStack() as stack:
        for name in ("hub", "east", "west", "certificates"):
            (directory / name).mkdir()
        server = stack.enter_context(running_hub(directory / "hub"))
        members = {
            name: stack.enter_context(running_sim(directory / name, name, "--nodes", "1"))
            for name in ("east", "west")
        }
        hub = Kubectl(directory, server.kubeconfig)
        Authority(directory / "certificates").issue("tls", host="127.0.0.1")
        port = free_port()
        kubeconfig = f"--kubeconfig={server.kubeconfig}"
        quick = "--cluster-status-update-frequency=2s"
        started = [
            running_program(directory, "karmada-controller-manager", kubeconfig, quick),
            running_program(directory, "karmada-scheduler", kubeconfig),
            running_program(
                directory,
                "karmada-webhook",
                kubeconfig,
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={directory / 'certificates'}",
            ),
            running_program(
                directory,
                "karmada-agent",
                f"--karmada-kubeconfig={server.kubeconfig}",
                f"--kubeconfig={members['west'].kubeconfig}",
                "--cluster-name=west",
                f"--cluster-api-endpoint={server_in(members['west'].kubeconfig)}",
                quick,
            ),
        ]
        programs = {each.name: each for each in map(stack.enter_context, started)}
        url = f"https://127.0.0.1:{port}"
        running = Stage(hub, members, programs, url, server)
        running.karmadactl("join", "east", "--cluster-kubeconfig", str(members["east"].kubeconfig))
        yield running


def server_in(kubeconfig: Path) -> str:
    lines = kubeconfig.read_text().splitlines()
    return next(line.split("server:")[1].strip() for line in lines if "server:" in line)


def test_each_program_starts_and_the_ones_that_lead_hold_their_leases(stage: Stage) -> None:
    for program in stage.programs.values():
        wait_for(program.is_up, program.name)
    wanted = {"karmada-controller-manager", "karmada-scheduler", "karmada-agent-west"}

    def leading() -> bool:
        leases = stage.hub.get("leases", "-n", "karmada-system")["items"]
        held = {each["metadata"]["name"] for each in leases if each["spec"].get("holderIdentity")}
        return wanted <= held

    wait_for(leading, "leases")


def test_both_kinds_of_members_become_ready(stage: Stage) -> None:
    def ready() -> bool:
        seen = {
            each["metadata"]["name"]: (each["spec"]["syncMode"], is_true(each, "Ready"))
            for each in stage.hub.get("clusters.cluster.karmada.io")["items"]
        }
        return seen == {"east": ("Push", True), "west": ("Pull", True)}

    wait_for(ready, "clusters")


def test_a_deployment_reaches_both_members_and_its_status_comes_back(stage: Stage) -> None:
    test_both_kinds_of_members_become_ready(stage)
    stage.hub.apply(deployment("web"), policy("web"))

    for name, member in stage.members.items():
        wait_for(lambda member=member: member.get("deployment", "web"), f"web on {name}")
    wait_for(
        lambda: stage.hub.get("deployment", "web")["status"].get("readyReplicas") == 4,
        "the status of web",
    )


def test_a_workload_rebalancer_is_acted_on(stage: Stage) -> None:
    test_a_deployment_reaches_both_members_and_its_status_comes_back(stage)
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    body = {
        "apiVersion": "apps.karmada.io/v1alpha1",
        "kind": "WorkloadRebalancer",
        "metadata": {"name": "anew"},
        "spec": {"workloads": [{**workload, "namespace": "default"}]},
    }
    stage.hub.apply(body)

    def results() -> list[str]:
        found = stage.hub.get("workloadrebalancer", "anew").get("status") or {}
        return [each["result"] for each in found.get("observedWorkloads", [])]

    assert wait_for(results, "the rebalancer's status") == ["Successful"]


def test_the_webhook_completes_and_refuses_what_it_is_sent(stage: Stage) -> None:
    completed = ask_webhook(stage, "mutate-propagationpolicy", policy("web"))
    assert completed["allowed"] is True, completed
    assert completed["patch"]

    unmarked = ask_webhook(stage, "validate-propagationpolicy", policy("web"))
    assert unmarked["allowed"] is False, unmarked


def ask_webhook(stage: Stage, path: str, judged: dict[str, Any]) -> dict[str, Any]:
    """Have Karmada's webhook judge a new policy, as an API server would."""
    kind = {"group": "policy.karmada.io", "version": "v1alpha1"}
    request = {
        "uid": "u",
        "kind": {**kind, "kind": "PropagationPolicy"},
        "resource": {**kind, "resource": "propagationpolicies"},
        "operation": "CREATE",
        "namespace": "default",
        "object": judged,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}

    def answer() -> Any:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        asked = urllib.request.Request(
            f"{stage.webhook_url}/{path}",
            json.dumps(review).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=10, context=context) as answered:
            return json.load(answered)["response"]

    return wait_for(answer, "the webhook")


def test_karmadactl_lists_tokens_of_ours(stage: Stage) -> None:
    command = ["token", "create", "north", "--kubeconfig", str(stage.hub.kubeconfig)]
    made = subprocess.run(
        [sys.executable, "-m", "clusterspace", *command],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()

    listed = stage.karmadactl("token", "list")

    assert made.partition(".")[0] in listed
    assert "north" in listed
    assert made not in listed
    assert "has no token-secret" not in listed


def test_the_hub_itself_has_nothing_to_complain_of(stage: Stage) -> None:
    assert stage.server.errors() == []


def is_true(kube_object: dict[str, Any], condition: str) -> bool:
    conditions = (kube_object.get("status") or {}).get("conditions") or []
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": name, "image": "nginx"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def policy(name: str) -> dict[str, Any]:
    selector = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return {
        "apiVersion": POLICY,
        "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "resourceSelectors": [selector],
            "placement": {"clusterAffinity": {"clusterNames": ["east", "west"]}},
        },
    }
