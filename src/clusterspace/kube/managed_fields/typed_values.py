"""Typed values: a value and its schema say which fields it has, and who can own them.

A value is owned whole, or granular: in pieces that have path elements of their own. Without a
schema, objects are granular and lists are owned whole.
"""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any, Final, cast

from clusterspace.errors import MalformedObject
from clusterspace.kube.managed_fields.field_sets import (
    FIELD,
    OWNED,
    Fields,
    FieldSet,
    in_order,
    key_element,
    owned_with,
    value_element,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.model import ANYTHING, OBJECT_META, Schema

_TEXT: Final = Schema({"type": "string"})


class _ObjectSchema(Schema):
    """A schema with the fields every object has, whatever a custom schema says of them."""

    def __init__(self, kind_schema: Schema) -> None:
        super().__init__(kind_schema.raw)
        self._kind_schema = kind_schema

    @cached_property
    def properties(self) -> Mapping[str, Schema]:
        """The kind's own fields, and those of every object."""
        own = self._kind_schema.properties
        return {**own, "apiVersion": _TEXT, "kind": _TEXT, "metadata": OBJECT_META}

    @cached_property
    def additional(self) -> Schema | None:
        """Whatever the kind says."""
        return self._kind_schema.additional


@lru_cache(maxsize=1024)
def object_schema(kind_schema: Schema) -> Schema:
    """Return the schema of a whole object, its metadata included."""
    return _ObjectSchema(kind_schema)


def field_schema(schema: Schema, name: str) -> Schema:
    """Return the schema of one field; of anything when it is not known."""
    return schema.field(name) or ANYTHING


def item_schema(schema: Schema) -> Schema:
    """Return the schema of the elements of a list."""
    return schema.items or ANYTHING


def is_granular_map(value: Any, schema: Schema) -> bool:
    """Return whether the value is an object whose fields have owners of their own."""
    return isinstance(value, dict) and not schema.map_is_atomic


def is_granular_list(value: Any, schema: Schema) -> bool:
    """Return whether the value is a list whose elements have owners of their own."""
    return isinstance(value, list) and schema.list_type != "atomic"


def item_element(item: Any, list_schema: Schema) -> str:
    """Return the path element that names an element of a granular list."""
    if list_schema.list_type != "map":
        if isinstance(item, dict):
            raise MalformedObject("associative list without keys has an element that's a map type")
        if isinstance(item, list):
            raise MalformedObject("not supported: associative list with lists as elements")
        if item is None:
            raise MalformedObject(
                "associative list without keys has an element that's an explicit null"
            )
        return value_element(item)

    if not isinstance(item, dict):
        elements = "a null element" if item is None else "non-map elements"
        raise MalformedObject(f"associative list with keys may not have {elements}")
    keys: dict[str, Any] = {}
    for name in list_schema.list_map_keys:
        if name in item:
            keys[name] = cast("Object", item)[name]
        # A key that was left out counts with its default, if it has one.
        elif (default := field_schema(item_schema(list_schema), name).default) is not None:
            keys[name] = default
    if not keys:
        named = " ".join(f'"{name}"' for name in list_schema.list_map_keys)
        raise MalformedObject(
            f"associative list with keys has an element that omits all key fields [{named}]"
            " (and doesn't have default values for any key fields)"
        )
    return key_element(keys)


def owned_fields(configuration: Object, schema: Schema) -> FieldSet:
    """Return the fields of a configuration that fits its schema: those its applier will own.

    A field with a name of its own is owned by its parts; a key of a free map, or an element of a
    list, is also owned itself: that is what lets an applier take it away again whole. Applying
    `spec: {ports: [80]}` owns `.spec.ports[=80]`, and neither `.spec` nor `.spec.ports`;
    applying `labels: {a: x}` owns `.labels.a`.
    """
    return FieldSet(_fields_of_map(configuration, schema))


def _fields_of_map(value: Object, schema: Schema) -> Fields | None:
    """Return the fields of an object: it is a leaf when empty, and None when none is owned."""
    fields: Fields = {}
    for name, part in value.items():
        below = _fields_below(part, field_schema(schema, name))
        if below and name in schema.properties:
            fields[FIELD + name] = below
        elif below is not None:
            fields[FIELD + name] = owned_with(below)
        elif name not in schema.properties:
            fields[FIELD + name] = OWNED
    return in_order(fields) if fields or not value else None


def _fields_below(value: Any, schema: Schema) -> Fields | None:
    """Return the fields owned inside a value: none inside a leaf, and None where none is owned."""
    if is_granular_map(value, schema):
        return _fields_of_map(cast("Object", value), schema)
    if is_granular_list(value, schema):
        inner = item_schema(schema)
        fields: Fields = {}
        for item in cast("list[Any]", value):
            fields[item_element(item, schema)] = owned_with(_fields_below(item, inner) or OWNED)
        return in_order(fields) or None
    return OWNED


def with_named_fields(fields: FieldSet, schema: Schema) -> FieldSet:
    """Return the set with every field of a name of its own on the way to an owned one."""
    named: Fields = {}
    for element in fields.elements():
        name = element.removeprefix(FIELD)
        is_field = element.startswith(FIELD)
        inner = field_schema(schema, name) if is_field else item_schema(schema)
        below = with_named_fields(fields.below(element), inner).to_json()
        if fields.owns(element) or (is_field and name in schema.properties):
            below = owned_with(below)
        named[element] = below
    return FieldSet(named)


def fitted(fields: FieldSet, schema: Schema) -> FieldSet:
    """Return the set as the schema has it now: what is inside a value owned whole is that value.

    Schemas of custom resources change, and what was owned piece by piece may have become atomic.
    """
    fit: Fields = {}
    for element in fields.elements():
        is_field = element.startswith(FIELD)
        inner = field_schema(schema, element[2:]) if is_field else item_schema(schema)
        is_atomic_list = inner.type == "array" and inner.list_type == "atomic"
        is_atomic = inner.map_is_atomic or is_atomic_list
        below = OWNED if is_atomic else fitted(fields.below(element), inner).to_json()
        fit[element] = owned_with(below) if fields.owns(element) else below
    return FieldSet(fit)
