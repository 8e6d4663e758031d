import asyncio

import pytest

from clusterspace.apiserver.store.interface import Event, Revision
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.errors import Compacted, StoreClosed
from clusterspace.testing.store_contract import ListSink


async def test_watchers_of_one_prefix_share_one_tuple_of_events() -> None:
    store = MemoryStore()
    first, second = (store.watch("/pods/", after=Revision(1)) for _ in range(2))
    await store.put("/pods/a", b"")
    assert await anext(first) is await anext(second)


async def test_a_watch_opened_while_events_are_handed_out_gets_none_of_them_twice() -> None:
    store = MemoryStore()

    class OpensAnother(ListSink):
        late = ListSink()

        def receive(self, events: tuple[Event, ...]) -> None:
            super().receive(events)
            if len(self.events) == 1:
                store.subscribe("/", after=store.current_revision, sink=self.late)
                store.subscribe("/a", after=Revision(1), sink=self.late)

    sink = OpensAnother()
    store.subscribe("/", after=Revision(1), sink=sink)

    await store.put("/a", b"")
    await store.put("/b", b"")

    assert [event.revision for event in sink.events] == [2, 3]
    assert [event.revision for event in sink.late.events] == [2, 3]


async def test_a_subscription_that_closes_itself_hears_nothing_more() -> None:
    store = MemoryStore()
    sink = ListSink()
    subscription = store.subscribe("", after=Revision(1), sink=sink)

    class Closes(ListSink):
        def receive(self, events: tuple[Event, ...]) -> None:
            subscription.close()

    store.subscribe("/a", after=Revision(1), sink=Closes())
    await store.put("/a", b"")
    await store.put("/a", b"")
    assert len(sink.events) <= 1
    assert sink.ended_with is None


async def test_a_watch_that_catches_up_is_told_when_its_past_is_forgotten() -> None:
    store = MemoryStore()
    for _ in range(2500):
        await store.put("/a", b"")
    watch = store.watch("", after=Revision(1))
    first = await anext(watch)
    await store.compact(store.current_revision)

    assert first[0].revision == 2
    assert watch.revision == first[-1].revision
    with pytest.raises(Compacted):
        await anext(watch)


async def test_a_watch_with_nothing_to_catch_up_lets_others_run() -> None:
    store = MemoryStore()
    for _ in range(5000):
        await store.put("/nodes/a", b"")
    watch = store.watch("/pods/", after=Revision(1))
    reading = asyncio.create_task(anext(watch))
    await asyncio.sleep(0)
    assert watch.revision < store.current_revision
    await store.put("/pods/a", b"")
    (event,) = await reading
    assert event.revision == store.current_revision == watch.revision


async def test_a_watch_that_catches_up_learns_of_the_end() -> None:
    store = MemoryStore()
    await store.put("/a", b"")
    watch = store.watch("/b", after=Revision(1))
    await store.close()
    with pytest.raises(StoreClosed):
        await anext(watch)
