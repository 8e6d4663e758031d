"""What changed between two states, in Kubernetes' terms."""

from typing import Any

import pytest
from hypothesis import given
from tests.unit.kube.managed_fields.gadgets import SCHEMA, gadget, json_values, specs

from clusterspace.kube.managed_fields.comparison import compare, same
from clusterspace.kube.schemas.model import ANYTHING

SPEC = SCHEMA.properties["spec"]


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
