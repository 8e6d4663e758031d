"""The table of messages: which field number is which JSON field, read once from `fields.txt`.

A line of that file is one message; `@` marks a whole object, `*` a list, `!` a message whose fields
stand in the object around it, and the marks after a name are those of `Presence`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from importlib import resources
from typing import Any, Final

from clusterspace.kube.objects import Object

ANY_VERSION: Final = "*"
_FIELD: Final = re.compile(
    r"(?P<number>\d+) (?P<before>[*!]?)(?P<name>[^ ?&^]+)(?P<after>[?&^]?) (?P<type>\S+)"
)
_MAP: Final = re.compile(r"map<(.+)>")


class Shape(Enum):
    """How many values a field holds, and where they stand in the JSON."""

    SINGLE = ""
    LIST = "*"
    MAP = "map"
    INLINED = "!"


class Presence(Enum):
    """What the JSON shows when the wire says nothing, or zero; the marks of `fields.txt`."""

    ALWAYS = ""
    NOT_EMPTY = "?"
    WHEN_SENT = "&"
    OR_NULL = "^"


@dataclass(frozen=True, slots=True)
class Field:
    """One field; `type` is a word of `values.VALUE_TYPES`, or the full name of a message."""

    number: int
    name: str
    type: str
    shape: Shape
    presence: Presence


@dataclass(frozen=True)
class Message:
    """One message, such as `core.Container`; fields stand in the order of the JSON."""

    name: str
    fields: tuple[Field, ...]
    is_kind: bool = False

    @cached_property
    def by_number(self) -> Mapping[int, Field]:
        """The same fields, to be found by what the wire says."""
        return {field.number: field for field in self.fields}

    @cached_property
    def in_wire_order(self) -> tuple[Field, ...]:
        """The same fields by number, as every Go client writes them."""
        return tuple(sorted(self.fields, key=lambda field: field.number))

    @cached_property
    def json_names(self) -> frozenset[str]:
        """The names this message puts into the JSON object, those of inlined messages included."""
        own = {field.name for field in self.fields if field.shape is not Shape.INLINED}
        inlined = [field for field in self.fields if field.shape is Shape.INLINED]
        return frozenset(own.union(*(get_message(field.type).json_names for field in inlined)))


@dataclass(frozen=True, slots=True)
class _Table:
    """The text of every message by full name, and which message a kind is."""

    lines: Mapping[str, str]
    kinds: Mapping[tuple[str, str], str]


def find_kind(api_version: str, kind: str) -> Message | None:
    """Return the message of a whole object, or None when that kind has no protobuf form."""
    kinds = _read_table().kinds
    name = kinds.get((api_version, kind)) or kinds.get((ANY_VERSION, kind))
    return None if name is None else get_message(name)


def all_kinds() -> Mapping[tuple[str, str], str]:
    """Return every (apiVersion, kind) of the table with the name of its message."""
    return _read_table().kinds


@cache
def get_message(name: str) -> Message:
    """Return a message by its full name, such as `meta.ObjectMeta`."""
    alias = name.partition(".")[0]
    table = _read_table()
    fields: list[Field] = []
    for text in filter(None, table.lines[name].split("; ")):
        parts = _FIELD.fullmatch(text)
        if parts is None:
            raise LookupError(f"fields.txt: {text!r} is not a field")
        values = _MAP.fullmatch(parts["type"])
        type_ = values[1] if values else parts["type"]
        # A message of the same group is written without it; the words for values are lower case.
        is_whole = "." in type_ or type_[0].islower()
        fields.append(
            Field(
                number=int(parts["number"]),
                name=parts["name"],
                type=type_ if is_whole else f"{alias}.{type_}",
                shape=Shape.MAP if values else Shape(parts["before"]),
                presence=Presence(parts["after"]),
            )
        )
    return Message(name, tuple(fields), is_kind=name in table.kinds.values())


@cache
def _read_table() -> _Table:
    lines: dict[str, str] = {}
    kinds: dict[tuple[str, str], str] = {}
    alias = version = ""
    text = resources.files(__package__ or "").joinpath("fields.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            alias, version = line.strip("[]").split()
            continue
        title, _, fields = line.partition(":")
        name = title.removeprefix("@")
        lines[f"{alias}.{name}"] = fields.strip()
        if title.startswith("@"):
            kinds[version, name] = f"{alias}.{name}"
    return _Table(lines, kinds)


# Places in a CustomResourceDefinition's schema that hold a schema or something simpler: on the
# wire a message with a field for each, in JSON whichever of them there is.

_SCHEMA: Final = "schema"
_ALLOWS: Final = "allows"
_BESIDE_A_SCHEMA: Final[Mapping[str, str]] = {
    "apiextensions.JSONSchemaPropsOrArray": "schemas",
    "apiextensions.JSONSchemaPropsOrBool": _ALLOWS,
    "apiextensions.JSONSchemaPropsOrStringArray": "property",
}


def is_beside_a_schema(message_name: str) -> bool:
    """Whether the JSON of a message is one of its fields."""
    return message_name in _BESIDE_A_SCHEMA


def unwrap(message_name: str, decoded: Object) -> Any:
    """Return the JSON of such a message; any other message as it is."""
    beside = _BESIDE_A_SCHEMA.get(message_name)
    if beside is None:
        return decoded
    if isinstance(decoded.get(beside), list):
        return decoded[beside]
    if _SCHEMA in decoded:
        return decoded[_SCHEMA]
    return bool(decoded.get(_ALLOWS)) if beside == _ALLOWS else None


def wrap(message_name: str, shown: Any) -> Any:
    """Return the fields of such a message from its JSON; the inverse of `unwrap`."""
    beside = _BESIDE_A_SCHEMA.get(message_name)
    if beside is None:
        return shown
    if not isinstance(shown, dict):
        return {beside: shown}
    schema: Object = {_SCHEMA: shown}
    # Go clients say that a place with a schema also allows something.
    return {**schema, _ALLOWS: True} if beside == _ALLOWS else schema
