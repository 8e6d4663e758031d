"""The document of one group version, or of one discovery root, and its hash."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

import msgspec

from clusterspace import __version__
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.openapi_documents import names
from clusterspace.apiserver.openapi_documents.names import DESCRIBED, OWN_FIELDS
from clusterspace.apiserver.openapi_documents.paths import paths_of, reading
from clusterspace.builtins import schemas as builtin_schemas
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersion, GroupVersionKind
from clusterspace.kube.schemas.model import Schema

_OPENAPI: Final = "3.0.0"
_SECURITY: Final = {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}}
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
class Root:
    """A discovery path: it lists what is below it, and can only be read."""

    path: str
    operation_id: str
    tag: str
    definition: str

    def described(self) -> Object:
        """Return the path item."""
        return {"get": reading(self.operation_id, self.tag, self.definition)}


_CORE: Final = Root("/api/", "getCoreAPIVersions", "core", names.API_VERSIONS)
_GROUPS: Final = Root("/apis/", "getAPIVersions", "apis", names.API_GROUP_LIST)
_VERSION: Final = Root("/version/", "getCodeVersion", "version", names.VERSION_INFO)


def roots_above(group_versions: Iterable[GroupVersion]) -> tuple[Root, ...]:
    """Return the roots that lead to these group versions, and /version."""
    groups = dict.fromkeys(each.group for each in group_versions if each.group)
    below = (
        Root(
            path=f"/apis/{group}/",
            operation_id=f"get{names.group_words(group)}APIGroup",
            tag=names.tag_of_group(group),
            definition=names.API_GROUP,
        )
        for group in groups
    )
    return (_CORE, _GROUPS, _VERSION, *below)


def root_document(root: Root) -> Object:
    """Return the document of one root."""
    return _document({root.path: root.described()}, components([root.definition], ()))


def group_version_document(group_version: GroupVersion, resources: Sequence[Served]) -> Object:
    """Return the document of all resources of one group version."""
    root = Root(
        path=f"{group_version.path}/",
        operation_id=f"get{names.version_words(group_version)}APIResources",
        tag=names.tag_of(group_version),
        definition=names.API_RESOURCE_LIST,
    )
    described = [path for served in resources for path in paths_of(served)]
    items = {path.template: path.described() for path in described}
    spoken = {root.definition}.union(*(path.definitions() for path in described))
    return _document({root.path: root.described(), **items}, components(spoken, resources))


def _document(paths: Object, schemas: Mapping[str, Mapping[str, Any]]) -> Object:
    return {
        "openapi": _OPENAPI,
        "info": {"title": "Clusterspace", "version": __version__},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": schemas, "securitySchemes": _SECURITY},
    }


# -- definitions of kinds, built-in and custom, and of all they refer to ---------------------------


@dataclass(frozen=True, slots=True)
class _Definition:
    """A schema, and the definitions it refers to."""

    schema: Mapping[str, Any]
    references: tuple[str, ...]


def components(roots: Iterable[str], resources: Sequence[Served]) -> dict[str, Mapping[str, Any]]:
    """Return the definitions of these names and all that they refer to, sorted by name."""
    own = {name: each for served in resources for name, each in _own_definitions(served).items()}
    found: dict[str, Mapping[str, Any]] = {}
    wanted = list(roots)
    while wanted:
        name = wanted.pop()
        if name not in found:
            definition = own.get(name) or _published(name)
            found[name] = definition.schema
            wanted += definition.references
    return dict(sorted(found.items()))


def is_published(served: Served) -> bool:
    """Whether the kind is Kubernetes' own, described by the facts and not by the resource."""
    return not served.is_custom and names.find_published(served.info.group_version_kind) is not None


@cache
def _published(name: str) -> _Definition:
    known = _ON_THE_WIRE.get(name)
    return _definition(known or _converted(described_facts(name)))


