"""Merging keeps what is live, sets what is applied, and puts lists in Kubernetes' order."""

from typing import Any

import pytest
from hypothesis import given
from tests.unit.kube.managed_fields.gadgets import SCHEMA, specs

from clusterspace.kube.managed_fields.comparison import compare
from clusterspace.kube.managed_fields.merging import merge
from clusterspace.kube.managed_fields.typed_values import owned_fields

SPEC = SCHEMA.properties["spec"]


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
