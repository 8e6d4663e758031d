"""One change, many watchers: who is told what, in which bytes, and who is cut off."""

import asyncio
from collections.abc import Hashable
from typing import Any

import msgspec
from tests.unit.apiserver.hub_subjects import CONFIG_MAPS, config_map, entry_of

from clusterspace.apiserver import forms
from clusterspace.apiserver.feeds import (
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
from clusterspace.testing.clocks import settle

PREFIX = CONFIG_MAPS.prefix()


class FakeWire:
    """Keeps what is written; `buffered` is what the test says."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.buffered = 0
        self.is_connected = True

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def events(self) -> list[tuple[str, Any]]:
        """Return the type and object of every event, out of its chunk."""
        bodies = (chunk.split(b"\r\n")[1] for chunk in self.written)
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
    feeds, wires = Feeds(store), [FakeWire() for _ in range(50)]
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


async def crowded(store: MemoryStore, count: int) -> tuple[Feeds, list[FakeWire], list[Watcher]]:
    feeds, wires = Feeds(store), [FakeWire() for _ in range(count)]
    watchers = [watcher(wire) for wire in wires]
    for each in watchers:
        assert feeds.join(PREFIX, each)
    return feeds, wires, watchers


async def test_a_write_waits_only_for_the_first_of_one_users_watchers() -> None:
    store = MemoryStore()
    _, wires, _ = await crowded(store, PROMPT_WATCHERS * 3)

    await put(store, "a")

    told = [bool(wire.written) for wire in wires]
    assert told == [True] * PROMPT_WATCHERS + [False] * (PROMPT_WATCHERS * 2)
    await settle()
    assert all(wire.told() == [("ADDED", "a")] for wire in wires)


async def test_watchers_of_others_are_told_at_once_beside_a_crowd() -> None:
    store = MemoryStore()
    feeds, _, _ = await crowded(store, PROMPT_WATCHERS * 3)
    wire = FakeWire()
    other = watcher(wire)
    other.owner = "carl"
    feeds.join(PREFIX, other)

    await put(store, "a")

    assert wire.told() == [("ADDED", "a")]


async def test_a_crowd_is_told_everything_in_order_while_watchers_come_and_go() -> None:
    store = MemoryStore()
    feeds, wires, watchers = await crowded(store, PROMPT_WATCHERS * 4)
    names, late = list[str](), FakeWire()
    for number in range(20):
        names.append(f"a-{number}")
        await put(store, names[-1])
        if number == 5:
            feeds.leave(PREFIX, watchers[-1])
        if number == 9:
            newcomer = watcher(late, seen=store.current_revision)
            assert feeds.join(PREFIX, newcomer)
        await asyncio.sleep(0)
    await settle()

    assert all([name for _, name in wire.told()] == names for wire in wires[:-1])
    assert [name for _, name in late.told()] == names[10:]


async def test_nobody_is_said_to_have_seen_what_was_not_written_to_them() -> None:
    store = MemoryStore()
    feeds, wires, watchers = await crowded(store, PROMPT_WATCHERS * 2)
    before = store.current_revision

    await put(store, "a")

    assert feeds.revision(PREFIX, watchers[0]) == store.current_revision
    assert not wires[-1].written
    assert feeds.revision(PREFIX, watchers[-1]) <= before
    await settle()
    assert feeds.revision(PREFIX, watchers[-1]) == store.current_revision


async def test_a_crowd_that_falls_too_far_behind_is_cut_off_and_the_others_are_not() -> None:
    store = MemoryStore()
    _, wires, watchers = await crowded(store, PROMPT_WATCHERS * 2)

    for number in range(MOST_BEHIND + 1):  # nothing else runs: the loop has no turn
        await put(store, f"a-{number}")

    assert all(each.ended.done() for each in watchers[PROMPT_WATCHERS:])
    assert not any(each.ended.done() for each in watchers[:PROMPT_WATCHERS])
    assert wires[-1].events()[-1][1]["code"] == 410
    await settle()
    assert len(wires[-1].written) == 1, "nothing follows the reason for the end"
