"""Entries of managedFields are read strictly, written in Kubernetes' order, and kept few."""

from typing import Any

import pytest

from clusterspace.errors import Malformed
from clusterspace.kube.managed_fields.field_sets import FieldSet
from clusterspace.kube.managed_fields.managers import (
    ANCIENT_CHANGES,
    MOST_UPDATE_MANAGERS,
    Entry,
    are_alike_but_for_times,
    capped,
    is_reset,
    raw_entries,
    read_entries,
    with_entries,
)


def entry(manager: str, operation: str = "Update", second: int = 0, **changes: Any) -> Entry:
    values: dict[str, Any] = {
        "api_version": "v1",
        "subresource": "",
        "time": f"2026-01-01T00:00:{second:02}Z",
        "fields": FieldSet.of((f"f:{manager}",)),
    }
    return Entry(manager=manager, operation=operation, **{**values, **changes})


def by_identity(*entries: Entry) -> dict[Any, Entry]:
    return {each.identity: each for each in entries}


def written(*entries: Entry) -> list[dict[str, Any]]:
    return raw_entries(with_entries({"metadata": {}}, by_identity(*entries)))


WIRE = {
    "manager": "m",
    "operation": "Update",
    "apiVersion": "v1",
    "time": "2026-01-01T00:00:00Z",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:data": {"f:k": {}}},
    "subresource": "status",
}


def test_entries_read_and_written_are_the_same() -> None:
    assert raw_entries(with_entries({"metadata": {}}, read_entries([WIRE]))) == [WIRE]


def test_appliers_come_first_then_the_oldest_then_by_name() -> None:
    order = [
        entry("z", "Apply"),
        entry("b", second=1),
        entry("a", second=2),
        entry("c", second=2),
        entry("c", second=2, subresource="status"),
    ]

    names = [(each["manager"], each.get("subresource")) for each in written(*reversed(order))]

    assert names == [("z", None), ("b", None), ("a", None), ("c", None), ("c", "status")]


def test_an_entry_without_time_is_the_oldest_and_has_none_when_written() -> None:
    first, second = written(entry("a"), entry("b", time=None))

    assert (first["manager"], "time" in first) == ("b", False)
    assert second["manager"] == "a"


def test_who_owns_nothing_has_no_entry() -> None:
    assert written(entry("a"), entry("b", fields=FieldSet())) == written(entry("a"))
    assert (
        "managedFields" not in with_entries({"metadata": {"managedFields": [WIRE]}}, {})["metadata"]
    )


def test_an_applier_is_the_same_in_every_version_an_updater_is_not() -> None:
    both = ("v1", "v2")

    assert len(by_identity(*(entry("a", "Apply", api_version=each) for each in both))) == 1
    assert len(by_identity(*(entry("a", "Update", api_version=each) for each in both))) == 2


@pytest.mark.parametrize(
    "raw",
    [
        5,
        [5],
        [{**WIRE, "operation": "Guess"}],
        [{**WIRE, "apiVersion": ""}],
        [{**WIRE, "fieldsType": "FieldsV2"}],
        [{**WIRE, "manager": 5}],
        [{**WIRE, "time": 5}],
        [{**WIRE, "time": "yesterday"}],
        [{**WIRE, "fieldsV1": {"data": {}}}],
    ],
)
def test_nonsense_is_refused(raw: Any) -> None:
    with pytest.raises(Malformed):
        read_entries(raw)


def test_owners_are_forgotten_by_an_empty_list_or_one_empty_entry() -> None:
    assert is_reset([])
    assert is_reset([{}])
    assert not is_reset(None)
    assert not is_reset([WIRE])


def test_ten_updaters_are_kept_apart() -> None:
    entries = by_identity(*(entry(f"m{each}", second=each) for each in range(MOST_UPDATE_MANAGERS)))

    assert capped(entries) == entries


def test_the_oldest_updaters_of_too_many_become_one() -> None:
    entries = by_identity(
        *(entry(f"m{each:02}", second=each) for each in range(MOST_UPDATE_MANAGERS + 2)),
        *(entry(f"a{each}", "Apply") for each in range(5)),
    )

    kept = {each.manager: each for each in capped(entries).values()}

    assert len(kept) == MOST_UPDATE_MANAGERS + 5
    assert set(kept[ANCIENT_CHANGES].fields.paths()) == {("f:m00",), ("f:m01",), ("f:m02",)}
    assert kept[ANCIENT_CHANGES].time == "2026-01-01T00:00:02Z"


def test_ancient_changes_grow_when_one_more_comes() -> None:
    entries = by_identity(*(entry(f"m{each:02}", second=each) for each in range(12)))
    more = {**capped(entries), **by_identity(entry("new", second=30))}

    kept = {each.manager: each for each in capped(more).values()}

    assert len(kept) == MOST_UPDATE_MANAGERS
    assert ("f:m03",) in kept[ANCIENT_CHANGES].fields


def test_ancient_changes_are_kept_by_version() -> None:
    versions = ("v1", "v2")
    entries = by_identity(
        *(entry(f"m{each:02}", second=each, api_version=versions[each % 2]) for each in range(13))
    )

    kept = capped(entries)

    buckets = {each.api_version for each in kept.values() if each.manager == ANCIENT_CHANGES}
    assert len(kept) == MOST_UPDATE_MANAGERS
    assert buckets == {"v1", "v2"}


def test_times_alone_make_no_difference() -> None:
    left = {"metadata": {"managedFields": [WIRE]}}
    later = {"metadata": {"managedFields": [{**WIRE, "time": "2027-01-01T00:00:00Z"}]}}

    assert are_alike_but_for_times(left, later)
    assert not are_alike_but_for_times(left, {**later, "data": {}})
    assert not are_alike_but_for_times(left, {"metadata": {"managedFields": []}})
