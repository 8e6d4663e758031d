"""Which fields a value has, what changed between two, and how one merges into another.

List elements are named by their keys, every kind has metadata with known types, and an applied
configuration speaks of exactly the fields Kubernetes says it does. Merging keeps what is live, sets
what is applied, and puts lists in Kubernetes' order; what nobody owns any more leaves the object,
and nothing else does.
"""

from typing import Any

import pytest
from hypothesis import given
from tests.unit.kube.managed_fields.gadgets import SCHEMA, gadget, json_values, specs

from clusterspace.errors import MalformedObject
from clusterspace.kube.managed_fields.field_sets import FieldSet
from clusterspace.kube.managed_fields.typed_values import (
    compare,
    fitted,
    given_up,
    item_element,
    merge,
    object_schema,
    owned_fields,
    remove,
    same,
    with_named_fields,
)
from clusterspace.kube.schemas.model import ANYTHING, Schema

SPEC = SCHEMA.properties["spec"]
PAIRS = Schema(
    {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["b", "a"],
        "items": {"type": "object", "properties": {"a": {"default": "x"}, "b": {}}},
    }
)
WORDS = Schema({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}})


def test_a_key_left_out_has_its_default() -> None:
    assert item_element({"b": 1}, PAIRS) == item_element({"a": "x", "b": 1}, PAIRS)
    assert item_element({"b": 1}, PAIRS) == 'k:{"a":"x","b":1}'


def test_a_key_left_out_without_default_is_another_element() -> None:
    assert item_element({}, PAIRS) == 'k:{"a":"x"}'


@pytest.mark.parametrize("item", [{}, [], None])
def test_a_set_holds_no_containers(item: object) -> None:
    with pytest.raises(MalformedObject):
        item_element(item, WORDS)


def test_finalizers_are_a_set_whatever_the_schema_says() -> None:
    for schema in (ANYTHING, Schema({"properties": {"metadata": {"type": "object"}}})):
        metadata = object_schema(schema).properties["metadata"]
        assert metadata.properties["finalizers"].list_type == "set"
        assert metadata.properties["ownerReferences"].list_map_keys == ("uid",)


@pytest.mark.parametrize(
    ("configuration", "fields"),
    [
        ({"size": "S", "replicas": None}, {"f:replicas": {}, "f:size": {}}),
        ({"inner": {"a": "1"}}, {"f:inner": {"f:a": {}}}),
        ({"inner": {}}, {"f:inner": {}}),
        ({"data": {"k": "v"}}, {"f:data": {"f:k": {}}}),
        ({"selector": {"a": "1"}}, {"f:selector": {}}),
        ({"command": []}, {"f:command": {}}),
        ({"tags": []}, {}),
        ({"tags": ["x"]}, {"f:tags": {'v:"x"': {}}}),
        (
            {"ports": [{"port": 1}]},
            {"f:ports": {'k:{"port":1,"protocol":"TCP"}': {".": {}, "f:port": {}}}},
        ),
        (
            {"free": {"a": {"b": [1]}}},
            {"f:free": {"f:a": {".": {}, "f:b": {}}}},
        ),
    ],
)
def test_fields_of_a_configuration(configuration: Any, fields: Any) -> None:
    assert owned_fields(configuration, SPEC).to_json() == fields


def test_without_a_schema_maps_are_owned_in_pieces_and_lists_whole() -> None:
    fields = owned_fields({"spec": {"a": [{"b": 1}], "c": {"d": 2}}}, ANYTHING)

    assert fields.to_json() == {"f:spec": {".": {}, "f:a": {}, "f:c": {".": {}, "f:d": {}}}}


@given(specs)
def test_an_applier_owns_no_more_than_a_creator(spec: Any) -> None:
    assert not owned_fields(spec, SPEC) - compare({}, spec, SPEC).changed


def test_named_fields_on_the_way_count_as_owned() -> None:
    fields = FieldSet.of(("f:inner", "f:a"), ("f:free", "f:x", "f:y"))

    assert with_named_fields(fields, SPEC).to_json() == {
        "f:free": {".": {}, "f:x": {"f:y": {}}},
        "f:inner": {".": {}, "f:a": {}},
    }


def test_pieces_of_what_has_become_atomic_are_the_whole() -> None:
    fields = FieldSet.of(("f:selector", "f:a"), ("f:command", 'v:"x"'), ("f:inner", "f:a"))

    assert fitted(fields, SPEC).to_json() == {
        "f:command": {},
        "f:inner": {"f:a": {}},
        "f:selector": {},
    }


def changes(before: dict[str, Any], after: dict[str, Any]) -> tuple[Any, Any]:
    found = compare(before, after, SPEC)
    return found.changed.to_json(), found.removed.to_json()


