"""The suite every Store must pass: each promise of `apiserver/store/interface.py` as a test.

A test module subclasses `StoreContract`, or `DurableStoreContract` for a store that outlives its
process, and overrides `open_store`. Stores are opened so that a watch may have `WAITING_EVENTS`
events waiting. A store that has its revisions to itself adds `DenseRevisions`, one that compares
two keys at once `GuardedWrites`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from clusterspace.apiserver.store.interface import (
    ABSENT,
    Event,
    EventType,
    Guard,
    KeyValue,
    Revision,
    Store,
    Watch,
)
from clusterspace.errors import (
    Compacted,
    FutureRevision,
    GuardChanged,
    RevisionMismatch,
    StoreClosed,
    StoreError,
    Unstorable,
    WatcherEvicted,
)

WAITING_EVENTS = 50
"""How many events may wait for a watch of the stores under test."""

SECONDS = 60.0
"""How long anything may take before a test calls it hanging."""


def plus(revision: int, step: int) -> Revision:
    return Revision(revision + step)


async def put_all(store: Store, keys: Iterable[str]) -> list[KeyValue]:
    return [await store.put(key, f"value of {key}".encode()) for key in keys]


def revisions_of(changes: Iterable[KeyValue | Event]) -> list[Revision]:
    return [each.revision if isinstance(each, Event) else each.mod_revision for each in changes]


async def read_events(watch: Watch, count: int) -> list[Event]:
    events: list[Event] = []
    async with asyncio.timeout(SECONDS):
        while len(events) < count:
            events.extend(await anext(watch))
    return events


async def open_and_read(store: Store, prefix: str, after: Revision) -> tuple[Event, ...]:
    async with asyncio.timeout(SECONDS):
        return await anext(store.watch(prefix, after=after))


async def is_waiting(watch: Watch) -> bool:
    """Whether a read of this watch finds nothing to deliver."""
    try:
        async with asyncio.timeout(0.05):
            await anext(watch)
    except TimeoutError:
        return True
    return False


class ListSink:
    """A sink that remembers what it was told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ended_with: StoreError | None = None

    def receive(self, events: tuple[Event, ...]) -> None:
        self.events.extend(events)

    def end(self, reason: StoreError) -> None:
        self.ended_with = reason


