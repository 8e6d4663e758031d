import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.aio import clocks
from clusterspace.aio.queues import WorkQueue
from clusterspace.testing.clocks import ManualClock, settle


def doubling() -> Iterator[float]:
    return clocks.exponential(1, 60)


def make_queue(clock: ManualClock | None = None) -> WorkQueue[str]:
    return WorkQueue[str](clock or ManualClock(), doubling)


async def take_ready(queue: WorkQueue[str]) -> list[str]:
    """Take everything that is ready, without waiting."""
    return [await anext(queue) for _ in range(len(queue))]


async def test_keys_are_taken_in_the_order_they_were_added():
    queue = make_queue()
    for key in "abc":
        queue.add(key)

    assert await take_ready(queue) == ["a", "b", "c"]


async def test_with_priorities_the_highest_is_taken_first_and_of_equals_the_first():
    priorities = {"b": 7, "d": -1, "e": 7}
    queue = WorkQueue[str](ManualClock(), doubling, priority_of=lambda key: priorities.get(key, 0))
    for key in "abcde":
        queue.add(key)

    assert await take_ready(queue) == ["b", "e", "a", "c", "d"]
    queue.add("b")
    queue.done("b")
    queue.add("x")
    assert await take_ready(queue) == ["b", "x"]
    queue.add("y")
    queue.shut_down(drain=False)
    assert len(queue) == 0


async def test_a_key_added_twice_is_taken_once():
    queue = make_queue()
    queue.add("a")
    queue.add("a")

    assert await take_ready(queue) == ["a"]


async def test_a_waiting_worker_is_woken_by_a_key():
    queue = make_queue()
    async with asyncio.TaskGroup() as group:
        taking = group.create_task(anext(queue))
        await settle()
        queue.add("a")
    assert taking.result() == "a"


async def test_a_key_being_worked_on_is_not_handed_out_again_until_it_is_done():
    queue = make_queue()
    queue.add("a")
    await anext(queue)

    queue.add("a")
    assert len(queue) == 0

    queue.done("a")
    assert await take_ready(queue) == ["a"]


async def test_a_done_key_nobody_asked_for_again_is_gone():
    queue = make_queue()
    queue.add("a")
    queue.done(await anext(queue))

    assert len(queue) == 0


async def test_saying_done_for_a_key_not_taken_is_a_bug_that_shows():
    with pytest.raises(KeyError):
        make_queue().done("a")


async def test_a_delayed_key_comes_at_its_time():
    clock = ManualClock()
    queue = make_queue(clock)
    queue.add_after("a", 10)
    await clock.advance(9.9)
    assert len(queue) == 0
    await clock.advance(0.1)
    assert await take_ready(queue) == ["a"]


async def test_the_earliest_of_several_delays_counts():
    clock = ManualClock()
    queue = make_queue(clock)
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 20)
    await clock.advance(3)
    assert await take_ready(queue) == ["a"]
    queue.done("a")
    await clock.advance(100)
    assert len(queue) == 0


async def test_delayed_keys_come_in_the_order_of_their_times():
    clock = ManualClock()
    queue = make_queue(clock)
    for key, seconds in (("c", 3), ("a", 1), ("b", 2), ("now", 0)):
        queue.add_after(key, seconds)
    await clock.advance(5)
    assert await take_ready(queue) == ["now", "a", "b", "c"]


async def test_a_key_added_now_is_not_added_again_later():
    clock = ManualClock()
    queue = make_queue(clock)
    queue.add_after("a", 5)
    queue.add("a")
    queue.done(await anext(queue))
    await clock.advance(10)
    assert len(queue) == 0


async def test_retries_wait_longer_each_time_until_forgotten():
    queue = make_queue()

    assert [queue.retry("a") for _ in range(4)] == [1, 2, 4, 8]
    assert queue.retries_of("a") == 4
    assert queue.retry("b") == 1
    queue.forget("a")
    assert queue.retries_of("a") == 0
    assert queue.retry("a") == 1
    queue.shut_down()


async def test_a_retried_key_is_taken_after_its_delay():
    clock = ManualClock()
    queue = make_queue(clock)
    queue.add("a")
    await anext(queue)
    queue.retry("a")
    queue.done("a")
    assert len(queue) == 0
    await clock.advance(1)
    assert await take_ready(queue) == ["a"]


async def test_a_key_whose_delays_run_out_is_given_up():
    queue = WorkQueue[str](ManualClock(), lambda: iter([1.0]))

    assert queue.retry("a") == 1
    assert queue.retry("a") is None
    assert queue.retries_of("a") == 0
    queue.shut_down()


async def test_a_shut_down_queue_hands_out_what_is_left_and_ends():
    clock = ManualClock()
    queue = make_queue(clock)
    queue.add("a")
    queue.add_after("later", 5)
    queue.shut_down()
    queue.add("too late")
    queue.add_after("much too late", 1)
    await clock.advance(10)

    assert [key async for key in queue] == ["a"]


async def test_shutting_down_without_draining_drops_what_is_left():
    queue = make_queue()
    queue.add("a")
    queue.shut_down(drain=False)

    assert [key async for key in queue] == []
    await queue.drained()


async def test_shutting_down_ends_workers_that_wait():
    queue = make_queue()

    async def work() -> list[str]:
        return [key async for key in queue]

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(work()) for _ in range(3)]
        await settle()
        queue.shut_down()
    assert [worker.result() for worker in workers] == [[], [], []]


async def test_a_queue_is_drained_when_the_last_key_is_done():
    queue = make_queue()
    queue.add("a")
    await anext(queue)
    queue.shut_down()
    async with asyncio.TaskGroup() as group:
        draining = group.create_task(queue.drained())
        await settle()
        assert not draining.done()
        queue.done("a")


