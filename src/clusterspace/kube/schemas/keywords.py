"""Keywords that a CustomResourceDefinition's schema may not have, or only together with others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.schemas.reading import subschemas

Raw = Mapping[str, Any]

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


def check_keywords(raw: Raw, *, path: str) -> list[Cause]:
    """Return every keyword, at every depth of a well-shaped schema, that breaks a rule."""
    return list(_Place(raw, path, is_root=True).broken_rules())


def find_unsupported(raw: Raw) -> str:
    """Return a keyword, at any depth, that a structural schema cannot even express, or nothing."""
    for keyword in (*_UNSUPPORTED, "$schema"):
        if raw.get(keyword):
            return keyword.removeprefix("$") if keyword == "$schema" else keyword
    if isinstance(raw.get("items"), list):
        return "items"
    if raw.get("x-kubernetes-preserve-unknown-fields") is False:
        return "x-kubernetes-preserve-unknown-fields"
    below = (find_unsupported(child) for _, child in subschemas(raw))
    return next(filter(None, below), "")


@dataclass(frozen=True, slots=True)
class _Place:
    """One schema, where it is, and what its surroundings forbid it."""

    raw: Raw
    path: str
    is_root: bool = False
    is_inside_meta: bool = False
    no_defaults_because: str = ""

    def broken_rules(self) -> Iterator[Cause]:
        """Yield what is wrong here and everywhere below."""
        yield from self._unsupported()
        yield from self._free_keys()
        for way, child in subschemas(self.raw):
            yield from self._below(way, child).broken_rules()
        yield from _map_type_rules(self.raw, self.path)
        yield from _list_type_rules(self.raw, self.path)
        yield from _map_list_rules(self.raw, self.path)

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

    def _free_keys(self) -> Iterator[Cause]:
        free = self.raw.get("additionalProperties")
        if self.raw.get("properties") and free is not None and free is not True:
            detail = "additionalProperties and properties are mutual exclusive"
            yield causes.forbidden(f"{self.path}.additionalProperties", detail)
        if self.raw.get("x-kubernetes-preserve-unknown-fields") is False:
            place = f"{self.path}.x-kubernetes-preserve-unknown-fields"
            yield causes.invalid(place, False, "must be true or undefined")


def _map_type_rules(raw: Raw, path: str) -> Iterator[Cause]:
    keyword = "x-kubernetes-map-type"
    map_type = raw.get(keyword)
    if map_type is None:
        return
    yield from _needs_type(raw, path, "object", keyword)
    if map_type not in {"atomic", "granular"}:
        yield causes.not_supported(f"{path}.{keyword}", map_type, ("atomic", "granular"))


def _list_type_rules(raw: Raw, path: str) -> Iterator[Cause]:
    keyword = "x-kubernetes-list-type"
    list_type = raw.get(keyword)
    if list_type is None:
        return
    wrong_type = list(_needs_type(raw, path, "array", keyword))
    yield from wrong_type
    if not wrong_type and list_type == "set":
        yield from _set_element_rules(_items_of(raw), f"{path}.items")
    if list_type not in {"atomic", "set", "map"}:
        yield causes.not_supported(f"{path}.{keyword}", list_type, ("atomic", "set", "map"))


def _needs_type(raw: Raw, path: str, wanted: str, keyword: str) -> Iterator[Cause]:
    given = raw.get("type") or ""
    if given == wanted:
        return
    place, detail = f"{path}.type", f"must be {wanted} if {keyword} is specified"
    yield causes.invalid(place, given, detail) if given else causes.required(place, detail)


def _set_element_rules(items: Raw, path: str) -> Iterator[Cause]:
    """Yield whether the elements of a set could be merged, which makes no sense in a set."""
    detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
    list_type = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and list_type not in {None, "atomic"}:
        yield causes.invalid(f"{path}.x-kubernetes-list-type", list_type, detail)
    map_type = items.get("x-kubernetes-map-type")
    if items.get("type") == "object" and map_type != "atomic":
        yield causes.invalid(f"{path}.x-kubernetes-map-type", map_type, detail)


def _map_list_rules(raw: Raw, path: str) -> Iterator[Cause]:
    """Yield what keeps the elements of a list from being told apart by their key fields."""
    keys = list[str](raw.get("x-kubernetes-list-map-keys") or [])
    list_type = raw.get("x-kubernetes-list-type")
    if keys and list_type != "map":
        place = f"{path}.x-kubernetes-list-type"
        detail = "must be map if x-kubernetes-list-map-keys is non-empty"
        yield (
            causes.invalid(place, list_type, detail)
            if list_type
            else causes.required(place, detail)
        )
    if list_type == "map":
        yield from _key_rules(raw, keys, path)
    if list_type in {"set", "map"} and _items_of(raw).get("nullable"):
        detail = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        yield causes.forbidden(f"{path}.items.nullable", detail)


def _key_rules(raw: Raw, keys: list[str], path: str) -> Iterator[Cause]:
    keyword = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        yield causes.required(keyword, "must not be empty if x-kubernetes-list-type is map")
    if raw.get("items") is None:
        detail = "must have a schema if x-kubernetes-list-type is map"
        yield causes.required(f"{path}.items", detail)
        return
    items = _items_of(raw)
    if items.get("type") != "object":
        detail = "must be object if parent array's x-kubernetes-list-type is map"
        yield causes.invalid(f"{path}.items.type", items.get("type") or "", detail)
        return
    properties = cast("Mapping[str, Raw]", items.get("properties") or {})
    for index, key in enumerate(keys):
        if key not in properties:
            yield causes.invalid(keyword, keys, "entries must all be names of item properties")
        else:
            yield from _key_field_rules(key, properties[key], items, f"{path}.items")
        if key in keys[:index]:
            yield causes.invalid(keyword, keys, "must not contain duplicate entries")


def _key_field_rules(key: str, field: Raw, items: Raw, path: str) -> Iterator[Cause]:
    place = f"{path}.properties[{key}]"
    named = "this property is in x-kubernetes-list-map-keys, so it"
    if field.get("type") in {"array", "object"}:
        detail = "must be a scalar type if parent array's x-kubernetes-list-type is map"
        yield causes.invalid(f"{place}.type", field["type"], detail)
    if key not in (items.get("required") or []) and field.get("default") is None:
        detail = f"{named} must have a default or be a required property"
        yield causes.required(f"{place}.default", detail)
    if field.get("nullable"):
        yield causes.forbidden(f"{place}.nullable", f"{named} cannot be nullable")


def _items_of(raw: Raw) -> Raw:
    items = raw.get("items")
    return cast("Raw", items) if isinstance(items, dict) else {}
