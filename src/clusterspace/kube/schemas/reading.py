"""Raw JSON to a Schema: what is no schema at all is refused, with the place named.

Whether a schema is one that a CustomResourceDefinition may have is `structural.py`'s question;
this is the one before it, and Kubernetes answers it when it decodes the definition.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from clusterspace.errors import MalformedSchema
from clusterspace.kube.schemas.model import Schema
from clusterspace.kube.schemas.patterns import compile_pattern

DEEPEST: Final = 100
"""How deep a schema may nest: far deeper than any real one, far from the interpreter's limit."""

_Check = Callable[[Any, str, int], None]


def read_schema(raw: Any, *, place: str = "openAPIV3Schema") -> Schema:
    """Return the Schema of a raw one; raise MalformedSchema, naming the place, if it is none.

    References and unreadable patterns are refused too: nobody could follow or match them later.
    """
    check_shape(raw, place=place)
    _refuse_unusable(cast("Mapping[str, Any]", raw), place)
    return Schema(cast("Mapping[str, Any]", raw))


def check_shape(raw: Any, *, place: str) -> None:
    """Raise MalformedSchema unless every keyword, at every depth, has the type it must have."""
    _check_schema(raw, place, 0)


def _check_schema(raw: Any, place: str, depth: int) -> None:
    if not isinstance(raw, dict):
        raise MalformedSchema(f"{place} must be an object", place=place)
    if depth > DEEPEST:
        raise MalformedSchema(f"{place} is nested more than {DEEPEST} deep", place=place)
    for keyword, value in cast("dict[str, Any]", raw).items():
        check = _KEYWORDS.get(keyword)
        if check is not None and value is not None:
            check(value, f"{place}.{keyword}", depth + 1)


def _of_type(name: str, *types: type) -> _Check:
    def check(value: Any, place: str, _: int) -> None:
        # JSON tells true from 1, Python's isinstance does not.
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise MalformedSchema(f"{place} must be {name}", place=place)

    return check


_check_text: Final = _of_type("a string", str)
_check_flag: Final = _of_type("true or false", bool)
_check_count: Final = _of_type("an integer", int)
_check_number: Final = _of_type("a number", int, float)
_check_list: Final = _of_type("a list", list)
_check_object: Final = _of_type("an object", dict)


def _list_of(check_one: _Check) -> _Check:
    def check(value: Any, place: str, depth: int) -> None:
        _check_list(value, place, depth)
        for index, element in enumerate(value):
            check_one(element, f"{place}[{index}]", depth)

    return check


def _object_of(check_one: _Check) -> _Check:
    def check(value: Any, place: str, depth: int) -> None:
        _check_object(value, place, depth)
        for name, inner in value.items():
            check_one(inner, f"{place}[{name}]", depth)

    return check


def _either(other: type, check_other: _Check) -> _Check:
    """Accept a schema, or something of another type."""

    def check(value: Any, place: str, depth: int) -> None:
        (check_other if isinstance(value, other) else _check_schema)(value, place, depth)

    return check


_KEYWORDS: Final[Mapping[str, _Check]] = {
    **dict.fromkeys(
        (
            "$ref",
            "$schema",
            "description",
            "format",
            "id",
            "pattern",
            "title",
            "type",
            "x-kubernetes-list-type",
            "x-kubernetes-map-type",
        ),
        _check_text,
    ),
    **dict.fromkeys(
        (
            "exclusiveMaximum",
            "exclusiveMinimum",
            "nullable",
            "uniqueItems",
            "x-kubernetes-embedded-resource",
            "x-kubernetes-int-or-string",
            "x-kubernetes-preserve-unknown-fields",
        ),
        _check_flag,
    ),
    **dict.fromkeys(
        ("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"),
        _check_count,
    ),
    **dict.fromkeys(("maximum", "minimum", "multipleOf"), _check_number),
    **dict.fromkeys(("required", "x-kubernetes-list-map-keys"), _list_of(_check_text)),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), _list_of(_check_schema)),
    **dict.fromkeys(("properties", "patternProperties", "definitions"), _object_of(_check_schema)),
    **dict.fromkeys(("additionalItems", "additionalProperties"), _either(bool, _check_flag)),
    "dependencies": _object_of(_either(list, _list_of(_check_text))),
    "enum": _check_list,
    "externalDocs": _check_object,
    "items": _either(list, _list_of(_check_schema)),
    "not": _check_schema,
    "x-kubernetes-validations": _list_of(_check_object),
}


_WITH_NAMED_SCHEMAS: Final = ("properties", "patternProperties", "definitions", "dependencies")
_WITH_SCHEMAS: Final = (
    *_WITH_NAMED_SCHEMAS,
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "items",
    "not",
    "oneOf",
)


def _refuse_unusable(raw: Mapping[str, Any], place: str) -> None:
    if raw.get("$ref") is not None:
        raise MalformedSchema(f"{place}.$ref is not supported", place=f"{place}.$ref")
    if raw.get("pattern"):
        try:
            compile_pattern(raw["pattern"])
        except MalformedSchema as error:
            raise MalformedSchema(str(error), place=f"{place}.pattern") from error
    for keyword, child in subschemas(raw):
        _refuse_unusable(child, f"{place}.{keyword}")


def subschemas(raw: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the schemas directly below a well-shaped one, each with the way to it."""
    found: list[tuple[str, Any]] = []
    for keyword in _WITH_SCHEMAS:
        value = raw.get(keyword)
        if keyword in _WITH_NAMED_SCHEMAS:
            named = cast("Mapping[str, Any]", value or {})
            found += ((f"{keyword}[{name}]", child) for name, child in named.items())
        elif isinstance(value, list):
            listed = cast("list[Any]", value)
            found += ((f"{keyword}[{index}]", child) for index, child in enumerate(listed))
        else:
            found.append((keyword, value))
    return [
        (way, cast("Mapping[str, Any]", child)) for way, child in found if isinstance(child, dict)
    ]
