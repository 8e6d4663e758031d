import asyncio
from contextlib import suppress

import pytest

from clusterspace.testing import steps
from clusterspace.testing.steps import stop, until


async def test_waiting_ends_even_if_what_is_looked_at_takes_the_cancellation_for_its_own():
    async def look() -> bool:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            return False
        return True

    with pytest.raises(AssertionError, match="it did not happen within"):
        await until(look, 0.01)


async def test_what_is_there_instead_is_told():
    with pytest.raises(AssertionError, match="there is 'nothing'"):
        await until(lambda: False, 0.01, explain=lambda: "nothing")


async def test_whoever_takes_a_cancellation_for_a_failure_is_stopped_all_the_same(monkeypatch):
    monkeypatch.setattr(steps, "_CANCELLED_AGAIN", 0.01)
    failures = 0

    async def work() -> None:
        nonlocal failures
        while failures < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                failures += 1
        await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await stop(task)

    assert task.cancelled()
    assert failures == 3


async def test_whoever_cannot_be_stopped_is_named(monkeypatch):
    monkeypatch.setattr(steps, "_CANCELLED_AGAIN", 0.01)
    monkeypatch.setattr(steps, "PATIENCE", 0.02)
    may_end = False

    async def stubborn() -> None:
        while not may_end:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    with pytest.raises(AssertionError, match=r"not stopped within 0.02 s: .*stubborn"):
        await stop(task)

    may_end = True
    await stop(task)
