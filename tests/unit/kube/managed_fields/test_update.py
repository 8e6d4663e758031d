"""Whoever changes a field owns it, and nobody else does."""

from typing import Any

import pytest
from hypothesis import given, settings
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
from clusterspace.kube.managed_fields.apply import apply
from clusterspace.kube.managed_fields.comparison import compare
from clusterspace.kube.managed_fields.update import Write, track_update
from clusterspace.kube.objects import with_metadata
from clusterspace.kube.resources import GroupVersionKind


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
@settings(max_examples=60)
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
@settings(max_examples=60)
def test_nobody_owns_what_is_not_there(first: Any, second: Any) -> None:
    after = updated(created(first), second)

    there = compare({}, after, SCHEMA).changed
    assert all(not fields - there for fields in owners(after).values())


@given(specs, st.lists(json_values, max_size=2) | json_values)
@settings(max_examples=60)
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
