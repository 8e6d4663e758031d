"""What is kept of members' objects: within a bound, for a time, and never across a restore."""

import asyncio
from functools import partial

import msgspec
import pytest

from clusterspace.fleet.gateway import object_cache
from clusterspace.fleet.gateway.object_cache import (
    TRUSTED_SECONDS,
    UNUSED_SECONDS,
    CachedKind,
    KindKey,
    ListHistory,
    ObjectCache,
    digest_of,
)
from clusterspace.fleet.gateway.object_texts import Column, Texts, in_blocks
from clusterspace.fleet.gateway.routes import Naming, Subject
from clusterspace.testing.clocks import ManualClock

EAST_PODS = KindKey(Naming("east", qualifies_names=True), Subject("", "v1", "pods"))
WEST_PODS = KindKey(Naming("west", qualifies_names=True), Subject("", "v1", "pods"))
EAST_NODES = KindKey(Naming("east", qualifies_names=True), Subject("", "v1", "nodes"))


def put(cache: ObjectCache, key: KindKey, count: int, *, size: int = 100, version: str = "5"):
    kind = CachedKind("PodList", "v1", used_at=0.0, version=version)
    texts = [(digest_of(b"%d" % each), msgspec.Raw(b"x" * size)) for each in range(count)]
    cache.put(key, kind, texts)


def known(cache: ObjectCache, key: KindKey, *numbers: int, version: str = "") -> int:
    found = cache.texts(key, version, [digest_of(b"%d" % each) for each in numbers])
    return sum(each is not None for each in found)


def test_what_was_put_is_found_and_nothing_else():
    cache = ObjectCache(ManualClock(), 1 << 20)
    put(cache, EAST_PODS, 3)

    assert known(cache, EAST_PODS, 0, 1, 2, 3) == 3
    assert known(cache, WEST_PODS, 0) == 0
    assert known(cache, EAST_NODES, 0) == 0


def test_the_kind_nobody_asked_for_longest_leaves_when_there_is_no_room():
    cache = ObjectCache(ManualClock(), 100_000)
    for key in (EAST_PODS, WEST_PODS, EAST_NODES):
        put(cache, key, 20, size=900)
    assert known(cache, EAST_PODS, 0) == 1  # used again: now west is the oldest
    for number in range(2):
        put(cache, KindKey(Naming(f"m{number}"), Subject("", "v1", "pods")), 20, size=900)

    assert cache.used_bytes <= 100_000
    assert (known(cache, EAST_PODS, 0), known(cache, WEST_PODS, 0)) == (1, 0)


async def test_nothing_leaves_for_what_is_about_to_be_packed():
    cache = ObjectCache(ManualClock(), 100_000)
    keys = [KindKey(Naming(f"m{number}"), Subject("", "v1", "pods")) for number in range(12)]
    kind = partial(CachedKind, "PodList", "v1", used_at=0.0, version="5")
    texts = [(digest_of(b"%d" % each), msgspec.Raw(b"x" * 900)) for each in range(20)]
    async with asyncio.TaskGroup() as group:
        for key in keys:
            group.create_task(cache.keep(key, kind(), texts))

    assert [known(cache, key, *range(20)) for key in keys] == [20] * 12
    assert cache.used_bytes <= 100_000


async def test_a_pack_that_is_given_up_leaves_no_more_than_there_is_room_for():
    cache = ObjectCache(ManualClock(), 100_000)
    for number in range(5):
        put(cache, KindKey(Naming(f"m{number}"), Subject("", "v1", "pods")), 17, size=900)
    kind = CachedKind("PodList", "v1", used_at=0.0, version="5")
    texts = [(digest_of(b"%d" % each), msgspec.Raw(b"x" * 900)) for each in range(20)]
    keeping = asyncio.ensure_future(cache.keep(EAST_PODS, kind, texts))
    await asyncio.sleep(0)
    keeping.cancel()
    await asyncio.wait((keeping,))

    assert keeping.cancelled()
    assert cache.used_bytes <= 100_000
    await cache.keep(WEST_PODS, CachedKind("PodList", "v1", used_at=0.0, version="5"), texts)
    assert cache.used_bytes <= 50_000


