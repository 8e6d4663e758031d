"""kubectl looks into pods through the fleet: the right pods, over either protocol, unharmed."""

import hashlib
import os
import re
import signal
import socket
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from tests.conformance.fleets import MEMBERS, RunningFleet, running_fleet
from tests.conformance.hubs import ALLOW_LOOPBACK
from tests.conformance.kubectl_stage import deployment, find_program
from tests.conformance.sims import PATIENCE, Kubectl

from clusterspace.testing.programs import Program

SPDY = {
    "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false",
    "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false",
}
TRANSPORTS = pytest.mark.parametrize("transport", [{}, SPDY], ids=["websocket", "spdy"])
ANNOUNCED = pytest.mark.parametrize(
    "headers",
    [{}, {"KUBECTL_COMMAND_HEADERS": "false"}],
    ids=["with a session", "without a session"],
)
TRIES = 50
FILE = "/tmp/copy"
SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
}


REAL = (
    pytest.param((), id="sim"),
    pytest.param(("west",), id="kubernetes", marks=pytest.mark.slow),
)


@pytest.fixture(scope="module", params=REAL)
def fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[RunningFleet]:
    find_program("kubectl")
    # One of each: `east` is dialled, and `west`, a kube-apiserver or not, asked through its agent.
    directory = tmp_path_factory.mktemp("fleet")
    with running_fleet(directory, pull=("west",), real=request.param) as running:
        yield running
        assert running.server.errors() == []


