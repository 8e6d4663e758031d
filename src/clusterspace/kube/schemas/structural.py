"""Whether a CustomResourceDefinition may have a schema: structural, with valid defaults.

A structural schema says what every field is before it says what may be in it, so that objects can
be pruned and defaulted. The rules are Kubernetes', and so are the words:
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, cast

from clusterspace.errors import Cause, MalformedSchema
from clusterspace.kube import causes
from clusterspace.kube.schemas.model import Schema, check_shape, subschemas
from clusterspace.kube.schemas.pruning import prune
from clusterspace.kube.schemas.strings import compile_pattern
from clusterspace.kube.schemas.validation import validate

Raw = Mapping[str, Any]

DEFINITION_PATH: Final = "spec.validation.openAPIV3Schema"
"""Where Kubernetes says the schema is when all versions of a definition share it."""

_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]

_FORBIDDEN_WHEN_NESTED: Final[Mapping[str, str]] = {
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}


_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_META_FIELDS: Final = ("apiVersion", "kind", "metadata")
_UNSUPPORTED: Final = (
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
)
_NOT_UNIQUE: Final = (
    "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
)


class _Level(Enum):
    ROOT = "must not be empty at the root"
    ITEM = "must not be empty for specified array items"
    FIELD = "must not be empty for specified object fields"


def check_structural(raw_schema: Any, *, path: str = DEFINITION_PATH) -> tuple[Cause, ...]:
    """Return every rule that the schema breaks; raise MalformedSchema if it is no schema at all."""
    check_shape(raw_schema, place=path)
    raw = cast("Raw", raw_schema)
    found: list[Cause] = []
    if raw.get("nullable"):
        found.append(causes.forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    # In Kubernetes' order, which shows in the message: the root, then structure or defaults, then
    # keywords. A keyword that no structural schema can express hides the structure; it is blamed
    # by itself only when no other rule has blamed it.
    unsupported = _find_unsupported(raw)
    if not unsupported:
        broken = [*_Node(raw, path, _Level.ROOT).broken_rules(), *_incomplete(raw, raw, path, path)]
        # Defaults are looked at only where the structure is sound enough to validate them.
        if broken:
            found += sorted(broken, key=lambda cause: f"{cause.field}: {cause.message}")
        else:
            found += _wrong_defaults(Schema(raw), path)
    found += _Place(raw, path, is_root=True).broken_rules()
    if unsupported and not found:
        found.append(causes.invalid(path, "", f"OpenAPIV3Schema '{unsupported}' is not supported"))
    return tuple(found)


def _wrong_defaults(schema: Schema, path: str) -> Iterator[Cause]:
    """Yield the causes of defaults that the schema itself would not accept, at every depth."""
    if schema.has_default:
        place = f"{path}.default"
        if prune(schema.default, schema, is_resource_root=False).unknown:
            yield causes.invalid(place, schema.default, "must not have unknown fields")
        yield from validate(schema.default, schema, path=place)
    if schema.items is not None:
        yield from _wrong_defaults(schema.items, f"{path}.items")
    for name, field in sorted(schema.properties.items()):
        yield from _wrong_defaults(field, f"{path}.properties[{name}]")


@dataclass(frozen=True, slots=True)
class _Node:
    """One place that the schema itself specifies, not under a junctor."""

    raw: Raw
    path: str
    level: _Level

    @property
    def type(self) -> str:
        return self.raw.get("type") or ""

    @property
    def is_embedded(self) -> bool:
        return bool(self.raw.get("x-kubernetes-embedded-resource"))

    @property
    def properties(self) -> Mapping[str, Raw]:
        return self.raw.get("properties") or {}

    def broken_rules(self) -> Iterator[Cause]:
        """Yield the broken rules here and everywhere below."""
        yield from self._type_rules()
        for name in ("preserve-unknown-fields", "embedded-resource"):
            keyword = f"x-kubernetes-{name}"
            if self.raw.get("x-kubernetes-int-or-string") and self.raw.get(keyword):
                detail = "must be false if x-kubernetes-int-or-string is true"
                yield causes.invalid(f"{self.path}.{keyword}", True, detail)
        yield from self._resource_rules()
        yield from _value_rules(self.raw, self.path, may_be_int_or_string=True)
        for name, raw in sorted(self.properties.items()):
            yield from _Node(raw, f"{self.path}.properties[{name}]", _Level.FIELD).broken_rules()
        for keyword, level in (("items", _Level.ITEM), ("additionalProperties", _Level.FIELD)):
            if isinstance(self.raw.get(keyword), dict):
                child = _Node(self.raw[keyword], f"{self.path}.{keyword}", level)
                yield from child.broken_rules()

    def _type_rules(self) -> Iterator[Cause]:
        place = f"{self.path}.type"
        may_lack_type = any(
            self.raw.get(f"x-kubernetes-{name}")
            for name in ("int-or-string", "preserve-unknown-fields")
        )
        if self.is_embedded and self.type != "object":
            detail = "must be object if x-kubernetes-embedded-resource is true"
            yield _required_or_invalid(place, self.type, detail)
        elif not self.type and not may_lack_type:
            yield causes.required(place, self.level.value)
        if self.level is _Level.ROOT and self.type not in {"", "object"}:
            yield causes.invalid(place, self.type, "must be object at the root")
        if self.type == "array" and self.raw.get("items") is None:
            yield causes.required(f"{self.path}.items", "must be specified")

    def _resource_rules(self) -> Iterator[Cause]:
        """Yield what a whole resource, the root or an embedded one, must not say of itself."""
        place = f"{self.path}.additionalProperties"
        has_free_keys = self.raw.get("additionalProperties") is not None
        if has_free_keys and self.level is _Level.ROOT:
            yield causes.forbidden(place, "must not be used at the root")
        if has_free_keys and self.is_embedded:
            detail = "must not be used if x-kubernetes-embedded-resource is set"
            yield causes.forbidden(place, detail)
        keeps_all = self.raw.get("x-kubernetes-preserve-unknown-fields")
        if self.is_embedded and not keeps_all and not self.properties:
            detail = (
                "must not be empty if x-kubernetes-embedded-resource is true"
                " without x-kubernetes-preserve-unknown-fields"
            )
            yield causes.required(f"{self.path}.properties", detail)
        if not self.is_embedded and self.level is not _Level.ROOT:
            return
        for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
            given = self.properties.get(name, {"type": wanted}).get("type") or ""
            if given != wanted:
                place = f"{self.path}.properties[{name}].type"
                yield causes.invalid(place, given, f"must be {wanted}")
        metadata = self.properties.get("metadata") or {}
        keywords = {keyword for keyword, value in metadata.items() if value}
        names: set[str] = set(metadata.get("properties") or ())
        is_plain = keywords <= {"type", "default", "properties"}
        is_plain = is_plain and names <= {"name", "generateName"}
        if self.level is _Level.ROOT and not is_plain:
            detail = (
                "must not specify anything other than name and generateName,"
                " but metadata is implicitly specified"
            )
            yield causes.forbidden(f"{self.path}.properties[metadata]", detail)


def _value_rules(raw: Raw, path: str, *, may_be_int_or_string: bool = False) -> Iterator[Cause]:
    """Yield the broken rules about values: junctors and patterns.

    Types belong outside of junctors. The one exception is the way to write an int-or-string,
    as the whole `anyOf` or as that of the first `allOf`.
    """
    is_int_or_string = may_be_int_or_string and raw.get("anyOf") == _INT_OR_STRING
    for way, part in _parts_of(raw):
        if not (is_int_or_string and way.startswith("anyOf")):
            is_first_part = may_be_int_or_string and way == "allOf[0]"
            yield from _nested_rules(part, f"{path}.{way}", may_be_int_or_string=is_first_part)
    if raw.get("pattern"):
        try:
            compile_pattern(raw["pattern"])
        except MalformedSchema as error:
            detail = f"must be a valid regular expression, but isn't: {error.message}"
            yield causes.invalid(f"{path}.pattern", raw["pattern"], detail)


def _nested_rules(raw: Raw, path: str, *, may_be_int_or_string: bool = False) -> Iterator[Cause]:
    yield from _value_rules(raw, path, may_be_int_or_string=may_be_int_or_string)
    if isinstance(raw.get("items"), dict):
        yield from _nested_rules(raw["items"], f"{path}.items")
    properties = cast("Mapping[str, Raw]", raw.get("properties") or {})
    for name, field in sorted(properties.items()):
        yield from _nested_rules(field, f"{path}.properties[{name}]")
    if "metadata" in properties:
        detail = "must not be specified in a nested context"
        yield causes.forbidden(f"{path}.properties[metadata]", detail)
    for keyword, detail in _FORBIDDEN_WHEN_NESTED.items():
        value = raw.get(keyword)
        is_said = value is not None if "undefined" in detail else bool(value)
        if is_said:
            yield causes.forbidden(f"{path}.{keyword}", detail)


def _incomplete(part: Raw, structure: Raw, path: str, way: str) -> Iterator[Cause]:
    """Yield the fields that junctors at the root speak of and the schema itself does not.

    `part` is a schema under a junctor, `structure` the one it must be covered by: with
    `anyOf: [{properties: {a: …}}]` at the root there must be a `properties[a]` at the root.
    """
    for junctor, below in _parts_of(part):
        inner = f"{way}.{junctor}"
        yield from _incomplete(below, structure, path, inner)
        yield from _incomplete_members(below, structure, path, inner)


def _incomplete_members(part: Raw, structure: Raw, path: str, way: str) -> Iterator[Cause]:
    specified = dict(subschemas(structure))
    for step, field in subschemas(part):
        if step != "items" and not step.startswith("properties["):
            continue
        if step not in specified:
            yield causes.required(f"{path}.{step}", f"because it is defined in {way}.{step}")
            continue
        place, inner = f"{path}.{step}", f"{way}.{step}"
        yield from _incomplete(field, specified[step], place, inner)
        yield from _incomplete_members(field, specified[step], place, inner)


def _parts_of(raw: Raw) -> list[tuple[str, Raw]]:
    """Return the schemas under junctors, each with the way to it."""
    junctors = ("allOf[", "anyOf[", "oneOf[")
    return [
        found for found in subschemas(raw) if found[0] == "not" or found[0].startswith(junctors)
    ]


def _required_or_invalid(place: str, value: str | None, detail: str) -> Cause:
    return causes.invalid(place, value, detail) if value else causes.required(place, detail)


# Keywords that a definition may not have, or only together with others.


def _find_unsupported(raw: Raw) -> str:
    """Return a keyword, at any depth, that a structural schema cannot even express, or nothing."""
    for keyword in (*_UNSUPPORTED, "$schema"):
        if raw.get(keyword):
            return keyword.removeprefix("$") if keyword == "$schema" else keyword
    if isinstance(raw.get("items"), list):
        return "items"
    if raw.get("x-kubernetes-preserve-unknown-fields") is False:
        return "x-kubernetes-preserve-unknown-fields"
    below = (_find_unsupported(child) for _, child in subschemas(raw))
    return next(filter(None, below), "")


@dataclass(frozen=True, slots=True)
class _Place:
    """One schema, where it is, and which keywords its surroundings forbid."""

    raw: Raw
    path: str
    is_root: bool = False
    is_inside_meta: bool = False
    no_defaults_because: str = ""

    def broken_rules(self) -> Iterator[Cause]:
        """Yield the broken rules here and everywhere below."""
        yield from self._unsupported()
        free = self.raw.get("additionalProperties")
        if self.raw.get("properties") and free is not None and free is not True:
            detail = "additionalProperties and properties are mutual exclusive"
            yield causes.forbidden(f"{self.path}.additionalProperties", detail)
        if self.raw.get("x-kubernetes-preserve-unknown-fields") is False:
            place = f"{self.path}.x-kubernetes-preserve-unknown-fields"
            yield causes.invalid(place, False, "must be true or undefined")
        for way, child in subschemas(self.raw):
            yield from self._below(way, child).broken_rules()
        map_type = self.raw.get("x-kubernetes-map-type")
        if map_type is not None:
            place = f"{self.path}.x-kubernetes-map-type"
            yield from self._needs_type("object", "x-kubernetes-map-type")
            if map_type not in {"atomic", "granular"}:
                yield causes.not_supported(place, map_type, ("atomic", "granular"))
        yield from self._list_type_rules()

    def _below(self, way: str, child: Raw) -> "_Place":
        below = replace(self, raw=child, path=f"{self.path}.{way}", is_root=False)
        is_resource = self.is_root or bool(self.raw.get("x-kubernetes-embedded-resource"))
        name = way.removeprefix("properties[").removesuffix("]")
        if is_resource and way.startswith("properties[") and name in _META_FIELDS:
            below = replace(below, is_inside_meta=True)
            if self.is_root:
                below = replace(below, no_defaults_because=f"in top-level {name}")
        if way == "additionalProperties" and self.is_inside_meta:
            reason = "inside additionalProperties applying to object metadata"
            below = replace(below, no_defaults_because=reason)
        return below

    def _unsupported(self) -> Iterator[Cause]:
        given = self.raw.get("type") or ""
        if given and given not in _TYPES:
            yield causes.not_supported(f"{self.path}.type", given, _TYPES)
        if self.raw.get("default") is not None and self.no_defaults_because:
            detail = f"must not be set {self.no_defaults_because}"
            yield causes.forbidden(f"{self.path}.default", detail)
        for keyword in _UNSUPPORTED:
            if self.raw.get(keyword):
                detail = f"{keyword} is not supported"
                yield causes.forbidden(f"{self.path}.{keyword}", detail)
        if given == "null":
            detail = "type cannot be set to null, use nullable as an alternative"
            yield causes.forbidden(f"{self.path}.type", detail)
        if isinstance(self.raw.get("items"), list):
            detail = "items must be a schema object and not an array"
            yield causes.forbidden(f"{self.path}.items", detail)
        if self.is_inside_meta and self.raw.get("x-kubernetes-embedded-resource"):
            place = f"{self.path}.x-kubernetes-embedded-resource"
            yield causes.forbidden(place, "must not be used inside of resource meta")
        if self.raw.get("uniqueItems"):
            yield causes.forbidden(f"{self.path}.uniqueItems", _NOT_UNIQUE)

    def _needs_type(self, wanted: str, keyword: str) -> list[Cause]:
        given = self.raw.get("type") or ""
        if given == wanted:
            return []
        detail = f"must be {wanted} if {keyword} is specified"
        return [_required_or_invalid(f"{self.path}.type", given, detail)]

    def _list_type_rules(self) -> Iterator[Cause]:
        place = f"{self.path}.x-kubernetes-list-type"
        list_type = self.raw.get("x-kubernetes-list-type")
        raw_items = self.raw.get("items")
        items: Raw = cast("Raw", raw_items) if isinstance(raw_items, dict) else {}
        if list_type is not None:
            wrong_type = self._needs_type("array", "x-kubernetes-list-type")
            yield from wrong_type
            if not wrong_type and list_type == "set":
                # Elements that could be merged make no sense in a set.
                detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
                inner_list = items.get("x-kubernetes-list-type")
                if items.get("type") == "array" and inner_list not in {None, "atomic"}:
                    inner = f"{self.path}.items.x-kubernetes-list-type"
                    yield causes.invalid(inner, inner_list, detail)
                inner_map = items.get("x-kubernetes-map-type")
                if items.get("type") == "object" and inner_map != "atomic":
                    inner = f"{self.path}.items.x-kubernetes-map-type"
                    yield causes.invalid(inner, inner_map, detail)
            if list_type not in {"atomic", "set", "map"}:
                yield causes.not_supported(place, list_type, ("atomic", "set", "map"))
        keys = list[str](self.raw.get("x-kubernetes-list-map-keys") or [])
        if keys and list_type != "map":
            detail = "must be map if x-kubernetes-list-map-keys is non-empty"
            yield _required_or_invalid(place, list_type, detail)
        if list_type == "map":
            yield from self._map_key_rules(keys, items)
        if list_type in {"set", "map"} and items.get("nullable"):
            detail = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
            yield causes.forbidden(f"{self.path}.items.nullable", detail)

    def _map_key_rules(self, keys: list[str], items: Raw) -> Iterator[Cause]:
        """Yield what keeps the elements of a list from being identified by their key fields."""
        keyword = f"{self.path}.x-kubernetes-list-map-keys"
        if not keys:
            yield causes.required(keyword, "must not be empty if x-kubernetes-list-type is map")
        if self.raw.get("items") is None:
            detail = "must have a schema if x-kubernetes-list-type is map"
            yield causes.required(f"{self.path}.items", detail)
            return
        if items.get("type") != "object":
            detail = "must be object if parent array's x-kubernetes-list-type is map"
            yield causes.invalid(f"{self.path}.items.type", items.get("type") or "", detail)
            return
        properties = cast("Mapping[str, Raw]", items.get("properties") or {})
        for index, key in enumerate(keys):
            if key not in properties:
                yield causes.invalid(keyword, keys, "entries must all be names of item properties")
            else:
                field, place = properties[key], f"{self.path}.items.properties[{key}]"
                named = "this property is in x-kubernetes-list-map-keys, so it"
                if field.get("type") in {"array", "object"}:
                    detail = "must be a scalar type if parent array's x-kubernetes-list-type is map"
                    yield causes.invalid(f"{place}.type", field["type"], detail)
                if key not in (items.get("required") or []) and field.get("default") is None:
                    detail = f"{named} must have a default or be a required property"
                    yield causes.required(f"{place}.default", detail)
                if field.get("nullable"):
                    yield causes.forbidden(f"{place}.nullable", f"{named} cannot be nullable")
            if key in keys[:index]:
                yield causes.invalid(keyword, keys, "must not contain duplicate entries")
