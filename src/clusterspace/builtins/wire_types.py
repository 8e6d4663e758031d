"""The wire types of built-in kinds: each struct's fields, and which of them show when empty.

The facts are packed as one short text per field:

    ?            left out of the answer when empty
    ~A.~         held by way of the embedded struct A, which messages name and JSON does not
    <name>       a list or map with a name of its own
    *T  []T  {}T a pointer, a list, a map with string keys
    #name        a struct, by the name its schema is published under
    int32        a scalar; `string:v1.PullPolicy` is one with a name of its own

so `?[]#io.k8s.api.core.v1.Volume` is a list of volumes that disappears when there are none.
OpenAPI does not tell a pointer from a value, and that decides whether `replicas: 0` stays.
"""

import lzma
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from clusterspace.kube.resources import GroupVersionKind

_PACKED: Final = Path(__file__).parent / "data" / "wire_types.json.xz"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value without parts; `name` is what error messages call its type."""

    form: str
    name: str


@dataclass(frozen=True, slots=True)
class PointerTo:
    """A value that may be absent, so that zero, false and empty are values of their own."""

    target: "WireType"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list."""

    element: "WireType"
    name: str = ""


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object with free keys."""

    value: "WireType"
    name: str = ""


@dataclass(frozen=True, slots=True)
class StructRef:
    """A struct by its published name; `struct_type` has its fields."""

    name: str


WireType: TypeAlias = Scalar | PointerTo | ListOf | MapOf | StructRef


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct; `via` is the path of embedded structs that messages show."""

    type: WireType
    omits_empty: bool
    via: str = ""


@dataclass(frozen=True, slots=True)
class StructType:
    """A struct: its published name and its fields."""

    name: str
    fields: Mapping[str, Field]

    @property
    def short_name(self) -> str:
        """The name without its package, as error messages open with it: `PodSpec`."""
        return self.name.rpartition(".")[2]


def struct_of_kind(kind: GroupVersionKind) -> StructType | None:
    """Return the struct of a built-in kind; None when the kind is not built in."""
    name = _facts().kinds.get(f"{kind.group}/{kind.version}/{kind.kind}")
    return None if name is None else struct_type(name)


def built_in_kinds() -> tuple[GroupVersionKind, ...]:
    """Return every built-in kind."""
    return tuple(GroupVersionKind(*text.split("/")) for text in _facts().kinds)


@cache
def struct_type(name: str) -> StructType:
    """Return a struct by its published name, such as `io.k8s.api.core.v1.PodSpec`."""
    fields = _facts().structs[name]
    return StructType(name, {field: _read_field(text) for field, text in fields.items()})


def type_name(wire_type: WireType) -> str:
    """Return a type as error messages spell it: `[]v1.Container`, `map[string]string`."""
    match wire_type:
        case Scalar():
            return wire_type.name
        case PointerTo():
            return type_name(wire_type.target)
        case ListOf():
            return wire_type.name or f"[]{type_name(wire_type.element)}"
        case MapOf():
            return wire_type.name or f"map[string]{type_name(wire_type.value)}"
        case StructRef():
            return ".".join(wire_type.name.split(".")[-2:])


class _Facts(msgspec.Struct, frozen=True):
    kinds: dict[str, str]
    structs: dict[str, dict[str, str]]


@cache
def _facts() -> _Facts:
    return msgspec.json.decode(lzma.decompress(_PACKED.read_bytes()), type=_Facts)


_FIELD: Final = re.compile(r"(?P<omits>\??)(?:~(?P<via>[^~]*)~)?(?:<(?P<name>[^>]*)>)?(?P<type>.+)")

# What an unnamed scalar is called in messages, where that is not its form.
_SCALAR_NAMES: Final = {
    "bytes": "[]uint8",
    "time": "string",
    "microtime": "string",
    "intstr": "int32",
    "quantity": "resource.Quantity",
    "raw": "runtime.RawExtension",
    "json": "v1.JSON",
}


def _read_field(text: str) -> Field:
    found = _FIELD.fullmatch(text)
    if found is None:
        raise LookupError(f"{text!r} is not a wire type")
    wire_type = _read_type(found["type"], found["name"] or "")
    return Field(wire_type, omits_empty=bool(found["omits"]), via=found["via"] or "")


def _read_type(text: str, name: str = "") -> WireType:
    if text.startswith("#"):
        return StructRef(text[1:])
    if text.startswith("*"):
        return PointerTo(_read_type(text[1:], name))
    if text.startswith("[]"):
        return ListOf(_read_type(text[2:]), name)
    if text.startswith("{}"):
        return MapOf(_read_type(text[2:]), name)
    form, _, scalar_name = text.partition(":")
    return Scalar(form, scalar_name or _SCALAR_NAMES.get(form, form))
