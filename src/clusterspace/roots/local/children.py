"""Components of a local fleet as child processes: started, watched, started again, stopped."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from clusterspace.aio import clocks
from clusterspace.aio.clocks import Clock
from clusterspace.errors import ComponentFailed
from clusterspace.roots.processes import LIFELINE

_STOP_SECONDS: Final = 15.0
_STEP_SECONDS: Final = 0.05
_HEALTHY_AFTER_SECONDS: Final = 10.0
"""A component that ran this long is started again at once; one that keeps falling is not."""


class State(Enum):
    """How a component is doing."""

    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting to start again"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Component:
    """One process of a local fleet."""

    name: str
    arguments: tuple[str, ...]
    """What comes after `clusterspace`, or another program, on its command line."""
    log: Path
    listens_at: int
    program: tuple[str, ...] = (sys.executable, "-m", "clusterspace")
    ready_file: Path | None = None
    """Written anew when the component is ready, if a port that answers does not say enough."""
    settle: Callable[[], Awaitable[None]] | None = None
    """What is done each time the component has started, before it counts as ready."""


class Child:
    """One component, kept running for as long as `run` does."""

    def __init__(
        self,
        component: Component,
        clock: Clock,
        *,
        on_change: "Callable[[Child], None]",
        hurry: asyncio.Event,
    ) -> None:
        self.component = component
        self.state = State.STOPPED
        self.restarts = 0
        self._clock = clock
        self._on_change = on_change
        self._hurry = hurry
        self._process: asyncio.subprocess.Process | None = None
        self._was_ready = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def wait_ready(self) -> None:
        """Wait until the component has been ready once."""
        await self._was_ready.wait()

    async def run(self) -> None:
        """Keep the component running; ComponentFailed when it ends before it was ever ready."""
        delays = _delays()
        try:
            while True:
                started = self._clock.monotonic()
                await self._run_once()
                if not self._was_ready.is_set():
                    # Our commands end with one sentence that helps: it is the last of the log.
                    lines = self.component.log.read_text(errors="replace").splitlines()
                    errors = [line for line in lines if line.startswith("Error: ")]
                    reason = (errors or lines or ["it said nothing"])[-1].removeprefix("Error: ")
                    raise ComponentFailed(self.component.name, reason, str(self.component.log))
                if self._clock.monotonic() - started >= _HEALTHY_AFTER_SECONDS:
                    delays = _delays()
                self.restarts += 1
                self._enter(State.WAITING)
                await self._clock.sleep(next(delays))
        finally:
            # However this ends, the process ends with it; a second signal meanwhile kills it.
            if self._process is not None and self._process.returncode is None:
                await self._stop(self._process)
            self._enter(State.STOPPED)

    async def _run_once(self) -> None:
        # The file of an earlier run stays where it is, for others may read it meanwhile.
        before = self._ready_mark()
        # In a session of its own, so that Ctrl-C reaches us alone and we stop the components in
        # order. The pipe is its lifeline: it closes when we end, however we end.
        with self.component.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.component.program,
                *self.component.arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, LIFELINE: "stdin"},
            )
        self._enter(State.STARTING)
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._become_ready(before))
            await self._process.wait()
            looking.cancel()

    def _ready_mark(self) -> tuple[int, int] | None:
        """Return what tells one writing of the ready file from another; None without a file."""
        if self.component.ready_file is None:
            return None
        try:
            found = self.component.ready_file.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    async def _become_ready(self, before: tuple[int, int] | None) -> None:
        has_file = self.component.ready_file is not None
        while (has_file and self._ready_mark() in (None, before)) or not await _listens(
            self.component.listens_at
        ):
            await self._clock.sleep(_STEP_SECONDS)
        if self.component.settle is not None:
            await self.component.settle()
        self._enter(State.READY)
        self._was_ready.set()

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL if self._hurry.is_set() else signal.SIGTERM)
        ended = asyncio.ensure_future(process.wait())  # noqa: TID251 - awaited right here
        hurried = asyncio.ensure_future(self._hurry.wait())  # noqa: TID251
        await asyncio.wait(
            (ended, hurried), timeout=_STOP_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        hurried.cancel()
        if not ended.done():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await ended

    def _enter(self, state: State) -> None:
        self.state = state
        self._on_change(self)


def _delays() -> Iterator[float]:
    return clocks.exponential(0.2, 4.0)


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
