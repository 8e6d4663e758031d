"""Server-side apply: who owns, who objects, what stays and what goes."""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.kube.managed_fields.gadgets import (
    LATER,
    NOW,
    SCHEMA,
    gadget,
    json_values,
    owned_json,
    owners,
    specs,
    write_by,
)

from clusterspace.errors import ApiError, BadRequest, Conflict
from clusterspace.kube.managed_fields.apply import apply
from clusterspace.kube.managed_fields.managers import track_update
from clusterspace.kube.managed_fields.typed_values import compare, object_schema, owned_fields
from clusterspace.kube.objects import with_metadata
from clusterspace.kube.schemas.model import ANYTHING

WHOLE = object_schema(SCHEMA)


def applied(live: Any, spec: Any, by: str = "ann", *, force: bool = False) -> dict[str, Any]:
    return apply(live, gadget(spec), write_by(by, LATER), force=force)


def test_an_applier_owns_what_it_said_and_nothing_else() -> None:
    after = applied(None, {"size": "S", "data": {"k": "v"}})

    assert after["spec"] == {"size": "S", "data": {"k": "v"}}
    assert owned_json(after) == {
        ("ann", "Apply"): {"f:spec": {"f:data": {"f:k": {}}, "f:size": {}}}
    }


def test_a_field_given_up_goes_unless_somebody_else_owns_it() -> None:
    live = applied(applied(None, {"size": "S", "replicas": 1}), {"size": "S"}, by="bob")

    after = applied(live, None)

    assert after["spec"] == {"size": "S"}
    assert list(owners(after)) == [("bob", "Apply")]


def test_a_default_filled_in_beside_is_left_alone() -> None:
    live = applied(None, {"size": "S", "data": {"k": "v"}})
    defaulted = {**live, "spec": {**live["spec"], "replicas": 1}}

    after = applied(defaulted, {"size": "S"})

    assert after["spec"] == {"size": "S", "replicas": 1}


def test_an_element_given_up_goes_with_all_that_was_filled_in() -> None:
    live = applied(None, {"ports": [{"port": 1}, {"port": 2}]})
    ports = [{"port": 1, "protocol": "TCP"}, {"port": 2, "protocol": "TCP"}]

    after = applied({**live, "spec": {"ports": ports}}, {"ports": [{"port": 2}]})

    assert after["spec"] == {"ports": [{"port": 2, "protocol": "TCP"}]}


def test_appliers_share_what_they_agree_on() -> None:
    live = applied(None, {"size": "S"})

    after = applied(live, {"size": "S"}, by="bob")

    assert owned_json(after) == {
        ("ann", "Apply"): {"f:spec": {"f:size": {}}},
        ("bob", "Apply"): {"f:spec": {"f:size": {}}},
    }


def test_one_conflict_is_told_in_one_line() -> None:
    live = applied(None, {"size": "S"})

    with pytest.raises(Conflict) as refused:
        applied(live, {"size": "M"}, by="bob")

    assert refused.value.message == (
        'Apply failed with 1 conflict: conflict with "ann": .spec.size'
    )


def test_many_conflicts_are_told_owner_by_owner() -> None:
    live = applied(None, {"size": "S", "ports": [{"port": 1, "name": "x"}]})
    edited = {**live, "spec": {**live["spec"], "replicas": 1}}
    live = track_update(live, edited, write_by("edit", subresource="scale"))

    with pytest.raises(Conflict) as refused:
        applied(live, {"size": "M", "replicas": 2, "ports": [{"port": 1, "name": "y"}]}, by="bob")

    assert refused.value.message == (
        "Apply failed with 3 conflicts: "
        'conflicts with "ann":\n- .spec.size\n- .spec.ports[port=1,protocol="TCP"].name\n'
        'conflicts with "edit" with subresource "scale" using example.com/v1:\n- .spec.replicas'
    )
    assert refused.value.details is not None
    assert [cause.field for cause in refused.value.details.causes] == [
        ".spec.size",
        '.spec.ports[port=1,protocol="TCP"].name',
        ".spec.replicas",
    ]


