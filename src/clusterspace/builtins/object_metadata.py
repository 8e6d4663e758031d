"""The metadata of objects that have no wire type of their own, read as if it had one."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, cast

from clusterspace.builtins import wire_types, wire_values
from clusterspace.builtins.wire_types import ListOf, MapOf, PointerTo, Scalar, StructRef, WireType
from clusterspace.builtins.wire_values import Unreadable, WrongType, json_type
from clusterspace.errors import MalformedObject
from clusterspace.kube.objects import Object

_NAME: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def read_metadata(value: Any) -> Object:
    """Return metadata in its normal form; MalformedObject, without a place, for a wrong type.

    Fields that nobody knows are left for pruning to drop and to name.
    """
    try:
        return _read_struct(value, _NAME)
    except (WrongType, Unreadable) as refusal:
        raise MalformedObject(str(refusal)) from refusal


@cache
def _fields(name: str) -> Mapping[str, WireType]:
    return {key: field.type for key, field in wire_types.struct_type(name).fields.items()}


def _read_struct(value: Any, name: str) -> Object:
    if type(value) is not dict:
        raise WrongType(json_type(value), wire_types.type_name(StructRef(name)))
    fields, normal = _fields(name), dict[str, Any]()
    for key, held in cast("Object", value).items():
        known = fields.get(key)
        try:
            read = held if known is None else _read(held, known)
        except WrongType as wrong:
            wrong.climb(wire_types.struct_type(name).short_name, key)
            raise
        # Nothing, and nothing much, is how metadata says that a field is not there.
        if read or known is None or (read is not None and isinstance(known, PointerTo)):
            normal[key] = read
    return normal


def _read(value: Any, wire_type: WireType) -> Any:
    if value is None:
        return wire_values.zero_of(wire_type) if isinstance(wire_type, Scalar) else None
    match wire_type:
        case PointerTo():
            return _read(value, wire_type.target)
        case StructRef():
            return _read_struct(value, wire_type.name)
        case ListOf():
            return [_read(each, wire_type.element) for each in _of(value, list, wire_type)]
        case MapOf():
            held = _of(value, dict, wire_type)
            return {key: _read(each, wire_type.value) or "" for key, each in held.items()}
        case Scalar():
            return wire_values.scalar_reader(wire_type)(value)


def _of(value: Any, wanted: type, wire_type: WireType) -> Any:
    if type(value) is not wanted:
        raise WrongType(json_type(value), wire_types.type_name(wire_type))
    return value