@pytest.mark.parametrize(
    ("before", "after", "changed", "removed"),
    [
        ({"size": "S"}, {"size": "M"}, {"f:size": {}}, {}),
        ({"size": "S"}, {}, {}, {"f:size": {}}),
        ({}, {"size": "S"}, {"f:size": {}}, {}),
        ({}, {"inner": {"a": "1"}}, {"f:inner": {".": {}, "f:a": {}}}, {}),
        ({"inner": {}}, {"inner": {"a": "1"}}, {"f:inner": {"f:a": {}}}, {}),
        ({"inner": None}, {"inner": {"a": "1"}}, {"f:inner": {"f:a": {}}}, {}),
        ({"inner": None}, {"inner": {}}, {"f:inner": {}}, {}),
        ({"inner": {"a": "1"}}, {"inner": {}}, {}, {"f:inner": {"f:a": {}}}),
        ({"inner": {"a": "1"}}, {}, {}, {"f:inner": {".": {}, "f:a": {}}}),
        ({"selector": {"a": "1"}}, {"selector": {"b": "1"}}, {"f:selector": {}}, {}),
        ({"command": ["a"]}, {"command": ["a", "b"]}, {"f:command": {}}, {}),
        ({"tags": ["a", "b"]}, {"tags": ["b", "a"]}, {}, {}),
        ({"tags": ["a"]}, {"tags": ["b"]}, {"f:tags": {'v:"b"': {}}}, {"f:tags": {'v:"a"': {}}}),
        (
            {"ports": [{"port": 1, "name": "x"}]},
            {"ports": [{"port": 1, "protocol": "TCP", "name": "y"}]},
            {"f:ports": {'k:{"port":1,"protocol":"TCP"}': {"f:name": {}, "f:protocol": {}}}},
            {},
        ),
        (
            {"free": {"a": {"b": 1}}},
            {"free": {"a": 2}},
            {"f:free": {"f:a": {}}},
            {"f:free": {"f:a": {"f:b": {}}}},
        ),
        ({"free": {"a": 1}}, {"free": {"a": True}}, {"f:free": {"f:a": {}}}, {}),
        ({"free": {"a": 1}}, {"free": {"a": 1.0}}, {}, {}),
        (
            {"free": {"a": 0}},
            {"free": {"a": {"b": 1}}},
            {"f:free": {"f:a": {".": {}, "f:b": {}}}},
            {},
        ),
    ],
)
def test_changes_are_named_piece_by_piece(
    before: Any, after: Any, changed: Any, removed: Any
) -> None:
    assert changes(before, after) == (changed, removed)


def test_elements_of_one_name_are_one_value() -> None:
    one, two = {"ports": [{"port": 1}]}, {"ports": [{"port": 1}, {"port": 1, "name": "x"}]}
    element = 'k:{"port":1,"protocol":"TCP"}'

    assert changes(one, two) == (
        {"f:ports": {element: {}}},
        {"f:ports": {element: {".": {}, "f:port": {}}}},
    )
    assert changes(two, two) == ({}, {})
    assert changes(two, {"ports": [{"port": 1}, {"port": 1}]})[0] == {"f:ports": {element: {}}}
    assert changes(two, one)[1] == {"f:ports": {element: {}}}


@given(specs, specs)
def test_what_is_added_one_way_is_removed_the_other(left: Any, right: Any) -> None:
    there, back = compare(left, right, SPEC), compare(right, left, SPEC)

    assert there.removed - back.changed == there.removed - there.removed
    assert bool(there) == bool(back)


@given(specs)
def test_nothing_changed_when_nothing_changed(spec: Any) -> None:
    assert not compare(gadget(spec), gadget(dict(reversed(spec.items()))), SCHEMA)


@given(json_values, json_values)
def test_equality_is_that_of_json(left: Any, right: Any) -> None:
    found = compare({"a": left}, {"a": right}, ANYTHING)

    assert same(left, right) == (not found)
    assert same(left, left)


def test_numbers_are_equal_by_value_and_never_to_booleans() -> None:
    assert same([{"a": 1}], [{"a": 1.0}])
    assert not same([{"a": 1}], [{"a": True}])
    assert not same({"a": [0.0, 1]}, {"a": [False, 1]})


