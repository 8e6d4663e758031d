from clusterspace.kube.schemas.model import Schema
from clusterspace.kube.schemas.validation import still_new, validate

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
