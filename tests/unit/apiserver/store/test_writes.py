import pytest

from clusterspace.apiserver.store.index import (
    MAXIMUM_VALUE_BYTES,
    Delete,
    Put,
    answer_to,
    checked,
    decide,
)
from clusterspace.apiserver.store.interface import ABSENT, EventType, KeyValue, Revision
from clusterspace.errors import RevisionMismatch, Unstorable

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
