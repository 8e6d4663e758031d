"""Tasks of a process are started again when they fail, and told of."""

import asyncio

from clusterspace.aio.tasks import Supervisor, keep_all, restarts
from clusterspace.errors import TaskFailed
from clusterspace.testing.clocks import ManualClock


async def test_every_task_is_kept_and_one_that_fails_is_started_again():
    clock, told = ManualClock(), list[TaskFailed]()
    runs: list[str] = []

    async def fails() -> None:
        runs.append("fails")
        raise OSError("no")

    async def lasts() -> None:
        runs.append("lasts")
        await asyncio.Event().wait()

    async with Supervisor(clock, told.append) as supervisor:
        keep_all(supervisor, {"first": fails, "second": lasts})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await clock.advance(next(restarts()))

    assert runs.count("fails") == 2
    assert runs.count("lasts") == 1
    assert "first" in str(told[0])
