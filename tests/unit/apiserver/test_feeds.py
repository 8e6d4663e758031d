"""One change, many watchers: who is told what, in which bytes, and who is cut off."""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from random import Random
from typing import Any

import msgspec
from tests.unit.apiserver.hub_subjects import CONFIG_MAPS, config_map, entry_of

from clusterspace.apiserver import forms
from clusterspace.apiserver.feeds import (
    CROWD_ALONE_SECONDS,
    CROWD_BATCH_BYTES,
    CROWD_PAUSE_SECONDS,
    CROWD_SLICE_SECONDS,
    JSON_FRAMING,
    MOST_BEHIND,
    PROMPT_WATCHERS,
    SLOW_BYTES,
    Feeds,
    Watcher,
)
from clusterspace.apiserver.http.messages import Stream
from clusterspace.apiserver.options import ListOptions, select
from clusterspace.apiserver.store.interface import KeyValue, Revision
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.errors import Compacted
from clusterspace.testing.clocks import ManualClock, settle

PREFIX = CONFIG_MAPS.prefix()


class WorkingClock(ManualClock):
    """A clock on which work takes time, too."""

    def work(self, seconds: float) -> None:
        self._elapsed += seconds


class FakeWire:
    """Keeps what is written; `buffered` is what the test says, and how long a write takes."""

    def __init__(self, takes: Callable[[], None] = lambda: None) -> None:
        self.written: list[bytes] = []
        self.buffered = 0
        self.is_connected = True
        self._takes = takes

    def write(self, data: bytes) -> None:
        self._takes()
        self.written.append(data)

    def events(self) -> list[tuple[str, Any]]:
        """Return the type and object of every event, out of its chunk."""
        # A size, the body, a size, the next body, …: what is written in one piece is many chunks.
        bodies = b"".join(self.written).split(b"\r\n")[1::2]
        decoded = [msgspec.json.decode(body) for body in bodies]
        return [(each["type"], each["object"]) for each in decoded]

    def told(self) -> list[tuple[str, str]]:
        return [(kind, shown["metadata"]["name"]) for kind, shown in self.events()]


class CountingStyle:
    """Plain objects, and how often one was rendered."""

    key: Hashable = "plain"
    framing = JSON_FRAMING

    def __init__(self) -> None:
        self.rendered = 0

    def render(self, entry: KeyValue, *, is_stored: bool = True) -> bytes:
        self.rendered += 1
        return forms.object_bytes(entry, CONFIG_MAPS.form)


STYLE = CountingStyle()


def watcher(
    wire: FakeWire, *, labels: str = "", namespace: str = "", seen: int = 1, style: Any = STYLE
) -> Watcher:
    return Watcher(
        Stream(wire, has_body=True),  # pyright: ignore[reportArgumentType] - the half that is used
        prefix=CONFIG_MAPS.prefix(namespace),
        selection=select(CONFIG_MAPS, ListOptions(label_selector=labels)),
        style_of=lambda _is_first: style,
        seen=Revision(seen),
    )


async def put(store: MemoryStore, name: str, namespace: str = "default", **metadata: Any) -> None:
    made = config_map(name, namespace=namespace, **metadata)
    entry = entry_of(made)
    await store.put(CONFIG_MAPS.key(namespace, name), entry.value)


async def drop(store: MemoryStore, name: str) -> None:
    key = CONFIG_MAPS.key("default", name)
    held = await store.get(key)
    assert held is not None
    await store.delete(key, expected=held.mod_revision)


async def test_a_change_is_rendered_once_and_every_watcher_gets_the_same_bytes() -> None:
    store, style = MemoryStore(), CountingStyle()
    feeds, wires = Feeds(store), [FakeWire() for _ in range(PROMPT_WATCHERS)]
    for wire in wires:
        assert feeds.join(PREFIX, watcher(wire, style=style))

    await put(store, "a")

    assert style.rendered == 1
    assert all(wire.written == wires[0].written for wire in wires)
    assert all(wire.written[0] is wires[0].written[0] for wire in wires), "not even copied"


