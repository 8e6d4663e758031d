"""List elements are named by their keys, and every kind has metadata with known types."""

import pytest

from clusterspace.errors import MalformedObject
from clusterspace.kube.managed_fields.typed_values import item_element, object_schema
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
