"""Values that are kept beside memory come back as they were, in the order that is asked for."""

import pytest

from clusterspace.fleet.migration.spool import Spool


def filled(*words: str) -> Spool[str]:
    spool = Spool(str)
    for word in words:
        spool.add(word, key=word, group=word[0], order=(word[::-1],))
    return spool


def test_values_come_back_in_the_order_they_came_in() -> None:
    spool = filled("web", "api", "worker")

    assert list(spool) == ["web", "api", "worker"]
    assert (len(spool), spool[1], spool[-1], spool[1:]) == (3, "api", "worker", ["api", "worker"])
    assert spool == ("web", "api", "worker")
    assert spool != ["web", "api"]
    assert Spool(str) == ()
    with pytest.raises(IndexError):
        spool[3]


def test_what_has_a_key_that_is_there_is_not_added_and_the_first_is_named() -> None:
    spool = filled("web", "api")

    assert spool.add("another", key="api") == 1
    assert list(spool) == ["web", "api"]


def test_groups_and_orders_are_the_callers() -> None:
    spool = filled("web", "api", "worker")

    assert list(spool.of("w")) == ["web", "worker"]
    assert list(spool.of("nobody")) == []
    assert list(spool.ordered()) == ["web", "api", "worker"]  # bew, ipa, rekrow


def test_orders_compare_like_tuples() -> None:
    spool = Spool(str)
    for namespace, name in (("a-b", "x"), ("a", "z"), ("a", "b")):
        spool.add(f"{namespace}/{name}", key=f"{namespace}/{name}", order=(namespace, name))

    assert list(spool.ordered()) == ["a/b", "a/z", "a-b/x"]


def test_whoever_iterates_may_remove_what_it_has_seen() -> None:
    spool = filled(*(f"{number:03d}" for number in range(250)))

    for each in spool:
        if int(each) % 2:
            spool.remove(each)

    assert list(spool) == [f"{number:03d}" for number in range(0, 250, 2)]
    assert spool.add("new", key="new") is None
    assert spool[-1] == "new"
