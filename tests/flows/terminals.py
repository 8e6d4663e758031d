"""A reader at a terminal: types what a page says, and compares what comes with what it shows."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.flows.likeness import find_differences
from tests.flows.pages import Mode, Step

PATIENCE_SECONDS = 60.0

_LOOKING = re.compile(
    r"kubectl( --\S+ \S+)* (get|describe|logs|top|events|exec|auth|diff|config)\b"
    r"|clusterspace (why|clusters|status|doctor|token list)\b"
    r"|export \b"
)
"""Commands that change nothing: a reader who is early looks again."""

_REMEMBER = 'trap \'export -p > "$TERMINAL"; echo "cd \\"$PWD\\"" >> "$TERMINAL"\' EXIT'


class Terminal:
    """A shell in a directory; what is exported in one step counts in the next."""

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str],
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._directory = directory
        self._patience = patience
        self._state = directory / ".terminal"
        self._environment = {**environment, "TERMINAL": str(self._state)}
        self._others: list[subprocess.Popen[bytes]] = []

    def follow(self, step: Step) -> None:
        """Do what one step says; AssertionError when it is not as the page says."""
        if step.mode is Mode.BACKGROUND:
            self._open_another(step)
        elif step.mode is Mode.INTERRUPT:
            if step.detail:
                self._read_until(step)
            self._end(self._others.pop(), signal.SIGINT)
        elif step.mode is not Mode.NOT_RUN:
            self._compare(step)

    def type(self, commands: str) -> str:
        """Type commands that must work, and return what they print."""
        code, printed = self._run(commands)
        assert code == 0, f"`{commands}` ended with {code}:\n{printed}"
        return printed

    def close(self) -> None:
        """End what still runs in other terminals."""
        while self._others:
            self._end(self._others.pop(), signal.SIGTERM)

    def _compare(self, step: Step) -> None:
        deadline, pause = time.monotonic() + self._patience, 0.2
        while problem := self._find_problem(step):
            if not _only_looks(step.commands) or time.monotonic() > deadline:
                raise AssertionError(f"{step.where}: {problem}")
            # Each look is a process or two, which take their time from what is waited for.
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _find_problem(self, step: Step) -> str | None:
        code, printed = self._run(step.commands)
        if (code != 0) != (step.mode is Mode.FAILS):
            return f"`{step.commands}` ended with {code}:\n{printed}"
        differences = [] if step.shown is None else find_differences(step.shown, printed)
        if differences:
            return "\n".join((f"`{step.commands}`", *differences, "all that was printed:", printed))
        return None

    def _run(self, commands: str) -> tuple[int, str]:
        # A file, not a pipe: what a step leaves running would keep a pipe open.
        output = self._directory / ".output"
        with output.open("wb") as file:
            process = self._start(f"{_REMEMBER}\n{commands}", file.fileno())
            try:
                code = process.wait(timeout=self._patience)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
        return code, output.read_text()

    def _start(self, commands: str, output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/bash", "-euc", f"{self._remembered()}\n{commands}"],
            cwd=self._directory,
            env=dict(self._environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def _remembered(self) -> str:
        return self._state.read_text() if self._state.exists() else ""

    def _open_another(self, step: Step) -> None:
        ready = self._directory / step.detail
        assert not ready.exists(), f"{step.where}: {step.detail} is there before its time"
        output = self._directory / f".terminal-{len(self._others)}"
        with output.open("wb") as file:
            process = self._start(step.commands, file.fileno())
        self._others.append(process)
        deadline = time.monotonic() + self._patience
        while not ready.exists():
            is_hopeless = process.poll() is not None or time.monotonic() > deadline
            assert not is_hopeless, f"{step.where}: no {step.detail}:\n{output.read_text()}"
            time.sleep(0.1)

    def _read_until(self, step: Step) -> None:
        """Wait until a file has the words that a reader waits for."""
        file, words = self._directory / step.detail, step.shown or ""
        deadline = time.monotonic() + self._patience
        while words not in (text := file.read_text()):
            assert time.monotonic() < deadline, f"{step.where}: {step.detail} says\n{text}"
            time.sleep(0.1)

    @staticmethod
    def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        os.killpg(process.pid, number)
        try:
            process.wait(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the page fails, and nothing outlives it
            process.wait()
            raise


def _only_looks(commands: str) -> bool:
    lines = commands.replace("\\\n", " ").splitlines()
    return all(_LOOKING.match(line.strip()) for line in lines if line.strip())
