"""Every cause at once, in the words and the order of a real API server."""

from typing import Any

import pytest
from hypothesis import given
from tests.corpus import load_scenario
from tests.unit.kube.schemas import strategies

from clusterspace.errors import Cause, MalformedObject
from clusterspace.kube.schemas.model import Schema, read_schema
from clusterspace.kube.schemas.validation import still_new, validate

NOT_CHECKED_FURTHER = "some validation rules were not checked"
"""A cause about expression rules, which are no part of a schema's own."""


def spec_schema(**spec: Any) -> Schema:
    return read_schema({"type": "object", "properties": {"spec": spec}})


def causes_of(value: Any, **spec: Any) -> list[tuple[str, str, str]]:
    found = validate({"spec": value}, spec_schema(**spec))
    return [(cause.field, cause.reason, cause.message) for cause in found]


def refusals() -> list[tuple[dict[str, Any], list[Cause]]]:
    """Return the recorded bodies that a real server refused for what the schema says."""
    found: list[tuple[dict[str, Any], list[Cause]]] = []
    for step in load_scenario("apiserver", "crd")["steps"]:
        answer = step.get("response", {}).get("body", {})
        if answer.get("reason") == "Invalid" and "small widgets" not in answer["message"]:
            said = [Cause(**cause) for cause in answer["details"]["causes"]]
            kept = [cause for cause in said if NOT_CHECKED_FURTHER not in cause.message]
            found.append((step["request"]["body"], kept))
    return found


def recorded_schema() -> Schema:
    definition = load_scenario("apiserver", "crd")["steps"][1]["request"]["body"]
    return read_schema(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def test_recorded_refusals_of_a_real_server_are_ours_to_the_letter() -> None:
    recorded = refusals()

    assert len(recorded) == 4
    for body, said in recorded:
        assert list(validate(body, recorded_schema())) == said


def test_what_fits_has_no_causes() -> None:
    assert causes_of({"a": 1}, type="object", properties={"a": {"type": "integer"}}) == []


@pytest.mark.parametrize(
    ("value", "type_name", "got"),
    [
        ("x", "integer", "string"),
        (1.5, "integer", "number"),
        (2**70, "integer", "number"),
        (True, "integer", "boolean"),
        (1, "string", "integer"),
        (1, "boolean", "integer"),
        ({}, "array", "object"),
        ([], "object", "array"),
        (None, "string", "null"),
    ],
)
def test_a_wrong_type_is_named_beside_the_right_one(value, type_name, got) -> None:
    extra = {"items": {"type": "string"}} if type_name == "array" else {}

    assert causes_of(value, type=type_name, **extra) == [
        (
            "spec",
            "FieldValueTypeInvalid",
            f'Invalid value: "{got}": spec in body must be of type {type_name}: "{got}"',
        )
    ]


@pytest.mark.parametrize("value", [3, 3.0, -(2**63)])
def test_whole_numbers_are_integers_however_they_are_written(value) -> None:
    assert causes_of(value, type="integer") == []


def test_null_is_a_value_only_where_it_is_allowed() -> None:
    assert causes_of(None, type="string", nullable=True) == []


def test_int_or_string_takes_both_and_nothing_else() -> None:
    for value in (80, "http"):
        assert causes_of(value, **{"x-kubernetes-int-or-string": True}) == []
    assert causes_of(True, **{"x-kubernetes-int-or-string": True}) == [
        (
            "spec",
            "FieldValueTypeInvalid",
            'Invalid value: "boolean": spec in body must be of type integer,string: "boolean"',
        )
    ]


def test_a_value_of_another_type_where_a_format_is_set_is_told_the_format() -> None:
    [(_, reason, message)] = causes_of(5, type="string", format="date-time")

    assert reason == "FieldValueTypeInvalid"
    assert message == 'Invalid value: "int64": spec in body must be of type date-time: "int64"'


@pytest.mark.parametrize(
    ("rules", "value", "reason", "message"),
    [
        ({"type": "string", "maxLength": 2}, "abc", "FieldValueTooLong",
         "Too long: may not be more than 2 bytes"),
        ({"type": "string", "minLength": 2}, "a", "FieldValueInvalid",
         'Invalid value: "a": spec in body should be at least 2 chars long'),
        ({"type": "string", "pattern": "^a+$"}, "b\n", "FieldValueInvalid",
         "Invalid value: \"b\\n\": spec in body should match '^a+$'"),
        ({"type": "string", "format": "date-time"}, "soon", "FieldValueTypeInvalid",
         'Invalid value: "soon": spec in body must be of type date-time: "soon"'),
        ({"type": "integer", "minimum": 0}, -1, "FieldValueInvalid",
         "Invalid value: -1: spec in body should be greater than or equal to 0"),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, 0, "FieldValueInvalid",
         "Invalid value: 0: spec in body should be greater than 0"),
        ({"type": "number", "maximum": 1.5}, 2, "FieldValueInvalid",
         "Invalid value: 2: spec in body should be less than or equal to 1.5"),
        ({"type": "number", "maximum": 1, "exclusiveMaximum": True}, 1.0, "FieldValueInvalid",
         "Invalid value: 1: spec in body should be less than 1"),
        ({"type": "integer", "multipleOf": 2}, 3, "FieldValueInvalid",
         "Invalid value: 3: spec in body should be a multiple of 2"),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1], "FieldValueInvalid",
         "Invalid value: 1: spec in body should have at least 2 items"),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 1}, [1, 2],
         "FieldValueTooMany", "Too many: 2: must have at most 1 item"),
        ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [1, 1],
         "FieldValueInvalid", "Invalid value: \"\": spec in body shouldn't contain duplicates"),
        ({"type": "object", "minProperties": 1}, {}, "FieldValueInvalid",
         "Invalid value: 0: spec in body should have at least 1 properties"),
        ({"type": "object", "maxProperties": 0}, {"a": 1}, "FieldValueTooMany",
         "Too many: 1: must have at most 0 items"),
        ({"type": "object", "additionalProperties": False}, {"a": 1}, "FieldValueInvalid",
         'Invalid value: "a": spec.a in body is a forbidden property'),
        ({"type": "integer", "enum": [1, 2]}, 3, "FieldValueNotSupported",
         'Unsupported value: 3: supported values: "1", "2"'),
    ],
)  # fmt: skip
def test_each_rule_says_what_it_wanted(rules, value, reason, message) -> None:
    assert causes_of(value, **rules) == [("spec", reason, message)]


