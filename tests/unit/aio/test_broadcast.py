import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.aio.broadcast import Broadcast, Reader
from clusterspace.errors import Evicted
from clusterspace.testing.clocks import settle


async def read_all(reader: Reader[int]) -> list[int]:
    return [item async for item in reader]


async def test_every_reader_gets_everything_sent_since_it_came():
    broadcast = Broadcast[int]()
    early = broadcast.subscribe(capacity=10)
    broadcast.send(1)
    late = broadcast.subscribe(capacity=10)
    broadcast.send(2)
    broadcast.close()

    assert await read_all(early) == [1, 2]
    assert await read_all(late) == [2]


async def test_a_waiting_reader_is_woken_by_the_next_item():
    broadcast = Broadcast[int]()
    reader = broadcast.subscribe(capacity=1)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(anext(reader))
        await settle()
        assert not reading.done()
        broadcast.send(7)
    assert reading.result() == 7


async def test_a_slow_reader_is_evicted_and_the_others_go_on():
    broadcast = Broadcast[int]()
    slow = broadcast.subscribe(capacity=2)
    quick = broadcast.subscribe(capacity=5)
    for item in range(4):
        broadcast.send(item)

    assert len(broadcast) == 1
    with pytest.raises(Evicted, match="more than 2 items behind"):
        await anext(slow)
    with pytest.raises(Evicted):
        await slow.read_batch()
    assert await quick.read_batch() == [0, 1, 2, 3]


async def test_an_evicted_reader_holds_no_memory():
    broadcast = Broadcast[int]()
    slow = broadcast.subscribe(capacity=2)
    for item in range(3):
        broadcast.send(item)

    assert len(slow) == 0


async def test_a_batch_is_everything_there_is_and_an_empty_one_is_the_end():
    broadcast = Broadcast[int]()
    reader = broadcast.subscribe(capacity=5)
    broadcast.send(1)
    broadcast.send(2)
    assert await reader.read_batch() == [1, 2]

    broadcast.send(3)
    broadcast.close()
    assert await reader.read_batch() == [3]
    assert await reader.read_batch() == []


async def test_closing_ends_a_reader_that_waits():
    broadcast = Broadcast[int]()
    reader = broadcast.subscribe(capacity=1)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read_all(reader))
        await settle()
        broadcast.close()
    assert reading.result() == []


async def test_a_reader_that_comes_after_the_end_ends_at_once():
    broadcast = Broadcast[int]()
    broadcast.close()

    assert await read_all(broadcast.subscribe(capacity=1)) == []


async def test_a_reader_that_leaves_is_sent_nothing_more():
    broadcast = Broadcast[int]()
    with broadcast.subscribe(capacity=1) as reader:
        assert len(broadcast) == 1
    broadcast.send(1)

    assert len(broadcast) == 0
    assert await reader.read_batch() == []


async def test_a_cancelled_wait_loses_nothing():
    broadcast = Broadcast[int]()
    reader = broadcast.subscribe(capacity=3)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(anext(reader))
        await settle()
        reading.cancel()
        broadcast.send(1)
    assert await anext(reader) == 1


STEPS = st.lists(st.one_of(st.just("send"), st.integers(0, 2)), max_size=40)


@given(STEPS, st.integers(1, 4))
def test_a_reader_sees_each_item_once_in_order_or_is_evicted(steps: list[object], capacity: int):
    async def run() -> None:
        broadcast = Broadcast[int]()
        readers = [broadcast.subscribe(capacity=capacity) for _ in range(3)]
        unread: list[list[int]] = [[] for _ in readers]
        evicted = [False] * len(readers)
        for number, step in enumerate(steps):
            if step == "send":
                broadcast.send(number)
                for index, held in enumerate(unread):
                    evicted[index] |= len(held) >= capacity
                    held.append(number)
            elif isinstance(step, int) and unread[step]:
                if evicted[step]:
                    with pytest.raises(Evicted):
                        await anext(readers[step])
                else:
                    assert await anext(readers[step]) == unread[step].pop(0)

    asyncio.run(run())