def test_one_kind_never_takes_the_room_of_all_others():
    cache = ObjectCache(ManualClock(), 100_000)
    put(cache, WEST_PODS, 10)
    put(cache, EAST_PODS, 100, size=900)

    assert not cache.has_room(30_000)
    assert (known(cache, EAST_PODS, 0), known(cache, WEST_PODS, 0)) == (0, 1)
    assert cache.used_bytes == 10 * 350


def test_texts_that_are_put_again_count_once():
    cache = ObjectCache(ManualClock(), 1 << 20)
    for _ in range(3):
        put(cache, EAST_PODS, 10)

    assert cache.used_bytes == 10 * 350


async def test_no_text_is_used_long_after_it_was_read():
    clock = ManualClock()
    cache = ObjectCache(clock, 1 << 20)
    put(cache, EAST_PODS, 1)
    await clock.advance(TRUSTED_SECONDS + 1)

    assert known(cache, EAST_PODS, 0) == 0
    cache.sweep(("east",))
    assert cache.used_bytes == 0


async def test_what_nobody_asks_for_and_clusters_that_left_are_forgotten():
    clock = ManualClock()
    cache = ObjectCache(clock, 1 << 20)
    put(cache, EAST_PODS, 1)
    put(cache, WEST_PODS, 1)
    cache.sweep(("west",))
    assert (known(cache, EAST_PODS, 0), known(cache, WEST_PODS, 0)) == (0, 1)
    await clock.advance(UNUSED_SECONDS + 1)
    cache.sweep(("west",))

    assert cache.find(WEST_PODS) is None
    assert cache.used_bytes == 0


@pytest.mark.parametrize(("version", "count"), [("5", 1), ("6", 1), ("4", 0), ("", 1)])
def test_a_cluster_that_counts_again_is_known_no_more(version: str, count: int):
    cache = ObjectCache(ManualClock(), 1 << 20)
    put(cache, EAST_PODS, 1)

    assert known(cache, EAST_PODS, 0, version=version) == count
    assert known(cache, EAST_PODS, 0) == count


def test_a_list_of_a_restored_cluster_replaces_all_that_was_known():
    cache = ObjectCache(ManualClock(), 1 << 20)
    put(cache, EAST_PODS, 5)
    put(cache, EAST_PODS, 1, version="3")

    assert known(cache, EAST_PODS, 0, 1, 2, 3, 4) == 1
    assert cache.used_bytes == 350


def test_metadata_is_asked_for_where_it_pays_and_ever_more_rarely_where_not():
    history = ListHistory(0.0)
    assert not history.tries_metadata()
    history.note_whole(1.0, 1 << 20)
    assert history.tries_metadata()
    history.note_metadata(0.3, sufficed=True)
    assert history.tries_metadata()

    def tries_of(lists: int) -> int:
        tries = 0
        for _ in range(lists):
            if history.tries_metadata():
                tries += 1
                history.note_metadata(0.9, sufficed=True)  # it takes as long as the list
        return tries

    assert tries_of(1000) < 25
    history.skips = history.pause = 0
    history.note_metadata(0.3, sufficed=True)
    assert history.tries_metadata()


def test_a_short_list_is_asked_for_as_it_is():
    history = ListHistory(0.0)
    history.note_whole(1.0, 1000)

    assert not history.tries_metadata()


async def test_only_a_list_that_is_asked_for_again_soon_is_a_repeated_one():
    clock = ManualClock()
    cache = ObjectCache(clock, 1 << 20)
    asked = ("east", "/api/v1/pods", [("labelSelector", "a=b")])
    assert not cache.history(*asked).is_repeated
    assert cache.history(*asked).is_repeated
    assert not cache.history("west", *asked[1:]).is_repeated
    await clock.advance(UNUSED_SECONDS + 1)
    assert not cache.history(*asked).is_repeated


def test_histories_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(object_cache, "_MOST_HISTORIES", 3)
    cache = ObjectCache(ManualClock(), 1 << 20)
    for number in range(10):
        cache.history("east", f"/{number}", ())

    assert not cache.history("east", "/0", ()).is_repeated
    assert cache.history("east", "/9", ()).is_repeated


