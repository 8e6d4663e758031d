"""A definition's schema is held to Kubernetes' rules, and told in its words what breaks them."""

from typing import Any

import pytest
from hypothesis import given
from tests.corpus import load_scenario
from tests.unit.kube.schemas import strategies

from clusterspace.errors import MalformedSchema
from clusterspace.kube.schemas.structural import check_structural

TEXT = {"type": "string"}


def broken(raw: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the place and the message of each rule that is broken."""
    return [(cause.field, cause.message) for cause in check_structural(raw, path="s")]


def broken_in(**spec: Any) -> list[tuple[str, str]]:
    return broken({"type": "object", "properties": {"spec": spec}})


SPEC = "s.properties[spec]"


def test_a_recorded_definition_that_a_real_server_took_breaks_no_rule() -> None:
    definition = load_scenario("apiserver", "crd")["steps"][1]["request"]["body"]
    [version] = definition["spec"]["versions"]

    assert check_structural(version["schema"]["openAPIV3Schema"]) == ()


def test_the_path_is_the_one_kubernetes_gives() -> None:
    [cause] = check_structural({"type": "object", "properties": {"spec": {}}})

    assert cause.field == "spec.validation.openAPIV3Schema.properties[spec].type"
    assert cause.reason == "FieldValueRequired"


def test_what_is_no_schema_at_all_is_malformed() -> None:
    with pytest.raises(MalformedSchema, match=r"s\.properties must be an object"):
        check_structural({"properties": 1}, path="s")


@pytest.mark.parametrize(
    ("raw", "place", "message"),
    [
        ({}, "s.type", "Required value: must not be empty at the root"),
        ({"type": "string"}, "s.type", 'Invalid value: "string": must be object at the root'),
        (
            {"type": "object", "nullable": True},
            "s.nullable",
            "Forbidden: nullable cannot be true at the root",
        ),
        (
            {"type": "object", "additionalProperties": TEXT},
            "s.additionalProperties",
            "Forbidden: must not be used at the root",
        ),
        (
            {"type": "object", "properties": {"kind": {"type": "object"}}},
            "s.properties[kind].type",
            'Invalid value: "object": must be string',
        ),
        (
            {
                "type": "object",
                "properties": {"metadata": {"type": "object", "properties": {"labels": {}}}},
            },
            "s.properties[metadata]",
            "Forbidden: must not specify anything other than name and generateName, "
            "but metadata is implicitly specified",
        ),
        (
            {
                "type": "object",
                "properties": {"metadata": {"type": "object", "default": {"name": "x"}}},
            },
            "s.properties[metadata].default",
            "Forbidden: must not be set in top-level metadata",
        ),
        (
            {"type": "object", "anyOf": [{"properties": {"spec": {}}}]},
            "s.properties[spec]",
            "Required value: because it is defined in s.anyOf[0].properties[spec]",
        ),
        (
            {"type": "object", "$schema": "http://json-schema.org/"},
            "s",
            "Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported",
        ),
    ],
)
def test_the_root_has_rules_of_its_own(raw, place, message) -> None:
    assert (place, message) in broken(raw)


def test_metadata_may_restrict_names() -> None:
    metadata = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 10}}}

    assert broken({"type": "object", "properties": {"metadata": metadata}}) == []


@pytest.mark.parametrize(
    ("spec", "place", "message"),
    [
        ({}, ".type", "Required value: must not be empty for specified object fields"),
        (
            {"type": "array", "items": {}},
            ".items.type",
            "Required value: must not be empty for specified array items",
        ),
        ({"type": "array"}, ".items", "Required value: must be specified"),
        (
            {"type": "text"},
            ".type",
            'Unsupported value: "text": supported values: "array", "boolean", "integer", '
            '"number", "object", "string"',
        ),
        (
            {"type": "null"},
            ".type",
            "Forbidden: type cannot be set to null, use nullable as an alternative",
        ),
        ({"$ref": "#/x"}, ".$ref", "Forbidden: $ref is not supported"),
        (
            {"type": "array", "items": [TEXT]},
            ".items",
            "Forbidden: items must be a schema object and not an array",
        ),
        (
            {"type": "array", "items": TEXT, "uniqueItems": True},
            ".uniqueItems",
            "Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes "
            "quadratic",
        ),
        (
            {"type": "object", "properties": {"a": TEXT}, "additionalProperties": TEXT},
            ".additionalProperties",
            "Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
            ".x-kubernetes-preserve-unknown-fields",
            "Invalid value: false: must be true or undefined",
        ),
        (
            {"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True},
            ".x-kubernetes-preserve-unknown-fields",
            "Invalid value: true: must be false if x-kubernetes-int-or-string is true",
        ),
        (
            {"type": "string", "x-kubernetes-embedded-resource": True},
            ".type",
            'Invalid value: "string": must be object if x-kubernetes-embedded-resource is true',
        ),
        (
            {"type": "object", "x-kubernetes-embedded-resource": True},
            ".properties",
            "Required value: must not be empty if x-kubernetes-embedded-resource is true "
            "without x-kubernetes-preserve-unknown-fields",
        ),
        (
            {"type": "string", "x-kubernetes-map-type": "atomic"},
            ".type",
            'Invalid value: "string": must be object if x-kubernetes-map-type is specified',
        ),
        (
            {"type": "object", "x-kubernetes-map-type": "x"},
            ".x-kubernetes-map-type",
            'Unsupported value: "x": supported values: "atomic", "granular"',
        ),
        (
            {"type": "object", "x-kubernetes-list-type": "set"},
            ".type",
            'Invalid value: "object": must be array if x-kubernetes-list-type is specified',
        ),
        (
            {"type": "string", "allOf": [{"type": "string"}]},
            ".allOf[0].type",
            "Forbidden: must be empty to be structural",
        ),
        (
            {"type": "string", "not": {"default": "x"}},
            ".not.default",
            "Forbidden: must be undefined to be structural",
        ),
        (
            {"type": "object", "oneOf": [{"properties": {"metadata": {}}}]},
            ".oneOf[0].properties[metadata]",
            "Forbidden: must not be specified in a nested context",
        ),
        (
            {"type": "integer", "default": "x"},
            ".default",
            'Invalid value: "string":  in body must be of type integer: "string"',
        ),
        (
            {"type": "object", "properties": {"a": TEXT}, "default": {"b": 1}},
            ".default",
            'Invalid value: {"b":1}: must not have unknown fields',
        ),
    ],
)
def test_every_field_has_rules(spec, place, message) -> None:
    assert (SPEC + place, message) in broken_in(**spec)


def test_an_unreadable_pattern_is_refused() -> None:
    [(place, message)] = broken_in(type="string", pattern="a(?=b)")

    assert place == f"{SPEC}.pattern"
    assert message.startswith('Invalid value: "a(?=b)": must be a valid regular expression')


def test_types_under_junctors_are_how_int_or_string_is_written() -> None:
    both = [{"type": "integer"}, {"type": "string"}]

    assert broken_in(anyOf=both, **{"x-kubernetes-int-or-string": True}) == []
    assert (
        broken_in(allOf=[{"anyOf": both}, {"maxLength": 3}], **{"x-kubernetes-int-or-string": True})
        == []
    )


def map_list(*keys: str, **items: Any) -> dict[str, Any]:
    return {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(keys),
        "items": {"type": "object", "properties": {"name": TEXT}, "required": ["name"], **items},
    }


def test_a_map_list_with_required_keys_is_right() -> None:
    assert broken_in(**map_list("name")) == []


@pytest.mark.parametrize(
    ("spec", "place", "message"),
    [
        (
            map_list(),
            ".x-kubernetes-list-map-keys",
            "Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            map_list("other"),
            ".x-kubernetes-list-map-keys",
            'Invalid value: ["other"]: entries must all be names of item properties',
        ),
        (
            map_list("name", "name"),
            ".x-kubernetes-list-map-keys",
            'Invalid value: ["name","name"]: must not contain duplicate entries',
        ),
        (
            map_list("name", required=[]),
            ".items.properties[name].default",
            "Required value: this property is in x-kubernetes-list-map-keys, so it must have a "
            "default or be a required property",
        ),
        (
            map_list("name", properties={"name": {**TEXT, "nullable": True}}),
            ".items.properties[name].nullable",
            "Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
        ),
        (
            map_list("name", properties={"name": {"type": "object"}}),
            ".items.properties[name].type",
            'Invalid value: "object": must be a scalar type if parent array\'s '
            "x-kubernetes-list-type is map",
        ),
        (
            map_list("name", nullable=True),
            ".items.nullable",
            "Forbidden: cannot be nullable when x-kubernetes-list-type is map",
        ),
        (
            {**map_list("name"), "items": TEXT},
            ".items.type",
            'Invalid value: "string": must be object if parent array\'s x-kubernetes-list-type '
            "is map",
        ),
        (
            {**map_list("name"), "x-kubernetes-list-type": "set"},
            ".x-kubernetes-list-type",
            'Invalid value: "set": must be map if x-kubernetes-list-map-keys is non-empty',
        ),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "set",
                "items": {"type": "object", "properties": {"a": TEXT}},
            },
            ".items.x-kubernetes-map-type",
            "Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ),
    ],
)
def test_lists_must_be_able_to_tell_their_elements_apart(spec, place, message) -> None:
    assert (SPEC + place, message) in broken_in(**spec)


def test_every_broken_rule_is_told_at_once_in_the_order_of_places() -> None:
    places = [place for place, _ in broken_in(type="object", properties={"b": {}, "a": {}})]

    assert places == [f"{SPEC}.properties[a].type", f"{SPEC}.properties[b].type"]


@given(strategies.schemas)
def test_any_well_shaped_schema_is_judged(raw) -> None:
    for cause in check_structural({"type": "object", "properties": {"spec": raw}}):
        assert cause.field.startswith("spec.validation.openAPIV3Schema")
        assert cause.message
