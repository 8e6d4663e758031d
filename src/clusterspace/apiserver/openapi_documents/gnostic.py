"""An OpenAPI 2.0 document as protobuf: the messages that kubectl and client-go read it by.

The messages are those of `openapi.v2` in gnostic: an object with free keys is a list of names and
values, a choice between two things a message with one field of two, and an extension a name with a
text in YAML. As in all of proto3, what is empty or zero is not written.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

import msgspec

from clusterspace.apiserver.http.responses import yaml_bytes
from clusterspace.kube.objects import Object
from clusterspace.kube.protobuf.values import VALUE_TYPES
from clusterspace.kube.protobuf.wire import (
    write_bytes_field,
    write_fixed64_field,
    write_varint_field,
)

_Writer: TypeAlias = Callable[[int, Any], bytes]
"""Writes a value under a field number; no bytes at all for one that is empty."""


def named_path(path: str, item: Object) -> bytes:
    """Return one path as it stands in the document."""
    return write_bytes_field(2, _named(path, _message(_PATH_ITEM, item)))


def named_schema(name: str, schema: Object) -> bytes:
    """Return one definition as it stands in the document."""
    return write_bytes_field(1, _named(name, _message(_SCHEMA, schema)))


def document(rest: Object, paths: Sequence[bytes], definitions: Sequence[bytes]) -> bytes:
    """Return the document: its named paths and definitions, and the rest of it as JSON says it."""
    info = _text(1, rest["info"]["title"]) + _text(2, rest["info"]["version"])
    parameters = b"".join(
        write_bytes_field(1, _named(name, _parameter(each)))
        for name, each in sorted(rest["parameters"].items())
    )
    security = b"".join(
        write_bytes_field(1, _named(name, _texts(1, scopes)))
        for requirement in rest["security"]
        for name, scopes in requirement.items()
    )
    defined = b"".join(
        write_bytes_field(1, _named(name, write_bytes_field(2, _message(_API_KEY, each))))
        for name, each in rest["securityDefinitions"].items()
    )
    return b"".join(
        (
            _text(1, rest["swagger"]),
            write_bytes_field(2, info),
            write_bytes_field(8, b"".join(paths)),
            write_bytes_field(9, b"".join(definitions)),
            write_bytes_field(10, parameters),
            write_bytes_field(12, security),
            write_bytes_field(13, defined),
        )
    )


def _message(fields: Mapping[str, tuple[int, _Writer]], value: Mapping[str, Any]) -> bytes:
    """Write an object by its table of fields; names that begin with x- are its extensions."""
    pieces: list[tuple[int, bytes]] = []
    for name, each in value.items():
        if name in fields:
            number, write = fields[name]
            pieces.append((number, write(number, each)))
        elif name.startswith("x-"):
            number = fields["x-"][0]
            pieces.append((number, write_bytes_field(number, _named(name, _any(each)))))
    # By number, and otherwise in the order of the JSON: sorting keeps it.
    return b"".join(piece for _, piece in sorted(pieces, key=lambda pair: pair[0]))


def _named(name: str, value: bytes) -> bytes:
    return _text(1, name) + write_bytes_field(2, value)


def _text(number: int, value: str) -> bytes:
    return write_bytes_field(number, value.encode(errors="replace")) if value else b""


def _texts(number: int, values: Sequence[str]) -> bytes:
    return b"".join(write_bytes_field(number, each.encode()) for each in values)


def _flag(number: int, value: Any) -> bytes:
    return write_varint_field(number, 1) if value else b""


def _whole(number: int, value: Any) -> bytes:
    return write_varint_field(number, int(value)) if value else b""


def _double(number: int, value: Any) -> bytes:
    written = VALUE_TYPES["double"].write(value) if value else b""
    return write_fixed64_field(number, cast("bytes", written)) if written else b""


def _any(value: Any) -> bytes:
    """Write a value of any type: its text in YAML."""
    return write_bytes_field(2, _yaml_of(msgspec.json.encode(value)))


@lru_cache(maxsize=2048)
def _yaml_of(encoded: bytes) -> bytes:
    # The mark that ends a document of a lone word is no part of the word.
    return yaml_bytes(msgspec.json.decode(encoded)).removesuffix(b"...\n")


def _one_any(number: int, value: Any) -> bytes:
    return write_bytes_field(number, _any(value))


def _many_any(number: int, values: Sequence[Any]) -> bytes:
    return b"".join(_one_any(number, each) for each in values)


def _schema(number: int, value: Any) -> bytes:
    return write_bytes_field(number, _message(_SCHEMA, value))


def _schemas(number: int, values: Sequence[Any]) -> bytes:
    return b"".join(_schema(number, each) for each in values)


def _inside(write: _Writer) -> _Writer:
    """Return how a value is written as the first field of a message of its own."""
    return lambda number, value: write_bytes_field(number, write(1, value))


def _additional(number: int, value: Any) -> bytes:
    is_schema = isinstance(value, dict)
    return write_bytes_field(number, _schema(1, value) if is_schema else _flag(2, value))


def _properties(number: int, value: Mapping[str, Any]) -> bytes:
    return write_bytes_field(number, b"".join(named_schema(name, value[name]) for name in value))


def _types(number: int, value: Any) -> bytes:
    return write_bytes_field(number, _texts(1, [value] if isinstance(value, str) else value))


def _operation(number: int, value: Any) -> bytes:
    return write_bytes_field(number, _message(_OPERATION, value))


def _parameters(number: int, values: Sequence[Any]) -> bytes:
    pieces: list[bytes] = []
    for each in values:
        if "$ref" in each:
            item = write_bytes_field(2, _text(1, each["$ref"]))
        else:
            item = write_bytes_field(1, _parameter(each))
        pieces.append(write_bytes_field(number, item))
    return b"".join(pieces)


def _parameter(value: Any) -> bytes:
    if value["in"] == "body":
        return write_bytes_field(1, _message(_BODY_PARAMETER, value))
    is_path = value["in"] == "path"
    fields, which = (_PATH_PARAMETER, 4) if is_path else (_QUERY_PARAMETER, 3)
    return write_bytes_field(2, write_bytes_field(which, _message(fields, value)))


def _responses(number: int, value: Mapping[str, Any]) -> bytes:
    pieces = (
        write_bytes_field(1, _named(code, write_bytes_field(1, _message(_RESPONSE, each))))
        for code, each in value.items()
    )
    return write_bytes_field(number, b"".join(pieces))


_SCHEMA: Final[Mapping[str, tuple[int, _Writer]]] = {
    "$ref": (1, _text),
    "format": (2, _text),
    "title": (3, _text),
    "description": (4, _text),
    "default": (5, _one_any),
    "multipleOf": (6, _double),
    "maximum": (7, _double),
    "exclusiveMaximum": (8, _flag),
    "minimum": (9, _double),
    "exclusiveMinimum": (10, _flag),
    "maxLength": (11, _whole),
    "minLength": (12, _whole),
    "pattern": (13, _text),
    "maxItems": (14, _whole),
    "minItems": (15, _whole),
    "uniqueItems": (16, _flag),
    "maxProperties": (17, _whole),
    "minProperties": (18, _whole),
    "required": (19, _texts),
    "enum": (20, _many_any),
    "additionalProperties": (21, _additional),
    "type": (22, _types),
    "items": (23, _inside(_schema)),
    "allOf": (24, _schemas),
    "properties": (25, _properties),
    "x-": (31, _one_any),
}
_PATH_ITEM: Final[Mapping[str, tuple[int, _Writer]]] = {
    "get": (2, _operation),
    "put": (3, _operation),
    "post": (4, _operation),
    "delete": (5, _operation),
    "options": (6, _operation),
    "head": (7, _operation),
    "patch": (8, _operation),
    "parameters": (9, _parameters),
    "x-": (10, _one_any),
}
_OPERATION: Final[Mapping[str, tuple[int, _Writer]]] = {
    "tags": (1, _texts),
    "summary": (2, _text),
    "description": (3, _text),
    "operationId": (5, _text),
    "produces": (6, _texts),
    "consumes": (7, _texts),
    "parameters": (8, _parameters),
    "responses": (9, _responses),
    "schemes": (10, _texts),
    "deprecated": (11, _flag),
    "x-": (13, _one_any),
}
_RESPONSE: Final[Mapping[str, tuple[int, _Writer]]] = {
    "description": (1, _text),
    "schema": (2, _inside(_schema)),
    "x-": (5, _one_any),
}
_BODY_PARAMETER: Final[Mapping[str, tuple[int, _Writer]]] = {
    "description": (1, _text),
    "name": (2, _text),
    "in": (3, _text),
    "required": (4, _flag),
    "schema": (5, _schema),
    "x-": (6, _one_any),
}
_QUERY_PARAMETER: Final[Mapping[str, tuple[int, _Writer]]] = {
    "required": (1, _flag),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (6, _text),
    "format": (7, _text),
    "uniqueItems": (20, _flag),
    "x-": (23, _one_any),
}
_PATH_PARAMETER: Final[Mapping[str, tuple[int, _Writer]]] = {
    "required": (1, _flag),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
    "type": (5, _text),
    "format": (6, _text),
    "uniqueItems": (19, _flag),
    "x-": (22, _one_any),
}
_API_KEY: Final[Mapping[str, tuple[int, _Writer]]] = {
    "type": (1, _text),
    "name": (2, _text),
    "in": (3, _text),
    "description": (4, _text),
    "x-": (5, _one_any),
}
