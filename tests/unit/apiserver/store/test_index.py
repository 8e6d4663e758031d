import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apiserver.store.index import (
    MAXIMUM_VALUE_BYTES,
    Delete,
    Index,
    Put,
    answer_to,
    checked,
    decide,
)
from clusterspace.apiserver.store.interface import ABSENT, Event, EventType, KeyValue, Revision
from clusterspace.errors import Compacted, FutureRevision, RevisionMismatch, Unstorable

KEYS = ["a", "a/", "a/1", "a/2", "b", "b/1", "ä/1", "\U0010ffff", "\U0010ffffx"]
PREFIXES = ["", "a", "a/", "b", "ä", "\U0010ffff", "c"]

steps = st.lists(st.tuples(st.sampled_from(KEYS), st.booleans(), st.integers(0, 9)), max_size=40)


def change(index: Index, key: str, *, delete: bool, value: bytes = b"") -> Event | None:
    held = index.get(key)
    revision = Revision(index.revision + 1)
    if delete and held is None:
        return None
    write = Delete(key, held.mod_revision) if delete and held else Put(key, value, None)
    event = decide(write, held, revision)
    index.apply((event,))
    return event


def state_of(index: Index, prefix: str = "", at: Revision | None = None) -> list[KeyValue]:
    return list(index.page(prefix, start_after=None, limit=None, at=at).items)


@given(steps=steps, compact_at=st.integers(0, 40), limit=st.integers(1, 5))
def test_every_kept_revision_reads_as_a_copy_made_then_would(
    steps: list[tuple[str, bool, int]], compact_at: int, limit: int
) -> None:
    index = Index()
    copies = {index.revision: dict[str, KeyValue]()}
    for key, delete, value in steps:
        event = change(index, key, delete=delete, value=bytes([value]))
        if event is not None:
            copy = {k: item for k, item in copies[max(copies)].items() if k != key}
            copies[index.revision] = copy if event.is_delete else {**copy, key: event.item}
    index.compact(Revision(min(compact_at, index.revision)))
    while index.drop_compacted(limit):
        pass
    for revision, copy in copies.items():
        if revision < index.oldest:
            with pytest.raises(Compacted):
                state_of(index, at=revision)
            continue
        for prefix in PREFIXES:
            expected = [copy[key] for key in sorted(copy) if key.startswith(prefix)]
            assert state_of(index, prefix, at=revision) == expected
            assert pages(index, prefix, revision, limit) == expected
        assert [index.get(key, revision) for key in KEYS] == [copy.get(key) for key in KEYS]
    present = copies[max(copies)]
    for prefix in PREFIXES:
        assert index.count(prefix) == sum(key.startswith(prefix) for key in present)


def pages(index: Index, prefix: str, at: Revision, limit: int) -> list[KeyValue]:
    """Read a range page by page, checking what each says about the rest."""
    found: list[KeyValue] = []
    page = index.page(prefix, start_after=None, limit=limit, at=at)
    total = len(page.items) + page.remaining
    found.extend(page.items)
    while page.more:
        page = index.page(prefix, start_after=found[-1].key, limit=limit, at=at)
        found.extend(page.items)
        assert len(found) + page.remaining == total
    return found


def test_events_after_a_revision_are_all_and_in_order() -> None:
    index = Index()
    for number in range(10):
        change(index, f"{number % 3}", delete=False)
    assert [event.revision for event in index.events_after(Revision(4), limit=3)] == [5, 6, 7]
    assert index.events_after(Revision(11), limit=3) == []
    assert index.events_after(Revision(99), limit=3) == []


def test_the_future_cannot_be_read_or_compacted() -> None:
    index = Index()
    with pytest.raises(FutureRevision):
        index.get("a", Revision(2))
    with pytest.raises(FutureRevision):
        index.compact(Revision(2))


def test_the_size_of_the_past_counts_replaced_values_and_returns_to_nothing() -> None:
    index = Index()
    for _ in range(5):
        change(index, "a", delete=False, value=b"12345")
    assert (index.history.events, index.history.value_bytes) == (5, 20)

    index.compact(index.revision)
    dropped = index.drop_compacted(limit=100)

    assert len(dropped) == 5
    assert (index.history.events, index.history.value_bytes) == (0, 0)


def test_a_deleted_key_leaves_no_trace_once_its_past_is_dropped() -> None:
    index = Index()
    change(index, "a", delete=False)
    change(index, "a", delete=True)
    index.compact(index.revision)
    index.drop_compacted(limit=100)
    assert state_of(index, at=index.revision) == []
    assert index.history.events == 0


HELD = KeyValue("/a", b"old", create_revision=Revision(3), mod_revision=Revision(5))
NEXT = Revision(9)


def test_a_put_keeps_the_create_revision_of_what_it_replaces() -> None:
    event = decide(Put("/a", b"new", Revision(5)), HELD, NEXT)

    assert event.item == KeyValue("/a", b"new", Revision(3), NEXT)
    assert event.previous is HELD
    assert answer_to(event) is event.item


def test_a_put_of_a_new_key_is_created_now() -> None:
    event = decide(Put("/a", b"new", ABSENT), None, NEXT)

    assert event.is_create
    assert event.item == KeyValue("/a", b"new", NEXT, NEXT)


def test_a_delete_answers_with_the_last_value() -> None:
    event = decide(Delete("/a", Revision(5)), HELD, NEXT)

    assert (event.type, event.value, event.revision) == (EventType.DELETE, b"", NEXT)
    assert answer_to(event) == KeyValue("/a", b"old", Revision(3), NEXT)


@pytest.mark.parametrize(
    ("write", "held", "actual"),
    [
        (Put("/a", b"", ABSENT), HELD, 5),
        (Put("/a", b"", Revision(4)), HELD, 5),
        (Put("/a", b"", Revision(4)), None, 0),
        (Delete("/a", Revision(4)), HELD, 5),
        (Delete("/a", Revision(4)), None, 0),
        (Delete("/a", ABSENT), None, 0),
    ],
)
def test_a_lost_comparison_says_where_the_key_is(
    write: Put | Delete, held: KeyValue | None, actual: int
) -> None:
    with pytest.raises(RevisionMismatch) as refusal:
        decide(write, held, NEXT)
    assert (refusal.value.key, refusal.value.actual) == ("/a", actual)


def test_a_value_beyond_the_limit_is_refused_by_name() -> None:
    with pytest.raises(Unstorable, match="/a: 16777217 bytes"):
        checked(Put("/a", bytes(MAXIMUM_VALUE_BYTES + 1), None))
