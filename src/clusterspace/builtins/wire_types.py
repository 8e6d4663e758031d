"""The wire types of built-in kinds: each struct's fields, which show when empty, how to read them.

The facts are packed as one short text per field:

    ?            left out of the answer when empty
    ~A.~         held by way of the embedded struct A, which messages name and JSON does not
    <name>       a list or map with a name of its own
    *T  []T  {}T a pointer, a list, a map with string keys
    #name        a struct, by the name its schema is published under
    int32        a scalar; `string:v1.PullPolicy` is one with a name of its own

so `?[]#io.k8s.api.core.v1.Volume` is a list of volumes that disappears when there are none.
OpenAPI does not tell a pointer from a value, and that decides whether `replicas: 0` stays.

The reader of a scalar takes a JSON value other than null and returns its normal form. `WrongType`
is the complaint about a JSON type and is completed with the place by whoever knows it;
`Unreadable` is the complaint of a text about itself, which Kubernetes reports without a place.
"""

import base64
import binascii
import lzma
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from clusterspace.errors import MalformedQuantity, MalformedTimestamp
from clusterspace.kube import times
from clusterspace.kube.quantities import parse_quantity
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


ScalarReader: TypeAlias = Callable[[Any], Any]


class WrongType(Exception):
    """A JSON value of a type that does not fit; `path` grows as the error climbs out."""

    def __init__(self, value: Any, wanted: str, form: str, *, found: str = "") -> None:
        super().__init__(value, wanted)
        self.value = value
        self.found = found or json_type(value)
        self.wanted = wanted
        self.form = form
        """`struct`, `slice`, `map`, or the form of a scalar."""
        self.struct = ""
        self.path: list[str] = []

    def climb(self, struct: str, field: str) -> None:
        """Add the field the error passes through; the innermost struct is the one named."""
        self.struct = self.struct or struct
        self.path.insert(0, field)

    def __str__(self) -> str:
        place = f"Go struct field {self.struct}.{'.'.join(self.path)}" if self.path else "Go value"
        return f"json: cannot unmarshal {self.found} into {place} of type {self.wanted}"

    def when_restored(self) -> str:
        """Return the complaint about a strategic merge patch.

        What such a patch makes is not read as JSON but put into structs value by value, which has
        words of its own, and none for the place.
        """
        kind = _GO_KINDS[type(self.value)]
        match self.form:
            case "struct":
                return f"cannot restore struct from: {kind}"
            case "map" | "slice":
                return f"cannot restore {self.form} from {kind}"
            case "bytes":
                return f"cannot restore slice from {kind}"
            case "string" if kind == "int64":
                return f"cannot convert int64 to {self.wanted}"
            case "int32" | "int64" if kind == "float64":
                return f"cannot convert float64 to {self.wanted}"
            case "string" | "bool" | "int32" | "int64" | "float64":
                return f"unrecognized type: {self.form}"
            case _:  # those that read themselves
                return f"json: cannot unmarshal {self.found} into Go value of type {self.wanted}"


_GO_KINDS: Final[Mapping[type, str]] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    dict: "map",
    list: "slice",
}


class Unreadable(Exception):
    """A text that is of the right type and still cannot be read."""


def scalar_reader(scalar: Scalar) -> ScalarReader:
    """Return the reader of a scalar type."""
    return _READERS[scalar.form](scalar)


def zero_of(scalar: Scalar) -> Any:
    """Return the value of the type that is answered when none is set."""
    return _ZEROS.get(scalar.form)


def json_type(value: Any) -> str:
    """Return the JSON type of a value as the complaints name it."""
    return _JSON_TYPES[type(value)]


_JSON_TYPES: Final[Mapping[type, str]] = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    dict: "object",
    list: "array",
}


def _plain_reader(wanted: type) -> Callable[[Scalar], ScalarReader]:
    def reader_for(scalar: Scalar) -> ScalarReader:
        def read(value: Any) -> Any:
            if type(value) is wanted:
                return value
            raise WrongType(value, scalar.name, scalar.form)

        return read

    return reader_for


def _int_reader(bits: int) -> Callable[[Scalar], ScalarReader]:
    lowest, highest = -(1 << bits - 1), (1 << bits - 1) - 1

    def reader_for(scalar: Scalar) -> ScalarReader:
        def read(value: Any) -> int:
            if type(value) is int and lowest <= value <= highest:
                return value
            if type(value) in (int, float):
                raise WrongType(value, scalar.name, scalar.form, found=f"number {value}")
            raise WrongType(value, scalar.name, scalar.form)

        return read

    return reader_for


