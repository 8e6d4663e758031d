"""The one document of OpenAPI 2.0: everything served, as kubectl and older clients read it.

It says what the documents of version 3 say, in the words of version 2, and is put together from
their parts: one for each group version, made once for as long as that group version stays what it
is. A change of one definition makes one part anew; the rest is joined as bytes.

Version 2 has no null, no `anyOf` and no place for fields that nobody listed. Where a custom schema
uses them, what is published is what Kubernetes publishes: less, so that no client refuses an object
which the server would take.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from clusterspace import __version__
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.openapi_documents import gnostic, names
from clusterspace.apiserver.openapi_documents.documents import described_facts, is_published
from clusterspace.apiserver.openapi_documents.names import OWN_FIELDS
from clusterspace.apiserver.openapi_documents.paths import PARAMETERS, parameter
from clusterspace.builtins import schemas as builtin_schemas
from clusterspace.kube.objects import Object

_DEFINITIONS: Final = "#/definitions/"
_TEXT: Final = {"type": "string"}
_BODY: Final = "body"

_ON_THE_WIRE: Final[Mapping[str, Object]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {**_TEXT, "format": "int-or-string"},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _TEXT,
}
"""Built-in definitions that version 2 has one type for."""

_UNSAID: Final = frozenset(
    {"allOf", "anyOf", "default", "nullable", "not", "oneOf", "properties", "required"}
)
"""What version 2 does not know, or what is said anew."""

_SECURITY: Final = [{"BearerToken": list[str]()}]
_SECURITY_DEFINITIONS: Final = {
    "BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}
}


@dataclass(frozen=True, slots=True)
class Encoded:
    """One path or definition, in both forms of the document."""

    json: bytes
    protobuf: bytes


@dataclass(frozen=True, slots=True)
class SwaggerPart:
    """What one group version, or one discovery root, has in the document, by name."""

    paths: Mapping[str, Encoded]
    definitions: Mapping[str, Encoded]


@dataclass(frozen=True, slots=True)
class Swagger:
    """The whole document, in both forms, and its tag."""

    json: bytes
    protobuf: bytes
    etag: str


def join_parts(parts: Iterable[SwaggerPart]) -> Swagger:
    """Return the document of everything that the parts describe."""
    paths: dict[str, Encoded] = {}
    definitions: dict[str, Encoded] = {}
    for part in parts:
        paths.update(part.paths)
        definitions.update(part.definitions)

    def spliced(members: Mapping[str, Encoded]) -> bytes:
        named = (msgspec.json.encode(name) + b":" + members[name].json for name in sorted(members))
        return b"{" + b",".join(named) + b"}"

    head: Object = {"swagger": "2.0", "info": {"title": "Clusterspace", "version": __version__}}
    tail: Object = {
        "parameters": {name: _parameter(name) for name in PARAMETERS},
        "securityDefinitions": _SECURITY_DEFINITIONS,
        "security": _SECURITY,
    }
    whole = b"".join(
        (
            msgspec.json.encode(head)[:-1],
            b',"paths":',
            spliced(paths),
            b',"definitions":',
            spliced(definitions),
            b",",
            msgspec.json.encode(tail)[1:],
        )
    )
    message = gnostic.document(
        {**head, **tail},
        [paths[name].protobuf for name in sorted(paths)],
        [definitions[name].protobuf for name in sorted(definitions)],
    )
    return Swagger(whole, message, f'"{hashlib.sha512(whole).hexdigest().upper()}"')


def part_of(document: Object, resources: Sequence[Served]) -> SwaggerPart:
    """Return what a document of version 3 about these resources says, in words of version 2."""
    own: dict[str, Object] = {}
    for served in resources:
        if not is_published(served):
            name = names.definition_name(served.info.group_version_kind)
            own[name] = _custom_kind(served)
    described: Mapping[str, Any] = document["components"]["schemas"]
    definitions = {
        name: own.get(name) or _ON_THE_WIRE.get(name) or _definition(name, described[name])
        for name in described
    }
    paths = {path: _path_item(item) for path, item in document["paths"].items()}
    return SwaggerPart(
        {name: Encoded(msgspec.json.encode(each), gnostic.named_path(name, each))
         for name, each in paths.items()},
        {name: Encoded(msgspec.json.encode(each), gnostic.named_schema(name, each))
         for name, each in definitions.items()},
    )  # fmt: skip


# -- paths -----------------------------------------------------------------------------------------


def _path_item(item: Object) -> Object:
    shared = [_shared_parameter(each) for each in item.get("parameters", ())]
    operations = {
        method: _operation(operation)
        for method, operation in item.items()
        if method != "parameters"
    }
    return {**operations, "parameters": shared} if shared else operations


def _operation(operation: Object) -> Object:
    body = operation.get("requestBody")
    taken: Mapping[str, Any] = body["content"] if body else {"*/*": {}}
    parameters = [_shared_parameter(each) for each in operation.get("parameters", ())]
    if body:
        schema = _referring(next(iter(taken.values()))["schema"])
        required = {"required": True} if body.get("required") else {}
        parameters = [{"name": _BODY, "in": _BODY, **required, "schema": schema}, *parameters]
    responses: Object = {}
    produced: dict[str, None] = {}
    for code, response in operation["responses"].items():
        content = response.get("content", {})
        produced |= dict.fromkeys(content)
        shown: Object = {"description": response["description"]}
        if content:
            shown["schema"] = _referring(next(iter(content.values()))["schema"])
        responses[code] = shown
    about = {key: value for key, value in operation.items() if key.startswith("x-")}
    listed = {"parameters": parameters} if parameters else {}
    return {
        "consumes": list(taken),
        "produces": list(produced),
        "schemes": ["https"],
        "tags": operation["tags"],
        "operationId": operation["operationId"],
        **listed,
        "responses": responses,
        **about,
    }


def _shared_parameter(described: Object) -> Object:
    return {"$ref": f"#/parameters/{described['name']}"}


def _parameter(name: str) -> Object:
    """Return one of the parameters that operations share."""
    described = parameter(name, "path" if name in ("name", "namespace") else "query")
    schema = described.pop("schema")
    return {"uniqueItems": True, **schema, **described}


def _referring(schema: Mapping[str, Any]) -> Object:
    return {"$ref": _DEFINITIONS + names.referred(schema["$ref"])}


# -- definitions -----------------------------------------------------------------------------------


def _definition(name: str, described: Object) -> Object:
    if name in builtin_schemas.definition_names():
        return _builtin(described_facts(name))
    return _unwrapped(described)  # the list of a custom kind


def _builtin(facts: Mapping[str, Any]) -> Object:
    """Return a built-in definition, or a place in one, from the facts."""
    said: Object = {
        key: value
        for key, value in facts.items()
        if key not in ("$ref", "default", "x-kubernetes-preserve-unknown-fields")
    }
    if "$ref" in facts:
        said["$ref"] = _DEFINITIONS + facts["$ref"]
    return {**said, **_children(said, _builtin)}


def _unwrapped(schema: Mapping[str, Any]) -> Object:
    """Return a schema of version 3 that says nothing which version 2 could not say."""
    said: Object = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
    for reference in (schema, *schema.get("allOf", ())):
        if "$ref" in reference:
            said |= _referring(reference)
    return {**said, **_children(said, _unwrapped)}


def _custom_kind(served: Served) -> Object:
    kind, raw = served.info.group_version_kind, served.rules.schema.raw
    named = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    about: Object = {names.GROUP_VERSION_KIND: [named]}
    if served.is_custom and served.fields:
        paths = [{"fieldPath": f".{path}"} for path in sorted(served.fields)]
        about["x-kubernetes-selectable-fields"] = paths
    if raw.get("x-kubernetes-preserve-unknown-fields"):
        # With a single property listed, clients would take all others for mistakes.
        return {"type": "object", **about}
    return {**_with_type(_custom(raw), is_embedded=False), "type": "object", **about}


def _custom(raw: Mapping[str, Any]) -> Object:
    """Return a place in a custom schema, without what version 2 would get wrong."""
    said: Object = {
        key: value
        for key, value in raw.items()
        if key not in _UNSAID and value is not None and value is not False and value not in ("", [])
    }
    said |= _children({key: raw[key] for key in _HOLDING if key in raw}, _custom)
    keeps_unknown = bool(raw.get("x-kubernetes-preserve-unknown-fields"))
    if raw.get("nullable"):
        said.pop("type", None)
    if raw.get("nullable") or keeps_unknown:
        # An untyped value with parts, or parts beside unknown ones, are read as the whole truth.
        said.pop("items", None)
        said.pop("properties", None)
    if said.get("type") == "array" and "items" not in said:
        del said["type"]
    if said.get("type") == "object" and keeps_unknown:
        del said["type"]
    properties = cast("Mapping[str, Any]", raw.get("properties") or {})
    required = [
        each for each in raw.get("required") or () if not properties.get(each, {}).get("nullable")
    ]
    beyond = raw.get("additionalProperties")
    if required and not (isinstance(beyond, dict) and cast("Object", beyond).get("nullable")):
        said["required"] = required
    if raw.get("x-kubernetes-embedded-resource") and not keeps_unknown:
        return _with_type(said, is_embedded=True)
    return said


def _with_type(schema: Object, *, is_embedded: bool) -> Object:
    """Add the three fields that every Kubernetes object has."""
    reference = {"$ref": _DEFINITIONS + names.OBJECT_META}
    own: Object = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": reference}
    described = {name: {"description": OWN_FIELDS[name], **own[name]} for name in own}
    properties = dict(sorted({**schema.get("properties", {}), **described}.items()))
    if not is_embedded:
        return {**schema, "properties": properties}
    required = dict.fromkeys([*schema.get("required", ()), "kind", "apiVersion"])
    return {**schema, "properties": properties, "required": list(required)}


_HOLDING: Final = ("properties", "items", "additionalProperties")


def _children(schema: Mapping[str, Any], convert: Callable[[Any], Object]) -> Object:
    """Return the parts of a schema that hold schemas, each converted."""
    found: Object = {}
    if "properties" in schema:
        found["properties"] = {name: convert(each) for name, each in schema["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            found[keyword] = convert(schema[keyword])
    return found
