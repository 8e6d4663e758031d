"""Entries of managedFields are read strictly, written in Kubernetes' order, and kept few; whoever
changes a field owns it, and nobody else does.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kube.managed_fields.gadgets import (
    LATER,
    SCHEMA,
    gadget,
    json_values,
    owned_json,
    owners,
    specs,
    write_by,
)

from clusterspace.builtins import normal_form
from clusterspace.builtins.schemas import schema_for
from clusterspace.errors import Malformed
from clusterspace.kube.managed_fields.apply import apply
from clusterspace.kube.managed_fields.field_sets import FieldSet
from clusterspace.kube.managed_fields.managers import (
    ANCIENT_CHANGES,
    MOST_UPDATE_MANAGERS,
    Entry,
    Write,
    are_alike_but_for_times,
    capped,
    is_reset,
    raw_entries,
    read_entries,
    track_update,
    with_entries,
)
from clusterspace.kube.managed_fields.typed_values import compare
from clusterspace.kube.objects import with_metadata
from clusterspace.kube.resources import GroupVersionKind


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


def created(spec: dict[str, Any], by: str = "ann") -> dict[str, Any]:
    return track_update(None, gadget(spec), write_by(by))


def updated(live: dict[str, Any], spec: dict[str, Any], by: str = "bob") -> dict[str, Any]:
    return track_update(live, {**live, "spec": spec}, write_by(by, LATER))


def test_a_creator_owns_everything_but_the_name() -> None:
    assert owned_json(created({"size": "S", "inner": {"a": "1"}})) == {
        ("ann", "Update"): {"f:spec": {".": {}, "f:inner": {".": {}, "f:a": {}}, "f:size": {}}}
    }


def test_an_updater_owns_what_it_changed_and_the_former_owner_does_not() -> None:
    after = updated(created({"size": "S", "replicas": 1}), {"size": "M", "replicas": 1})

    assert owned_json(after) == {
        ("ann", "Update"): {"f:spec": {".": {}, "f:replicas": {}}},
        ("bob", "Update"): {"f:spec": {"f:size": {}}},
    }


def test_a_removed_field_is_nobodys() -> None:
    after = updated(created({"size": "S", "replicas": 1}), {"replicas": 1})

    assert owned_json(after) == {("ann", "Update"): {"f:spec": {".": {}, "f:replicas": {}}}}


def test_an_updater_keeps_what_it_had() -> None:
    once = updated(created({"size": "S", "replicas": 1}), {"size": "M", "replicas": 1})

    twice = updated(once, {"size": "M", "replicas": 2})

    assert owned_json(twice)["bob", "Update"] == {"f:spec": {"f:replicas": {}, "f:size": {}}}


def test_a_write_that_changes_nothing_leaves_the_times_alone() -> None:
    live = created({"size": "S"})

    assert updated(live, {"size": "S"}, by="ann") == live


def test_changing_an_own_field_again_moves_the_time() -> None:
    after = updated(created({"size": "S"}), {"size": "M"}, by="ann")

    (entry,) = after["metadata"]["managedFields"]
    assert entry["time"] == LATER


def test_a_subresource_is_an_owner_of_its_own() -> None:
    live = created({"size": "S"})
    write = write_by("ann", LATER, subresource="status", reset=frozenset({"spec", "metadata"}))

    after = track_update(live, {**live, "status": {"phase": "Up"}}, write)

    main, status = after["metadata"]["managedFields"]
    assert "subresource" not in main
    assert status["subresource"] == "status"
    assert status["fieldsV1"] == {"f:status": {".": {}, "f:phase": {}}}


def test_what_a_door_resets_is_not_owned_through_it() -> None:
    write = write_by("ann", reset=frozenset({"status", "metadata.labels"}))
    new = {**gadget({"size": "S"}, labels={"a": "1"}, annotations={"b": "2"}), "status": {"x": 1}}

    assert owned_json(track_update(None, new, write))["ann", "Update"] == {
        "f:metadata": {"f:annotations": {".": {}, "f:b": {}}},
        "f:spec": {".": {}, "f:size": {}},
    }


def test_a_scale_write_carries_no_time() -> None:
    live = created({"replicas": 1})
    write = write_by("hpa", LATER, subresource="scale")

    after = track_update(live, {**live, "spec": {"replicas": 2}}, write)

    scale = next(each for each in after["metadata"]["managedFields"] if each["manager"] == "hpa")
    assert "time" not in scale
    assert scale["fieldsV1"] == {"f:spec": {"f:replicas": {}}}


def test_a_client_that_leaves_the_owners_away_does_not_wipe_them_out() -> None:
    live = created({"size": "S"})

    after = track_update(live, with_metadata(live, managedFields=None), write_by("bob"))

    assert after == live


@pytest.mark.parametrize("nothing", [[], [{}]])
def test_owners_can_be_reset_and_stay_reset_until_the_next_apply(nothing: Any) -> None:
    live = created({"size": "S"})

    reset = track_update(live, with_metadata(live, managedFields=nothing), write_by("bob"))
    later = updated(reset, {"size": "M"})

    assert "managedFields" not in reset["metadata"]
    assert "managedFields" not in later["metadata"]


def test_an_object_whose_last_owner_is_gone_is_tracked_no_more() -> None:
    emptied = updated(apply(None, gadget({"replicas": 1}), write_by("app")), {})

    assert "managedFields" not in updated(emptied, {"replicas": 1})["metadata"]


def test_owners_cannot_be_rewritten_through_a_subresource() -> None:
    live = created({"size": "S"})

    through = write_by("bob", subresource="status")
    after = track_update(live, with_metadata(live, managedFields=[]), through)

    assert after == live


def test_owners_can_be_rewritten_by_an_update() -> None:
    live = created({"size": "S"})
    (entry,) = live["metadata"]["managedFields"]
    renamed = [{**entry, "manager": "new"}]

    after = track_update(live, with_metadata(live, managedFields=renamed), write_by("bob"))

    assert list(owners(after)) == [("new", "Update")]


def test_owners_that_make_no_sense_are_taken_from_the_live_object() -> None:
    live = created({"size": "S"})

    sent = with_metadata(live, managedFields=[{"manager": "x"}])

    assert track_update(live, sent, write_by("bob")) == live


def test_an_element_no_path_can_name_changes_no_owner() -> None:
    live = created({"ports": [{"port": 1}]})

    after = updated(live, {"ports": [{"name": "nameless"}, 5]})

    assert owners(after) == owners(live)


def test_what_became_atomic_has_one_owner_after_the_next_change() -> None:
    live = with_metadata(
        gadget({"selector": {"a": "1"}}),
        managedFields=[
            {
                "manager": "old",
                "operation": "Update",
                "apiVersion": "example.com/v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:selector": {"f:a": {}}}},
            }
        ],
    )

    assert owned_json(updated(live, {"selector": {"a": "2"}})) == {
        ("bob", "Update"): {"f:spec": {"f:selector": {}}}
    }


def test_a_nameless_manager_is_unknown() -> None:
    assert list(owners(created({"size": "S"}, by=""))) == [("unknown", "Update")]


@given(specs, specs, specs)
def test_every_changed_field_has_exactly_one_owner(first: Any, second: Any, third: Any) -> None:
    # The label keeps an owner on the object: one without any is no longer tracked.
    one = apply(None, gadget(first, labels={"kept": "1"}), write_by("app"))
    two = updated(one, second, by="bob")
    three = updated(two, third, by="eve")

    changed = compare(two, three, SCHEMA).changed
    for path in changed.paths():
        if path[0] == "f:spec":
            assert [owner for owner, fields in owners(three).items() if path in fields] == [
                ("eve", "Update")
            ]


@given(specs, specs)
def test_nobody_owns_what_is_not_there(first: Any, second: Any) -> None:
    after = updated(created(first), second)

    there = compare({}, after, SCHEMA).changed
    assert all(not fields - there for fields in owners(after).values())


@given(specs, st.lists(json_values, max_size=2) | json_values)
def test_nonsense_in_managed_fields_stops_no_write(spec: Any, nonsense: Any) -> None:
    live = created({"size": "S"})
    sent = {**live, "spec": spec, "metadata": {"name": "g", "managedFields": nonsense}}

    after = track_update(live, sent, write_by("bob"))

    assert after["spec"] == spec


def test_a_creator_owns_what_is_in_places_that_are_always_there_not_the_places() -> None:
    blank = normal_form.normalize({}, GroupVersionKind("apps", "v1", "Deployment")).object
    schema = schema_for("apps", "v1", "Deployment")
    assert schema is not None
    write = Write("m", "apps/v1", "2026-01-01T00:00:00Z", schema, blank=blank)
    new = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "status": {}}

    made = track_update(None, {**new, "spec": {"strategy": {"type": "Recreate"}}}, write)

    (entry,) = made["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:spec": {"f:strategy": {"f:type": {}}}}
