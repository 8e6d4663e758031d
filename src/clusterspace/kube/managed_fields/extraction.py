"""Which fields an applied configuration speaks of: exactly those its applier will own."""

from typing import Any, cast

from clusterspace.kube.managed_fields.field_sets import (
    OWNED,
    Fields,
    FieldSet,
    in_order,
    owned_with,
)
from clusterspace.kube.managed_fields.path_elements import FIELD
from clusterspace.kube.managed_fields.typed_values import (
    field_schema,
    is_granular_list,
    is_granular_map,
    item_element,
    item_schema,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.model import Schema


def owned_fields(configuration: Object, schema: Schema) -> FieldSet:
    """Return the fields of a configuration that fits its schema.

    A field with a name of its own is owned by what is in it; a key of a free map, or an element
    of a list, is also owned itself: that is what lets an applier take it away again whole.
    """
    return FieldSet(_fields_of_map(configuration, schema))


def _fields_of_map(value: Object, schema: Schema) -> Fields | None:
    """Return the fields of an object: it is a leaf when empty, and None when none is owned."""
    fields: Fields = {}
    for name, held in value.items():
        inner = field_schema(schema, name)
        below = _fields_below(held, inner)
        if below and name in schema.properties:
            fields[FIELD + name] = below
        elif below is not None:
            fields[FIELD + name] = owned_with(below)
        elif name not in schema.properties:
            fields[FIELD + name] = OWNED
    return in_order(fields) if fields or not value else None


def _fields_of_list(items: list[Any], schema: Schema) -> Fields | None:
    """Return the fields of a list's elements; None when there are none to own."""
    inner = item_schema(schema)
    fields: Fields = {}
    for item in items:
        fields[item_element(item, schema)] = owned_with(_fields_below(item, inner) or OWNED)
    return in_order(fields) or None


def _fields_below(value: Any, schema: Schema) -> Fields | None:
    """Return what is owned inside a value: nothing inside a leaf, and None where nothing is."""
    if is_granular_map(value, schema):
        return _fields_of_map(cast("Object", value), schema)
    if is_granular_list(value, schema):
        return _fields_of_list(cast("list[Any]", value), schema)
    return OWNED


def with_named_fields(fields: FieldSet, schema: Schema) -> FieldSet:
    """Return the set with every field of a name of its own on the way to an owned one."""
    return FieldSet(_named(fields, schema))


def _named(fields: FieldSet, schema: Schema) -> Fields:
    named: Fields = {}
    for element in fields.elements():
        name = element.removeprefix(FIELD)
        is_field = element.startswith(FIELD)
        inner = field_schema(schema, name) if is_field else item_schema(schema)
        below = _named(fields.below(element), inner)
        if fields.owns(element) or (is_field and name in schema.properties):
            below = owned_with(below)
        named[element] = below
    return named


def fitted(fields: FieldSet, schema: Schema) -> FieldSet:
    """Return the set as the schema has it now: what is inside a value owned whole is that value.

    Schemas of custom resources change, and what was owned piece by piece may have become atomic.
    """
    return FieldSet(_fit(fields, schema))


def _fit(fields: FieldSet, schema: Schema) -> Fields:
    fit: Fields = {}
    for element in fields.elements():
        is_field = element.startswith(FIELD)
        inner = field_schema(schema, element[2:]) if is_field else item_schema(schema)
        below = OWNED if _is_atomic(inner) else _fit(fields.below(element), inner)
        fit[element] = owned_with(below) if fields.owns(element) else below
    return fit


def _is_atomic(schema: Schema) -> bool:
    return schema.map_is_atomic or (schema.type == "array" and schema.list_type == "atomic")
