"""The table of messages: which field number is which JSON field, read once from `fields.txt`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from importlib import resources
from typing import Final

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
    fields = filter(None, table.lines[name].split("; "))
    return Message(
        name,
        tuple(_read_field(field, alias) for field in fields),
        is_kind=name in table.kinds.values(),
    )


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


def _read_field(text: str, alias: str) -> Field:
    parts = _FIELD.fullmatch(text)
    if parts is None:
        raise LookupError(f"fields.txt: {text!r} is not a field")
    values = _MAP.fullmatch(parts["type"])
    return Field(
        number=int(parts["number"]),
        name=parts["name"],
        type=_full_type(values[1] if values else parts["type"], alias),
        shape=Shape.MAP if values else Shape(parts["before"]),
        presence=Presence(parts["after"]),
    )


def _full_type(written: str, alias: str) -> str:
    """Qualify a message of the same group; words of their own are lower case."""
    return written if "." in written or written[0].islower() else f"{alias}.{written}"
