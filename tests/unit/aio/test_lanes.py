"""Work beside the loop: the loop goes on, owners take turns, nothing is lost when somebody goes."""

import asyncio
import threading

import pytest

from clusterspace.aio.lanes import Lane, LaneIsFull, Turns, at_once


async def test_the_loop_turns_while_the_lane_works() -> None:
    lane, gate = Lane("test"), threading.Event()
    work = asyncio.create_task(lane.run("alice", lambda: gate.wait(30)))

    for _ in range(100):
        await asyncio.sleep(0)

    assert not work.done()
    gate.set()
    assert await work is True


async def test_what_the_work_raises_reaches_whoever_brought_it() -> None:
    def broken() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await Lane("test").run("alice", broken)


async def test_the_first_work_of_another_waits_for_one_piece_and_not_for_all() -> None:
    lane, gate, order = Lane("test"), threading.Event(), list[str]()
    async with asyncio.TaskGroup() as group:
        group.create_task(lane.run("alice", lambda: gate.wait(30)))
        await asyncio.sleep(0)
        for name in ("alice 1", "alice 2", "alice 3"):
            group.create_task(lane.run("alice", lambda name=name: order.append(name)))
        await asyncio.sleep(0)
        group.create_task(lane.run("bob", lambda: order.append("bob")))
        await asyncio.sleep(0)
        gate.set()

    assert order.index("bob") <= 1


async def test_work_whose_caller_has_gone_is_passed_over() -> None:
    lane, gate, done = Lane("test"), threading.Event(), list[str]()
    first = asyncio.create_task(lane.run("alice", lambda: gate.wait(30)))
    await asyncio.sleep(0)
    gone = asyncio.create_task(lane.run("alice", lambda: done.append("gone")))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    gate.set()
    await first

    await lane.run("alice", lambda: done.append("next"))

    assert done == ["next"]


async def test_somebody_with_too_much_waiting_is_told_so_and_others_are_not() -> None:
    lane, gate = Lane("test", room=10, room_each=2), threading.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(lane.run("alice", lambda: gate.wait(30)))
        await asyncio.sleep(0.05)
        group.create_task(lane.run("alice", lambda: None))
        group.create_task(lane.run("alice", lambda: None))
        await asyncio.sleep(0)

        with pytest.raises(LaneIsFull):
            await lane.run("alice", lambda: None)

        group.create_task(lane.run("bob", lambda: None))
        gate.set()


async def test_a_step_that_is_carried_out_at_once_needs_no_thread() -> None:
    assert await at_once(threading.current_thread) is threading.main_thread()


async def test_as_many_go_on_at_once_as_there_are_turns() -> None:
    turns, order = Turns(at_once=1, room=10, room_each=5), list[str]()

    async def work(owner: str) -> None:
        await turns.take(owner)
        order.append(owner)
        await asyncio.sleep(0)
        turns.give_back()

    async with asyncio.TaskGroup() as group:
        for owner in ("alice", "alice", "alice", "bob"):
            group.create_task(work(owner))

    assert order == ["alice", "alice", "bob", "alice"]
    await turns.take("alice")


async def test_a_turn_that_came_too_late_is_the_next_ones() -> None:
    turns = Turns(at_once=1, room=10, room_each=5)
    await turns.take("alice")
    waiting = asyncio.create_task(turns.take("alice"))
    await asyncio.sleep(0)

    turns.give_back()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    await asyncio.wait_for(turns.take("bob"), 5)


async def test_too_many_that_wait_are_refused() -> None:
    turns = Turns(at_once=1, room=10, room_each=1)
    await turns.take("alice")
    waiting = asyncio.create_task(turns.take("alice"))
    await asyncio.sleep(0)

    with pytest.raises(LaneIsFull):
        await turns.take("alice")

    turns.give_back()
    await waiting