class StoreContract:
    """Promises of every store."""

    async def open_store(self, directory: Path) -> Store:
        """Open the store under test; the same directory means the same store."""
        raise NotImplementedError

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        opened = await self.open_store(tmp_path)
        yield opened
        await opened.close()

    # Writing

    async def test_a_new_store_is_empty(self, store: Store) -> None:
        assert 1 <= store.oldest_revision <= store.current_revision
        assert (await store.range("")).items == ()

    async def test_a_put_can_be_read_back(self, store: Store) -> None:
        written = await store.put("/pods/web", b"body")

        assert await store.get("/pods/web") == written
        assert written.value == b"body"
        assert written.create_revision == written.mod_revision == store.current_revision

    async def test_every_change_makes_a_higher_revision(self, store: Store) -> None:
        before = store.current_revision
        first, second = await put_all(store, ["/a", "/b"])
        again = await store.put("/a", b"")
        deleted = await store.delete("/a", expected=again.mod_revision)

        revisions = [before, *revisions_of((first, second, again, deleted))]
        assert revisions == sorted(set(revisions))
        assert again.create_revision == first.create_revision

    async def test_create_fails_when_the_key_is_there(self, store: Store) -> None:
        stored = await store.put("/a", b"first", expected=ABSENT)

        with pytest.raises(RevisionMismatch) as refusal:
            await store.put("/a", b"second", expected=ABSENT)

        assert refusal.value.actual == stored.mod_revision
        assert await store.get("/a") == stored

    async def test_a_stale_update_fails_and_changes_nothing(self, store: Store) -> None:
        stale = await store.put("/a", b"1")
        stored = await store.put("/a", b"2", expected=stale.mod_revision)

        with pytest.raises(RevisionMismatch) as refusal:
            await store.put("/a", b"3", expected=stale.mod_revision)

        seen = (refusal.value.expected, refusal.value.actual)
        assert seen == (stale.mod_revision, stored.mod_revision)
        assert await store.get("/a") == stored
        assert store.current_revision == stored.mod_revision

    async def test_an_update_of_an_absent_key_fails(self, store: Store) -> None:
        with pytest.raises(RevisionMismatch) as refusal:
            await store.put("/a", b"", expected=Revision(7))
        assert refusal.value.actual == ABSENT

    async def test_a_delete_returns_the_last_value_with_its_own_revision(
        self, store: Store
    ) -> None:
        stored = await store.put("/a", b"last words")

        deleted = await store.delete("/a", expected=stored.mod_revision)

        assert (deleted.value, deleted.create_revision) == (b"last words", stored.create_revision)
        assert deleted.mod_revision == store.current_revision
        assert await store.get("/a") is None

    async def test_a_stale_delete_fails_and_the_key_stays(self, store: Store) -> None:
        stale = await store.put("/a", b"1")
        stored = await store.put("/a", b"2")

        with pytest.raises(RevisionMismatch):
            await store.delete("/a", expected=stale.mod_revision)

        assert await store.get("/a") == stored

    async def test_a_delete_of_an_absent_key_fails(self, store: Store) -> None:
        with pytest.raises(RevisionMismatch) as refusal:
            await store.delete("/a", expected=Revision(2))
        assert refusal.value.actual == ABSENT

    async def test_a_recreated_key_is_new(self, store: Store) -> None:
        first = await store.put("/a", b"")
        deleted = await store.delete("/a", expected=first.mod_revision)

        second = await store.put("/a", b"", expected=ABSENT)

        assert second.create_revision == second.mod_revision > deleted.mod_revision

    async def test_of_many_writers_with_one_expectation_exactly_one_wins(
        self, store: Store
    ) -> None:
        start = await store.put("/counter", b"")

        async def try_to_win(name: int) -> bool:
            try:
                await store.put("/counter", str(name).encode(), expected=start.mod_revision)
            except RevisionMismatch:
                return False
            return True

        async with asyncio.TaskGroup() as group:
            tries = [group.create_task(try_to_win(name)) for name in range(20)]
        assert sum(task.result() for task in tries) == 1
        events = await read_events(store.watch("/counter", after=start.mod_revision), 1)
        assert revisions_of(events) == [store.current_revision]

    async def test_no_increment_is_lost_among_concurrent_writers(self, store: Store) -> None:
        await store.put("/counter", b"0")

        async def increment() -> None:
            while True:
                stored = await store.get("/counter")
                assert stored is not None
                raised = str(int(stored.value) + 1).encode()
                try:
                    await store.put("/counter", raised, expected=stored.mod_revision)
                except RevisionMismatch:
                    continue
                return

        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(increment())
        stored = await store.get("/counter")
        assert stored is not None
        assert stored.value == b"20"

    @pytest.mark.parametrize("key", ["", "\ud800", "k" * 5000])
    async def test_a_key_that_cannot_be_kept_is_refused(self, store: Store, key: str) -> None:
        before = store.current_revision
        with pytest.raises(Unstorable):
            await store.put(key, b"")
        assert store.current_revision == before

    async def test_any_bytes_come_back_as_they_were(self, store: Store) -> None:
        for name, value in {"/empty": b"", "/zero": b"\0\0", "/all": bytes(range(256))}.items():
            await store.put(name, value)
            stored = await store.get(name)
            assert stored is not None
            assert stored.value == value

    # Reading

    async def test_a_range_has_the_keys_of_its_prefix_in_order(self, store: Store) -> None:
        keys = ["/pods/c", "/pods/a", "/podsets/x", "/pods/b/1", "/nodes/n", "/pods/ä", "/pods/🐳"]
        await put_all(store, keys)

        page = await store.range("/pods/")

        found = [item.key for item in page.items]
        assert found == ["/pods/a", "/pods/b/1", "/pods/c", "/pods/ä", "/pods/🐳"]
        assert (page.revision, page.more, page.remaining) == (store.current_revision, False, 0)
        assert await store.count("/pods/") == 5

    async def test_pages_pinned_to_a_revision_ignore_what_happens_meanwhile(
        self, store: Store
    ) -> None:
        before = await put_all(store, [f"/pods/{n:02}" for n in range(10)])
        first = await store.range("/pods/", limit=4)
        await store.put("/pods/05", b"changed")
        await store.put("/pods/05x", b"added")
        await store.delete("/pods/07", expected=before[7].mod_revision)

        seen = list(first.items)
        page = first
        while page.more:
            last = page.items[-1].key
            page = await store.range("/pods/", start_after=last, limit=4, at=first.revision)
            assert page.revision == first.revision
            seen.extend(page.items)

        assert seen == before
        assert first.remaining == 6

    async def test_every_kept_revision_reads_as_it_was(self, store: Store) -> None:
        states: dict[Revision, tuple[KeyValue, ...]] = {}
        for step in range(30):
            key = f"/k/{step * 7 % 5}"
            stored = await store.get(key)
            if stored is not None and step % 3 == 0:
                await store.delete(key, expected=stored.mod_revision)
            else:
                await store.put(key, str(step).encode())
            states[store.current_revision] = (await store.range("/k/")).items

        for revision, items in states.items():
            assert (await store.range("/k/", at=revision)).items == items
            by_key = {item.key: item for item in items}
            for name in range(5):
                assert await store.get(f"/k/{name}", at=revision) == by_key.get(f"/k/{name}")

    async def test_a_future_revision_cannot_be_read(self, store: Store) -> None:
        ahead = plus(store.current_revision, 1)
        with pytest.raises(FutureRevision):
            await store.range("", at=ahead)
        with pytest.raises(FutureRevision):
            await store.get("/a", at=ahead)

    async def test_a_start_behind_the_last_key_is_an_empty_page(self, store: Store) -> None:
        await put_all(store, ["/a/1", "/b/1"])
        page = await store.range("/a/", start_after="/a/9", limit=1)
        assert (page.items, page.more) == ((), False)

    # Compaction

    async def test_after_compaction_older_revisions_are_refused_and_the_present_stays(
        self, store: Store
    ) -> None:
        await put_all(store, ["/a", "/b"])
        changed = await store.put("/a", b"new")
        await put_all(store, ["/c"])

        await store.compact(changed.mod_revision)

        with pytest.raises(Compacted) as refusal:
            await store.range("", at=plus(changed.mod_revision, -1))
        assert refusal.value.oldest == store.oldest_revision == changed.mod_revision
        then = await store.range("", at=changed.mod_revision)
        assert [item.key for item in then.items] == ["/a", "/b"]
        assert await store.count("") == 3

    async def test_compaction_of_the_future_is_refused_and_of_the_past_does_nothing(
        self, store: Store
    ) -> None:
        first, second, _ = revisions_of(await put_all(store, ["/a", "/b", "/c"]))
        await store.compact(second)

        with pytest.raises(FutureRevision):
            await store.compact(plus(store.current_revision, 1))
        await store.compact(second)
        await store.compact(first)

        assert store.oldest_revision == second

    async def test_a_deleted_key_stays_deleted_after_compaction(self, store: Store) -> None:
        stored = await store.put("/a", b"")
        deleted = await store.delete("/a", expected=stored.mod_revision)

        await store.compact(deleted.mod_revision)

        assert await store.get("/a") is None
        assert await store.get("/a", at=deleted.mod_revision) is None
        recreated = await store.put("/a", b"", expected=ABSENT)
        assert recreated.mod_revision > deleted.mod_revision

    # Watching

    async def test_a_watch_delivers_the_past_then_the_present_without_gap_or_repeat(
        self, store: Store
    ) -> None:
        past = await put_all(store, [f"/pods/{n}" for n in range(5)])
        watch = store.watch("/pods/", after=past[1].mod_revision)
        present = await put_all(store, [f"/pods/{n}" for n in range(5, 10)])

        events = await read_events(watch, 8)

        assert revisions_of(events) == revisions_of([*past[2:], *present])
        assert await is_waiting(watch)

    async def test_a_watch_that_reads_while_others_write_misses_nothing(self, store: Store) -> None:
        watch = store.watch("/pods/", after=store.current_revision)
        written: list[KeyValue] = []

        async def write(name: int) -> None:
            for step in range(20):
                written.append(await store.put(f"/pods/{name}", str(step).encode()))
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read_events(watch, 100))
            for name in range(5):
                group.create_task(write(name))
        assert revisions_of(reading.result()) == sorted(revisions_of(written))

    async def test_events_tell_what_was_there_before(self, store: Store) -> None:
        before = store.current_revision
        created = await store.put("/a", b"1")
        changed = await store.put("/a", b"2")
        deleted = await store.delete("/a", expected=changed.mod_revision)
        recreated = await store.put("/a", b"3")

        events = await read_events(store.watch("/a", after=before), 4)

        assert [event.previous for event in events] == [None, created, changed, None]
        assert [event.type for event in events] == [
            EventType.PUT,
            EventType.PUT,
            EventType.DELETE,
            EventType.PUT,
        ]
        assert events[2].item == KeyValue("/a", b"", ABSENT, deleted.mod_revision)
        assert events[3].item == recreated

    async def test_a_watch_sees_only_its_prefix_and_still_moves_on(self, store: Store) -> None:
        watch = store.watch("/pods/", after=store.current_revision)
        await put_all(store, ["/podsets/a", "/pods/a", "/nodes/a"])

        (event,) = await read_events(watch, 1)

        assert event.key == "/pods/a"
        assert watch.revision == store.current_revision

    async def test_the_progress_of_a_watch_never_passes_what_it_has_not_delivered(
        self, store: Store
    ) -> None:
        watch = store.watch("/pods/", after=store.current_revision)
        first, second = await put_all(store, ["/pods/a", "/pods/b"])

        assert watch.revision < first.mod_revision
        seen = await read_events(watch, 1)
        assert watch.revision in {seen[-1].revision, store.current_revision}
        assert (watch.revision < second.mod_revision) == (len(seen) == 1)

    async def test_a_watch_resumes_from_its_progress(self, store: Store) -> None:
        first = store.watch("/pods/", after=store.current_revision)
        await put_all(store, ["/pods/a", "/nodes/a", "/pods/b"])
        seen = await read_events(first, 1)
        first.close()

        second = store.watch("/pods/", after=first.revision)
        await put_all(store, ["/pods/c"])
        seen += await read_events(second, 3 - len(seen))

        assert [event.key for event in seen] == ["/pods/a", "/pods/b", "/pods/c"]

    async def test_a_watch_below_the_oldest_revision_is_compacted(self, store: Store) -> None:
        first, second, _ = revisions_of(await put_all(store, ["/a", "/b", "/c"]))
        await store.compact(second)

        for after in (0, 1, first):
            with pytest.raises(Compacted):
                await open_and_read(store, "", Revision(after))

    async def test_a_watch_at_the_oldest_revision_gets_everything_since(self, store: Store) -> None:
        _, second, third, _ = revisions_of(await put_all(store, ["/a", "/b", "/c", "/d"]))
        await store.compact(second)

        from_oldest = await read_events(store.watch("", after=second), 2)
        from_next = await read_events(store.watch("", after=third), 1)

        assert [event.key for event in from_oldest] == ["/c", "/d"]
        assert [event.key for event in from_next] == ["/d"]

    async def test_a_watch_at_the_current_revision_waits_for_the_next(self, store: Store) -> None:
        await put_all(store, ["/a"])
        watch = store.watch("", after=store.current_revision)
        assert await is_waiting(watch)

        await put_all(store, ["/b"])

        assert [event.key for event in await read_events(watch, 1)] == ["/b"]

    @pytest.mark.parametrize("ahead", [1, 10])
    async def test_a_watch_from_the_future_never_gets_older_events(
        self, store: Store, ahead: int
    ) -> None:
        await put_all(store, ["/old"])
        start = plus(store.current_revision, ahead)
        watch = store.watch("", after=start)
        while store.current_revision < start:
            await put_all(store, ["/meanwhile"])
        assert await is_waiting(watch)

        (new,) = await put_all(store, ["/new"])

        (event,) = await read_events(watch, 1)
        assert (event.key, event.revision) == ("/new", new.mod_revision)

    async def test_a_delete_is_seen_or_the_watch_has_to_list_again(self, store: Store) -> None:
        stored = await store.put("/a", b"")
        deleted = await store.delete("/a", expected=stored.mod_revision)
        await store.compact(deleted.mod_revision)

        with pytest.raises(Compacted):
            await open_and_read(store, "", stored.mod_revision)
        assert await is_waiting(store.watch("", after=deleted.mod_revision))

    async def test_compaction_never_makes_a_running_watch_skip(self, store: Store) -> None:
        before = store.current_revision
        in_sync = store.watch("", after=before)
        behind = store.watch("", after=before)
        written = revisions_of(await put_all(store, [f"/{n}" for n in range(10)]))
        catching_up = store.watch("", after=before)

        await store.compact(store.current_revision)

        assert revisions_of(await read_events(in_sync, 10)) == written
        assert revisions_of(await read_events(behind, 10)) == written
        with pytest.raises(Compacted):
            await read_events(catching_up, 1)

    async def test_a_slow_watch_is_evicted_and_nobody_waits_for_it(self, store: Store) -> None:
        slow = store.watch("", after=store.current_revision)
        quick = store.watch("", after=store.current_revision)
        seen: list[Event] = []
        for step in range(WAITING_EVENTS + 10):
            await store.put("/a", str(step).encode())
            seen += await read_events(quick, 1)

        with pytest.raises(WatcherEvicted):
            await read_events(slow, WAITING_EVENTS + 10)
        assert len(seen) == WAITING_EVENTS + 10

    async def test_an_evicted_watch_can_resume_where_its_reader_was(self, store: Store) -> None:
        slow = store.watch("", after=store.current_revision)
        await put_all(store, ["/a"])
        await read_events(slow, 1)
        written = await put_all(store, [f"/{n:03}" for n in range(WAITING_EVENTS + 10)])
        with pytest.raises(WatcherEvicted):
            await read_events(slow, 1)

        resumed = store.watch("", after=slow.revision)

        events = await read_events(resumed, WAITING_EVENTS + 10)
        assert revisions_of(events) == revisions_of(written)

    async def test_a_long_past_is_delivered_to_a_new_watch_whatever_its_buffer(
        self, store: Store
    ) -> None:
        before = store.current_revision
        written = await put_all(store, [f"/{n}" for n in range(WAITING_EVENTS * 2)])
        events = await read_events(store.watch("", after=before), WAITING_EVENTS * 2)
        assert revisions_of(events) == revisions_of(written)

    async def test_a_closed_watch_ends(self, store: Store) -> None:
        watch = store.watch("", after=store.current_revision)

        async def read_all() -> list[tuple[Event, ...]]:
            return [events async for events in watch]

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read_all())
            await asyncio.sleep(0)
            watch.close()
            watch.close()
        assert reading.result() == []

    # Subscriptions

    async def test_a_sink_has_an_event_before_its_writer_has_the_answer(self, store: Store) -> None:
        sink = ListSink()
        subscription = store.subscribe("/pods/", after=store.current_revision, sink=sink)

        written = await store.put("/pods/a", b"")
        await store.put("/nodes/a", b"")

        assert [event.item for event in sink.events] == [written]
        assert subscription.revision == store.current_revision
        subscription.close()
        subscription.close()
        await store.put("/pods/b", b"")
        assert len(sink.events) == 1

    async def test_a_subscription_starts_with_the_kept_past(self, store: Store) -> None:
        first, *_ = await put_all(store, ["/pods/a", "/nodes/a", "/pods/b"])
        sink = ListSink()

        store.subscribe("/pods/", after=first.mod_revision, sink=sink)
        await put_all(store, ["/pods/c"])

        assert [event.key for event in sink.events] == ["/pods/b", "/pods/c"]

    async def test_a_subscription_below_the_oldest_revision_is_compacted(
        self, store: Store
    ) -> None:
        first, _ = await put_all(store, ["/a", "/b"])
        await store.compact(store.current_revision)
        with pytest.raises(Compacted):
            store.subscribe("", after=first.mod_revision, sink=ListSink())

    async def test_a_sink_that_raises_costs_only_itself(self, store: Store) -> None:
        class BrokenSink(ListSink):
            def receive(self, events: tuple[Event, ...]) -> None:
                raise ValueError("a bug")

        reports: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reports.append(context["message"]))
        sink, failing, before = ListSink(), BrokenSink(), store.current_revision
        broken = store.subscribe("/", after=store.current_revision, sink=failing)
        store.subscribe("/", after=store.current_revision, sink=sink)

        await put_all(store, ["/a", "/b"])

        assert [event.key for event in sink.events] == ["/a", "/b"]
        assert broken.revision == before
        assert isinstance(failing.ended_with, WatcherEvicted)  # it knows that it is behind
        assert len(reports) == 1

    # The end

    async def test_closing_wakes_everyone_and_refuses_the_rest(self, store: Store) -> None:
        sink = ListSink()
        watch = store.watch("", after=store.current_revision)
        store.subscribe("", after=store.current_revision, sink=sink)
        reading = asyncio.create_task(anext(watch))
        await asyncio.sleep(0)

        await store.close()

        with pytest.raises(StoreClosed):
            await asyncio.wait_for(reading, SECONDS)
        assert isinstance(sink.ended_with, StoreClosed)
        with pytest.raises(StoreClosed):
            await store.put("/a", b"")
        with pytest.raises(StoreClosed):
            await store.get("/a")
        await store.close()

    async def test_writes_taken_before_closing_are_carried_out(self, store: Store) -> None:
        writing = [asyncio.create_task(store.put(f"/{n}", b"")) for n in range(20)]
        await asyncio.sleep(0)

        await store.close()

        done = [await asyncio.wait_for(write, SECONDS) for write in writing]
        assert len(set(revisions_of(done))) == 20


