"""What stands for `clusterspace` in shells of tests is one process to whoever starts it."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from clusterspace.roots.processes import LIFELINE
from clusterspace.testing.quick_commands import quick_commands
from clusterspace.testing.steps import until

SIM = ("-m", "clusterspace", "sim", "west", "--data-dir", "data")

_WAITS = """
import asyncio, pathlib, signal

async def wait():
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    pathlib.Path("ready").touch()
    await stopped.wait()

asyncio.run(wait())
"""


def start(
    directory: Path, words: Sequence[str] = SIM, interruption: signal.Handlers = signal.SIG_DFL
) -> "subprocess.Popen[bytes]":
    """Start a member that ends when nobody holds its standard input open any more, or another."""
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(
            [quick_commands() / "python", *words],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, LIFELINE: "stdin"},
            process_group=0,
            preexec_fn=lambda: signal.signal(signal.SIGINT, interruption),
        )


def finish(running: "subprocess.Popen[bytes]") -> int:
    with running:
        return running.wait(60)


def pid_of_fork(running: "subprocess.Popen[bytes]", directory: Path) -> int:
    """Return who works in the directory, and is not the process that was started."""
    for each in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if each.readlink() == directory and each.parent.name != str(running.pid):
                return int(each.parent.name)
    raise AssertionError("nobody runs")


def test_a_command_prints_and_ends_as_the_real_one_does(tmp_path: Path) -> None:
    for words in (("--version",), ("clusters", "--no-such-option"), ("no-such-verb",)):
        quick, real = (
            subprocess.run(
                [*program, *words], capture_output=True, text=True, cwd=tmp_path, check=False
            )
            for program in (
                [quick_commands() / "clusterspace"],
                [sys.executable, "-m", "clusterspace"],
            )
        )
        said = real.stderr.replace("python -m clusterspace", "clusterspace")

        assert (quick.returncode, quick.stdout) == (real.returncode, real.stdout)
        assert quick.stderr.replace("python -m clusterspace", "clusterspace") == said


def test_what_is_no_module_is_run_by_python_itself() -> None:
    ran = subprocess.run(
        [quick_commands() / "python", "-c", "print(1 + 1)"], capture_output=True, check=True
    )

    assert ran.stdout == b"2\n"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -9)]
)
async def test_a_signal_ends_the_program_and_not_only_who_stands_for_it(
    number: int, code: int, tmp_path: Path
) -> None:
    running = start(tmp_path)
    await until((tmp_path / "data" / "kubeconfig").exists)
    fork = pid_of_fork(running, tmp_path)

    running.send_signal(number)

    assert finish(running) == code
    await until(lambda: not Path(f"/proc/{fork}").exists())


@pytest.mark.parametrize("is_ignored", [False, True], ids=["heard", "ignored"])
async def test_an_interruption_is_ignored_by_what_was_started_so_and_by_nothing_else(
    is_ignored: bool, tmp_path: Path
) -> None:
    """Shells start what runs in the background so: a whole test run, and what is forked for it."""
    (tmp_path / "waits.py").write_text(_WAITS)
    how = signal.SIG_IGN if is_ignored else signal.SIG_DFL
    running = start(tmp_path, ("-m", "waits"), how)
    await until((tmp_path / "ready").exists)

    os.killpg(running.pid, signal.SIGINT)
    # Behind it: who hears both is interrupted by the first, and does not end well.
    os.killpg(running.pid, signal.SIGTERM)

    assert (finish(running) == 0) == is_ignored


async def test_a_program_that_is_killed_is_seen_to_be_killed(tmp_path: Path) -> None:
    running = start(tmp_path)
    await until((tmp_path / "data" / "kubeconfig").exists)

    os.kill(pid_of_fork(running, tmp_path), signal.SIGKILL)

    assert finish(running) == -signal.SIGKILL


async def test_its_standard_input_is_the_one_it_was_given(tmp_path: Path) -> None:
    running = start(tmp_path)
    assert running.stdin is not None
    await until((tmp_path / "data" / "kubeconfig").exists)

    running.stdin.close()

    assert finish(running) == 0
