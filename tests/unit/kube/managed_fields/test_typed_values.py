"""List elements are named by their keys, every kind has metadata with known types, and an applied
configuration speaks of exactly the fields Kubernetes says it does.
"""

from typing import Any

import pytest
from hypothesis import given
from tests.unit.kube.managed_fields.gadgets import SCHEMA, specs

from clusterspace.errors import MalformedObject
from clusterspace.kube.managed_fields.comparison import compare
from clusterspace.kube.managed_fields.field_sets import FieldSet
from clusterspace.kube.managed_fields.typed_values import (
    fitted,
    item_element,
    object_schema,
    owned_fields,
    with_named_fields,
)
from clusterspace.kube.schemas.model import ANYTHING, Schema

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


SPEC = SCHEMA.properties["spec"]


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