@pytest.mark.parametrize("is_packed", [False, True])
def test_one_text_of_a_block_is_the_one_among_all(is_packed: bool):
    texts = [msgspec.Raw(b'"%d"' % (each * each)) for each in range(40)]
    places = list(in_blocks(0.0, texts))
    for place in places:
        if is_packed:
            place.block.pack()

    assert [bytes(Texts(places)[at]) for at in range(40)] == list(map(bytes, texts))
    assert list(map(bytes, Texts(places))) == list(map(bytes, texts))


def test_a_column_knows_where_a_text_is():
    column = Column([("a", "b"), ("a", "a"), (), ("",), ("b",), ("c",)])

    assert [list(column.places(each)) for each in ("a", "b", "c", "", "d")] == [
        [0, 1],
        [0, 4],
        [5],
        [3],
        [],
    ]


async def test_a_second_digest_finds_the_same_text_for_as_long_as_it_is_kept():
    clock = ManualClock()
    cache = ObjectCache(clock, 1 << 20)
    put(cache, EAST_PODS, 2)
    before = cache.used_bytes
    assert len(cache.unaliased(EAST_PODS)) == 2
    cache.alias(EAST_PODS, {b"in protobuf": digest_of(b"0")})

    (found,) = cache.texts(EAST_PODS, "", [b"in protobuf"])
    assert found is not None
    assert [found] == cache.texts(EAST_PODS, "", [digest_of(b"0")])
    assert list(cache.unaliased(EAST_PODS)) == [digest_of(b"1")]
    assert cache.used_bytes > before
    assert cache.texts(WEST_PODS, "", [b"in protobuf"]) == [None]
    cache.alias(WEST_PODS, {b"in protobuf": digest_of(b"0")})  # nothing of it is kept

    await clock.advance(TRUSTED_SECONDS)
    assert cache.texts(EAST_PODS, "", [b"in protobuf"]) == [None]


def test_second_digests_of_what_is_gone_go_and_all_that_is_counted_is_given_back():
    cache = ObjectCache(ManualClock(), 1 << 20)
    put(cache, EAST_PODS, 1)
    before = cache.used_bytes
    for number in range(1000):
        cache.alias(EAST_PODS, {b"%d of old" % number: b"gone"})

    assert cache.used_bytes - before < 70 * 150
    cache.sweep(())
    assert cache.used_bytes == 0


async def test_who_writes_protobuf_slowly_is_asked_for_json_for_some_time():
    clock = ManualClock()
    cache = ObjectCache(clock, 1 << 20)
    assert cache.takes_protobuf("east")
    for pays in (False, False, True, False, False):
        cache.note_protobuf("east", pays=pays)
    assert cache.takes_protobuf("east"), "not three times running"
    cache.note_protobuf("east", pays=False)

    assert not cache.takes_protobuf("east")
    assert cache.takes_protobuf("west")
    await clock.advance(UNUSED_SECONDS)
    assert cache.takes_protobuf("east")


async def test_what_a_list_named_is_known_for_as_long_as_each_text_is_trusted():
    clock = ManualClock()
    cache = ObjectCache(clock, 1 << 20)
    put(cache, EAST_PODS, 3)
    texts = [each for each in cache.texts(EAST_PODS, "", [digest_of(b"0")]) if each]
    before = cache.used_bytes
    cache.note_named(EAST_PODS, "jane", b"digest", texts)

    assert cache.named_before(EAST_PODS, "jane", b"digest") == texts
    assert not cache.named_before(EAST_PODS, "jane", b"another")
    assert not cache.named_before(EAST_PODS, "carl", b"digest")
    assert not cache.named_before(WEST_PODS, "jane", b"digest")
    assert cache.used_bytes > before
    for number in range(100):
        cache.note_named(EAST_PODS, number, b"digest", texts)
    assert cache.used_bytes < before + 100 * 8

    await clock.advance(TRUSTED_SECONDS)
    assert not cache.named_before(EAST_PODS, 99, b"digest")
    cache.sweep(("east",))
    assert cache.used_bytes == 0


def test_nothing_that_was_named_is_known_when_versions_go_back():
    cache = ObjectCache(ManualClock(), 1 << 20)
    put(cache, EAST_PODS, 1, version="5")

    assert not cache.has_gone_back(EAST_PODS, "")
    assert not cache.has_gone_back(EAST_PODS, "5")
    assert cache.has_gone_back(EAST_PODS, "4")
    assert cache.used_bytes == 0
    assert not cache.has_gone_back(EAST_PODS, "4")
