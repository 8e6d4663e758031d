"""A stranger's first five minutes: clone, `make up`, the quick start as written, stop.

With an empty HOME, and a PATH with Python, make and kubectl, and two programs every Unix has.
Everything is installed from the package index, so this takes minutes and needs one.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flows.pages import ROOT, Mode, read_steps
from tests.flows.terminals import Terminal

NEEDED = ("make", "kubectl")
UNIX = ("sh", "touch")
INSTALL_SECONDS = 600.0
START_SECONDS = 60.0
NO_INDEX = ("No matching distribution found", "Failed to establish a new connection")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Clone what is committed; nothing that lies about in this tree helps."""
    target = tmp_path / "clone"
    git = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(target)]
    subprocess.run(git, check=True, timeout=60)
    return target


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return what a bare machine has; where packages come from is the machine's own business."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in (*NEEDED, *UNIX):
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"there is no {name} on this machine")
        (programs / name).symlink_to(found)
    (programs / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    home = tmp_path / "home"
    home.mkdir()
    index = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    return {**index, "PATH": str(programs), "HOME": str(home)}


@pytest.fixture
def fleet(clone: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run `make up`, with free ports, until it says what to try."""
    log = clone.parent / "make-up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["make", "up", "ARGS=--hub-port 0 --fleet-port 0"],
            cwd=clone,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_until_ready(process, log)
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(timeout=START_SECONDS)


def wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + INSTALL_SECONDS
    while "Now try" not in log.read_text():
        if process.poll() is not None:
            said = log.read_text()
            if any(each in said for each in NO_INDEX):
                pytest.skip("the package index does not answer")
            raise AssertionError(said)
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


@pytest.mark.slow
def test_a_stranger_gets_through_the_quick_start(
    clone: Path, environment: dict[str, str], fleet: subprocess.Popen[bytes]
) -> None:
    first, *others, last = read_steps(clone / "docs" / "quick-start.md")
    assert (first.commands, first.mode) == ("make up", Mode.NOT_RUN)
    assert (last.commands, last.mode) == ("clusterspace down", Mode.NOT_RUN)

    terminal = Terminal(clone, environment)
    for step in others:
        terminal.follow(step)
    terminal.type(last.commands)

    assert fleet.wait(timeout=START_SECONDS) == 0


@pytest.mark.slow
def test_what_make_up_says_to_try_works(
    clone: Path, environment: dict[str, str], fleet: subprocess.Popen[bytes]
) -> None:
    said = (clone.parent / "make-up.log").read_text().partition("Now try")[2]
    commands = [each.strip().partition("   ")[0] for each in said.splitlines()[2:]]
    first_words = ("export", "kubectl", "clusterspace")
    terminal = Terminal(clone, environment)

    tried = [each for each in commands if each.startswith(first_words)]
    for command in tried:
        terminal.type(command)

    assert len(tried) >= 6
    assert fleet.poll() is None