async def test_each_hears_of_its_own_namespace_and_selection() -> None:
    store = MemoryStore()
    feeds = Feeds(store)
    all_wire, here, red = FakeWire(), FakeWire(), FakeWire()
    feeds.join(PREFIX, watcher(all_wire))
    feeds.join(PREFIX, watcher(here, namespace="default"))
    feeds.join(PREFIX, watcher(red, labels="colour=red"))

    await put(store, "a", "kube-system")
    await put(store, "b", labels={"colour": "red"})
    await put(store, "b", labels={"colour": "blue"})
    await drop(store, "b")

    assert all_wire.told() == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")]
    assert here.told() == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")]
    assert red.told() == [("ADDED", "b"), ("DELETED", "b")]


async def test_what_left_is_shown_as_it_last_was_at_the_revision_it_left() -> None:
    store = MemoryStore()
    feeds, red = Feeds(store), FakeWire()
    feeds.join(PREFIX, watcher(red, labels="colour=red"))

    await put(store, "b", labels={"colour": "red"}, data={"n": "1"})
    await put(store, "b", labels={"colour": "blue"}, data={"n": "2"})

    kind, shown = red.events()[1]
    assert (kind, shown["data"]) == ("DELETED", {"n": "1"})
    assert shown["metadata"]["resourceVersion"] == str(store.current_revision)


async def test_a_watcher_that_is_behind_may_not_join_until_it_has_caught_up() -> None:
    store = MemoryStore()
    feeds, wire = Feeds(store), FakeWire()
    late = watcher(wire, seen=1)
    await put(store, "a")
    await put(store, "b")

    assert not feeds.join(PREFIX, late)
    missed = feeds.missed(PREFIX, late.seen)
    for change in missed.changes:
        late.offer(change)
    assert feeds.join(PREFIX, late)
    await put(store, "c")

    assert wire.told() == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
    assert missed.upto == 3


async def test_nothing_is_told_twice_and_nothing_from_before_a_future_place() -> None:
    store = MemoryStore()
    feeds, wire = Feeds(store), FakeWire()
    early = watcher(wire, seen=3)
    feeds.join(PREFIX, early)

    for name in ("a", "b", "c"):
        await put(store, name)
    for change in feeds.missed(PREFIX, Revision(1)).changes:
        early.offer(change)

    assert wire.told() == [("ADDED", "c")]


async def test_a_watcher_that_does_not_read_is_told_410_and_gets_no_more() -> None:
    store = MemoryStore()
    feeds, slow, quick = Feeds(store), FakeWire(), FakeWire()
    cut = watcher(slow)
    feeds.join(PREFIX, cut)
    feeds.join(PREFIX, watcher(quick))
    slow.buffered = SLOW_BYTES + 1

    await put(store, "a")
    await put(store, "b")

    ((kind, status),) = slow.events()
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert cut.ended.done()
    assert quick.told() == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_place_that_was_forgotten_is_compacted() -> None:
    store = MemoryStore()
    feeds = Feeds(store)
    for name in ("a", "b", "c"):
        await put(store, name)
    await store.compact(Revision(3))

    try:
        feeds.missed(PREFIX, Revision(1))
    except Compacted:
        pass
    else:
        raise AssertionError("what is forgotten must not look complete")
    assert [change.event.key for change in feeds.missed(PREFIX, Revision(3)).changes] == [
        CONFIG_MAPS.key("default", "c")
    ]


async def test_a_feed_nobody_watches_is_given_up() -> None:
    store = MemoryStore()
    feeds, wire = Feeds(store), FakeWire()
    only = watcher(wire)
    feeds.join(PREFIX, only)
    assert feeds.watcher_count == 1

    feeds.leave(PREFIX, only)
    await put(store, "a")

    assert feeds.watcher_count == 0
    assert wire.written == []
    feeds.leave(PREFIX, only)  # leaving twice is harmless


