"""A real process of a simulated member, for tests that look at it from outside."""

import os
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from tests.conformance.kubectl_stage import find_program

from clusterspace.testing.programs import Program

PATIENCE = 30.0


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it said."""

    exit_code: int
    output: str
    error: str


@dataclass(frozen=True)
class Kubectl:
    """A kubectl that points somewhere."""

    directory: Path
    kubeconfig: Path

    def kubectl(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Ran:
        """Run kubectl to its end."""
        done = subprocess.run(
            [find_program("kubectl"), *arguments],
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            env={**self.environment, **(environment or {})},
            timeout=PATIENCE,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def do(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Run kubectl, which must succeed, and return what it printed."""
        ran = self.kubectl(*arguments, stdin=stdin, environment=environment)
        assert ran.exit_code == 0, f"kubectl {' '.join(arguments)}: {ran.error}{ran.output}"
        return ran.output

    def start(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """Start a kubectl that the test wants to see at work; leave it with `with`."""
        return subprocess.Popen(
            [find_program("kubectl"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self.environment, **(environment or {})},
        )

    def get(self, *arguments: str) -> Any:
        """Return what `kubectl get -o json` has."""
        return msgspec.json.decode(self.do("get", *arguments, "-o", "json"))

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply objects."""
        text = b"".join(b"---\n" + msgspec.json.encode(each) + b"\n" for each in objects)
        self.do("apply", "-f", "-", stdin=text)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self.directory),
            "KUBECACHEDIR": str(self.directory / "cache"),
            "KUBECONFIG": str(self.kubeconfig),
        }


@dataclass(frozen=True)
class RunningSim(Kubectl):
    """A simulated member, and a kubectl that points there."""

    log: Path
    pid: int

    def problems(self) -> list[str]:
        """Return what went wrong inside, as its log has it."""
        lines = [msgspec.json.decode(line) for line in self.log.read_bytes().splitlines()]
        return [
            str(each) for each in lines if each.get("level") in ("warning", "error", "critical")
        ]


@contextmanager
def running_sim(directory: Path, name: str = "east", *options: str) -> Generator[RunningSim]:
    """Run a simulated member for as long as the block lasts."""
    data, log = directory / "data", directory / "sim.log"
    words = ["sim", name, "--data-dir", str(data), "--log-format", "json", *options]
    process = Program("clusterspace", words, log=log)
    try:
        _wait_for(data / "kubeconfig", process, log)
        yield RunningSim(directory, data / "kubeconfig", log, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()


def _wait_for(kubeconfig: Path, process: Program, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not kubeconfig.exists():
        assert process.poll() is None, f"the member ended at once:\n{log.read_text()}"
        assert time.monotonic() < deadline, f"the member is not ready:\n{log.read_text()}"
        time.sleep(0.05)
