"""Taking out of an object what its last owner has given up."""

from typing import Any, cast

from clusterspace.kube.managed_fields.extraction import with_named_fields
from clusterspace.kube.managed_fields.field_sets import FieldSet
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


def given_up(once_owned: FieldSet, still_owned: FieldSet, schema: Schema) -> FieldSet:
    """Return what an applier owned and nobody owns any more.

    A field with a name of its own (`spec`, `labels`) counts as owned by whoever owns anything
    in it, so the last one to leave takes the empty shell along.
    """
    if not once_owned - still_owned:
        return FieldSet()
    return with_named_fields(once_owned, schema) - with_named_fields(still_owned, schema)


def remove(value: Object, gone: FieldSet, schema: Schema) -> Object:
    """Return the object without these fields, and all that was in them."""
    kept: Object = {}
    for name, held in value.items():
        element = FIELD + name
        if not gone.owns(element):
            kept[name] = _remove_below(held, gone.below(element), field_schema(schema, name))
    return kept


def _remove_below(value: Any, gone: FieldSet, schema: Schema) -> Any:
    if not gone:
        return value
    if is_granular_map(value, schema):
        return remove(cast("Object", value), gone, schema)
    if is_granular_list(value, schema):
        return _remove_items(cast("list[Any]", value), gone, schema)
    return value


def _remove_items(items: list[Any], gone: FieldSet, schema: Schema) -> list[Any]:
    inner = item_schema(schema)
    named = ((item_element(item, schema), item) for item in items)
    return [
        _remove_below(item, gone.below(element), inner)
        for element, item in named
        if not gone.owns(element)
    ]
