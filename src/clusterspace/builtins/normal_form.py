"""The normal form of built-in objects: the JSON that comes back for the JSON that was sent.

A kube-apiserver reads every object into a typed struct and writes it out again. Empty fields
vanish unless their type shows them, structs appear even when nobody sent them, quantities and
times are rewritten, and fields the type does not have are dropped.

    {"kind": "ConfigMap", "data": {}, "typo": 1}  ->  {"kind": "ConfigMap", "metadata": {}}
                                                      and the unknown field "typo"

Each struct becomes one reading function, made when it is first needed and kept. The metadata of
objects without a wire type of their own, custom ones, is read by `read_metadata`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias, cast

from clusterspace.builtins import wire_types
from clusterspace.builtins.wire_types import (
    Field,
    ListOf,
    MapOf,
    PointerTo,
    Scalar,
    StructRef,
    Unreadable,
    WireType,
    WrongType,
)
from clusterspace.errors import MalformedObject
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionKind

_JSON_SCHEMA: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
_MOST_UNKNOWN_FIELDS: Final = 100

_Reader: TypeAlias = Callable[[Any, list[str]], Any]
"""Reads a value that is not null; fields nobody knows are added to the list."""


@dataclass(frozen=True, slots=True)
class Normalized:
    """An object in normal form, and the paths of the fields that were dropped as unknown."""

    object: Object
    unknown_fields: tuple[str, ...] = ()


def is_built_in(kind: GroupVersionKind) -> bool:
    """Whether the kind has a normal form here."""
    return wire_types.struct_of_kind(kind) is not None


def normalize(kube_object: Object, kind: GroupVersionKind) -> Normalized:
    """Return the normal form; MalformedObject when a value is of the wrong type."""
    struct = wire_types.struct_of_kind(kind)
    if struct is None:
        raise LookupError(f"{kind} is not a built-in kind")
    dropped: list[str] = []
    try:
        normal = _struct_reader(struct.name)(kube_object, dropped)
    except (WrongType, Unreadable) as refusal:
        place = ".".join(refusal.path) if isinstance(refusal, WrongType) else ""
        head = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
        raise MalformedObject(f"{head}: {refusal}", place=place) from refusal
    if not dropped:
        return Normalized(normal)
    return Normalized(normal, unknown_fields(kube_object, kind))


def unknown_fields(kube_object: Object, kind: GroupVersionKind) -> tuple[str, ...]:
    """Return the paths of the fields the kind does not have, in the order they were written."""
    struct = wire_types.struct_of_kind(kind)
    if struct is None:
        return ()
    found = dict.fromkeys(_unknown_within(StructRef(struct.name), kube_object, ""))
    return tuple(found)[:_MOST_UNKNOWN_FIELDS]


def empty_status(kind: GroupVersionKind) -> Object | None:
    """Return the status of an object nobody has reported on; None for a kind without one."""
    struct = wire_types.struct_of_kind(kind)
    if struct is None or "status" not in struct.fields:
        return None
    status_type = struct.fields["status"].type
    return _zero_struct(status_type.name) if isinstance(status_type, StructRef) else None


@cache
def _struct_reader(name: str) -> _Reader:
    struct = wire_types.struct_type(name)
    short_name = struct.short_name
    # Made at the first read: structs may hold themselves, as schemas do.
    fields: dict[str, tuple[_Reader, type | None, bool]] = {}
    shown_when_empty = _zero_struct(name)

    def read(value: Any, dropped: list[str]) -> Object:
        if type(value) is not dict:
            raise WrongType(value, wire_types.type_name(StructRef(name)), "struct")
        if not fields:
            fields.update({key: _field_reader(field) for key, field in struct.fields.items()})
        normal: Object = {}
        key = ""
        try:
            for key, inner in cast("Object", value).items():
                known = fields.get(key)
                if known is None:
                    dropped.append(key)
                elif inner is not None:
                    read_value, plain_type, keeps_empty = known
                    result = inner if type(inner) is plain_type else read_value(inner, dropped)
                    if result or keeps_empty:
                        normal[key] = result
        except WrongType as wrong:
            wrong.climb(short_name, f"{struct.fields[key].via}{key}")
            raise
        for key, zero in shown_when_empty.items():
            normal.setdefault(key, zero)
        return normal

    return read


def _field_reader(field: Field) -> tuple[_Reader, type | None, bool]:
    """Return how to read the field, the type that needs no reading, and whether empty is kept."""
    target = field.type.target if isinstance(field.type, PointerTo) else field.type
    plain_type = _PLAIN_TYPES.get(target.form) if isinstance(target, Scalar) else None
    if isinstance(field.type, Scalar):
        return _reader(target), plain_type, field.type.form in _ALWAYS_SHOWN
    return _reader(target), plain_type, isinstance(field.type, PointerTo | StructRef)


_PLAIN_TYPES: Final[Mapping[str, type]] = {"string": str, "bool": bool, "intstr": str}
_ALWAYS_SHOWN: Final = ("quantity", "intstr", "raw")


def _reader(wire_type: WireType) -> _Reader:
    match wire_type:
        case StructRef():
            return _struct_reader(wire_type.name)
        case PointerTo():
            return _reader(wire_type.target)
        case ListOf():
            return _list_reader(wire_type)
        case MapOf():
            return _map_reader(wire_type)
        case Scalar() if wire_type.form in _SCHEMA_CHOICES:
            return _SCHEMA_CHOICES[wire_type.form]
        case Scalar():
            read_scalar = wire_types.scalar_reader(wire_type)
            return lambda value, _: read_scalar(value)


def _list_reader(list_type: ListOf) -> _Reader:
    read_element, zero = _reader(list_type.element), _zero(list_type.element)

    def read(value: Any, dropped: list[str]) -> list[Any]:
        if type(value) is not list:
            raise WrongType(value, wire_types.type_name(list_type), "slice")
        elements = cast("list[Any]", value)
        return [zero if each is None else read_element(each, dropped) for each in elements]

    return read


def _map_reader(map_type: MapOf) -> _Reader:
    read_value, zero = _reader(map_type.value), _zero(map_type.value)
    # A map has no way to say "nothing here", so an unset text of bytes is an empty one.
    zero = "" if map_type.value == Scalar("bytes", "[]uint8") else zero

    def read(value: Any, dropped: list[str]) -> Object:
        if type(value) is not dict:
            raise WrongType(value, wire_types.type_name(map_type), "map")
        entries = cast("Object", value).items()
        return {key: zero if each is None else read_value(each, dropped) for key, each in entries}

    return read


def _schema_or(other: ListOf | None) -> _Reader:
    """Return the reader of a field that holds a schema, or a list, or without a list a bool."""

    def read(value: Any, dropped: list[str]) -> Any:
        if other is None and type(value) is bool:
            return value
        if other is not None and type(value) is list:
            return _list_reader(other)(value, dropped)
        return _struct_reader(_JSON_SCHEMA)(value, dropped)

    return read


_SCHEMA_CHOICES: Final[Mapping[str, _Reader]] = {
    "schemaOrBool": _schema_or(None),
    "schemaOrArray": _schema_or(ListOf(StructRef(_JSON_SCHEMA))),
    "schemaOrStrings": _schema_or(ListOf(Scalar("string", "string"))),
}


def _zero(wire_type: WireType) -> Any:
    """Return the value of the type that is answered when nobody set one."""
    match wire_type:
        case StructRef():
            return _zero_struct(wire_type.name)
        case Scalar():
            return wire_types.zero_of(wire_type)
        case PointerTo() | ListOf() | MapOf():
            return None


@cache
def _zero_struct(name: str) -> Object:
    fields = wire_types.struct_type(name).fields
    return {key: _zero(field.type) for key, field in fields.items() if _shows_empty(field)}


def _shows_empty(field: Field) -> bool:
    """Whether the field is there even when nobody set it: structs cannot be left out."""
    if isinstance(field.type, Scalar):
        is_struct = field.type.form in ("time", "microtime", *_ALWAYS_SHOWN)
        return is_struct or not field.omits_empty
    return isinstance(field.type, StructRef) or not field.omits_empty


def _unknown_within(wire_type: WireType, value: Any, path: str) -> Iterator[str]:
    match wire_type:
        case PointerTo():
            yield from _unknown_within(wire_type.target, value, path)
        case StructRef() if isinstance(value, dict):
            fields = wire_types.struct_type(wire_type.name).fields
            for key, inner in cast("Object", value).items():
                if key not in fields:
                    yield _joined(path, key)
                else:
                    yield from _unknown_within(fields[key].type, inner, _joined(path, key))
        case ListOf() if isinstance(value, list):
            for index, each in enumerate(cast("list[Any]", value)):
                yield from _unknown_within(wire_type.element, each, f"{path}[{index}]")
        case MapOf() if isinstance(value, dict):
            for key, each in cast("Object", value).items():
                yield from _unknown_within(wire_type.value, each, _joined(path, key))
        case _:
            return


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


_OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def read_metadata(value: Any) -> Object:
    """Return metadata in its normal form; MalformedObject, without a place, for a wrong type.

    Fields that nobody knows are left for pruning to drop and to name.
    """
    try:
        return _read_struct(value, _OBJECT_META)
    except (WrongType, Unreadable) as refusal:
        raise MalformedObject(str(refusal)) from refusal


def _read_struct(value: Any, name: str) -> Object:
    if type(value) is not dict:
        raise WrongType(value, wire_types.type_name(StructRef(name)), "struct")
    struct, normal = wire_types.struct_type(name), dict[str, Any]()
    for key, inner in cast("Object", value).items():
        field = struct.fields.get(key)
        try:
            read = inner if field is None else _read(inner, field.type)
        except WrongType as wrong:
            wrong.climb(struct.short_name, key)
            raise
        # Nothing, and nothing much, is how metadata says that a field is not there.
        if read or field is None or (read is not None and isinstance(field.type, PointerTo)):
            normal[key] = read
    return normal


def _read(value: Any, wire_type: WireType) -> Any:
    if value is None:
        return wire_types.zero_of(wire_type) if isinstance(wire_type, Scalar) else None
    match wire_type:
        case PointerTo():
            return _read(value, wire_type.target)
        case StructRef():
            return _read_struct(value, wire_type.name)
        case ListOf():
            return [_read(each, wire_type.element) for each in _of(value, list, wire_type)]
        case MapOf():
            entries = _of(value, dict, wire_type).items()
            return {key: _read(each, wire_type.value) or "" for key, each in entries}
        case Scalar():
            return wire_types.scalar_reader(wire_type)(value)


def _of(value: Any, wanted: type, wire_type: WireType) -> Any:
    if type(value) is not wanted:
        raise WrongType(
            value, wire_types.type_name(wire_type), "slice" if wanted is list else "map"
        )
    return value