class DenseRevisions:
    """What holds besides for a store that has its revisions to itself: none is left out."""

    async def test_a_new_store_is_at_revision_one(self, store: Store) -> None:
        assert store.current_revision == 1
        assert store.oldest_revision == 1

    async def test_every_change_makes_exactly_the_next_revision(self, store: Store) -> None:
        first, second = await put_all(store, ["/a", "/b"])
        again = await store.put("/a", b"")
        with pytest.raises(RevisionMismatch):
            await store.put("/a", b"", expected=first.mod_revision)
        deleted = await store.delete("/a", expected=again.mod_revision)

        assert revisions_of((first, second, again, deleted)) == [2, 3, 4, 5]

    async def test_writes_are_carried_out_in_the_order_they_were_taken(self, store: Store) -> None:
        writing = [asyncio.create_task(store.put(f"/{n}", b"")) for n in range(20)]

        done = [await asyncio.wait_for(write, SECONDS) for write in writing]

        assert revisions_of(done) == list(range(2, 22))


class GuardedWrites:
    """What holds besides for a store that can compare a second key in the step of a write."""

    async def test_a_write_counts_while_its_guard_is_where_it_was(self, store: Store) -> None:
        lease = await store.put("/lease", b"mine")
        guard = Guard("/lease", lease.mod_revision)

        made = await store.put("/a", b"1", expected=ABSENT, guard=guard)
        changed = await store.put("/a", b"2", expected=made.mod_revision, guard=guard)
        await store.delete("/a", expected=changed.mod_revision, guard=guard)

        assert await store.get("/a") is None

    async def test_a_write_whose_guard_has_changed_changes_nothing(self, store: Store) -> None:
        first = await store.put("/lease", b"mine")
        kept = await store.put("/kept", b"1")
        await store.put("/lease", b"another's", expected=first.mod_revision)
        before = store.current_revision
        guard = Guard("/lease", first.mod_revision)

        for expected, key in ((ABSENT, "/a"), (kept.mod_revision, "/kept")):
            with pytest.raises(GuardChanged):
                await store.put(key, b"2", expected=expected, guard=guard)
        with pytest.raises(GuardChanged):
            await store.delete("/kept", expected=kept.mod_revision, guard=guard)

        assert await store.get("/a") is None
        assert await store.get("/kept") == kept
        assert store.current_revision == before

    async def test_a_guard_that_is_deleted_has_changed(self, store: Store) -> None:
        lease = await store.put("/lease", b"mine")
        await store.delete("/lease", expected=lease.mod_revision)

        guard = Guard("/lease", lease.mod_revision)
        with pytest.raises(GuardChanged):
            await store.put("/a", b"", expected=ABSENT, guard=guard)

    async def test_a_guarded_write_that_lost_its_own_race_is_a_mismatch(self, store: Store) -> None:
        lease = await store.put("/lease", b"mine")
        stale = await store.put("/a", b"1")
        stored = await store.put("/a", b"2")

        guard = Guard("/lease", lease.mod_revision)
        with pytest.raises(RevisionMismatch) as refusal:
            await store.put("/a", b"3", expected=stale.mod_revision, guard=guard)

        assert refusal.value.actual == stored.mod_revision

    async def test_of_a_guarded_write_and_a_change_of_its_guard_the_first_wins(
        self, store: Store
    ) -> None:
        lease = await store.put("/lease", b"mine")
        guard = Guard("/lease", lease.mod_revision)

        async def write(number: int) -> Revision:
            made = await store.put(f"/{number}", b"", expected=ABSENT, guard=guard)
            return made.mod_revision

        async def take_over() -> Revision:
            taken = await store.put("/lease", b"another's", expected=lease.mod_revision)
            return taken.mod_revision

        writing = [asyncio.create_task(write(n)) for n in range(10)]
        taking = asyncio.create_task(take_over())
        writing += [asyncio.create_task(write(n)) for n in range(10, 20)]
        done = await asyncio.gather(*writing, return_exceptions=True)

        taken = await taking
        late = [each for each in done if isinstance(each, int) and each > taken]
        refused = [each for each in done if not isinstance(each, int)]
        assert not late
        assert all(isinstance(each, GuardChanged) for each in refused)


