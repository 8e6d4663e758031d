"""`clusterspace up` as people use it: real processes, kills, a second start, errors that help."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.component.audit_lines import lines_of

from clusterspace.apis.identities import COMPONENTS
from clusterspace.roots.local.files import LocalFiles, RunRecord
from clusterspace.testing.quick_commands import quick_commands

PATIENCE = 60.0
UP = ("-m", "clusterspace", "up", "--hub-port", "0", "--fleet-port", "0")


def wait_for(what, patience=PATIENCE):
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {patience:g}s")


def run(directory: Path, *verb: str) -> subprocess.CompletedProcess[str]:
    command = [quick_commands() / "clusterspace", *verb, "--data-dir", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


class Fleet:
    def __init__(self, directory: Path, *options: str, python: str = "") -> None:
        self.directory = directory
        self.files = LocalFiles(directory)
        self.output = directory / "output"
        directory.mkdir(exist_ok=True)
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [python or quick_commands() / "python", *UP, "--data-dir", directory, *options],
                stdout=output,
                stderr=output,
            )

    def record(self) -> RunRecord:
        return wait_for(self.files.read_record)

    def wait_ready(self) -> RunRecord:
        wait_for(lambda: self.process.poll() is not None or self.files.is_ready_for_people())
        assert self.process.poll() is None, self.output.read_text()
        return self.record()

    def pid_of(self, part: str) -> int | None:
        return next((each.pid for each in self.record().components if each.name == part), None)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=PATIENCE)


@pytest.fixture
def fleet(tmp_path):
    started: list[Fleet] = []

    def start(*options: str, python: str = "") -> Fleet:
        started.append(Fleet(tmp_path / "fleet", *options, python=python))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.send_signal(signal.SIGTERM)
            each.process.wait(timeout=PATIENCE)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # before it was opened, or before it was read
        return False


def test_a_part_that_is_killed_comes_back_and_nothing_is_lost(fleet):
    running = fleet()
    running.wait_ready()
    kubectl = ["kubectl", "--kubeconfig", str(running.files.kubeconfig), "--context", "hub"]
    made = subprocess.run(
        [*kubectl, "create", "configmap", "kept"], capture_output=True, timeout=PATIENCE
    )
    assert made.returncode == 0, made.stderr
    for part in ("hub", "fleet", "controllers"):
        before = running.pid_of(part)
        assert before is not None
        os.kill(before, signal.SIGKILL)
        wait_for(lambda part=part, before=before: running.pid_of(part) not in (None, before))

    def all_ready() -> bool:
        return all(each.state == "ready" for each in running.record().components)

    wait_for(all_ready)
    found = subprocess.run(
        [*kubectl, "get", "configmap", "kept"], capture_output=True, timeout=PATIENCE
    )
    assert found.returncode == 0, found.stderr
    assert running.stop() == 0

    # Each part worked under its own name; the administrator's is for people.
    writes = lines_of(running.files.hub / "audit.log")
    assert {each["user"] for each in writes} <= {"kubernetes-admin", *COMPONENTS.values()}
    assert COMPONENTS["controllers"] in {each["user"] for each in writes}
    by_people = {each["resource"] for each in writes if each["user"] == "kubernetes-admin"}
    assert by_people == {"configmaps"}


def test_no_part_outlives_the_one_who_started_it(fleet):
    running = fleet(python=sys.executable)
    parts = [each.pid for each in running.wait_ready().components if each.pid]
    assert len(parts) == 3

    running.process.kill()
    running.process.wait(timeout=PATIENCE)

    wait_for(lambda: not any(is_alive(each) for each in parts))
    assert not running.files.is_running()


def test_a_second_start_points_at_the_first(fleet):
    running = fleet()
    running.wait_ready()

    second = run(running.directory, "up")

    assert second.returncode == 0
    assert "running already" in second.stderr
    assert "kubectl get" in second.stdout
    assert "`clusterspace down` stops it" in second.stdout


def test_status_logs_and_down_find_the_fleet(fleet):
    running = fleet()
    running.wait_ready()

    status = json.loads(run(running.directory, "status", "-o", "json").stdout)
    assert {each["name"] for each in status["parts"]} == {"hub", "fleet", "controllers"}
    assert "hub is ready" in run(running.directory, "logs", "hub").stdout
    assert "there are: " in run(running.directory, "logs", "nothing").stderr

    assert run(running.directory, "down").stdout.strip() == "stopped"
    assert running.process.wait(timeout=PATIENCE) == 0
    assert "no fleet runs" in run(running.directory, "status").stderr


def test_a_port_in_use_is_said_in_a_sentence(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        directory = tmp_path / "fleet"
        command = [quick_commands() / "clusterspace", "up", "--hub-port", str(port)]
        ended = subprocess.run(
            [*command, "--fleet-port", "0", "--data-dir", str(directory)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    assert ended.returncode == 1
    assert f"port {port} is in use" in ended.stderr
    assert "Traceback" not in ended.stderr