async def test_closing_the_store_ends_watches_without_a_word_and_a_reason_is_passed_on() -> None:
    store = MemoryStore()
    feeds, wire = Feeds(store), FakeWire()
    open_watch = watcher(wire)
    feeds.join(PREFIX, open_watch)

    await store.close()

    assert open_watch.ended.done()
    assert wire.written == []


async def test_watches_of_a_resource_that_is_no_longer_served_end_and_the_others_stay() -> None:
    store = MemoryStore()
    feeds = Feeds(store)
    mine, other = watcher(FakeWire()), watcher(FakeWire())
    feeds.join("/registry/x.io/foos/", mine)
    feeds.join("/registry/x.io/foobars/", other)

    feeds.end_all(prefix="/registry/x.io/foos/")

    assert mine.ended.done()
    assert not other.ended.done()


# -- one user with a crowd of watchers -------------------------------------------------------------


class Crowded:
    """A feed with one user's watchers, the first of whom are told at once."""

    def __init__(self, count: int, *, a_write_takes: float = 0.00001) -> None:
        self.store, self.clock = MemoryStore(), WorkingClock()
        self.feeds = Feeds(self.store, self.clock)
        takes = partial(self.clock.work, a_write_takes)
        self.wires = [FakeWire(takes) for _ in range(count)]
        self.watchers = [watcher(wire) for wire in self.wires]
        for each in self.watchers:
            assert self.feeds.join(PREFIX, each)

    @property
    def crowd(self) -> list[FakeWire]:
        return self.wires[PROMPT_WATCHERS:]

    @property
    def pieces(self) -> int:
        """How many pieces the crowd has been written."""
        return sum(len(wire.written) for wire in self.crowd)

    async def turns(self, count: int) -> None:
        """Let the loop turn; the clock stands, but for what writing takes."""
        for _ in range(count):
            await asyncio.sleep(0)


async def test_a_write_waits_only_for_the_first_of_one_users_watchers() -> None:
    one = Crowded(PROMPT_WATCHERS * 3)

    await put(one.store, "a")

    told = [bool(wire.written) for wire in one.wires]
    assert told == [True] * PROMPT_WATCHERS + [False] * (PROMPT_WATCHERS * 2)
    await one.clock.advance(1)
    assert all(wire.told() == [("ADDED", "a")] for wire in one.wires)


async def test_watchers_of_others_are_told_at_once_beside_a_crowd() -> None:
    one = Crowded(PROMPT_WATCHERS * 3)
    wire = FakeWire()
    other = watcher(wire)
    other.owner = "carl"
    one.feeds.join(PREFIX, other)

    await put(one.store, "a")

    assert wire.told() == [("ADDED", "a")]
    await one.clock.advance(1)


async def test_a_feed_that_ends_leaves_nobody_to_be_told() -> None:
    one = Crowded(PROMPT_WATCHERS * 2)
    await put(one.store, "a")

    await one.store.close()  # and no task is left, which the runner of tests looks for

    assert all(each.ended.done() for each in one.watchers)
    assert not any(wire.written for wire in one.crowd)


async def test_a_crowd_is_told_in_a_part_of_the_time_however_much_is_written() -> None:
    one = Crowded(PROMPT_WATCHERS + 1000, a_write_takes=CROWD_SLICE_SECONDS / 10)
    await put(one.store, "a")
    written = 0

    for number in range(40):
        before = one.pieces
        await one.clock.advance(CROWD_PAUSE_SECONDS)
        assert one.pieces - before <= 20, "a slice, or two where one ends as time is turned"
        await put(one.store, f"b-{number}")
        written += 1

    assert 0 < one.pieces < 1000 * written
    await one.clock.advance(2)
    names = ["a", *(f"b-{number}" for number in range(written))]
    assert all([name for _, name in wire.told()] == names for wire in one.crowd)
    # Each was told of forty changes in a few pieces: whoever is told late is told all at once.
    assert one.pieces < 1000 * 4


