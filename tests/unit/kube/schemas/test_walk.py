"""A walk visits every value that has a schema, parents first, and says how to get there."""

from clusterspace.kube.field_paths import field_text
from clusterspace.kube.schemas.model import holds_objects, places
from clusterspace.kube.schemas.reading import read_schema

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
