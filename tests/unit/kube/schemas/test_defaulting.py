"""What an object leaves out is filled in, and nothing else changes."""

from typing import Any

import pytest
from hypothesis import given
from tests.unit.kube.schemas import strategies

from clusterspace.errors import MalformedObject
from clusterspace.kube.schemas.model import Schema, read_schema
from clusterspace.kube.schemas.pruning import apply_defaults


def object_schema(**properties: Any) -> Schema:
    return read_schema({"type": "object", "properties": properties})


def test_a_missing_field_is_filled_in() -> None:
    schema = object_schema(replicas={"type": "integer", "default": 1})

    assert apply_defaults({}, schema) == {"replicas": 1}


def test_a_given_field_stays() -> None:
    schema = object_schema(replicas={"type": "integer", "default": 1})
    given = {"replicas": 0}

    assert apply_defaults(given, schema) is given


def test_the_object_given_is_never_edited() -> None:
    schema = object_schema(a=object_schema(b={"type": "integer", "default": 1}).raw)
    given: dict[str, Any] = {"a": {}, "c": []}

    filled = apply_defaults(given, schema)

    assert given == {"a": {}, "c": []}
    assert filled == {"a": {"b": 1}, "c": []}
    assert filled["c"] is given["c"]


def test_a_default_below_a_missing_parent_does_not_make_the_parent() -> None:
    schema = object_schema(a=object_schema(b={"type": "integer", "default": 1}).raw)

    assert apply_defaults({}, schema) == {}


def test_a_default_below_a_parent_that_is_itself_a_default_counts() -> None:
    inner = {**object_schema(b={"type": "integer", "default": 1}).raw, "default": {}}

    assert apply_defaults({}, object_schema(a=inner)) == {"a": {"b": 1}}


def test_defaults_reach_into_lists_and_maps() -> None:
    element = object_schema(protocol={"type": "string", "default": "TCP"}).raw
    schema = object_schema(
        ports={"type": "array", "items": element},
        named={"type": "object", "additionalProperties": element},
    )

    filled = apply_defaults({"ports": [{}], "named": {"web": {}}}, schema)

    assert filled == {"ports": [{"protocol": "TCP"}], "named": {"web": {"protocol": "TCP"}}}


def test_a_null_that_is_not_allowed_gives_way_to_the_default() -> None:
    schema = object_schema(a={"type": "string", "default": "x"})

    assert apply_defaults({"a": None}, schema) == {"a": "x"}


def test_a_null_that_is_not_allowed_and_has_no_default_goes() -> None:
    schema = object_schema(a={"type": "string"}, b={"type": "string"})

    assert apply_defaults({"a": None, "b": ""}, schema) == {"b": ""}


def test_a_null_that_is_allowed_stays_even_beside_a_default() -> None:
    schema = object_schema(a={"type": "string", "nullable": True, "default": "x"})
    given = {"a": None}

    assert apply_defaults(given, schema) is given


def test_a_null_in_a_list_or_in_an_unknown_field_stays() -> None:
    schema = object_schema(a={"type": "array", "items": {"type": "string"}})
    given = {"a": [None], "unknown": None}

    assert apply_defaults(given, schema) is given


def test_an_object_deeper_than_we_can_follow_is_refused_by_name() -> None:
    raw: dict[str, Any] = {"type": "array"}
    raw["items"] = raw
    value: Any = []
    for _ in range(5000):
        value = [value]

    with pytest.raises(MalformedObject, match="nested too deeply"):
        apply_defaults(value, Schema(raw))


@given(strategies.schemas, strategies.json_values)
def test_defaulting_twice_changes_nothing_more(raw, value) -> None:
    schema = read_schema(raw)
    once = apply_defaults(value, schema)

    assert apply_defaults(once, schema) == once
