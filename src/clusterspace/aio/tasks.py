"""Supervised groups for tasks that must never end quietly."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from types import TracebackType
from typing import TypeAlias

import structlog

from clusterspace.aio import clocks
from clusterspace.aio.clocks import Clock, Delays
from clusterspace.errors import ClusterspaceError, StoreFull, TaskFailed

_log = structlog.get_logger(__name__)

Work: TypeAlias = Callable[[], Awaitable[None]]
"""What a task does; called again when the task is restarted."""

Tasks: TypeAlias = Mapping[str, Work]
"""Works that must never end, by the names they have in logs."""

Report: TypeAlias = Callable[[TaskFailed], None]
"""Told of every failure, once, as it happens."""


class Supervisor:
    """Tasks with names that live inside an `async with`, and end with it.

        async with Supervisor(clock, report) as tasks:
            tasks.keep("compactor", compact_forever)
            tasks.keep("informer", follow_pods, restart=lambda: clocks.exponential(1, 30))
            await serve()

    Leaving the block cancels and awaits them all. When a kept task fails for good, the block
    is cancelled and raises TaskFailed: one error with a name, never an ExceptionGroup.
    """

    HEALTHY_AFTER = 60.0
    """A task that ran this many seconds starts over with the shortest delay when it fails."""

    def __init__(self, clock: Clock, report: Report) -> None:
        self._clock = clock
        self._report = report
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    async def __aenter__(self) -> "Supervisor":
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # All are cancelled before any is awaited, so that a task which waits for another on its way
        # out finds that one on its way out, too. Each is cancelled once: work that swallows it, or
        # starts more here while it cleans up, keeps the block waiting.
        for task in self._tasks:
            task.cancel()
        try:
            await self._group.__aexit__(error_type, error, traceback)
        except BaseExceptionGroup as failures:
            # The first is the reason: a task that failed made the group cancel the block and its
            # siblings, and whatever those raised on their way out came later.
            first = failures.exceptions[0]
            raise first from first.__cause__

    def keep(self, name: str, work: Work, *, restart: Delays | None = None) -> None:
        """Run work that must not end before the group does.

        Returning counts as failing. Without `restart` a failure ends the group; with it the
        work runs again after each delay, until the delays run out.
        """

        async def keep_running() -> None:
            delays: Iterator[float] = iter(()) if restart is None else restart()
            while True:
                started = self._clock.monotonic()
                # Cancellation is no failure: it passes through `_failure_of` and ends the task,
                # also while it sleeps between two attempts.
                failed = TaskFailed(name, await _failure_of(work))
                self._report(failed)
                if restart is not None and self._clock.monotonic() - started >= self.HEALTHY_AFTER:
                    delays = restart()
                delay = next(delays, None)
                if delay is None:
                    # Out of the task and into the group, which cancels the block and every other
                    # task: nobody goes on for long beside something that has stopped for good.
                    raise failed
                await self._clock.sleep(delay)

        self._start(name, keep_running())

    def spawn(self, name: str, work: Work) -> None:
        """Run work that may end when it is done; a failure is reported and hurts nobody else."""

        async def run_once() -> None:
            failure = await _failure_of(work)
            if failure is not None:
                self._report(TaskFailed(name, failure))

        self._start(name, run_once())

    def _start(self, name: str, supervised: Coroutine[None, None, None]) -> None:
        task = self._group.create_task(supervised, name=name)
        # Known until it is done, so that the end of the block can cancel it: a group by itself
        # waits for its tasks and cancels them only when one of them has failed.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _failure_of(work: Work) -> Exception | None:
    """Run the work and return what it raised; cancellation passes through."""
    try:
        await work()
    except Exception as failure:  # noqa: BLE001 - whatever it is, it must reach the report
        return failure
    return None


def keep_all(supervisor: Supervisor, tasks: Tasks) -> None:
    """Keep every one of the tasks; one that fails is started again."""
    for name, work in tasks.items():
        supervisor.keep(name, work, restart=restarts)


def restarts() -> Iterator[float]:
    """Yield the delays before a task that failed is started again."""
    return clocks.exponential(0.5, 30)


def report(failure: TaskFailed) -> None:
    """Tell the log of a task that failed.

    What we raise on purpose is a sentence that says it all; where it came from is of use only for
    what nobody expected. Of a full disk its store tells once, whoever fails for want of it.
    """
    if isinstance(failure.__cause__, StoreFull):
        _log.debug("task failed", reason=str(failure))
        return
    is_expected = isinstance(failure.__cause__, ClusterspaceError)
    trace = None if is_expected else failure.__cause__
    _log.error("task failed", reason=str(failure), exc_info=trace)
