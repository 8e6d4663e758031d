import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apiserver.store.interface import Event, EventType, KeyValue, Revision
from clusterspace.apiserver.store.records import State, read_record, read_state, row_of, state_row
from clusterspace.errors import StoreCorrupt

revisions = st.integers(1, 2**62).map(Revision)


@given(revision=revisions, key=st.text(min_size=1), value=st.none() | st.binary(max_size=50))
def test_a_record_reads_back_as_written(revision: Revision, key: str, value: bytes | None) -> None:
    kind = EventType.DELETE if value is None else EventType.PUT
    created = Revision(0 if value is None else 1)
    event = Event(kind, KeyValue(key, value or b"", created, revision), previous=None)

    record = read_record(row_of(event))

    assert (record.revision, record.key, record.value) == (revision, key, value)
    assert record.create_revision == created


@pytest.mark.parametrize(
    "row",
    [
        (3, b"/a", b"value", 2, 1),
        (3, b"/a", "value", 2, 1),
        (3, None, b"value", 2, 1),
        (3, b"/a", b"value", "2", 1),
        (3, b"\xff", b"value", 2, 1),
    ],
)
def test_a_row_that_was_not_written_by_us_is_refused_by_revision(row: tuple[object, ...]) -> None:
    with pytest.raises(StoreCorrupt, match="revision 3"):
        read_record(row)


def test_an_empty_value_is_not_a_delete() -> None:
    put = Event(EventType.PUT, KeyValue("/a", b"", Revision(2), Revision(2)), None)
    revision, key, _, created, checksum = row_of(put)
    with pytest.raises(StoreCorrupt):
        read_record((revision, key, None, created, checksum))


def test_the_state_reads_back_and_notices_an_edit() -> None:
    state = State(Revision(9), Revision(4), records=7, digest=12345)
    row = state_row(state)
    assert read_state(row) == state
    for place in range(len(row)):
        edited = (*row[:place], row[place] + 1, *row[place + 1 :])
        with pytest.raises(StoreCorrupt):
            read_state(edited)
    for missing in (None, (1, 2, 3, None, 4)):
        with pytest.raises(StoreCorrupt):
            read_state(missing)