class DurableStoreContract(StoreContract):
    """Promises of a store that outlives its process."""

    async def test_everything_is_there_after_reopening(self, store: Store, tmp_path: Path) -> None:
        start = store.current_revision
        written = await put_all(store, [f"/{n:02}" for n in range(20)])
        deleted = await store.delete("/03", expected=written[3].mod_revision)
        before = await store.range("")
        past = await store.range("", at=written[10].mod_revision)
        await store.close()

        again = await self.open_store(tmp_path)

        assert await again.range("") == before
        assert await again.range("", at=written[10].mod_revision) == past
        events = await read_events(again.watch("", after=start), 21)
        assert revisions_of(events) == revisions_of([*written, deleted])
        assert events[-1].previous == written[3]
        await again.close()

    async def test_revisions_grow_across_reopening_even_when_all_is_deleted_and_compacted(
        self, store: Store, tmp_path: Path
    ) -> None:
        stored = await store.put("/a", b"")
        deleted = await store.delete("/a", expected=stored.mod_revision)
        await store.compact(deleted.mod_revision)
        await store.close()

        again = await self.open_store(tmp_path)

        assert again.current_revision == again.oldest_revision == deleted.mod_revision
        assert await again.get("/a") is None
        assert (await again.put("/a", b"")).mod_revision > deleted.mod_revision
        await again.close()

    async def test_what_was_compacted_stays_compacted(self, store: Store, tmp_path: Path) -> None:
        _, second, third, _ = revisions_of(await put_all(store, ["/a", "/a", "/b", "/a"]))
        await store.compact(third)
        present = await store.range("", at=third)
        await store.close()

        again = await self.open_store(tmp_path)

        with pytest.raises(Compacted):
            await open_and_read(again, "", second)
        assert await again.range("", at=third) == present
        assert [event.key for event in await read_events(again.watch("", after=third), 1)] == ["/a"]
        await again.close()
