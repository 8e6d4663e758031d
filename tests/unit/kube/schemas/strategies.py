"""Arbitrary JSON, arbitrary structural schemas, and objects that nearly fit them."""

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "spec", "metadata", "kind", "x.y"])

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
)


def _grown(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(children, max_size=4) | st.dictionaries(NAMES, children, max_size=4)


json_values = st.recursive(scalars, _grown, max_leaves=12)

_ANY_RULES: dict[str, st.SearchStrategy[Any]] = {
    "nullable": st.booleans(),
    "enum": st.lists(json_values, min_size=1, max_size=3),
    "default": json_values,
}
_RULES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "string": {
        "minLength": st.integers(0, 3),
        "maxLength": st.integers(0, 5),
        "pattern": st.sampled_from(["^[a-z]+$", "[[:digit:]]", r"\p{Lu}", ""]),
        "format": st.sampled_from(["date-time", "ipv4", "uuid", "duration", "nonsense"]),
    },
    "integer": {
        "minimum": st.integers(-3, 3),
        "maximum": st.integers(),
        "exclusiveMinimum": st.booleans(),
        "multipleOf": st.integers(-1, 4),
        "format": st.sampled_from(["int32", "int64", "other"]),
    },
    "number": {
        "maximum": st.floats(-5, 5),
        "multipleOf": st.floats(0, 4),
        "format": st.sampled_from(["float", "double"]),
    },
    "boolean": {},
    "array": {
        "minItems": st.integers(0, 2),
        "maxItems": st.integers(0, 3),
        "uniqueItems": st.booleans(),
        "x-kubernetes-list-type": st.sampled_from(["atomic", "set", "map"]),
        "x-kubernetes-list-map-keys": st.lists(NAMES, max_size=2),
    },
    "object": {
        "minProperties": st.integers(0, 2),
        "maxProperties": st.integers(0, 3),
        "required": st.lists(NAMES, max_size=2),
        "x-kubernetes-preserve-unknown-fields": st.just(True),
        "x-kubernetes-embedded-resource": st.booleans(),
    },
}


@st.composite
def _leaf(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from([*_RULES, "int-or-string", "anything"]))
    rules = draw(st.fixed_dictionaries({}, optional=_ANY_RULES | _RULES.get(kind, {})))
    match kind:
        case "int-or-string":
            return {**rules, "x-kubernetes-int-or-string": True}
        case "anything":
            return {**rules, "x-kubernetes-preserve-unknown-fields": True}
        case "array":
            return {**rules, "type": kind, "items": {"type": "string"}}
        case _:
            return {**rules, "type": kind}


@st.composite
def _branch(draw: st.DrawFn, children: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    held = draw(_leaf())
    if held.get("type") == "array":
        held["items"] = draw(children)
    if held.get("type") == "object":
        if draw(st.booleans()):
            held["properties"] = draw(st.dictionaries(NAMES, children, max_size=4))
        else:
            held["additionalProperties"] = draw(children | st.booleans())
    junctor = draw(st.sampled_from(["allOf", "anyOf", "oneOf", "not", None, None]))
    if junctor == "not":
        held["not"] = draw(children)
    elif junctor:
        held[junctor] = draw(st.lists(children, max_size=3))
    return held


schemas = st.recursive(_leaf(), _branch, max_leaves=8)
"""Raw schemas that are well-formed; most are structural."""

_KEYWORDS = st.sampled_from(
    sorted(
        {keyword for rules in _RULES.values() for keyword in rules}
        | _ANY_RULES.keys()
        | {"type", "properties", "items", "additionalProperties", "allOf", "not", "$ref"}
        | {"dependencies", "definitions", "x-kubernetes-map-type", "x-kubernetes-validations"}
    )
)
anything_as_schema = st.recursive(
    json_values,
    lambda children: (
        st.dictionaries(_KEYWORDS, children, max_size=5)
        | st.lists(children, max_size=3)
        | st.dictionaries(NAMES, children, max_size=3)
    ),
    max_leaves=15,
)
"""Raw JSON with a schema's keywords in it, mostly in the wrong places."""