def test_a_number_too_wide_for_its_format_is_refused() -> None:
    [(field, _, message)] = causes_of(2**31, type="integer", format="int32")

    assert field == "<nil>"
    assert message == (
        'Invalid value: "": Checked value must be of type integer with format int32 in spec'
    )


def test_true_is_not_one_of_the_numbers_allowed() -> None:
    assert causes_of(True, enum=[1], **{"x-kubernetes-preserve-unknown-fields": True})
    assert not causes_of(1.0, enum=[1], **{"x-kubernetes-preserve-unknown-fields": True})


def test_causes_come_in_the_order_of_field_names_whatever_the_order_sent() -> None:
    properties = {name: {"type": "string"} for name in "abc"}
    wrong = causes_of({"c": 1, "a": 1}, type="object", properties=properties, required=["b"])

    assert [field for field, _, _ in wrong] == ["spec.a", "spec.c", "spec.b"]


def test_places_in_lists_and_maps_are_named() -> None:
    schema = {
        "type": "array",
        "items": {"type": "object", "additionalProperties": {"type": "string"}},
    }

    assert [field for field, _, _ in causes_of([{}, {"k": 1}], **schema)] == ["spec[1].k"]


def test_a_default_is_validated_under_the_name_of_the_default() -> None:
    [cause] = validate({"spec": 1}, spec_schema(type="string"), path="x.default")

    assert cause.field == "x.default.spec"
    assert "spec in body must be of type string" in cause.message


ONE_OR_OTHER = [{"required": ["a"]}, {"required": ["b"]}]
OBJECT = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}


def test_any_of_tells_that_none_held_and_what_the_first_lacked() -> None:
    assert causes_of({}, **OBJECT, anyOf=ONE_OR_OTHER) == [
        (
            "<nil>",
            "FieldValueInvalid",
            'Invalid value: "": "spec" must validate at least one schema (anyOf)',
        ),
        ("spec.a", "FieldValueRequired", "Required value"),
    ]
    assert causes_of({"b": ""}, **OBJECT, anyOf=ONE_OR_OTHER) == []


def test_one_of_tells_how_many_held() -> None:
    neither = causes_of({}, **OBJECT, oneOf=ONE_OR_OTHER)
    both = causes_of({"a": "", "b": ""}, **OBJECT, oneOf=ONE_OR_OTHER)

    assert neither[0][2].endswith("one and only one schema (oneOf). Found none valid")
    assert [message for _, _, message in both] == [
        'Invalid value: "": "spec" must validate one and only one schema (oneOf). '
        "Found 2 valid alternatives"
    ]
    assert causes_of({"a": ""}, **OBJECT, oneOf=ONE_OR_OTHER) == []


