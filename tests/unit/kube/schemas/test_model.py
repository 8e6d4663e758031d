"""A Schema says what its raw form says, with Kubernetes' meaning of what it leaves out; a walk
visits every value that has a schema, parents first; what is no schema at all is refused, and the
refusal names the place.
"""

import pytest
from hypothesis import given
from tests.unit.kube.schemas import strategies

from clusterspace.errors import MalformedSchema
from clusterspace.kube.causes import field_text
from clusterspace.kube.schemas.model import (
    ANYTHING,
    DEEPEST,
    NOTHING,
    Schema,
    holds_objects,
    places,
    read_schema,
)
from clusterspace.kube.schemas.pruning import apply_defaults, prune
from clusterspace.kube.schemas.structural import check_structural
from clusterspace.kube.schemas.validation import validate


def test_a_list_that_says_nothing_of_its_type_is_atomic() -> None:
    assert Schema({"type": "array"}).list_type == "atomic"


def test_a_null_default_is_no_default() -> None:
    assert not Schema({"default": None}).has_default
    assert Schema({"default": False}).has_default


def test_a_keyword_with_a_null_value_counts_as_left_out() -> None:
    schema = Schema({"type": None, "properties": None, "items": None, "required": None})

    assert (schema.type, schema.properties, schema.items) == ("", {}, None)
    assert schema.required == frozenset()


def test_fields_are_found_by_name_and_else_as_free_keys() -> None:
    schema = Schema({"properties": {"a": {"type": "string"}}, "additionalProperties": True})

    named, free = schema.field("a"), schema.field("b")

    assert named is not None
    assert named.type == "string"
    assert free is ANYTHING
    assert NOTHING.field("a") is None


def test_only_fields_with_defaults_are_defaulted() -> None:
    schema = Schema({"properties": {"a": {"default": 1}, "b": {}}})

    assert list(schema.defaulted) == ["a"]


def test_junctors_are_schemas_too() -> None:
    schema = Schema({"anyOf": [{"type": "string"}], "not": {"enum": [1]}, "allOf": [{}, {}]})

    assert [part.type for part in schema.any_of] == ["string"]
    assert (len(schema.all_of), len(schema.one_of)) == (2, 0)
    assert schema.negated is not None


def test_what_stands_beside_a_reference_describes_this_place_only() -> None:
    target = Schema({"type": "object", "x-kubernetes-map-type": "atomic"})
    schema = Schema(
        {"properties": {"a": {"$ref": "#/defs/T", "x-kubernetes-map-type": "granular"}}},
        lambda name: target,
    )

    held = schema.properties["a"]

    assert (held.type, held.map_is_atomic, target.map_is_atomic) == ("object", False, True)


def test_a_reference_without_definitions_is_a_lookup_error() -> None:
    with pytest.raises(LookupError, match="T"):
        _ = Schema({"properties": {"a": {"$ref": "#/defs/T"}}}).properties


SCHEMA = read_schema(
    {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": {"type": "integer"}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
)


def test_every_known_place_is_visited_in_the_order_of_the_object() -> None:
    value = {"map": {"k": "v"}, "unknown": {"x": 1}, "list": [1, 2]}

    visited = [(field_text(place.steps), place.value) for place in places(value, SCHEMA)]

    assert visited == [
        ("<nil>", value),
        ("map", {"k": "v"}),
        ("map[k]", "v"),
        ("list", [1, 2]),
        ("list[0]", 1),
        ("list[1]", 2),
    ]


def test_each_place_comes_with_its_own_schema() -> None:
    types = [place.schema.type for place in places({"list": [1]}, SCHEMA)]

    assert types == ["object", "array", "integer"]


def test_only_what_leads_to_whole_objects_is_visited_when_nothing_else_matters() -> None:
    whole = {"type": "object", "x-kubernetes-embedded-resource": True}
    schema = read_schema(
        {
            "type": "object",
            "properties": {
                "free": {"type": "object", "additionalProperties": whole},
                "list": {"type": "array", "items": whole},
                "plain": {"type": "object", "properties": {"text": {"type": "string"}}},
                "words": {"type": "array", "items": {"type": "string"}},
            },
        }
    )
    pod = {"kind": "Pod"}
    value = {"plain": {"text": "x"}, "list": [pod], "words": ["x"], "free": {"k": pod}}

    visited = [field_text(place.steps) for place in places(value, schema, holds_objects)]

    assert visited == ["<nil>", "list", "list[0]", "free", "free[k]"]
    assert list(places(value, SCHEMA, holds_objects)) == []


# Reading.


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (5, "openAPIV3Schema"),
        ({"type": ["string", "null"]}, "openAPIV3Schema.type"),
        ({"properties": []}, "openAPIV3Schema.properties"),
        ({"properties": {"a": {"items": 1}}}, "openAPIV3Schema.properties[a].items"),
        ({"allOf": [{}, {"required": "a"}]}, "openAPIV3Schema.allOf[1].required"),
        ({"required": ["a", 1]}, "openAPIV3Schema.required[1]"),
        ({"maxLength": True}, "openAPIV3Schema.maxLength"),
        ({"minimum": "1"}, "openAPIV3Schema.minimum"),
        ({"additionalProperties": "no"}, "openAPIV3Schema.additionalProperties"),
        ({"items": {"$ref": "#/x"}}, "openAPIV3Schema.items.$ref"),
        ({"not": {"pattern": "a(?=b)"}}, "openAPIV3Schema.not.pattern"),
    ],
)
def test_the_refusal_names_the_place(raw, place) -> None:
    with pytest.raises(MalformedSchema) as refused:
        read_schema(raw)

    assert refused.value.place == place


def test_a_schema_without_end_is_refused() -> None:
    raw = {"type": "string"}
    for _ in range(DEEPEST + 1):
        raw = {"items": raw}

    with pytest.raises(MalformedSchema, match="nested more than"):
        read_schema(raw)


def test_a_keyword_given_as_null_counts_as_left_out() -> None:
    assert read_schema({"type": None, "items": None}).type == ""


def test_unknown_keywords_are_nobodys_business() -> None:
    assert read_schema({"type": "object", "x-vendor": 5}).type == "object"


@given(strategies.anything_as_schema, strategies.json_values)
def test_nothing_but_a_typed_refusal_escapes_a_malformed_schema(raw, value) -> None:
    try:
        schema = read_schema(raw)
        check_structural(raw)
    except MalformedSchema as refused:
        assert refused.place.startswith(("openAPIV3Schema", "spec.validation"))  # noqa: PT017
        return
    pruned = prune(value, schema, is_resource_root=True).value
    filled = apply_defaults(pruned, schema)
    assert all(cause.field for cause in validate(filled, schema))
    assert apply_defaults(filled, schema) == filled
