"""Schemas to types, and objects to the values that expressions see."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from clusterspace.kube.cel.libraries.standard import read_duration, read_timestamp
from clusterspace.kube.cel.parser import RESERVED
from clusterspace.kube.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Field,
    Type,
    list_of,
    map_of,
)
from clusterspace.kube.cel.values import EvaluationFailed, KeyedList, SetList
from clusterspace.kube.schemas.model import Schema

if TYPE_CHECKING:
    from clusterspace.kube.objects import Object

_UNSPELLABLE: Final = frozenset(("true", "false", "null", "in"))
_SPELLABLE: Final = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")
_ESCAPES: Final = {
    "__": "__underscores__",
    ".": "__dot__",
    "-": "__dash__",
    "/": "__slash__",
}
_SCALARS: Final[Mapping[str, Type]] = {
    "boolean": BOOL,
    "integer": INT,
    "number": DOUBLE,
    "string": STRING,
}
_TEXT_FORMATS: Final[Mapping[str, Type]] = {
    "byte": BYTES,
    "duration": DURATION,
    "date": TIMESTAMP,
    "date-time": TIMESTAMP,
}
_TEXT: Final = Schema({"type": "string"})
_RESOURCE_FIELDS: Final[Mapping[str, Schema]] = {
    "apiVersion": _TEXT,
    "kind": _TEXT,
    "metadata": Schema(
        {"type": "object", "properties": {"name": _TEXT.raw, "generateName": _TEXT.raw}}
    ),
}


def escaped(name: str) -> str | None:
    """Return how an expression spells a field; None for a name that it cannot spell."""
    if name in RESERVED or name in _UNSPELLABLE:
        return f"__{name}__"
    if not _SPELLABLE.fullmatch(name):
        return None
    return "".join(_ESCAPES.get(part, part) for part in re.split(r"(__|[./-])", name))


def type_of(schema: Schema, *, is_resource: bool, name: str = "selfType") -> Type | None:
    """Return the type of the values of a schema; None when expressions cannot see them."""
    if schema.is_int_or_string:
        return DYN
    if schema.type == "string":
        return _TEXT_FORMATS.get(str(schema.raw.get("format") or ""), STRING)
    if schema.type == "array":
        items = schema.items
        element = items and type_of(
            items, is_resource=items.is_embedded_resource, name=f"{name}.@idx"
        )
        return list_of(element) if element else None
    if schema.type != "object":
        return _SCALARS.get(schema.type)
    free = schema.additional
    if free is not None and not is_resource:
        value = type_of(free, is_resource=free.is_embedded_resource, name=f"{name}.@elem")
        return map_of(STRING, value) if value else None
    known = {**schema.properties, **(_RESOURCE_FIELDS if is_resource else {})}
    fields: dict[str, Field] = {}
    for own_name, field_schema in known.items():
        spelled = escaped(own_name)
        is_embedded = field_schema.is_embedded_resource
        inner = type_of(field_schema, is_resource=is_embedded, name=f"{name}.{own_name}")
        if spelled is None or inner is None:
            continue
        fields[spelled] = Field(own_name, inner)
        if own_name in RESERVED:
            fields[own_name] = Field(own_name, inner)
    return Type(name, fields=fields)


class _Reader:
    """Turns objects into values, and knows of the schemas whose objects are values already."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._text = _TEXT_FORMATS.get(str(schema.raw.get("format") or ""))

    @classmethod
    def of(cls, schema: Schema) -> "_Reader":
        """Return the reader of a schema, the same one each time."""
        cached = schema.memo.get(cls)
        if cached is None:
            cached = schema.memo[cls] = cls(schema)
        return cached

    def read(self, value: Any) -> Any:
        schema = self._schema
        match value:
            case dict() if schema.type == "object":
                read: Object = {}
                for name, part in cast("Object", value).items():
                    known = schema.properties.get(name, schema.additional)
                    # What the schema does not know stays: no type has it, no rule can ask for it.
                    if part is None and name in schema.properties:
                        continue  # to a rule, a field that holds nothing is not there
                    read[name] = part if known is None else _Reader.of(known).read(part)
                return read
            case list() if schema.items is not None:
                reader = _Reader.of(schema.items)
                elements = [reader.read(element) for element in cast("list[Any]", value)]
                if schema.list_type == "set":
                    return SetList(elements)
                if schema.list_type == "map":
                    return KeyedList(elements, schema.list_map_keys)
                return elements
            case str() if self._text is not None and schema.type == "string":
                try:
                    if self._text == BYTES:
                        return base64.b64decode(value, validate=True)
                    if self._text == DURATION:
                        return read_duration(value)
                    return read_timestamp(value if "T" in value else f"{value}T00:00:00Z")
                except (EvaluationFailed, binascii.Error):
                    return value  # for others to refuse
            case int() if schema.type == "number" and not isinstance(value, bool):
                return float(value)
            case float() if schema.type == "integer" and value.is_integer():
                return int(value)
            case _:
                return value


def read_value(value: Any, schema: Schema) -> Any:
    """Return the value that expressions see for an object of the schema."""
    return _Reader.of(schema).read(value)
