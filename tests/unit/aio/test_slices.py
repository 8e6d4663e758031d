"""Long work on the loop is done in slices, in turns by owner."""

import asyncio
from itertools import pairwise

from clusterspace.aio.slices import Slices


async def work(slices: Slices, owner: str, times: int, done: list[str]) -> None:
    for _ in range(times):
        await slices.next(owner)
        done.append(owner)


async def test_who_comes_second_waits_for_one_slice_of_the_first() -> None:
    slices, done = Slices(), list[str]()

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(work(slices, "flood", 2, done))
        group.create_task(work(slices, "jane", 2, done))

    assert done[:4] == ["flood", "jane", "flood", "jane"]
    assert done[4:] == ["flood"] * 8


async def test_the_loop_does_something_else_between_two_slices() -> None:
    slices, done = Slices(), list[str]()
    loop = asyncio.get_running_loop()

    is_over = False

    def turn() -> None:
        done.append("turn")
        if not is_over:
            loop.call_soon(turn)

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(work(slices, "flood", 4, done))
        turn()
    is_over = True

    assert ("flood", "flood") not in pairwise(done)


async def test_a_slice_that_nobody_waits_for_any_more_goes_to_the_next() -> None:
    slices, done = Slices(), list[str]()
    gone = asyncio.create_task(work(slices, "gone", 1, done))
    await asyncio.sleep(0)
    gone.cancel()

    await asyncio.wait_for(work(slices, "jane", 2, done), 5)

    assert done == ["jane", "jane"]