def test_force_takes_the_field_and_leaves_the_rest() -> None:
    live = applied(None, {"size": "S", "replicas": 1})

    after = applied(live, {"size": "M"}, by="bob", force=True)

    assert after["spec"] == {"size": "M", "replicas": 1}
    assert owned_json(after) == {
        ("ann", "Apply"): {"f:spec": {"f:replicas": {}}},
        ("bob", "Apply"): {"f:spec": {"f:size": {}}},
    }


def test_the_first_apply_finds_an_owner_for_what_was_there() -> None:
    live = gadget({"size": "S", "replicas": 1})

    with pytest.raises(Conflict, match='conflict with "before-first-apply" using'):
        applied(live, {"size": "M"})
    after = applied(live, {"size": "M"}, force=True)

    assert owned_json(after) == {
        ("ann", "Apply"): {"f:spec": {"f:size": {}}},
        ("before-first-apply", "Update"): {"f:spec": {".": {}, "f:replicas": {}}},
    }


def test_an_applier_of_another_version_is_still_the_same() -> None:
    live = applied(None, {"size": "S", "replicas": 1})
    (entry,) = live["metadata"]["managedFields"]
    older = with_metadata(live, managedFields=[{**entry, "apiVersion": "example.com/v1beta1"}])

    after = applied(older, {"size": "S"})

    assert after["spec"] == {"size": "S"}
    assert [each["apiVersion"] for each in after["metadata"]["managedFields"]] == ["example.com/v1"]


def test_an_apply_that_changes_nothing_is_the_live_object() -> None:
    live = apply(None, gadget({"size": "S"}), write_by("ann", NOW))

    assert applied(live, {"size": "S"}) is live


def test_null_system_metadata_says_nothing() -> None:
    live = apply(None, gadget({"size": "S"}), write_by("ann", NOW))
    live = with_metadata(live, creationTimestamp=NOW)

    made_by_go = gadget({"size": "S"}, creationTimestamp=None)

    assert apply(live, made_by_go, write_by("ann", LATER)) is live


def test_sharing_alone_moves_no_time() -> None:
    live = apply(None, gadget({"size": "S", "replicas": 1}), write_by("ann", NOW))
    live = apply(live, gadget({"size": "S"}), write_by("bob", NOW))

    after = applied(live, {"size": "S", "replicas": 1}, by="bob")

    assert {each["time"] for each in after["metadata"]["managedFields"] if "time" in each} == {NOW}


def test_status_is_applied_through_its_own_door() -> None:
    live = applied(None, {"size": "S"})
    configuration = {**gadget({"size": "M"}), "status": {"phase": "Up"}}
    door = write_by("ctl", LATER, subresource="status", reset=frozenset({"spec", "metadata"}))

    after = apply(live, configuration, door)

    status = after["metadata"]["managedFields"][1]
    assert status["fieldsV1"] == {"f:status": {"f:phase": {}}}
    assert status["subresource"] == "status"


def test_labels_and_finalizers_have_owners_of_their_own_for_every_kind() -> None:
    write = write_by("ann", schema=ANYTHING)

    live = apply(None, gadget(labels={"a": "1"}, finalizers=["f"]), write)
    after = apply(live, gadget(finalizers=["g"]), write_by("bob", schema=ANYTHING))

    assert after["metadata"]["finalizers"] == ["f", "g"]
    assert owned_json(after)["ann", "Apply"] == {
        "f:metadata": {"f:finalizers": {'v:"f"': {}}, "f:labels": {"f:a": {}}}
    }


