"""Definitions of kinds, built-in and custom, and of all they refer to."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.openapi_documents import names
from clusterspace.builtins import schemas as builtin_schemas
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionKind

_NUMBER_OR_NAME: Final = [{"type": "integer"}, {"type": "string"}]
_TYPE_FIELDS: Final = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}

_ON_THE_WIRE: Final[Mapping[str, Mapping[str, Any]]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "format": "int-or-string",
        "oneOf": _NUMBER_OR_NAME,
    },
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {
        "oneOf": [{"type": "string"}, {"type": "number"}]
    },
}
"""Built-in definitions that our facts hold in the words of custom schemas."""

_FOR_US: Final = frozenset({"$ref", "x-kubernetes-preserve-unknown-fields"})
"""What the facts of built-in definitions say in a form of their own."""


@dataclass(frozen=True, slots=True)
class _Definition:
    """A schema, and the definitions it refers to."""

    schema: Mapping[str, Any]
    references: tuple[str, ...]


def components(roots: Iterable[str], resources: Sequence[Served]) -> dict[str, Mapping[str, Any]]:
    """Return the definitions of these names and all that they refer to, sorted by name."""
    own = {name: held for served in resources for name, held in _own_definitions(served).items()}
    found: dict[str, Mapping[str, Any]] = {}
    wanted = list(roots)
    while wanted:
        name = wanted.pop()
        if name not in found:
            held = own.get(name) or _published(name)
            found[name] = held.schema
            wanted += held.references
    return dict(sorted(found.items()))


def is_published(served: Served) -> bool:
    """Whether the kind is Kubernetes' own, described by the facts and not by the resource."""
    return not served.is_custom and names.find_published(served.info.group_version_kind) is not None


@cache
def _published(name: str) -> _Definition:
    known = _ON_THE_WIRE.get(name)
    return _definition(known or _converted(builtin_schemas.definition(name).raw))


def _converted(facts: Mapping[str, Any]) -> Object:
    """Return the facts of one place as OpenAPI 3.0 says them.

    OpenAPI 3.0 ignores what stands beside a `$ref`, so a reference that has a patch strategy or
    a default of its own is wrapped.
    """
    said: Object = {key: value for key, value in facts.items() if key not in _FOR_US}
    target = facts.get("$ref")
    if target is not None:
        return {**said, "allOf": [names.reference(target)]} if said else names.reference(target)
    return {**said, **_children(said, _converted)}


def _own_definitions(served: Served) -> dict[str, _Definition]:
    """Return the definitions of a kind that Kubernetes does not have, and of its list."""
    if is_published(served):
        return {}
    kind = served.info.group_version_kind
    listed = GroupVersionKind(kind.group, kind.version, served.info.list_kind)
    schema = {**_as_object(_customized(served.rules.schema.raw)), **_kind_of(kind)}
    return {
        names.definition_name(kind): _definition(schema),
        names.definition_name(listed): _definition(_list_schema(kind, listed)),
    }


def _customized(raw: Mapping[str, Any]) -> Object:
    """Return a custom schema as Kubernetes publishes it: what its extensions imply is spelt out."""
    said: Object = {**raw, **_children(raw, _customized)}
    if raw.get("x-kubernetes-int-or-string") and not {"anyOf", "allOf"} & raw.keys():
        said["anyOf"] = _NUMBER_OR_NAME
    if raw.get("x-kubernetes-embedded-resource"):
        required = [*raw.get("required", ()), "kind", "apiVersion"]
        return {**_as_object(said), "required": list(dict.fromkeys(required))}
    return said


def _as_object(schema: Object) -> Object:
    """Add the three fields that every Kubernetes object has."""
    metadata = {"allOf": [names.reference(names.OBJECT_META)]}
    known = {**schema.get("properties", {}), **_TYPE_FIELDS, "metadata": metadata}
    return {**schema, "type": "object", "properties": dict(sorted(known.items()))}


def _children(raw: Mapping[str, Any], convert: Callable[[Mapping[str, Any]], Object]) -> Object:
    """Return the parts of a schema that hold schemas, each converted."""
    found: Object = {}
    if "properties" in raw:
        found["properties"] = {name: convert(held) for name, held in raw["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(raw.get(keyword), dict):
            found[keyword] = convert(raw[keyword])
    return found


def _definition(schema: Mapping[str, Any]) -> _Definition:
    return _Definition(schema, tuple(dict.fromkeys(_references(schema))))


def _references(schema: Mapping[str, Any]) -> Iterator[str]:
    if "$ref" in schema:
        yield names.referred(schema["$ref"])
    held = (*schema.get("properties", {}).values(), *schema.get("allOf", ()))
    for child in (*held, schema.get("items"), schema.get("additionalProperties")):
        if isinstance(child, dict):
            yield from _references(cast("Mapping[str, Any]", child))


def _list_schema(kind: GroupVersionKind, listed: GroupVersionKind) -> Object:
    items = {"type": "array", "items": names.reference(names.definition_name(kind))}
    metadata = {"allOf": [names.reference(names.LIST_META)]}
    return {
        "type": "object",
        "required": ["items"],
        "properties": {"items": items, **_TYPE_FIELDS, "metadata": metadata},
        **_kind_of(listed),
    }


def _kind_of(kind: GroupVersionKind) -> Object:
    named = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    return {names.GROUP_VERSION_KIND: [named]}
