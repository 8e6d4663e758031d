"""What a schema says of a value: whether it is owned whole or in pieces, and what names a piece.

Without a schema, objects are owned field by field and lists are owned whole.
"""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any, Final, cast

from clusterspace.errors import MalformedObject
from clusterspace.kube.managed_fields import path_elements
from clusterspace.kube.schemas.model import ANYTHING, Schema

_STRING: Final = {"type": "string"}
_STRINGS: Final = {"type": "object", "additionalProperties": _STRING}
_WHOLE_NUMBER: Final = {"type": "integer"}
_YES_OR_NO: Final = {"type": "boolean"}
_TIME: Final = {"type": "string", "format": "date-time"}

_OWNER_REFERENCE: Final = {
    "type": "object",
    "x-kubernetes-map-type": "atomic",
    "properties": {
        **dict.fromkeys(("apiVersion", "kind", "name", "uid"), _STRING),
        **dict.fromkeys(("controller", "blockOwnerDeletion"), _YES_OR_NO),
    },
}

METADATA: Final = Schema(
    {
        "type": "object",
        "properties": {
            **dict.fromkeys(
                ("name", "generateName", "namespace", "uid", "resourceVersion", "selfLink"),
                _STRING,
            ),
            **dict.fromkeys(("labels", "annotations"), _STRINGS),
            **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), _TIME),
            **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), _WHOLE_NUMBER),
            "finalizers": {"type": "array", "items": _STRING, "x-kubernetes-list-type": "set"},
            "ownerReferences": {
                "type": "array",
                "items": _OWNER_REFERENCE,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
            },
            "managedFields": {"type": "array", "items": {"type": "object"}},
        },
    }
)
"""The metadata of every object, whatever a custom schema says or leaves out about it."""


class _ObjectSchema(Schema):
    """A schema with the fields every object has."""

    def __init__(self, kind_schema: Schema) -> None:
        super().__init__(kind_schema.raw)
        self._kind_schema = kind_schema

    @cached_property
    def properties(self) -> Mapping[str, Schema]:
        """The kind's own fields, and those of every object."""
        text = Schema(_STRING)
        own = self._kind_schema.properties
        return {**own, "apiVersion": text, "kind": text, "metadata": METADATA}

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
    if list_schema.list_type == "map":
        return path_elements.key_element(_keys_of(item, list_schema))
    if isinstance(item, dict):
        raise MalformedObject("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise MalformedObject("not supported: associative list with lists as elements")
    if item is None:
        raise MalformedObject(
            "associative list without keys has an element that's an explicit null"
        )
    return path_elements.value_element(item)


def _keys_of(item: Any, list_schema: Schema) -> Mapping[str, Any]:
    """Return the key fields of an element; one left out counts with its default, if it has one."""
    if not isinstance(item, dict):
        held = "a null element" if item is None else "non-map elements"
        raise MalformedObject(f"associative list with keys may not have {held}")
    keys: dict[str, Any] = {}
    for name in list_schema.list_map_keys:
        if name in item:
            keys[name] = cast("dict[str, Any]", item)[name]
        elif (default := field_schema(item_schema(list_schema), name).default) is not None:
            keys[name] = default
    if not keys:
        named = " ".join(f'"{name}"' for name in list_schema.list_map_keys)
        raise MalformedObject(
            f"associative list with keys has an element that omits all key fields [{named}]"
            " (and doesn't have default values for any key fields)"
        )
    return keys