@pytest.fixture(scope="module")
def user(fleet: RunningFleet, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """Somebody with one kubeconfig, and the same Deployment and Service in both members."""
    person = Kubectl(tmp_path_factory.mktemp("user"), fleet.server.kubeconfig)
    for member in fleet.members.values():
        for path, made in (
            ("/apis/apps/v1/namespaces/default/deployments", deployment(2)),
            ("/api/v1/namespaces/default/services", SERVICE),
        ):
            member.create(path, made)
    for name in MEMBERS:
        person.do("rollout", "status", f"deploy/web.clusterspace.{name}", "--timeout=20s")
    return person


@pytest.fixture(scope="module")
def pods(user: Kubectl) -> dict[str, str]:
    """Give one pod of each member, by its name in the fleet."""
    return {name: pods_of(user, name)[0] for name in MEMBERS}


def pods_of(user: Kubectl, cluster: str) -> list[str]:
    listed = user.do("get", "pods", "-l", "app=web", "-o", "name").split()
    names = (each.removeprefix("pod/") for each in listed)
    return sorted(each for each in names if each.endswith(f".clusterspace.{cluster}"))


@ANNOUNCED
def test_the_pods_of_a_deployment_are_those_of_the_cluster_it_was_named_in(
    user: Kubectl, headers: dict[str, str]
) -> None:
    """The same Deployment is in both clusters, with the same selector."""
    own = {name: pods_of(user, name) for name in MEMBERS}
    chosen: list[tuple[str, str]] = []
    for number in range(TRIES):
        cluster = MEMBERS[number % 2]
        object_name = ("deploy", "svc")[number // 2 % 2] + f"/web.clusterspace.{cluster}"
        if number % 3:
            said = user.do("exec", object_name, "--", "hostname", environment=headers)
            chosen.append((cluster, f"{said.strip()}.clusterspace.{cluster}"))
        else:
            ran = user.kubectl("logs", object_name, "--tail=1", environment=headers)
            found = re.search(r"using pod/(\S+)", ran.error)
            assert found is not None, ran
            chosen.append((cluster, found[1]))

    assert [each for each in chosen if each[1] not in own[each[0]]] == []
    assert len(chosen) == TRIES


def test_a_log_is_followed_across_clusters(user: Kubectl) -> None:
    arguments = ("logs", "-f", "-l", "app=web", "--prefix", "--tail=1")
    heard: dict[str, list[int]] = {}
    with user.start(*arguments) as following:
        assert following.stdout is not None
        while len(heard) < 4 or min(map(len, heard.values())) < 2:
            line = following.stdout.readline().decode()
            found = re.fullmatch(r"\[pod/(\S+)/web\] (\d{6}) .*\n", line)
            assert found is not None, line
            heard.setdefault(found[1], []).append(int(found[2]))
        following.kill()

    assert sorted(heard) == sorted(each for name in MEMBERS for each in pods_of(user, name))
    for numbers in heard.values():
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@TRANSPORTS
@pytest.mark.parametrize("cluster", MEMBERS)
def test_a_shell_is_the_pods_own(
    user: Kubectl, pods: dict[str, str], cluster: str, transport: dict[str, str]
) -> None:
    pod = pods[cluster]
    said = user.do("exec", pod, "--", "hostname", environment=transport)
    typed = user.do("exec", "-i", pod, "--", "cat", stdin=b"typed", environment=transport)
    attached = user.do("attach", "-i", pod, stdin=b"hello\n", environment=transport)
    failed = user.kubectl("exec", pod, "--", "sh", "-c", "exit 7", environment=transport)
    refused = user.kubectl("exec", pod, "-c", "none", "--", "ls", environment=transport)

    assert said == f"{pod.partition('.')[0]}\n"
    assert (typed, attached, failed.exit_code) == ("typed", "hello\n", 7)
    assert refused.exit_code == 1
    assert "container none is not valid for pod" in refused.error


@TRANSPORTS
@pytest.mark.parametrize("kind", ["pod", "svc", "deploy"])
def test_a_port_is_forwarded(
    user: Kubectl, pods: dict[str, str], kind: str, transport: dict[str, str]
) -> None:
    place = f"pod/{pods['west']}" if kind == "pod" else f"{kind}/web.clusterspace.west"
    own = [each.partition(".")[0] for each in pods_of(user, "west")]
    with user.start("port-forward", place, ":80", environment=transport) as forwarding:
        try:
            local = _local_port(forwarding)
            with urllib.request.urlopen(f"http://127.0.0.1:{local}/hello", timeout=10) as page:
                body = page.read().decode()
            with socket.create_connection(("127.0.0.1", local), timeout=10) as raw:
                raw.sendall(b"not http")
                raw.shutdown(socket.SHUT_WR)
                echoed = raw.recv(100)
        finally:
            forwarding.send_signal(signal.SIGTERM)

    found = re.fullmatch(r"default/(\S+):80 GET /hello\n", body)
    assert found is not None
    assert found[1] in own
    assert echoed == b"not http"


def _local_port(forwarding: Popen[bytes]) -> int:
    assert forwarding.stdout is not None
    found = re.search(rb"127\.0\.0\.1:(\d+)", forwarding.stdout.readline())
    assert found is not None
    return int(found[1])


@TRANSPORTS
@pytest.mark.parametrize(
    "size",
    [3_000_000, pytest.param(100_000_000, marks=pytest.mark.slow)],
    ids=["3 MB", "100 MB"],
)
def test_a_file_is_copied_in_and_out_unharmed(
    user: Kubectl, pods: dict[str, str], tmp_path: Path, size: int, transport: dict[str, str]
) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(os.urandom(size))

    user.do("cp", str(source), f"{pods['west']}:{FILE}", environment=transport)
    there = user.do("exec", pods["west"], "--", "sha256sum", FILE)
    user.do("cp", f"{pods['west']}:{FILE}", str(back), environment=transport)
    user.do("exec", pods["west"], "--", "rm", FILE)

    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert there.split()[0] == digest
    assert hashlib.sha256(back.read_bytes()).hexdigest() == digest


@contextmanager
def running_controllers(fleet: RunningFleet, log: Path) -> Generator[None]:
    identity = fleet.hub.kubeconfig.parent / "parts" / "controllers" / "kubeconfig"
    fast = ["--cluster-status-update-frequency", "1", "--cluster-success-threshold", "0"]
    words = ["controllers", "--log-format", "json", *ALLOW_LOOPBACK]
    words += ["--hub-kubeconfig", str(identity), *fast]
    process = Program("clusterspace", words, log=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


def test_an_operator_finds_and_mends_one_bad_instance_with_one_kubeconfig(
    fleet: RunningFleet, user: Kubectl, tmp_path: Path
) -> None:
    """A Deployment of the control plane runs in members; one of its pods is not well."""
    policy = {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "shop"},
        "spec": {
            "resourceSelectors": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"},
            ],
            "placement": {"clusterAffinity": {"clusterNames": list(MEMBERS)}},
        },
    }
    labels = {"app": "shop"}
    spec = deployment(1)["spec"]
    template = {**spec["template"], "metadata": {"labels": labels}}
    shop = {
        **deployment(1, name="shop"),
        "spec": {**spec, "selector": {"matchLabels": labels}, "template": template},
    }
    with running_controllers(fleet, tmp_path / "controllers.log"):
        user.apply(policy, shop)
        for name in MEMBERS:
            place = f"deploy/shop.clusterspace.{name}"
            user.do("wait", "--for=create", place, "--timeout=25s")
            user.do("rollout", "status", place, "--timeout=25s")

    (bad,) = [each for each in _pods_with(user, "app=shop") if each.endswith("west")]
    user.do("exec", bad, "--", "sh", "-c", "echo broken > /tmp/state")

    shown = user.do("get", "pods", "-l", "app=shop", "--no-headers")
    logged = user.do("logs", "-l", "app=shop", "--prefix", "--tail=1")
    states = {
        each: user.kubectl("exec", each, "--", "cat", "/tmp/state").output
        for each in _pods_with(user, "app=shop")
    }
    user.do("delete", "pod", bad)
    user.do("rollout", "status", "deploy/shop.clusterspace.west", "--timeout=25s")

    assert len(shown.splitlines()) == len(logged.splitlines()) == len(MEMBERS)
    assert [each for each, state in states.items() if state] == [bad]
    assert bad not in _pods_with(user, "app=shop")
    any_pod = user.do("exec", "deploy/shop", "--", "hostname").strip()
    assert any_pod in [each.partition(".")[0] for each in _pods_with(user, "app=shop")]


def _pods_with(user: Kubectl, selector: str) -> list[str]:
    listed = user.do("get", "pods", "-l", selector, "-o", "name").split()
    return [each.removeprefix("pod/") for each in listed]
