"""A ginkgo suite as a process, and its report as results."""

import json
import os
import re
import subprocess
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_START_SECONDS: Final = 90.0
_END_SECONDS: Final = 20.0
_REPORT: Final = "report.json"


class Missing(Exception):
    """A suite cannot be run here; the text says what is not there."""


@dataclass(frozen=True, slots=True, order=True)
class Spec:
    """One spec of a suite: where it is written, and its full name."""

    file: str
    name: str


@dataclass(frozen=True, slots=True)
class Result:
    """How a spec ended."""

    spec: Spec
    passed: bool
    seconds: float
    why: str = ""


def named_file(variable: str) -> Path:
    """Return the file that a variable of the environment names; Missing when there is none."""
    text = os.environ.get(variable, "")
    path = Path(text).resolve()
    if not text:
        raise Missing(f"`{variable}` names no file")
    if not path.exists():
        raise Missing(f"`{variable}` names {path.name}, which is not there")
    return path


@contextmanager
def running(
    directory: Path, name: str, command: Sequence[str | Path], **environment: str
) -> Generator[None]:
    """Run a program for as long as the block lasts; its words are in `NAME.log`."""
    with (directory / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(each) for each in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
            cwd=ROOT,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_file(path: Path) -> Path:
    """Wait for a file that appears when a server is ready."""
    deadline = time.monotonic() + _START_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {path} after {_START_SECONDS:g}s: see the logs beside")
        time.sleep(0.2)
    return path


@dataclass(frozen=True, slots=True)
class Suite:
    """A compiled suite, and the flags it takes."""

    binary: Path
    flags: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]

    def list_specs(self, work: Path) -> None:
        """Report every spec of the suite, without running any."""
        self._run(work, ("--dry-run",), 600)

    def run(self, work: Path, specs: Iterable[Spec], *, processes: int, seconds: int) -> None:
        """Run these specs and report how each ended."""
        focus = "|".join(re.escape(each.name).replace(r"\ ", " ") for each in specs)
        self._run(work, (f"--procs={processes}", "--keep-going", f"--focus={focus}"), seconds)

    def run_all(self, work: Path, skip: str, *, processes: int, seconds: int) -> None:
        """Run every spec but those whose name has an expression."""
        but = (f"--skip={skip}",) if skip else ()
        self._run(work, (f"--procs={processes}", "--keep-going", *but), seconds)

    def _run(self, work: Path, arguments: tuple[str, ...], seconds: int) -> None:
        work.mkdir(parents=True, exist_ok=True)
        report = work / _REPORT
        report.unlink(missing_ok=True)
        command = [
            str(named_file("CONFORMANCE_GINKGO")),
            "--no-color",
            f"--timeout={seconds}s",
            f"--output-dir={work}",
            f"--json-report={report.name}",
            *arguments,
            str(self.binary),
            "--",
            *self.flags,
        ]
        with (work / "suite.log").open("wb") as log:
            # Its exit code says whether all passed: so does the report, one by one.
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.cwd,
                env={**os.environ, "HOME": str(work), **self.environment},
                timeout=seconds + 300,
                check=False,
            )


def read_report(directory: Path, *, left_out: bool = False) -> list[Result]:
    """Return the results in a directory: of specs that were run, or would have been.

    A spec that never ended is not among them; one that was left out because another of its
    container had failed is, as failed.
    """
    file = directory / _REPORT
    if not file.exists():
        raise Missing(f"there is no report in `{directory.name}`")
    results: list[Result] = []
    for suite in json.loads(file.read_text()):
        for each in suite["SpecReports"] or ():
            why = (each.get("Failure") or {}).get("Message", "")
            was_left_out = each["State"] in ("skipped", "pending") and not why
            if each["LeafNodeType"] != "It" or was_left_out != left_out:
                continue
            name = " ".join((*(each["ContainerHierarchyTexts"] or ()), each["LeafNodeText"]))
            written_in = each["LeafNodeLocation"]["FileName"].rpartition("/e2e/")[2]
            passed, seconds = each["State"] == "passed", each["RunTime"] / 1e9
            spec = Spec(written_in, name)
            results.append(Result(spec, passed, seconds, " ".join(why.split())[:160]))
    return results