async def test_a_crowd_waits_for_nothing_where_nobody_asks() -> None:
    one = Crowded(PROMPT_WATCHERS + 1000, a_write_takes=CROWD_SLICE_SECONDS / 10)
    one.feeds.set_quiet(lambda: True)
    await put(one.store, "a")
    began, turns = one.clock.monotonic(), 0

    while one.pieces < 1000:
        before = one.pieces
        await asyncio.sleep(0)
        assert one.pieces - before <= 11, "one slice in a turn: the loop looks at its sockets"
        turns += 1

    assert turns > 1000 / 11
    # Time went by only as they were written to: the clock was not turned.
    assert one.clock.monotonic() - began < 1001 * CROWD_SLICE_SECONDS / 10
    assert not one.clock.sleeping


async def test_whoever_comes_has_a_crowd_pause_before_its_next_slice() -> None:
    one = Crowded(PROMPT_WATCHERS + 1000, a_write_takes=CROWD_SLICE_SECONDS / 10)
    requests = 0
    one.feeds.set_quiet(lambda: not requests)
    await put(one.store, "a")
    await one.turns(20)

    requests = 1  # under way until it is answered, whatever it waits for
    told = one.pieces
    assert 100 < told < 500
    await settle()
    assert one.pieces == told
    for _ in range(20):
        told = one.pieces
        await one.clock.advance(CROWD_PAUSE_SECONDS)
        assert one.pieces - told <= 20, "a fifth of the time, as ever"
    assert one.pieces < 1000

    requests = 0
    await one.clock.advance(CROWD_PAUSE_SECONDS * 2)
    assert one.pieces == 1000


async def test_what_is_no_request_has_a_crowd_pause_by_the_time_it_takes() -> None:
    one = Crowded(PROMPT_WATCHERS + 1000, a_write_takes=CROWD_SLICE_SECONDS / 10)
    one.feeds.set_quiet(lambda: True)
    await put(one.store, "a")
    await one.turns(20)

    one.clock.work(CROWD_ALONE_SECONDS * 2)  # a piece of a long list is sent

    told = one.pieces
    assert 100 < told < 500
    await settle()
    assert one.pieces == told
    await one.clock.advance(CROWD_PAUSE_SECONDS * 2)
    assert one.pieces == 1000


async def test_crowds_of_several_resources_share_one_part_of_the_time() -> None:
    store, clock = MemoryStore(), WorkingClock()
    feeds = Feeds(store, clock)
    takes = partial(clock.work, CROWD_SLICE_SECONDS / 10)
    prefixes = [f"/registry/x.io/{each}/" for each in ("foos", "bars", "bazes")]
    wires: dict[str, list[FakeWire]] = {each: [] for each in prefixes}
    for prefix in prefixes:
        for _ in range(PROMPT_WATCHERS + 100):
            wires[prefix].append(FakeWire(takes))
            each = Watcher(
                Stream(wires[prefix][-1], has_body=True),  # pyright: ignore[reportArgumentType] - the half that is used
                prefix=prefix,
                selection=select(CONFIG_MAPS, ListOptions()),
                style_of=lambda _is_first: STYLE,
                seen=Revision(1),
            )
            assert feeds.join(prefix, each)
    for prefix in prefixes:
        await store.put(f"{prefix}default/a", entry_of(config_map("a")).value)

    await clock.advance(CROWD_PAUSE_SECONDS * 12)

    told = [sum(bool(wire.written) for wire in each[PROMPT_WATCHERS:]) for each in wires.values()]
    assert all(told), "none waits until another is done"
    assert sum(told) <= 10 * 14, "and all of them together have what one would have"
    await clock.advance(1)
    assert all(len(wire.written) == 1 for each in wires.values() for wire in each)