async def test_a_key_asked_for_again_before_the_shutdown_is_still_worked_on():
    queue = make_queue()
    taken: list[str] = []

    async def work() -> None:
        async for key in queue:
            taken.append(key)
            queue.done(key)

    queue.add("a")
    await anext(queue)  # by a worker that will not come back for more
    queue.add("a")
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(work())
        queue.shut_down()
        await settle()
        queue.done("a")
        await queue.drained()
    assert taken == ["a"]


async def test_a_worker_cancelled_as_it_is_woken_leaves_the_key_to_another():
    queue = make_queue()
    async with asyncio.TaskGroup() as group:
        cancelled = group.create_task(anext(queue))
        other = group.create_task(anext(queue))
        await settle()
        queue.add("a")
        cancelled.cancel()
    assert other.result() == "a"


async def test_a_worker_cancelled_while_it_waits_takes_nothing():
    queue = make_queue()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(anext(queue))
        await settle()
        waiting.cancel()
    queue.add("a")
    assert await take_ready(queue) == ["a"]


class Notes:
    def __init__(self) -> None:
        self.depths: list[int] = []
        self.waited: list[float] = []
        self.worked: list[float] = []
        self.retries = 0

    def depth_changed(self, depth: int) -> None:
        self.depths.append(depth)

    def taken(self, waited_seconds: float) -> None:
        self.waited.append(waited_seconds)

    def finished(self, worked_seconds: float) -> None:
        self.worked.append(worked_seconds)

    def retried(self) -> None:
        self.retries += 1


async def test_an_observer_is_told_depth_and_times():
    clock = ManualClock()
    notes = Notes()
    queue = WorkQueue[str](clock, doubling, notes)
    queue.add("a")
    queue.add("b")
    await clock.advance(2)
    await anext(queue)
    await clock.advance(3)
    queue.retry("a")
    queue.done("a")

    assert notes.depths == [1, 2, 1]
    assert notes.waited == [2]
    assert notes.worked == [3]
    assert notes.retries == 1
    queue.shut_down()


class NaiveQueue:
    """The same queue written for clarity alone, with lists and loops."""

    def __init__(self) -> None:
        self.now = 0
        self.ready: list[str] = []
        self.again: set[str] = set()
        self.working: list[str] = []
        self.later: dict[str, int] = {}

    def add(self, key: str) -> None:
        self.later.pop(key, None) if key not in self.ready else None
        if key in self.working:
            self.again.add(key)
        elif key not in self.ready:
            self.ready.append(key)

    def add_after(self, key: str, seconds: int) -> None:
        if key not in self.ready and key not in self.again:
            self.later[key] = min(self.later.get(key, self.now + seconds), self.now + seconds)

    def take(self) -> str | None:
        if not self.ready:
            return None
        self.working.append(self.ready.pop(0))
        return self.working[-1]

    def done(self) -> str | None:
        if not self.working:
            return None
        key = self.working.pop(0)
        if key in self.again:
            self.again.discard(key)
            self.ready.append(key)
        return key

    def advance(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            for key in [each for each, due in self.later.items() if due == self.now]:
                del self.later[key]
                self.add(key)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("add_after"), st.sampled_from("abc"), st.integers(1, 5)),
        st.tuples(st.sampled_from(["take", "done"]), st.just(""), st.just(0)),
        st.tuples(st.just("advance"), st.just(""), st.integers(1, 4)),
    ),
    max_size=30,
)


@given(STEPS)
def test_any_sequence_of_steps_agrees_with_a_naive_queue(steps: list[tuple[str, str, int]]):
    async def run() -> None:
        clock = ManualClock()
        queue, naive = make_queue(clock), NaiveQueue()
        for step, key, seconds in steps:
            match step:
                case "add":
                    queue.add(key)
                    naive.add(key)
                case "add_after":
                    queue.add_after(key, seconds)
                    naive.add_after(key, seconds)
                case "take":
                    expected = naive.take()
                    assert len(queue) == len(naive.ready) + (expected is not None)
                    if expected is not None:
                        assert await anext(queue) == expected
                case "done":
                    done = naive.done()
                    if done is not None:
                        queue.done(done)
                case _:
                    await clock.advance(seconds)
                    naive.advance(seconds)
            assert len(queue) == len(naive.ready)
        queue.shut_down()

    asyncio.run(run())


@given(st.integers(1, 4), st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3))))
def test_no_two_workers_ever_have_the_same_key_and_the_last_add_is_always_worked_on(
    workers: int, adds: list[tuple[str, int]]
):
    async def run() -> None:
        clock = ManualClock()
        queue = make_queue(clock)
        working: set[str] = set()
        last_taken: dict[str, float] = {}

        async def work() -> None:
            async for key in queue:
                assert key not in working
                working.add(key)
                last_taken[key] = clock.monotonic()
                await clock.sleep(1.5)
                working.discard(key)
                queue.done(key)

        last_added: dict[str, float] = {}
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work())
            for key, pause in adds:
                queue.add(key)
                last_added[key] = clock.monotonic()
                await clock.advance(pause)
            queue.shut_down()
            await clock.advance(1000)
        assert all(last_taken[key] >= added for key, added in last_added.items())

    asyncio.run(run())


async def test_a_taker_cancelled_while_a_key_comes_in_ends_as_cancelled():
    queue = make_queue()
    taker = asyncio.ensure_future(anext(queue))
    await settle()

    taker.cancel()
    queue.add("a")

    with pytest.raises(asyncio.CancelledError):
        await taker
    assert await take_ready(queue) == ["a"]