@pytest.mark.parametrize(
    ("live", "applied", "merged"),
    [
        ({"size": "S", "replicas": 1}, {"size": "M"}, {"size": "M", "replicas": 1}),
        ({"inner": {"a": "1"}}, {"inner": {"b": "2"}}, {"inner": {"a": "1", "b": "2"}}),
        ({"inner": {"a": "1"}}, {"inner": None}, {"inner": {"a": "1"}}),
        ({"inner": {"a": "1"}}, {"inner": {}}, {"inner": {"a": "1"}}),
        ({"inner": {}}, {"inner": None}, {"inner": None}),
        ({"size": "S"}, {"size": None}, {"size": None}),
        ({"selector": {"a": "1"}}, {"selector": {"b": "1"}}, {"selector": {"b": "1"}}),
        ({"command": ["a"]}, {"command": ["b"]}, {"command": ["b"]}),
        ({"tags": ["a"]}, {"tags": None}, {"tags": ["a"]}),
        ({"free": {"a": {"b": 1}}}, {"free": {"a": [1]}}, {"free": {"a": [1]}}),
        (
            {"ports": [{"port": 1, "protocol": "TCP", "name": "x"}]},
            {"ports": [{"port": 1, "name": "y"}]},
            {"ports": [{"port": 1, "protocol": "TCP", "name": "y"}]},
        ),
    ],
)
def test_what_is_applied_wins(live: Any, applied: Any, merged: Any) -> None:
    assert merge(live, applied, SPEC) == merged


@pytest.mark.parametrize(
    ("live", "applied", "merged"),
    [
        ("f", "g", "fg"),
        ("ab", "ba", "ba"),
        ("abc", "bac", "bac"),
        ("axby", "bca", "xbyca"),
        ("xay", "a", "xay"),
        ("xay", "za", "xzay"),
        ("xay", "az", "xayz"),
        ("", "ab", "ab"),
        ("ab", "", "ab"),
    ],
)
def test_lists_are_put_in_applied_order_around_what_was_there(
    live: str, applied: str, merged: str
) -> None:
    assert merge({"tags": list(live)}, {"tags": list(applied)}, SPEC) == {"tags": list(merged)}


def test_live_elements_of_one_name_give_way_to_the_applied_one() -> None:
    live = {"ports": [{"port": 1, "name": "x"}, {"port": 1, "name": "y"}, {"port": 2}]}

    merged = merge(live, {"ports": [{"port": 1}]}, SPEC)

    assert merged == {"ports": [{"port": 1}, {"port": 2}]}


@given(specs, specs)
def test_merging_twice_is_merging_once(live: Any, applied: Any) -> None:
    once = merge(live, applied, SPEC)

    assert merge(once, applied, SPEC) == once


@given(specs, specs)
def test_nothing_is_lost(live: Any, applied: Any) -> None:
    merged = compare({}, merge(live, applied, SPEC), SPEC).changed

    assert not owned_fields(applied, SPEC) - merged
    for path in (owned_fields(live, SPEC) - merged).paths():
        assert path[0] == "f:free", "only what has no schema can give way to another type"


@given(specs, specs)
def test_the_inputs_stay_as_they_are(live: Any, applied: Any) -> None:
    before = repr((live, applied))

    merge(live, applied, SPEC)

    assert repr((live, applied)) == before


@pytest.mark.parametrize(
    ("value", "gone", "kept"),
    [
        ({"size": "S", "replicas": 1}, [("f:size",)], {"replicas": 1}),
        ({"inner": {"a": "1", "b": "2"}}, [("f:inner", "f:a")], {"inner": {"b": "2"}}),
        ({"inner": {"a": "1"}}, [("f:inner", "f:a")], {"inner": {}}),
        ({"tags": ["a", "b"]}, [("f:tags", 'v:"a"')], {"tags": ["b"]}),
        ({"selector": {"a": "1"}}, [("f:selector", "f:a")], {"selector": {"a": "1"}}),
        (
            {"ports": [{"port": 1, "name": "x"}, {"port": 2}]},
            [("f:ports", 'k:{"port":1,"protocol":"TCP"}')],
            {"ports": [{"port": 2}]},
        ),
        (
            {"ports": [{"port": 1, "name": "x"}]},
            [("f:ports", 'k:{"port":1,"protocol":"TCP"}', "f:name")],
            {"ports": [{"port": 1}]},
        ),
        ({"size": "S"}, [("f:nowhere",)], {"size": "S"}),
    ],
)
def test_fields_are_taken_out(value: Any, gone: Any, kept: Any) -> None:
    assert remove(value, FieldSet.of(*gone), SPEC) == kept


def test_the_last_to_leave_takes_the_shell_along() -> None:
    mine = FieldSet.of(("f:inner", "f:a"))
    theirs = FieldSet.of(("f:inner", "f:b"))

    assert given_up(mine, FieldSet(), SPEC).owns("f:inner")
    assert not given_up(mine, theirs, SPEC).owns("f:inner")
    assert ("f:inner", "f:a") in given_up(mine, theirs, SPEC)
    assert not given_up(mine, mine | theirs, SPEC)