def test_all_of_tells_every_part_that_failed() -> None:
    fields = [field for field, _, _ in causes_of({}, **OBJECT, allOf=ONE_OR_OTHER)]
    last = causes_of({"a": ""}, **OBJECT, allOf=ONE_OR_OTHER)[-1][2]

    assert fields == ["spec.a", "spec.b", "<nil>"]
    assert last == 'Invalid value: "": "spec" must validate all the schemas (allOf)'


def test_not_tells_that_the_schema_held() -> None:
    [(_, _, message)] = causes_of({"a": ""}, **OBJECT, **{"not": {"required": ["a"]}})

    assert message == 'Invalid value: "": "spec" must not validate the schema (not)'


SET = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}
MAP = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name", "port"],
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
    },
}


def test_a_third_copy_in_a_set_is_no_news() -> None:
    assert causes_of(["x", "x", "x", "y"], **SET) == [
        ("spec[1]", "FieldValueDuplicate", 'Duplicate value: "x"')
    ]


def test_elements_of_a_map_list_are_told_apart_by_all_their_keys() -> None:
    twice = [{"name": "a", "port": 1}, {"name": "a", "port": 2}, {"name": "a", "port": 1}]

    assert causes_of(twice, **MAP) == [
        ("spec[2]", "FieldValueDuplicate", 'Duplicate value: {"name":"a","port":1}')
    ]


def test_elements_without_keys_are_the_same_element() -> None:
    assert causes_of([{}, {}], **MAP) == [("spec[1]", "FieldValueDuplicate", "Duplicate value: {}")]


def test_duplicates_in_maps_name_their_key_in_brackets() -> None:
    found = causes_of({"k": ["x", "x"]}, type="object", additionalProperties=SET)

    assert [field for field, _, _ in found] == ["spec[k][1]"]


def test_duplicates_come_after_everything_else() -> None:
    properties = {"a": SET, "b": {"type": "string"}}
    found = causes_of({"a": ["x", "x"], "b": 1}, type="object", properties=properties)

    assert [field for field, _, _ in found] == ["spec.b", "spec.a[1]"]


def test_an_object_deeper_than_we_can_follow_is_refused_by_name() -> None:
    raw: dict[str, Any] = {"type": "object", "properties": {}}
    raw["properties"]["a"] = raw
    value: Any = {}
    for _ in range(5000):
        value = {"a": value}

    with pytest.raises(MalformedObject, match="nested too deeply"):
        validate(value, Schema(raw))


@given(strategies.schemas, strategies.json_values)
def test_any_json_against_any_schema_yields_causes_and_nothing_else(raw, value) -> None:
    causes = validate(value, read_schema(raw))

    assert all(cause.reason.startswith("FieldValue") and cause.message for cause in causes)
    assert all(cause.field for cause in causes)


SHORT = {"type": "string", "maxLength": 2}
SCHEMA = Schema(
    {
        "type": "object",
        "properties": {
            "text": SHORT,
            "object": {
                "type": "object",
                "required": ["needed"],
                "properties": {"needed": SHORT, "other": SHORT},
            },
            "list": {"type": "array", "items": SHORT},
            "map": {"type": "object", "additionalProperties": SHORT},
            "keyed": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["key"],
                "items": {"type": "object", "properties": {"key": SHORT, "value": SHORT}},
            },
        },
    }
)
OLD = {
    "text": "long",
    "object": {"other": "a"},
    "list": ["long"],
    "map": {"a": "long"},
    "keyed": [{"key": "a", "value": "long"}, {"key": "b"}],
}


def _fields(**changes):
    new = {**OLD, **changes}
    return sorted(cause.field for cause in still_new(validate(new, SCHEMA), new, OLD, SCHEMA))


def test_what_was_wrong_before_and_stays_is_let_be():
    assert _fields() == []
    assert _fields(added="x") == []


def test_what_is_changed_must_be_right():
    assert _fields(text="longer") == ["text"]
    assert _fields(map={"a": "long", "b": "longer"}) == ["map.b"]


def test_what_is_missing_is_the_fault_of_who_touches_the_object_around_it():
    assert _fields(object={"other": "b"}) == ["object.needed"]


def test_a_list_without_keys_is_compared_as_one():
    assert _fields(list=["long", "ok"]) == ["list[0]"]


def test_elements_with_keys_are_found_again_wherever_they_are():
    assert _fields(keyed=[{"key": "b", "value": "ok"}, {"key": "a", "value": "long"}]) == []
    assert _fields(keyed=[{"key": "a", "value": "longer"}]) == ["keyed[0].value"]