async def test_a_crowd_is_told_everything_in_order_while_watchers_come_and_go() -> None:
    # Of every change only some have been told when the next one comes, somebody joins or leaves.
    one = Crowded(PROMPT_WATCHERS * 4, a_write_takes=CROWD_SLICE_SECONDS / 3)
    feeds, store = one.feeds, one.store
    random = Random(7)
    names = list[str]()
    joined: list[tuple[FakeWire, int]] = []
    gone: list[FakeWire] = []
    for number in range(200):
        names.append(f"a-{number}")
        await put(store, names[-1])
        if number % 10 == 5:
            leaving = random.randrange(PROMPT_WATCHERS, len(one.watchers))
            feeds.leave(PREFIX, one.watchers.pop(leaving))
            gone.append(one.wires.pop(leaving))
        if number % 10 == 9:
            wire = FakeWire()
            assert feeds.join(PREFIX, watcher(wire, seen=store.current_revision))
            joined.append((wire, len(names)))
        await one.clock.advance(random.choice((0, 0, CROWD_PAUSE_SECONDS, CROWD_PAUSE_SECONDS * 9)))
    left = [list(wire.written) for wire in gone]
    await one.clock.advance(5)

    assert all([name for _, name in wire.told()] == names for wire in one.wires)
    for wire, since in joined:
        assert [name for _, name in wire.told()] == names[since:]
    assert [wire.written for wire in gone] == left, "who has left is told nothing"
    for wire in gone:
        heard = [name for _, name in wire.told()]
        assert heard == names[: len(heard)], "and was told without a gap until then"


async def test_more_than_fits_in_a_batch_comes_in_several_and_nothing_is_forgotten() -> None:
    one = Crowded(PROMPT_WATCHERS * 2)
    names = [f"a-{number}" for number in range(30)]
    for name in names:
        await put(one.store, name, data={"k": "v" * (CROWD_BATCH_BYTES // 10)})
    await one.clock.advance(1)

    assert all([name for _, name in wire.told()] == names for wire in one.wires)
    assert all(len(wire.written) >= 3 for wire in one.crowd)
    assert all(len(each) < CROWD_BATCH_BYTES * 2 for wire in one.crowd for each in wire.written)


async def test_only_the_first_event_of_a_batch_is_the_first() -> None:
    one = Crowded(PROMPT_WATCHERS)
    wire, asked = FakeWire(), list[bool]()

    def style_of(is_first: bool) -> CountingStyle:
        asked.append(is_first)
        return STYLE

    late = watcher(wire, style=None)
    late._style_of = style_of
    assert one.feeds.join(PREFIX, late)
    for name in ("a", "b", "c"):
        await put(one.store, name)
    await one.clock.advance(1)

    assert (len(wire.written), len(wire.told())) == (1, 3)
    assert asked == [True, False, False], "a Table has its columns once"


async def test_nobody_is_said_to_have_seen_what_was_not_written_to_them() -> None:
    one = Crowded(PROMPT_WATCHERS * 2)
    before = one.store.current_revision

    await put(one.store, "a")

    assert one.feeds.revision(PREFIX, one.watchers[0]) == one.store.current_revision
    assert not one.wires[-1].written
    assert one.feeds.revision(PREFIX, one.watchers[-1]) <= before
    await one.clock.advance(1)
    assert one.feeds.revision(PREFIX, one.watchers[-1]) == one.store.current_revision


async def test_a_crowd_that_falls_too_far_behind_is_cut_off_and_the_others_are_not() -> None:
    one = Crowded(PROMPT_WATCHERS * 2)

    for number in range(MOST_BEHIND + 1):  # nothing else runs: the loop has no turn
        await put(one.store, f"a-{number}")

    assert all(each.ended.done() for each in one.watchers[PROMPT_WATCHERS:])
    assert not any(each.ended.done() for each in one.watchers[:PROMPT_WATCHERS])
    assert one.wires[-1].events()[-1][1]["code"] == 410
    await one.clock.advance(1)
    assert len(one.wires[-1].written) == 1, "nothing follows the reason for the end"


async def test_of_a_crowd_who_does_not_read_is_cut_off_and_the_others_are_told() -> None:
    one = Crowded(PROMPT_WATCHERS * 2)
    one.wires[-1].buffered = SLOW_BYTES + 1

    await put(one.store, "a")
    await put(one.store, "b")
    await one.clock.advance(1)

    ((kind, status),) = one.wires[-1].events()
    assert (kind, status["code"]) == ("ERROR", 410)
    assert all(wire.told() == [("ADDED", "a"), ("ADDED", "b")] for wire in one.wires[:-1])
