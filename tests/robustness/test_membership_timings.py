"""A Pull cluster with the product's own timings, each part a process: killed, noticed, back."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest
from tests.component.hub_wire import HubProcess
from tests.conformance.kubectl_stage import find_program

pytestmark = pytest.mark.slow

NOTICED_SECONDS = (35.0, 45.0)
BACK_SECONDS = 10.0
PATIENCE = 60.0


@contextmanager
def running(log: Path, *arguments: str) -> Generator[subprocess.Popen[bytes]]:
    """Run a part of the product for as long as the block lasts."""
    with log.open("ab") as output:
        command = [sys.executable, "-m", "clusterspace", *arguments]
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def clusterspace(*arguments: str) -> str:
    """Run a command to its end, which must be a good one; return what it printed."""
    command = [sys.executable, "-m", "clusterspace", *arguments]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def seconds_until(holds: Callable[[], bool]) -> float:
    """Return how long it took until something held."""
    started = time.monotonic()
    while not holds():
        assert time.monotonic() - started < PATIENCE, "waited in vain"
        time.sleep(0.1)
    return time.monotonic() - started


class Fleet:
    """A hub, seen with kubectl."""

    def __init__(self, kubeconfig: Path) -> None:
        self._command = [find_program("kubectl"), "--kubeconfig", str(kubeconfig)]

    def table(self) -> list[list[str]]:
        """Return what `kubectl get clusters` shows, row by row."""
        command = [*self._command, "get", "clusters"]
        shown = subprocess.check_output(command, stderr=subprocess.DEVNULL, timeout=PATIENCE)
        return [line.split() for line in shown.decode().splitlines()]

    def ready(self) -> str:
        return self.table()[1][-2]

    def reason(self) -> str:
        command = [*self._command, "get", "clusters", "west", "-o", "json"]
        held = msgspec.json.decode(subprocess.check_output(command, timeout=PATIENCE))
        return next(c["reason"] for c in held["status"]["conditions"] if c["type"] == "Ready")


def test_a_killed_agent_is_unknown_after_forty_seconds_and_its_successor_ready_at_once(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        hub_directory = tmp_path / "hub"
        hub_directory.mkdir()
        hub = HubProcess(hub_directory, ["clusterspace", "hub"])
        stack.callback(hub.kill)
        hub.wait_ready()
        kubeconfig = hub_directory / "kubeconfig"
        member = tmp_path / "member" / "kubeconfig"
        sim = ("sim", "west", "--data-dir", str(member.parent))
        stack.enter_context(running(tmp_path / "sim.log", *sim))
        identity = hub_directory / "parts" / "controllers" / "kubeconfig"
        controllers = ("controllers", "--hub-kubeconfig", str(identity))
        stack.enter_context(running(tmp_path / "controllers.log", *controllers))
        seconds_until(member.exists)

        _, *register = clusterspace(
            "token", "create", "west", "--print-register-command", "--kubeconfig", str(kubeconfig)
        ).split()
        agent = (*register, "--cluster-kubeconfig", str(member), "--local")
        first = stack.enter_context(running(tmp_path / "agent.log", *agent))
        fleet = Fleet(kubeconfig)
        seconds_until(lambda: len(fleet.table()) > 1 and fleet.ready() == "True")
        assert fleet.table()[0] == ["NAME", "VERSION", "MODE", "READY", "AGE"]

        os.kill(first.pid, signal.SIGKILL)
        noticed = seconds_until(lambda: fleet.ready() == "Unknown")
        assert NOTICED_SECONDS[0] <= noticed <= NOTICED_SECONDS[1]
        assert fleet.reason() == "ClusterStatusUnknown"

        again = ("agent", "--cluster-kubeconfig", str(member))
        stack.enter_context(running(tmp_path / "agent.log", *again))
        assert seconds_until(lambda: fleet.ready() == "True") <= BACK_SECONDS
        print(f"noticed {noticed:.1f} s after the agent was killed")