def described_facts(name: str) -> Mapping[str, Any]:
    """Return the facts of a built-in definition, with what we have to say of its fields."""
    facts, sentences = builtin_schemas.definition(name).raw, DESCRIBED.get(name)
    if sentences is None:
        return facts
    fields = {
        key: {**value, "description": sentences[key]} if key in sentences else value
        for key, value in facts["properties"].items()
    }
    return {**facts, "properties": fields}


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
    items = {"type": "array", "items": names.reference(names.definition_name(kind))}
    metadata = {"allOf": [names.reference(names.LIST_META)]}
    list_schema: Object = {
        "type": "object",
        "required": ["items"],
        "properties": {"items": items, **_TYPE_FIELDS, "metadata": metadata},
        **_kind_of(listed),
    }
    return {
        names.definition_name(kind): _definition(schema),
        names.definition_name(listed): _definition(list_schema),
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
    own: Object = {**_TYPE_FIELDS, "metadata": {"allOf": [names.reference(names.OBJECT_META)]}}
    described = {name: {"description": OWN_FIELDS[name], **own[name]} for name in own}
    known = {**schema.get("properties", {}), **described}
    return {**schema, "type": "object", "properties": dict(sorted(known.items()))}


def _children(raw: Mapping[str, Any], convert: Callable[[Mapping[str, Any]], Object]) -> Object:
    """Return the parts of a schema that hold schemas, each converted."""
    found: Object = {}
    if "properties" in raw:
        found["properties"] = {name: convert(each) for name, each in raw["properties"].items()}
    for keyword in ("items", "additionalProperties"):
        if isinstance(raw.get(keyword), dict):
            found[keyword] = convert(raw[keyword])
    return found


def _definition(schema: Mapping[str, Any]) -> _Definition:
    return _Definition(schema, tuple(dict.fromkeys(_references(schema))))


def _references(schema: Mapping[str, Any]) -> Iterator[str]:
    if "$ref" in schema:
        yield names.referred(schema["$ref"])
    children = (*schema.get("properties", {}).values(), *schema.get("allOf", ()))
    for child in (*children, schema.get("items"), schema.get("additionalProperties")):
        if isinstance(child, dict):
            yield from _references(cast("Mapping[str, Any]", child))


def _kind_of(kind: GroupVersionKind) -> Object:
    named = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    return {names.GROUP_VERSION_KIND: [named]}


# -- hashes ----------------------------------------------------------------------------------------
#
# The index of /openapi/v3 names the hash of every document, and nobody reads more than a few of
# them: so a hash is made from what a document is made from, without making the document. It is
# the same after a restart as before, so clients keep what they have.


def digest_of_root(root: Root) -> str:
    """Return the hash of a root's document."""
    return _digest([_digest_of_facts(), root])


def digest_of_resources(resources: Sequence[Served]) -> str:
    """Return the hash of the document of a group version with these resources."""
    ingredients: list[Any] = [_digest_of_facts()]
    for served in resources:
        own = "" if is_published(served) else _SchemaDigest.of(served.rules.schema).text
        ingredients.append((served.info, served.is_custom, served.returns_deleted, own))
    return _digest(ingredients)


class _SchemaDigest:
    """The hash of a custom schema, kept with the schema: most outlive many changes of others."""

    def __init__(self, schema: Schema) -> None:
        self.text = _digest(schema.raw)

    @classmethod
    def of(cls, schema: Schema) -> "_SchemaDigest":
        made = schema.memo.get(cls)
        if made is None:
            made = schema.memo[cls] = cls(schema)
        return made


@cache
def _digest_of_facts() -> str:
    """Return the hash of this release and of all it knows of built-in kinds."""
    known = builtin_schemas.definition_names()
    facts = {name: builtin_schemas.definition(name).raw for name in known}
    return _digest([__version__, DESCRIBED, OWN_FIELDS, facts])


def _digest(value: Any) -> str:
    encoded = msgspec.json.encode(value, order="deterministic")
    return hashlib.sha256(encoded).hexdigest().upper()
