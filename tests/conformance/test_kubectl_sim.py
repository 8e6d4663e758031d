"""kubectl against a simulated member: everything that needs pods that do something."""

import hashlib
import itertools
import os
import re
import socket
import urllib.request
from collections.abc import Generator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from tests.conformance.sims import PATIENCE, RunningSim, running_sim

SPDY = {
    "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false",
    "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false",
}
TRANSPORTS = pytest.mark.parametrize("transport", [{}, SPDY], ids=["websocket", "spdy"])
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningSim]:
    with running_sim(tmp_path_factory.mktemp("sim")) as found:
        yield found
        assert found.problems() == []


def workload(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    container = {
        "name": "c",
        "image": "web:1",
        "ports": [{"containerPort": 80}],
        "env": [{"name": "COLOUR", "value": "blue"}],
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


@pytest.fixture
def web(member: RunningSim) -> str:
    """Give the name of a Deployment that nobody else uses, with all of its pods running."""
    name = f"web-{next(_numbers)}"
    member.apply(workload("Deployment", name, replicas=2))
    member.do("rollout", "status", f"deploy/{name}", "--timeout=20s")
    return name


@pytest.fixture
def pod(member: RunningSim, web: str) -> str:
    """Give the name of a running pod."""
    return pods_of(member, web)[0]


def live_pods(member: RunningSim, name: str) -> list[Any]:
    items = member.get("pods", "-l", f"app={name}")["items"]
    return [each for each in items if "deletionTimestamp" not in each["metadata"]]


def pods_of(member: RunningSim, name: str) -> list[str]:
    return sorted(each["metadata"]["name"] for each in live_pods(member, name))


def images_of(member: RunningSim, name: str) -> list[str]:
    return [each["spec"]["containers"][0]["image"] for each in live_pods(member, name)]


def test_pods_are_running_on_nodes_with_addresses(member: RunningSim, web: str) -> None:
    lines = member.do("get", "pods", "-l", f"app={web}", "-o", "wide", "--no-headers").splitlines()

    assert len(lines) == 2
    for line in lines:
        assert re.search(r"1/1 +Running +0 +\S+ +10\.\d+\.\d+\.\d+ +east-node-\d", line), line


def test_every_member_has_an_identity_of_its_own(member: RunningSim, tmp_path: Path) -> None:
    with running_sim(tmp_path, "west", "--nodes", "1") as other:
        uids = [each.get("ns", "kube-system")["metadata"]["uid"] for each in (member, other)]

        assert uids[0] != uids[1]
        assert [each["metadata"]["name"] for each in other.get("nodes")["items"]] == ["west-node-0"]


def test_logs_can_be_read_and_followed(member: RunningSim, pod: str) -> None:
    shown = member.do("logs", pod, "--tail=1")
    with member.start("logs", "-f", pod) as following:
        assert following.stdout is not None
        lines = [following.stdout.readline() for _ in range(3)]
        following.kill()

    assert re.fullmatch(r"\d{6} .*\n", shown)
    numbers = [int(line[:6]) for line in lines]
    assert numbers == list(range(numbers[0], numbers[0] + 3))


@TRANSPORTS
def test_exec_runs_the_pods_own_shell(
    member: RunningSim, pod: str, transport: dict[str, str]
) -> None:
    said = member.do("exec", pod, "--", "sh", "-c", "hostname; echo $COLOUR", environment=transport)
    typed = member.do("exec", "-i", pod, "--", "cat", stdin=b"typed", environment=transport)
    failed = member.kubectl("exec", pod, "--", "sh", "-c", "exit 7", environment=transport)
    unknown = member.kubectl("exec", pod, "--", "reboot", environment=transport)

    assert said == f"{pod}\nblue\n"
    assert typed == "typed"
    assert failed.exit_code == 7
    assert unknown.exit_code == 127


@TRANSPORTS
def test_attach_gives_back_what_is_typed(
    member: RunningSim, pod: str, transport: dict[str, str]
) -> None:
    assert member.do("attach", "-i", pod, stdin=b"hello\n", environment=transport) == "hello\n"


@TRANSPORTS
def test_a_port_can_be_forwarded(member: RunningSim, pod: str, transport: dict[str, str]) -> None:
    with member.start("port-forward", pod, ":80", environment=transport) as forwarding:
        try:
            local = _local_port(forwarding)
            with urllib.request.urlopen(f"http://127.0.0.1:{local}/hello", timeout=10) as page:
                assert page.read().decode() == f"default/{pod}:80 GET /hello\n"
            with socket.create_connection(("127.0.0.1", local), timeout=10) as raw:
                raw.sendall(b"not http")
                assert raw.recv(100) == b"not http"
        finally:
            forwarding.terminate()


def _local_port(forwarding: Popen[bytes]) -> int:
    assert forwarding.stdout is not None
    found = re.search(rb"127\.0\.0\.1:(\d+)", forwarding.stdout.readline())
    assert found is not None
    return int(found[1])


@TRANSPORTS
def test_five_megabytes_are_copied_in_and_out_unharmed(
    member: RunningSim, pod: str, tmp_path: Path, transport: dict[str, str]
) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(os.urandom(5_000_000))

    member.do("cp", str(source), f"{pod}:/tmp/copy", environment=transport)
    listed = member.do("exec", pod, "--", "sha256sum", "/tmp/copy")
    member.do("cp", f"{pod}:/tmp/copy", str(back), environment=transport)

    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert listed.split()[0] == digest
    assert hashlib.sha256(back.read_bytes()).hexdigest() == digest


def test_a_directory_is_copied_with_all_that_is_in_it(
    member: RunningSim, pod: str, tmp_path: Path
) -> None:
    (tmp_path / "tree" / "a").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "leaf").write_text("green")

    member.do("cp", str(tmp_path / "tree"), f"{pod}:/tmp/tree")
    member.do("cp", f"{pod}:/tmp/tree", str(tmp_path / "again"))

    assert (tmp_path / "again" / "a" / "leaf").read_text() == "green"


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_a_rollout_goes_forward_back_and_again(member: RunningSim, kind: str) -> None:
    name = f"roll-{kind.lower()}"
    place = f"{kind.lower()}/{name}"
    member.apply(workload(kind, name, **({} if kind == "DaemonSet" else {"replicas": 3})))
    member.do("rollout", "status", place, "--timeout=20s")
    first = pods_of(member, name)

    member.do("set", "image", place, "c=web:2")
    member.do("rollout", "status", place, "--timeout=30s")
    assert images_of(member, name) == ["web:2"] * 3
    assert kind == "StatefulSet" or not set(first) & set(pods_of(member, name))

    member.do("rollout", "undo", place)
    member.do("rollout", "status", place, "--timeout=30s")
    assert images_of(member, name) == ["web:1"] * 3

    member.do("rollout", "restart", place)
    member.do("rollout", "status", place, "--timeout=30s")
    history = member.do("rollout", "history", place)
    assert re.findall(r"^(\d+) ", history, re.MULTILINE) == ["2", "3", "4"]
    member.do("delete", place)


@pytest.mark.parametrize(
    "change",
    [
        ("label", "team=blue"),
        ("annotate", "note=hello"),
        ("scale", "--replicas=4"),
    ],
    ids=["label", "annotation", "scale"],
)
def test_only_a_template_change_replaces_pods(
    member: RunningSim, web: str, change: tuple[str, str]
) -> None:
    before = pods_of(member, web)

    member.do(change[0], f"deploy/{web}", change[1])
    member.do("rollout", "status", f"deploy/{web}", "--timeout=20s")

    assert set(before) <= set(pods_of(member, web))


def test_scaling_is_waited_for(member: RunningSim, web: str) -> None:
    member.do("scale", f"deploy/{web}", "--replicas=5")
    member.do("wait", "--for=jsonpath={.status.readyReplicas}=5", f"deploy/{web}", "--timeout=20s")
    member.do("wait", "--for=condition=Available", f"deploy/{web}", "--timeout=20s")

    assert len(pods_of(member, web)) == 5


def test_a_job_runs_to_its_end(member: RunningSim) -> None:
    member.do("create", "job", "count", "--image=web:1")
    member.do("wait", "--for=condition=complete", "job/count", "--timeout=20s")

    assert member.get("job", "count")["status"]["succeeded"] == 1


def test_top_shows_pods_and_nodes(member: RunningSim, pod: str) -> None:
    pods = member.do("top", "pods", "--no-headers")
    nodes = member.do("top", "nodes", "--no-headers")

    assert re.search(rf"^{pod} +\d+m +\d+Mi", pods, re.MULTILINE)
    assert len(re.findall(r"^east-node-\d +\d+m +\d+% +\d+Mi +\d+%", nodes, re.MULTILINE)) == 3


def test_deleting_a_deployment_takes_its_pods_with_it(member: RunningSim, web: str) -> None:
    member.do("delete", f"deploy/{web}", "--cascade=foreground", f"--timeout={PATIENCE:g}s")

    assert pods_of(member, web) == []


def test_a_drained_node_has_no_pods_left_but_its_daemons(member: RunningSim, web: str) -> None:
    member.do("drain", "east-node-0", "--ignore-daemonsets", "--force", "--timeout=20s")
    try:
        member.do("rollout", "status", f"deploy/{web}", "--timeout=20s")
        on_node = member.get("pods", "-A", "--field-selector", "spec.nodeName=east-node-0")["items"]
        live = [each for each in on_node if each["status"]["phase"] == "Running"]
        assert live == []
    finally:
        member.do("uncordon", "east-node-0")
