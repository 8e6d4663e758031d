"""What is no schema at all is refused, and the refusal names the place."""

import pytest
from hypothesis import given, settings
from tests.unit.kube.schemas import strategies

from clusterspace.errors import MalformedSchema
from clusterspace.kube.schemas.pruning import apply_defaults, prune
from clusterspace.kube.schemas.reading import DEEPEST, read_schema
from clusterspace.kube.schemas.structural import check_structural
from clusterspace.kube.schemas.validation import validate


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
@settings(max_examples=500)
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
