import asyncio

from clusterspace.apiserver.store.compaction import (
    CompactionPolicy,
    Mark,
    compact_forever,
    plan_compaction,
)
from clusterspace.apiserver.store.interface import HistorySize, Revision
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.errors import StoreFull
from clusterspace.testing.clocks import ManualClock

POLICY = CompactionPolicy(window_seconds=300, maximum_bytes=1000, maximum_events=100)


def history(*, events: int = 10, value_bytes: int = 0, newest: int = 1100) -> HistorySize:
    return HistorySize(events, value_bytes, oldest=Revision(1000), newest=Revision(newest))


def test_what_is_younger_than_the_window_is_kept() -> None:
    marks = [Mark(10.0, Revision(1010)), Mark(20.0, Revision(1020))]
    assert plan_compaction(marks, history(), POLICY, now=309.9) == 1000


def test_what_is_older_than_the_window_is_forgotten() -> None:
    marks = [Mark(10.0, Revision(1010)), Mark(20.0, Revision(1020)), Mark(30.0, Revision(1030))]
    assert plan_compaction(marks, history(), POLICY, now=325.0) == 1020


def test_too_many_bytes_shorten_the_window() -> None:
    cut = plan_compaction([], history(value_bytes=2000), POLICY, now=0.0)
    assert 1060 <= cut <= 1065


def test_too_many_events_shorten_the_window() -> None:
    cut = plan_compaction([], history(events=200, newest=1200), POLICY, now=0.0)
    assert cut == 1125


def test_a_store_at_its_limits_keeps_everything() -> None:
    assert plan_compaction([], history(events=100, value_bytes=1000), POLICY, now=0.0) == 1000


async def test_a_store_forgets_as_time_goes_by() -> None:
    store, clock = MemoryStore(), ManualClock()
    async with asyncio.TaskGroup() as group:
        compacting = group.create_task(compact_forever(store, clock, POLICY))
        for _ in range(10):
            await store.put("/a", b"")
            await clock.advance(60)
        assert 5 <= store.oldest_revision <= 7
        assert store.history.events == store.current_revision - store.oldest_revision
        compacting.cancel()


async def test_a_full_disk_does_not_end_compaction() -> None:
    class FullOnce(MemoryStore):
        refusals = 0

        async def compact(self, revision: Revision) -> None:
            if not self.refusals:
                self.refusals += 1
                raise StoreFull("no room")
            await super().compact(revision)

    store, clock = FullOnce(), ManualClock()
    for _ in range(200):
        await store.put("/a", b"")
    async with asyncio.TaskGroup() as group:
        compacting = group.create_task(compact_forever(store, clock, POLICY))
        await clock.advance(3)
        assert store.refusals == 1
        assert store.history.events <= 100
        compacting.cancel()
