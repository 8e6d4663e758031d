"""Programs of ours as processes of their own, which start at once.

    hub = Program("clusterspace", ["hub", "--port", "0"], log=tmp_path / "hub.log")
    ...
    hub.terminate()
    assert hub.wait() == 0

To start Python and to import what a hub is made of takes a second of a processor, many times what
the hub takes to be ready then; and tests start and kill hundreds. They are forked from a process
that has imported everything and does nothing else, the fork server of `multiprocessing`. From the
fork on it is the same program as `python -m MODULE`, with its own arguments, signals, log and exit
code. What is about the start itself starts Python anew, with `subprocess`.
"""

import atexit
import multiprocessing
import os
import random
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait as wait_for_sentinels
from pathlib import Path
from time import monotonic
from typing import Final

from clusterspace.testing.hub_stores import ETCD, end_namespaces_soon, obey_environment

_PRELOADED: Final = (
    "clusterspace.cli.commands.controllers",
    "clusterspace.cli.commands.servers",
    "clusterspace.cli.main",
    "clusterspace.roots.agent",
    "clusterspace.roots.controllers",
    "clusterspace.roots.fleet",
    "clusterspace.roots.hub",
    "clusterspace.roots.sim",
    "clusterspace.testing.programs",
)
_PATIENCE: Final = 60.0

forks: Final = multiprocessing.get_context("forkserver")
"""Processes of this context have imported everything."""
forks.set_forkserver_preload(list(_PRELOADED))
# `multiprocessing` looks at all its processes whenever one is started. Whoever looks at a process
# takes how it ended off a pipe, once: two threads at the same time would leave one with nothing.
_lock = threading.Lock()


class Program:
    """A running program; it can be used as a `subprocess.Popen` can."""

    def __init__(
        self,
        module: str,
        words: Sequence[str],
        *,
        log: Path,
        directory: Path | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Start `python -m MODULE WORDS`; what it prints is added to the log."""
        self.args: Final = [module, *words]
        where = directory or Path.cwd()
        log.touch()
        given = (module, list(words), log.absolute(), where, dict(environment))
        # A daemon ends with us. Whoever is killed is followed by what CLUSTERSPACE_LIFELINE is for.
        self._process = forks.Process(target=_run, args=given, daemon=True)
        with _lock:
            self._process.start()
        assert self._process.pid is not None
        self.pid: Final = self._process.pid
        _running.add(self)

    @property
    def returncode(self) -> int | None:
        """How it ended when it was last looked at; a signal is a negative number."""
        return self.poll()

    def poll(self) -> int | None:
        """Return how it ended, or nothing while it runs."""
        with _lock:
            code = self._process.exitcode
        if code is not None:
            _running.discard(self)
        return code

    def wait(self, timeout: float = _PATIENCE) -> int:
        """Wait for its end and return its exit code."""
        deadline = monotonic() + timeout
        while (code := self.poll()) is None:
            if (left := deadline - monotonic()) <= 0:
                raise subprocess.TimeoutExpired(self.args, timeout)
            wait_for_sentinels([self._process.sentinel], left)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would, as far as a process can tell."""
        self.send_signal(signal.SIGKILL)


_running: set[Program] = set()


@atexit.register
def _kill_all() -> None:
    # Before `multiprocessing` asks them to end and waits for it: one may be stopped for good.
    for each in list(_running):
        each.kill()


def _run(
    module: str, words: list[str], log: Path, directory: Path, environment: Mapping[str, str]
) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(output)
    become(module, words, directory, environment)


def become(
    module: str, words: Sequence[str], directory: Path | str, environment: Mapping[str, str]
) -> None:
    """Become `python -m MODULE WORDS` there, in a forked process whose files 0 to 2 are its own."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the process runs
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    if ETCD in environment:
        obey_environment()
    end_namespaces_soon()
    os.chdir(directory)
    random.seed()  # or all that were forked would draw the same numbers
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
