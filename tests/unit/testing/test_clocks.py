import asyncio

import pytest

from clusterspace.testing import clocks
from clusterspace.testing.clocks import ManualClock


async def test_time_stands_still_until_it_is_turned():
    clock = ManualClock(start=100)

    assert (clock.now(), clock.monotonic()) == (100, 0)
    await clock.advance(2.5)
    assert (clock.now(), clock.monotonic()) == (102.5, 2.5)


async def test_sleepers_wake_in_the_order_of_their_times():
    clock = ManualClock()
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        for name, seconds in (("c", 3), ("a", 1), ("first b", 2), ("second b", 2)):
            group.create_task(sleep(name, seconds))
        await clock.advance(2)
        assert woken == [("a", 1), ("first b", 2), ("second b", 2)]
        assert clock.sleeping == 1
        await clock.advance(1)
    assert woken[-1] == ("c", 3)


async def test_one_turn_runs_a_whole_chain_of_sleeps():
    clock = ManualClock()
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await clock.sleep(10)
            ticks.append(clock.monotonic())

    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(tick())
        await clock.advance(35)
        ticking.cancel()
    assert ticks == [10, 20, 30]


async def test_tasks_far_down_a_chain_have_run_when_the_turn_is_over():
    clock = ManualClock()
    links = [asyncio.Event() for _ in range(500)]

    async def pass_on(index: int) -> None:
        await links[index].wait()
        links[index + 1].set()

    async with asyncio.TaskGroup() as group:
        for index in range(len(links) - 1):
            group.create_task(pass_on(index))
        links[0].set()
        await clock.advance(0)
        assert links[-1].is_set()


async def test_a_cancelled_sleeper_is_passed_over():
    clock = ManualClock()
    async with asyncio.TaskGroup() as group:
        sleeper = group.create_task(clock.sleep(5))
        await clock.advance(1)
        sleeper.cancel()
    assert clock.sleeping == 0
    await clock.advance(10)
    assert clock.monotonic() == 11


async def test_sleeping_for_nothing_lets_others_run_and_returns():
    clock = ManualClock()
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.monotonic() == 0


async def test_a_jump_moves_the_time_of_day_alone():
    clock = ManualClock(start=1000)
    clock.jump(-300)

    assert clock.now() == 700
    assert clock.monotonic() == 0


async def test_tasks_that_never_rest_are_told_apart_from_slow_ones(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(clocks, "_MOST_TURNS", 50)

    async def spin() -> None:
        for _ in range(1000):
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        spinning = group.create_task(spin())
        with pytest.raises(AssertionError, match="still running after 50 turns"):
            await clocks.settle()
        spinning.cancel()
