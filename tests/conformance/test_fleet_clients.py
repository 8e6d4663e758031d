"""Programs of other people's clients at the fleet address, and what they did on a member.

The programs are in `clients/`, whose README says what each needs; where that is not installed the
test is skipped, by name.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.fleets import RunningFleet, running_fleet
from tests.conformance.hubs import PATIENCE
from tests.conformance.kubectl_stage import pod

PROGRAMS = Path(__file__).with_name("clients")
PYTHON = "CLUSTERSPACE_CLIENTS_PYTHON"
NODE_MODULES = "CLUSTERSPACE_CLIENTS_NODE_MODULES"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
MOST_SECONDS = 120.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningFleet]:
    with running_fleet(tmp_path_factory.mktemp("fleet")) as running:
        for member in running.members.values():
            member.create(PODS, pod("p", app="p"))
        for member in running.members.values():
            wait_for(lambda at=member: at.get(f"{PODS}/p")["status"].get("phase") == "Running")
        yield running
        assert running.server.errors() == []


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)


def python_with(package: str) -> str:
    """Return a Python that has a package; skip the test where there is none."""
    for python in (sys.executable, os.environ.get(PYTHON, "")):
        tried = python and subprocess.run(
            [python, "-c", f"import {package}"], capture_output=True, check=False
        )
        if tried and tried.returncode == 0:
            return python
    pytest.skip(f"{package} is not installed, neither here nor for {PYTHON}")


def environment(fleet: RunningFleet, directory: Path) -> dict[str, str]:
    kept = {key: os.environ[key] for key in ("PATH", NODE_MODULES) if key in os.environ}
    return {**kept, "KUBECONFIG": str(fleet.server.kubeconfig), "HOME": str(directory)}


def run(fleet: RunningFleet, directory: Path, *command: str) -> None:
    done = subprocess.run(
        command,
        env=environment(fleet, directory),
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


def assert_written_on_east_alone(fleet: RunningFleet, name: str) -> None:
    written = fleet.members["east"].get(f"{MAPS}/{name}")
    assert written["data"] == {"step": "replaced"}
    assert ".clusterspace." not in str(written["metadata"]["name"])
    for elsewhere in (fleet.hub, fleet.members["west"]):
        assert elsewhere.ask("GET", f"{MAPS}/{name}").status == 404


@pytest.mark.parametrize("package", ["kubernetes", "kr8s", "lightkube"])
def test_a_program_in_python_reads_writes_and_watches_a_member(
    fleet: RunningFleet, tmp_path: Path, package: str
) -> None:
    python = python_with(package)

    run(fleet, tmp_path, python, str(PROGRAMS / f"{package}_program.py"), package)

    assert_written_on_east_alone(fleet, package)


def test_the_create_handler_of_a_kopf_operator_runs_although_it_waits_for_its_own_write(
    fleet: RunningFleet, tmp_path: Path
) -> None:
    """It ran five seconds late, when kopf had given up waiting; this operator does not give up."""
    python = python_with("kopf")
    metadata = {"name": "kopf", "labels": {"operated": "yes"}}
    command = (python, "-m", "kopf", "run", "--standalone", "--namespace=default", "--quiet")
    log = tmp_path / "log"
    with (
        log.open("wb") as said,
        subprocess.Popen(
            [*command, str(PROGRAMS / "kopf_operator.py")],
            env=environment(fleet, tmp_path),
            cwd=tmp_path,
            stdout=said,
            stderr=said,
        ) as operator,
    ):
        try:
            made = {"metadata": metadata, "data": {"step": "made"}}
            fleet.members["east"].create(MAPS, made)
            place = f"{MAPS}/kopf"
            wait_for(lambda: fleet.members["east"].get(place)["data"]["step"] == "replaced")
            assert_written_on_east_alone(fleet, "kopf")
            fleet.members["east"].ask("DELETE", place)
            wait_for(lambda: fleet.members["east"].ask("GET", place).status == 404)
        except AssertionError as error:
            raise AssertionError(log.read_text()[-4000:]) from error
        finally:
            operator.terminate()


def test_an_ansible_playbook_changes_a_member_once(fleet: RunningFleet, tmp_path: Path) -> None:
    beside = Path(os.environ.get(PYTHON, sys.executable)).with_name("ansible-playbook")
    playbook = str(beside) if beside.exists() else shutil.which("ansible-playbook")
    if playbook is None:
        pytest.skip("ansible-playbook is not installed")
    galaxy = str(Path(playbook).with_name("ansible-galaxy"))
    collections = subprocess.run(
        [galaxy, "collection", "list", "kubernetes.core"], capture_output=True, check=False
    )
    if collections.returncode or b"kubernetes.core" not in collections.stdout:
        pytest.skip("the collection kubernetes.core is not installed")
    python = Path(playbook).with_name("python")
    values = ("-e", f"prefix=ansible ansible_python_interpreter={python}")

    run(fleet, tmp_path, playbook, "-i", "localhost,", *values,
        str(PROGRAMS / "ansible_playbook.yaml"))  # fmt: skip

    assert_written_on_east_alone(fleet, "ansible")


def test_a_program_in_javascript_reads_writes_and_watches_a_member(
    fleet: RunningFleet, tmp_path: Path
) -> None:
    node, modules = shutil.which("node"), os.environ.get(NODE_MODULES, "")
    if node is None or not Path(modules, "@kubernetes", "client-node").is_dir():
        pytest.skip(f"there is no node, or no @kubernetes/client-node in {NODE_MODULES}")

    run(fleet, tmp_path, node, str(PROGRAMS / "node_program.mjs"), "node")

    assert_written_on_east_alone(fleet, "node")