def _float_reader(scalar: Scalar) -> ScalarReader:
    def read(value: Any) -> float:
        if type(value) not in (int, float):
            raise WrongType(value, scalar.name, scalar.form)
        # A whole float is written without a fraction, as an integer is.
        return int(value) if value == int(value) else value

    return read


def _int_or_string_reader(scalar: Scalar) -> ScalarReader:
    read_int = _int_reader(32)(scalar)

    def read(value: Any) -> int | str:
        return value if type(value) is str else read_int(value)

    return read


def _quantity_reader(_: Scalar) -> ScalarReader:
    def read(value: Any) -> str:
        if type(value) is str:
            text = value.strip()
        else:
            text = str(value) if type(value) in (int, float) else json_type(value)
        try:
            return str(parse_quantity(text))
        except MalformedQuantity as malformed:
            raise Unreadable(malformed.message) from malformed

    return read


def _bytes_reader(scalar: Scalar) -> ScalarReader:
    def read(value: Any) -> str:
        if type(value) is not str:
            raise WrongType(value, scalar.name, scalar.form)
        text = value.replace("\n", "").replace("\r", "")
        try:
            return base64.b64encode(base64.b64decode(text, validate=True)).decode()
        except (binascii.Error, ValueError) as error:
            stray = re.search(r"[^A-Za-z0-9+/=\r\n]|=(?!=?[\r\n]*$)", value)
            place = stray.start() if stray else len(value) // 4 * 4
            raise Unreadable(f"illegal base64 data at input byte {place}") from error

    return read


# How Go writes the pieces of a time, and what each piece may look like.
_DATE_PIECES: Final = (
    ("2006", r"[0-9]{4}"), ("-", "-"), ("01", r"[0-9]{2}"), ("-", "-"), ("02", r"[0-9]{2}"),
    ("T", "T"), ("15", r"[0-9]{2}"), (":", ":"), ("04", r"[0-9]{2}"), (":", ":"),
)  # fmt: skip
_ZONE_PIECE: Final = ("Z07:00", r"Z|[+-][0-9]{2}:[0-9]{2}")
_TIME_PIECES: Final = (*_DATE_PIECES, ("05", r"[0-9]{2}(?:[.,][0-9]+)?"), _ZONE_PIECE)
_MICRO_TIME_PIECES: Final = (
    *_DATE_PIECES, ("05", r"[0-9]{2}"), (".000000", r"\.[0-9]{6}"), _ZONE_PIECE,
)  # fmt: skip

_NEVER: Final = "0001-01-01T00:00:00"
_NO_ZONE: Final = re.compile(r"[+-](?:(?:2[4-9]|[3-9][0-9]):[0-9]{2}|[0-9]{2}:[6-9][0-9])$")
"""The end of a time in a zone that there is not."""


def _time_reader(
    pieces: tuple[tuple[str, str], ...], form: Callable[[float], str]
) -> Callable[[Scalar], ScalarReader]:
    def reader_for(scalar: Scalar) -> ScalarReader:
        def read(value: Any) -> str | None:
            if type(value) is not str:
                raise WrongType(value, scalar.name, scalar.form)
            rest = value
            for piece, pattern in pieces:
                found = re.match(pattern, rest)
                if found is None:
                    layout = "".join(each for each, _ in pieces)
                    complaint = f'cannot parse "{rest}" as "{piece}"'
                    raise Unreadable(f'parsing time "{value}" as "{layout}": {complaint}')
                rest = rest[found.end() :]
            if rest:
                raise Unreadable(f'parsing time "{value}": extra text: "{rest}"')
            try:
                if _NO_ZONE.search(value):
                    raise MalformedTimestamp(value)
                written = form(times.parse_time(value))
            except MalformedTimestamp as malformed:
                raise Unreadable(f'parsing time "{value}": day out of range') from malformed
            return None if written.startswith(_NEVER) else written

        return read

    return reader_for


def _anything_reader(_: Scalar) -> ScalarReader:
    return lambda value: value


_READERS: Final[Mapping[str, Callable[[Scalar], ScalarReader]]] = {
    "string": _plain_reader(str),
    "bool": _plain_reader(bool),
    "int32": _int_reader(32),
    "int64": _int_reader(64),
    "float64": _float_reader,
    "intstr": _int_or_string_reader,
    "quantity": _quantity_reader,
    "bytes": _bytes_reader,
    "time": _time_reader(_TIME_PIECES, times.format_time),
    "microtime": _time_reader(_MICRO_TIME_PIECES, times.format_micro_time),
    "raw": _anything_reader,
    "json": _anything_reader,
}

_ZEROS: Final[Mapping[str, Any]] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "float64": 0,
    "intstr": 0,
    "quantity": "0",
}