def test_what_became_atomic_is_contested_whole() -> None:
    live = with_metadata(
        gadget({"selector": {"a": "1"}}),
        managedFields=[
            {
                "manager": "old",
                "operation": "Apply",
                "apiVersion": "example.com/v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:selector": {"f:a": {}}}},
            }
        ],
    )

    with pytest.raises(Conflict, match=r'conflict with "old": \.spec\.selector'):
        applied(live, {"selector": {"b": "1"}})


@pytest.mark.parametrize("entries", [[], [{"manager": "x"}]])
def test_a_configuration_may_not_say_who_owns(entries: Any) -> None:
    with pytest.raises(BadRequest, match=r"metadata\.managedFields must be nil"):
        apply(None, gadget({}, managedFields=entries), write_by("ann"))


def test_a_configuration_of_another_version_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"invalid object type: example\.com/v2, Kind=Gadget"):
        apply(None, {**gadget({}), "apiVersion": "example.com/v2"}, write_by("ann"))


def test_unreadable_owners_are_told_and_not_lost() -> None:
    live = gadget({}, managedFields=[{"manager": "x"}])

    with pytest.raises(ApiError, match="failed to decode managed fields"):
        applied(live, {"size": "S"})


@given(specs, specs)
def test_applying_twice_is_applying_once(first: Any, second: Any) -> None:
    live = applied(None, first)

    once = applied(live, second, by="bob", force=True)

    assert applied(once, second, by="bob") is once


@given(specs, specs)
def test_applying_nothing_takes_away_exactly_what_nobody_else_owns(first: Any, second: Any) -> None:
    made = applied(None, first)
    # Who applies an empty list alone owns nothing, and the object is as one from before any apply.
    assume(owners(made))
    theirs = {**second, "size": "L"}
    live = applied(made, theirs, by="bob", force=True)

    after = applied(live, None)

    assert set(owners(after)) == {("bob", "Apply")}
    assert not compare({"spec": said(theirs)}, {"spec": said(after["spec"])}, WHOLE)


def said(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec without lists that say nothing: nobody owns the absence of elements."""
    return {name: held for name, held in spec.items() if held or name not in ("tags", "ports")}


@given(specs, specs)
def test_force_leaves_one_owner_for_what_was_contested(first: Any, second: Any) -> None:
    live = applied(None, first)
    contested = (
        owned_fields(gadget(first), WHOLE)
        & compare(live, applied(live, second, by="bob", force=True), WHOLE).changed
    )

    after = applied(live, second, by="bob", force=True)

    for path in contested.paths():
        assert [owner for owner, fields in owners(after).items() if path in fields] in (
            [],
            [("bob", "Apply")],
        )


@given(specs)
def test_two_who_apply_the_same_own_the_same(spec: Any) -> None:
    live = applied(None, spec)

    after = applied(live, spec, by="bob")

    assert after["spec"] == live["spec"]
    assert owners(after).get(("ann", "Apply")) == owners(after).get(("bob", "Apply"))


@given(specs, specs)
def test_without_force_nobody_else_loses_anything(first: Any, second: Any) -> None:
    live = applied(None, first)
    try:
        after = applied(live, second, by="bob")
    except Conflict:
        return

    assert owners(after).get(("ann", "Apply")) == owners(live).get(("ann", "Apply"))


@given(json_values, json_values, json_values | st.lists(json_values, max_size=2))
def test_nonsense_is_answered_with_an_api_error(spec: Any, metadata: Any, entries: Any) -> None:
    live = gadget({"size": "S"}, managedFields=entries)
    configuration = {**gadget(spec), "metadata": metadata}
    try:
        after = apply(live, configuration, write_by("ann"), force=True)
    except ApiError:
        return
    assert after["kind"] == "Gadget"


@given(specs, specs)
@settings(max_examples=30)
def test_the_inputs_stay_as_they_are(first: Any, second: Any) -> None:
    live, configuration = applied(None, first), gadget(second)
    assume(first != second)
    before = repr((live, configuration))

    apply(live, configuration, write_by("bob"), force=True)

    assert repr((live, configuration)) == before
