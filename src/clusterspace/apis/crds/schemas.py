"""Fields in our notation to schemas."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from clusterspace.apis.crds.notation import FieldLine
from clusterspace.kube.objects import Object

Types = Mapping[str, tuple[FieldLine, ...]]

_QUANTITY: Final[Object] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]"
    r"|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
    "x-kubernetes-int-or-string": True,
}
_PLAIN: Final[Mapping[str, Object]] = {
    "s": {"type": "string"},
    "i": {"type": "integer"},
    "b": {"type": "boolean"},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
    "int-or-string": {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    },
    "quantity": _QUANTITY,
}
_NUMBERS: Final = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
_TEXTS: Final = ("format", "pattern")
_ON_LISTS: Final = ("minItems", "maxItems", "list")


def schema_of(fields: Sequence[FieldLine], types: Types) -> Object:
    """Return the schema of an object with these fields."""
    properties = {field.name: _field_schema(field, types) for field in fields}
    required = [field.name for field in fields if field.is_required]
    schema: Object = {"type": "object"}
    if properties:
        schema["properties"] = properties
    return {**schema, "required": required} if required else schema


def rules_of(rules: Sequence[str]) -> Object:
    """Return the rules as a schema has them; nothing when there are none."""
    return {"x-kubernetes-validations": [{"rule": rule} for rule in rules]} if rules else {}


def _field_schema(field: FieldLine, types: Types) -> Object:
    """Return the schema of a field; what is said of a list is said of the list or its elements."""
    is_list = field.type.startswith("[]")
    is_map = field.type.startswith("map[")
    inner = field.type.removeprefix("[]").removeprefix("map[").removesuffix("]")
    held = _type_schema(inner, field, types)
    if not is_list:
        facts = {**_facts(field.facts, inner), **rules_of(field.rules)}
        if is_map:
            return {"type": "object", "additionalProperties": held, **facts}
        return {**held, **facts}
    own = {name: value for name, value in field.facts.items() if name in _ON_LISTS}
    below = {name: value for name, value in field.facts.items() if name not in _ON_LISTS}
    element = {**held, **_facts(below, inner)}
    return {"type": "array", "items": element, **_facts(own, inner), **rules_of(field.rules)}


def _type_schema(name: str, field: FieldLine, types: Types) -> Object:
    if name in _PLAIN:
        return _PLAIN[name]
    return schema_of(field.fields if name == "{}" else types[name], types)


def _facts(facts: Mapping[str, str], type_name: str) -> Object:
    schema: Object = {}
    for name, value in facts.items():
        schema |= _fact(name, value, type_name)
    return schema


def _fact(name: str, value: str, type_name: str) -> Object:
    match name:
        case "enum":
            return {"enum": value.split(",")}
        case "default":
            return {"default": _value(value, type_name)}
        case "list":
            list_type, _, key = value.partition(":")
            keys = {"x-kubernetes-list-map-keys": [key]} if key else {}
            return {"x-kubernetes-list-type": list_type, **keys}
        case "map":
            return {"x-kubernetes-map-type": value}
        case "preserve-unknown":
            return {"x-kubernetes-preserve-unknown-fields": True}
        case "embedded":
            return {"x-kubernetes-embedded-resource": True}
        case _ if name in _NUMBERS:
            return {name: int(value)}
        case _ if name in _TEXTS:
            return {name: value}
        case _:
            raise ValueError(f"{name!r} says nothing about a field that we know of")


def _value(text: str, type_name: str) -> Any:
    if type_name == "i":
        return int(text)
    return text == "true" if type_name == "b" else text
